"""Says of which kind operands, results and attributes of operations may be.

See also `opcodes` (which operation takes which).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from .program import Kind, PointerType, Type

# *** kinds of types ***


def _of_numbers(test: Callable[[SIMDType], bool]) -> Callable[[Type], bool]:
    return lambda type: isinstance(type, SIMDType) and test(type)


ANY = Kind("a value", lambda type: True)
INTEGER = Kind("an Int", lambda type: type == INT)
BOOLEAN = Kind("a Bool", lambda type: type == BOOL)
POINTER = Kind("a pointer", lambda type: isinstance(type, PointerType))
NUMBER = Kind("a number or a vector", lambda type: isinstance(type, SIMDType))
SCALAR = Kind("a number", _of_numbers(lambda type: type.width == 1))
VECTOR = Kind("a vector", _of_numbers(lambda type: type.width > 1))
MASK = Kind("a Bool or a vector of them", _of_numbers(lambda type: type.dtype is DType.bool))
OFFSETS = Kind(
    "a vector of int32 or int64", _of_numbers(lambda type: type.width > 1 and type.dtype in (DType.int32, DType.int64))
)
LANE_BITS = Kind("a UInt64", lambda type: type == SIMDType(DType.uint64))
LANES = Kind("a vector of unsigned integers", _of_numbers(lambda type: type.dtype.kind == "uint"))

# *** what an attribute may be ***


def whole(low: int = 0, high: int | None = None) -> Callable[[Any], bool]:
    """A whole number from `low` on, and below `high`."""
    return lambda value: type(value) is int and low <= value and (high is None or value < high)


def numbers(*counts: int, low: int = 1) -> Callable[[Any], bool]:
    """So many whole numbers from `low` on, as one tuple."""
    size = whole(low, 1 << 31)
    return lambda value: isinstance(value, tuple) and len(value) in counts and all(map(size, value))


def one_of(*values: Any) -> Callable[[Any], bool]:
    """One of these."""
    return lambda value: value in values
