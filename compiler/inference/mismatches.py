"""Reports operands that do not go together.

See also `inference.conversion` (whether they go together).
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import CompileError
from ...dsl.frontend import syntax
from ...dsl.types.dtype import DType, SIMDType
from ..ir.operations import KIND_WORDS, OperationRow
from ..ir.program import PointerType, Value
from .accumulators import may_have_wrapped
from .evaluator import Point
from .operator_methods import method_of_symbol
from .spelling import cast_of, float_of, source_of
from .values.compile_time import Frame, StructValue
from .values.describe import describe
from .values.index import BodyIndex
from .widening import reason_for_cast

HINTS = {  # by the row that does not work
    "truediv": "use `//`, or cast to a float first",
    "not_": "compare with 0: `x == 0`",
    "xor": "a power is x ** n",
    "and_": "write `and`, or put each comparison in parentheses: (a > 0) & (b > 0)",
    "or_": "write `or`, or put each comparison in parentheses: (a > 0) | (b > 0)",
    "invert": "write `not` for a condition; the bits of a float are bitcast(x, int32)",
    "shl": "a shift of a float is x * 2 ** n",
    "shr": "a shift of a float is x / 2 ** n",
}


def mismatch(
    here: Point, symbol: str, a: Any, b: Any, nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode]
) -> CompileError:
    """`cannot compute Float32 + Int64`, with a cast as the hint."""
    hint = None
    own = a if isinstance(a, StructValue) else b
    if isinstance(own, StructValue):
        method = method_of_symbol(symbol)
        hint = f"define {method} in the struct '{own.type.name}'" if method else None
    elif any(isinstance(v, Value) and isinstance(v.type, PointerType) for v in (a, b)):
        hint = "a pointer keeps its dtype, and whether it may be written through"
    elif isinstance(a, Value) and isinstance(b, Value):
        hint = _cast_or_cut(a, b, nodes, here.frame)
    elif isinstance(a, tuple) and isinstance(b, tuple):
        hint = "compute with their items, one by one"
    elif isinstance(a, BodyIndex) or isinstance(b, BodyIndex):
        hint = "take a component of the index: `i[0]`, or unpack it: `y, x = i`"
    elif hasattr(a, "dims") or hasattr(b, "dims"):
        name = source_of(nodes[0] if hasattr(a, "dims") else nodes[1], here.frame)
        name = name if name.isidentifier() else "x"
        hint = f"work on elements: {name}[i] in the body of a foreach"
    elif isinstance(a, str) and symbol == "%":
        hint = 'write an f-string: f"{x}", or f"{x:.3f}"'
    text = f"cannot compute {describe(a)} {symbol} {describe(b)}"
    if symbol == "if/else":
        text = f"a value cannot be {describe(a)} or else {describe(b)}"
    elif symbol.endswith("(…)"):
        text = f"the arguments of '{symbol.removesuffix('(…)')}' differ in type: {describe(a)} and {describe(b)}"
    numbers = isinstance(a, Value) and isinstance(b, Value)
    numbers = numbers and isinstance(a.type, SIMDType) and isinstance(b.type, SIMDType)
    reason = reason_for_cast(*_towards(a, b)) if numbers else None
    return here.error(
        "EK0202",
        text,
        notes=[reason] if reason else [],
        label=f"{describe(a)} {symbol} {describe(b)}" if text.startswith("cannot compute") else "",
        expected=describe(a),
        got=describe(b),
        hint=hint,
    )


def _cast_or_cut(a: Value, b: Value, nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode], frame: Frame) -> str:
    """The hint for numbers of two types: a cast towards the float, else towards the left; vectors get one width."""
    (to, like), (other, node) = (a, nodes[0]), (b, nodes[1])
    if _towards(a, b)[1] is not a.dtype:
        (to, like), (other, node) = (b, nodes[1]), (a, nodes[0])
    assert isinstance(to.type, SIMDType) and isinstance(other.type, SIMDType)
    widths = to.type.width, other.type.width
    if min(widths) == 1 or widths[0] == widths[1]:
        return f"write {cast_of(node, frame, to.dtype, like)}"
    wide = like if widths[0] > widths[1] else node
    text = source_of(wide, frame)
    return f"write {text if text.isidentifier() else f'({text})'}[:{min(widths)}], or join two vectors: a.join(b)"


def _towards(a: Value, b: Value) -> tuple[DType, DType]:
    """Of two dtypes the one that the hint casts, and the one that it casts to."""
    if (b.dtype.is_complex(), b.dtype.is_float()) > (a.dtype.is_complex(), a.dtype.is_float()):
        return a.dtype, b.dtype
    return b.dtype, a.dtype


def not_numbers(here: Point, row: OperationRow, operands: list[object]) -> CompileError:
    """`cannot compute a string / the compile-time int 2`."""
    if len(operands) == 2 and not row.symbol.isidentifier() and isinstance(here.node, syntax.Expr | syntax.AugAssign):
        nodes = (here.node, here.node)
        return mismatch(here, row.symbol, operands[0], operands[1], nodes)
    listed = " and ".join(describe(operand) for operand in operands)
    return here.error("EK0204", f"'{row.symbol}' works on numbers, not on {listed}")


def _float_division(here: Point) -> str | None:
    """The hint for `a / b` of integers: both as floats."""
    if not isinstance(here.node, syntax.Binary):
        return None
    dtype = float_of(here.frame)
    sides = [
        source_of(node, here.frame)
        if isinstance(node, syntax.Constant)
        else f"({source_of(node, here.frame)}).cast({dtype})"
        for node in (here.node.left, here.node.right)
    ]
    return f"write {' / '.join(sides)}, or `//` for a division that rounds down"


def no_row(here: Point, row: OperationRow, operand: Value) -> CompileError:
    """`/ does not work on Int32`, with what to do about it."""
    type = operand.simd
    if type.dtype.is_storage():
        wide = "float32" if type.dtype.is_float() else "int32"
        return here.error(
            "EK0250",
            f"'{row.symbol}' does not work on {type}, which is only stored and cast",
            expected="a type that computes",
            got=str(type),
            hint=f"write .cast({wide}) first, and .cast({type.dtype}) where the result is stored",
        )
    hint = HINTS.get(row.name)
    if type.dtype.is_complex():
        ordered = row.name in ("lt", "le", "gt", "ge", "min", "max", "clamp", "sign")
        text = "complex numbers have no order" if ordered else "it is for real numbers"
        hint = "work on its parts, z.real and z.imag, or on abs(z)"
        return here.error("EK0231", f"'{row.symbol}' does not work on {type}: {text}", got=str(type), hint=hint)
    if row.name == "truediv" and type.dtype.is_integral():
        hint = _float_division(here) or hint
    if row.name == "truediv" and may_have_wrapped(operand):
        hint = f"the {type} before the `/` may have wrapped: cast its terms, as in x.cast(int32), and divide by `//`"
    if hint is None and type.dtype is DType.bool and row.name in ("add", "sub", "mul"):
        added = source_of(here.node.value, here.frame) if isinstance(here.node, syntax.AugAssign) else "a > b"
        hint = f"write ({added}).cast(int64) for a condition as 1 or 0"
    if hint is None and set(row.mlir) - {"complex"} == {"float"}:
        hint = "cast to a float first"
    listed = [KIND_WORDS[kind] for kind in row.mlir if kind != "complex"]
    words = " and ".join([*([", ".join(listed[:-1])] if listed[:-1] else []), listed[-1]])
    words = words.replace("signed integers, unsigned integers", "integers")
    words = words.replace("signed integers and unsigned integers", "integers")
    return here.error(
        "EK0204", f"'{row.symbol}' works on {words}, not on {type}", expected=words, got=str(type), hint=hint
    )
