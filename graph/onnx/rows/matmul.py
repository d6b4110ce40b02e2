"""Converts products of matrices and of named axes."""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ..agreement import broadcast_sizes, equal_size, with_sizes
from ..call import NodeCall
from ..table import onnx_op


@onnx_op("MatMul")
def matmul(call: NodeCall, a: TensorValue, b: TensorValue) -> TensorValue:
    """The product of matrices, over axes that broadcast."""
    return ops.matmul(*product_operands(call, a, b))


def product_operands(call: NodeCall, a: TensorValue, b: TensorValue) -> list[TensorValue]:
    """The operands of a product with sizes that can be seen to fit."""
    if not a.rank or not b.rank:
        return [a, b]
    rows = max(b.rank - 2, 0)  # the axis of b that is summed over
    size = equal_size(call, a.shape[-1], b.shape[rows], "the sizes of the axes that are summed over")
    a = with_sizes(a, [*a.shape[:-1], size])
    b = with_sizes(b, [*b.shape[:rows], size, *b.shape[rows + 1 :]])
    return broadcast_sizes(call, [a, b], behind=2) if min(a.rank, b.rank) > 2 else [a, b]


@onnx_op("Einsum")
def einsum(*operands: TensorValue, equation: str) -> TensorValue:
    """Sums of products over named axes; integers keep their dtype, and wrap."""
    return ops.cast(ops.einsum(equation, *operands), operands[0].dtype)


@onnx_op("Gemm")
def gemm(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    c: TensorValue | None = None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> TensorValue:
    """alpha * A @ B + beta * C, each transposed on request."""
    if a.rank != 2 or b.rank != 2:
        call.fail(f"takes matrices, and gets tensors of {a.rank} and {b.rank} axes")
    left, right = ops.transpose(a, 0, 1) if transA else a, ops.transpose(b, 0, 1) if transB else b
    product = ops.matmul(*product_operands(call, left, right))
    if alpha != 1:
        product = _scaled(product, alpha)
    if c is None or beta == 0:
        return product
    product, c = broadcast_sizes(call, [product, c])
    return product + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: TensorValue, factor: float) -> TensorValue:
    if x.dtype.is_float():
        return x * factor
    return x * int(factor) if factor == int(factor) else ops.cast(ops.cast(x, DType.float64) * factor, x.dtype)


@onnx_op("MatMulInteger")
def matmul_integer(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    a_zero_point: TensorValue | None = None,
    b_zero_point: TensorValue | None = None,
) -> TensorValue:
    """The product of 8-bit integers without their zero points, in int32."""
    if b.rank == 2 and a.rank > 1 and all(each is None or each.rank == 0 for each in (a_zero_point, b_zero_point)):
        zeros = [
            ops.constant(0, DType.int32, a.device) if zero is None else zero for zero in (a_zero_point, b_zero_point)
        ]
        left, right = product_operands(call, a, b)
        of_a, of_b = (ops.cast(zero, DType.int32) for zero in zeros)
        of_columns = ops.broadcast_to(of_b, [right.shape[-1]])
        return builtin("byte_products", "matmul_8_bits", [left, right, of_a, of_columns])[0]
    left, right = ops.cast(a, DType.int32), ops.cast(b, DType.int32)
    if a_zero_point is not None:
        zero = ops.cast(a_zero_point, DType.int32)
        left = left - (ops.unsqueeze(zero, -1) if zero.rank == 1 and str(zero.shape[0]) != "1" else zero)
    if b_zero_point is not None:
        right = right - ops.cast(b_zero_point, DType.int32)
    return ops.matmul(*product_operands(call, left, right))
