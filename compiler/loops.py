"""Loops: `for`, `while`, `break`, `continue`, unrolled or at run time.

A `break` at run time clears a flag that the loop's condition asks for. How variables go round is in `carried`.

Registers the handlers of these statement nodes of `dsl.syntax`. See `infer` for the frame around it.
"""

from __future__ import annotations

from typing import Any

from ..dsl import syntax as s
from ..dsl.types import BOOL, INT
from .carried import Loop
from .coerce import coerce
from .expressions import items, short_circuit, truth
from .flow import NEXT, Flow
from .infer import MAX_UNROLL, WRITTEN_OUT, Inferer, statement
from .program import Value
from .statements import bind
from .values import (
    Frame,
    Index,
    LoopRange,
    Unrolled,
    describe,
)

GO_ON = "$go_on"  # the variable that `break` clears; no author can name it


@statement(s.Break)
def break_(inferer: Inferer, node: s.Break, frame: Frame) -> Flow:
    if GO_ON in frame.env:
        frame.env[GO_ON] = inferer.builder.const(False, BOOL)
        return Flow("continue")
    return Flow("break")


@statement(s.Continue)
def continue_(inferer: Inferer, node: s.Continue, frame: Frame) -> Flow:
    return Flow("continue")


@statement(s.For)
def for_(inferer: Inferer, node: s.For, frame: Frame) -> Flow:
    iterable = inferer.expr(node.iterable, frame)
    if isinstance(iterable, Unrolled | tuple | Index):
        values = iterable.values if isinstance(iterable, Unrolled) else items(inferer, iterable, node, frame)
        return unrolled(inferer, node, frame, values)
    if not isinstance(iterable, LoopRange):
        raise inferer.error(
            "EK0212",
            f"a loop runs over range(...), unroll(...) or a tuple, not over {describe(iterable)}",
            node.iterable,
            frame,
        )
    _refuse_return(inferer, node.body, frame)
    low, high, step = (
        coerce(inferer, v, INT, node.iterable, frame, "the bounds of range() are Ints")
        for v in (iterable.low, iterable.high, iterable.step)
    )
    if s.contains(node.body, (s.Break,), into_loops=False):
        return _for_with_break(inferer, node, frame, low, high, step)
    loop = Loop(inferer, node, frame, [])

    def body() -> list[Any]:
        index = Value(INT)
        loop.region.args.insert(0, index)
        bind(inferer, node.target, index, node.iterable, frame)
        inferer.block(node.body, frame)
        return []

    loop.run(
        body,
        lambda values: inferer.builder.add("for", [low, high, step, *values], [v.type for v in values], [loop.region]),
    )
    return NEXT


def _refuse_return(inferer: Inferer, body: tuple[s.Stmt, ...], frame: Frame) -> None:
    for stmt in body:
        if s.contains((stmt,), (s.Return,)):
            raise inferer.error(
                "EK0109",
                "return inside a run-time loop is not supported",
                stmt,
                frame,
                hint="set a variable, leave the loop with `break`, and return after it",
            )


class Round(s.Stmt):
    """A variable takes one of the values of an unrolled loop; made here only, never by an author."""

    target: s.Expr
    value: Any


@statement(Round)
def round_(inferer: Inferer, node: Round, frame: Frame) -> None:
    bind(inferer, node.target, node.value, node.target, frame)


def flattened(inferer: Inferer, node: s.For, frame: Frame) -> tuple[s.Stmt, ...] | None:
    """An unrolled loop that may return, written out: what follows a round belongs into the branches of that round.

    None for any other loop.
    """
    if not s.contains(node.body, (s.Return,)) or s.contains(node.body, (s.Break, s.Continue), into_loops=False):
        return None
    iterable = inferer.expr(node.iterable, frame)
    values = iterable.values if isinstance(iterable, Unrolled) else iterable
    if not isinstance(values, tuple) or len(values) > MAX_UNROLL:
        return None
    rounds = ((Round(node.target, value, span=node.span), *node.body) for value in values)
    return tuple(stmt for one in rounds for stmt in one)


WRITTEN_OUT[s.For] = flattened


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
    leaves = s.contains(node.body, (s.Break, s.Continue), into_loops=False)
    if leaves and s.contains(node.body, (s.Return,)):
        text = "return beside break or continue in an unrolled loop is not supported"
        raise inferer.error("EK0109", text, node, frame, hint="set a variable, and return after the loop")
    hidden = frame.env.pop(GO_ON, None)
    for value in values:
        bind(inferer, node.target, value, node.iterable, frame)
        flow = inferer.block(node.body, frame)
        if flow.kind == "return":
            return flow
        if flow.kind == "break":
            break
    if hidden is not None:
        frame.env[GO_ON] = hidden
    return NEXT


def _for_with_break(inferer: Inferer, node: s.For, frame: Frame, low: Value, high: Value, step: Value) -> Flow:
    """`for` that a `break` may end: a while loop over the index and a flag."""
    builder = inferer.builder
    outer = frame.env.get(GO_ON)
    frame.env[GO_ON] = builder.const(True, BOOL)
    name = f"$index of {id(node)}"  # loops nest
    frame.env[name] = low
    loop = Loop(inferer, node, frame, [GO_ON, name])

    def condition() -> Value:
        more = builder.compare("lt", frame.env[name], high)
        return builder.row("and_", [more, frame.env[GO_ON]])

    def body() -> None:
        bind(inferer, node.target, frame.env[name], node.iterable, frame)
        frame.env[name] = builder.iadd(frame.env[name], step)
        inferer.block(node.body, frame)

    loop.run_while(condition, body)
    frame.env.pop(name, None)
    frame.env.pop(GO_ON, None)
    if outer is not None:
        frame.env[GO_ON] = outer
    return NEXT


@statement(s.While)
def while_(inferer: Inferer, node: s.While, frame: Frame) -> Flow:
    _refuse_return(inferer, node.body, frame)
    builder = inferer.builder
    outer = frame.env.get(GO_ON)
    breaks = s.contains(node.body, (s.Break,), into_loops=False)
    if breaks:
        frame.env[GO_ON] = builder.const(True, BOOL)
    loop = Loop(inferer, node, frame, [GO_ON] if breaks else [])

    def condition() -> Value:
        # After a `break` the condition is not computed again.
        go_on = frame.env[GO_ON] if breaks else True
        value = short_circuit(inferer, "and", go_on, lambda: inferer.expr(node.test, frame), node.test, node, frame)
        test = truth(inferer, value, node.test, frame)
        if not isinstance(test, Value):
            if test and not breaks:
                raise inferer.error("EK0212", "this loop never ends", node.test, frame, hint="leave it with `break`")
            test = builder.const(test, BOOL)
        return test

    def body() -> None:
        inferer.block(node.body, frame)

    loop.run_while(condition, body)
    frame.env.pop(GO_ON, None)
    if outer is not None:
        frame.env[GO_ON] = outer
    return NEXT
