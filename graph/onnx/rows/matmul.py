"""Converts products of matrices and of named axes."""

from __future__ import annotations

import math
from dataclasses import replace

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.einsum import axis_names
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim
from ..agreement import ONE, broadcast_sizes, equal_size, with_sizes
from ..call import Dequantised, NodeCall
from ..table import onnx_op
from .quantisation import scalar

_BYTES = frozenset([DType.int8, DType.uint8])
_MAX_DEPTH = (2**31 - 1) // 255**2  # longer sums of products of bytes may exceed int32


@onnx_op("MatMul")
def matmul(call: NodeCall, a: TensorValue, b: TensorValue) -> TensorValue:
    """The product of matrices, over axes that broadcast."""
    return _product(call, a, b)


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
def einsum(call: NodeCall, *operands: TensorValue, equation: str) -> TensorValue:
    """Sums of products over named axes; integers keep their dtype, and wrap."""
    sizes: dict[str, Dim] = {}
    named = axis_names(equation, operands)
    for names, operand in zip(named, operands, strict=True):
        for name, dim in zip(names, operand.shape, strict=True):
            if sizes.setdefault(name, dim) == ONE:
                sizes[name] = dim
            elif dim != ONE:
                sizes[name] = equal_size(call, sizes[name], dim, f"the sizes of axis {name!r} of {equation!r}")
    values = [
        with_sizes(
            operand, [dim if dim == ONE else sizes[name] for name, dim in zip(names, operand.shape, strict=True)]
        )
        for names, operand in zip(named, operands, strict=True)
    ]
    return ops.cast(ops.einsum(equation, *values), operands[0].dtype)


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
    product = _product(call, a, b, bool(transA), bool(transB))
    if alpha != 1:
        product = _scaled(product, alpha)
    if c is None or beta == 0:
        return product
    product, c = broadcast_sizes(call, [product, c])
    return product + (c if beta == 1 else _scaled(c, beta))


def _product(
    call: NodeCall, a: TensorValue, b: TensorValue, transposes_a: bool = False, transposes_b: bool = False
) -> TensorValue:
    """a @ b, or a product of integers that is scaled where both are dequantised."""
    of_a, of_b = (call.dequantised.get(id(each)) for each in (a, b))
    product = _product_of_dequantised(call, _transposed(of_a, transposes_a), _transposed(of_b, transposes_b))
    if product is not None:
        return product
    left, right = ops.transpose(a, 0, 1) if transposes_a else a, ops.transpose(b, 0, 1) if transposes_b else b
    return ops.matmul(*product_operands(call, left, right))


def _transposed(matrix: Dequantised | None, transposes: bool) -> Dequantised | None:
    if matrix is None or not transposes:
        return matrix
    return replace(matrix, x=ops.transpose(matrix.x, 0, 1), axis=1 - matrix.axis)


def _product_of_dequantised(call: NodeCall, a: Dequantised | None, b: Dequantised | None) -> TensorValue | None:
    """The product of what DequantizeLinear makes of 8-bit numbers, as a product of integers that is scaled; or None.

    ONNX Runtime's optimiser does the same. Sums of integers are exact.
    """
    if a is None or b is None or a.x.rank < 2 or b.x.rank != 2 or not {a.x.dtype, b.x.dtype} <= _BYTES:
        return None
    depth = b.x.shape[0]
    if not isinstance(depth, StaticDim) or int(depth) > _MAX_DEPTH or a.x.shape[-1] != depth:
        return None
    if _count(a.scale) != 1 or (_count(b.scale) != 1 and b.axis != 1):
        return None
    zeros = [None if each.zero is None else scalar(each.zero) for each in (a, b)]
    product = ops.cast(matmul_integer(call, a.x, b.x, *zeros), DType.float32)
    factors = (ops.cast(scalar(each.scale), DType.float32) for each in (a, b))
    return ops.cast(product * math.prod(factors), a.result.dtype)


def _count(scale: TensorValue) -> int | None:
    """How many scales there are, if known."""
    sizes = [int(size) for size in scale.shape if isinstance(size, StaticDim)]
    return math.prod(sizes) if len(sizes) == scale.rank else None


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
    zero_ranks = [0 if each is None else each.rank for each in (a_zero_point, b_zero_point)]
    if b.rank == 2 and a.rank > 1 and zero_ranks in ([0, 0], [0, 1]):
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
