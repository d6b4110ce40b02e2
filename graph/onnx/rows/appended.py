"""Converts loops and branches that append to sequences.

What the rounds of a loop append is collected as other results are, and makes a sequence after the loop. A branch gives
what each of its arms appends, with whether its arm has run; zeros stand for what the other arm appends.

See also `items` (sequences whose length a call says), `rounds` (loops that collect results).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim
from ...types.tensor_type import TensorType
from ..call import NodeCall
from ..items import AppendedItem, AppendedItems, CountedItems, is_sequence
from ..table import Value
from .rounds import Round, collected, refuse_computed_sizes
from .sequences import as_counted, from_rounds, joined


def appending(
    call: NodeCall, rounds: Dim, initial: Sequence[Value], kept: Sequence[bool], body: Round, scans: int
) -> tuple[list[Value], list[TensorValue]]:
    """The last states and the collected results of a loop; see `rounds.collected`. Some states may be sequences."""
    growing = [k for k, state in enumerate(initial) if is_sequence(state) and not kept[k]]
    others = [k for k in range(len(initial)) if k not in growing]
    loop = object()
    last: list[tuple[AppendedItem, ...]] = []  # of each sequence what a round has appended

    def round_(number: TensorValue, states: Sequence[Value]) -> Sequence[Value]:
        rest = iter(states)
        given = [AppendedItems(loop, k) if k in growing else next(rest) for k in range(len(initial))]
        results = body(number, given)
        appended = [_appended(call, loop, k, results[k]) for k in growing]
        last[:] = appended
        flat = [part for items in appended for item in items for part in (item.value, item.condition, item.count)]
        return [*(results[k] for k in others), *results[len(initial) :], *(part for part in flat if part is not None)]

    names = call.node.output[len(initial) :]
    states, results = collected(
        call, rounds, [initial[k] for k in others], [kept[k] for k in others], round_, [0] * scans, names
    )
    after = dict(zip(others, states, strict=True))
    parts = iter(results[scans:])
    for k, appended in zip(growing, last, strict=True):
        items = []  # with the values of all rounds
        for item in appended:
            value = next(parts)
            condition, count = (None if part is None else next(parts) for part in (item.condition, item.count))
            items.append(AppendedItem(value, condition, count, item.axis))
        before = initial[k]
        if not isinstance(before, list | CountedItems):
            call.fail("appends to a sequence that a loop around it carries", code="EK0529")
        after[k] = joined(call, as_counted(call, before), from_rounds(call, rounds, items))
    return [after[k] for k in range(len(initial))], results[:scans]


def _appended(call: NodeCall, loop: object, place: int, after: Value) -> tuple[AppendedItem, ...]:
    """What a round has appended to a sequence."""
    if not isinstance(after, AppendedItems) or after.loop is not loop or after.place != place:
        text = f"its rounds make another sequence of {call.input_name(2 + place)!r}, and may append to it only"
        call.fail(text, code="EK0529", expected="SequenceInsert at the end")
    return after.items


# *** branches ***


@dataclass(frozen=True)
class ArmResult:
    """A result of both arms of a branch: tensors, or what each arm appends to a sequence.

    Attributes:
        types: those of the tensor in both arms, or of what the first and the second arm append.
        before: the sequence before the branch; None for a tensor.
    """

    types: tuple[list[TensorType], list[TensorType]]
    before: AppendedItems | None = None

    @property
    def appended(self) -> list[TensorType]:
        """The types of what both arms append, the first one's before."""
        return [*self.types[0], *self.types[1]]


def arm_result(call: NodeCall, output: str, then: Value, other: Value) -> ArmResult:
    """What both arms give for a result, of their values."""
    if not isinstance(then, AppendedItems) or not isinstance(other, AppendedItems):
        return ArmResult(([call.tensor(then).type], [call.tensor(other).type]))
    if then.loop is not other.loop or then.place != other.place:
        call.fail(f"its arms give different sequences for {output!r}", code="EK0529")
    common = 0
    while common < min(len(then.items), len(other.items)) and then.items[common] is other.items[common]:
        common += 1
    types = [[item.value.type for item in each.items[common:]] for each in (then, other)]
    for type in [*types[0], *types[1]]:
        refuse_computed_sizes(
            call, type, f"an item that it appends to {output!r} has a size that one of its arms computes"
        )
    return ArmResult((types[0], types[1]), AppendedItems(then.loop, then.place, then.items[:common]))


def arm_tensors(call: NodeCall, result: ArmResult, second: bool, value: Value) -> list[TensorValue]:
    """What an arm gives for a sequence: of each item its value, and whether it is appended."""
    assert isinstance(value, AppendedItems) and result.before is not None
    tensors: list[TensorValue] = []
    own = value.items[len(result.before.items) :]
    yes, no = (ops.constant(flag, DType.bool, call.device) for flag in (True, False))
    for arm, types in enumerate(result.types):
        for k, type in enumerate(types):
            if arm == second:
                condition = own[k].condition
                tensors += [own[k].value, yes if condition is None else ops.reshape(condition, [])]
            else:
                zero = ops.constant(0, type.dtype, call.device)
                tensors += [ops.broadcast_to(zero, type.shape), no]
    return tensors


def sequence_after(result: ArmResult, tensors: Sequence[TensorValue]) -> AppendedItems:
    """The sequence after a branch, of what `arm_tensors` gives."""
    assert result.before is not None
    items = [AppendedItem(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
    return AppendedItems(result.before.loop, result.before.place, (*result.before.items, *items))
