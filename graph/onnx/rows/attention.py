"""Converts ONNX Runtime's attentions, in the domain com.microsoft: the masks of their many forms become one that is
added to the scores, and past keys and values are put before the new ones.

Half types compute in float32.

See also `encoders` (the layers around attention), `caches` (attention with heads that share keys).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..agreement import broadcast_to_sizes
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .indexing import known_size, steps
from .matmul import product_operands
from .normalisation import widen
from .quantised_products import product_of_integers

MASKED = -10000.0  # what is added to masked scores by default


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values as (batch, heads, places, size)."""

    q: TensorValue
    k: TensorValue
    v: TensorValue

    @property
    def past(self) -> Dim:
        """How many keys there are before that of the first query."""
        return self.k.shape[2] - self.q.shape[2]


def split_heads(x: TensorValue, heads: int) -> TensorValue:
    """(batch, places, heads * size) as (batch, heads, places, size)."""
    return ops.permute(ops.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]), [0, 2, 1, 3])


def merged_heads(x: TensorValue) -> TensorValue:
    """(batch, heads, places, size) as (batch, places, heads * size)."""
    return ops.flatten(ops.permute(x, [0, 2, 1, 3]), 2, 3)


def masked_scores(
    call: NodeCall, heads: Heads, mask: TensorValue | None, filter_value: float, unidirectional: int
) -> list[TensorValue]:
    """What is added to the scores: for a mask in one of its forms, and for keys behind a query.

    | mask | form |
    |---|---|
    | (batch) | how many keys count |
    | (2 * batch) | the ends of the keys that count, then their begins |
    | (3 * batch + 2) | how many keys count, then what only packed batches need |
    | (batch, keys), (batch, queries, keys), (batch, 1, most, most) | above 0 where a key counts |
    """
    added = []
    if mask is not None:
        shape = [heads.q.shape[0], heads.q.shape[1], heads.q.shape[2], heads.k.shape[2]]
        counts = broadcast_to_sizes(call, _counting(call, heads, mask), shape)
        added.append(ops.where(counts, 0.0, ops.constant(filter_value, DType.float32, mask.device)))
    if unidirectional:
        places = ops.unsqueeze(steps(heads.q.shape[2], heads.q.device) + heads.past, 1)
        behind = ops.greater(ops.unsqueeze(steps(heads.k.shape[2], heads.q.device), 0), places)
        added.append(ops.where(behind, ops.constant(-math.inf, DType.float32, heads.q.device), 0.0))
    return added


def _counting(call: NodeCall, heads: Heads, mask: TensorValue) -> TensorValue:
    """A mask as truths that broadcast to (batch, heads, queries, keys)."""
    batch, keys = heads.q.shape[0], heads.k.shape[2]
    if mask.rank == 1:
        size = mask.shape[0]
        places = steps(keys, mask.device)
        if size == batch or size == 3 * batch + 2:
            return ops.greater(_item(mask[:batch]), places)
        if size == 2 * batch:
            return ops.logical_and(
                ops.greater(_item(mask[:batch]), places), ops.greater_equal(places, _item(mask[batch:]))
            )
        call.fail(f"has a mask of {size} numbers for {batch} items; {batch}, 2 or 3 times as many are known")
    counts = ops.greater(mask, 0)
    if mask.rank == 2:
        return ops.reshape(counts, [mask.shape[0], 1, 1, mask.shape[1]])
    if mask.rank == 3:
        return ops.unsqueeze(counts, 1)
    if mask.rank == 4:
        past = heads.past
        return counts[:, :, past : past + heads.q.shape[2], :keys]
    call.fail(f"has a mask of {mask.rank} axes; 1 to 4 are known")


def _item(numbers: TensorValue) -> TensorValue:
    return ops.reshape(ops.cast(numbers, DType.int64), [numbers.shape[0], 1, 1, 1])


def attended(heads: Heads, added: Sequence[TensorValue], scale: float) -> TensorValue:
    """softmax(scale * q @ transposed k + what is added) @ v, with the heads behind each other."""
    if not scale:
        scale = 1 / math.sqrt(int(heads.q.shape[3]))
    mask = None
    for each in added:
        mask = each if mask is None else mask + each
    if mask is not None:
        mask = ops.cast(mask, DType.float32 if heads.q.dtype.is_half() else heads.q.dtype)
    return merged_heads(ops.attention(heads.q, heads.k, heads.v, mask=mask, scale=scale))


def refuse(call: NodeCall, **left_out: object) -> None:
    """Raises an error where something is given that has no counterpart."""
    for name, value in left_out.items():
        if value is not None and not (isinstance(value, int | float) and not value):
            call.fail(f"has '{name}', which has no counterpart", argument=name)


@onnx_op("Attention", domain=MICROSOFT)
def attention(
    call: NodeCall,
    input: TensorValue,
    weights: TensorValue,
    bias: TensorValue | None = None,
    mask_index: TensorValue | None = None,
    past: TensorValue | None = None,
    attention_bias: TensorValue | None = None,
    past_sequence_length: TensorValue | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = MASKED,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Any:
    """Queries, keys and values are input @ weights + bias; the keys and values are the second output."""
    refuse(call, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    refuse(call, past_sequence_length=past_sequence_length, rotary_embedding_dim=rotary_embedding_dim)
    projected = ops.matmul(*product_operands(call, input, weights))
    projected = projected if bias is None else projected + bias
    sizes = qkv_hidden_sizes or [known_size(call, weights.shape[1]) // 3] * 3
    rest = (mask_index, past, attention_bias, num_heads, mask_filter_value, scale, unidirectional)
    return _self_attention(call, projected, sizes, *rest)


def _self_attention(
    call: NodeCall,
    projected: TensorValue,
    sizes: Sequence[int],
    mask: TensorValue | None,
    past: TensorValue | None,
    bias: TensorValue | None,
    num_heads: int,
    filter_value: float,
    scale: float,
    unidirectional: int,
) -> tuple[TensorValue, TensorValue] | TensorValue:
    q, k, v = (split_heads(each, num_heads) for each in ops.split(projected, list(sizes), -1))
    if past is not None:
        k, v = ops.concat([past[0], k], 2), ops.concat([past[1], v], 2)
    heads = Heads(q, k, v)
    added = masked_scores(call, heads, mask, filter_value, unidirectional)
    added += [] if bias is None else [widen(bias)]
    result = attended(heads, added, scale)
    return (result, ops.stack([k, v], 0)) if call.outputs > 1 else result


@onnx_op("QAttention", domain=MICROSOFT)
def quantised_attention(
    call: NodeCall,
    input: TensorValue,
    weight: TensorValue,
    bias: TensorValue,
    input_scale: TensorValue,
    weight_scale: TensorValue,
    mask_index: TensorValue | None = None,
    input_zero_point: TensorValue | None = None,
    weight_zero_point: TensorValue | None = None,
    past: TensorValue | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = MASKED,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Any:
    """The same, with an input and weights that are quantised."""
    refuse(call, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    factor = ops.reshape(input_scale, []) * (
        weight_scale if weight_scale.rank and weight_scale.shape[0] != 1 else ops.reshape(weight_scale, [])
    )
    product = product_of_integers(call, input, weight, input_zero_point, weight_zero_point)
    projected = ops.cast(product, bias.dtype) * factor + bias
    sizes = [known_size(call, weight.shape[1]) // 3] * 3
    rest = (mask_index, past, None, num_heads, mask_filter_value, scale, unidirectional)
    return _self_attention(call, projected, sizes, *rest)


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    call: NodeCall,
    query: TensorValue,
    key: TensorValue | None = None,
    value: TensorValue | None = None,
    bias: TensorValue | None = None,
    key_padding_mask: TensorValue | None = None,
    attention_bias: TensorValue | None = None,
    past_key: TensorValue | None = None,
    past_value: TensorValue | None = None,
    past_sequence_length: TensorValue | None = None,
    cache_indirection: TensorValue | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = MASKED,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Queries, keys and values apart, or packed: (batch, places, heads, 3, size) of all, (.., 2, size) of two. Keys and
    values of four axes are those of an encoder, as they are."""
    refuse(call, past_sequence_length=past_sequence_length, cache_indirection=cache_indirection)
    q, k, v = _unpacked(call, query, key, value)
    biases: Sequence[TensorValue | None] = [None] * 3
    if bias is not None:
        width = q.shape[2] * q.shape[3] if q.rank == 4 else q.shape[2]
        biases = [bias[:width], bias[width : 2 * width], bias[2 * width :]]
    q, k, v = (_with_heads(each, own, num_heads) for each, own in zip((q, k, v), biases, strict=True))
    if past_key is not None and past_value is not None:
        k, v = ops.concat([past_key, k], 2), ops.concat([past_value, v], 2)
    heads = Heads(q, k, v)
    added = masked_scores(call, heads, key_padding_mask, mask_filter_value, unidirectional)
    added += [] if attention_bias is None else [widen(attention_bias)]
    result = attended(heads, added, scale)
    if call.outputs < 4:
        return result, k, v
    call.fail("has the output 'qk', which has no counterpart", argument="qk")


def _unpacked(
    call: NodeCall, query: TensorValue, key: TensorValue | None, value: TensorValue | None
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Each as (batch, places, heads * size) or (batch, places, heads, size), those of an encoder as they are."""
    if query.rank == 5:
        return query[:, :, :, 0], query[:, :, :, 1], query[:, :, :, 2]
    if key is None:
        call.fail("has queries without keys", argument="key")
    if key.rank == 5:
        return query, key[:, :, :, 0], key[:, :, :, 1]
    if value is None:
        call.fail("has keys without values", argument="value")
    if key.rank == 4:
        return query, ops.permute(key, [0, 2, 1, 3]), ops.permute(value, [0, 2, 1, 3])
    return query, key, value


def _with_heads(x: TensorValue, bias: TensorValue | None, heads: int) -> TensorValue:
    if x.rank == 4:
        x = x if bias is None else x + ops.reshape(bias, x.shape[2:])
        return ops.permute(x, [0, 2, 1, 3])
    return split_heads(x if bias is None else x + bias, heads)
