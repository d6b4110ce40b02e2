"""Writes the rounds of loops that wait until another thread changes memory (see `passes.mark_spins`).

Behind each round that is followed by another one the thread is suspended, and continues when the scheduler has given
all others their turn. The scheduler has to know whether that can still help:

    @ek.moved(argument)              a thread has left the outermost of such loops
    @ek.changed(argument, really)    a thread within such a loop has changed memory, or values of its own

See also `simulation.spins` (when threads continue).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...dsl.types.dtype import BOOL
from ..ir.opcodes import ATOMIC, ATOMIC_COMPARE_EXCHANGE, ATOMIC_STORE, FENCE, STORE
from ..ir.program import Op, PointerType, Value
from ..ir.simulation import CHANGED, MOVED, YIELDS
from . import coroutines
from .memory import address
from .types import register_bytes
from .writer import EMITTERS, FunctionWriter

_POINTERS = {STORE: 1, ATOMIC_STORE: 1, ATOMIC: 1, ATOMIC_COMPARE_EXCHANGE: 2}  # which operand; the offset is next
_ATOMIC = (ATOMIC_STORE, ATOMIC, ATOMIC_COMPARE_EXCHANGE)

_LOGIC = {"and_": "arith.andi", "or_": "arith.ori", "not_": "arith.xori"}  # rows of which conditions are made


def _is_spin(w: FunctionWriter, loop: Op) -> bool:
    return bool(w.thread) and "spins" in loop.attrs


@contextmanager
def spinning(w: FunctionWriter, loop: Op) -> Iterator[None]:
    """Writes a loop within this: what it changes is noted, and that a thread has left it."""
    if not _is_spin(w, loop):
        yield
        return
    w.spin_depth += 1
    yield
    w.spin_depth -= 1
    if not w.spin_depth:
        w.line(f"llvm.call @{MOVED}(%argument) : (!llvm.ptr) -> ()")
        w.module.declare(MOVED, "(!llvm.ptr)")


def end_round(w: FunctionWriter, loop: Op) -> None:
    """Suspends the thread at the end of a round, if the loop goes on as far as is known there."""
    if not _is_spin(w, loop):
        return
    if loop.attrs["spins"] == "count":
        _changed(w, w.constant(True, BOOL))
    test, body = loop.regions
    following = dict(zip(map(id, test.args), body.ops[-1].operands, strict=True))
    goes_on = _following(w, test.ops[-1].operands[0], following)
    if not goes_on:
        coroutines.spin(w, loop)
        return
    at = w.at
    w.open(f"scf.if {goes_on} {{")
    with w.nested():
        coroutines.spin(w, loop)
    w.close(at)


def _following(w: FunctionWriter, value: Value, following: dict[int, Value]) -> str:
    """The condition of the next round, if it follows from flags that this one ends with; else empty."""
    if id(value) in following:
        return w.name(following[id(value)])
    if value.const is not None:
        return w.constant(bool(value.const), BOOL)
    if value.maker is None or value.type != BOOL or value.maker.name not in _LOGIC:
        return ""
    operands = [_following(w, operand, following) for operand in value.maker.operands]
    if not all(operands):
        return ""
    if value.maker.name == "not_":
        operands.append(w.constant(True, BOOL))
    return w.op(f"{_LOGIC[value.maker.name]} {', '.join(operands)} : i1")


def write(w: FunctionWriter, op: Op) -> None:
    """Writes an operation of a launch with such loops. Within them it is noted if it changes memory.

    Behind an atomic write a simulated GPU may give others their turn, as its seed draws: so they see what is stored
    there between two writes of a thread.
    """
    (_noting if w.spin_depth else EMITTERS[op.name])(w, op)
    if op.opcode not in _ATOMIC or not w.target.simulates:
        return
    at = w.at
    turn = w.op(f"llvm.call @{YIELDS}(%argument) : (!llvm.ptr) -> i1")
    w.module.declare(YIELDS, "(!llvm.ptr) -> i1")
    w.open(f"scf.if {turn} {{")
    with w.nested():
        _changed(w, w.constant(True, BOOL))
        coroutines.spin(w, op)
    w.close(at)


def _noting(w: FunctionWriter, op: Op) -> None:
    """Writes an operation within a loop; if it changes memory, that is noted."""
    write = EMITTERS[op.name]
    if not op.opcode.writes or op.opcode is FENCE or op.opcode.regions:
        write(w, op)
        return
    number = _POINTERS.get(op.opcode)
    pointer = None if number is None else op.operands[number]
    if pointer is not None and isinstance(pointer.type, PointerType) and pointer.type.space == "stack":
        write(w, op)
        _changed(w, w.constant(True, BOOL))
        return
    if number is None or pointer is None or pointer.dtype.is_packed() or op.operands[0].simd.width > 1:
        write(w, op)
        _changed(w, w.constant(True, BOOL))
        return
    place = address(w, pointer, op.operands[number + 1])
    bits = f"i{8 * register_bytes(op.operands[0].simd)}"
    read = f"llvm.load {place} {{alignment = 1 : i64}} : {w.type(pointer.type)} -> {bits}"
    before = w.op(read)
    write(w, op)
    _changed(w, w.op(f"arith.cmpi ne, {before}, {w.op(read)} : {bits}"))


def _changed(w: FunctionWriter, really: str) -> None:
    w.line(f"llvm.call @{CHANGED}(%argument, {really}) : (!llvm.ptr, i1) -> ()")
    w.module.declare(CHANGED, "(!llvm.ptr, i1)")
