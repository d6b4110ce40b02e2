"""Stages attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.types.dtype import DType
from ..arguments import flag_of, int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import TensorType, shown
from .elementwise import where
from .operands import (
    HINT_FOR_SYMBOLS,
    as_indices,
    as_shape,
    broadcast_shapes,
    cast_to,
    check_kind,
    expand,
    same_device,
    scalar,
    scale_of,
    sizes_tensor,
    tensor,
    tensors,
    window_of,
)
from .stage import builtin, fail, op

_FAMILY = "attention"
_NAME = "attention"


@op(
    dtypes={"query": "float", "key": "float", "value": "float"},
    example="ops.attention(query, key, value, causal=True)",
)
def attention(
    query: TensorValueLike,
    key: TensorValueLike,
    value: TensorValueLike,
    *,
    mask: TensorValueLike | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    valid_length: TensorValueLike | None = None,
    offset: TensorValueLike | None = None,
) -> TensorValue:
    """softmax(scale * query @ transposed key + mask) @ value, without ever storing the scores.

    Tensors are (..., heads, length, size), or (length, size); the axes before the heads broadcast. Where keys and
    values have fewer heads than queries, neighbouring heads of queries share one. Half types compute in float32. A
    query that sees no key at all gives 0.

    With a cache of keys and values that has room for more, `valid_length` says how many of them are there, and `offset`
    where the queries stand among them. What lies behind is not read, and costs no time:

        ops.attention(q, keys[layer], values[layer], causal=True, valid_length=start + 1, offset=start)

    Args:
        query, key, value: float tensors of one dtype; keys are as long as queries are wide, and as many as values.
        mask: broadcasts to (..., heads, queries, keys): bool, True where a query sees a key; or floats that are added
            to the scores.
        causal: query i sees keys 0 to i only; with an `offset` keys 0 to `offset` + i.
        window: query i sees keys that are less than so many places away; with `causal` the last `window`, its own
            included.
        scale: 1 / sqrt(the size of a query) when left out.
        valid_length: how many keys count, from the first on: a number, or one for each row of the first axis; all when
            left out.
        offset: the place of the first query among the keys, as for `valid_length`; 0 when left out.

    Raises:
        GraphError: EK0421 ranks, EK0427 sizes that differ, EK0420 axes that do not broadcast, EK0495 heads that cannot
            be shared evenly, EK0414 a window below 1 or a scale that is not a finite number.
        DTypeError: EK0413 operands that are not floats, or a mask that is neither bool nor float.
        KernelError: when it runs, a valid length is negative, or there are fewer keys.
    """
    q, k, v, plain = _checked(query, key, value)
    outer = broadcast_shapes(_NAME, q.shape[:-3], k.shape[:-3], "key")
    outer = broadcast_shapes(_NAME, outer, v.shape[:-3], "value")
    operands = [expand(x, [*outer, *x.shape[-3:]]) for x in (q, k, v)]
    parameters: dict[str, object] = {"causal": flag_of("causal", causal), "window": window_of(_NAME, window)}
    parameters["scale"] = scale_of(_NAME, scale, q)
    masked = "" if mask is None else "masked_"
    if mask is not None:
        operands.append(_mask(mask, q, [*outer, q.shape[-3], q.shape[-2], k.shape[-2]]))
    bounded = "" if valid_length is None and offset is None else "bounded_"
    if bounded:
        count = k.shape[-2] if valid_length is None else valid_length
        operands += [
            _by_row("valid_length", count, q, outer),
            _by_row("offset", 0 if offset is None else offset, q, outer),
        ]
    result = builtin(_FAMILY, f"{masked}{bounded}attention", operands, parameters)[0]
    return as_shape(result, result.shape[1:]) if plain else result


def _checked(
    query: TensorValueLike, key: TensorValueLike, value: TensorValueLike
) -> tuple[TensorValue, TensorValue, TensorValue, bool]:
    """The three with an axis for heads, and whether they had none."""
    q, k, v = tensors(_NAME, query=query, key=key, value=value)
    check_kind(_NAME, "query", q, "float")
    plain = _check_ranks(q, k, v)
    if plain:
        q, k, v = (as_shape(x, [1, *x.shape]) for x in (q, k, v))
    _check_sizes(q, k, v)
    return q, k, v, plain


def _check_ranks(q: TensorValue, k: TensorValue, v: TensorValue) -> bool:
    """Whether the tensors have no axis for heads."""
    for argument, x in (("query", q), ("key", k), ("value", v)):
        if x.rank < 2:
            text = f"argument '{argument}' has rank {x.rank}, and needs axes for places and numbers"
            fail(_NAME, text, code="EK0421", argument=argument, expected="rank >= 2", got=x.rank)
        if (x.rank == 2) != (q.rank == 2):
            text = f"'query' has rank {q.rank} and '{argument}' rank {x.rank}: all have an axis for heads, or none has"
            fail(_NAME, text, code="EK0421", argument=argument, expected=q.rank, got=x.rank)
    return q.rank == 2


def _check_sizes(q: TensorValue, k: TensorValue, v: TensorValue) -> None:
    pairs = (
        ("key", "numbers of a query and of a key", q.shape[-1], k.shape[-1]),
        ("value", "numbers of keys and of values", k.shape[-2], v.shape[-2]),
        ("value", "heads of keys and of values", k.shape[-3], v.shape[-3]),
    )
    for argument, what, a, b in pairs:
        if a != b:
            hint = None if isinstance(a, StaticDim) and isinstance(b, StaticDim) else HINT_FOR_SYMBOLS
            text = f"the {what} differ: {a} and {b}"
            fail(_NAME, text, code="EK0427", argument=argument, expected=str(a), got=str(b), hint=hint)
    heads, shared = q.shape[-3], k.shape[-3]
    static = isinstance(heads, StaticDim) and isinstance(shared, StaticDim)
    if heads != shared and not (static and int(shared) > 0 and int(heads) % int(shared) == 0):
        fail(
            _NAME,
            f"{heads} heads of queries cannot share {shared} heads of keys evenly",
            code="EK0495",
            argument="key",
            expected=f"a divisor of {heads}",
            got=str(shared),
            hint=None if static else HINT_FOR_SYMBOLS,
        )


def _by_row(argument: str, given: TensorValueLike, q: TensorValue, outer: Sequence[Any]) -> TensorValue:
    """A number for each entry of the axes before the heads: one for all, or one for each row of the first axis."""
    if isinstance(given, Dim):
        value = as_shape(sizes_tensor(_NAME, [given], q.device), [])
    elif isinstance(given, int | np.integer) and not isinstance(given, bool):
        value = scalar(_NAME, argument, int_of(argument, given, "EK0414"), TensorType(DType.int64, [], q.device))
    else:
        value = cast_to(as_indices(_NAME, argument, tensor(_NAME, argument, given)), DType.int64)
    same_device(_NAME, {"query": q, argument: value})
    if value.rank and (value.rank > 1 or not outer or value.shape[0] != outer[0]):
        wanted = f"no axes, or shape {shown(outer[:1])}" if outer else "no axes"
        text = f"argument '{argument}' has shape {shown(value.shape)}, and needs {wanted}"
        fail(_NAME, text, code="EK0421", argument=argument, expected=wanted, got=shown(value.shape))
    lined = as_shape(value, [*value.shape, *[1] * (len(outer) - 1)]) if value.rank else value
    return expand(lined, outer)


def _mask(mask: TensorValueLike, q: TensorValue, shape: list[Any]) -> TensorValue:
    """A mask as numbers that are added to scores, in their shape."""
    value = tensor(_NAME, "mask", mask)
    if value.device != q.device:
        tensors(_NAME, query=q, mask=value)  # says so
    if value.dtype is DType.bool:
        _, seen, hidden = tensors(_NAME, q.dtype, query=q, seen=0.0, hidden=-math.inf)
        value = where(value, seen, hidden)
    elif not value.dtype.is_float() or value.dtype.is_storage():
        text = f"argument 'mask' has to be bool or floating-point, and is {value.dtype}"
        fail(
            _NAME,
            text,
            code="EK0413",
            kind=DTypeError,
            argument="mask",
            expected="bool or floating-point",
            got=str(value.dtype),
            hint="x != 0 is bool",
        )
    if value.rank > len(shape):
        text = f"mask {shown(value.shape)} has more axes than the scores {shown(shape)}"
        fail(_NAME, text, code="EK0420", argument="mask", expected=shown(shape), got=shown(value.shape))
    if broadcast_shapes(_NAME, shape, value.shape, "mask") != tuple(shape):
        text = f"mask {shown(value.shape)} does not broadcast to the scores {shown(shape)}"
        fail(_NAME, text, code="EK0420", argument="mask", expected=shown(shape), got=shown(value.shape))
    return expand(value, shape)
