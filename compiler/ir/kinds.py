"""Says of which kind operands, results and attributes of operations may be.

See also `opcodes` (which operation takes which).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from .program import PointerType, Type, TypeKind

# *** kinds of types ***


def _of_numbers(test: Callable[[SIMDType], bool]) -> Callable[[Type], bool]:
    return lambda type: isinstance(type, SIMDType) and test(type)


ANY = TypeKind("a value", lambda type: True)
INTEGER = TypeKind("an Int", lambda type: type == INT)
BOOLEAN = TypeKind("a Bool", lambda type: type == BOOL)
POINTER = TypeKind("a pointer", lambda type: isinstance(type, PointerType))
NUMBER = TypeKind("a number or a vector", lambda type: isinstance(type, SIMDType))
SCALAR = TypeKind("a number", _of_numbers(lambda type: type.width == 1))
SHOWN = TypeKind("a number or a pointer", lambda type: isinstance(type, PointerType) or type.width == 1)
VECTOR = TypeKind("a vector", _of_numbers(lambda type: type.width > 1))
MASK = TypeKind("a Bool or a vector of them", _of_numbers(lambda type: type.dtype is DType.bool))
OFFSETS = TypeKind(
    "a vector of int32 or int64", _of_numbers(lambda type: type.width > 1 and type.dtype in (DType.int32, DType.int64))
)
LANE_BITS = TypeKind("a UInt64", lambda type: type == SIMDType(DType.uint64))
LANES = TypeKind("a vector of unsigned integers", _of_numbers(lambda type: type.dtype.kind == "uint"))

# *** what an attribute may be ***


def whole(low: int = 0, high: int | None = None) -> Callable[[Any], bool]:
    """A whole number from `low` on, and below `high`."""
    return lambda value: type(value) is int and low <= value and (high is None or value < high)


def numbers(*counts: int, low: int = 1) -> Callable[[Any], bool]:
    """So many whole numbers from `low` on, as one tuple."""
    size = whole(low, 1 << 31)
    return lambda value: isinstance(value, tuple) and len(value) in counts and all(map(size, value))


def one_of(*values: object) -> Callable[[Any], bool]:
    """One of these."""
    return lambda value: value in values
