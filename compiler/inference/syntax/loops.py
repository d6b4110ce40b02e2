"""Loops: `for`, `while`, `break`, `continue`, `return` from within, unrolled or at run time.

A run-time loop that can be left asks a flag in its condition; how a round ended clears it. In an unrolled loop the
rounds after one that may have left stand in a branch. How variables go round is in `carried`.

Registers the handlers of these statement nodes of `dsl.frontend.syntax`. See `infer` for the frame around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, INT
from ...ir.program import NotPure, Value
from ..advice import over_indices
from ..calls.folding import repeated
from ..conversion import coerce
from ..evaluator import MAX_UNROLL, Inferer, statement
from ..mistaken import poisoned
from ..recovery import Cascade, Poisoned
from ..values.aggregates import PLAIN, is_number, parts_of, with_parts
from ..values.compile_time import Frame, Index, LoopRange, Unrolled, describe, is_comptime_number
from ..values.flow import NEXT, Absent, Flow, ended
from .branches import unless_left
from .expressions import decision, items, short_circuit, truth
from .loop_variables import Loop
from .statements import bind

GO_ON = "$go_on"  # the variable that says whether another round may come; no author can name it


@statement(s.Break)
def break_(inferer: Inferer, node: s.Break, frame: Frame) -> Flow:
    return ended("break")


@statement(s.Continue)
def continue_(inferer: Inferer, node: s.Continue, frame: Frame) -> Flow:
    return ended("continue")


@statement(s.For)
def for_(inferer: Inferer, node: s.For, frame: Frame) -> Flow:
    iterable = inferer.tried(node.iterable, frame)
    if isinstance(iterable, Poisoned):
        _rounds_unknown(inferer, node, frame)
    if isinstance(iterable, Unrolled | tuple | Index):
        values = iterable.values if isinstance(iterable, Unrolled) else items(inferer, iterable, node, frame)
        return unrolled(inferer, node, frame, values)
    if not isinstance(iterable, LoopRange):
        raise inferer.error(
            "EK0212",
            f"a loop runs over range(...), unroll(...) or a tuple, not over {describe(iterable)}",
            node.iterable,
            frame,
            hint=over_indices(iterable, node.iterable, frame),
        )
    if inferer.folding:
        return _folded_for(inferer, node, frame, iterable)
    low, high = (coerce(inferer, v, INT, node.iterable, frame) for v in (iterable.low, iterable.high))
    step = inferer.builder.int_(abs(iterable.step))
    start: Value | None = None
    if iterable.step < 0:
        start, low, high = low, inferer.builder.int_(0), _span(inferer, low, high)

    def bind_index(counter: Value) -> None:
        """The loop variable; counting down, a counter from 0 stands for it."""
        builder = inferer.builder
        builder.live(builder.counter(counter, low, high))
        index = counter if start is None else builder.isub(start, counter)
        bind(inferer, node.target, index, node.iterable, frame)

    if can_leave(node):
        return _for_that_leaves(inferer, node, frame, low, high, step, bind_index)
    loop = Loop(inferer, node, frame, [])

    def body() -> None:
        index = Value(INT)
        loop.region.args.insert(0, index)
        bind_index(index)
        inferer.block(node.body, frame, "loop")

    loop.run(
        body,
        lambda values: inferer.builder.add("for", [low, high, step, *values], [v.type for v in values], [loop.region]),
    )
    return NEXT


def _rounds_unknown(inferer: Inferer, node: s.For, frame: Frame) -> NoReturn:
    """One round of a loop over something poisoned: its variable, and all that it assigns, are so too."""
    inferer.block(node.body, poisoned(frame, node), "loop")
    raise Cascade


def _folded_for(inferer: Inferer, node: s.For, frame: Frame, iterable: LoopRange) -> Flow:
    """A loop of a call that is computed at compile time."""
    if not (is_comptime_number(iterable.low) and is_comptime_number(iterable.high)):
        raise NotPure

    def once(value: int) -> Flow:
        bind(inferer, node.target, value, node.iterable, frame)
        return inferer.block(node.body, frame, "loop")

    return repeated(range(iterable.low, iterable.high, iterable.step), once)


def _folded_while(inferer: Inferer, node: s.While, frame: Frame) -> Flow:
    """The same, with a condition; one that a run-time value decides ends the attempt."""

    def conditions() -> Iterator[None]:
        while True:
            inferer.step(node, frame)
            test = truth(inferer, inferer.expr(node.test, frame), node.test, frame)
            if isinstance(test, Value):
                raise NotPure
            if not test:
                return
            yield None

    return repeated(conditions(), lambda _: inferer.block(node.body, frame, "loop"))


def _span(inferer: Inferer, high: Value, low: Value) -> Value:
    """How far it is from high down to low; 0 where high is not above."""
    builder = inferer.builder
    if high.const is not None and low.const is not None:
        return builder.int_(max(0, high.const - low.const))
    return builder.one("max", [builder.row("sub", [high, low]), builder.int_(0)], INT)


def can_leave(node: s.For | s.While) -> bool:
    """Whether a loop may end before its condition says so."""
    return s.contains(node.body, (s.Break,), into_loops=False) or s.contains(node.body, (s.Return,))


def unrolled(inferer: Inferer, node: s.For, frame: Frame, values: tuple[Any, ...]) -> Flow:
    """The body once for each value."""
    if len(values) > MAX_UNROLL:
        raise inferer.error(
            "EK0216",
            f"unrolling {len(values)} times is more than {MAX_UNROLL}",
            node.iterable,
            frame,
            hint="use `range` for a run-time loop",
        )
    flow = NEXT
    for value in values:

        def once(value: Any = value) -> Flow:
            bind(inferer, node.target, value, node.iterable, frame)
            return inferer.block(node.body, frame, "loop").caught("continue")

        flow = unless_left(inferer, node, frame, flow, once, "")
        if not flow.goes_on():
            break
    return flow.caught("break")


class Exits:
    """How the rounds of a run-time loop end: a flag that the next round asks for, and what a `return` gives."""

    def __init__(self, inferer: Inferer, node: s.For | s.While, frame: Frame) -> None:
        self.inferer = inferer
        self.node = node
        self.frame = frame
        self.returned: Flow | None = None  # how the rounds end, where one may return
        self.outer = frame.env.get(GO_ON)
        frame.env[GO_ON] = inferer.builder.const(True, BOOL)

    def after_round(self, flow: Flow) -> list[Value]:
        """Sets the flag for the next round. Gives the values that leave the loop: the flag of `return`, its numbers."""
        inferer, builder = self.inferer, self.inferer.builder
        inferer.locate(self.node, self.frame)
        flow = flow.caught("continue")
        stop: Any = False
        for flag in (flow.flag("break"), flow.flag("return")):
            if isinstance(flag, Value) and isinstance(stop, Value):
                stop = builder.row("or_", [stop, flag])
            else:
                stop = stop or flag
        go_on = builder.row("not_", [stop]) if isinstance(stop, Value) else builder.const(not stop, BOOL)
        self.frame.env[GO_ON] = go_on
        if "return" not in flow.kinds or isinstance(flow.value, Poisoned):
            self.returned = flow if "return" in flow.kinds else None
            return []
        self.returned = flow
        flag = flow.flag("return")
        numbers: list[Value] = []
        self._collect(flow.value, numbers)
        return [flag if isinstance(flag, Value) else builder.const(True, BOOL), *numbers]

    def _collect(self, value: Any, numbers: list[Value]) -> None:
        """The running program's numbers in what is returned; its other parts are the same in every round."""
        parts = parts_of(value)
        if parts is not None:
            for part in parts:
                self._collect(part, numbers)
        elif isinstance(value, Value):
            numbers.append(value)
        elif not (is_number(value) or isinstance(value, (*PLAIN, Absent))):
            hint = "return numbers, and choose with them after the loop"
            raise self.inferer.error(
                "EK0120",
                f"{describe(value)} cannot be returned out of a run-time loop",
                self.node,
                self.frame,
                hint=hint,
            )

    def finish(self, leaving: list[Value], endless: bool) -> Flow:
        """The flow behind the loop, of the values that left it."""
        frame = self.frame
        frame.env.pop(GO_ON, None)
        if self.outer is not None:
            frame.env[GO_ON] = self.outer
        if self.returned is None:
            return NEXT
        if isinstance(self.returned.value, Poisoned):
            return ended("return", self.returned.value)
        flag, rest = leaving[0], iter(leaving[1:])

        def filled(value: Any) -> Any:
            parts = parts_of(value)
            if parts is not None:
                return with_parts(value, tuple(filled(part) for part in parts))
            if isinstance(value, Value):
                found = next(rest)
                found.weak = value.weak
                return found
            return value

        value = filled(self.returned.value)
        if endless and "break" not in self.returned.kinds:
            return ended("return", value)
        return Flow(frozenset({"next", "return"}), value, {"return": flag})


def _for_that_leaves(
    inferer: Inferer,
    node: s.For,
    frame: Frame,
    low: Value,
    high: Value,
    step: Value,
    bind_index: Callable[[Value], None],
) -> Flow:
    """`for` that may be left: a while loop over the index and a flag."""
    builder = inferer.builder
    exits = Exits(inferer, node, frame)
    name = f"$index of {id(node)}"  # loops nest
    frame.env[name] = low
    loop = Loop(inferer, node, frame, [GO_ON, name])

    def condition() -> Value:
        more = builder.compare("lt", frame.env[name], high)
        return builder.row("and_", [more, frame.env[GO_ON]])

    def body() -> list[Value]:
        bind_index(frame.env[name])
        frame.env[name] = builder.iadd(frame.env[name], step)
        return exits.after_round(inferer.block(node.body, frame, "loop"))

    leaving = loop.run_while(condition, body)
    frame.env.pop(name, None)
    return exits.finish(leaving, False)


@statement(s.While)
def while_(inferer: Inferer, node: s.While, frame: Frame) -> Flow:
    if inferer.folding:
        return _folded_while(inferer, node, frame)
    builder = inferer.builder
    leaves = can_leave(node)
    exits = Exits(inferer, node, frame) if leaves else None
    loop = Loop(inferer, node, frame, [GO_ON] if leaves else [])
    endless = False

    def condition() -> Value:
        nonlocal endless
        # Once the loop has been left the condition is not computed again.
        go_on = frame.env[GO_ON] if leaves else True
        asked: list[Any] = []

        def ask() -> Any:
            asked.append(decision(inferer, node.test, frame, runtime=True))
            return asked[0]

        value = short_circuit(inferer, "and", go_on, ask, node.test, node, frame)
        test = truth(inferer, value, node.test, frame)
        endless = not isinstance(asked[0], Value) and bool(asked[0])
        if not isinstance(test, Value):
            if test and not leaves:
                raise inferer.error("EK0212", "this loop never ends", node.test, frame, hint="leave it with `break`")
            test = builder.const(test, BOOL)
        return test

    def body() -> list[Value]:
        flow = inferer.block(node.body, frame, "loop")
        return exits.after_round(flow) if exits is not None else []

    leaving = loop.run_while(condition, body)
    return exits.finish(leaving, endless) if exits is not None else NEXT
