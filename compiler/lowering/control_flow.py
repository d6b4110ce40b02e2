"""Writes branches and loops; structured control flow stays structured (`scf`).

How a loop is to run, passes have said in its attributes; see `ir.schedule`.

See also `lowering.parallel` (parallel regions).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ...dsl.diagnostics.dataclass import dataclass
from ..ir.opcodes import YIELD
from ..ir.program import Op, Region, Value
from ..ir.schedule import Cut, LoopHints
from . import polls, spins
from .writer import FunctionWriter, emits


@emits("yield", "condition")
def _end(w: FunctionWriter, op: Op) -> None:
    """The operation around it writes it."""


def _yield(w: FunctionWriter, names: Sequence[str], values: Sequence[Value]) -> None:
    w.line(f"scf.yield {', '.join(names)} : {w.types(values)}" if names else "scf.yield")


def _body(w: FunctionWriter, region: Region, loop: Op | None = None, hints: LoopHints | None = None) -> None:
    """The operations of a structured region and its yield, with what a round of a `loop` ends in."""
    with w.nested():
        for op in region.ops[:-1]:
            w.operation(op)
        last = region.ops[-1]
        assert last.opcode is YIELD, last.name
        w.at = w.module.location(last.location)
        if loop is not None:
            polls.spend(w, loop)
            spins.end_round(w, loop)
        w.leave(last)
        if hints is not None:
            w.line(f"llvm.call @{hints.symbol}() : () -> ()")
        _yield(w, [w.name(v) for v in last.operands], last.operands)


def _carry(w: FunctionWriter, arguments: Sequence[Value], names: Sequence[str]) -> str:
    """`%v3 = %v1, %v4 = %v2`: arguments of a region, and what they begin with."""
    pairs = []
    for argument, name in zip(arguments, names, strict=True):
        inner = w.names.fresh()
        w.bind(argument, inner)
        pairs.append(f"{inner} = {name}")
    return ", ".join(pairs)


@emits("if")
def _if(w: FunctionWriter, op: Op) -> None:
    at = w.at
    condition = w.name(op.operands[0])
    head = w.bind_results(op)
    result = f" -> ({w.types(op.results)})" if op.results else ""
    w.open(f"{head}scf.if {condition}{result} {{")
    _body(w, op.regions[0])
    if op.results or len(op.regions[1].ops) > 1:
        w.open("} else {")
        _body(w, op.regions[1])
    w.close(at)


@emits("while")
def _while(w: FunctionWriter, op: Op) -> None:
    with spins.spinning(w, op):
        _rounds_of_while(w, op)


def _rounds_of_while(w: FunctionWriter, op: Op) -> None:
    at = w.at
    test, body = op.regions
    names = [w.name(v) for v in op.operands]
    head = w.bind_results(op)
    types = w.types(op.operands)
    carried = _carry(w, test.args, names)
    w.open(f"{head}scf.while{f' ({carried})' if carried else ''} : ({types}) -> ({types}) {{")
    with w.nested():
        for inner_op in test.ops[:-1]:
            w.operation(inner_op)
        condition, *values = test.ops[-1].operands
        w.at = w.module.location(test.ops[-1].location)
        w.leave(test.ops[-1])
        passed = f" {', '.join(w.name(v) for v in values)} : {types}" if values else ""
        w.line(f"scf.condition({w.name(condition)}){passed}")
    w.open("} do {")
    declared = []
    for argument in body.args:
        inner = w.names.fresh()
        w.bind(argument, inner)
        declared.append(f"{inner}: {w.type(argument.type)}")
    if declared:
        w.open(f"^bb0({', '.join(declared)}):")
    _body(w, body, op)
    w.close(at)


# *** for ***

MAX_SHORT = 1 << 30  # the sum of two such numbers has 31 bits


@dataclass(frozen=True)
class _LoopSpan:
    """The names of a loop's bounds, and of the number from which its rounds are counted on, if they begin at 0."""

    low: str
    high: str
    step: str
    start: str = ""


@emits("for")
def _for(w: FunctionWriter, op: Op) -> None:
    low, high, _, *initial = (w.name(v) for v in op.operands)
    if "strip" not in op.attrs:
        _loop(w, op, low, high, initial)
        polls.burn(w, op, low, high)
        return
    names = polls.strips(w, op, (low, high), initial, functools.partial(_loop, w, op))
    for result, name in zip(op.results, names, strict=True):
        w.bind(result, name)


def _loop(w: FunctionWriter, op: Op, low: str, high: str, initial: list[str]) -> list[str]:
    """A `for` with these bounds and values to begin with; gives its results."""
    if "cut" in op.attrs:
        _cut(w, op, low, high, initial)
    else:
        _rounds(w, op, _LoopSpan(low, high, w.name(op.operands[2])), initial, op.attrs.get("hints"))
    return [w.name(v) for v in op.results]


def _rounds(w: FunctionWriter, op: Op, span: _LoopSpan, initial: list[str], hints: LoopHints | None) -> None:
    """The loop over a span."""
    at, region = w.at, op.regions[0]
    index = w.names.fresh()
    w.bind(region.args[0], index)
    head = w.bind_results(op)
    carried = _carry(w, region.args[1:], initial)
    if carried:
        carried = f" iter_args({carried}) -> ({w.types(op.results)})"
    short = None if span.start else _short_span(w, op)
    if short is not None:
        count = w.names.fresh()
        w.open(f"{head}scf.for {count} = {short.low} to {short.high} step {short.step}{carried} : i32 {{")
        with w.nested():
            w.bind(region.args[0], w.op(f"arith.extsi {count} : i32 to i64"))
    else:
        w.open(f"{head}scf.for {index} = {span.low} to {span.high} step {span.step}{carried} : i64 {{")
    if span.start:
        with w.nested():
            w.bind(region.args[0], w.op(f"arith.addi {span.start}, {index} overflow<nsw> : i64"))
    _body(w, region, op, hints)
    w.close(at)


def _short_span(w: FunctionWriter, op: Op) -> _LoopSpan | None:
    """The bounds of a loop as words of 32 bits, which a GPU counts in, where they are known and are such words."""
    numbers = [each.const for each in op.operands[:3]]
    are_short = all(isinstance(number, int) and 0 <= number < MAX_SHORT for number in numbers)
    if not w.target.has_grid or w.target.simulates or not are_short:
        return None
    return _LoopSpan(*(w.op(f"arith.constant {number} : i32") for number in numbers))


def _cut(w: FunctionWriter, op: Op, low: str, high: str, initial: list[str]) -> None:
    """A loop over whole vectors, and one under a mask over what is left; see `passes.vectorize_loops`.

    Both count from 0, and the first stands where there is a round for it: so LLVM sees that nothing is left of it.
    Their number is frozen: LLVM would make it anew of what the loops around count, and not know it for the same.
    """
    at = w.at
    cut: Cut = op.attrs["cut"]
    zero, one, elements = (w.op(f"arith.constant {number} : i64") for number in (0, 1, cut.elements))
    between = w.op(f"llvm.freeze {w.op(f'arith.subi {high}, {low} overflow<nsw> : i64')} : i64")
    count = w.op(f"arith.maxsi {between}, {zero} : i64")
    multiple = w.op(f"arith.constant {-cut.elements} : i64")
    first = w.op(f"arith.andi {count}, {multiple} : i64")
    rest = w.op(f"arith.subi {count}, {first} overflow<nsw> : i64")
    start = w.op(f"arith.addi {low}, {first} overflow<nsw> : i64")
    some = w.op(f"arith.cmpi sge, {count}, {elements} : i64")
    head = f"{w.bind_results(op)}scf.if {some} -> ({w.types(op.results)})" if initial else f"scf.if {some}"
    done = [w.name(v) for v in op.results]
    w.open(f"{head} {{")
    with w.nested():
        _rounds(w, op, _LoopSpan(zero, first, one, low), initial, cut.whole)
        _yield(w, [w.name(v) for v in op.results], op.results)
    if initial:
        w.open("} else {")
        with w.nested():
            _yield(w, initial, op.results)
    w.close(at)
    w.at = at
    _rounds(w, op, _LoopSpan(zero, rest, one, start), done, cut.rest)
