"""Evaluates loops: `for`, `while`, `break`, `continue`, `return` from within, unrolled or at run time.

A run-time loop with an exit tests a flag in its condition; how a round ended clears it. In an unrolled loop the
rounds after one that may have left stand in a branch. How variables go round is in `loop_variables`.

Registers the handlers of these statement nodes of `dsl.frontend.syntax`. See `inference.evaluator` for what calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, INT
from ...ir.builder import NotPure
from ...ir.program import Value
from ..advice import over_indices
from ..calls.folding import repeated
from ..conditions import decision, short_circuit, truth
from ..conversion import coerce
from ..evaluator import MAX_UNROLL, Evaluator, Point, statement
from ..recovery import Cascade, poison
from ..runtime_checks import guard_divisor
from ..values.aggregates import PLAIN, is_number, parts_of, with_parts
from ..values.compile_time import LoopRange, Poisoned, Unrolled, Work, is_comptime_number
from ..values.describe import describe
from ..values.flow import NEXT, Absent, Flow, ended
from ..values.index import BodyIndex
from .branches import unless_left
from .expressions import items
from .loop_variables import RuntimeLoop
from .statements import bind

GO_ON = "$go_on"  # the variable that says whether another round may come; no author can name it


@statement(s.Break)
def break_(here: Point, node: s.Break) -> Flow:
    return ended("break")


@statement(s.Continue)
def continue_(here: Point, node: s.Continue) -> Flow:
    return ended("continue")


@statement(s.For)
def for_(here: Point, node: s.For) -> Flow:
    iterable = here.expr_or_poison(node.iterable)
    if isinstance(iterable, Poisoned):
        _rounds_unknown(here, node)
    if isinstance(iterable, Unrolled | tuple | BodyIndex):
        values = iterable.values if isinstance(iterable, Unrolled) else items(here, iterable)
        return unrolled(here, node, values)
    work = iterable if isinstance(iterable, Work) else None
    iterable = iterable if work is None else work.numbers
    if not isinstance(iterable, LoopRange):
        raise here.on(node.iterable).error(
            "EK0212",
            f"a loop runs over range(...), unroll(...) or a tuple, not over {describe(iterable)}",
            hint=over_indices(iterable, node.iterable, here.frame),
        )
    if here.evaluator.folding:
        return _folded_for(here, node, iterable)
    low, high, step, index_of = _rounds(here.on(node.iterable), iterable)

    def bind_index(counter: Value) -> None:
        builder = here.builder
        builder.live(builder.counter(counter, low, high))
        index = index_of(counter)
        bind(here, node.target, index if work is None else work.place(index), node.iterable)

    if can_leave(node):
        return _for_that_leaves(here, node, low, high, step, bind_index)
    loop = RuntimeLoop(here.on(node), node, [])

    def body() -> None:
        index = Value(INT)
        loop.region.args.insert(0, index)
        bind_index(index)
        here.block(node.body, "loop")

    loop.run(
        body,
        lambda values: here.builder.add("for", [low, high, step, *values], [v.type for v in values], [loop.region]),
    )
    return NEXT


def _rounds(here: Point, iterable: LoopRange) -> tuple[Value, Value, Value, Callable[[Value], Value]]:
    """The bounds and the step of a counter that goes up, and what gives the loop variable of a round.

    Counting down, or by a number of the running program, a counter from 0 stands for it.
    """
    builder = here.builder
    low, high = (coerce(here, v, INT) for v in (iterable.low, iterable.high))
    zero, one = builder.int_(0), builder.int_(1)
    if isinstance(iterable.step, int):
        if iterable.step > 0:
            return low, high, builder.int_(iterable.step), lambda counter: counter
        span, size = _span(here.evaluator, low, high), builder.int_(-iterable.step)
        return zero, span, size, lambda counter: builder.isub(low, counter)
    step = coerce(here, iterable.step, INT)
    if here.evaluator.ranges.is_at_least(step, 1):
        span = _span(here.evaluator, high, low)
        count = builder.idiv(builder.iadd(span, builder.isub(step, one)), step)
        return zero, count, one, lambda k: builder.counter(builder.iadd(low, builder.imul(k, step)), low, high)
    guard_divisor(here, step, "range")
    up, down = builder.compare("gt", step, zero), builder.compare("lt", step, zero)
    span = builder.one("select", [down, _span(here.evaluator, low, high), zero], INT)
    span = builder.one("select", [up, _span(here.evaluator, high, low), span], INT)
    size = builder.row("max", [builder.row("max", [step, builder.isub(zero, step)]), one])
    count = builder.idiv(builder.iadd(span, builder.isub(size, one)), size)
    return zero, count, one, lambda k: builder.iadd(low, builder.imul(k, step))


def _rounds_unknown(here: Point, node: s.For) -> NoReturn:
    """One round of a loop over something poisoned: its variable, and all that it assigns, are so too."""
    poison(here.frame, node)
    here.block(node.body, "loop")
    raise Cascade


def _folded_for(here: Point, node: s.For, iterable: LoopRange) -> Flow:
    """A loop of a call that is computed at compile time."""
    if not all(map(is_comptime_number, (iterable.low, iterable.high, iterable.step))):
        raise NotPure

    def once(value: int) -> Flow:
        bind(here, node.target, value, node.iterable)
        return here.block(node.body, "loop")

    return repeated(range(iterable.low, iterable.high, iterable.step), once)


def _folded_while(here: Point, node: s.While) -> Flow:
    """The same, with a condition; one that a run-time value decides ends the attempt."""

    def conditions() -> Iterator[None]:
        while True:
            here.step()
            test = truth(here.on(node.test), here.expr(node.test))
            if isinstance(test, Value):
                raise NotPure
            if not test:
                return
            yield None

    return repeated(conditions(), lambda _: here.block(node.body, "loop"))


def _span(evaluator: Evaluator, high: Value, low: Value) -> Value:
    """How far it is from high down to low; 0 where high is not above."""
    builder = evaluator.builder
    if high.const is not None and low.const is not None:
        return builder.int_(max(0, high.const - low.const))
    return builder.one("max", [builder.row("sub", [high, low]), builder.int_(0)], INT)


def can_leave(node: s.For | s.While) -> bool:
    """Whether a loop may end before its condition says so."""
    return s.contains(node.body, (s.Break,), into_loops=False) or s.contains(node.body, (s.Return,))


def unrolled(here: Point, node: s.For, values: tuple[object, ...]) -> Flow:
    """The body once for each value."""
    if len(values) > MAX_UNROLL:
        raise here.on(node.iterable).error(
            "EK0216", f"unrolling {len(values)} times is more than {MAX_UNROLL}", hint="use `range` for a run-time loop"
        )
    flow = NEXT
    for value in values:

        def once(value: object = value) -> Flow:
            bind(here, node.target, value, node.iterable)
            return here.block(node.body, "loop").catch("continue")

        flow = unless_left(here, flow, once, "")
        if not flow.goes_on():
            break
    return flow.catch("break")


class Exits:
    """How the rounds of a run-time loop end: a flag that the next round requests, and what a `return` gives."""

    def __init__(self, here: Point, node: s.For | s.While) -> None:
        self.here = here
        self.node = node
        self.returned: Flow | None = None  # how the rounds end, where one may return
        self.outer = here.frame.env.get(GO_ON)
        here.frame.env[GO_ON] = here.builder.const(True, BOOL)

    def after_round(self, flow: Flow) -> list[Value]:
        """Sets the flag for the next round. Gives the values that leave the loop: the flag of `return`, its numbers."""
        builder = self.here.builder
        self.here.locate()
        flow = flow.catch("continue")
        stop: Any = False
        for flag in (flow.flag("break"), flow.flag("return")):
            if isinstance(flag, Value) and isinstance(stop, Value):
                stop = builder.row("or_", [stop, flag])
            else:
                stop = stop or flag
        go_on = builder.row("not_", [stop]) if isinstance(stop, Value) else builder.const(not stop, BOOL)
        self.here.frame.env[GO_ON] = go_on
        if "return" not in flow.kinds or isinstance(flow.value, Poisoned):
            self.returned = flow if "return" in flow.kinds else None
            return []
        self.returned = flow
        flag = flow.flag("return")
        numbers: list[Value] = []
        self._collect(flow.value, numbers)
        return [flag if isinstance(flag, Value) else builder.const(True, BOOL), *numbers]

    def _collect(self, value: object, numbers: list[Value]) -> None:
        """The running program's numbers in what is returned; its other parts are the same in every round."""
        parts = parts_of(value)
        if parts is not None:
            for part in parts:
                self._collect(part, numbers)
        elif isinstance(value, Value):
            numbers.append(value)
        elif not (is_number(value) or isinstance(value, (*PLAIN, Absent))):
            hint = "return numbers, and choose with them after the loop"
            raise self.here.error("EK0120", f"{describe(value)} cannot be returned out of a run-time loop", hint=hint)

    def finish(self, leaving: list[Value], endless: bool) -> Flow:
        """The flow behind the loop, of the values that left it."""
        frame = self.here.frame
        frame.env.pop(GO_ON, None)
        if self.outer is not None:
            frame.env[GO_ON] = self.outer
        if self.returned is None:
            return NEXT
        if isinstance(self.returned.value, Poisoned):
            return ended("return", self.returned.value)
        flag, rest = leaving[0], iter(leaving[1:])

        def filled(value: object) -> Any:
            parts = parts_of(value)
            if parts is not None:
                return with_parts(value, tuple(filled(part) for part in parts))
            if isinstance(value, Value):
                first = next(rest)
                first.weak = value.weak
                return first
            return value

        value = filled(self.returned.value)
        if endless and "break" not in self.returned.kinds:
            return ended("return", value)
        return Flow(frozenset({"next", "return"}), value, {"return": flag})


def _for_that_leaves(
    here: Point, node: s.For, low: Value, high: Value, step: Value, bind_index: Callable[[Value], None]
) -> Flow:
    """`for` that may be left: a while loop over the index and a flag."""
    builder = here.builder
    exits = Exits(here.on(node), node)
    name = f"$index of {id(node)}"  # loops nest
    here.frame.env[name] = low
    loop = RuntimeLoop(here.on(node), node, [GO_ON, name])

    def condition() -> Value:
        more = builder.compare("lt", here.frame.env[name], high)
        return builder.row("and_", [more, here.frame.env[GO_ON]])

    def body() -> list[Value]:
        bind_index(here.frame.env[name])
        here.frame.env[name] = builder.iadd(here.frame.env[name], step)
        return exits.after_round(here.block(node.body, "loop"))

    leaving = loop.run_while(condition, body)
    here.frame.env.pop(name, None)
    return exits.finish(leaving, False)


@statement(s.While)
def while_(here: Point, node: s.While) -> Flow:
    if here.evaluator.folding:
        return _folded_while(here, node)
    builder = here.builder
    leaves = can_leave(node)
    exits = Exits(here.on(node), node) if leaves else None
    loop = RuntimeLoop(here.on(node), node, [GO_ON] if leaves else [])
    endless = False

    def condition() -> Value:
        nonlocal endless
        # Once the loop has been left the condition is not computed again.
        go_on = here.frame.env[GO_ON] if leaves else True
        decided: list[object] = []

        def decide() -> Any:
            decided.append(decision(here.on(node.test), runtime=True))
            return decided[0]

        value = short_circuit(here, "and", go_on, decide, node.test)
        test = truth(here.on(node.test), value)
        endless = not isinstance(decided[0], Value) and bool(decided[0])
        if not isinstance(test, Value):
            if test and not leaves:
                raise here.on(node.test).error("EK0212", "this loop never ends", hint="leave it with `break`")
            test = builder.const(test, BOOL)
        return test

    def body() -> list[Value]:
        flow = here.block(node.body, "loop")
        return exits.after_round(flow) if exits is not None else []

    leaving = loop.run_while(condition, body)
    return exits.finish(leaving, endless) if exits is not None else NEXT
