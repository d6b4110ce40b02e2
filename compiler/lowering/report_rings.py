"""Writes what threads of a device report into its memory: failed assertions and prints, which the host reads later.

The first failure of a call is noted, by one compare-exchange; its thread ends, and the others go on. Prints of all
threads follow each other, as long as there is room. How the words lie is said in `dsl.contract.abi`.

Input: a `FunctionWriter` of a kernel, the number of a site, values. Output: lines. Non-goals: who reads it (see
`graph.engine.device_reports`), and reports of code that has its context at hand (see `lowering.reports`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...dsl.contract import abi
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Value
from . import casts
from .types import mlir_type
from .writer import FunctionWriter

_KINDS: tuple[Literal["block_id", "thread_id"], ...] = ("block_id", "thread_id")


def fail(w: FunctionWriter, site: int, values: Sequence[Value]) -> None:
    """Notes a failure unless there is one."""
    pointer, scope = w.pointer("global"), w.scope("device")
    none, own = _word(w, 0), _word(w, site + 1)
    pair = w.op(f"llvm.cmpxchg {w.ring}, {none}, {own} {scope}monotonic monotonic : {pointer}, i64")
    first = w.op(f"llvm.extractvalue {pair}[1] : !llvm.struct<(i64, i1)>")
    at = w.at
    w.open(f"scf.if {first} {{")
    with w.nested():
        _record(w, w.ring, values[: abi.RING_VALUES])
    w.close(at)


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
        wide = SIMDType(DType.float64 if value.dtype.is_float() else DType.int64)
        name = casts.cast(w, w.name(value), value.simd, wide)
        place = _at(w, record, _word(w, abi.RING_HEAD + number))
        w.line(f"llvm.store {name}, {place} : {mlir_type(wide)}, {pointer}")


def _at(w: FunctionWriter, base: str, word: str) -> str:
    pointer = w.pointer("global")
    return w.op(f"llvm.getelementptr {base}[{word}] : ({pointer}, i64) -> {pointer}, i64")


def _word(w: FunctionWriter, number: int) -> str:
    return w.op(f"arith.constant {number} : i64")
