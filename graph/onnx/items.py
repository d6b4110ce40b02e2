"""Holds sequences whose number of items a call says.

A sequence of a known number of items is a list of values. Others have items of one type, which lie along the first axis
of a tensor: what the rounds of a loop append, and the parts into which an axis of any size is cut.

See also `rows.sequences` (op types), `rows.rounds` (loops that append).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from .. import ops
from ..ops.stage import current
from ..staging.value import TensorValue
from ..types.dims import Dim
from ..types.tensor_type import TensorType

if TYPE_CHECKING:
    from .call import NodeCall
    from .table import Value


@dataclass(frozen=True)
class CountedItems:
    """A sequence of as many items as `parts` has along its first axis."""

    parts: TensorValue


@dataclass(frozen=True)
class AppendedItem:
    """An item that a round of a loop appends; `condition` says whether it does, None where each round does."""

    value: TensorValue
    condition: TensorValue | None = None


@dataclass(frozen=True)
class AppendedItems:
    """A sequence that a loop carries, inside of a round: what the round appends, and the place among the loop's states.

    Attributes:
        loop: the node that carries the sequence.
        place: which of its states it is.
        items: those of this round.
    """

    loop: object
    place: int
    items: tuple[AppendedItem, ...] = ()


def is_sequence(value: object) -> bool:
    """Whether a value is a sequence."""
    return isinstance(value, list | CountedItems | AppendedItems)


def moved(x: TensorValue, axis: int, source: int = 0) -> TensorValue:
    """`x` with an axis at another place."""
    order = [k for k in range(x.rank) if k != source]
    order.insert(axis % x.rank, source)
    return ops.permute(x, order)


def as_counted(call: NodeCall, items: list[Value] | CountedItems) -> CountedItems | None:
    """A sequence as parts of a tensor; None where it is empty: nothing says the type of its items."""
    if isinstance(items, CountedItems):
        return items
    if not items:
        return None
    values = [call.tensor(item) for item in items]
    _check_alike(call, [value.type for value in values])
    return CountedItems(ops.stack(values, 0))


def joined(call: NodeCall, *sequences: CountedItems | None) -> CountedItems | list[Value]:
    """The items of several sequences, one after the other."""
    parts = [each.parts for each in sequences if each is not None]
    if not parts:
        return []
    _check_alike(call, [each.type.with_shape(each.shape[1:]) for each in parts])
    return CountedItems(ops.concat(parts, 0) if len(parts) > 1 else parts[0])


def from_rounds(
    call: NodeCall, rounds: Dim, appended: Sequence[tuple[TensorValue, TensorValue | None]]
) -> CountedItems | None:
    """What all rounds of a loop have appended, in order; None where a round appends nothing.

    Args:
        call: the loop.
        rounds: how many there are.
        appended: of each item of a round its values in all rounds, along their first axis, and whether each round
            appended it.
    """
    if not appended:
        return None
    values = [value for value, _ in appended]
    _check_alike(call, [value.type for value in values])
    shape = [rounds * len(values), *values[0].shape[1:]]
    parts = ops.reshape(ops.stack(values, 1), shape)
    if all(condition is None for _, condition in appended):
        return CountedItems(parts)
    always = ops.broadcast_to(ops.constant(True, DType.bool, call.device), [rounds])
    flags = ops.stack([always if condition is None else condition for _, condition in appended], 1)
    kept = ops.nonzero(ops.reshape(flags, shape[:1]), current("items").unused_dim("items"))
    return CountedItems(ops.gather(parts, ops.reshape(kept, [kept.shape[0]]), 0))


def _check_alike(call: NodeCall, types: Sequence[TensorType]) -> None:
    """Refuses items of different types in a sequence whose length a call says."""
    for type in types[1:]:
        if (type.dtype, type.shape) != (types[0].dtype, types[0].shape):
            text = "items of a sequence whose length a call says have one type, and here they have"
            shown = [f"{each.dtype}{each.shape}" for each in (types[0], type)]
            call.fail(f"{text} {' and '.join(shown)}", code="EK0529", expected=shown[0], got=shown[1])
