"""Writes what the lanes of a warp do together: values from other lanes, and the lanes where a condition holds.

Hardware moves 32 bits at a time: other values go in pieces. The last warp of a block is partial where the threads of
the block are not multiples of a warp's; which lanes it has is known from the block's size and the thread's number.

See also `targets` (how a target spells it).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..ir.program import Op, Scope, Value
from ..targets.base import LaneMove, WarpOperations
from . import casts, coroutines
from .grids import thread_number
from .types import mlir_type, register_bytes
from .writer import FunctionWriter, emits

_BY = {"up": "up", "down": "down", "xor": "bfly"}


@dataclass(frozen=True)
class _Lanes:
    """The lanes of the warp that a thread is in: the number of the last, and all of them as bits."""

    last: str
    mask: str


def _spelled(w: FunctionWriter) -> WarpOperations:
    if w.target.grid is None:
        raise InternalError(f"{w.target.name} has no warps")
    return w.target.grid.warp


def _i32(w: FunctionWriter, number: int) -> str:
    return w.op(f"arith.constant {number} : i32")


def _present(w: FunctionWriter, op: Op) -> _Lanes:
    """The lanes of the thread's warp. Masks are of 32 bits: no target that takes one has more lanes."""
    lanes, block = op.attrs["lanes"], op.attrs["block"]
    threads = block[0] * block[1] * block[2]
    left = threads % lanes

    def constants(count: int) -> _Lanes:
        mask = (1 << min(count, 32)) - 1
        return _Lanes(_i32(w, count - 1), _i32(w, mask - (1 << 32) if mask >> 31 else mask))

    if left == 0 or threads < lanes:
        return constants(left or lanes)
    whole, part = constants(lanes), constants(left)
    first = _i32(w, threads - left)
    partial = w.op(f"arith.cmpi uge, {thread_number(w, block)}, {first} : i32")
    last = w.op(f"arith.select {partial}, {part.last}, {whole.last} : i32")
    return _Lanes(last, w.op(f"arith.select {partial}, {part.mask}, {whole.mask} : i32"))


def lane_number(w: FunctionWriter) -> str:
    """The number of a thread in its warp, as an i32."""
    number = _i32(w, 0)
    for spelling in _spelled(w).lane:
        needs = {key: _i32(w, value) for key, value in (("all", -1), ("zero", 0)) if f"{{{key}}}" in spelling}
        number = w.op(spelling.format(before=number, **needs))
    return number


# *** 32 bits at a time ***


def pieces(w: FunctionWriter, name: str, type: SIMDType) -> list[str]:
    """The bits of a value as i32s, the lowest ones first."""
    if type.dtype is DType.bool:
        bytes_of = type.with_dtype(DType.uint8)
        return pieces(w, casts.cast(w, name, type, bytes_of), bytes_of)
    bits, text = 8 * register_bytes(type), mlir_type(type)
    if bits < 32:
        whole = _as(w, name, text, f"i{bits}")
        return [w.op(f"arith.extui {whole} : i{bits} to i32")]
    if bits == 32:
        return [_as(w, name, text, "i32")]
    several = f"vector<{bits // 32}xi32>"
    vector = _as(w, name, text, several)
    return [w.op(f"vector.extract {vector}[{k}] : i32 from {several}") for k in range(bits // 32)]


def joined(w: FunctionWriter, parts: list[str], type: SIMDType) -> str:
    """The value with these bits; see `pieces`."""
    if type.dtype is DType.bool:
        bytes_of = type.with_dtype(DType.uint8)
        return casts.cast(w, joined(w, parts, bytes_of), bytes_of, type)
    bits, text = 8 * register_bytes(type), mlir_type(type)
    if bits < 32:
        return _as(w, w.op(f"arith.trunci {parts[0]} : i32 to i{bits}"), f"i{bits}", text)
    if bits == 32:
        return _as(w, parts[0], "i32", text)
    several = f"vector<{bits // 32}xi32>"
    return _as(w, w.op(f"vector.from_elements {', '.join(parts)} : {several}"), several, text)


def _as(w: FunctionWriter, name: str, source: str, to: str) -> str:
    return name if source == to else w.op(f"llvm.bitcast {name} : {source} to {to}")


# *** operations ***


@emits("warp_shuffle")
def _shuffle(w: FunctionWriter, op: Op) -> None:
    value, amount, *masks = op.operands
    if w.thread:
        here = coroutines.lane(w)
        source = _source_among(w, op, here.own, here.last)
        parts = pieces(w, w.name(value), value.simd)
        given_by = coroutines.exchange(w, op, parts, source, w.name(masks[0]) if masks else "")
        w.result(op, joined(w, given_by, value.simd))
        return
    spelled, type = _spelled(w), value.simd
    moves = _moves(op, spelled)
    if moves is not None:
        parts = [_moved(w, part, moves) for part in pieces(w, w.name(value), type)]
        w.result(op, joined(w, parts, type))
        return
    lanes = _present(w, op)
    mask = _mask(w, op, masks) if "{mask}" in spelled.shuffle else ""
    if spelled.shuffle_by and op.attrs["kind"] in _BY and amount.const is not None:
        kind = _BY[op.attrs["kind"]]
        given = {"kind": kind, "amount": _i32(w, amount.const), "mask": mask, "last": lanes.last}
        given["last"] = _i32(w, 0) if kind == "up" else lanes.last
        text = spelled.shuffle_by
    else:
        text = spelled.broadcast if spelled.broadcast and _is_known_lane(op) else spelled.shuffle
        lane = _i32(w, amount.const) if text is spelled.broadcast else _source(w, op, lanes)
        given = {"lane": lane, "mask": mask, "last": lanes.last}
        given["address"] = w.op(f"arith.shli {lane}, {_i32(w, 2)} : i32") if "{address}" in text else ""
    parts = [w.op(text.format(value=part, **given)) for part in pieces(w, w.name(value), type)]
    w.result(op, joined(w, parts, type))


def _is_whole(op: Op) -> bool:
    """Whether all warps of the block have all of their lanes."""
    x, y, z = op.attrs["block"]
    return bool(x * y * z % op.attrs["lanes"] == 0)


def _is_known_lane(op: Op) -> bool:
    """Whether all lanes get the value of one that is there and known at compile time."""
    kind, lane = op.attrs["kind"], op.operands[1].const
    return kind == "one" or (kind == "idx" and _is_whole(op) and lane is not None and 0 <= lane < op.attrs["lanes"])


def _moves(op: Op, spelled: WarpOperations) -> Sequence[LaneMove] | None:
    """What exchanges lanes that differ in bits which are known; None where lanes are absent, or where nothing does."""
    return spelled.exchange.get(op.operands[1].const) if op.attrs["kind"] == "xor" and _is_whole(op) else None


def _moved(w: FunctionWriter, part: str, moves: Sequence[LaneMove]) -> str:
    for move in moves:
        numbers = [_i32(w, number) for number in move.numbers]
        words = {"poison": "llvm.mlir.poison : i32", "true": "arith.constant true", "false": "arith.constant false"}
        needs = {word: w.op(text) for word, text in words.items() if f"{{{word}}}" in move.text}
        part = w.op(move.text.format(*numbers, value=part, **needs))
    return part


def _source(w: FunctionWriter, op: Op, lanes: _Lanes) -> str:
    """The number of the lane that a value comes from; one's own where the warp has none such."""
    kind, amount = op.attrs["kind"], op.operands[1]
    if kind == "one":
        return _i32(w, amount.const)
    own, last = (w.op(f"arith.extui {number} : i32 to i64") for number in (lane_number(w), lanes.last))
    return w.op(f"arith.trunci {_source_among(w, op, own, last)} : i64 to i32")


def _source_among(w: FunctionWriter, op: Op, own: str, last: str) -> str:
    """The same as an i64, where the own lane and the last one are known as i64s."""
    kind, number = op.attrs["kind"], w.name(op.operands[1])
    if kind == "one":
        return number
    if kind != "idx":
        word = {"up": "subi", "down": "addi", "xor": "xori"}[kind]
        number = w.op(f"arith.{word} {own}, {number} : i64")
    inside = w.op(f"arith.cmpi ule, {number}, {last} : i64")
    return w.op(f"arith.select {inside}, {number}, {own} : i64")


@emits("warp_ballot")
def _ballot(w: FunctionWriter, op: Op) -> None:
    w.result(op, _votes(w, op, w.name(op.operands[0]), op.operands[1:]))


def _votes(w: FunctionWriter, op: Op, predicate: str, masks: list[Value]) -> str:
    """The lanes where a predicate holds, as the bits of an i64."""
    if w.thread:
        return coroutines.ballot(w, op, predicate, w.name(masks[0]) if masks else "")
    spelled = _spelled(w)
    mask = _mask(w, op, masks) if "{mask}" in spelled.ballot else ""
    return _wide(w, op, w.op(spelled.ballot.format(predicate=predicate, mask=mask)))


def _mask(w: FunctionWriter, op: Op, masks: list[Value]) -> str:
    """The lanes that take part as an i32: those that the operation names, or all that there are."""
    return w.op(f"arith.trunci {w.name(masks[0])} : i64 to i32") if masks else _present(w, op).mask


def _wide(w: FunctionWriter, op: Op, bits: str) -> str:
    """A bit for each lane as the language has them, an i64."""
    return bits if op.attrs["lanes"] == 64 else w.op(f"arith.extui {bits} : i32 to i64")


@emits("warp_match")
def _match(w: FunctionWriter, op: Op) -> None:
    type, masks = op.operands[0].simd, op.operands[1:]
    parts = pieces(w, w.name(op.operands[0]), type)
    spelled = "" if w.thread else _spelled(w).match
    if spelled:
        mask = _mask(w, op, masks)
        results = [_wide(w, op, w.op(spelled.format(value=part, mask=mask))) for part in parts]
    else:
        bits = 1 if type == BOOL else min(32, 8 * register_bytes(type))
        results = [_votes(w, op, w.op("arith.constant true"), masks)]
        results += [_same_bit(w, op, part, bit, masks) for part in parts for bit in range(bits)]
    total = results[0]
    for other in results[1:]:
        total = w.op(f"arith.andi {total}, {other} : i64")
    w.result(op, total)


def _same_bit(w: FunctionWriter, op: Op, part: str, bit: int, masks: list[Value]) -> str:
    """The lanes that have one's own bit; lanes that do not take part may be among them."""
    moved = w.op(f"arith.shrui {part}, {_i32(w, bit)} : i32")
    own = w.op(f"arith.trunci {moved} : i32 to i1")
    votes = _votes(w, op, own, masks)
    others = w.op(f"arith.xori {votes}, {w.op('arith.constant -1 : i64')} : i64")
    return w.op(f"arith.select {own}, {votes}, {others} : i64")


@emits("warp_sync")
def _sync(w: FunctionWriter, op: Op) -> None:
    if w.thread:
        coroutines.suspend(w, op, Scope.warp, wanted=w.name(op.operands[0]) if op.operands else "")
        return
    grid = w.target.grid
    assert grid is not None
    for spelling in grid.sync_warp:
        w.line(spelling.format(mask=_mask(w, op, op.operands) if "{mask}" in spelling else ""))
