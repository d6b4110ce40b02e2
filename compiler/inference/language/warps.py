"""Emits what the lanes of a warp do together: values from other lanes, and questions that have one answer.

A tuple or a struct goes from lane to lane number by number. A compile-time number is the same in every lane.

See also `stdlib.algorithms.collectives` (which are written in the language), `passes.uniformity` (which calls stand
where not all threads come to them).
"""

from __future__ import annotations

import math
from typing import Any

from ....dsl.types.dtype import BOOL, INT, DType, SIMDType
from ...ir.program import PointerType, Value
from ..conversion import DEFAULTS, coerce
from ..evaluator import Point, named_value, rule
from ..values.aggregates import is_number, parts_of, replaced
from ..values.compile_time import is_comptime_number
from ..values.describe import describe
from .grids import gpu_value, kernel_of

LANES_OF = SIMDType(DType.uint64)


def _warp(call: Point, name: str) -> dict[str, Any]:
    """The attributes of what the lanes do together here: how many they are, and of which block."""
    return {"lanes": call.evaluator.target.warp_size, "block": kernel_of(call, f"{name}()").whole_block}


def check_numbers(call: Point, value: object, name: str, argument: str) -> None:
    """Refuses what is neither a number nor a vector, nor made of these."""
    parts = parts_of(value)
    if parts is not None:
        for part in parts:
            check_numbers(call, part, name, argument)
    elif not is_number(value) or isinstance(getattr(value, "type", None), PointerType):
        text = f"gpu.{name} works on numbers, vectors, and tuples and structs of these, not on {describe(value)}"
        raise call.error("EK0204", text, argument)


def settled(call: Point, value: Value) -> Value:
    """A number of open type in the type that it has by default."""
    return value if value.weak is None else coerce(call, value, DEFAULTS[value.weak])


def _mask(call: Point, mask: object) -> list[Value]:
    """The lanes that come to a call, where the author says which."""
    if mask is None:
        return []
    return [coerce(call.argument("mask"), mask, LANES_OF, "mask= is a UInt64 with a bit for each lane")]


def _shuffle(call: Point, kind: str, name: str, v: Any, amount: Any, argument: str, mask: Any = None) -> Any:
    attrs = _warp(call, name)
    check_numbers(call, v, name, "v")
    number = coerce(call.argument(argument), amount, INT, f"{argument}= of gpu.{name} is an Int")
    kind, number = _forwards(call, kind, number)
    masks = _mask(call, mask)
    if number.const is not None and not 0 <= number.const < attrs["lanes"]:
        return v  # no warp has such a lane

    def shuffled(_: object, value: Any) -> Any:
        if is_comptime_number(value):
            return value
        whole = settled(call.argument("v"), value)
        return call.builder.one("warp_shuffle", [whole, number, *masks], whole.type, kind=kind, **attrs)

    return replaced(v, shuffled)


def _forwards(call: Point, kind: str, number: Value) -> tuple[str, Value]:
    """`n` lanes before, for a known n < 0, are lanes behind, and the other way round."""
    if kind in ("up", "down") and number.const is not None and number.const < 0:
        return "down" if kind == "up" else "up", call.builder.int_(-number.const)
    return kind, number


@rule("gpu.warp.shuffle_idx")
def shuffle_idx(call: Point, v: object, lane: object, mask: object = None) -> Any:
    return _shuffle(call, "idx", "warp.shuffle_idx", v, lane, "lane", mask)


@rule("gpu.warp.shuffle_up")
def shuffle_up(call: Point, v: object, n: object, mask: object = None) -> Any:
    return _shuffle(call, "up", "warp.shuffle_up", v, n, "n", mask)


@rule("gpu.warp.shuffle_down")
def shuffle_down(call: Point, v: object, n: object, mask: object = None) -> Any:
    return _shuffle(call, "down", "warp.shuffle_down", v, n, "n", mask)


@rule("gpu.warp.shuffle_xor")
def shuffle_xor(call: Point, v: object, bits: object, mask: object = None) -> Any:
    return _shuffle(call, "xor", "warp.shuffle_xor", v, bits, "bits", mask)


@rule("gpu.warp.broadcast")
def broadcast(call: Point, v: object, lane: object = 0, mask: object = None) -> Any:
    attrs = _warp(call, "warp.broadcast")
    x, y, z = attrs["block"]
    last = min(attrs["lanes"], x * y * z) - 1
    if type(lane) is not int or not 0 <= lane <= last:
        text = f"lane= is a compile-time number from 0 to {last} here, not {describe(lane)}"
        hint = "gpu.warp.shuffle_idx takes a lane that is known at run time"
        raise call.error("EK0645", text, "lane", hint=None if type(lane) is int else hint)
    return _shuffle(call, "one", "warp.broadcast", v, lane, "lane", mask)


@rule("gpu.warp.sync")
def sync(call: Point, mask: object = None) -> None:
    call.builder.add("warp_sync", _mask(call, mask), **_warp(call, "warp.sync"))


def _ballot(call: Point, name: str, p: object, mask: object, *, negated: bool = False) -> Value:
    attrs = _warp(call, name)
    condition = coerce(call.argument("p"), p, BOOL, f"gpu.{name} takes a Bool")
    if negated:
        condition = call.builder.row("not_", [condition])
    return call.builder.one("warp_ballot", [condition, *_mask(call, mask)], LANES_OF, **attrs)


@rule("gpu.warp.ballot")
def ballot(call: Point, p: object, mask: object = None) -> Value:
    return _ballot(call, "warp.ballot", p, mask)


@rule("gpu.warp.match")
def match(call: Point, v: Any, mask: Any = None) -> Value:
    attrs = _warp(call, "warp.match")
    if parts_of(v) is not None or is_comptime_number(v):
        raise call.error("EK0204", f"gpu.warp.match works on a number or a vector, not on {describe(v)}", "v")
    check_numbers(call, v, "warp.match", "v")
    return call.builder.one("warp_match", [settled(call.argument("v"), v), *_mask(call, mask)], LANES_OF, **attrs)


@rule("gpu.warp.elect")
def elect(call: Point) -> Value:
    return call.builder.compare("eq", gpu_value(call, "lane_idx"), call.builder.int_(0))


@rule("gpu.warp.any")
def any_(call: Point, p: object, mask: object = None) -> Value:
    return call.builder.compare("ne", _ballot(call, "warp.any", p, mask), call.builder.const(0, LANES_OF))


@rule("gpu.warp.all")
def all_(call: Point, p: object, mask: object = None) -> Value:
    return call.builder.compare("eq", _ballot(call, "warp.all", p, mask, negated=True), call.builder.const(0, LANES_OF))


@named_value("gpu.threads_per_block")
def threads_per_block(here: Point) -> int:
    return math.prod(kernel_of(here, "threads_per_block").block)
