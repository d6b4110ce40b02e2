"""Holds sequences whose number of items a call says.

A sequence of a known number of items is a list of values. Others have items of one type, which lie along the first axis
of a tensor: what the rounds of a loop append, and the parts into which an axis of any size is cut.

See also `rows.sequences` (op types), `rows.rounds` (loops that append).
"""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from .. import ops
from ..staging.value import TensorValue


@dataclass(frozen=True)
class CountedItems:
    """A sequence of as many items as `parts` has along its first axis.

    Attributes:
        parts: the items.
        counts: of each item how many of its elements along `axis` count, the first ones; None where all do.
        axis: of an item.
    """

    parts: TensorValue
    counts: TensorValue | None = None
    axis: int = 0


@dataclass(frozen=True)
class AxisPieces:
    """The pieces of an axis whose size a call says: `length` elements each, and in the last one what is left.

    Attributes:
        whole: the tensor that is cut.
        axis: the axis.
        length: of a piece.
    """

    whole: TensorValue
    axis: int
    length: int


@dataclass(frozen=True)
class AppendedItem:
    """An item that a round of a loop appends.

    Attributes:
        value: the item.
        condition: whether the round appends it; None where each does.
        count: how many of its elements along `axis` count, the first ones; None where all do.
        axis: see `count`.
    """

    value: TensorValue
    condition: TensorValue | None = None
    count: TensorValue | None = None
    axis: int = 0


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
    return isinstance(value, list | CountedItems | AxisPieces | AppendedItems)


def moved(x: TensorValue, axis: int, source: int = 0) -> TensorValue:
    """`x` with an axis at another place."""
    order = [k for k in range(x.rank) if k != source]
    order.insert(axis % x.rank, source)
    return ops.permute(x, order)
