"""Writes the polls of loops: where compiled code checks whether to stop.

Which loop polls, and how often, `passes.place_polls` has said in the loop's attributes: `strip`, `fuel`, `burn`.

    strip:  while low < high:                            fuel:  for i in range(low, high):
                end = low + min(high - low, strip)                  body
                for i in range(low, end): body                      fuel -= operations in it
                if end < high: poll                                 if fuel < 0: poll, fuel = BUDGET
                low = end

See also `runtime.thread_pool` (what the host does).
"""

from __future__ import annotations

from collections.abc import Callable

from ...dsl.contract import abi
from ..ir.program import Op
from ..ir.schedule import BUDGET
from .writer import LEAVE, FunctionWriter

# `@ek.poll(%ctx, %now) -> i1`: whether to stop; with `now`, signals are looked for at once, else from time to time.
POLL = f"""  llvm.func internal @ek.poll(
      %ctx: !llvm.ptr, %now: i32
  ) -> i1 attributes {{passthrough = ["cold", "noinline"]}} {{
    %poll_p = llvm.getelementptr inbounds %ctx[{abi.POLL_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
    %poll = llvm.load %poll_p : !llvm.ptr -> !llvm.ptr
    %null = llvm.mlir.zero : !llvm.ptr
    %some = llvm.icmp "ne" %poll, %null : !llvm.ptr
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

# Writes a loop between two bounds that starts with these values; gives the names of its results.
WriteLoop = Callable[[str, str, list[str]], list[str]]


def poll(w: FunctionWriter, *, now: bool = False) -> None:
    """Checks whether to stop, and leaves the function then."""
    flag = w.op(f"arith.constant {int(now)} : i32")
    stop = w.op(f"llvm.call @ek.poll(%ctx, {flag}) : (!llvm.ptr, i32) -> i1")
    w.line(f"scf.if {stop} {{ {LEAVE} }}")


def spend(w: FunctionWriter, loop: Op) -> None:
    """At the end of a round of a loop with fuel: takes from it, and polls when there is none left."""
    if "fuel" not in loop.attrs:
        return
    left = _take(w, w.op(f"arith.constant {loop.attrs['fuel']} : i64"))
    zero = w.op("arith.constant 0 : i64")
    empty = w.op(f"arith.cmpi slt, {left}, {zero} : i64")
    w.open(f"scf.if {empty} {{")
    with w.nested():
        full = w.op(f"arith.constant {BUDGET} : i64")
        w.line(f"llvm.store volatile {full}, {_fuel(w)} : i64, !llvm.ptr")
        poll(w)
    w.line("}")


def burn(w: FunctionWriter, loop: Op, low: str, high: str) -> None:
    """After a loop with a short body, in one with fuel: takes what it was."""
    if "burn" not in loop.attrs:
        return
    zero, amount = (w.op(f"arith.constant {n} : i64") for n in (0, loop.attrs["burn"]))
    length = w.op(f"arith.maxsi {w.op(f'arith.subi {high}, {low} : i64')}, {zero} : i64")
    _take(w, w.op(f"arith.muli {length}, {amount} : i64"))


def _fuel(w: FunctionWriter) -> str:
    """Where the function keeps what is left of its fuel."""
    if not w.fuel:
        one, full, w.fuel = (w.names.fresh() for _ in range(3))
        w.prologue += [
            f"    {one} = llvm.mlir.constant(1 : i64) : i64\n",
            f"    {full} = llvm.mlir.constant({BUDGET} : i64) : i64\n",
            f"    {w.fuel} = llvm.alloca {one} x i64 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr\n",
            f"    llvm.store volatile {full}, {w.fuel} : i64, !llvm.ptr\n",
        ]
    return w.fuel


def _take(w: FunctionWriter, amount: str) -> str:
    """Takes from the fuel; gives what is left."""
    before = w.op(f"llvm.load volatile {_fuel(w)} : !llvm.ptr -> i64")  # in memory: loops need their registers
    left = w.op(f"arith.subi {before}, {amount} : i64")
    w.line(f"llvm.store volatile {left}, {_fuel(w)} : i64, !llvm.ptr")
    return left


def strips(w: FunctionWriter, loop: Op, bounds: tuple[str, str], initial: list[str], write: WriteLoop) -> list[str]:
    """A `for` in strips, each written by `write`; gives the names of its results."""
    at, (low, high) = w.at, bounds
    types = ["i64", *(w.type(value.type) for value in loop.results)]
    typed = ", ".join(types)
    before, within = ([w.names.fresh() for _ in types] for _ in range(2))
    head, names = _results(w.names.fresh(), len(types))
    pairs = ", ".join(f"{name} = {start}" for name, start in zip(before, [low, *initial], strict=True))
    w.open(f"{head}scf.while ({pairs}) : ({typed}) -> ({typed}) {{")
    with w.nested():
        more = w.op(f"arith.cmpi slt, {before[0]}, {high} : i64")
        w.line(f"scf.condition({more}) {', '.join(before)} : {typed}")
    w.open("} do {")
    arguments = ", ".join(f"{name}: {type}" for name, type in zip(within, types, strict=True))
    w.open(f"^bb0({arguments}):")
    with w.nested():
        rest = w.op(f"arith.subi {high}, {within[0]} : i64")  # without a sign: no bounds are too far apart
        most = w.op(f"arith.constant {loop.attrs['strip']} : i64")
        length = w.op(f"arith.minui {rest}, {most} : i64")
        end = w.op(f"arith.addi {within[0]}, {length} : i64")
        results = write(within[0], end, within[1:])
        w.at = at
        burn(w, loop, within[0], end)
        more = w.op(f"arith.cmpi slt, {end}, {high} : i64")
        w.open(f"scf.if {more} {{")
        with w.nested():
            poll(w)
        w.line("}")
        w.line(f"scf.yield {', '.join([end, *results])} : {typed}")
    w.line("}")
    return names[1:]


def _results(base: str, count: int) -> tuple[str, list[str]]:
    """How an operation with so many results begins, and their names."""
    names = [base] if count == 1 else [f"{base}#{number}" for number in range(count)]
    return (f"{base} = " if count == 1 else f"{base}:{count} = "), names
