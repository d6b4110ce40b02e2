"""Converts products of quantised matrices as ONNX Runtime has them, in the domain com.microsoft.

Products of 8-bit integers are exact, in int32.

See also `quantisation` (those of ONNX itself), `quantised` (other ops on quantised tensors).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .matmul import matmul_integer, product_operands
from .normalisation import widen
from .quantisation import requantised, scalar


def product_of_integers(
    call: NodeCall, a: TensorValue, b: TensorValue, a_zero: TensorValue | None, b_zero: TensorValue | None
) -> TensorValue:
    """A @ B without their zero points, of the tensor or one a column, in int32."""
    zeros = (None if each is None else scalar(each) for each in (a_zero, b_zero))
    return matmul_integer(call, a, b, *zeros)


def quantised_by_range(x: TensorValue) -> tuple[TensorValue, TensorValue, TensorValue]:
    """A tensor in uint8 by the range of its elements and 0, with its scale and zero point: DynamicQuantizeLinear."""
    low = ops.minimum(ops.min(ops.flatten(x)), 0.0)[0]
    high = ops.maximum(ops.max(ops.flatten(x)), 0.0)[0]
    span = (high - low) / 255.0
    scale = ops.where(ops.equal(span, 0.0), 1.0, span)
    zero = ops.round(ops.clamp(-low / scale, 0.0, 255.0))
    values = ops.clamp(ops.round(x / scale) + zero, 0.0, 255.0)
    return ops.cast(ops.cast(values, DType.int32), DType.uint8), scale, zero


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero_point: TensorValue | None = None,
    bias: TensorValue | None = None,
) -> TensorValue:
    """A @ B + bias, with A quantised by the range of its elements."""
    return dynamic_product(call, a, b, b_scale, b_zero_point, bias)


def dynamic_product(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero: TensorValue | None,
    bias: TensorValue | None,
) -> TensorValue:
    """A @ B + bias for floats A, quantised by their range, and quantised B with scales of the tensor or its columns."""
    values, scale, zero = quantised_by_range(a)
    product = product_of_integers(call, values, b, ops.cast(zero, DType.int32), b_zero)
    result = ops.cast(product, DType.float32) * (scale * scalar(b_scale))
    return result if bias is None else result + bias


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    a_scale: TensorValue,
    b_scale: TensorValue,
    a_zero_point: TensorValue | None = None,
    b_zero_point: TensorValue | None = None,
    bias: TensorValue | None = None,
) -> TensorValue:
    """A @ B of quantised matrices as floats, and a bias."""
    product = product_of_integers(call, a, b, a_zero_point, b_zero_point)
    result = ops.cast(product, DType.float32) * (widen(scalar(a_scale)) * widen(scalar(b_scale)))
    return ops.cast(result if bias is None else result + widen(bias), a_scale.dtype)


@onnx_op("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(call: NodeCall, a: TensorValue, b: TensorValue) -> TensorValue:
    """The product of 16-bit integers, in int32."""
    return ops.matmul(*product_operands(call, ops.cast(a, DType.int32), ops.cast(b, DType.int32)))


@onnx_op("QGemm", domain=MICROSOFT)
def quantised_gemm(
    call: NodeCall,
    a: TensorValue,
    a_scale: TensorValue,
    a_zero_point: TensorValue,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero_point: TensorValue,
    c: TensorValue | None = None,
    y_scale: TensorValue | None = None,
    y_zero_point: TensorValue | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> TensorValue:
    """alpha * A @ B of quantised matrices, with C of int32 in their scale; quantised where there is a scale for it."""
    left, right = (ops.transpose(a, 0, 1) if transA else a), (ops.transpose(b, 0, 1) if transB else b)
    product = product_of_integers(call, left, right, a_zero_point, b_zero_point)
    product = product if c is None else product + c
    factor = scalar(a_scale) * scalar(b_scale) * alpha
    if y_scale is None or y_zero_point is None:
        return ops.cast(product, DType.float32) * factor
    return requantised(product, factor / scalar(y_scale), scalar(y_zero_point))


# *** weights of 2 to 8 bits ***


def unpacked_bits(packed: TensorValue, bits: int) -> TensorValue:
    """Bytes along the last axis as numbers of 2, 4 or 8 bits in int32, the lowest bits first."""
    wide = ops.cast(packed, DType.int32)
    if bits == 8:
        return wide
    parts = [ops.bitwise_and(ops.right_shift(wide, bits * k), (1 << bits) - 1) for k in range(8 // bits)]
    return ops.reshape(ops.stack(parts, -1), [*packed.shape[:-1], packed.shape[-1] * (8 // bits)])


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    scales: TensorValue,
    zero_points: TensorValue | None = None,
    g_idx: TensorValue | None = None,
    bias: TensorValue | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> TensorValue:
    """A @ transposed W + bias, where W is quantised in blocks along its rows: (N, blocks, bytes of a block).

    Computes in float32, whatever `accuracy_level` allows.
    """
    if bits not in (2, 4, 8):
        call.fail(f"has weights of {bits} bits; 2, 4 and 8 are known", argument="bits")
    if weight_prepacked:
        call.fail("has weights in the order of a GPU (weight_prepacked)", argument="weight_prepacked")
    if block_size < 16 or block_size & (block_size - 1):
        call.fail(f"has blocks of {block_size}; a power of two from 16 on is known", argument="block_size")
    blocks = -(-K // block_size)
    factor = ops.reshape(widen(scales), [N, blocks, 1])
    weights = ops.cast(unpacked_bits(ops.reshape(b, [N, blocks, block_size * bits // 8]), bits), DType.float32)
    zero: Any = float(1 << (bits - 1))
    if zero_points is not None:
        zero = _zeros(zero_points, N, blocks, bits)
    if g_idx is None:
        whole = ops.reshape((weights - zero) * factor, [N, blocks * block_size])[:, :K]
    else:
        whole = _by_groups(ops.reshape(weights, [N, blocks * block_size])[:, :K], factor, zero, g_idx)
    product = ops.matmul(widen(a), ops.transpose(whole, 0, 1))
    return ops.cast(product if bias is None else product + widen(bias), a.dtype)


def _zeros(zero_points: TensorValue, n: int, blocks: int, bits: int) -> TensorValue:
    """Zero points of each block, (n, blocks, 1) in float32: bytes with several of them, or floats."""
    if zero_points.dtype.is_float():
        return ops.reshape(widen(zero_points), [n, blocks, 1])
    each = unpacked_bits(ops.reshape(zero_points, [n, -(-blocks * bits // 8)]), bits)[:, :blocks]
    return ops.reshape(ops.cast(each, DType.float32), [n, blocks, 1])


def _by_groups(weights: TensorValue, factor: TensorValue, zero: Any, g_idx: TensorValue) -> TensorValue:
    """Weights whose column k belongs to the block that `g_idx[k]` names."""
    of_columns = ops.gather(factor[:, :, 0], g_idx[: weights.shape[1]], 1)
    zeros = zero if isinstance(zero, float) else ops.gather(zero[:, :, 0], g_idx[: weights.shape[1]], 1)
    return (weights - zeros) * of_columns
