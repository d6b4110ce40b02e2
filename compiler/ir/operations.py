"""The table of regular operations: one row each.

A row says how many operands there are, on which kinds of elements it works, what type comes out, how Python folds it at
compile time, and which MLIR operation does it. Typing, folding, emission, the reference page and the parametrised tests
all read these rows. What does not fit a row (loads, loops, launches) has a rule of its own in `rules`.

Semantics, on every target: integers wrap; `//` and `%` follow Python's signs, and dividing by zero gives 0 for
integers; a shift by the width or more shifts everything out; `min` and `max` keep NaN; comparisons with NaN are false,
except `ne`.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType, SIMDType
from . import integers

LIBRARY = "library"


@dataclass(frozen=True)
class OperationRow:
    """A regular operation.

    Attributes:
        name: the key, also the name of the stub or of Python's operator function.
        arity: how many operands, all of one type.
        mlir: the MLIR operation for each kind of element (`bool`, `int`, `uint`, `float`, `complex`) that it works on;
            an entry that starts with `=` names an expansion in `lowering`; `LIBRARY` is a function of the standard
            library, inlined, so that no such operation is in a typed program.
        fold: Python's meaning, for compile-time numbers.
        symbol: how it is written, for messages.
        result: `same` type as the operands, or `bool` of their width.
        negated, swapped: of a comparison, the ones that say the opposite, and the same with its operands exchanged.
        element: the meaning on whole numbers of a dtype, `element(dtype, *numbers)`, for rows that depend on the width
            of these are; the result wraps.
    """

    name: str
    arity: int
    mlir: Mapping[str, str]
    fold: Callable[..., Any]
    symbol: str
    result: str = "same"
    element: Callable[..., int] | None = None
    negated: str = ""
    swapped: str = ""

    def takes(self, dtype: DType) -> bool:
        """Whether it works on elements of `dtype`; nothing does on storage types, which are cast first."""
        return dtype.kind in self.mlir and not dtype.is_storage()

    def result_type(self, type: SIMDType) -> SIMDType:
        """What comes out for operands of `type`."""
        return type if self.result == "same" else type.with_dtype(DType.bool)

    def in_library(self, dtype: DType) -> bool:
        """Whether the standard library writes it on elements of `dtype`."""
        return self.mlir.get(dtype.kind) == LIBRARY


def _numbers(integer: str, floating: str, unsigned: str | None = None) -> dict[str, str]:
    return {"int": integer, "uint": unsigned or integer, "float": floating}


def _bits(op: str) -> dict[str, str]:
    return {"bool": op, "int": op, "uint": op}


def _integers(signed: str, unsigned: str | None = None) -> dict[str, str]:
    return {"int": signed, "uint": unsigned or signed}


_COMPARISONS = {
    "eq": ("==", "ne", "eq"),
    "ne": ("!=", "eq", "ne"),
    "lt": ("<", "ge", "gt"),
    "le": ("<=", "gt", "ge"),
    "gt": (">", "le", "lt"),
    "ge": (">=", "lt", "le"),
}


def _compare(name: str, predicate: str, floating: str, unsigned: str) -> OperationRow:
    kinds = {
        "int": f"arith.cmpi {predicate},",
        "uint": f"arith.cmpi {unsigned},",
        "float": f"arith.cmpf {floating},",
    }
    if name in ("eq", "ne"):
        kinds["bool"] = kinds["int"]
        kinds["complex"] = LIBRARY
    symbol, negated, swapped = _COMPARISONS[name]
    meaning = getattr(operator, name)
    return OperationRow(name, 2, kinds, meaning, symbol, result="bool", negated=negated, swapped=swapped)


def _float(
    name: str,
    op: str,
    fold: Callable[..., Any],
    arity: int = 1,
    result: str = "same",
    more: Mapping[str, str] | None = None,
) -> OperationRow:
    return OperationRow(name, arity, {"float": op, **(more or {})}, fold, name, result)


def _width(name: str, mlir: Mapping[str, str], element: Callable[..., int], arity: int = 1) -> OperationRow:
    """A row on integers whose result depends on how wide they are: what has no width has no result."""

    def fold(*operands: object) -> Any:
        if not all(isinstance(v, int) for v in operands):
            raise TypeError
        raise ValueError(f"'{name}' depends on the width of its operand; write Int32(...), or another type")

    return OperationRow(name, arity, mlir, fold, name, element=element)


def _minimum(a: float, b: float) -> float:
    return math.nan if a != a or b != b else min(a, b, key=_zero_order)


def _maximum(a: float, b: float) -> float:
    return math.nan if a != a or b != b else max(a, b, key=_zero_order)


def _ones(value: int) -> int:
    if value < 0:
        raise ValueError("a negative number has as many ones as its type is wide; write Int32(...), or another type")
    return value.bit_count()


def _distance(a: float, b: float) -> float:
    return abs(a - b)


def _clamped(value: float, low: float, high: float) -> float:
    return _minimum(_maximum(value, low), high)


def _sign(value: float) -> float:
    if value != value:
        return value
    return type(value)((value > 0) - (value < 0))


def _inverted(value: int) -> int:
    """The bits turned over; of a bool the other one, as at run time, where Python says -1 or -2."""
    return not value if isinstance(value, bool) else ~value


def _zero_order(value: float) -> tuple[float, float]:
    """-0.0 comes before 0.0, as it does at run time."""
    return value, math.copysign(1.0, value)


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    """Rounding gives a float with the sign of its operand, as at run time; whole numbers stay as they are."""

    def fold(value: float) -> float:
        if isinstance(value, int) or not math.isfinite(value):
            return value
        return math.copysign(float(function(value)), value)

    return fold


def _fused(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c  # whatever a * b would round to
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # the sign of zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _either(real: Callable[[Any], Any], of_complex: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of the numbers of Python, complex or not."""
    return lambda value: of_complex(value) if isinstance(value, complex) else real(value)


_COMPLEX = {"complex": LIBRARY}

_ROWS = (
    OperationRow("add", 2, _numbers("arith.addi", "arith.addf") | _COMPLEX, operator.add, "+"),
    OperationRow("sub", 2, _numbers("arith.subi", "arith.subf") | _COMPLEX, operator.sub, "-"),
    OperationRow("mul", 2, _numbers("arith.muli", "arith.mulf") | _COMPLEX, operator.mul, "*"),
    OperationRow("truediv", 2, {"float": "arith.divf"} | _COMPLEX, operator.truediv, "/"),
    OperationRow("floordiv", 2, _numbers("=floordiv_int", LIBRARY, "=div_uint"), operator.floordiv, "//"),
    OperationRow("mod", 2, _numbers("=mod_int", LIBRARY, "=rem_uint"), operator.mod, "%"),
    OperationRow("and_", 2, _bits("arith.andi"), operator.and_, "&"),
    OperationRow("or_", 2, _bits("arith.ori"), operator.or_, "|"),
    OperationRow("xor", 2, _bits("arith.xori"), operator.xor, "^"),
    OperationRow("shl", 2, {"int": "=shl", "uint": "=shl"}, operator.lshift, "<<"),
    OperationRow("shr", 2, {"int": "=shr_int", "uint": "=shr_uint"}, operator.rshift, ">>"),
    _compare("eq", "eq", "oeq", "eq"),
    _compare("ne", "ne", "une", "ne"),
    _compare("lt", "slt", "olt", "ult"),
    _compare("le", "sle", "ole", "ule"),
    _compare("gt", "sgt", "ogt", "ugt"),
    _compare("ge", "sge", "oge", "uge"),
    OperationRow("neg", 1, _numbers("=neg_int", "arith.negf") | _COMPLEX, operator.neg, "-"),
    OperationRow("invert", 1, _bits("=invert"), _inverted, "~"),
    OperationRow("not_", 1, {"bool": "=invert"}, operator.not_, "not"),
    OperationRow(
        "min", 2, _numbers("arith.minsi", "arith.minimumf", "arith.minui") | {"bool": "arith.andi"}, _minimum, "min"
    ),
    OperationRow(
        "max", 2, _numbers("arith.maxsi", "arith.maximumf", "arith.maxui") | {"bool": "arith.ori"}, _maximum, "max"
    ),
    OperationRow("abs", 1, _numbers("=abs_int", "llvm.intr.fabs", "=identity") | _COMPLEX, abs, "abs"),
    _float("floor", "llvm.intr.floor", _whole(math.floor)),
    _float("ceil", "llvm.intr.ceil", _whole(math.ceil)),
    _float("round", "llvm.intr.roundeven", _whole(round)),
    _float("trunc", "llvm.intr.trunc", _whole(math.trunc)),
    _float("sqrt", "llvm.intr.sqrt", _either(math.sqrt, cmath.sqrt), more=_COMPLEX),
    _float("fma", "llvm.intr.fma", _fused, arity=3),
    _float("isnan", "=isnan", _either(math.isnan, cmath.isnan), result="bool", more=_COMPLEX),
    _float("isinf", "=isinf", _either(math.isinf, cmath.isinf), result="bool", more=_COMPLEX),
    _float("isfinite", "=isfinite", _either(math.isfinite, cmath.isfinite), result="bool", more=_COMPLEX),
    _float("copysign", "llvm.intr.copysign", math.copysign, arity=2),
    OperationRow("popcount", 1, _integers("llvm.intr.ctpop"), _ones, "popcount", element=integers.popcount),
    _width("clz", _integers("=clz"), integers.leading_zeros),
    _width("ctz", _integers("=ctz"), integers.trailing_zeros),
    _width("bit_reverse", _integers("llvm.intr.bitreverse"), integers.reverse_bits),
    _width("byte_swap", _integers("=byte_swap"), integers.swap_bytes),
    _width("rotl", _integers("=rotl"), integers.rotate_left, 2),
    _width("rotr", _integers("=rotr"), integers.rotate_right, 2),
    OperationRow("bit_width", 1, {"int": "=bit_width_int", "uint": "=bit_width"}, integers.bit_width, "bit_width"),
    _width("add_sat", _integers("llvm.intr.sadd.sat", "llvm.intr.uadd.sat"), integers.add_saturating, 2),
    _width("sub_sat", _integers("llvm.intr.ssub.sat", "llvm.intr.usub.sat"), integers.subtract_saturating, 2),
    _width("mul_high", _integers("=mul_high_int", "=mul_high_uint"), integers.multiply_high, 2),
    OperationRow("avg_floor", 2, _integers("=avg_floor_int", "=avg_floor_uint"), integers.average_down, "avg_floor"),
    OperationRow("avg_ceil", 2, _integers("=avg_ceil_int", "=avg_ceil_uint"), integers.average_up, "avg_ceil"),
    OperationRow("abs_diff", 2, _numbers("=abs_diff_int", "=abs_diff_float", "=abs_diff_uint"), _distance, "abs_diff"),
    OperationRow("clamp", 3, _numbers("=clamp_int", "=clamp_float", "=clamp_uint"), _clamped, "clamp"),
    OperationRow("sign", 1, _numbers("=sign_int", "=sign_float", "=sign_uint"), _sign, "sign"),
)

ROWS: dict[str, OperationRow] = {row.name: row for row in _ROWS}
assert len(ROWS) == len(_ROWS), "a row is registered twice"

KIND_WORDS = {
    "bool": "Bool",
    "int": "signed integers",
    "uint": "unsigned integers",
    "float": "floats",
    "complex": "complex numbers",
}
