"""Writes what threads of a device report into memory of the host: failed assertions and prints, which it reads later.

The first failure of a call is noted, by one compare-exchange; its thread ends, and the others go on. Where others would
wait for it at a named barrier, which counts arrivals, it ends the kernel by a trap instead. Prints of all threads
follow each other, as long as there is room. How the words lie is said in `dsl.contract.abi`.

See also `graph.findings.device_reports` (which reads it), `lowering.reports` (reports of code that has its context at
hand).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...dsl.contract import abi
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, PointerType, Region, Value, walk
from . import casts
from .types import mlir_type
from .writer import FunctionWriter

_KINDS: tuple[Literal["block_id", "thread_id"], ...] = ("block_id", "thread_id")


def fail(w: FunctionWriter, site: int, values: Sequence[Value], trap: bool = False) -> None:
    """Notes a failure unless there is one; with `trap` code that notes it ends the kernel."""
    pointer, scope = w.pointer("global"), w.scope("device")
    none, own = _word(w, 0), _word(w, site + 1)
    pair = w.op(f"llvm.cmpxchg {w.ring}, {none}, {own} {scope}monotonic monotonic : {pointer}, i64")
    first = w.op(f"llvm.extractvalue {pair}[1] : !llvm.struct<(i64, i1)>")
    at = w.at
    w.open(f"scf.if {first} {{")
    with w.nested():
        _record(w, w.ring, values[: abi.RING_VALUES])
        if trap:  # what is written reaches the host first
            w.line("llvm.fence seq_cst")
            w.line("llvm.intr.trap")
    w.close(at)


def missed_at_barriers(body: Region) -> set[int]:
    """The assertions of a kernel (by `id`) whose failing thread others would wait for: a named barrier comes behind
    them, or is in the same loop."""
    results: set[int] = set()
    _missed(body, False, results)
    return results


def _missed(region: Region, behind: bool, serials: set[int]) -> bool:
    """Goes through a region from its end, with a named barrier `behind` it or not; whether one is behind its begin."""
    for op in reversed(region.ops):
        if _is_named(op):
            behind = True
        elif op.opcode.name == "assert" and behind:
            serials.add(id(op))
        elif op.opcode.name in ("for", "while"):
            inner = any(map(_is_named, (each for part in op.regions for each in walk(part))))
            behind = behind or inner
        arms = [_missed(part, behind, serials) for part in op.regions]
        behind = behind or any(arms)
    return behind


def _is_named(op: Op) -> bool:
    return op.opcode.name == "barrier" and bool(op.attrs or op.operands)


def show(w: FunctionWriter, site: int, values: Sequence[Value]) -> None:
    """Appends a print, or counts that there was no room."""
    pointer, scope = w.pointer("global"), w.scope("device")
    used, dropped = _at(w, w.ring, _word(w, abi.RING_PRINTED)), _at(w, w.ring, _word(w, abi.RING_DROPPED))
    count = _word(w, abi.RING_HEAD + len(values))
    start = w.op(f"llvm.atomicrmw add {used}, {count} {scope}monotonic : {pointer}, i64")
    end = w.op(f"arith.addi {start}, {count} : i64")
    fits = w.op(f"arith.cmpi ule, {end}, {_word(w, abi.RING_WORDS - abi.RING_PRINTS)} : i64")
    at = w.at
    w.open(f"scf.if {fits} {{")
    with w.nested():
        record = _at(w, w.ring, w.op(f"arith.addi {start}, {_word(w, abi.RING_PRINTS)} : i64"))
        w.line(f"llvm.store {_word(w, site + 1)}, {record} : i64, {pointer}")
        _record(w, record, values)
    w.open("} else {")
    with w.nested():
        w.op(f"llvm.atomicrmw add {dropped}, {_word(w, 1)} {scope}monotonic : {pointer}, i64")
    w.close(at)


def widened(w: FunctionWriter, value: Value) -> tuple[str, SIMDType]:
    """A value in 64 bits, as reports carry it: a float as float64, anything else as int64, a pointer as its address."""
    wide = SIMDType(DType.float64 if value.dtype.is_float() else DType.int64)
    if isinstance(value.type, PointerType):
        wide = SIMDType(DType.int64)
        return w.op(f"llvm.ptrtoint {w.name(value)} : {w.type(value.type)} to i64"), wide
    return casts.cast(w, w.name(value), value.simd, wide), wide


def _record(w: FunctionWriter, record: str, values: Sequence[Value]) -> None:
    """Which thread it is, and the values, behind the number of the site."""
    pointer, grid = w.pointer("global"), w.target.grid
    assert grid is not None
    words = []
    for kind in _KINDS:
        for axis in "xyz":
            words.append(w.op(f"arith.extui {w.op(str(grid.spell(kind, axis)))} : i32 to i64"))
    words.append(_word(w, len(values)))
    for number, word in enumerate(words):
        w.line(f"llvm.store {word}, {_at(w, record, _word(w, 1 + number))} : i64, {pointer}")
    for number, value in enumerate(values):
        name, wide = widened(w, value)
        place = _at(w, record, _word(w, abi.RING_HEAD + number))
        w.line(f"llvm.store {name}, {place} : {mlir_type(wide)}, {pointer}")


def _at(w: FunctionWriter, base: str, word: str) -> str:
    pointer = w.pointer("global")
    return w.op(f"llvm.getelementptr {base}[{word}] : ({pointer}, i64) -> {pointer}, i64")


def _word(w: FunctionWriter, number: int) -> str:
    return w.op(f"arith.constant {number} : i64")
