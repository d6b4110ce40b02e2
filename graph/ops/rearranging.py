"""Stages ops that put elements in other places: repeated, padded, turned round, rolled.

Repeating broadcasts along a new axis, and merges it with the one next to it; turning round is a slice.

See also `gathering` (indices given as tensors).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import LIMIT, axis_of, choice_of, in_short, int_of, list_of
from ..staging.value import Axes, TensorValue, TensorValueLike
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import TensorType, shown
from .creation import named_size
from .gathering import gather
from .indexing import Range, take
from .operands import (
    DimLike,
    as_indices,
    as_shape,
    check_at_least,
    check_known,
    dim_of,
    expand,
    same_device,
    scalar,
    tensor,
)
from .rows import axes_of
from .stage import builtin, current, define_sizes, fail, op

__all__ = ["flip", "pad", "repeat_interleave", "roll", "tile"]

_FAMILY = "rearranging"
_MODES = {  # by name: what the kernel calls them
    **{name: name for name in ("constant", "edge", "reflect", "symmetric", "wrap")},
    **{"replicate": "edge", "circular": "wrap"},
}


@op(dtypes={"x": "storable"}, example="ops.tile(x, [2, 3])")
def tile(x: TensorValueLike, repeats: Iterable[DimLike]) -> TensorValue:
    """`x` repeated `repeats[k]` times along each axis k.

    Raises:
        GraphError: EK0480, not one number for each axis, or one below 1.
    """
    value = tensor("tile", "x", x)
    counts = [dim_of("tile", "repeats", count) for count in list_of("repeats", repeats, "numbers", "EK0480")]
    check_known("tile", "repeats", counts)
    if len(counts) != value.rank:
        text = f"{len(counts)} repeats for the {value.rank} axes of {shown(value.shape)}"
        fail("tile", text, code="EK0480", argument="repeats", expected=value.rank, got=len(counts))
    for axis, count in enumerate(counts):
        _check_positive("tile", "repeats", count, f"axis {axis} is repeated {count} times")
    sizes = list(zip(counts, value.shape, strict=True))
    apart = as_shape(value, [dim for count, size in sizes for dim in ((size,) if count == 1 else (1, size))])
    wide = expand(apart, [dim for count, size in sizes for dim in ((size,) if count == 1 else (count, size))])
    return as_shape(wide, [count * size for count, size in sizes])


@op(dtypes={"x": "storable", "repeats": "index"}, example="ops.repeat_interleave(x, 2, axis=1)")
def repeat_interleave(
    x: TensorValueLike, repeats: int | TensorValue, axis: int | None = None, out_dim: DimLike | None = None
) -> TensorValue:
    """Every element along `axis` repeated in its place; without an axis, of `x` as one row.

    Args:
        x: a tensor.
        repeats: how often: a number of at least 1, a dim, or a tensor with a number >= 0 for each element of the axis,
            or one for all of them.
        axis: an axis, or None.
        out_dim: the size of the result along the axis, or a name for it. A tensor of repeats needs it.

    Raises:
        GraphError: EK0480 repeats below 1, EK0481 a tensor of repeats of another shape, EK0482 no `out_dim` for it.
    """
    name = "repeat_interleave"
    value = tensor(name, "x", x)
    if axis is None:
        value, axis = as_shape(value, [value.shape.num_elements]), 0
    at = axis_of(axis, value.rank)
    if isinstance(repeats, TensorValue):
        return _repeated_by(value, repeats, at, out_dim)
    count = dim_of(name, "repeats", repeats)
    check_known(name, "repeats", [count])
    _check_positive(name, "repeats", count, f"elements are repeated {count} times")
    before, size, after = value.shape[:at], value.shape[at], value.shape[at + 1 :]
    wide = expand(as_shape(value, [*before, size, 1, *after]), [*before, size, count, *after])
    wanted = size * count
    if out_dim is not None:
        wanted = named_size(name, wanted, out_dim, value.device)
    return as_shape(wide, [*before, wanted, *after])


def _repeated_by(value: TensorValue, repeats: TensorValue, axis: int, out_dim: DimLike | None) -> TensorValue:
    name, size = "repeat_interleave", value.shape[axis]
    counts = as_indices(name, "repeats", tensor(name, "repeats", repeats))
    same_device(name, {"x": value, "repeats": counts})
    if out_dim is None:
        text = "a tensor of repeats needs out_dim, the size of the result or a name for it"
        fail(name, text, code="EK0482", argument="out_dim", expected="a size or a name", got="None")
    if counts.rank > 1 or (counts.rank == 1 and counts.shape[0] not in (size, StaticDim(1))):
        fail(
            name,
            f"repeats of shape {shown(counts.shape)} do not go with the {size} elements along axis {axis}",
            code="EK0481",
            argument="repeats",
            expected=shown([size]),
            got=shown(counts.shape),
        )
    each = expand(counts, [size])
    total = dim_of(name, "out_dim", out_dim)
    count = builtin(_FAMILY, "repeat_total", [each])[0]
    define_sizes(name, count, [total], [f"{name}: out_dim is {total}, and the repeats add up to another number"])
    places = builtin(_FAMILY, "repeat_places", [each], {}, [TensorType(DType.int64, [total], value.device)])[0]
    return gather(value, places, axis)


@op(dtypes={"input": "storable", "value": "storable"}, example='ops.pad(input, [0, 0, 1, 2], mode="constant", value=0)')
def pad(
    input: TensorValueLike, paddings: Iterable[int], mode: str = "constant", value: TensorValueLike = 0
) -> TensorValue:
    """`input` with more elements around it, or fewer.

    Args:
        input: a tensor.
        paddings: how many elements come before and after it along each axis: before the first, after the first, before
            the second, ... Negative ones take elements away, before others are added.
        mode: what is added. "constant": `value`; "edge" or "replicate": the first or the last element; "reflect": the
            elements in reverse order, without the one at the end; "symmetric": with it; "wrap" or "circular": the
            elements from the other end.
        value: of the mode "constant", a number or a tensor of rank 0.

    Raises:
        GraphError: EK0480, not two paddings for each axis; more is taken away than there is; elements of an axis that
            has none are requested.
        DTypeError: EK0413, `value` has another dtype than `input`.
    """
    x = tensor("pad", "input", input)
    given = [int_of(f"paddings[{k}]", n, "EK0480") for k, n in enumerate(list_of("paddings", paddings, "ints"))]
    chosen = choice_of("mode", mode, _MODES, "EK0480")
    if len(given) != 2 * x.rank:
        text = f"{len(given)} paddings for the {x.rank} axes of {shown(x.shape)}: each takes one before and one after"
        fail("pad", text, code="EK0480", argument="paddings", expected=2 * x.rank, got=len(given))
    pairs = list(zip(given[::2], given[1::2], strict=True))
    kept = _cropped(x, pairs)
    added = [(max(low, 0), max(high, 0)) for low, high in pairs]
    out = kept.type.with_shape(low + dim + high for (low, high), dim in zip(added, kept.shape, strict=True))
    before = tuple(low for low, _ in added)
    if chosen == "constant":
        fill = scalar("pad", "value", value, x)
        return builtin(_FAMILY, "pad", [kept, fill], {"before": before}, [out])[0] if any(map(any, added)) else kept
    for axis, (low, high) in enumerate(added):
        if low or high:
            text = f"axis {axis} has no elements to pad with"
            check_at_least("pad", "input", kept.shape[axis], 1, text)
    if not any(map(any, added)):
        return kept
    parameters = {"before": before, "mode": _MODES[chosen]}
    return builtin(_FAMILY, "pad_by_elements", [kept], parameters, [out])[0]


def _cropped(x: TensorValue, pairs: Sequence[tuple[int, int]]) -> TensorValue:
    """`x` without what negative paddings take away."""
    ranges = []
    for axis, ((low, high), dim) in enumerate(zip(pairs, x.shape, strict=True)):
        lost = max(-low, 0) + max(-high, 0)
        if lost:
            check_at_least("pad", "paddings", dim, lost, f"axis {axis} of size {dim} has no {lost} elements to lose")
        ranges.append(Range(max(-low, 0), 1, dim - lost))
    return take(x, ranges)


@op(dtypes={"x": "storable"}, example="ops.flip(x, axis=0)")
def flip(x: TensorValueLike, axis: Axes = None) -> TensorValue:
    """The elements along an axis in reverse order; along several, or without one along all of them."""
    value = tensor("flip", "x", x)
    axes = axes_of("flip", axis, value.rank)
    return take(value, [Range(-1, -1, dim) if k in axes else Range(0, 1, dim) for k, dim in enumerate(value.shape)])


@op(dtypes={"x": "storable"}, example="ops.roll(x, 1, axis=0)")
def roll(x: TensorValueLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> TensorValue:
    """Every element `shift` places further along `axis`; what leaves at the end enters at the start.

    Args:
        x: a tensor.
        shift: how far; a negative one moves to the start. One for each axis, or one for all of them.
        axis: one or several; without it, `x` is rolled as one row.

    Raises:
        GraphError: EK0480, not as many shifts as axes.
    """
    value = tensor("roll", "x", x)
    if axis is None:
        row = as_shape(value, [value.shape.num_elements])
        return as_shape(_rolled(row, int_of("shift", shift, "EK0480"), 0), value.shape)
    axes = [axis_of(each, value.rank) for each in (axis if isinstance(axis, list | tuple) else [axis])]
    listed = list(shift) if isinstance(shift, list | tuple) else [shift] * len(axes)
    shifts = [int_of("shift", each, "EK0480") for each in listed]
    if len(shifts) != len(axes):
        text = f"{len(shifts)} shifts for {len(axes)} axes"
        fail("roll", text, code="EK0480", argument="shift", expected=len(axes), got=len(shifts))
    for each, by in zip(axes, shifts, strict=True):
        value = _rolled(value, by, each)
    return value


def _rolled(value: TensorValue, shift: int, axis: int) -> TensorValue:
    if not shift:
        return value
    if abs(shift) > LIMIT:
        text = f"a shift by {in_short(shift)} is beyond every axis"
        fail("roll", text, code="EK0480", argument="shift", expected="a smaller number", got=in_short(shift))
    number = np.array(shift, np.int64)
    places = current("roll").stage_constant(number, value.device, user_place())
    return builtin(_FAMILY, "roll", [value, places], {"axis": axis})[0]


def _check_positive(name: str, argument: str, count: Dim, text: str) -> None:
    check_at_least(name, argument, count, 1, f"{text}, and at least 1 is requested")
