"""Computes regular operations: one function each on NumPy scalars and arrays, exact to the bit.

A function here sees bool, integers, float32 and float64; half types are widened before and rounded after it
(`evaluate_row`). NaN is NaN: its sign and payload are not part of the semantics.

See also `interpreter.machine` (operations that are not rows).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dsl.types.dtype import DType
from ..ir.operations import LIBRARY, ROWS, OperationRow

Evaluate = Callable[..., Any]


def where(condition: Any, a: Any, b: Any) -> Any:
    """`np.where` that gives a scalar for scalars, which it chooses by itself: sooner than NumPy."""
    if condition.__class__ is np.bool_ and a.__class__ is b.__class__ and isinstance(a, np.generic):
        return a if condition else b
    return np.where(condition, a, b)[()]


def _unsigned(value: Any) -> Any:
    return value.view(f"u{value.dtype.itemsize}")


def _shl(a: Any, b: Any) -> Any:
    inside = _unsigned(b) < a.dtype.itemsize * 8
    return where(inside, np.left_shift(a, where(inside, b, 0)), a.dtype.type(0))


def _shr(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    inside = _unsigned(b) < bits
    if a.dtype.kind == "i":
        return np.right_shift(a, where(inside, b, bits - 1))
    return where(inside, np.right_shift(a, where(inside, b, 0)), a.dtype.type(0))


def _extreme(smaller: bool) -> Evaluate:
    """NaN wins; -0.0 is smaller than 0.0."""

    def evaluate(a: Any, b: Any) -> Any:
        a_first = (a < b) | ((a == b) & np.signbit(a))
        chosen = where(a_first == smaller, a, b)
        return where(np.isnan(a) | np.isnan(b), a.dtype.type(math.nan), chosen)

    return evaluate


def to_odd(near: Any, rest: Any) -> Any:
    """float64 numbers that stand for `near + rest` exactly, `rest` being less than half a unit of the last place.

    An inexact one becomes its neighbour with an odd last bit, so that rounding it to a narrower type gives the result
    of one rounding. (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.)
    """
    if isinstance(near, np.float64) and isinstance(rest, np.float64):
        return np.float64(_one_to_odd(float(near), float(rest)))
    inexact = (rest != 0) & np.isfinite(near) & ~np.isnan(rest)
    even = near.view(np.uint64) & np.uint64(1) == 0
    return where(inexact & even, np.nextafter(near, where(rest > 0, math.inf, -math.inf)), near)


def _one_to_odd(near: float, rest: float) -> float:
    """`to_odd` of one number: NumPy's scalars take ten times as long as Python's numbers."""
    if rest == 0 or rest != rest or not math.isfinite(near) or _BITS.unpack(_NUMBER.pack(near))[0] & 1:
        return near
    return math.nextafter(near, math.copysign(math.inf, rest))


_NUMBER, _BITS = struct.Struct("=d"), struct.Struct("=Q")
_FOLDED_FMA = np.frompyfunc(ROWS["fma"].fold, 3, 1)


def _fma(a: Any, b: Any, c: Any) -> Any:
    if a.dtype == np.float64:
        return np.asarray(_FOLDED_FMA(a, b, c)).astype(np.float64)[()]
    # The product of two float32 is exact in float64.
    if isinstance(a, np.float32) and isinstance(b, np.float32) and isinstance(c, np.float32):
        total, lost = _two_sum(float(a) * float(b), float(c))
        return np.float64(_one_to_odd(total, lost)).astype(np.float32)
    total, lost = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    return to_odd(total, lost).astype(np.float32)


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum, and what it loses (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _sign(a: Any) -> Any:
    return where(np.isnan(a), a, np.sign(a))


def _clamp(value: object, low: object, high: object) -> Any:
    return _minimum(_maximum(value, low), high)


_minimum, _maximum = _extreme(True), _extreme(False)

_BOTH: dict[str, Evaluate] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "neg": np.negative,
    "abs": np.abs,
}

# On bool and integers. What is not here is computed on Python's numbers, as its row says: slower, no less exact.
INTEGERS: dict[str, Evaluate] = _BOTH | {
    "floordiv": np.floor_divide,  # 0 for a division by 0, as ours
    "mod": np.remainder,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shl,
    "shr": _shr,
    "invert": np.invert,
    "not_": np.logical_not,
    "min": np.minimum,
    "max": np.maximum,
}

FLOATS: dict[str, Evaluate] = _BOTH | {
    "truediv": np.true_divide,
    "min": _minimum,
    "max": _maximum,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "fma": _fma,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "copysign": np.copysign,
    "abs_diff": lambda a, b: np.abs(a - b),
    "clamp": _clamp,
    "sign": _sign,
}

_unknown = set(FLOATS) ^ {name for name, row in ROWS.items() if row.mlir.get("float", LIBRARY) != LIBRARY}
assert not _unknown, f"rows on floats that the interpreter does not evaluate, or evaluates in vain: {_unknown}"


def _by_python(row: OperationRow, dtype: DType) -> Evaluate:
    """A row on whole numbers by its meaning on Python's, wrapped."""
    numpy_type = dtype.to_numpy()
    low, modulus = dtype.range[0], 1 << dtype.bits

    def one(*operands: int) -> int:
        numbers = [int(n) for n in operands]
        result = row.fold(*numbers) if row.element is None else row.element(dtype, *numbers)
        return (int(result) - low) % modulus + low

    elementwise = np.frompyfunc(one, row.arity, 1)
    return lambda *operands: np.asarray(elementwise(*operands)).astype(numpy_type)[()]


def evaluate_row(name: str, dtype: DType) -> Evaluate:
    """The function that computes a row on operands of `dtype`."""
    if not dtype.is_float():
        return INTEGERS.get(name) or _by_python(ROWS[name], dtype)
    function = FLOATS[name]
    if not dtype.is_half():
        return function
    narrow = dtype.to_numpy()
    compares = ROWS[name].result == "bool"

    def half(*operands: Any) -> Any:
        result = function(*(v.astype(np.float32) for v in operands))
        return result if compares else result.astype(narrow)

    return half
