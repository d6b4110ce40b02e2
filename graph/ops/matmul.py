"""Stages matrix products.

Two kernels do the work, for any number of axes in front: `matmul` of (..., m, k) by (k, n), which is a single, taller
product, and `batch_matmul` of (..., m, k) by (..., k, n). Vectors are brought into these forms. What is transposed
before it is multiplied, as weights often are, is read as it lies: by `matmul_transposed` and `batch_matmul_transposed`.
"""

from __future__ import annotations

from ..ir import Node
from ..staging.value import TensorValue, TensorValueLike
from ..types.tensor_type import TensorType, shown
from .operands import (
    HINT_FOR_SYMBOLS,
    as_real,
    as_shape,
    broadcast_shapes,
    check_kind,
    expand,
    joined_parts,
    permuted,
    tensors,
)
from .stage import builtin, current, fail, op

_FAMILY = "matmul"


@op(dtypes={"lhs": "numeric", "rhs": "numeric"}, example="ops.matmul(lhs, rhs)", operator="__matmul__")
def matmul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The matrix product over the last two axes; the axes before them broadcast.

    A left operand of rank 1 counts as one row, a right one as one column, and that axis is dropped from the result.
    Half types accumulate in float32.

    Raises:
        GraphError: EK0421 an operand of rank 0, EK0427 inner sizes that differ, EK0420 outer axes do not broadcast.
        DTypeError: bool operands, or dtypes that do not go together.
    """
    left, right = tensors("matmul", lhs=lhs, rhs=rhs)
    check_kind("matmul", "lhs", left, "number")
    for argument, value in (("lhs", left), ("rhs", right)):
        if value.rank == 0:
            fail("matmul", f"argument '{argument}' has rank 0", code="EK0421", argument=argument, expected="rank >= 1")
    if left.shape[-1] != right.shape[max(right.rank - 2, 0)]:
        _fail_inner(left, right)
    row, column = left.rank == 1, right.rank == 1
    a = as_shape(left, [1, *left.shape]) if row else left
    b = as_shape(right, [*right.shape, 1]) if column else right
    product = _complex_product(a, b) if a.dtype.is_complex() else _product(a, b)
    kept = [*product.shape[:-2], *(() if row else (product.shape[-2],)), *(() if column else (product.shape[-1],))]
    return as_shape(product, kept)


def _complex_product(a: TensorValue, b: TensorValue) -> TensorValue:
    """A product of real matrices: pairs of parts times the matrix that each number of `b` is for them."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    pairs = as_shape(as_real(a), [*a.shape[:-1], k * 2])
    factor = TensorType(b.dtype.part, [*b.shape[:-1], 2, n, 2], b.device)
    matrix = builtin("complex", "as_factor", [b], {}, [factor])[0]
    product = _product(pairs, as_shape(matrix, [*b.shape[:-2], k * 2, n * 2]))
    return joined_parts(as_shape(product, [*product.shape[:-2], m, n, 2]))


def _product(a: TensorValue, b: TensorValue) -> TensorValue:
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    across = _turned(b)
    name = "_transposed" if across is not None else ""
    if b.rank == 2:
        return builtin(_FAMILY, f"matmul{name}", [a, b if across is None else across])[0]
    outer = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2], "rhs")
    right = expand(b, [*outer, k, n]) if across is None else expand(across, [*outer, n, k])
    return builtin(_FAMILY, f"batch_matmul{name}", [expand(a, [*outer, m, k]), right])[0]


def _turned(b: TensorValue) -> TensorValue | None:
    """`b` with its last two axes swapped, if its columns are what lies side by side in memory."""
    graph = current("matmul")
    maker = graph.maker(b.number)
    if not isinstance(maker, Node) or maker.move != "permute":
        return None
    order = maker.order
    if order[-2] != b.rank - 1:
        return None
    return permuted(graph.value(maker.operands[0]).tensor, [*order[:-2], order[-1], order[-2]])


def _fail_inner(left: TensorValue, right: TensorValue) -> None:
    inner = left.shape[-1], right.shape[max(right.rank - 2, 0)]
    static = all(str(dim).isdigit() for dim in inner)
    fail(
        "matmul",
        f"{shown(left.shape)} @ {shown(right.shape)}: the inner sizes are {inner[0]} and {inner[1]}",
        code="EK0427",
        argument="rhs",
        expected=str(inner[0]),
        got=str(inner[1]),
        hint=None if static else HINT_FOR_SYMBOLS,
    )
