"""Converts what ONNX Runtime makes of the layers of transformers around attention, in the domain com.microsoft: sums
that are normalised, embeddings, and rotations by position.

Half types compute in float32 and are rounded once.

See also `attention`.
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ..agreement import broadcast_sizes, with_sizes_of
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .indexing import steps
from .normalisation import standardised, widen


def _normalised(
    call: NodeCall, x: TensorValue, gamma: TensorValue, beta: TensorValue | None, epsilon: float, plain: bool
) -> tuple[Any, ...]:
    """Rows of `x` by their mean and deviation; `plain` by their root mean square. With both where they are used."""
    dtype, x = gamma.dtype, with_sizes_of(call, x, gamma, beta)
    if call.outputs < 2 or not any(call.node.output[1:3]):
        if plain:
            return ops.cast(ops.rms_norm(x, widen(gamma), epsilon), dtype), None, None
        if beta is not None:
            return ops.cast(ops.layer_norm(x, widen(gamma), widen(beta), epsilon), dtype), None, None
    if plain:
        mean, inverse = None, ops.rsqrt(ops.mean(x * x, -1) + epsilon)
        result = x * inverse * widen(gamma)
    else:
        centred, mean, inverse = standardised(x, [-1], epsilon)
        result = centred * widen(gamma)
    return ops.cast(result if beta is None else result + widen(beta), dtype), mean, inverse


def _added(call: NodeCall, input: TensorValue, skip: TensorValue, bias: TensorValue | None) -> TensorValue:
    """The sum, in float32 where the dtype is narrower. `skip` may lack the batch, or have one item for all."""
    input, skip = broadcast_sizes(call, [input, skip])
    total = widen(input) + widen(skip)
    return total if bias is None else total + widen(bias)


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    call: NodeCall,
    input: TensorValue,
    skip: TensorValue,
    gamma: TensorValue,
    beta: TensorValue | None = None,
    bias: TensorValue | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """The layer normalisation of input + skip + bias; the sum is the fourth output."""
    total = _added(call, input, skip, bias)
    return *_normalised(call, total, gamma, beta, epsilon, False), ops.cast(total, input.dtype)


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    call: NodeCall,
    input: TensorValue,
    skip: TensorValue,
    gamma: TensorValue,
    bias: TensorValue | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """The same by the root mean square."""
    total = _added(call, input, skip, bias)
    return *_normalised(call, total, gamma, None, epsilon, True), ops.cast(total, input.dtype)


@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    call: NodeCall, x: TensorValue, scale: TensorValue, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[TensorValue, TensorValue]:
    """x over its root mean square, over all axes from this one on. ONNX Runtime has it in ONNX's own domain."""
    x = with_sizes_of(call, x, scale)
    axes = tuple(range(axis % x.rank, x.rank))
    inverse = ops.rsqrt(ops.mean(widen(x) * widen(x), axes) + epsilon)
    return ops.cast(ops.cast(widen(x) * inverse, x.dtype) * ops.cast(scale, x.dtype), scale.dtype), inverse


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    call: NodeCall,
    input_ids: TensorValue,
    segment_ids: TensorValue | None,
    word_embedding: TensorValue,
    position_embedding: TensorValue,
    segment_embedding: TensorValue | None,
    gamma: TensorValue,
    beta: TensorValue,
    mask: TensorValue | None = None,
    position_ids: TensorValue | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """The layer normalisation of a word's embedding, its position's and its segment's; how many elements of each row
    of the mask are 1; and the sum before."""
    parts = [ops.gather(word_embedding, input_ids, 0)]
    if position_ids is None:
        parts.append(ops.unsqueeze(position_embedding[: input_ids.shape[1]], 0))
    else:
        parts.append(ops.gather(position_embedding, position_ids, 0))
    if segment_ids is not None and segment_embedding is not None:
        parts.append(ops.gather(segment_embedding, segment_ids, 0))
    first, *others = (widen(each) for each in broadcast_sizes(call, parts))
    total = sum(others, first)
    result = ops.cast(ops.layer_norm(total, widen(gamma), widen(beta), epsilon), gamma.dtype)
    return result, _counted(input_ids, mask), ops.cast(total, gamma.dtype)


def _counted(ids: TensorValue, mask: TensorValue | None) -> TensorValue:
    if mask is None:
        return ops.broadcast_to(ops.constant(0, DType.int32, ids.device), [ids.shape[0]])
    return ops.cast(ops.sum(ops.cast(ops.equal(mask, 1), DType.int32), 1, False), DType.int32)


# *** rotations ***


def rotated(x: TensorValue, cos: TensorValue, sin: TensorValue, interleaved: bool) -> TensorValue:
    """(..., size) with pairs of numbers turned: (k, k + half), or neighbours. What lies behind the angles stays.

    Args:
        x: numbers; the first 2 * cos.shape[-1] of a row are turned.
        cos, sin: (..., angles), which broadcast over `x`.
        interleaved: whether pairs are neighbours.
    """
    n = 2 * cos.shape[-1]
    turned, rest = (x, None) if n == x.shape[-1] else (x[..., :n], x[..., n:])
    if interleaved:
        pairs = ops.reshape(turned, [*x.shape[:-1], n // 2, 2])
        left, right = pairs[..., 0], pairs[..., 1]
    else:
        left, right = turned[..., : n // 2], turned[..., n // 2 :]
    parts = [widen(left) * widen(cos) - widen(right) * widen(sin), widen(left) * widen(sin) + widen(right) * widen(cos)]
    joined = ops.reshape(ops.stack(parts, -1), turned.shape) if interleaved else ops.concat(parts, -1)
    result = ops.cast(joined, x.dtype)
    return result if rest is None else ops.concat([result, rest], -1)


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    call: NodeCall,
    input: TensorValue,
    position_ids: TensorValue,
    cos_cache: TensorValue,
    sin_cache: TensorValue,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> TensorValue:
    """(batch, places, heads * size) or (batch, heads, places, size), turned by the angles of its places. `scale` says
    how the tables were made, and `is_packed_batching` changes nothing for a host."""
    if rotary_embedding_dim and not num_heads:
        call.fail("needs num_heads where rotary_embedding_dim is set", argument="num_heads")
    if input.rank == 4:
        x = input
    elif input.rank == 3:
        size = input.shape[-1] // num_heads if rotary_embedding_dim else 2 * cos_cache.shape[-1]
        x = ops.permute(ops.reshape(input, [*input.shape[:2], -1, size]), [0, 2, 1, 3])
    else:
        call.fail(f"takes tensors of three or four axes, and gets {input.rank}")
    places = position_ids
    if places.rank == 1:  # the place of the first element, for all items
        places = ops.unsqueeze(places + steps(x.shape[2], x.device), 0)
    cos, sin = (ops.unsqueeze(ops.gather(table, places, 0), 1) for table in (cos_cache, sin_cache))
    result = rotated(x, cos, sin, bool(interleaved))
    return result if input.rank == 4 else ops.reshape(ops.permute(result, [0, 2, 1, 3]), input.shape)
