"""Evaluates what authors name themselves: `inline_assembly`, `llvm_intrinsic`, `external_call`, and `exchange`."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from ....dsl.contract.exchange import Exchange
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.program import PointerType, Value
from ..conversion import coerce
from ..evaluator import Point, rule
from ..runtime_checks import add_exchange
from ..values.describe import describe

CODE = "EK0911"
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTRINSIC = re.compile(r"llvm(\.[A-Za-z0-9_]+)+")
_INTEGERS = (dtype for dtype in DType if dtype.is_integral() and not dtype.is_storage() and not dtype.is_packed())
_PLAIN = frozenset((DType.bool, DType.float32, DType.float64, *_INTEGERS))


@rule("inline_assembly")
def inline_assembly(
    call: Point,
    text: object,
    result: object,
    args: tuple[object, ...],
    constraints: object = "",
    has_side_effects: object = True,
) -> Value | None:
    if not isinstance(text, str) or not isinstance(constraints, str):
        raise call.error(CODE, "inline_assembly takes a text and constraints= that are known at compile time", "text")
    return _native(call, "assembly", text, result, args, has_side_effects, constraints)


@rule("llvm_intrinsic")
def llvm_intrinsic(
    call: Point, name: object, result: object, args: tuple[object, ...], has_side_effects: object = True
) -> Value | None:
    if not isinstance(name, str) or not _INTRINSIC.fullmatch(name):
        text = f"the name of an intrinsic is one such as 'llvm.fshl.i32', with its types, not {describe(name)}"
        raise call.error(CODE, text, "name")
    return _native(call, "intrinsic", name, result, args, has_side_effects)


@rule("external_call")
def external_call(call: Point, name: object, result: object, args: tuple[object, ...]) -> Value | None:
    if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
        raise call.error(CODE, f"the name of a function is one such as 'hypot', not {describe(name)}", "name")
    if call.evaluator.target.has_grid:
        text = f"functions of libraries are called on a CPU alone; {call.evaluator.target.name} has none"
        raise call.error(CODE, text, "name")
    if not hasattr(ctypes.CDLL(None), name):
        hint = "load its library first: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)"
        raise call.error(CODE, f"no library of this process has a function {name!r}", "name", hint=hint)
    return _native(call, "call", name, result, args, True)


@rule("ranks.exchange")
def exchange(call: Point, kind: str, what: str, to: Value, source: Value, piece: Any, count: Any, node: Any) -> None:
    piece, count, node = (coerce(call, value, INT) for value in (piece, count, node))
    element = coerce(call, to.type.dtype.size_in_bytes, INT)
    size = call.builder.row("mul", [piece, element])
    add_exchange(call, Exchange[kind.upper()], what, [to, source, size, count, node])


def _native(
    call: Point, kind: str, name: str, result: object, args: tuple[object, ...], effects: object, constraints: str = ""
) -> Value | None:
    if not isinstance(effects, bool):
        raise call.error(CODE, "has_side_effects= is True or False", "has_side_effects")
    operands = [_operand(call, kind, value) for value in args]
    opcode = "native" if effects else "native_pure"
    if result is None:
        call.builder.add(opcode, operands, kind=kind, code=name, constraints=constraints)
        return None
    type = SIMDType(result) if isinstance(result, DType) else result
    if not isinstance(type, SIMDType) or type.dtype not in _PLAIN or (kind == "call" and type.width != 1):
        text = f"the result is a dtype of 8 to 64 bits, a vector of it, or None, not {describe(result)}"
        raise call.error(CODE, text, "result")
    return call.builder.one(opcode, operands, type, kind=kind, code=name, constraints=constraints)


def _operand(call: Point, kind: str, value: object) -> Value:
    if isinstance(value, Value) and value.weak is None:
        type = value.type
        if isinstance(type, PointerType) or (type.dtype in _PLAIN and (kind != "call" or type.width == 1)):
            return value
    hint = "give a number its dtype: int32(3)"
    text = f"native code takes values of dtypes of 8 to 64 bits and pointers, not {describe(value)}"
    raise call.error(CODE, text, hint=hint)
