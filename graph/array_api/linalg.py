"""Linear algebra as the standard's extension has it: systems, factors, norms, products of vectors and matrices.

Matrices are the last two axes; those before them are batches. `eig` and `eigvals` are missing.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import axis_of, choice_of, flag_of, int_of, wrong
from ..eager import functional as F
from ..eager.tensor import Tensor
from .creation import eye
from .dtypes import finfo
from .manipulation import broadcast_arrays, moveaxis
from .operands import Axes, cast, column, tensor, together
from .products import matmul, matrix_transpose, tensordot, vecdot

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """Eigenvalues, the smallest first, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Orthogonal matrices, and upper triangles."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The signs of determinants, and the logarithms of their magnitudes."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Orthogonal matrices on the left, singular values, the largest first, and orthogonal matrices on the right."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# *** factors ***


@placed
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangle L with which x is L times its transpose; the upper one, with `upper`.

    Raises:
        a runtime assertion, EK0701: a matrix is not positive definite.
    """
    value = tensor("x", x)
    return F.cholesky(_adjoint(value) if upper and value.rank > 1 else value, upper)


@placed
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthogonal Q and upper triangular R whose product x is; "complete" has a square Q."""
    whole = choice_of("mode", mode, known=("reduced", "complete"), code="EK0819") == "complete"
    return QRResult(*F.qr(tensor("x", x), whole))


@placed
def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues and eigenvectors of symmetric matrices, of which the lower triangle is read."""
    return EighResult(*F.eigh(tensor("x", x)))


@placed
def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric matrices, the smallest first."""
    return F.eigh(tensor("x", x))[0]


@placed
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S and Vh with which x is (U * S) @ Vh; U and Vh are square with `full_matrices`."""
    return SVDResult(*F.svd(tensor("x", x), flag_of("full_matrices", full_matrices)))


@placed
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, the largest first."""
    return F.svd(tensor("x", x))[1]


# *** systems ***


@placed
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """x of x1 @ x == x2; an x2 of rank 1 is a vector.

    Raises:
        a runtime assertion, EK0701: a matrix is singular.
    """
    return F.solve(*together("solve", [tensor("x1", x1), tensor("x2", x2)]))


@placed
def inv(x: Tensor, /) -> Tensor:
    """The matrices whose products with x are identities.

    Raises:
        a runtime assertion, EK0701: a matrix is singular.
    """
    return F.solve(tensor("x", x), eye(x.shape[-1], dtype=x.dtype, device=x.device))


@placed
def det(x: Tensor, /) -> Tensor:
    """The determinants of square matrices."""
    return F.det(tensor("x", x))


@placed
def slogdet(x: Tensor, /) -> SlogdetResult:
    """The signs of determinants, and the logarithms of their magnitudes; 0 and -inf of singular matrices."""
    return SlogdetResult(*F.slogdet(tensor("x", x)))


@placed
def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverses (Moore and Penrose), in which singular values up to `rtol` times the largest count as 0.

    `rtol` is the larger size times the epsilon of the dtype when it is left out.
    """
    u, s, v = F.svd(tensor("x", x))
    left, right = _adjoint(v), _adjoint(u)
    if s.size:
        turned = F.where(F.greater(s, _least(x, s, rtol)), F.reciprocal(s), 0.0)
        left = F.mul(left, cast(F.unsqueeze(turned, -2), left.dtype))
    return F.matmul(left, right)


def _adjoint(x: Tensor) -> Tensor:
    return F.conj(x).mT if x.dtype.is_complex() else x.mT


@placed
def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are larger than `rtol` times the largest, as int64; `rtol` as of `pinv`."""
    s = svdvals(x)
    if s.size == 0:
        return Tensor.full(s.shape[:-1], 0, dtype=DType.int64, device=x.device)
    return F.count_nonzero(F.greater(s, _least(x, s, rtol)), -1, False)


def _least(x: Tensor, s: Tensor, rtol: float | Tensor | None) -> Tensor:
    """The singular value up to which all count as 0."""
    part: Any = _part(x, rtol)
    return F.mul(F.max(s, axis=-1), F.unsqueeze(cast(part, s.dtype), -1) if isinstance(part, Tensor) else part)


def _part(x: Tensor, rtol: float | Tensor | None) -> float | Tensor:
    """`rtol`, or what stands for it when it is left out."""
    if isinstance(rtol, Tensor):
        return rtol
    return max(x.shape[-2:].static_dims) * finfo(x.dtype).eps if rtol is None else float(rtol)


# *** products ***


@placed
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The products of vectors of three elements that stand upright on both; the other axes broadcast.

    Raises:
        GraphError: EK0422, an axis that has another size than 3.
    """
    at = int_of("axis", axis)
    for argument, each in (("x1", x1), ("x2", x2)):
        if tensor(argument, each).shape[axis_of(at, each.rank)] != 3:
            wrong(argument, each, f"a tensor with three elements along axis {at}", code="EK0422")
    x, y = (moveaxis(each, at, -1) for each in broadcast_arrays(*together("cross", [x1, x2])))
    turned, back = column([1, 2, 0], x), column([2, 0, 1], x)
    first = F.mul(F.gather(x, turned, -1), F.gather(y, back, -1))
    second = F.mul(F.gather(x, back, -1), F.gather(y, turned, -1))
    return moveaxis(F.sub(first, second), -1, at)


@placed
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of every element of a vector with every element of another: a row for each of the first."""
    return F.outer(tensor("x1", x1), tensor("x2", x2))


@placed
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Square matrices times themselves, n times; of their inverses below 0, the identity for 0."""
    count = int_of("n", n)
    value = inv(x) if count < 0 else tensor("x", x)
    if count == 0:
        return F.broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape)
    left, result = abs(count), None
    while left:
        if left % 2:
            result = value if result is None else F.matmul(result, value)
        left //= 2
        value = F.matmul(value, value) if left else value
    assert result is not None
    return result


# *** diagonals ***


@placed
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices: the main one, or the one that lies `offset` places to the right."""
    *batch, rows, columns = tensor("x", x).shape.static_dims
    first = max(-int_of("offset", offset), 0)
    count = max(min(rows - first, columns - max(offset, 0)), 0)
    start = first * columns + max(offset, 0)
    row = F.reshape(x, [*batch, rows * columns])
    return F.gather(row, column(range(start, start + count * (columns + 1), columns + 1), x), len(batch))


@placed
def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of diagonals, in `dtype`; without it in the dtype of `sum`."""
    return cast(F.sum(cast(diagonal(x, offset=offset), dtype), -1, False), dtype)


# *** norms ***


@placed
def vector_norm(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norms of vectors along axes: the root of order `ord` of the sum of these powers of magnitudes.

    Args:
        x: a tensor of floats.
        axis: one or several, which count as one; all when left out.
        keepdims: whether the axes stay with size 1.
        ord: 0 counts what is not zero; `inf` and `-inf` give the largest and the smallest magnitude.
    """
    size = F.abs(tensor("x", x))
    if ord == 0:
        return cast(F.count_nonzero(size, axis, keepdims), x.dtype)
    if math.isinf(ord):
        return (F.max if ord > 0 else F.min)(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return F.sum(size, axis, keepdims)
    if ord == 2:
        return F.l2_norm(size, axis, keepdims)
    return F.pow(F.sum(F.pow(size, float(ord)), axis, keepdims), 1.0 / ord)


@placed
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """The norms of matrices.

    Args:
        x: a tensor of floats.
        keepdims: whether the two axes stay with size 1.
        ord: "fro" or None the root of the sum of squares, "nuc" the sum of singular values; 1 and -1 the largest and
            the smallest sum of a column's magnitudes, `inf` and `-inf` of a row's, 2 and -2 the largest and the
            smallest singular value.
    """
    value = tensor("x", x)
    if ord is None or ord == "fro":
        return vector_norm(value, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(value)
        norm = F.sum(s, -1, False) if ord == "nuc" else (F.max if ord == 2 else F.min)(s, axis=-1, keepdims=False)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = F.sum(F.abs(value), -2 if abs(float(ord)) == 1 else -1, False)
        norm = (F.max if float(ord) > 0 else F.min)(sums, axis=-1, keepdims=False)
    else:
        wrong("ord", ord, "'fro', 'nuc', 1, -1, 2, -2, inf or -inf", code="EK0819")
    return F.reshape(norm, [*norm.shape, 1, 1]) if keepdims else norm
