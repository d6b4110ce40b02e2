"""Irregular operations of the typed program as MLIR text: one function each, in a table.

Input: a `FunctionEmitter` and an operation. Output: lines. Non-goals: regular operations (see `lowering.arithmetic`),
and what parallel regions become (see `lowering.parallel`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import InternalError
from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..codegen.loop_hints import loop_hint
from ..ir.program import IRREGULAR, Op, PointerType, Region, Value
from ..passes import polls
from ..passes.vectorize_loops import Cut, cut, lanes, stays_apart, stays_rolled, together
from . import arithmetic as emit_arith
from . import atomics as emit_atomics
from . import casts as emit_cast
from . import memory as emit_memory
from . import vectors as emit_vectors
from .parallel import parallel
from .types import constant, mlir_type

if TYPE_CHECKING:
    from .writer import FunctionEmitter

_log = logging.getLogger("einkorn.compiler")


def _const(e: FunctionEmitter, op: Op) -> None:
    type = op.results[0].type
    assert isinstance(type, SIMDType)
    e.names.set(op.results[0], constant(e, op.attrs["value"], type))


def _simd(value: Value) -> SIMDType:
    assert isinstance(value.type, SIMDType)
    return value.type


def _cast(e: FunctionEmitter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    e.names.set(to, emit_cast.cast(e, e.name(source), _simd(source), _simd(to)))


def _bitcast(e: FunctionEmitter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    e.names.set(to, emit_cast.bitcast(e, e.name(source), _simd(source), _simd(to)))


def _select(e: FunctionEmitter, op: Op) -> None:
    names = [e.name(v) for v in op.operands]
    if isinstance(op.results[0].type, PointerType):
        text = e.type(op.results[0].type)
        e.names.set(op.results[0], e.op(f"llvm.select {', '.join(names)} : i1, {text}"))
        return
    e.names.set(op.results[0], emit_arith.select(e, names[0], names[1], names[2], _simd(op.results[0])))


def _index_division(mlir: str) -> Callable[[FunctionEmitter, Op], None]:
    def emit(e: FunctionEmitter, op: Op) -> None:
        a, b = (e.name(v) for v in op.operands)
        e.names.set(op.results[0], e.op(f"{mlir} {a}, {b} : i64"))

    return emit


def _alloca(e: FunctionEmitter, op: Op) -> None:
    # At the top of the function: within a loop the stack would grow with every round.
    type = op.results[0].type
    assert isinstance(type, PointerType)
    count, name = e.names.fresh(), e.names.fresh()
    size = type.dtype.bytes_for(op.attrs["count"])
    e.private.add(op.results[0])
    text = e.type(type)
    e.prologue.append(f"    {count} = llvm.mlir.constant({size} : i64) : i64\n")
    e.prologue.append(f"    {name} = llvm.alloca {count} x i8 {{alignment = 64 : i64}} : (i64) -> {text}\n")
    if op.attrs["zeroed"]:
        zero = e.op("arith.constant 0 : i8")
        e.line(f'"llvm.intr.memset"({name}, {zero}, {count}) <{{isVolatile = false}}> : ({text}, i8, i64) -> ()')
    e.names.set(op.results[0], name)


def _yielded(region: Region) -> list[Value]:
    last = region.ops[-1]
    assert last.name == "yield", last.name
    return last.operands


def _bind_results(e: FunctionEmitter, op: Op) -> str:
    """`%v7:2 = ` for the results of a structured operation, with their names bound."""
    if not op.results:
        return ""
    base = e.names.fresh()
    if len(op.results) == 1:
        e.names.set(op.results[0], base)
        return f"{base} = "
    for number, result in enumerate(op.results):
        e.names.set(result, f"{base}#{number}")
    return f"{base}:{len(op.results)} = "


def _types(e: FunctionEmitter, values: Sequence[Value]) -> str:
    return ", ".join(e.type(v.type) for v in values)


def _body(e: FunctionEmitter, region: Region, hint: str = "", spent: int = 0) -> None:
    """The operations of a structured region and its yield; `hint` is of `loop_hints`, and `spent` of `polls`."""
    with e.nested():
        for op in region.ops[:-1]:
            e.operation(op)
        values = _yielded(region)
        e.at = e.module.location(region.ops[-1].location)
        if spent:
            polls.spend(e, spent)
        if hint:
            e.line(f"llvm.call @{hint}() : () -> ()")
        _yield(e, [e.name(v) for v in values], values)


def _yield(e: FunctionEmitter, names: Sequence[str], values: Sequence[Value]) -> None:
    e.line(f"scf.yield {', '.join(names)} : {_types(e, values)}" if names else "scf.yield")


def _if(e: FunctionEmitter, op: Op) -> None:
    at = e.at
    condition = e.name(op.operands[0])
    head = _bind_results(e, op)
    result = f" -> ({_types(e, op.results)})" if op.results else ""
    e.lines.append(f"{e.indent}{head}scf.if {condition}{result} {{\n")
    _body(e, op.regions[0])
    if op.results or len(op.regions[1].ops) > 1:
        e.lines.append(f"{e.indent}}} else {{\n")
        _body(e, op.regions[1])
    e.lines.append(f"{e.indent}}}{at}\n")


def _for(e: FunctionEmitter, op: Op) -> None:
    low, high, _, *initial = (e.name(v) for v in op.operands)
    rounds = polls.strip_of(e, op)
    if not rounds:
        _loop(e, op, low, high, initial)
        polls.burn(e, op, low, high)
        return
    names = polls.strips(e, op, rounds, (low, high), initial, functools.partial(_loop, e, op))
    for result, name in zip(op.results, names, strict=True):
        e.names.set(result, name)


def _loop(e: FunctionEmitter, op: Op, low: str, high: str, initial: list[str]) -> list[str]:
    """A `for` with these bounds and values to begin with; gives its results."""
    whole = cut(op, e.target, e.vector_bits)
    if whole is not None:
        _cut_for(e, op, whole, low, high, initial)
    else:
        rolled = e.target.vectorizes and stays_rolled(op)
        vectors = together(op.regions[0], e.target) if "elements" in op.attrs else 0
        length = lanes(op, e.target) if initial and "elements" in op.attrs else 0
        hint = loop_hint(vectors, length, rolled=rolled, apart=e.target.vectorizes and stays_apart(op))
        _rounds(e, op, [low, high, e.name(op.operands[2])], initial, hint=hint)
    return [e.name(v) for v in op.results]


def _rounds(
    e: FunctionEmitter, op: Op, bounds: list[str], initial: list[str], *, start: str = "", hint: str = ""
) -> None:
    """The loop over these bounds; its rounds are counted on from `start`, if that is given."""
    at, region = e.at, op.regions[0]
    round_ = e.names.fresh()
    e.names.set(region.args[0], round_)
    head = _bind_results(e, op)
    carried = ""
    if initial:
        pairs = []
        for argument, name in zip(region.args[1:], initial, strict=True):
            inner = e.names.fresh()
            e.names.set(argument, inner)
            pairs.append(f"{inner} = {name}")
        carried = f" iter_args({', '.join(pairs)}) -> ({_types(e, op.results)})"
    low, high, step = bounds
    e.lines.append(f"{e.indent}{head}scf.for {round_} = {low} to {high} step {step}{carried} : i64 {{\n")
    if start:
        with e.nested():
            e.names.set(region.args[0], e.op(f"arith.addi {start}, {round_} overflow<nsw> : i64"))
    spent = polls.spent_in(e, op)
    with polls.within(e, spent):
        _body(e, region, hint, spent)
    e.lines.append(f"{e.indent}}}{at}\n")


def _cut_for(e: FunctionEmitter, op: Op, whole: Cut, low: str, high: str, initial: list[str]) -> None:
    """A loop over whole vectors, and one under a mask over what is left; see `passes.vectorize_loops`.

    Both count from 0, and the first stands where there is a round for it: so LLVM sees that nothing is left of it.
    Their number is frozen: LLVM would make it anew of what the loops around count, and not know it for the same.
    """
    at = e.at
    zero, one, elements = (e.op(f"arith.constant {number} : i64") for number in (0, 1, whole.elements))
    between = e.op(f"llvm.freeze {e.op(f'arith.subi {high}, {low} overflow<nsw> : i64')} : i64")
    count = e.op(f"arith.maxsi {between}, {zero} : i64")
    multiple = e.op(f"arith.constant {-whole.elements} : i64")
    first = e.op(f"arith.andi {count}, {multiple} : i64")
    rest = e.op(f"arith.subi {count}, {first} overflow<nsw> : i64")
    start = e.op(f"arith.addi {low}, {first} overflow<nsw> : i64")
    some = e.op(f"arith.cmpi sge, {count}, {elements} : i64")
    lanes = whole.elements // whole.vectors if initial else 0
    head = f"{_bind_results(e, op)}scf.if {some} -> ({_types(e, op.results)})" if initial else f"scf.if {some}"
    done = [e.name(v) for v in op.results]
    e.lines.append(f"{e.indent}{head} {{\n")
    with e.nested():
        _rounds(e, op, [zero, first, one], initial, start=low, hint=loop_hint(whole.vectors, lanes))
        _yield(e, [e.name(v) for v in op.results], op.results)
    if initial:
        e.lines.append(f"{e.indent}}} else {{\n")
        with e.nested():
            _yield(e, initial, op.results)
    e.lines.append(f"{e.indent}}}{at}\n")
    e.at = at
    _rounds(e, op, [zero, rest, one], done, start=start, hint=loop_hint(1, lanes, masked=True))


def _while(e: FunctionEmitter, op: Op) -> None:
    at = e.at
    test, body = op.regions
    names = [e.name(v) for v in op.operands]
    head = _bind_results(e, op)
    types = _types(e, op.operands)
    pairs = []
    for argument, name in zip(test.args, names, strict=True):
        inner = e.names.fresh()
        e.names.set(argument, inner)
        pairs.append(f"{inner} = {name}")
    arguments = f" ({', '.join(pairs)})" if pairs else ""
    e.lines.append(f"{e.indent}{head}scf.while{arguments} : ({types}) -> ({types}) {{\n")
    with e.nested():
        for inner_op in test.ops[:-1]:
            e.operation(inner_op)
        condition, *values = test.ops[-1].operands
        e.at = e.module.location(test.ops[-1].location)
        passed = f" {', '.join(e.name(v) for v in values)} : {types}" if values else ""
        e.line(f"scf.condition({e.name(condition)}){passed}")
    e.lines.append(f"{e.indent}}} do {{\n")
    declared = []
    for argument in body.args:
        inner = e.names.fresh()
        e.names.set(argument, inner)
        declared.append(f"{inner}: {e.type(argument.type)}")
    if declared:
        e.lines.append(f"{e.indent}^bb0({', '.join(declared)}):\n")
    spent = polls.spent_in(e, op)
    with polls.within(e, spent):
        _body(e, body, "", spent)
    e.lines.append(f"{e.indent}}}{at}\n")


def _launch(e: FunctionEmitter, op: Op) -> None:
    raise InternalError("a launch reached the host's code")


def _gpu_id(e: FunctionEmitter, op: Op) -> None:
    what, axis = op.attrs["which"].split(".")
    grid = e.target.grid
    kind = {"thread_idx": "thread_id", "block_idx": "block_id"}[what]
    spelling = None if grid is None else grid.spell(kind, axis)  # type: ignore[arg-type]
    if spelling is None:
        raise InternalError(f"{e.target.name} has no spelling for {op.attrs['which']}")
    narrow = e.op(spelling)
    e.names.set(op.results[0], e.op(f"arith.extui {narrow} : i32 to i64"))


def _barrier(e: FunctionEmitter, op: Op) -> None:
    assert e.target.grid is not None
    for spelling in e.target.grid.barrier:
        e.line(spelling)


def _assert(e: FunctionEmitter, op: Op) -> None:
    condition, *values = op.operands
    at = e.at
    holds = e.name(condition)
    true = constant(e, True, BOOL)
    failed = e.op(f"arith.xori {holds}, {true} : i1")
    e.lines.append(f"{e.indent}scf.if {failed} {{\n")
    with e.nested():
        if not e.target.has_context:
            e.line('"llvm.intr.trap"() : () -> ()')
        else:
            _report(e, op.attrs["site"], values)
            status = e.op(f"llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
            code = e.op(f"arith.constant {op.attrs['site'] + 1} : i64")
            e.line(f"llvm.store {code}, {status} atomic monotonic {{alignment = 8 : i64}} : i64, !llvm.ptr")
        e.line("llvm.call @ek.exit() : () -> ()")
    e.lines.append(f"{e.indent}}}{at}\n")


def _print(e: FunctionEmitter, op: Op) -> None:
    polls.poll(e, now=True)  # a signal that came before would be raised in the middle of the report
    _report(e, op.attrs["site"], op.operands)


def _report(e: FunctionEmitter, site: int, values: Sequence[Value]) -> None:
    """Calls back into Python with the site's number and the values as 64-bit patterns."""
    count, block = e.names.fresh(), e.names.fresh()
    e.prologue.append(f"    {count} = llvm.mlir.constant({max(1, len(values)) * 8} : i64) : i64\n")
    e.prologue.append(f"    {block} = llvm.alloca {count} x i8 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr\n")
    for number, value in enumerate(values):
        type = _simd(value)
        wide = SIMDType(DType.float64 if type.dtype.is_float() else DType.int64)
        name = emit_cast.cast(e, e.name(value), type, wide)
        address = e.op(f"llvm.getelementptr inbounds {block}[{number * 8}] : (!llvm.ptr) -> !llvm.ptr, i8")
        e.line(f"llvm.store {name}, {address} : {mlir_type(wide)}, !llvm.ptr")
    slot = e.op(f"llvm.getelementptr inbounds %ctx[{abi.REPORT_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
    report = e.op(f"llvm.load {slot} : !llvm.ptr -> !llvm.ptr")
    number_name = e.op(f"arith.constant {site} : i64")
    e.line(f"llvm.call {report}({number_name}, {block}) : !llvm.ptr, (i64, !llvm.ptr) -> ()")


def _breakpoint(e: FunctionEmitter, op: Op) -> None:
    _passed_over(op.location.place)


@functools.cache
def _passed_over(place: Place) -> None:
    """Says so once for each place."""
    _log.warning("%s: compiled code passes breakpoint(); a session with interpret=True stops there", place)


def _nothing(e: FunctionEmitter, op: Op) -> None:
    """`yield` and `condition` are written by the operation around them; a `note` is for the interpreter."""


EMITTERS: dict[str, Callable[[FunctionEmitter, Op], None]] = {
    **emit_vectors.EMITTERS,
    "const": _const,
    "cast": _cast,
    "bitcast": _bitcast,
    "select": _select,
    **emit_memory.EMITTERS,
    **emit_atomics.EMITTERS,
    "udiv": _index_division("arith.divui"),
    "urem": _index_division("arith.remui"),
    "alloca": _alloca,
    "if": _if,
    "for": _for,
    "while": _while,
    "yield": _nothing,
    "condition": _nothing,
    "parallel": parallel,
    "launch": _launch,
    "gpu_id": _gpu_id,
    "barrier": _barrier,
    "assert": _assert,
    "print": _print,
    "breakpoint": _breakpoint,
    "note": _nothing,
}

assert set(EMITTERS) == set(IRREGULAR), set(EMITTERS) ^ set(IRREGULAR)
