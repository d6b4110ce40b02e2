"""What the operations of the language mean, in NumPy and exact arithmetic.

Independent of the compiler: integers through Python's own, fused and narrowing operations through fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


def wrap(values: Any, dtype: np.dtype[Any]) -> Array:
    """Python's integers as elements of a fixed-width type."""
    bits = dtype.itemsize * 8
    low = np.iinfo(dtype).min
    return np.array([(int(v) - low) % (1 << bits) + low for v in np.asarray(values, object).reshape(-1)], dtype)


def integer(op: Callable[[int, int], int]) -> Callable[[Array, Array], Array]:
    """An operation of Python's, wrapped."""

    def apply(x: Array, y: Array) -> Array:
        return wrap([op(int(a), int(b)) for a, b in zip(x, y, strict=True)], x.dtype)

    return apply


def shift_left(x: Array, y: Array) -> Array:
    bits = x.dtype.itemsize * 8
    return wrap([int(a) << int(b) if 0 <= b < bits else 0 for a, b in zip(x, y, strict=True)], x.dtype)


def shift_right(x: Array, y: Array) -> Array:
    bits = x.dtype.itemsize * 8
    return wrap([int(a) >> (int(b) if 0 <= b < bits else bits) for a, b in zip(x, y, strict=True)], x.dtype)


INTEGER_ROWS: dict[str, Callable[[Array, Array], Array]] = {
    "add": integer(lambda a, b: a + b),
    "sub": integer(lambda a, b: a - b),
    "mul": integer(lambda a, b: a * b),
    "floordiv": integer(lambda a, b: a // b if b else 0),
    "mod": integer(lambda a, b: a % b if b else 0),
    "and_": integer(lambda a, b: a & b),
    "or_": integer(lambda a, b: a | b),
    "xor": integer(lambda a, b: a ^ b),
    "shl": shift_left,
    "shr": shift_right,
    "neg": integer(lambda a, b: -a),
    "invert": integer(lambda a, b: ~a),
    "min": integer(min),
    "max": integer(max),
    "abs": integer(lambda a, b: abs(a)),
}


def quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """NumPy warns of NaN in comparisons of some types."""

    def apply(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*operands)

    return apply


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": quiet(lambda x, y: x == y),
    "ne": quiet(lambda x, y: x != y),
    "lt": quiet(lambda x, y: x < y),
    "le": quiet(lambda x, y: x <= y),
    "gt": quiet(lambda x, y: x > y),
    "ge": quiet(lambda x, y: x >= y),
}

BOOL_ROWS: dict[str, Callable[[Array, Array], Array]] = {
    "and_": lambda x, y: x & y,
    "or_": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "invert": lambda x, y: ~x,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "min": lambda x, y: x & y,
    "max": lambda x, y: x | y,
    "not_": lambda x, y: ~x,
}


# *** floats; half types compute in float32 ***


def modulo(x: Array, y: Array) -> Array:
    """Python's `%`: the sign of y."""
    rest = np.fmod(x, y)
    shifted = np.where((rest < 0) != (y < 0), rest + y, rest)
    return np.where(rest == 0, np.copysign(np.zeros_like(x), y), shifted)


def floor_divide(x: Array, y: Array) -> Array:
    """Python's `//`, step by step as CPython does it; by zero, what `/` gives."""
    rest = np.fmod(x, y)
    quotient = (x - rest) / y
    quotient = np.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    floored = np.floor(quotient)
    floored = np.where(quotient - floored > 0.5, floored + 1, floored)
    floored = np.where(quotient == 0, np.copysign(np.zeros_like(x), x / y), floored)
    return np.where(y == 0, x / y, floored).astype(x.dtype)


def extreme(smaller: bool) -> Callable[[Array, Array], Array]:
    """NaN wins; -0.0 is smaller than 0.0."""

    def apply(x: Array, y: Array) -> Array:
        x_first = (x < y) | ((x == y) & np.signbit(x))
        chosen = np.where(x_first == smaller, x, y)
        return np.where(np.isnan(x) | np.isnan(y), np.nan, chosen).astype(x.dtype)

    return apply


def rounded(value: Fraction, dtype: Any) -> float:
    """A rational number rounded once, to nearest, ties to even."""
    info = ml_dtypes.finfo(dtype)
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    whole = round(size / quantum) * quantum
    result = math.inf if whole >= Fraction(2) ** int(info.maxexp) else float(whole)
    return result if value > 0 else -result


def narrowed(values: Array, dtype: Any) -> Array:
    """Floats or integers rounded once to a float type."""

    def one(v: Any) -> float:
        number = v if isinstance(v, int) else float(v)
        if isinstance(number, float) and (not math.isfinite(number) or number == 0):
            return number
        return rounded(Fraction(number), dtype)

    return np.array([one(v) for v in np.asarray(values).tolist()], np.float64).astype(dtype)


def fused(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` rounded once."""

    def one(a: float, b: float, c: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b + c
        if not math.isfinite(c):
            return c
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact:
            return rounded(exact, x.dtype)
        sign = math.copysign(1, a) * math.copysign(1, b)  # the signs of zeros add up as those of a sum do
        if a * b == 0 or a == 0 or b == 0:
            return math.copysign(0.0, sign) + c
        return 0.0

    triples = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    return np.array([one(*t) for t in triples], np.float64).astype(x.dtype)


FLOAT_ROWS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "add": lambda x, y, z: x + y,
    "sub": lambda x, y, z: x - y,
    "mul": lambda x, y, z: x * y,
    "truediv": lambda x, y, z: x / y,
    "floordiv": lambda x, y, z: floor_divide(x, y),
    "mod": lambda x, y, z: modulo(x, y),
    "fmod": lambda x, y, z: np.fmod(x, y),
    "neg": lambda x, y, z: -x,
    "min": lambda x, y, z: extreme(True)(x, y),
    "max": lambda x, y, z: extreme(False)(x, y),
    "abs": lambda x, y, z: np.abs(x),
    "floor": lambda x, y, z: np.floor(x),
    "ceil": lambda x, y, z: np.ceil(x),
    "round": lambda x, y, z: np.rint(x),
    "trunc": lambda x, y, z: np.trunc(x),
    "sqrt": lambda x, y, z: np.sqrt(x),
    "fma": fused,
}

FLOAT_TESTS: dict[str, Callable[[Array, Array], Array]] = {
    **COMPARISONS,
    "isnan": quiet(lambda x, y: np.isnan(x)),
    "isinf": quiet(lambda x, y: np.isinf(x)),
}


def float_row(name: str, x: Array, y: Array, z: Array) -> Array:
    """A row on floats of any type: half types widen, compute and round."""
    dtype = x.dtype
    if dtype.itemsize == 2:
        x, y, z = (v.astype(np.float32) for v in (x, y, z))
    with np.errstate(all="ignore"):
        return FLOAT_ROWS[name](x, y, z).astype(dtype)


# *** conversions ***


def converted(values: Array, dtype: Any) -> Array:
    """The numeric conversion of the language between any two element types."""
    to = np.dtype(dtype)
    with np.errstate(all="ignore"):
        if to == np.bool_:
            return values.astype(np.float64) != 0 if values.dtype.kind not in "iu" else values != 0
        from_float = values.dtype.kind not in "biu"
        if to.kind in "iu":
            return _saturated(values.astype(np.float64), to) if from_float else values.astype(to)
        if from_float:
            return narrowed(values.astype(np.float64), to)
        return narrowed(values.astype(np.int64) if values.dtype == np.bool_ else values, to)


def _saturated(values: Array, dtype: np.dtype[Any]) -> Array:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def one(v: float) -> int:
        if math.isnan(v):
            return 0
        if math.isinf(v):
            return high if v > 0 else low
        return min(max(math.trunc(v), low), high)

    return np.array([one(v) for v in values.tolist()], dtype)
