"""Writes regular operations.

One function for each expansion that a row of the table names with `=`. Half types compute in float32 and are rounded
after every operation.

See also `lowering.casts` (casts).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.operations import ROWS
from ..ir.program import Op, Value
from .half_floats import narrow, widen
from .types import mlir_type
from .writer import EXPANSIONS, Expansion, FunctionWriter, emits, expands


@emits(*ROWS)
def _regular(w: FunctionWriter, op: Op) -> None:
    type = op.operands[0].simd
    operands = [w.name(v) for v in op.operands]
    if op.attrs.get("nsw"):
        spelling = ROWS[op.name].mlir["int"]
        w.result(op, w.op(f"{spelling} {operands[0]}, {operands[1]} overflow<nsw> : i64"))
    elif ROWS[op.name].mlir[type.dtype.kind] in _BY_POSITIVE and _is_positive(op.operands[1]):
        w.result(op, _BY_POSITIVE[ROWS[op.name].mlir[type.dtype.kind]](w, operands, type))
    else:
        w.result(op, row(w, op.name, operands, type, op.attrs.get("fastmath", NO_FLAGS)))


NO_FLAGS: frozenset[str] = frozenset()


def row(w: FunctionWriter, name: str, operands: list[str], type: SIMDType, fastmath: frozenset[str] = NO_FLAGS) -> str:
    """A regular operation on operands of one type."""
    spelling = ROWS[name].mlir[type.dtype.kind]
    if type.dtype.is_half():
        wide = type.with_dtype(DType.float32)
        operands = [widen(w, o, type) for o in operands]
        result = row(w, name, operands, wide, fastmath)
        if ROWS[name].result == "bool":
            return result
        return narrow(w, result, type)
    if spelling.startswith("="):
        return EXPANSIONS[spelling[1:]](w, operands, type)
    text = mlir_type(type)
    if spelling.startswith("llvm."):
        types = ", ".join([text] * len(operands))
        return w.op(f"{spelling}({', '.join(operands)}) : ({types}) -> {text}")
    flags = f" fastmath<{','.join(sorted(fastmath))}>" if fastmath and spelling in _FLAGGED else ""
    return w.op(f"{spelling} {', '.join(operands)}{flags} : {text}")


_FLAGGED = {"arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.negf"}


@expands("floordiv_int")
def _floordiv_int(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    quotient, rest, divisor = _divide(w, operands, type)
    lower = _signs_differ(w, rest, divisor, w.constant(0, type), type)
    return _zero_unless(w, operands[1], _lowered(w, quotient, lower, type), type)


def _floordiv_by_positive(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    """As `_floordiv_int` by more than 0, which never traps; only negative rests have another sign."""
    text = mlir_type(type)
    quotient = w.op(f"arith.divsi {operands[0]}, {operands[1]} : {text}")
    rest = w.op(f"arith.remsi {operands[0]}, {operands[1]} : {text}")
    return _lowered(w, quotient, _is_negative(w, rest, type), type)


def _lowered(w: FunctionWriter, quotient: str, lower: str, type: SIMDType) -> str:
    """A quotient towards zero, less 1 where there is a rest of another sign than the divisor."""
    less = w.op(f"arith.subi {quotient}, {w.constant(1, type)} : {mlir_type(type)}")
    return w.select(lower, less, quotient, type)


@expands("mod_int")
def _mod_int(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    _, rest, divisor = _divide(w, operands, type)
    wrong = _signs_differ(w, rest, divisor, w.constant(0, type), type)
    return _zero_unless(w, operands[1], _shifted(w, rest, divisor, wrong, type), type)


def _mod_by_positive(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    """As `_mod_int` by more than 0; see `_floordiv_by_positive`."""
    rest = w.op(f"arith.remsi {operands[0]}, {operands[1]} : {mlir_type(type)}")
    return _shifted(w, rest, operands[1], _is_negative(w, rest, type), type)


def _shifted(w: FunctionWriter, rest: str, divisor: str, wrong: str, type: SIMDType) -> str:
    """A rest, which has the sign of the dividend, plus the divisor where that gives it the divisor's sign."""
    return w.select(wrong, w.op(f"arith.addi {rest}, {divisor} : {mlir_type(type)}"), rest, type)


def _is_negative(w: FunctionWriter, number: str, type: SIMDType) -> str:
    return w.op(f"arith.cmpi slt, {number}, {w.constant(0, type)} : {mlir_type(type)}")


_BY_POSITIVE: dict[str, Expansion] = {"=floordiv_int": _floordiv_by_positive, "=mod_int": _mod_by_positive}


def _is_positive(value: Value, depth: int = 4) -> bool:
    """Whether a whole number is seen to be more than 0, as sizes are by which positions are divided."""
    if value.const is not None:
        return bool(value.const > 0)
    if value.maker is None or depth == 0:
        return False
    parts = (_is_positive(operand, depth - 1) for operand in value.maker.operands)
    match value.maker.name:
        case "max":
            return any(parts)
        case "min":
            return all(parts)
        case "mul":
            return bool(value.maker.attrs.get("nsw")) and all(parts)
    return False


def _signs_differ(w: FunctionWriter, rest: str, divisor: str, zero: str, type: SIMDType) -> str:
    """Whether there is a rest, of another sign than the divisor."""
    text = mlir_type(type)
    has_rest = w.op(f"arith.cmpi ne, {rest}, {zero} : {text}")
    mixed = w.op(f"arith.xori {rest}, {divisor} : {text}")
    differ = w.op(f"arith.cmpi slt, {mixed}, {zero} : {text}")
    return _and(w, has_rest, differ, type)


def _divide(w: FunctionWriter, operands: list[str], type: SIMDType) -> tuple[str, str, str]:
    """Quotient and remainder with a divisor that cannot trap: 0, and -1 below the smallest number, become 1."""
    number, divisor = operands
    text = mlir_type(type)
    zero, minus_one, one = (w.constant(n, type) for n in (0, -1, 1))
    smallest = w.constant(type.dtype.range[0], type)
    is_zero = w.op(f"arith.cmpi eq, {divisor}, {zero} : {text}")
    at_end = w.op(f"arith.cmpi eq, {number}, {smallest} : {text}")
    negates = w.op(f"arith.cmpi eq, {divisor}, {minus_one} : {text}")
    overflows = _and(w, at_end, negates, type)
    bad = w.op(f"arith.ori {is_zero}, {overflows} : {mlir_type(type.with_dtype(DType.bool))}")
    safe = w.select(bad, one, divisor, type)
    quotient = w.op(f"arith.divsi {number}, {safe} : {text}")
    rest = w.op(f"arith.remsi {number}, {safe} : {text}")
    return quotient, rest, safe


@expands("div_uint")
def _div_uint(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return _zero_unless(w, operands[1], _unsigned(w, "arith.divui", operands, type), type)


@expands("rem_uint")
def _rem_uint(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return _zero_unless(w, operands[1], _unsigned(w, "arith.remui", operands, type), type)


def _unsigned(w: FunctionWriter, op: str, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    zero, one = w.constant(0, type), w.constant(1, type)
    is_zero = w.op(f"arith.cmpi eq, {operands[1]}, {zero} : {text}")
    return w.op(f"{op} {operands[0]}, {w.select(is_zero, one, operands[1], type)} : {text}")


def _zero_unless(w: FunctionWriter, divisor: str, value: str, type: SIMDType) -> str:
    zero = w.constant(0, type)
    is_zero = w.op(f"arith.cmpi eq, {divisor}, {zero} : {mlir_type(type)}")
    return w.select(is_zero, zero, value, type)


def _shift(op: str) -> Expansion:
    """A shift by the width or more (or by less than 0) gives what shifting one by one would: 0, or all sign bits."""

    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        text = mlir_type(type)
        last = w.constant(type.dtype.bits - 1, type)
        inside = w.op(f"arith.cmpi ule, {operands[1]}, {last} : {text}")
        amount = w.op(f"arith.minui {operands[1]}, {last} : {text}")
        shifted = w.op(f"{op} {operands[0]}, {amount} : {text}")
        if op == "arith.shrsi":
            return shifted
        return w.select(inside, shifted, w.constant(0, type), type)

    return expand


expands("shl")(_shift("arith.shli"))
expands("shr_int")(_shift("arith.shrsi"))
expands("shr_uint")(_shift("arith.shrui"))


@expands("neg_int")
def _neg_int(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return w.op(f"arith.subi {w.constant(0, type)}, {operands[0]} : {mlir_type(type)}")


@expands("invert")
def _invert(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    ones = w.constant(True if type.dtype is DType.bool else -1, type)
    return w.op(f"arith.xori {operands[0]}, {ones} : {mlir_type(type)}")


@expands("identity")
def _identity(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return operands[0]


@expands("isnan")
def _isnan(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return w.op(f"arith.cmpf uno, {operands[0]}, {operands[0]} : {mlir_type(type)}")


@expands("isinf")
def _isinf(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    size = w.op(f"llvm.intr.fabs({operands[0]}) : ({text}) -> {text}")
    return w.op(f"arith.cmpf oeq, {size}, {w.constant(float('inf'), type)} : {text}")


def _and(w: FunctionWriter, a: str, b: str, type: SIMDType) -> str:
    return w.op(f"arith.andi {a}, {b} : {mlir_type(type.with_dtype(DType.bool))}")
