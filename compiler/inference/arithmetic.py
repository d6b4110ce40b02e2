"""Computes operators and rows on any values: now on compile-time numbers, else as operations of the program.

Input: values and where they stand. Output: a value, or an error that names both types. Non-goals: what a struct defines
(see `calls.struct_methods`), and which type a number adopts (see `conversion`).
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax
from ...dsl.language.stubs import STUBS
from ...dsl.types.dtype import BOOL, INT, SIMDType
from ..ir.operations import ROWS, Row
from ..ir.program import PointerType, Value
from .budget import arithmetic, outgrows
from .calls import struct_methods as methods
from .calls.arguments import check_number
from .calls.library import call_operator
from .conversion import PYTHON_ERRORS, coerce, unify
from .evaluator import Call, Evaluator
from .mismatches import mismatch, no_row, not_numbers
from .operator_methods import COMPARISONS, OPERATORS
from .runtime_checks import guard_divisor
from .values.compile_time import Frame, StructValue, is_comptime_number
from .values.describe import describe
from .values.flow import ABSENT
from .values.index import Index


def fold(evaluator: Evaluator, row: Row, operands: list[Any], node: syntax.Node, frame: Frame) -> Any:
    """A row on compile-time values, by Python's own rules."""
    compares = row.result == "bool"
    for operand in operands:
        runtime = isinstance(operand, tuple) and compares and any(isinstance(item, Value) for item in operand)
        if runtime or not (operand is None or isinstance(operand, bool | int | float | str | tuple)):
            raise not_numbers(evaluator, row, operands, node, frame)
    try:
        if outgrows(row, operands):
            raise evaluator.error("EK0206", "this compile-time value grows too large", node, frame)
        evaluator.step(node, frame, 1 + arithmetic(operands))
        value = row.fold(*operands)
        if isinstance(value, complex):
            raise evaluator.error("EK0206", "this compile-time value is a complex number", node, frame)
        return value
    except TypeError:
        raise not_numbers(evaluator, row, operands, node, frame) from None
    except ZeroDivisionError:
        raise evaluator.error(
            "EK0206", "division by a compile-time zero", node, frame, label=f"{operands[1]!r}"
        ) from None
    except PYTHON_ERRORS as error:
        raise evaluator.error("EK0206", f"this cannot be computed at compile time: {error}", node, frame) from None


def apply_row(evaluator: Evaluator, row: Row, operands: list[Value], node: syntax.Node, frame: Frame) -> Value:
    """A row on run-time operands of one type."""
    type = operands[0].type
    assert isinstance(type, SIMDType)
    weak = operands[0].weak
    if not row.takes(type.dtype) and not weak:
        raise no_row(evaluator, row, type, node, frame)
    evaluator.locate(node, frame)
    folded = _fold_index(evaluator, row, operands)
    if folded is not None:
        return folded
    if row.name in ("floordiv", "mod") and not weak:
        guard_divisor(evaluator, operands[1], row.symbol, node, frame)
    if row.in_library(type.dtype):
        value = call_operator(evaluator, row.name, operands, node, frame)
    else:
        value = evaluator.builder.row(row.name, operands)
    if weak and row.result == "same":
        value.weak = "float" if row.name == "truediv" else weak
        value.origin = frozenset().union(*(v.origin for v in operands))
    return value


def _fold_index(evaluator: Evaluator, row: Row, operands: list[Value]) -> Value | None:
    """Whole numbers that are already known stay known: sizes, mostly."""
    if any(v.const is None or v.type != INT for v in operands):
        return None
    if row.name in ("floordiv", "mod") and operands[1].const == 0:
        return None
    if row.name in ("shl", "shr") and not 0 <= operands[1].const < INT.dtype.bits:
        return None
    numbers = [v.const for v in operands]
    result = row.fold(*numbers) if row.element is None else row.element(INT.dtype, *numbers)
    if row.result == "bool":
        return evaluator.builder.const(bool(result), BOOL)
    if not isinstance(result, int):
        return None
    return evaluator.builder.int_((result + (1 << 63)) % (1 << 64) - (1 << 63))


def binary(
    evaluator: Evaluator, op: str, a: Any, b: Any, nodes: tuple[syntax.Expr, syntax.Expr], node: Any, frame: Frame
) -> Any:
    """`a op b` for any two values."""
    if a is ABSENT or b is ABSENT:
        return ABSENT
    row = ROWS[op]
    if isinstance(a, StructValue) or isinstance(b, StructValue):
        return _of_structs(evaluator, op, a, b, nodes, node, frame)
    if isinstance(a, Index) != isinstance(b, Index) and not isinstance(a, tuple) and not isinstance(b, tuple):
        raise mismatch(evaluator, row.symbol, a, b, nodes, node, frame)
    a, b = plain(evaluator, a), plain(evaluator, b)
    if _is_pointer(a) or _is_pointer(b):
        return _pointer_arithmetic(evaluator, op, a, b, nodes, node, frame)
    if not isinstance(a, Value) and not isinstance(b, Value):
        return fold(evaluator, row, [a, b], node, frame)
    left, right = unify(evaluator, row.symbol, a, b, nodes, node, frame)
    if op == "eq" and left is right and left.serial in evaluator.builder.bounds and is_shipped(frame.file):
        return True  # two sizes that are one: the library need not ask as code runs
    # A zero that the author wrote is a mistake; a size that happens to be 0 is none, and divides to 0.
    if op in ("floordiv", "mod") and is_comptime_number(b) and b == 0 and not left.dtype.is_float():
        raise evaluator.error("EK0206", "division by a compile-time zero", node, frame, label=f"{b!r}")
    return apply_row(evaluator, row, [left, right], node, frame)


def _of_structs(
    evaluator: Evaluator, op: str, a: Any, b: Any, nodes: tuple[syntax.Expr, syntax.Expr], node: Any, frame: Frame
) -> Any:
    """`a op b` as a struct among the operands defines it."""
    if op in COMPARISONS:

        def parts_equal(x: Any, y: Any) -> Any:
            return binary(evaluator, "eq", x, y, nodes, node, frame)

        found = methods.compare(evaluator, op, a, b, node, frame, parts_equal)
    else:
        found = methods.operate(evaluator, op, a, b, node, frame)
    if found is NotImplemented:
        raise mismatch(evaluator, ROWS[op].symbol, a, b, nodes, node, frame)
    return found


def _is_pointer(value: Any) -> bool:
    return isinstance(value, Value) and isinstance(value.type, PointerType)


def _pointer_arithmetic(
    evaluator: Evaluator, op: str, a: Any, b: Any, nodes: tuple[syntax.Expr, syntax.Expr], node: Any, frame: Frame
) -> Value:
    """`p + n`, `n + p`, `p - n`: the address that many elements further on, or back."""
    builder, symbol = evaluator.builder, ROWS[op].symbol
    pointer, count, at = (a, b, nodes[1]) if _is_pointer(a) else (b, a, nodes[0])
    if _is_pointer(count) or (op, pointer) not in (("add", a), ("add", b), ("sub", a)):
        text = f"cannot compute {describe(a)} {symbol} {describe(b)}"
        hint = "pointers take `p + n` and `p - n` with an Int"
        raise evaluator.error("EK0202", text, node, frame, label=f"{describe(a)} {symbol} {describe(b)}", hint=hint)
    offset = coerce(evaluator, count, INT, at, frame, "an offset is an Int")
    evaluator.locate(node, frame)
    return builder.advance(pointer, offset if op == "add" else builder.isub(builder.int_(0), offset))


def plain(evaluator: Evaluator, value: Any) -> Any:
    """An index as the tuple that it stands for; anything else as it is."""
    return value.components(evaluator.builder) if isinstance(value, Index) else value


def unary(evaluator: Evaluator, op: str, value: Any, node: syntax.Expr, frame: Frame) -> Any:
    """`op value` for any value."""
    if isinstance(value, StructValue):
        name = f"__{OPERATORS[op]}__"
        found = methods.special(evaluator, value, name, [], node, frame)
        if found is NotImplemented:
            text = f"'{value.type.name}' does not define {name}"
            raise evaluator.error("EK0204", text, node, frame, hint=f"define {name} in the struct '{value.type.name}'")
        return found
    row = ROWS[op]
    if not isinstance(value, Value):
        return fold(evaluator, row, [value], node, frame)
    return apply_row(evaluator, row, [value], node, frame)


def call_row(call: Call, name: str, operands: list[Any]) -> Any:
    """A row called by its name: `max(x, 0)`, `fma(a, b, c)`."""
    evaluator, row = call.evaluator, ROWS[name]
    if not any(isinstance(v, Value) for v in operands):
        for key, operand in zip(STUBS[name].signature.parameters, operands, strict=True):
            check_number(call, name, operand, key)
        return fold(evaluator, row, operands, call.node, call.frame)
    return apply_row(evaluator, row, call_numbers(call, name, operands), call.node, call.frame)


def call_numbers(call: Call, name: str, operands: list[Any]) -> list[Value]:
    """The arguments of a name of the language as run-time values of one type; one of them is such a value."""
    evaluator = call.evaluator
    for key, operand in zip(STUBS[name].signature.parameters, operands, strict=True):
        check_number(call, name, operand, key)
    nodes = [call.nodes.get(key, call.node) for key in STUBS[name].signature.parameters]
    typed = next((v for v in operands if isinstance(v, Value) and v.weak is None), None)
    anchor = typed if typed is not None else next(v for v in operands if isinstance(v, Value))
    out: list[Value] = []
    for operand, node in zip(operands, nodes, strict=True):
        first, _ = (
            unify(
                evaluator, f"{name}(…)", operand, anchor, (node, nodes[operands.index(anchor)]), call.node, call.frame
            )
            if operand is not anchor
            else (anchor, anchor)
        )
        out.append(first)
    widest = max(out, key=lambda v: v.type.width if isinstance(v.type, SIMDType) else 0)
    if isinstance(widest.type, SIMDType) and widest.weak is None:
        out = [coerce(evaluator, v, widest.type, call.node, call.frame) for v in out]
    return out
