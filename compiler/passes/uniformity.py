"""Refuses to wait for threads that may not come: what a whole block or warp does stands where all of it gets to.

    if thread_idx.x < 5:          some threads of a block come to the barrier, and wait for ever
        barrier

    if block_idx.x < 5:           all of a block, or none of it
        barrier

What cannot be decided is refused, too: the author promises with `gpu.uniform` that a value is equal in all threads.

See also `ir.scopes` (what is equal where).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import CompileError, EinkornError, joined
from ...dsl.diagnostics.places import Label, Place, is_shipped
from ...dsl.types.dtype import BOOL
from ..ir.opcodes import BARRIER, GPU_ID, IF, LAUNCH
from ..ir.program import Location, Op, Program, ProgramFunction, Scope, Value, walk
from ..ir.scopes import Control, Scopes
from ..targets import Target

CPU_WARP = 32  # threads of a warp where no hardware has any


def uniformity(program: Program, target: Target) -> None:
    """Refuses barriers and what warps do together where threads may part.

    Raises:
        CompileError: EK0620 for a block, EK0621 for a warp.
    """
    mistakes: list[EinkornError] = []
    for function in program.functions:
        for launch in walk(function.body):
            if launch.opcode is LAUNCH and any(_joins(op) for op in walk(launch.regions[0])):
                mistakes += _LaunchCheck(function, launch, target.lanes if target.has_grid else CPU_WARP).mistakes()
    if mistakes:
        raise joined(mistakes)


def _joins(op: Op) -> bool:
    """Whether the threads of some scope have to come to an operation together."""
    return bool(op.opcode.waits or op.opcode.convergent)


class _LaunchCheck:
    """One launch and what is wrong in it."""

    def __init__(self, function: ProgramFunction, launch: Op, warp: int) -> None:
        self.function = function
        self.scopes = Scopes(launch, warp)

    def mistakes(self) -> list[EinkornError]:
        """One mistake for each place at which threads wait that may not all come: the one of the widest scope."""
        parted: dict[Place, tuple[Op, Control]] = {}
        results: dict[Place, EinkornError] = {}
        for op, control in self.scopes.waiting:
            place = _author(op.location)[0]
            if control.scope < op.convergent and (place not in parted or parted[place][0].convergent < op.convergent):
                parted[place] = op, control
            if op.opcode is BARRIER and op.operands and self.scopes.of(op.operands[0]) < Scope.warp:
                results[place] = self.differs(op)
        return [self.mistake(*parted[place]) for place in parted] + list(results.values())

    def differs(self, op: Op) -> CompileError:
        """The number of a barrier that is not the same in all lanes of a warp."""
        place, calls = _author(op.location)
        chain, source = self.scopes.source(op.operands[0])
        notes = [self.origin(chain, source, Scope.warp)] if source is not None else []
        return CompileError(
            "id= of gpu.barrier may differ among the lanes of a warp",
            code="EK0642",
            place=place,
            notes=[*notes, *calls],
            hint="a warp arrives at one barrier: if all its lanes have the same number, write gpu.uniform(id)",
            op=self.function.op or None,
        )

    def mistake(self, op: Op, control: Control) -> CompileError:
        assert control.op is not None and control.cause is not None
        place, calls = _author(op.location)
        chain, source = self.scopes.source(control.cause)
        condition = _condition(control.op, chain)
        way, hint = _way(op, control.op)
        among = "lanes of a warp" if op.convergent is Scope.warp else f"threads of a {op.convergent.name}"
        labels = [Label(place, f"all {among} come here together"), Label(condition, "this may differ")]
        notes = [self.origin(chain, source, op.convergent)] if source is not None else []
        return CompileError(
            f"{_what(op)} {way.format(among)}",
            code="EK0621" if op.convergent is Scope.warp else "EK0620",
            place=place,
            labels=sorted(labels, key=_text_order),
            notes=[*notes, *calls],
            hint=hint,
            op=self.function.op or None,
        )

    def origin(self, chain: list[Value], source: Op, scope: Scope) -> str:
        """Where the difference comes from, as a sentence."""
        names = self.function.names
        named = next((value for value in chain if value.serial in names), None)
        name = names[named.serial] if named is not None else None
        place = _author(source.location)[0]
        if source.opcode is GPU_ID:
            what = f"gpu.{source.attrs['which']}"
            made = named.maker if named is not None else None
            text = _text(made.location.place) if made is not None else None
            if made is not None and text is not None and text.startswith("gpu."):
                what, place = text, made.location.place  # gpu.global_idx.x, which is made of others
            return f"'{name}' comes from {what} at {place}" if name else f"{what} differs in a {scope.name}: {place}"
        text = _text(place)
        what = f"`{text}`" if text is not None else source.name
        subject = f"'{name}' comes from {what}" if name else what
        if source.opcode.reads:
            return f"{subject}, which is read from memory that threads of this launch write: {place}"
        return f"{subject}, which each thread gets for itself: {place}"


def _what(op: Op) -> str:
    """What waits, as the beginning of a sentence."""
    place = _author(op.location)[0]
    if place != op.location.place or op.opcode is not BARRIER:
        text = _text(place)
        if text is not None:
            return f"`{text.partition('(')[0]}`"
    return op.name


def _way(op: Op, control: Op) -> tuple[str, str]:
    """How an operation stands to the branch or loop that decides about it, and what to write instead."""
    if op.convergent is Scope.warp:
        hint = "let all lanes execute it and select the operand with `x if c else y`"
        if not is_shipped(op.location.place.file) or _what(op).startswith("`gpu.warp."):
            hint += ", or name the lanes that do with mask="
    elif control.opcode is IF:
        hint = "keep only the work under the condition, and let all threads come to the barrier"
        if op.opcode is BARRIER and op.attrs.get("id"):
            hint += f", or say how many threads come to barrier {op.attrs['id']} with threads="
    else:
        hint = "let all threads make the same rounds, and put the work of a round under a condition"
    if control.opcode is not IF:
        return "in a loop that {} may leave in different rounds", hint
    place = _place_within(op.location, control.location)
    if place is None or _contains(control.location.place, place):
        return "under a condition that {} may answer differently", hint
    return "behind a `return`, `break` or `continue` that {} may take differently", hint


def _condition(control: Op, chain: list[Value]) -> Place:
    """The place of the condition: the last question in the branch or the loop that made its answer differ."""
    whole = control.location.place
    makers = [value.maker.location.place for value in chain if value.maker is not None and value.type == BOOL]
    return next((place for place in reversed(makers) if _contains(whole, place) and place != whole), whole)


def _place_within(location: Location, other: Location) -> Place | None:
    """The place of an operation, or of the call that brought it, in the function that another one stands in."""
    here: Location | None = location
    while here is not None:
        if here.function == other.function and here.caller == other.caller:
            return here.place
        here = here.caller
    return None


def _contains(outer: Place, inner: Place) -> bool:
    end = (outer.end_line or outer.line, outer.end_column)
    first, last = (inner.line, inner.column), (inner.end_line or inner.line, inner.end_column)
    return outer.file == inner.file and (outer.line, outer.column) <= first and last <= end


def _text(place: Place) -> str | None:
    """What stands at a place, where that is one line and at hand."""
    line = place.source_line()
    if line is None or place.end_line not in (0, place.line) or place.end_column <= place.column:
        return None
    return line[place.column - 1 : place.end_column - 1] or None


def _text_order(label: Label) -> tuple[str, int]:
    return label.place.file, label.place.line


def _author(location: Location) -> tuple[Place, list[str]]:
    """Where the author's text is, and the calls that led there."""
    chain = location.chain()
    own = [place for place in chain if not is_shipped(place.file)] or chain
    return own[0], [f"called at {place}" for place in own[1:4]]
