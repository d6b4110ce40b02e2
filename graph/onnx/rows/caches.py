"""Converts ONNX Runtime's attention whose heads share keys and values, which are kept in a cache: GroupQueryAttention.

See also `attention` (without a cache whose items differ in length).
"""

from __future__ import annotations

import math

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..call import NodeCall
from ..known import KnownTensor
from ..table import MICROSOFT, Value, onnx_op
from .attention import merged_heads, refuse, split_heads
from .encoders import rotated
from .indexing import steps
from .normalisation import widen


@onnx_op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    call: NodeCall,
    query: TensorValue,
    key: TensorValue | None,
    value: TensorValue | None,
    past_key: TensorValue | None,
    past_value: TensorValue | None,
    seqlens_k: TensorValue,
    total_sequence_length: Value,
    cos_cache: TensorValue | None = None,
    sin_cache: TensorValue | None = None,
    position_ids: TensorValue | None = None,
    attention_bias: TensorValue | None = None,
    head_sink: TensorValue | None = None,
    k_scale: TensorValue | None = None,
    v_scale: TensorValue | None = None,
    q_norm_weight: TensorValue | None = None,
    k_norm_weight: TensorValue | None = None,
    query_seqlens: TensorValue | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float = 0.0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float = 0.0,
    qk_norm_epsilon: float = 0.0,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Item b has seqlens_k[b] + 1 keys with the new ones, which go behind the old ones in the cache."""
    refuse(call, k_scale=k_scale, v_scale=v_scale, q_norm_weight=q_norm_weight, k_norm_weight=k_norm_weight)
    refuse(call, query_seqlens=query_seqlens, kv_cache_bit_width=kv_cache_bit_width, qk_output=qk_output)
    refuse(call, sliding_window_cache=sliding_window_cache)
    refuse(call, k_quant_type=k_quant_type != "NONE", v_quant_type=v_quant_type != "NONE")
    q, k, v = _parted(call, query, key, value, num_heads, kv_num_heads)
    new, total = q.shape[2], _total(call, total_sequence_length)
    # The first tokens of all items come as long as the longest; later ones go behind what an item has.
    before = ops.cast(seqlens_k, DType.int64) + 1 - ops.reshape(ops.shape_to_tensor([new]), [])
    before = ops.where(ops.equal(total, ops.shape_to_tensor([new])), 0, ops.reshape(before, [q.shape[0]]))
    places = ops.unsqueeze(before, 1) + steps(new, q.device)  # (batch, new)
    if do_rotary:
        cos, sin = _angles(call, cos_cache, sin_cache, position_ids, places)
        q, k = (rotated(x, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    k, v = _cached(call, (k, v), (past_key, past_value), before, total)
    seen = _seen(places, k.shape[2], causal, local_window_size, before + ops.shape_to_tensor([new]))
    scores = _scores(q, k, scale, softcap)
    if attention_bias is not None:
        scores = scores + widen(_as_long(attention_bias, k.shape[2]))
    shares = _shares(ops.where(seen, scores, -math.inf), head_sink, smooth_softmax)
    result = ops.matmul(shares, _for_each_head(widen(v), num_heads))
    return ops.cast(merged_heads(result), query.dtype), k, v


def _parted(
    call: NodeCall, query: TensorValue, key: TensorValue | None, value: TensorValue | None, heads: int, shared: int
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Queries, keys and values by heads; without keys all of them are in the first tensor."""
    if shared < 1 or heads % shared:
        call.fail(f"has {heads} heads of queries for {shared} of keys", argument="kv_num_heads")
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * shared)
        query, key, value = ops.split(query, [heads * size, shared * size, shared * size], -1)
    return split_heads(query, heads), split_heads(key, shared), split_heads(value, shared)


def _total(call: NodeCall, value: Value) -> TensorValue:
    """The longest of the lengths with the new tokens, as a tensor of one axis."""
    return ops.reshape(ops.cast(call.tensor(value), DType.int64), [1])


def _angles(
    call: NodeCall,
    cos: TensorValue | None,
    sin: TensorValue | None,
    given: TensorValue | None,
    places: TensorValue,
) -> list[TensorValue]:
    """The rows of both tables, for each place; or for the positions that are given."""
    if cos is None or sin is None:
        call.fail("has do_rotary without cos_cache and sin_cache", argument="do_rotary")
    where = places if given is None else ops.broadcast_to(given, places.shape)
    return [ops.unsqueeze(ops.gather(table, where, 0), 1) for table in (cos, sin)]


def _cached(
    call: NodeCall,
    new: tuple[TensorValue, TensorValue],
    past: tuple[TensorValue | None, TensorValue | None],
    before: TensorValue,
    total: TensorValue,
) -> tuple[TensorValue, TensorValue]:
    """The old and the new keys and values, then zeros. The cache is as long as it was, or as the longest item."""
    old_key, old_value = past
    if old_key is None or old_value is None:
        return new
    length = _length(call, old_key.shape[2], new[0].shape[2], total)
    places = ops.unsqueeze(steps(length, before.device), 0)  # (1, length)
    start = ops.unsqueeze(before, 1)
    count = ops.shape_to_tensor([new[0].shape[2]])
    kept = ops.reshape(ops.less(places, start + count), [before.shape[0], 1, length, 1])
    fresh = ops.greater_equal(places, start)
    results = []
    for old, each in ((old_key, new[0]), (old_value, new[1])):
        size = ops.shape_to_tensor([old.shape[2]])
        both = ops.concat([old, each], 2)
        last = ops.shape_to_tensor([both.shape[2] - 1])
        at = ops.minimum(ops.where(fresh, places - start + size, places), last)
        at = ops.broadcast_to(ops.reshape(at, [at.shape[0], 1, length, 1]), [*each.shape[:2], length, each.shape[3]])
        results.append(ops.where(kept, ops.take_along_axis(both, at, 2), 0))
    return results[0], results[1]


def _length(call: NodeCall, old: Dim, new: Dim, total: TensorValue) -> Dim:
    """The larger of the cache's length and the longest item's."""
    given = call.inputs[6]
    if isinstance(given, KnownTensor):
        (longest,) = given.array.reshape(-1)
        return Dim(longest).maximum(old)
    size = ops.maximum(total, ops.shape_to_tensor([old]))
    return call.dims(size, 6)[0]


def _scores(q: TensorValue, k: TensorValue, scale: float, softcap: float) -> TensorValue:
    """scale * q @ transposed k in float32, held within `softcap`."""
    scale = scale or 1 / math.sqrt(int(q.shape[3]))
    scores = ops.matmul(widen(q), ops.transpose(_for_each_head(widen(k), int(q.shape[1])), -1, -2)) * scale
    return ops.tanh(scores / softcap) * softcap if softcap else scores


def _for_each_head(x: TensorValue, heads: int) -> TensorValue:
    """Keys or values, each repeated for the neighbouring heads that share it."""
    shared = int(x.shape[1])
    if shared == heads:
        return x
    wide = ops.broadcast_to(ops.unsqueeze(x, 2), [x.shape[0], shared, heads // shared, *x.shape[2:]])
    return ops.reshape(wide, [x.shape[0], heads, *x.shape[2:]])


def _seen(places: TensorValue, length: Dim, causal: int, window: int, ends: TensorValue) -> TensorValue:
    """Which keys a query sees, (batch, 1, new, length)."""
    keys = steps(length, places.device)
    own = ops.unsqueeze(ops.unsqueeze(places, 1), -1)
    if not causal:
        return ops.less(keys, ops.reshape(ends, [ends.shape[0], 1, 1, 1]))
    seen = ops.less_equal(keys, own)
    return seen if window <= 0 else ops.logical_and(seen, ops.greater(keys, own - window))


def _as_long(bias: TensorValue, length: Dim) -> TensorValue:
    """A bias for as many keys as the cache has; what is behind it is never seen."""
    missing = length - bias.shape[3]
    if missing == 0:
        return bias
    empty = ops.broadcast_to(ops.constant(0, bias.dtype, bias.device), [*bias.shape[:3], missing])
    return ops.concat([bias, empty], 3)


def _shares(scores: TensorValue, head_sink: TensorValue | None, smooth_softmax: int) -> TensorValue:
    """The softmax of scores; with a sink, or smooth, one more score takes a share that is dropped."""
    shape = [*scores.shape[:3], 1]
    if head_sink is not None:
        more = ops.broadcast_to(ops.reshape(widen(head_sink), [1, scores.shape[1], 1, 1]), shape)
    elif smooth_softmax == 1:
        more = ops.broadcast_to(ops.constant(0, scores.dtype, scores.device), shape)
    else:
        return ops.softmax(scores, -1)
    return ops.softmax(ops.concat([scores, more], -1), -1)[..., : scores.shape[3]]
