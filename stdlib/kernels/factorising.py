"""Factorises matrices: triangles by elimination, reflections and roots; eigenvalues and singular values by rotations.

Each matrix is the work of one task, so that the matrices of a batch run side by side. Numbers are float32, float64 or
complex; outputs named `work` hold what is computed on the way. Of complex numbers `C` are the elements, and `R` their
parts; of real ones both are the same.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Int,
    OutputTensor,
    abs,
    complex64,
    complex128,
    conj,
    float32,
    float64,
    log,
    max,
    min,
    parallel_for,
    real,
    register,
    select,
    sqrt,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.references import Array

C = TypeVar("C", float32, float64, complex64, complex128)
R = TypeVar("R", float32, float64)

SWEEPS = 60  # rounds of rotations at most; about ten make what is left as small as rounding


@register("solve")
def solve(
    out: OutputTensor[C, "*a n k"],
    work: OutputTensor[C, "*a n n"],
    a: InputTensor[C, "*a n n"],
    b: InputTensor[C, "*a n k"],
    ctx: DeviceContext,
) -> None:
    """x of a @ x == b: elimination with the largest pivot of each column, then substitution from the last row on."""
    n, k = out.dim(-2), out.dim(-1)

    def one(task: Index):
        lead: Any = unravelled(task, out.shape[:-2])
        _copy(work, a, lead, n, n)
        _copy(out, b, lead, n, k)
        for column in range(n):
            best = _pivot(work, lead, column, n)
            assert work[(*lead, best, column)] != 0, "the matrix is singular"
            _swap_rows(work, lead, column, best, n)
            _swap_rows(out, lead, column, best, k)
            for row in range(column + 1, n):
                factor = work[(*lead, row, column)] / work[(*lead, column, column)]
                _subtract_row(work, lead, row, column, factor, column + 1, n)
                _subtract_row(out, lead, row, column, factor, 0, k)
        for step in range(n):
            row = n - 1 - step
            for j in range(k):
                total = out[(*lead, row, j)]
                for other in range(row + 1, n):
                    total = total - work[(*lead, row, other)] * out[(*lead, other, j)]
                out[(*lead, row, j)] = total / work[(*lead, row, row)]

    parallel_for(product(out.shape[:-2]), one)


@register("determinants")
def determinants(
    out: OutputTensor[C, "*a"],
    sign: OutputTensor[C, "*a"],
    size: OutputTensor[R, "*a"],
    work: OutputTensor[C, "*a n n"],
    x: InputTensor[C, "*a n n"],
    ctx: DeviceContext,
) -> None:
    """The determinant, its sign, and the logarithm of its magnitude; 0, 0 and -inf of a singular matrix.

    The sign of a complex number is the number divided by its magnitude.
    """
    n = x.dim(-1)

    def one(task: Index):
        lead: Any = unravelled(task, sign.shape)
        _copy(work, x, lead, n, n)
        side = x.dtype(1)
        total = R(0)
        whole = x.dtype(1)
        for column in range(n):
            best = _pivot(work, lead, column, n)
            _swap_rows(work, lead, column, best, n)
            pivot = work[(*lead, column, column)]
            side = side * _sign(pivot)
            if best != column:
                side = -side
            total = total + log(abs(pivot))
            whole = whole * (pivot if best == column else -pivot)
            if pivot != 0:
                for row in range(column + 1, n):
                    factor = work[(*lead, row, column)] / pivot
                    _subtract_row(work, lead, row, column, factor, column + 1, n)
        out[lead] = whole
        sign[lead] = side
        size[lead] = total

    parallel_for(product(sign.shape), one)


@register("cholesky")
def cholesky(out: OutputTensor[C, "*a n n"], x: InputTensor[C, "*a n n"], ctx: DeviceContext) -> None:
    """The lower triangle with which x == out @ out transposed and conjugate; only the lower triangle of x is read."""
    n = x.dim(-1)

    def one(task: Index):
        lead: Any = unravelled(task, x.shape[:-2])
        for row in range(n):
            for column in range(n):
                out[(*lead, row, column)] = x.dtype(0)
            for column in range(row + 1):
                total = x[(*lead, row, column)]
                for k in range(column):
                    total = total - out[(*lead, row, k)] * conj(out[(*lead, column, k)])
                if column == row:
                    assert not real(total) <= 0, "the matrix is not positive definite"
                    out[(*lead, row, column)] = x.dtype(sqrt(real(total)))
                else:
                    out[(*lead, row, column)] = total / out[(*lead, column, column)]

    parallel_for(product(x.shape[:-2]), one)


@register("qr")
def qr(
    q: OutputTensor[C, "*a m m"],
    r: OutputTensor[C, "*a m n"],
    work: OutputTensor[C, "*a m"],
    x: InputTensor[C, "*a m n"],
    ctx: DeviceContext,
    *,
    positive: bool,
) -> None:
    """An orthogonal (unitary) matrix and an upper triangle whose product x is, by Householder's reflections.

    With `positive` the diagonal of the triangle has real elements, none of them negative.
    """
    m, n = x.dim(-2), x.dim(-1)
    zero = abs(x.dtype(0))

    def one(task: Index):
        lead: Any = unravelled(task, x.shape[:-2])
        _copy(r, x, lead, m, n)
        _identity(q, lead, m)
        for column in range(min(m - 1, n)):
            largest = zero
            for row in range(column, m):
                largest = max(largest, abs(r[(*lead, row, column)]))
            below = zero
            for row in range(column + 1, m):
                below = max(below, abs(r[(*lead, row, column)]))
            if below != 0:
                total = zero
                for row in range(column, m):
                    part = r[(*lead, row, column)] / largest
                    work[(*lead, row)] = part
                    total = total + real(part * conj(part))
                first = work[(*lead, column)]
                end = -_direction(first) * sqrt(total)  # away from the first element
                work[(*lead, column)] = first - end
                scale = 1 / (total - real(first * conj(end)))  # 2 / (v @ v)
                _reflect_columns(r, work, lead, column, scale, m, n)
                _reflect_rows(q, work, lead, column, scale, m)
                r[(*lead, column, column)] = end * largest
                for row in range(column + 1, m):
                    r[(*lead, row, column)] = x.dtype(0)
        if positive:
            for k in range(min(m, n)):
                turn = _direction(r[(*lead, k, k)])
                if turn != 1:
                    for column in range(n):
                        r[(*lead, k, column)] = r[(*lead, k, column)] * conj(turn)
                    for row in range(m):
                        q[(*lead, row, k)] = q[(*lead, row, k)] * turn

    parallel_for(product(x.shape[:-2]), one)


@register("eigh")
def eigh(
    values: OutputTensor[R, "*a n"],
    vectors: OutputTensor[C, "*a n n"],
    work: OutputTensor[C, "*a n n"],
    x: InputTensor[C, "*a n n"],
    ctx: DeviceContext,
) -> None:
    """The eigenvalues of a symmetric (Hermitian) matrix, the smallest first, and eigenvectors as columns: Jacobi's
    rotations.

    Only the lower triangle of x is read.
    """
    n = x.dim(-1)
    least = _least(x)

    def one(task: Index):
        lead: Any = unravelled(task, x.shape[:-2])
        scale = _peak(x, lead, n, n)
        for row in range(n):
            for column in range(row + 1):
                part = x[(*lead, row, column)] / scale
                work[(*lead, row, column)] = part
                work[(*lead, column, row)] = conj(part)
        _identity(vectors, lead, n)
        turned = True
        sweep = Int(0)
        while turned and sweep < SWEEPS:
            turned = False
            sweep = sweep + 1
            for p in range(n):
                for q in range(p + 1, n):
                    apart = work[(*lead, p, q)]
                    if abs(apart) > least:
                        turned = True
                        phase, size = _phase(apart)
                        cosine, sine = _rotation(real(work[(*lead, p, p)]), real(work[(*lead, q, q)]), size)
                        _turn_columns(work, lead, p, q, cosine, sine, phase, n)
                        _turn_rows(work, lead, p, q, cosine, sine, phase, n)
                        _turn_columns(vectors, lead, p, q, cosine, sine, phase, n)
        for k in range(n):
            values[(*lead, k)] = real(work[(*lead, k, k)]) * scale
        for k in range(n):
            best: Any = Int(k)
            for other in range(k + 1, n):
                if values[(*lead, other)] < values[(*lead, best)]:
                    best = Int(other)
            if best != k:
                one_value, other_value = values[(*lead, k)], values[(*lead, best)]
                values[(*lead, k)] = other_value
                values[(*lead, best)] = one_value
                _swap_columns(vectors, lead, k, best, n)

    parallel_for(product(x.shape[:-2]), one)


@register("orthogonal_columns")
def orthogonal_columns(
    out: OutputTensor[C, "*a m n"],
    sizes: OutputTensor[R, "*a n"],
    turns: OutputTensor[C, "*a n n"],
    x: InputTensor[C, "*a m n"],
    ctx: DeviceContext,
) -> None:
    """x @ turns, whose columns are orthogonal, the longest first; their lengths; and the turns: Hestenes' rotations."""
    m, n = x.dim(-2), x.dim(-1)
    least = _least(x)

    def one(task: Index):
        lead: Any = unravelled(task, x.shape[:-2])
        scale = _peak(x, lead, m, n)
        for row in range(m):
            for column in range(n):
                out[(*lead, row, column)] = x[(*lead, row, column)] / scale
        _identity(turns, lead, n)
        turned = True
        sweep = Int(0)
        while turned and sweep < SWEEPS:
            turned = False
            sweep = sweep + 1
            for p in range(n):
                for q in range(p + 1, n):
                    first = real(_dot(out, lead, p, p, m))
                    second = real(_dot(out, lead, q, q, m))
                    both = _dot(out, lead, p, q, m)
                    if abs(both) > least * sqrt(first) * sqrt(second) and abs(both) > least * least:
                        turned = True
                        phase, size = _phase(both)
                        cosine, sine = _rotation(first, second, size)
                        _turn_columns(out, lead, p, q, cosine, sine, phase, m)
                        _turn_columns(turns, lead, p, q, cosine, sine, phase, n)
        for k in range(n):
            best: Any = Int(k)
            for other in range(k + 1, n):
                if real(_dot(out, lead, other, other, m)) > real(_dot(out, lead, best, best, m)):
                    best = Int(other)
            if best != k:
                _swap_columns(out, lead, k, best, m)
                _swap_columns(turns, lead, k, best, n)
        for column in range(n):
            sizes[(*lead, column)] = sqrt(real(_dot(out, lead, column, column, m))) * scale
            for row in range(m):
                out[(*lead, row, column)] = out[(*lead, row, column)] * scale

    parallel_for(product(x.shape[:-2]), one)


# *** parts ***


def _least(x: AnyTensor) -> Any:
    """Half a unit in the last place of 1, next to which rotations change nothing."""
    return 1.2e-16 if x.dtype == float64 or x.dtype == complex128 else 6e-8


def _copy(out: AnyTensor, x: AnyTensor, lead: tuple[Index, ...], m: Index, n: Index) -> None:
    for row in range(m):
        for column in range(n):
            out[(*lead, row, column)] = x[(*lead, row, column)]


def _identity(out: AnyTensor, lead: tuple[Index, ...], n: Index) -> None:
    for row in range(n):
        for column in range(n):
            out[(*lead, row, column)] = select(row == column, out.dtype(1), out.dtype(0))


def _peak(x: AnyTensor, lead: tuple[Index, ...], m: Index, n: Index) -> Any:
    """The largest magnitude; 1 where all elements are 0."""
    largest = abs(x.dtype(0))
    for row in range(m):
        for column in range(n):
            largest = max(largest, abs(x[(*lead, row, column)]))
    return select(largest == 0, abs(x.dtype(1)), largest)


def _sign(x: Floating) -> Any:
    """A number divided by its magnitude; 0 of 0."""
    if x.dtype.is_complex():
        size = abs(x)
        return x / select(size == 0, x.dtype.part(1), size)
    return select(x == 0, x.dtype(0), select(x < 0, x.dtype(-1), x.dtype(1)))


def _direction(x: Floating) -> Any:
    """A number divided by its magnitude; 1 of 0."""
    return select(x == 0, x.dtype(1), _sign(x))


def _phase(x: Floating) -> Any:
    """The factor of magnitude 1, and the real number, whose product a number is; a real number is the second."""
    if x.dtype.is_complex():
        return _direction(x), abs(x)
    return x.dtype(1), x


def _dot(x: AnyTensor, lead: tuple[Index, ...], p: Index, q: Index, m: Index) -> Any:
    total = x.dtype(0)
    for row in range(m):
        total = total + conj(x[(*lead, row, p)]) * x[(*lead, row, q)]
    return total


def _pivot(x: AnyTensor, lead: tuple[Index, ...], column: Index, n: Index) -> Any:
    """The row of the largest element of a column, from the diagonal on."""
    best: Any = Int(column)
    for row in range(column + 1, n):
        if abs(x[(*lead, row, column)]) > abs(x[(*lead, best, column)]):
            best = Int(row)
    return best


def _swap_rows(x: AnyTensor, lead: tuple[Index, ...], one: Index, other: Index, n: Index) -> None:
    if one != other:
        for column in range(n):
            a, b = x[(*lead, one, column)], x[(*lead, other, column)]
            x[(*lead, one, column)] = b
            x[(*lead, other, column)] = a


def _swap_columns(x: AnyTensor, lead: tuple[Index, ...], one: Index, other: Index, m: Index) -> None:
    for row in range(m):
        a, b = x[(*lead, row, one)], x[(*lead, row, other)]
        x[(*lead, row, one)] = b
        x[(*lead, row, other)] = a


def _subtract_row(
    x: AnyTensor, lead: tuple[Index, ...], row: Index, other: Index, factor: Floating, first: Index, n: Index
) -> None:
    for column in range(first, n):
        x[(*lead, row, column)] = x[(*lead, row, column)] - factor * x[(*lead, other, column)]


def _rotation(first: Floating, second: Floating, both: Floating) -> Any:
    """Cosine and sine of the turn by which two columns with these products become orthogonal."""
    slope = (second - first) / (2 * both)
    tangent = select(slope < 0, first.dtype(-1), first.dtype(1)) / (abs(slope) + sqrt(1 + slope * slope))
    cosine = 1 / sqrt(1 + tangent * tangent)
    return cosine, cosine * tangent


def _times(x: Floating, phase: Floating) -> Any:
    return x * phase if x.dtype.is_complex() else x


def _turn_columns(
    x: AnyTensor,
    lead: tuple[Index, ...],
    p: Index,
    q: Index,
    cosine: Floating,
    sine: Floating,
    phase: Floating,
    m: Index,
) -> None:
    for row in range(m):
        a, b = x[(*lead, row, p)], _times(x[(*lead, row, q)], conj(phase))
        x[(*lead, row, p)] = cosine * a - sine * b
        x[(*lead, row, q)] = sine * a + cosine * b


def _turn_rows(
    x: AnyTensor,
    lead: tuple[Index, ...],
    p: Index,
    q: Index,
    cosine: Floating,
    sine: Floating,
    phase: Floating,
    n: Index,
) -> None:
    for column in range(n):
        a, b = x[(*lead, p, column)], _times(x[(*lead, q, column)], phase)
        x[(*lead, p, column)] = cosine * a - sine * b
        x[(*lead, q, column)] = sine * a + cosine * b


def _reflect_columns(
    r: AnyTensor, v: AnyTensor, lead: tuple[Index, ...], first: Index, scale: Floating, m: Index, n: Index
) -> None:
    for column in range(first + 1, n):
        total = v.dtype(0)
        for row in range(first, m):
            total = total + conj(v[(*lead, row)]) * r[(*lead, row, column)]
        for row in range(first, m):
            r[(*lead, row, column)] = r[(*lead, row, column)] - scale * total * v[(*lead, row)]


def _reflect_rows(q: AnyTensor, v: AnyTensor, lead: tuple[Index, ...], first: Index, scale: Floating, m: Index) -> None:
    for row in range(m):
        total = v.dtype(0)
        for column in range(first, m):
            total = total + q[(*lead, row, column)] * v[(*lead, column)]
        for column in range(first, m):
            q[(*lead, row, column)] = q[(*lead, row, column)] - scale * total * conj(v[(*lead, column)])


# *** references ***


@solve.reference
def solve_reference(a: Array, b: Array):
    return np.linalg.solve(a, b), a


@determinants.reference
def determinants_reference(x: Array):
    sign, size = np.linalg.slogdet(x)
    return np.linalg.det(x), sign, size, x


@cholesky.reference
def cholesky_reference(x: Array):
    return np.linalg.cholesky(x)


@qr.reference
def qr_reference(x: Array, *, positive: bool):
    q, r = np.linalg.qr(x, "complete")
    if positive:
        diagonal = np.diagonal(r, axis1=-2, axis2=-1)
        signs = np.where(diagonal == 0, 1, np.sign(diagonal)).astype(x.dtype)
        k = signs.shape[-1]
        q[..., :k] *= signs[..., None, :]
        r[..., :k, :] *= signs.conj()[..., None]
    return q, r, x[..., 0]


@eigh.reference
def eigh_reference(x: Array):
    values, vectors = np.linalg.eigh(x)
    return values, vectors, x


@orthogonal_columns.reference
def orthogonal_columns_reference(x: Array):
    _, sizes, right = np.linalg.svd(x)
    n, k = x.shape[-1], sizes.shape[-1]
    turns = np.swapaxes(right, -1, -2).conj()
    lengths = np.zeros((*x.shape[:-2], n), sizes.dtype)
    lengths[..., :k] = sizes
    return x @ turns, lengths, turns
