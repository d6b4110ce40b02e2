"""Writes atomic operations.

Integers, and additions of float32 and float64, are what LLVM has an operation for. The rest (half types, and the
language's own min and max of floats) retries until no other write came between reading and writing: compare and
exchange.
"""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import BOOL
from ..ir.program import Op, PointerType, Value
from .arithmetic import row
from .memory import address
from .writer import FunctionWriter, emits

_ORDERINGS = {o: o for o in ("acquire", "release", "acq_rel", "seq_cst")} | {"relaxed": "monotonic"}
# What may be seen where a comparison fails, and nothing is written.
_FAILURE = {"release": "monotonic", "acq_rel": "acquire"}
_SPACES = {"global": "global", "shared": "shared", "cluster": "shared::cluster"}  # as PTX names them
_BITS = {"and": "and_", "or": "or_", "xor": "xor"}  # the rows of operations
_WORDS = {"and": "_and", "or": "_or", "xor": "_xor", "exchange": "xchg"}


@dataclass(frozen=True)
class _Word:
    """An element as what one atomic operation moves: its address, the integer of its size, and LLVM's words."""

    address: str
    pointer: str
    bits: str
    ordering: str
    scope: str

    @property
    def alignment(self) -> str:
        return f"{{alignment = {int(self.bits[1:]) // 8} : i64}}"


def _word(w: FunctionWriter, op: Op, pointer: Value, offset: Value) -> _Word:
    place = address(w, pointer, offset)
    return _Word(
        place,
        w.type(pointer.type),
        f"i{pointer.dtype.bits}",
        _ORDERINGS[op.attrs["ordering"]],
        w.scope(op.attrs["scope"]),
    )


def _as(w: FunctionWriter, name: str, source: str, to: str) -> str:
    """The same bits as another type."""
    return name if source == to else w.op(f"llvm.bitcast {name} : {source} to {to}")


@emits("atomic")
def _atomic(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset = op.operands
    dtype, kind = value.dtype, op.attrs["kind"]
    word = _word(w, op, pointer, offset)
    if kind in ("min", "max") and dtype.kind == "uint":
        name = f"u{kind}"
    elif dtype.is_float() and kind in ("add", "sub") and not dtype.is_half():
        name = f"f{kind}"
    elif (dtype.is_float() and kind != "exchange") or _widened(w, op):
        w.result(op, _by_exchange(w, op, word))
        return
    else:
        name = _WORDS.get(kind, kind)
    before, after = _fences(w, word.ordering)
    ordering = "monotonic" if before or after else word.ordering
    if before:
        w.line(f"llvm.fence {word.scope}{before}")
    spelled = _spelled(w, op, word)
    if spelled is None:
        text = f"llvm.atomicrmw {name} {word.address}, {w.name(value)} {word.scope}{ordering}"
        spelled = w.op(f"{text} : {word.pointer}, {w.type(value.type)}")
    w.result(op, spelled)
    if after:
        w.line(f"llvm.fence {word.scope}{after}")


def _widened(w: FunctionWriter, op: Op) -> bool:
    """Whether LLVM would make an update of 32 bits of it, without a scope that has to be there."""
    small = op.operands[0].dtype.bits < 32 and op.attrs["kind"] in _BITS
    return small and op.attrs["scope"] == "system" and "system" in w.target.atomic_scopes


def _spelled(w: FunctionWriter, op: Op, word: _Word) -> str | None:
    """An update as assembly, where LLVM would emit it without its scope; None where LLVM does it right."""
    value, pointer, _ = op.operands
    assert isinstance(pointer.type, PointerType)
    scope, space = w.target.atomic_scopes.get(op.attrs["scope"]), _SPACES.get(pointer.type.space)
    if scope is None or space is None or value.dtype.bits < 32:  # LLVM makes loops of smaller ones, with the scope
        return None
    kind, dtype, given, type = op.attrs["kind"], value.dtype, w.name(value), w.type(value.type)
    if kind == "sub":
        whole = not dtype.is_float()
        negative = row(w, "sub", [w.constant(0, value.simd), given], value.simd) if whole else None
        kind, given = "add", negative or row(w, "neg", [given], value.simd)
    if kind == "exchange":
        given, type = _as(w, given, type, word.bits), word.bits
    letter = "f" if dtype.is_float() else "s" if dtype.is_signed() and kind in ("min", "max") else "u"
    ptx = f"b{dtype.bits}" if kind in ("and", "or", "xor", "exchange") else f"{letter}{dtype.bits}"
    text = f"atom.relaxed.{scope}.{space}.{'exch' if kind == 'exchange' else kind}.{ptx} $0, [$1], $2;"
    register = {"i32": "r", "i64": "l", "f32": "f", "f64": "d"}[type]
    operands = f"{word.address}, {given} : ({word.pointer}, {type}) -> {type}"
    done = w.op(f'llvm.inline_asm has_side_effects "{text}", "={register},l,{register},~{{memory}}" {operands}')
    return _as(w, done, type, w.type(value.type))


def _fences(w: FunctionWriter, ordering: str) -> tuple[str, str]:
    """The fences before and after a modification where LLVM forgets its ordering."""
    if w.target.keeps_atomic_order or ordering == "monotonic":
        return "", ""
    strong = "seq_cst" if ordering == "seq_cst" else ""
    before = (strong or "release") if ordering != "acquire" else ""
    return before, "acquire" if ordering != "release" else ""


def _by_exchange(w: FunctionWriter, op: Op, word: _Word) -> str:
    """Reads, computes, and writes if what was read is still there; what was read in the end."""
    value, bits = op.operands[0], word.bits
    type, text = value.simd, w.type(value.type)
    first = w.op(f"llvm.load {word.address} atomic {word.scope}monotonic {word.alignment} : {word.pointer} -> {bits}")
    result, old, seen = w.names.fresh(), w.names.fresh(), w.names.fresh()
    w.open(f"{result} = scf.while ({old} = {first}) : ({bits}) -> {bits} {{")
    with w.nested():
        new = row(w, _BITS.get(op.attrs["kind"], op.attrs["kind"]), [_as(w, old, bits, text), w.name(value)], type)
        each, stored = _compare_exchange(w, word, old, _as(w, new, text, bits))
        again = w.op(f"arith.xori {stored}, {w.constant(True, BOOL)} : i1")
        w.line(f"scf.condition({again}) {each} : {bits}")
    w.open("} do {")
    w.open(f"^bb0({seen}: {bits}):")
    with w.nested():
        w.line(f"scf.yield {seen} : {bits}")
    w.close(w.at)
    return _as(w, result, bits, text)


def _compare_exchange(w: FunctionWriter, word: _Word, expected: str, desired: str) -> tuple[str, str]:
    """What was there, and whether it was what was expected, so that `desired` is there now."""
    orderings = f"{word.ordering} {_FAILURE.get(word.ordering, word.ordering)}"
    text = f"llvm.cmpxchg {word.address}, {expected}, {desired} {word.scope}{orderings}"
    pair = w.op(f"{text} : {word.pointer}, {word.bits}")
    struct = f"!llvm.struct<({word.bits}, i1)>"
    return w.op(f"llvm.extractvalue {pair}[0] : {struct}"), w.op(f"llvm.extractvalue {pair}[1] : {struct}")


@emits("atomic_compare_exchange")
def _atomic_compare_exchange(w: FunctionWriter, op: Op) -> None:
    expected, desired, pointer, offset = op.operands
    text = w.type(desired.type)
    word = _word(w, op, pointer, offset)
    old, new = (_as(w, w.name(v), text, word.bits) for v in (expected, desired))
    result, _ = _compare_exchange(w, word, old, new)
    w.result(op, _as(w, result, word.bits, text))


@emits("atomic_load")
def _atomic_load(w: FunctionWriter, op: Op) -> None:
    word = _word(w, op, *op.operands)
    how = f"{word.scope}{word.ordering} {word.alignment}"
    value = w.op(f"llvm.load {word.address} atomic {how} : {word.pointer} -> {word.bits}")
    w.result(op, _as(w, value, word.bits, w.type(op.results[0].type)))


@emits("atomic_store")
def _atomic_store(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset = op.operands
    word = _word(w, op, pointer, offset)
    name = _as(w, w.name(value), w.type(value.type), word.bits)
    how = f"{word.scope}{word.ordering} {word.alignment}"
    w.line(f"llvm.store {name}, {word.address} atomic {how} : {word.bits}, {word.pointer}")
