"""Keeps what nearly no element needs out of the loops of `foreach`: `rare(condition)`.

A loop of vectors computes both sides of every choice. Where the body of a `foreach` uses `rare`, its loop on a CPU
becomes two for each block of elements: the first looks for the rare case on its way, and the other does the block once
more where that was granted:

    for i in block: out[i] = body(x[i]); any |= condition(x[i])     # `rare` is False, known at compile time
    if any: for i in block: out[i] = body(x[i])                     # `rare` is the condition

A body that reads what it writes, or other places than the element's own, is not done twice. It becomes three loops, of
which the first only looks:

    for i in block: any |= condition(x[i])
    if any: for i in block: out[i] = body(x[i])                     # `rare` is the condition
    else:   for i in block: out[i] = body(x[i])                     # `rare` is False

Where the case has occurred it is assumed in the next three blocks: so data in which it is not rare cost little
more than by one loop.

Either is done where it is less work than the loop with the rare case. Where the first of three loops would compute for
long, where the rare case keeps a part of the memory from being read, on GPUs, on vectors, within branches, and next to
prints and checks, `rare(condition)` is the condition. The numbers are the same either way, as long as the body gives
the same where a condition is false.

A branch of a GPU thread by such a condition is marked. A thread that computes several elements branches once for all
of them (see `passes.widen_threads`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import BOOL, INT
from ...ir.builder import Builder
from ...ir.opcodes import CONST, FOR, IF, LOAD, STORE, YIELD
from ...ir.program import Op, PointerType, Region, Value, walk
from ..conditions import truth
from ..evaluator import Evaluator, Point, rule

ROUNDS = 8  # that a loop within the body is taken to have
BLOCK = 2048  # some KiB of elements, which stay in the first cache between two loops
GRANTED = 3  # blocks after one with the rare case, which are not tested for it
_NO_WORK = (CONST, LOAD, STORE, YIELD)


@dataclass
class Watch:
    """A loop's body that is being built: the conditions that it called rare, and whether they are taken for false."""

    region: Region
    without: bool
    conditions: list[Value] = field(default_factory=list)


@rule("rare")
def rare(call: Point, condition: object) -> Any:
    if isinstance(condition, Value) and condition.type != BOOL and condition.dtype is BOOL.dtype:
        return condition  # one for each lane
    value = truth(call.argument("condition"), condition)
    watch = call.evaluator.watch
    if isinstance(value, Value) and call.evaluator.level == "device":
        call.evaluator.rare.add(value.serial)
    if watch is None or not isinstance(value, Value) or call.builder.region is not watch.region:
        return value
    watch.conditions.append(value)
    return False if watch.without else value


def element_loop(call: Point, low: Value, high: Value, element: Callable[[Value], None]) -> None:
    """`for i in range(low, high): element(i)`, in several loops where the body requests that."""
    builder, evaluator = call.builder, call.evaluator
    loop = _loop(builder, low, high)
    has_conditions = _build(evaluator, loop, element, without=False)
    with builder.inside(loop):
        builder.end()
    harmless = all(_is_harmless(op) or op.opcode is FOR for op in walk(loop))
    if not has_conditions or not evaluator.target.vectorizes or not harmless:
        return
    whole = builder.region.ops.pop()
    assert whole.opcode is FOR
    blocks = Region([builder.counter(Value(INT), low, high), Value(INT)])
    with builder.inside(blocks):
        pays = _block(evaluator, blocks, high, whole, element)
    if pays:
        builder.add("for", [low, high, builder.int_(BLOCK), builder.int_(0)], [INT], regions=[blocks])
    else:
        builder.region.ops.append(whole)


def _block(evaluator: Evaluator, block: Region, high: Value, whole: Op, element: Callable[[Value], None]) -> bool:
    """Builds the loops of one block; says whether they are less work than the one with the rare case."""
    builder, loop = evaluator.builder, whole.regions[0]
    start, wait = block.args
    stop = builder.counter(
        builder.one("min", [builder.iadd(start, builder.int_(BLOCK)), high], INT), high=high, closed=True
    )
    look, granted, mostly = Region(), Region(), Region()
    with builder.inside(look):
        builder.end([_watched(evaluator, start, stop, element)])
    first = look.ops[-2]
    work = _work(first.regions[0])
    guards = not _accesses(first.regions[0]) <= _accesses(loop)
    if _repeatable(first.regions[0], loop):
        first.attrs["elements"] = True
        with builder.inside(mostly):
            builder.end()
    else:
        _drop_stores(first.regions[0])
        mostly = _mostly(evaluator, start, stop, element)
        inner = next(op.regions[0] for op in mostly.ops if op.opcode is FOR)
        work = _work(first.regions[0]) + _work(inner)
    if guards or work >= _work(loop):
        return False
    with builder.inside(granted):
        builder.end([builder.const(True, BOOL)])
    looks = builder.compare("eq", wait, builder.int_(0))
    needed = builder.add("if", [looks], [BOOL], regions=[look, granted])[0]
    builder.add("if", [needed], regions=[_rarely(evaluator, whole, start, stop), mostly])
    left = builder.one("select", [needed, builder.int_(GRANTED), builder.int_(0)], INT)
    builder.end([builder.one("select", [looks, left, builder.isub(wait, builder.int_(1))], INT)])
    return True


def _is_harmless(op: Op) -> bool:
    """Whether an operation may be done for an element once more."""
    return op.opcode.lanewise or op.opcode in (LOAD, STORE, IF, YIELD)


def _loop(builder: Builder, low: Value, high: Value) -> Region:
    """A loop over elements, of which each is one call of the author's function."""
    region = builder.for_loop(low, high)
    builder.region.ops[-1].attrs["elements"] = True
    return region


def _build(evaluator: Evaluator, region: Region, element: Callable[[Value], None], *, without: bool) -> list[Value]:
    """Builds the body of a loop, but for its end; gives the conditions that it called rare."""
    watch = Watch(region, without)
    with evaluator.scope(watch=watch), evaluator.builder.inside(region):
        element(region.args[0])
    return watch.conditions


def _watched(evaluator: Evaluator, start: Value, stop: Value, element: Callable[[Value], None]) -> Value:
    """The loop without the rare case; gives whether any element from start to stop needs that."""
    builder = evaluator.builder
    none = builder.const(False, BOOL)
    index = builder.counter(Value(INT), start, stop)
    region = Region([index, Value(BOOL)])
    conditions = _build(evaluator, region, element, without=True)
    with builder.inside(region):
        result = region.args[1]
        for condition in conditions:
            result = builder.one("or_", [result, condition], BOOL)
        builder.end([result])
    return builder.add("for", [start, stop, builder.int_(1), none], [BOOL], regions=[region])[0]


def _repeatable(region: Region, whole: Region) -> bool:
    """Whether the loop may run on elements that need the rare case, for the whole one to do them once more.

    It may where it reads and writes only what the other one does in every round, and nothing that is read is written.
    """
    if any(not _is_harmless(op) or op.opcode is IF or op.opcode.divides for op in region.ops):
        return False
    places, others = _places(region), _places(whole)
    read, written = ({pointer for name, pointer, _ in places if name == access} for access in ("load", "store"))
    return None not in read | written and places <= others and not read & written


def _accesses(region: Region) -> Counter[tuple[str, int, str]]:
    """How often each buffer is read and written in every round; what a condition guards is not."""
    results: Counter[tuple[str, int, str]] = Counter()
    for op in region.ops:
        if op.opcode in (LOAD, STORE):
            results[op.name, op.operands[-2].serial, str((op.results or op.operands)[0].type)] += 1
        elif op.opcode is FOR:
            results += _accesses(op.regions[0])
    return results


def _places(region: Region) -> set[tuple[str, int | None, str]]:
    """What is read and written in every round: the number of a buffer (None if it is part of one), and where."""
    places = set()
    for op in region.ops:
        if op.opcode in (LOAD, STORE):
            pointer, offset = op.operands[-2:]
            known = isinstance(pointer.type, PointerType) and pointer.type.is_whole
            at = "element" if offset is region.args[0] else repr(offset.const)
            places.add((op.name, pointer.serial if known and at != "None" else None, at))
    return places


def _work(region: Region, needed: set[int] | None = None) -> int:
    """How many operations compute something that a store or the end of the region needs."""
    needed = set() if needed is None else needed
    count = 0
    for op in reversed(region.ops):
        lasting = op.opcode in (STORE, YIELD) or any(inner.opcode is STORE for r in op.regions for inner in walk(r))
        if lasting or any(id(result) in needed for result in op.results):
            needed.update(id(operand) for operand in op.operands)
            inside = sum(_work(inner, needed) for inner in reversed(op.regions))
            count += (op.opcode not in _NO_WORK) + inside * (ROUNDS if op.opcode is FOR else 1)
    return count


def _drop_stores(region: Region) -> None:
    """What only stores needed goes with them, when LLVM looks."""
    region.ops = [op for op in region.ops if op.opcode is not STORE]
    for op in region.ops:
        for inner in op.regions:
            _drop_stores(inner)


def _rarely(evaluator: Evaluator, whole: Op, start: Value, stop: Value) -> Region:
    """The loop as it was built first, over a block."""
    region = Region([], [whole])
    whole.operands[:2] = [start, stop]
    evaluator.builder.counter(whole.regions[0].args[0], start, stop)
    with evaluator.builder.inside(region):
        evaluator.builder.end()
    return region


def _mostly(evaluator: Evaluator, start: Value, stop: Value, element: Callable[[Value], None]) -> Region:
    """The loop without the rare case."""
    region, builder = Region(), evaluator.builder
    with builder.inside(region):
        loop = _loop(builder, start, stop)
        _build(evaluator, loop, element, without=True)
        with builder.inside(loop):
            builder.end()
        builder.end()
    return region
