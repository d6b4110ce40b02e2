"""Writes prints, assertions and breakpoints, and the table of what they show.

See also `graph.findings.reports` (how a report looks).
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Sequence
from typing import Any

from ...dsl.contract import abi
from ...dsl.diagnostics.places import Place
from ...dsl.frontend.anchors import anchors_of
from ...dsl.types.dtype import BOOL
from ..ir.program import Op, Program, Value
from . import polls, report_rings
from .types import mlir_type
from .writer import LEAVE, FunctionWriter, emits

_log = logging.getLogger("einkorn.compiler")


@emits("assert")
def _assert(w: FunctionWriter, op: Op) -> None:
    condition, *values = op.operands
    at = w.at
    holds = w.name(condition)
    true = w.constant(True, BOOL)
    failed = w.op(f"arith.xori {holds}, {true} : i1")
    w.open(f"scf.if {failed} {{")
    with w.nested():
        if w.ring:
            report_rings.fail(w, op.attrs["site"], values, trap=id(op) in w.missed)
        else:
            note_failure(w, op.attrs["site"], values)
        w.line(LEAVE)
    w.close(at)


def note_failure(w: FunctionWriter, site: int, values: Sequence[Value]) -> None:
    """Reports a failure, and notes in the context that there is one."""
    _report(w, site, values)
    status = w.field("%ctx", abi.STATUS_OFFSET)
    code = site_number(w, site + 1)
    w.line(f"llvm.store {code}, {status} atomic monotonic {{alignment = 8 : i64}} : i64, !llvm.ptr")


@emits("print")
def _print(w: FunctionWriter, op: Op) -> None:
    if w.ring:
        report_rings.show(w, op.attrs["site"], op.operands)
        return
    polls.poll(w, now=True)  # a signal that came before would be raised in the middle of the report
    _report(w, op.attrs["site"], op.operands)


def _report(w: FunctionWriter, site: int, values: Sequence[Value]) -> None:
    """Calls back into Python with the site's number and the values as 64-bit patterns."""
    block, _ = w.storage(max(1, len(values)) * 8, alignment=8)
    for number, value in enumerate(values):
        name, wide = report_rings.widened(w, value)
        address = w.field(block, number * 8)
        w.line(f"llvm.store {name}, {address} : {mlir_type(wide)}, !llvm.ptr")
    slot = w.field("%ctx", abi.REPORT_OFFSET)
    report = w.op(f"llvm.load {slot} : !llvm.ptr -> !llvm.ptr")
    types = "!llvm.ptr, (!llvm.ptr, i64, !llvm.ptr) -> ()"
    w.line(f"llvm.call {report}(%ctx, {site_number(w, site)}, {block}) : {types}")


def site_number(w: FunctionWriter, number: int) -> str:
    """The number of a site among all of the entry."""
    own = w.op(f"arith.constant {number} : i64")
    if not w.module.first_site:
        return own
    at = w.op(f"llvm.mlir.addressof @{w.module.first_site} : !llvm.ptr")
    return w.op(f"arith.addi {own}, {w.op(f'llvm.load {at} : !llvm.ptr -> i64')} : i64")


@emits("breakpoint")
def _breakpoint(w: FunctionWriter, op: Op) -> None:
    _warn_passed(op.location.place)


@functools.cache
def _warn_passed(place: Place) -> None:
    """Says once for each place that compiled code does not stop there."""
    _log.warning("%s: compiled code passes breakpoint(); a session with interpret=True stops there", place)


@emits("note")
def _note(w: FunctionWriter, op: Op) -> None:
    """Only the interpreter makes something of it."""


def site_records(program: Program) -> list[Any]:
    """What the sites of a program show, as JSON values."""
    sites = program.sites
    places = {site.place for site in sites} | {place for site in sites for _, place in site.notes}
    anchors = anchors_of(program.kernels, places)
    records = []
    for site in sites:
        notes = [[text, anchors[place]] for text, place in site.notes]
        records.append([site.kind, site.parts, anchors[site.place], site.op, dict(site.details), notes])
    return records


def report_table(records: Sequence[object]) -> str:
    """The table of sites as JSON text in the code itself, so that it is never apart from the code."""
    return text_constant(abi.REPORTS, json.dumps(records).encode())


def text_constant(symbol: str, data: bytes) -> str:
    """A text that ends in a zero byte, under a symbol of the code."""
    data += b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'  llvm.mlir.global external constant @{symbol}("{text}") : !llvm.array<{len(data)} x i8>\n'
