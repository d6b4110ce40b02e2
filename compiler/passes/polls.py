"""Where compiled code asks whether it shall stop: between rounds of loops that may take long.

A call is interrupted by its context's status, which the host sets; `@ek.poll` asks, and gives the host the chance to
look for signals. That costs a call, so it is done once for `BUDGET` operations, and never within a loop that LLVM
makes vectors of:

    for i in range(low, high): body     =>    while low < high:                            # where the body is short
                                                  end = low + min(high - low, ROUNDS)
                                                  for i in range(low, end): body
                                                  if end < high: poll
                                                  low = end

    for i in range(low, high): body     =>    for i in range(low, high):                   # where a loop is in the body
                                                  body
                                                  fuel -= operations in it
                                                  if fuel < 0: poll, fuel = BUDGET

Input: loops of the typed program. Output: lines around and in them. Non-goals: loops whose rounds are known and few;
GPUs; what the host does (see `codegen.thread_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...dsl.contract import abi
from ...dsl.types.dtype import SIMDType
from ..ir.program import Op, Region, Value, walk

if TYPE_CHECKING:
    from ..lowering.writer import FunctionEmitter

BUDGET = 1 << 22  # operations between two polls: about a millisecond, a hundred where every access waits for memory
_ACCESS, _REPORT, _REGION = 4, 1 << 12, 1 << 12  # operations that a load, a print, a parallel region count for
_WIDE = 256  # bits of one operation on vectors

# `@ek.poll(%ctx, %now) -> i1`: whether to stop; with `now`, signals are looked for at once, else from time to time.
POLL = f"""  llvm.func internal @ek.poll(
      %ctx: !llvm.ptr, %now: i32
  ) -> i1 attributes {{passthrough = ["cold", "noinline"]}} {{
    %poll_p = llvm.getelementptr inbounds %ctx[{abi.POLL_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
    %poll = llvm.load %poll_p : !llvm.ptr -> !llvm.ptr
    %nobody = llvm.mlir.zero : !llvm.ptr
    %some = llvm.icmp "ne" %poll, %nobody : !llvm.ptr
    scf.if %some {{
      llvm.call %poll(%ctx, %now) : !llvm.ptr, (!llvm.ptr, i32) -> ()
    }}
    %status_p = llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
    %status = llvm.load %status_p atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64
    %none = arith.constant 0 : i64
    %stop = arith.cmpi ne, %status, %none : i64
    llvm.return %stop : i1
  }}
"""


def work(region: Region) -> int | None:
    """How many operations a region takes at most, nearly; None where nobody knows."""
    total = 0
    for op in region.ops:
        if op.name in ("while", "parallel", "launch"):
            return None
        inside = 1
        for inner in op.regions:
            found = work(inner)
            if found is None:
                return None
            inside += found
        if op.name == "for":
            rounds = _most_rounds(op)
            if rounds is None:
                return None
            inside *= rounds
        total += inside * _weight(op)
    return total


def _weight(op: Op) -> int:
    if op.name == "print":
        return _REPORT
    type = next((value.type for value in (*op.results, *op.operands) if isinstance(value.type, SIMDType)), None)
    wide = 1 if type is None else max(1, type.width * type.dtype.bits // _WIDE)
    return wide * (_ACCESS if _accesses(op) else 1)


def _most_rounds(loop: Op) -> int | None:
    """How many rounds a loop has at most, where that is seen at once."""
    low, high, step = loop.operands[:3]
    assert step.const is not None
    lengths = [length for bound in _bounds(high) if (length := _distance(low, bound)) is not None]
    return max(0, -(-min(lengths) // step.const)) if lengths else None


def _bounds(high: Value) -> Iterator[Value]:
    yield high
    if high.maker is not None and high.maker.name == "min":
        yield from high.maker.operands


def _distance(low: Value, high: Value) -> int | None:
    if low.const is not None and high.const is not None:
        return int(high.const - low.const)
    if high.maker is not None and high.maker.name == "add" and high.maker.operands[0] is low:
        found = high.maker.operands[1].const
        return None if found is None else int(found)
    return None


def _straight(region: Region) -> int:
    """The operations of a round that no loop in it counts for itself."""
    total = 0
    for op in region.ops:
        if op.name in ("while", "for"):
            continue
        total += _REGION if op.name == "parallel" else _weight(op) + sum(map(_straight, op.regions))
    return max(total, 1)


def strip_of(e: FunctionEmitter, loop: Op) -> int:
    """How many rounds of a `for` with a short body lie between two polls; 0 where it is not cut.

    Within other loops it is cut if it does nothing but compute: one over memory ends as soon as that does.
    """
    region = loop.regions[0]
    each, rounds = work(region), _most_rounds(loop)
    if not e.target.has_context or each is None or (rounds is not None and rounds * each <= BUDGET):
        return 0
    if e.depth and any(_accesses(op) for op in walk(region)):
        return 0
    return 1 << max(0, (BUDGET // max(each, 1)).bit_length() - 1)


def spent_in(e: FunctionEmitter, loop: Op) -> int:
    """What a round of a loop takes from the fuel, where it polls by that: loops are in it, or nobody counts its rounds.

    Not within other loops if it carries vectors, which would go through memory for it.
    """
    if not e.target.has_context:
        return 0
    long = any(work(region) is None for region in loop.regions)
    if loop.name == "for" and (not long or (e.depth and _carries_vectors(loop))):
        return 0
    if loop.name == "while" and not long and _counts(loop):
        return 0
    return sum(map(_straight, loop.regions))


def _accesses(op: Op) -> bool:
    return "load" in op.name or "store" in op.name or op.name in ("gather", "scatter") or "atomic" in op.name


def _carries_vectors(loop: Op) -> bool:
    return any(isinstance(value.type, SIMDType) and value.type.width > 1 for value in loop.results)


def _counts(loop: Op) -> bool:
    """Whether a `while` goes over memory as a `for` does: a number grows by a constant up to one from outside."""
    test, body = loop.regions
    if not any(_accesses(op) for op in walk(body)):
        return False
    condition = test.ops[-1].operands[0].maker
    if condition is None or condition.name not in ("lt", "le", "gt", "ge") or condition not in test.ops:
        return False
    for counter in condition.operands:
        if counter in test.args:
            number = test.args.index(counter)
            following = body.ops[-1].operands[number].maker
            if following is not None and following.name in ("add", "sub"):
                return following.operands[0] is body.args[number] and bool(following.operands[1].const)
    return False


@contextmanager
def within(e: FunctionEmitter, spent: int) -> Iterator[None]:
    """Around the body of a loop; if it polls by fuel, loops in it take from the fuel as well."""
    before = e.burns
    e.burns, e.depth = e.burns or spent > 0, e.depth + 1
    yield
    e.burns, e.depth = before, e.depth - 1


def spend(e: FunctionEmitter, spent: int) -> None:
    """At the end of a round: takes from the fuel, and polls when there is none left."""
    left = _take(e, e.op(f"arith.constant {spent} : i64"))
    zero = e.op("arith.constant 0 : i64")
    empty = e.op(f"arith.cmpi slt, {left}, {zero} : i64")
    e.lines.append(f"{e.indent}scf.if {empty} {{\n")
    with e.nested():
        full = e.op(f"arith.constant {BUDGET} : i64")
        e.line(f"llvm.store volatile {full}, {e.fuel()} : i64, !llvm.ptr")
        poll(e)
    e.line("}")


def burn(e: FunctionEmitter, loop: Op, low: str, high: str) -> None:
    """After a loop with a short body, in one that polls by fuel: takes what it was."""
    each, rounds = work(loop.regions[0]), _most_rounds(loop)
    if not e.burns or each is None or (rounds is not None and rounds * each <= _REGION):
        return
    zero, amount = (e.op(f"arith.constant {n} : i64") for n in (0, max(1, each // loop.operands[2].const)))
    length = e.op(f"arith.maxsi {e.op(f'arith.subi {high}, {low} : i64')}, {zero} : i64")
    _take(e, e.op(f"arith.muli {length}, {amount} : i64"))


def _take(e: FunctionEmitter, amount: str) -> str:
    before = e.op(f"llvm.load volatile {e.fuel()} : !llvm.ptr -> i64")  # in memory: loops need their registers
    left = e.op(f"arith.subi {before}, {amount} : i64")
    e.line(f"llvm.store volatile {left}, {e.fuel()} : i64, !llvm.ptr")
    return left


def poll(e: FunctionEmitter, *, now: bool = False) -> None:
    """Asks whether to stop, and leaves the function then."""
    flag = e.op(f"arith.constant {int(now)} : i32")
    stop = e.op(f"llvm.call @ek.poll(%ctx, {flag}) : (!llvm.ptr, i32) -> i1")
    e.line(f"scf.if {stop} {{ llvm.call @ek.exit() : () -> () }}")


def named(base: str, count: int) -> tuple[str, list[str]]:
    """How an operation with so many results begins, and their names."""
    names = [base] if count == 1 else [f"{base}#{number}" for number in range(count)]
    return (f"{base}{f':{count}' if count > 1 else ''} = " if count else ""), names


def strips(
    e: FunctionEmitter,
    loop: Op,
    rounds: int,
    bounds: tuple[str, str],
    initial: list[str],
    write: Callable[[str, str, list[str]], list[str]],
) -> list[str]:
    """A `for` in strips, each written by `write(low, high, initial)`; gives the names of its results."""
    at, (low, high), step = e.at, bounds, loop.operands[2].const
    types = ["i64", *(e.type(value.type) for value in loop.results)]
    typed = ", ".join(types)
    asked, within = ([e.names.fresh() for _ in types] for _ in range(2))
    head, names = named(e.names.fresh(), len(types))
    pairs = ", ".join(f"{name} = {start}" for name, start in zip(asked, [low, *initial], strict=True))
    e.lines.append(f"{e.indent}{head}scf.while ({pairs}) : ({typed}) -> ({typed}) {{\n")
    with e.nested():
        more = e.op(f"arith.cmpi slt, {asked[0]}, {high} : i64")
        e.line(f"scf.condition({more}) {', '.join(asked)} : {typed}")
    e.lines.append(f"{e.indent}}} do {{\n")
    arguments = ", ".join(f"{name}: {type}" for name, type in zip(within, types, strict=True))
    e.lines.append(f"{e.indent}^bb0({arguments}):\n")
    with e.nested():
        rest = e.op(f"arith.subi {high}, {within[0]} : i64")  # without a sign: no bounds are too far apart
        most = e.op(f"arith.constant {min(rounds, (1 << 62) // step or 1) * step} : i64")
        length = e.op(f"arith.minui {rest}, {most} : i64")
        end = e.op(f"arith.addi {within[0]}, {length} : i64")
        results = write(within[0], end, within[1:])
        e.at = at
        burn(e, loop, within[0], end)
        _poll_if(e, e.op(f"arith.cmpi slt, {end}, {high} : i64"))
        e.line(f"scf.yield {', '.join([end, *results])} : {typed}")
    e.line("}")
    return names[1:]


def _poll_if(e: FunctionEmitter, condition: str) -> None:
    e.lines.append(f"{e.indent}scf.if {condition} {{\n")
    with e.nested():
        poll(e)
    e.line("}")
