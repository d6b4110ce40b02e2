"""Computes operators and rows on any values: now on compile-time numbers, else as operations of the program.

See also `calls.struct_methods` (what a struct defines), `conversion` (which type a number adopts).
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax
from ...dsl.language.stubs import STUBS
from ...dsl.types.dtype import BOOL, INT, SIMDType
from ..ir.operations import ROWS, OperationRow
from ..ir.program import PointerType, Value
from .accumulators import marked
from .budget import arithmetic, exceeds_limit
from .calls import struct_methods as methods
from .calls.arguments import check_number
from .calls.library import call_operator
from .conversion import PYTHON_ERRORS, coerce, unify
from .evaluator import RULES, Evaluator, Point
from .exact_terms import note_comparison
from .mismatches import mismatch, no_row, not_numbers
from .operator_methods import COMPARISONS, OPERATORS
from .runtime_checks import guard_divisor
from .values.compile_time import StructValue, is_comptime_number
from .values.describe import describe
from .values.flow import ABSENT
from .values.index import BodyIndex
from .values.tiles import TileValue
from .widening import compared_by_sign, compares_by_sign, may_widen, rotation, shift_count

_FOLDED = (bool, int, float, complex, str, tuple)  # a union would be made anew for each operand


def fold(here: Point, row: OperationRow, operands: list[object]) -> Any:
    """A row on compile-time values, by Python's own rules."""
    compares = row.result == "bool"
    for operand in operands:
        runtime = isinstance(operand, tuple) and compares and any(isinstance(item, Value) for item in operand)
        if runtime or not (operand is None or isinstance(operand, _FOLDED)):
            raise not_numbers(here, row, operands)
    try:
        if exceeds_limit(row, operands):
            raise here.error("EK0206", "this compile-time value grows too large")
        here.step(1 + arithmetic(operands))
        value = row.fold(*operands)
        if isinstance(value, complex) and complex not in map(type, operands):
            hint = "the result is complex if the operand is: write it with + 0j"
            raise here.error("EK0206", "this compile-time value is a complex number", hint=hint)
        return value
    except TypeError:
        raise not_numbers(here, row, operands) from None
    except ZeroDivisionError:
        raise here.error("EK0206", "division by a compile-time zero", label=f"{operands[1]!r}") from None
    except PYTHON_ERRORS as error:
        raise here.error("EK0206", f"this cannot be computed at compile time: {error}") from None


def apply_row(here: Point, row: OperationRow, operands: list[Value]) -> Value:
    """A row on run-time operands of one type."""
    type = operands[0].type
    assert isinstance(type, SIMDType)
    weak = operands[0].weak
    if not row.takes(type.dtype) and not weak:
        raise no_row(here, row, operands[0])
    here.locate()
    folded = _fold_index(here.evaluator, row, operands)
    if folded is not None:
        return folded
    if row.name in ("floordiv", "mod") and not weak:
        guard_divisor(here, operands[1], row.symbol)
    if row.result == "bool" and type.dtype.is_integral():
        note_comparison(here, operands)
    if row.in_library(type.dtype):
        value = call_operator(here, row.name, operands)
    else:
        value = here.builder.row(row.name, operands)
    if weak and row.result == "same":
        value.weak = "float" if row.name == "truediv" and weak != "complex" else weak
        value.origin = frozenset().union(*(v.origin for v in operands))
    return marked(value, operands) if row.result == "same" else value


def _fold_index(evaluator: Evaluator, row: OperationRow, operands: list[Value]) -> Value | None:
    """Whole numbers that are already known stay known: sizes, mostly."""
    for operand in operands:
        if operand.const is None or operand.type != INT:
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


def binary(here: Point, op: str, a: object, b: object, nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode]) -> Any:
    """`a op b` for any two values."""
    if a is ABSENT or b is ABSENT:
        return ABSENT
    row = ROWS[op]
    if op in ("eq", "ne") and (a is None or b is None):
        return (a is b) == (op == "eq")  # None is known at compile time, and nothing else is equal to it
    if isinstance(a, TileValue) or isinstance(b, TileValue):
        each = RULES["elementwise on tiles"]
        return each(here, lambda values: binary(here, op, values[0], values[1], nodes), [a, b], row.symbol)
    if isinstance(a, StructValue) or isinstance(b, StructValue):
        return _of_structs(here, op, a, b, nodes)
    if isinstance(a, BodyIndex) != isinstance(b, BodyIndex) and not isinstance(a, tuple) and not isinstance(b, tuple):
        a, b = (of_one_axis(here.evaluator, each) for each in (a, b))
    if isinstance(a, BodyIndex) != isinstance(b, BodyIndex) and not isinstance(a, tuple) and not isinstance(b, tuple):
        raise mismatch(here, row.symbol, a, b, nodes)
    a, b = plain(here.evaluator, a), plain(here.evaluator, b)
    if _is_pointer(a) or _is_pointer(b):
        return _pointer_arithmetic(here, op, a, b, nodes)
    if not isinstance(a, Value) and not isinstance(b, Value):
        return fold(here, row, [a, b])
    if isinstance(a, Value) and isinstance(b, Value) and a.weak is b.weak is None:
        if op in ("shl", "shr"):
            b = shift_count(here, b, a.dtype)
        elif compares_by_sign(row.symbol, a, b):
            return compared_by_sign(here, row.symbol, a, b)
    left, right = unify(here, row.symbol, a, b, nodes)
    if op == "eq" and left is right and left.serial in here.builder.bounds and is_shipped(here.frame.file):
        return True  # two sizes that are one: the library needs no check at run time
    # A zero that the author wrote is a mistake; a size that happens to be 0 is none, and divides to 0.
    if op in ("floordiv", "mod") and is_comptime_number(b) and b == 0 and not left.dtype.is_float():
        raise here.error("EK0206", "division by a compile-time zero", label=f"{b!r}")
    return apply_row(here, row, [left, right])


def _of_structs(here: Point, op: str, a: object, b: object, nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode]) -> Any:
    """`a op b` as a struct among the operands defines it."""
    if op in COMPARISONS:

        def parts_equal(x: object, y: object) -> Any:
            return binary(here, "eq", x, y, nodes)

        result = methods.compare(here, op, a, b, parts_equal)
    else:
        result = methods.operate(here, op, a, b)
    if result is NotImplemented:
        raise mismatch(here, ROWS[op].symbol, a, b, nodes)
    return result


def _is_pointer(value: object) -> bool:
    return isinstance(value, Value) and isinstance(value.type, PointerType)


def _pointer_arithmetic(
    here: Point, op: str, a: Any, b: Any, nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode]
) -> Value:
    """`p + n`, `n + p`, `p - n`: the address that many elements further on, or back."""
    builder, symbol = here.builder, ROWS[op].symbol
    pointer, count, at = (a, b, nodes[1]) if _is_pointer(a) else (b, a, nodes[0])
    if _is_pointer(count) or (op, pointer) not in (("add", a), ("add", b), ("sub", a)):
        text = f"cannot compute {describe(a)} {symbol} {describe(b)}"
        hint = "pointers take `p + n` and `p - n` with an Int"
        raise here.error("EK0202", text, label=f"{describe(a)} {symbol} {describe(b)}", hint=hint)
    offset = coerce(here.on(at), count, INT, "an offset is an Int")
    here.locate()
    return builder.advance(pointer, offset if op == "add" else builder.isub(builder.int_(0), offset))


def plain(evaluator: Evaluator, value: object) -> Any:
    """An index as the tuple that it stands for; anything else as it is."""
    return value.components(evaluator.builder) if isinstance(value, BodyIndex) else value


def of_one_axis(evaluator: Evaluator, value: object) -> Any:
    """An index of one axis as the number that it stands for; anything else as it is."""
    number = value.number(evaluator.builder) if isinstance(value, BodyIndex) else None
    return value if number is None else number


def unary(here: Point, op: str, value: object) -> Any:
    """`op value` for any value."""
    value = of_one_axis(here.evaluator, value)
    if isinstance(value, StructValue):
        name = f"__{OPERATORS[op]}__"
        result = methods.special(here, value, name, [])
        if result is NotImplemented:
            text = f"'{value.type.name}' does not define {name}"
            raise here.error("EK0204", text, hint=f"define {name} in the struct '{value.type.name}'")
        return result
    if isinstance(value, TileValue):
        return RULES["elementwise on tiles"](here, lambda values: unary(here, op, values[0]), [value], ROWS[op].symbol)
    row = ROWS[op]
    if not isinstance(value, Value):
        return fold(here, row, [value])
    return apply_row(here, row, [value])


def call_row(call: Point, name: str, operands: list[Any]) -> Any:
    """A row called by its name: `max(x, 0)`, `fma(a, b, c)`."""
    row = ROWS[name]
    if not any(isinstance(v, Value) for v in operands):
        for key, operand in zip(STUBS[name].operands, operands, strict=True):
            check_number(call, name, operand, key)
        return fold(call, row, operands)
    if name in ("rotl", "rotr") and all(isinstance(v, Value) and v.weak is None for v in operands):
        operands = [operands[0], rotation(call, operands[1], operands[0].dtype)]
    return apply_row(call, row, call_numbers(call, name, operands, widening=row.element is None))


def call_numbers(call: Point, name: str, operands: list[object], *, widening: bool = True) -> list[Value]:
    """The arguments of a name of the language as run-time values of one type; one of them is such a value."""
    for key, operand in zip(STUBS[name].operands, operands, strict=True):
        check_number(call, name, operand, key)
    nodes = [call.nodes.get(key, call.node) for key in STUBS[name].operands]
    numbers = [v for v in operands if isinstance(v, Value)]
    anchor = min(numbers, key=lambda v: (v.weak is not None, v.sums is None))  # the first that decides the type
    for number in numbers if widening and anchor.weak is None else ():
        if number.weak is None and may_widen(anchor, number.type):
            anchor = number
    out: list[Value] = []
    for operand, node in zip(operands, nodes, strict=True):
        first, _ = (
            unify(call, f"{name}(…)", operand, anchor, (node, nodes[operands.index(anchor)]), widening=widening)
            if operand is not anchor
            else (anchor, anchor)
        )
        out.append(first)
    widest = max(out, key=lambda v: v.type.width if isinstance(v.type, SIMDType) else 0)
    if isinstance(widest.type, SIMDType) and widest.weak is None:
        out = [coerce(call, v, widest.type) for v in out]
    return out
