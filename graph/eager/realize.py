"""Runs what is recorded.

What a tensor needs is cut into parts of at most 64 calls. A part runs op by op the first times; when it
comes back it is compiled as one graph in a background thread, and that runs it from then on, with the same bits. Of a
part the visible values are kept: the other tensors of the user's, and calls that are recorded
elsewhere.

See also `programs` (how a part is compiled).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import instruction_place
from ...dsl.environment.tracebacks import bare
from .kinds import kind_of
from .nodes import TENSOR, Made, Pending, Recorded, result_of
from .patterns import OpCall
from .programs import EagerProgram, Step, names_in, run_call

CUT = 64  # calls of a part
MEETINGS = 3  # how often a part runs before it is compiled
MAX_PROGRAMS = 1 << 14  # parts that are remembered

_lock = fork_lock()
_known: dict[
    tuple[object, ...], tuple[EagerProgram, object]
] = {}  # by calls and sizes: a program, and the source of its sizes
_programs: dict[tuple[object, ...], EagerProgram] = {}  # by calls, whatever the sizes

Entry = tuple[Pending, Recorded]


def _references(values: Sequence[object]) -> list[int]:
    """How many references each value has, among them those of this function and of the sequence."""
    count: Callable[[Any], int] = getattr(sys, "getrefcount", lambda value: 1 << 30)
    return [count(each) for each in values]


# What `_references` returns of a value that only the sequence holds; it differs between versions of Python.
_UNSEEN = _references([object()])[0]


def value_of(tensor: Recorded) -> Any:
    """The value of a tensor; its call runs first if it is pending."""
    if tensor._value is None:
        realize([tensor])
    return tensor._value


def realize(wanted: Sequence[Recorded], at_once: dict[object, None] | None = None, most: int = 0) -> None:
    """Gives tensors their values.

    Args:
        wanted: the tensors.
        at_once: where programs are noted that were compiled at first sight; None where that is
            not wanted.
        most: how many of them there may be.

    Raises:
        EinkornError: what a kernel says, at the user's line that called it. Its part gets no values then.
    """
    with _lock:
        entries = _walk(wanted)
        for first in range(0, len(entries), CUT):
            _execute(entries[first : first + CUT], wanted, at_once, most)


def _walk(wanted: Iterable[Recorded]) -> list[Entry]:
    """The pending calls that these need, each behind those that it needs."""
    order: list[Entry] = []
    seen: set[int] = set()
    tensor_class = TENSOR.get()

    def visit(tensor: Recorded, pending: Pending) -> None:  # as deep as the longest chain, `DEEPEST` at most
        seen.add(id(pending))
        for each in pending[1]:
            if type(each) is tensor_class:
                further = each._pending
                if type(further) is tuple and id(further) not in seen:
                    visit(each, further)
        order.append((pending, tensor))

    for tensor in wanted:
        pending = tensor._pending
        if type(pending) is tuple and id(pending) not in seen:
            visit(tensor, pending)
    return order


class _RunPart:
    """Calls that run together: their key, their inputs and numbers, and the tensors that get values."""

    def __init__(self, entries: Sequence[Entry], wanted: Sequence[Recorded]) -> None:
        self.entries = entries
        leaves: list[Any] = []
        self.numbers: list[Any] = []
        self.operands: list[tuple[int, ...]] = []  # of each call: numbers of values, or -1, -2, … of inputs
        tensors: list[Recorded | None] = []  # of each value
        seen: dict[int, int] = {}  # by the identity of a tensor or a value: its number
        uses: list[int] = []  # of each value: how often calls of this part hold it
        key: list[Any] = []
        tensor_class = TENSOR.get()
        for pending, tensor in entries:
            call, inputs = pending[0], pending[1]
            count = call.count
            operands = []
            for each in inputs[:count]:
                entry = seen.get(id(each))
                if entry is None:
                    if type(each) is tensor_class:
                        each = result_of(each)
                        entry = seen.get(id(each))
                    if entry is None:
                        leaves.append(each)
                        entry = seen[id(each)] = -len(leaves)
                elif entry >= 0:
                    uses[entry] += 1
                operands.append(entry)
            if len(inputs) > count:
                self.numbers += inputs[count:]
            self.operands.append(tuple(operands))
            key.append(call)
            key += operands
            for made in (tensor,) if pending[5] is None else [each() for each in pending[5]]:
                if made is not None:
                    seen[id(made)] = len(tensors)
                tensors.append(made)
                uses.append(0)
        made = tensor = each = None  # type: ignore[assignment]  # references to them are counted
        self.leaves, self.tensors = leaves, tensors
        self.outputs = self._seen_outside({id(tensor) for tensor in wanted}, uses)
        key.append(None)
        key += self.outputs
        self.key = tuple(key)

    def _seen_outside(self, requested: set[int], uses: list[int]) -> list[int]:
        """The numbers of the values that something else than calls of this part uses.

        Counts of references only save work here: a value that is left out is computed again when it is wanted, from
        inputs that its call holds, and a value too many costs its memory.
        """
        tensors, outputs, number = self.tensors, [], 0
        held = _references(tensors)
        for pending, _ in self.entries:
            results = pending[5]
            if results is not None:  # of a call with several results all that are left
                outputs += [k for k in range(number, number + len(results)) if tensors[k] is not None]
                number += len(results)
                continue
            # in addition to the calls of this part, `tensors` and an entry hold it
            if held[number] > _UNSEEN + 1 + uses[number] or id(tensors[number]) in requested:
                outputs.append(number)
            number += 1
        return outputs

    def finish(self, values: Sequence[object]) -> None:
        """Gives the tensors that are seen their values."""
        for number, value in zip(self.outputs, values, strict=True):
            tensor = self.tensors[number]
            assert tensor is not None
            tensor._value = value
            tensor._pending = Made(value)


def _execute(
    entries: Sequence[Entry], wanted: Sequence[Recorded], at_once: dict[object, None] | None, most: int
) -> None:
    part = _RunPart(entries, wanted)
    if len(entries) == 1:
        part.finish(_op_by_op(part))
        return
    entry = _known.get(part.key)
    if entry is None:
        if len(_known) >= MAX_PROGRAMS:
            _known.clear()
        entry = _known[part.key] = _program(part)
    program, sizes = entry
    program.requests += 1
    if program.model is None and at_once is not None and len(at_once) < most and not program.queued:
        at_once[program] = None
        program.compiled()
    if program.model is not None:
        try:
            part.finish(program.run(part.leaves, part.numbers, sizes))
            return
        except EinkornError:  # op by op it is found which one it was, and where it was called
            part.finish(_op_by_op(part))
            return
    if program.requests >= MEETINGS:
        program.want()
    part.finish(_op_by_op(part))


def _program(part: _RunPart) -> tuple[EagerProgram, Any]:
    steps = [Step(pending[0], operands) for (pending, _), operands in zip(part.entries, part.operands, strict=True)]
    leaves = [kind_of(value) for value in part.leaves]
    names = names_in(steps, leaves)
    shapes = [leaf.sizes for leaf in leaves]
    for step in steps:
        shapes += [step.call.sizes, *(each.sizes for each in step.call.results or ())]
    named = tuple(names.get(size, size) for shape in shapes for size in (*shape, -1))
    key = (*((step.call.pattern, step.operands) for step in steps), named, *part.outputs)
    program = _programs.get(key)
    if program is None:
        if len(_programs) >= MAX_PROGRAMS:
            _programs.clear()
        program = _programs[key] = EagerProgram(steps, leaves, part.outputs)
    return program, program.sizes(steps, leaves)


def _op_by_op(part: _RunPart) -> list[Any]:
    values: list[Any] = []
    numbers = iter(part.numbers)
    for operands, (pending, _) in zip(part.operands, part.entries, strict=True):
        call: OpCall = pending[0]
        given = [values[k] if k >= 0 else part.leaves[-1 - k] for k in operands]
        try:
            values += run_call(call, given, [next(numbers) for _ in call.checks])
        except EinkornError as error:
            raise _placed(error, pending) from error.__cause__
    return [values[k] for k in part.outputs]


def _placed(error: EinkornError, pending: Pending) -> EinkornError:
    """The error at the user's line that called the op."""
    code, instruction = pending[2], pending[3]
    if code is not None:
        line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
        error.place = instruction_place(code, instruction, line or code.co_firstlineno)
    return bare(error)
