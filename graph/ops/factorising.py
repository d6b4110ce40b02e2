"""Stages what factorises matrices: linear systems, determinants, triangles, eigenvalues, singular values.

Matrices are the last two axes; those before them are batches. Half types are computed in float32. Of complex matrices
the transposes are conjugate.

See also `matmul` (products).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim
from ..types.tensor_type import TensorType, shown
from .indexing import slice_tensor
from .operands import as_shape, broadcast_shapes, cast_to, check_kind, expand, permuted, tensor, tensors
from .parts import conj
from .stage import builtin, fail, op

__all__ = ["cholesky", "det", "eigh", "qr", "slogdet", "solve", "svd"]

_FAMILY = "factorising"


@op(dtypes={"a": "inexact", "b": "inexact"}, example="ops.solve(a, b)")
def solve(a: TensorValueLike, b: TensorValueLike) -> TensorValue:
    """x of a @ x == b, by elimination with pivots. The axes before the matrices broadcast.

    Args:
        a: square matrices.
        b: matrices with as many rows; of rank 1 a vector, and so is the result.

    Raises:
        GraphError: EK0421 matrices that are not square, or a rank below that; EK0427 sizes that differ. When the graph
            runs: a matrix is singular.
    """
    left, right = tensors("solve", a=a, b=b)
    check_kind("solve", "a", left, "inexact")
    _square("solve", "a", left)
    vector = right.rank == 1
    columns = as_shape(right, [*right.shape, 1]) if vector else right
    if columns.rank < 2 or columns.shape[-2] != left.shape[-1]:
        text = f"a has shape {shown(left.shape)}, and b has {shown(right.shape)}"
        fail("solve", text, code="EK0427", argument="b", expected=str(left.shape[-1]), got=shown(right.shape))
    outer = broadcast_shapes("solve", left.shape[:-2], columns.shape[:-2], "b")
    first = expand(_wide(left), [*outer, *left.shape[-2:]])
    second = expand(_wide(columns), [*outer, *columns.shape[-2:]])
    result = cast_to(builtin(_FAMILY, "solve", [first, second])[0], left.dtype)
    return as_shape(result, result.shape[:-1]) if vector else result


@op(dtypes={"x": "inexact"}, example="ops.det(x)")
def det(x: TensorValueLike) -> TensorValue:
    """The determinants of square matrices.

    Raises:
        GraphError: EK0421, matrices that are not square.
    """
    value = _square("det", "x", _inexact("det", x))
    return cast_to(_determinants(value)[0], value.dtype)


@op(dtypes={"x": "inexact"}, example="ops.slogdet(x)")
def slogdet(x: TensorValueLike) -> tuple[TensorValue, TensorValue]:
    """The signs of determinants, and the logarithms of their magnitudes; 0 and -inf of a singular matrix.

    The sign of a complex number is the number divided by its magnitude.

    Raises:
        GraphError: EK0421, matrices that are not square.
    """
    value = _square("slogdet", "x", _inexact("slogdet", x))
    _, sign, size, _ = _determinants(value)
    return cast_to(sign, value.dtype), cast_to(size, value.dtype.part)


@op(dtypes={"x": "inexact"}, example="ops.cholesky(x)")
def cholesky(x: TensorValueLike, upper: bool = False) -> TensorValue:
    """The lower triangle L with which x == L @ L.T, or `upper` its transpose; of x the lower triangle is read.

    Of complex matrices the transposes are conjugate.

    Raises:
        GraphError: EK0421, matrices that are not square. When the graph runs: a matrix is not positive definite.
    """
    value = _square("cholesky", "x", _inexact("cholesky", x))
    result = cast_to(builtin(_FAMILY, "cholesky", [_wide(value)])[0], value.dtype)
    return _adjoint(result) if flag_of("upper", upper) else result


@op(dtypes={"x": "inexact"}, example="ops.qr(x)")
def qr(x: TensorValueLike, complete: bool = False) -> tuple[TensorValue, TensorValue]:
    """Orthogonal matrices and upper triangles whose products are x (m, n): of shapes (m, k) and (k, n).

    Args:
        x: matrices.
        complete: k is m; else the smaller of m and n.

    Raises:
        GraphError: EK0421, the rank is below 2.
    """
    value = _matrices("qr", _inexact("qr", x))
    q, r = (cast_to(each, value.dtype) for each in builtin(_FAMILY, "qr", [_wide(value)], {"positive": False})[:2])
    if flag_of("complete", complete):
        return q, r
    k = value.shape[-2].minimum(value.shape[-1])
    return _first(q, -1, k), _first(r, -2, k)


@op(dtypes={"x": "inexact"}, example="ops.eigh(x)")
def eigh(x: TensorValueLike) -> tuple[TensorValue, TensorValue]:
    """The eigenvalues of symmetric (Hermitian) matrices, the smallest first, and eigenvectors as columns.

    Of x the lower triangle is read.

    Raises:
        GraphError: EK0421, matrices that are not square.
    """
    value = _square("eigh", "x", _inexact("eigh", x))
    wide = _wide(value)
    types = [_parts(wide, wide.shape[:-1]), wide.type, wide.type]
    values, vectors = builtin(_FAMILY, "eigh", [wide], None, types)[:2]
    return cast_to(values, value.dtype.part), cast_to(vectors, value.dtype)


@op(dtypes={"x": "inexact"}, example="ops.svd(x)")
def svd(x: TensorValueLike, complete: bool = False) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Orthogonal U, singular values S, the largest first, and orthogonal V with which x (m, n) is (U * S) @ V.

    Args:
        x: matrices.
        complete: U is (m, m) and V (n, n); else they are (m, k) and (k, n), where k is the smaller of m and n.

    Raises:
        GraphError: EK0421, the rank is below 2.
    """
    value = _matrices("svd", _inexact("svd", x))
    wide, n = _wide(value), value.shape[-1]
    types = [
        wide.type,
        _parts(wide, [*wide.shape[:-2], n]),
        TensorType(wide.dtype, [*wide.shape[:-2], n, n], wide.device),
    ]
    columns, sizes, turns = builtin(_FAMILY, "orthogonal_columns", [wide], None, types)
    left = builtin(_FAMILY, "qr", [columns], {"positive": True})[0]
    k = value.shape[-2].minimum(value.shape[-1])
    factors = [left, _first(sizes, -1, k), _adjoint(turns)]
    if not flag_of("complete", complete):
        factors = [_first(left, -1, k), factors[1], _first(factors[2], -2, k)]
    u, s, v = factors
    return cast_to(u, value.dtype), cast_to(s, value.dtype.part), cast_to(v, value.dtype)


# *** parts ***


def _inexact(name: str, x: TensorValueLike) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "inexact")
    return value


def _matrices(name: str, value: TensorValue) -> TensorValue:
    if value.rank < 2:
        text = f"x has shape {shown(value.shape)}, and matrices have two axes"
        fail(name, text, code="EK0421", argument="x", expected="rank >= 2", got=value.rank)
    return value


def _square(name: str, argument: str, value: TensorValue) -> TensorValue:
    if value.rank < 2 or value.shape[-1] != value.shape[-2]:
        text = f"argument '{argument}' has the shape {shown(value.shape)}, which is not square"
        fail(name, text, code="EK0421", argument=argument, expected="square matrices", got=shown(value.shape))
    return value


def _determinants(value: TensorValue) -> list[TensorValue]:
    """Determinants, their signs, and the logarithms of their magnitudes."""
    wide = _wide(value)
    outer = wide.shape[:-2]
    numbers = TensorType(wide.dtype, outer, wide.device)
    return builtin(_FAMILY, "determinants", [wide], None, [numbers, numbers, _parts(wide, outer), wide.type])


def _parts(value: TensorValue, shape: Sequence[Dim]) -> TensorType:
    """The type of real numbers that belong to `value`."""
    return TensorType(value.dtype.part, shape, value.device)


def _wide(value: TensorValue) -> TensorValue:
    return cast_to(value, DType.float32) if value.dtype.is_half() else value


def _turned(value: TensorValue) -> TensorValue:
    rank = value.rank
    return permuted(value, [*range(rank - 2), rank - 1, rank - 2])


def _adjoint(value: TensorValue) -> TensorValue:
    """Matrices transposed, and conjugate where they are complex."""
    return _turned(conj(value) if value.dtype.is_complex() else value)


def _first(value: TensorValue, axis: int, count: Dim) -> TensorValue:
    """The first so many parts along an axis, counted from the end."""
    if value.shape[axis] == count:
        return value
    return slice_tensor(value, [..., slice(0, count), *[slice(None)] * (-1 - axis)])
