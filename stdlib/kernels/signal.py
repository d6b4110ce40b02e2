"""Computes Fourier transforms of rows of any length, windows, and products of complex numbers.

Transforms have mixed radices: 4, 2, 3 and 5 are written out, other primes are plain sums.

Stages go from one copy of a row to another and leave the elements in order (Stockham's form). Real and imaginary parts
lie apart meanwhile. The roots of unity are a table, computed in float64, into which indices are exact: so errors grow
with the logarithm of the length. A prime factor p costs p steps an element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    AnyTensor,
    Bool,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    Parts,
    Pointer,
    ceildiv,
    cos,
    float32,
    float64,
    foreach,
    max,
    min,
    parallel_for,
    register,
    select,
    sin,
    sqrt,
    stack,
    struct,
    unroll,
)
from ..algorithms.algorithm import widened
from ..algorithms.rows import TASK

C = TypeVar("C", float32, float64)
F = TypeVar("F", bound=Floating)
N = TypeVar("N", bound=Numeric)

NEARBY = 4096  # elements of a row that is transformed in memory close by
LANES = 16
TURN = 6.283185307179586


@register("fft_roots")
def fft_roots(out: OutputTensor[C, "2 n"]) -> None:
    """The roots of unity exp(-2 pi i k / n): real parts, then imaginary ones."""

    def element(i: tuple[Index, ...]):
        angle = Int(i[1]).cast(float64) * (TURN / Int(out.dim(1)).cast(float64))
        return (cos(angle) if i[0] == 0 else -sin(angle)).cast(C)

    foreach(out, element)


@register("fft")
def fft(
    out: OutputTensor[C, "m k d"],
    work: OutputTensor[C, "w"],
    x: InputTensor[C, "m j c"],
    roots: InputTensor[C, "2 n"],
    ctx: DeviceContext,
    *,
    inverse: bool,
    hermitian: bool,
    halved: bool,
    scaling: str,
    nearby: bool,
    factors: int,
) -> None:
    """The Fourier transform of each row, of as many elements as there are roots.

    Rows of x are cut off, or filled with zeros; c is 1 for real numbers and 2 for pairs. The first k elements are
    stored, as real parts if d is 1. `hermitian` rows hold the first half, and the other half is the conjugate of it.
    `halved` transforms of real numbers, or to them, take two of these as a complex one: n is even then, and `factors`
    are those of n / 2.
    `scaling` is "none", "n" (divided by n) or "root" (by its root). `work` has 4 n numbers a row, or nothing if rows
    are transformed `nearby`, which is for n up to 4096. The bits of `factors` say which of 4, 2, 3, 5 and others n may
    have, so that there is no code for what does not occur.
    """
    n = roots.dim(1)
    scale = scale_of(scaling, n).cast(C)

    def transformed(row: Index, memory: Pointer[Floating]):
        first, second = (memory, memory + n), (memory + 2 * n, memory + 3 * n)
        if halved and hermitian:
            _halves_to_real(out, x, row, first, second, roots, factors, scale)
        elif halved:
            _real_to_halves(out, x, row, first, second, roots, factors, scale)
        else:
            _each_element((out, x, row), (first, second), roots, inverse, hermitian, factors, scale)

    def row_of(row: Index):
        if nearby:
            transformed(row, stack[C](4 * NEARBY, zeroed=False).pointer(0))
        else:
            transformed(row, work.pointer(4 * n * row))

    parallel_for(x.dim(0), row_of, grain=ceildiv(TASK, 16 * n + 16))


@register("hann_window")
def hann_window(out: OutputTensor[F, "n"], *, periodic: bool) -> None:
    """(1 - cos(2 pi k / n)) / 2, with n - 1 instead of n unless `periodic`; 1 for a window of one number."""
    last = out.dim(0) if periodic else out.dim(0) - 1

    def element(i: tuple[Index, ...]):
        angle = Int(i[0]).cast(float64) * (TURN / max(last, 1).cast(float64))
        return select(out.dim(0) == 1, 1.0, 0.5 - 0.5 * cos(angle)).cast(F)

    foreach(out, element)


@register("frequencies")
def frequencies(out: OutputTensor[F, "k"], *, half: bool, n: int, d: float) -> None:
    """The frequencies k / (n d) of the elements of a transform; those of the second half less n, unless `half`."""
    last = n // 2 if half else (n - 1) // 2

    def element(i: tuple[Index, ...]):
        k = Int(i[0])
        return (select(k <= last, k, k - n).cast(float64) / (n * d)).cast(F)

    foreach(out, element)


@register("complex_mul")
def complex_mul(out: OutputTensor[N, "*s 2"], x: InputTensor[N, "*s 2"], y: InputTensor[N, "*s 2"]) -> None:
    """The products of pairs of real and imaginary part; half types compute in float32."""

    def element(i: tuple[Index, ...]):
        lead = i[:-1]
        a, b = widened(x[(*lead, 0)]), widened(x[(*lead, 1)])
        c, d = widened(y[(*lead, 0)]), widened(y[(*lead, 1)])
        return select(i[-1] == 0, a * c - b * d, a * d + b * c).cast(N)

    foreach(out, element)


# *** rows ***


def _each_element(
    rows: tuple[AnyTensor, AnyTensor, Index],
    memory: tuple[tuple[Pointer[Floating], ...], ...],
    roots: AnyTensor,
    inverse: bool,
    hermitian: bool,
    factors: int,
    scale: Floating,
) -> None:
    """A row of n complex numbers."""
    out, x, row = rows
    first, second = memory
    n = roots.dim(1)
    load_row(x, row, first, n, inverse, hermitian)
    result = stages(first, second, Roots(roots.pointer(0, 0), n), factors)
    store_row(out, row, result, n, x.dim(2) == 1, inverse, hermitian, scale)


def load_row(
    x: AnyTensor, row: Index, first: tuple[Pointer[Floating], ...], n: Index, inverse: bool, hermitian: bool
) -> None:
    """Copies n elements of a row, in which zeros or conjugates follow those that are there."""
    kept = min(n // 2 + 1 if hermitian else n, x.dim(1))
    # The inverse is the transform with real and imaginary parts exchanged, before and after.
    re, im = (first[1], first[0]) if inverse else first
    for k in range(kept):
        re[k] = x[row, k, 0]
        im[k] = x[row, k, 1] if x.dim(2) == 2 else x.dtype(0)
    for k in range(kept, n):
        re[k] = x.dtype(0)
        im[k] = x.dtype(0)
    if hermitian:
        im[0] = x.dtype(0)
        if n % 2 == 0 and kept > n // 2:
            im[n // 2] = x.dtype(0)
        for k in range(n - (n - 1) // 2, n):
            re[k] = re[n - k]
            im[k] = -im[n - k]


def store_row(
    out: AnyTensor,
    row: Index,
    found: tuple[Pointer[Floating], ...],
    n: Index,
    of_reals: bool | Bool,
    inverse: bool,
    hermitian: bool,
    scale: Floating,
) -> None:
    """Stores the first elements of a transform, scaled."""
    real, imaginary = (found[1], found[0]) if inverse else found
    if of_reals and not hermitian:
        _make_ends_real(imaginary, n)
    for k in range(out.dim(1)):
        out[row, k, 0] = real[k] * scale
        if out.dim(2) == 2:
            out[row, k, 1] = imaginary[k] * scale


def _real_to_halves(
    out: AnyTensor,
    x: AnyTensor,
    row: Index,
    first: tuple[Pointer[Floating], ...],
    second: tuple[Pointer[Floating], ...],
    roots: AnyTensor,
    factors: int,
    scale: Floating,
) -> None:
    """The first half of the transform of 2 h real numbers, from that of the h complex ones z[k] = x[2k] + i x[2k+1].

    With its half E of z[k] + conj z[h-k] for the even ones and O of (z[k] - conj z[h-k]) / i: E + root**k O.
    """
    h = roots.dim(1) // 2
    table = roots.pointer(0, 0)
    re, im = first
    kept = min(2 * h, x.dim(1))
    for k in range(kept // 2):
        re[k] = x[row, 2 * k, 0]
        im[k] = x[row, 2 * k + 1, 0]
    for k in range(kept // 2, h):
        re[k] = x.dtype(0)
        im[k] = x.dtype(0)
    if kept % 2 == 1:
        re[kept // 2] = x[row, kept - 1, 0]
    real, imaginary = stages(first, second, Roots(table, h, 2), factors)
    out[row, 0, 0], out[row, 0, 1] = (real[0] + imaginary[0]) * scale, x.dtype(0)
    out[row, h, 0], out[row, h, 1] = (real[0] - imaginary[0]) * scale, x.dtype(0)
    half = x.dtype(0.5) * scale
    for k in range(1, h):
        a, b, c, d = real[k], imaginary[k], real[h - k], imaginary[h - k]
        re_odd, im_odd = turned(b + d, c - a, table[k], table[2 * h + k])
        out[row, k, 0] = (a + c + re_odd) * half
        out[row, k, 1] = (b - d + im_odd) * half


def _halves_to_real(
    out: AnyTensor,
    x: AnyTensor,
    row: Index,
    first: tuple[Pointer[Floating], ...],
    second: tuple[Pointer[Floating], ...],
    roots: AnyTensor,
    factors: int,
    scale: Floating,
) -> None:
    """The 2 h real numbers whose transform begins so: what `_real_to_halves` does, backwards."""
    h = roots.dim(1) // 2
    table = roots.pointer(0, 0)
    real, imaginary = second
    kept = min(h + 1, x.dim(1))
    for k in range(kept):
        real[k] = x[row, k, 0]
        imaginary[k] = x[row, k, 1] if x.dim(2) == 2 else x.dtype(0)
    for k in range(kept, h + 1):
        real[k] = x.dtype(0)
        imaginary[k] = x.dtype(0)
    imaginary[0] = x.dtype(0)
    imaginary[h] = x.dtype(0)
    im, re = first  # exchanged, for the inverse
    for k in range(h):
        a, b, c, d = real[k], imaginary[k], real[h - k], imaginary[h - k]
        re_odd, im_odd = turned(a - c, b + d, table[k], -table[2 * h + k])
        re[k] = a + c - im_odd
        im[k] = b - d + re_odd
    odd, even = stages(first, second, Roots(table, h, 2), factors)
    for k in range(h):
        out[row, 2 * k, 0] = even[k] * scale
        out[row, 2 * k + 1, 0] = odd[k] * scale


# *** stages ***


def scale_of(scaling: str, n: Index) -> Any:
    wide = Int(n).cast(float64)
    return 1 / wide if scaling == "n" else 1 / sqrt(wide) if scaling == "root" else float64(1)


def _make_ends_real(imaginary: Pointer[Floating], n: Index):
    """What a transform of real numbers has no imaginary part at; rounding would leave some."""
    imaginary[0] = imaginary.dtype(0)
    if n % 2 == 0:
        imaginary[n // 2] = imaginary.dtype(0)


@struct
class Roots:
    """The roots of a transform of n: each `every`-th of a table of cosines, and of the sines behind them."""

    table: Pointer[Floating]
    n: Index
    every: int = 1


def stages(
    x: tuple[Pointer[Floating], ...],
    y: tuple[Pointer[Floating], ...],
    roots: Roots,
    factors: int,
) -> Any:
    """Goes from x to y and back, a factor of n each time; gives the one that holds the result.

    After some stages x holds n / rest interleaved transforms: `rest` is
    what is left of n, `s` is n / rest.
    """
    rest = roots.n
    s = Int(1)
    xr, xi = x
    yr, yi = y
    for kind in unroll(4):
        radix, butterfly = ((4, _four), (2, _two), (3, _three), (5, _five))[kind]
        if factors >> kind & 1:
            while rest % radix == 0:
                _stage(radix, butterfly, (xr, xi), (yr, yi), roots, s, rest)
                xr, xi, yr, yi = yr, yi, xr, xi
                s = s * radix
                rest = rest // radix
    if factors >> 4 & 1:
        while rest > 1:
            factor = smallest_factor(rest)
            _sums((xr, xi), (yr, yi), roots, s, rest, factor)
            xr, xi, yr, yi = yr, yi, xr, xi
            s = s * factor
            rest = rest // factor
    return xr, xi


def smallest_factor(n: Index) -> Any:
    """The smallest factor of a number that 2, 3 and 5 do not divide."""
    factor = Int(7)
    while factor * factor <= n and n % factor != 0:
        factor = factor + 2
    return factor if factor * factor <= n else n


def _stage(
    radix: int,
    butterfly: Callable[..., Parts],
    x: tuple[Pointer[Floating], ...],
    y: tuple[Pointer[Floating], ...],
    roots: Roots,
    s: Index,
    rest: Index,
) -> None:
    """Transforms of `radix` elements that lie m blocks of s apart, turned by their roots; they go side by side."""
    m = rest // radix
    if radix == 4 and s == 1:
        whole = m // LANES * LANES
        for p in range(0, whole, LANES):
            _first_stage(x, y, roots, m, p)
        for p in range(whole, m):
            _group(radix, butterfly, x, y, roots, (s, m), (p, Int(0)), 1)
    elif s % LANES == 0:
        for p in range(m):
            for q in range(0, s, LANES):
                _group(radix, butterfly, x, y, roots, (s, m), (p, q), LANES)
    elif radix == 4 and s == 4:
        for p in range(m):
            _group(radix, butterfly, x, y, roots, (s, m), (p, Int(0)), 4)
    else:
        for p in range(m):
            for q in range(s):
                _group(radix, butterfly, x, y, roots, (s, m), (p, q), 1)


def _group(
    radix: int,
    butterfly: Callable[..., Parts],
    x: tuple[Pointer[Floating], ...],
    y: tuple[Pointer[Floating], ...],
    roots: Roots,
    sizes: tuple[Index, Index],
    place: tuple[Index, Index],
    width: int,
) -> None:
    """`width` transforms, from q on: elements of x lie s apart times m, those of y s apart."""
    s, m = sizes
    p, q = place
    values: Any = ()
    for t in unroll(radix):
        at = q + s * (p + m * t)
        values = (*values, (x[0].load(at, width=width), x[1].load(at, width=width)))
    result = butterfly(values)
    for u in unroll(radix):
        at = q + s * (radix * p + u)
        re, im = result[u]
        if u > 0:
            root = s * p * u * roots.every
            re, im = turned(re, im, roots.table[root], roots.table[roots.n * roots.every + root])
        y[0].store(re, at)
        y[1].store(im, at)


def _first_stage(
    x: tuple[Pointer[Floating], ...],
    y: tuple[Pointer[Floating], ...],
    roots: Roots,
    m: Index,
    p: Index,
) -> None:
    """LANES transforms of 4 elements, whose results lie one after the other: s is 1."""
    values: Any = ()
    for t in unroll(4):
        values = (*values, (x[0].load(p + m * t, width=LANES), x[1].load(p + m * t, width=LANES)))
    result = _four(values)
    columns: Any = (result[0],)
    for u in unroll(1, 4):
        re, im = result[u]
        step = u * roots.every
        c = roots.table.load(p * step, width=LANES, stride=step)
        d = roots.table.load(roots.n * roots.every + p * step, width=LANES, stride=step)
        columns = (*columns, turned(re, im, c, d))
    for part in unroll(2):
        even = columns[0][part].interleave(columns[2][part])
        odd = columns[1][part].interleave(columns[3][part])
        y[part].store(even.interleave(odd), 4 * p)


def _sums(
    x: tuple[Pointer[Floating], ...],
    y: tuple[Pointer[Floating], ...],
    roots: Roots,
    s: Index,
    rest: Index,
    radix: Index,
) -> None:
    """A stage of another prime: each result is a plain sum."""
    table, n, every = roots.table, roots.n, roots.every
    m = rest // radix
    for p in range(m):
        for u in range(radix):
            for q in range(s):
                re = x[0][q + s * p]
                im = x[1][q + s * p]
                root = Int(0)
                step = u * s * m
                for t in range(1, radix):
                    root = root + step
                    root = root - n if root >= n else root
                    at = q + s * (p + m * t)
                    a, b = turned(x[0][at], x[1][at], table[root * every], table[(n + root) * every])
                    re = re + a
                    im = im + b
                turn = s * p * u
                a, b = turned(re, im, table[turn * every], table[(n + turn) * every])
                y[0][q + s * (radix * p + u)] = a
                y[1][q + s * (radix * p + u)] = b


def turned(re: Floating, im: Floating, c: Floating, d: Floating) -> Any:
    """The product of two complex numbers."""
    return re * c - im * d, re * d + im * c


# *** transforms of few elements ***


def _two(v: tuple[tuple[Floating, Floating], tuple[Floating, Floating]]) -> Any:
    (a, b), (c, d) = v
    return (a + c, b + d), (a - c, b - d)


def _four(v: tuple[tuple[Floating, Floating], ...]) -> Any:
    (a0, b0), (a1, b1), (a2, b2), (a3, b3) = v
    sa, sb, da, db = a0 + a2, b0 + b2, a0 - a2, b0 - b2
    ta, tb, ea, eb = a1 + a3, b1 + b3, a1 - a3, b1 - b3
    return (sa + ta, sb + tb), (da + eb, db - ea), (sa - ta, sb - tb), (da - eb, db + ea)


def _three(v: tuple[tuple[Floating, Floating], ...]) -> Any:
    (a0, b0), (a1, b1), (a2, b2) = v
    sa, sb = a1 + a2, b1 + b2
    da, db = 0.8660254037844386 * (a1 - a2), 0.8660254037844386 * (b1 - b2)
    ma, mb = a0 - 0.5 * sa, b0 - 0.5 * sb
    return (a0 + sa, b0 + sb), (ma + db, mb - da), (ma - db, mb + da)


def _five(v: tuple[tuple[Floating, Floating], ...]) -> Any:
    (a0, b0), (a1, b1), (a2, b2), (a3, b3), (a4, b4) = v
    sa, sb, ta, tb = a1 + a4, b1 + b4, a2 + a3, b2 + b3
    da, db, ea, eb = a1 - a4, b1 - b4, a2 - a3, b2 - b3
    c1, c2, s1, s2 = 0.30901699437494745, -0.8090169943749475, 0.9510565162951535, 0.5877852522924731
    ma, mb = a0 + c1 * sa + c2 * ta, b0 + c1 * sb + c2 * tb
    na, nb = a0 + c2 * sa + c1 * ta, b0 + c2 * sb + c1 * tb
    ua, ub = s1 * da + s2 * ea, s1 * db + s2 * eb
    va, vb = s2 * da - s1 * ea, s2 * db - s1 * eb
    return (a0 + sa + ta, b0 + sb + tb), (ma + ub, mb - ua), (na + vb, nb - va), (na - vb, nb + va), (ma - ub, mb + ua)
