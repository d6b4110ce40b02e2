"""Numbers meet types: adoption of compile-time numbers, operands of one type, and calls of rows and stubs.

The language converts nothing implicitly, with two exceptions that live here: a compile-time number adopts the type of
its partner, and a scalar meets a vector of its dtype in every lane.

Input: values of the evaluator. Output: run-time values of the right type, or an error that names both types.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax
from ...dsl.language.names import STUBS
from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from ..ir.integers import is_exact
from ..ir.operations import ROWS, Row
from ..ir.program import PointerType, Type, Value
from . import advice
from .budget import count_long
from .calls import struct_methods as methods
from .growth import outgrows
from .mismatches import mismatch, no_row, not_numbers
from .runtime_checks import guard_divisor
from .spelling import cast_of
from .values.aggregates import nothing
from .values.compile_time import Frame, Index, StructValue, describe, is_comptime_number, shown
from .values.flow import ABSENT

if TYPE_CHECKING:
    from .evaluator import Call, Evaluator

DEFAULTS = {"bool": BOOL, "int": INT, "float": SIMDType(DType.float64)}
PYTHON_ERRORS = (ArithmeticError, ValueError, TypeError)


def weak_kind(value: Any) -> str | None:
    """`bool`, `int` or `float` for a number that has no run-time type yet."""
    if isinstance(value, Value):
        return value.weak
    return type(value).__name__ if is_comptime_number(value) else None


def coerce(
    evaluator: Evaluator,
    value: Any,
    type: Type,
    node: syntax.Node,
    frame: Frame,
    what: str = "",
    like: syntax.Node | None = None,
) -> Value:
    """`value` as a run-time value of `type`: a number adopts it, a scalar fills the lanes, all else must have it.

    `node` is where the value stands, `like` where its type comes from: a hint names the dtype as it is named there.
    """
    builder = evaluator.builder
    if isinstance(value, Value) and value.type == type and value.weak is None:
        return value
    if value is ABSENT:
        return nothing(builder, type)
    if is_comptime_number(value) and isinstance(type, SIMDType):
        problem = misfit(value, type.dtype)
        if problem:
            raise evaluator.error("EK0205", problem, node, frame, expected=str(type), got=shown(value))
        return builder.const(adopt(value, type.dtype), type)
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and isinstance(type, SIMDType):
        if value.weak is not None:
            for key in value.origin:
                evaluator.met.setdefault(key, SIMDType(type.dtype))
            return builder.one("cast", [value], type)
        if value.type.is_scalar and value.dtype is type.dtype:
            return builder.one("splat", [value], type)
    wanted = what or f"{type} is wanted here"
    raise evaluator.error(
        "EK0202",
        f"{wanted}, not {describe(value)}",
        node,
        frame,
        label=describe(value),
        expected=str(type),
        got=describe(value),
        hint=f"write {cast_of(node, frame, type.dtype, like)}" if _castable(value, type) else None,
    )


def _castable(value: Any, type: Type) -> bool:
    """Whether a cast would help."""
    if not isinstance(value, Value) or not isinstance(value.type, SIMDType) or not isinstance(type, SIMDType):
        return False
    return value.dtype is not type.dtype and value.type.width in (1, type.width)


def zero_of(dtype: DType) -> bool | int | float:
    """The number 0 as elements of `dtype` adopt it: a float for floats, of which one, the scale, has no 0 but NaN."""
    return False if dtype is DType.bool else 0.0 if dtype.is_float() else 0


def misfit(value: bool | int | float, dtype: DType) -> str | None:
    """Why a compile-time number cannot become a `dtype`, or None when it can."""
    if dtype.kind == "bool" or isinstance(value, bool):
        fits = dtype.kind == "bool" and isinstance(value, bool)
        return None if fits else f"the {type(value).__name__} {shown(value)} is no {dtype}"
    if dtype.is_float():
        exact = isinstance(value, float) or is_exact(dtype, value)
        return None if exact else f"{shown(value)} is not exactly representable in {dtype}"
    if isinstance(value, float):
        return f"the float {value!r} is no {dtype}"
    low, high = dtype.range
    return None if low <= value <= high else f"{shown(value)} does not fit {dtype} ({low} to {high})"


def adopt(value: bool | int | float, dtype: DType) -> bool | int | float:
    """The number as an element of `dtype`, rounded to nearest."""
    if not dtype.is_float() or dtype is DType.float64:
        return float(value) if dtype.is_float() else value
    return dtype.format.round(float(value))


def unify(
    evaluator: Evaluator, symbol: str, a: Any, b: Any, nodes: tuple[syntax.Expr, syntax.Expr], node: Any, frame: Frame
) -> tuple[Value, Value]:
    """Two operands as run-time values of one type; at least one of them is a run-time value."""
    kinds = (weak_kind(a), weak_kind(b))
    if kinds[0] is None and kinds[1] is None:
        if not (isinstance(a, Value) and isinstance(b, Value)) or not same_family(a, b):
            raise mismatch(evaluator, symbol, a, b, nodes, node, frame)
        assert isinstance(a.type, SIMDType) and isinstance(b.type, SIMDType)
        type = a.type if a.type.width >= b.type.width else b.type
        return coerce(evaluator, a, type, nodes[0], frame), coerce(evaluator, b, type, nodes[1], frame)
    if kinds[0] is not None and kinds[1] is not None:
        type = DEFAULTS["float" if "float" in kinds else "int" if "int" in kinds else "bool"]
        out = [as_weak(evaluator, v, type, n, frame) for v, n in zip((a, b), nodes, strict=True)]
        return out[0], out[1]
    typed = b if kinds[0] is not None else a
    if not isinstance(typed, Value) or not isinstance(typed.type, SIMDType):
        raise mismatch(evaluator, symbol, a, b, nodes, node, frame)
    return coerce(evaluator, a, typed.type, nodes[0], frame), coerce(evaluator, b, typed.type, nodes[1], frame)


def as_weak(evaluator: Evaluator, value: Any, type: SIMDType, node: syntax.Node, frame: Frame) -> Value:
    """A number without a run-time type as a stand-in that may still adopt one."""
    kind = {DType.bool: "bool", DType.int64: "int", DType.float64: "float"}[type.dtype]
    made = evaluator.builder.one("cast" if isinstance(value, Value) else "const", [], type, value=value)
    if isinstance(value, Value):
        evaluator.builder.region.ops[-1].operands = [value]
        made.origin = value.origin
    made.weak = kind
    return made


def same_family(a: Value, b: Value) -> bool:
    """Whether two run-time values can be operands of one operation."""
    if isinstance(a.type, PointerType) or isinstance(b.type, PointerType):
        return False
    widths = {a.type.width, b.type.width}
    return a.dtype is b.dtype and (len(widths) == 1 or 1 in widths)


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
        count_long(evaluator, operands, node, frame)
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
        value = evaluator.library_operator(row.name, operands, node, frame)
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
    if op in methods.COMPARISONS:

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
        name = f"__{methods.OPERATORS[op]}__"
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


def check_number(call: Call, name: str, operand: Any, key: str) -> None:
    """Refuses an argument that is neither a number nor a run-time value."""
    if (isinstance(operand, Value) and isinstance(operand.type, SIMDType)) or is_comptime_number(operand):
        return
    hint: str | None = None
    if isinstance(operand, Index):
        hint = "take a component of the index: `i[0]`, or unpack it: `y, x = i`"
    elif hasattr(operand, "dims"):
        hint = advice.over_elements(name, call.nodes.get(key, call.node), call.frame)
    raise call.error("EK0204", f"'{name}' works on numbers, not on {describe(operand)}", key, hint=hint)


def bind_stub(call: Call, name: str, args: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of a stub's signature; remembers where each stands in the text."""
    if name in ("min", "max") and len(args) > 2:
        args = [_fold_left(call, name, args[:-1]), args[-1]]
    return bind_signature(call, name, STUBS[name].signature, args, keywords)


def bind_signature(
    call: Call, name: str, signature: inspect.Signature, args: list[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by the names of a signature; remembers where each stands in the text."""
    parameters = signature.parameters
    plain = not keywords and len(args) == len(parameters)
    if plain and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values()):
        _know_nodes(call, parameters)
        return dict(zip(parameters, args, strict=True))
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        bare = [p.replace(annotation=p.empty, default=p.empty) for p in signature.parameters.values()]
        listed = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        raise call.error("EK0208", f"wrong arguments for {name}{listed}: {error}") from None
    _know_nodes(call, parameters)
    bound.apply_defaults()
    return dict(bound.arguments)


def _know_nodes(call: Call, parameters: Iterable[str]) -> None:
    if isinstance(call.node, syntax.Call) and not any(isinstance(a, syntax.Starred) for a in call.node.arguments):
        given = call.node.arguments
        call.nodes = dict(zip(parameters, given, strict=False))
        for place, name in enumerate(parameters):
            if isinstance(parameters, Mapping) and parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                several = given[place:]
                if len(several) > 1:
                    span = (*several[0].span[:2], *several[-1].span[2:])
                    call.nodes[name] = syntax.Tuple(several, span=span)
                break
        call.nodes |= {k.name: k.value for k in call.node.keywords}


def _fold_left(call: Call, name: str, args: list[Any]) -> Any:
    value = args[0]
    for other in args[1:]:
        value = call_row(call, name, [value, other])
    return value
