"""`rare(condition)`: what nearly no element needs is kept out of the loops of `foreach`.

A loop of vectors computes both sides of every choice. Where the body of a `foreach` asks `rare`, its loop on a CPU
becomes three for each block of elements: one finds whether any of them needs the rare case, and then one of two others
runs:

    for i in block: any |= condition(x[i])
    if any: for i in block: out[i] = body(x[i])          # `rare` is the condition
    else:   for i in block: out[i] = body(x[i])          # `rare` is False, known at compile time

That is done where the first loop does less than the last one is spared: not where a condition is of a number that took
long to compute. There, on GPUs, on vectors, within branches, and beside prints and checks, `rare(condition)` is the
condition. The numbers are the same either way, as long as the body gives the same where a condition is false.

Input: the bounds of a loop and what builds its body. Output: operations. Non-goals: no guess of what is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..dsl.types import BOOL, INT
from .expressions import truth
from .infer import Call, Inferer, rule
from .operations import ROWS
from .program import Builder, Op, Region, Value, walk

ROUNDS = 8  # that a loop within the body is taken to have
BLOCK = 2048  # some KiB of elements, which stay in the first cache between the two loops
_NO_WORK = ("const", "load", "store", "yield")
_HARMLESS = {*ROWS, "const", "cast", "bitcast", "splat", "select", "udiv", "urem", "load", "store", "if", "yield"}


@dataclass
class Watch:
    """A loop's body that is being built: the conditions that it called rare, and whether they are taken for false."""

    region: Region
    without: bool
    conditions: list[Value] = field(default_factory=list)


@rule("rare")
def rare(call: Call, condition: Any) -> Any:
    if isinstance(condition, Value) and condition.type != BOOL and condition.dtype is BOOL.dtype:
        return condition  # one for each lane
    value = truth(call.inferer, condition, call.nodes.get("condition", call.node), call.frame)
    watch = call.inferer.watch
    if watch is None or not isinstance(value, Value) or call.builder.region is not watch.region:
        return value
    watch.conditions.append(value)
    return False if watch.without else value


def element_loop(call: Call, low: Value, high: Value, element: Callable[[Value], None]) -> None:
    """`for i in range(low, high): element(i)`, in three loops where the body asks for that."""
    builder, inferer = call.builder, call.inferer
    loop = _loop(builder, low, high)
    asked = _build(inferer, loop, element, without=False)
    with builder.inside(loop):
        builder.end()
    if not asked or inferer.target.is_gpu or any(op.name not in _HARMLESS | {"for"} for op in walk(loop)):
        return
    whole = builder.region.ops.pop()
    assert whole.name == "for"
    blocks = builder.for_loop(low, high, builder.int_(BLOCK))
    with builder.inside(blocks):
        start = blocks.args[0]
        stop = builder.counter(
            builder.one("min", [builder.iadd(start, builder.int_(BLOCK)), high], INT), high=high, closed=True
        )
        needed = _find(inferer, start, stop, element)
        search = builder.region.ops[-1].regions[0]
        mostly = _mostly(inferer, start, stop, element)
        loop = next(op.regions[0] for op in mostly.ops if op.name == "for")
        pays = _work(search) + _work(loop) < _work(whole.regions[0])
        if pays:
            builder.add("if", [needed], regions=[_rarely(inferer, whole, start, stop), mostly])
        builder.end()
    if not pays:
        builder.region.ops[-1] = whole


def _loop(builder: Builder, low: Value, high: Value) -> Region:
    """A loop over elements, of which each is one call of the author's function."""
    region = builder.for_loop(low, high)
    builder.region.ops[-1].attrs["elements"] = True
    return region


@contextmanager
def _watching(inferer: Inferer, watch: Watch) -> Iterator[None]:
    outer, inferer.watch = inferer.watch, watch
    try:
        yield
    finally:
        inferer.watch = outer


def _build(inferer: Inferer, region: Region, element: Callable[[Value], None], *, without: bool) -> list[Value]:
    """Builds the body of a loop, but for its end; gives the conditions that it called rare."""
    watch = Watch(region, without)
    with _watching(inferer, watch), inferer.builder.inside(region):
        element(region.args[0])
    return watch.conditions


def _find(inferer: Inferer, start: Value, stop: Value, element: Callable[[Value], None]) -> Value:
    """Whether any element from start to stop needs the rare case."""
    builder = inferer.builder
    none = builder.const(False, BOOL)
    index = builder.counter(Value(INT), start, stop)
    region = Region([index, Value(BOOL)])
    conditions = _build(inferer, region, element, without=True)
    _drop_stores(region)
    with builder.inside(region):
        found = region.args[1]
        for condition in conditions:
            found = builder.one("or_", [found, condition], BOOL)
        builder.end([found])
    return builder.add("for", [start, stop, builder.int_(1), none], [BOOL], regions=[region])[0]


def _work(region: Region, needed: set[int] | None = None) -> int:
    """How many operations compute something that a store or the end of the region needs."""
    needed = set() if needed is None else needed
    count = 0
    for op in reversed(region.ops):
        lasting = op.name in ("store", "yield") or any(inner.name == "store" for r in op.regions for inner in walk(r))
        if lasting or any(id(result) in needed for result in op.results):
            needed.update(id(operand) for operand in op.operands)
            inside = sum(_work(inner, needed) for inner in reversed(op.regions))
            count += (op.name not in _NO_WORK) + inside * (ROUNDS if op.name == "for" else 1)
    return count


def _drop_stores(region: Region) -> None:
    """What only stores needed goes with them, when LLVM looks."""
    region.ops = [op for op in region.ops if op.name != "store"]
    for op in region.ops:
        for inner in op.regions:
            _drop_stores(inner)


def _rarely(inferer: Inferer, whole: Op, start: Value, stop: Value) -> Region:
    """The loop as it was built first, over a block."""
    region = Region([], [whole])
    whole.operands[:2] = [start, stop]
    whole.attrs["rare"] = True
    inferer.builder.counter(whole.regions[0].args[0], start, stop)
    with inferer.builder.inside(region):
        inferer.builder.end()
    return region


def _mostly(inferer: Inferer, start: Value, stop: Value, element: Callable[[Value], None]) -> Region:
    """The loop without the rare case."""
    region, builder = Region(), inferer.builder
    with builder.inside(region):
        loop = _loop(builder, start, stop)
        _build(inferer, loop, element, without=True)
        with builder.inside(loop):
            builder.end()
        builder.end()
    return region
