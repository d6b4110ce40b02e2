"""Computes what an operation on integers, conditions and addresses gives in the lanes of a warp, where that is known.

A value is an array with an element a lane, the address of elements as a `Spot`, or None where it is not known: what is
read from memory, and floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.packing import Array
from ..ir.program import Op, PointerType, Value


@dataclass(frozen=True)
class Spot:
    """An address: bytes behind the beginning of a buffer, which the value that gives it stands for."""

    buffer: Value
    at: Array | None


Known = Array | Spot | None

_WORD: Final = (1 << 64) - 1
_ROWS: Final[Mapping[str, Callable[..., Array]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "neg": np.negative,
    "invert": np.invert,
    "not_": np.logical_not,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "floordiv": lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b)) * (b != 0),
    "mod": lambda a, b: np.remainder(a, np.where(b == 0, 1, b)) * (b != 0),
    "udiv": lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b)),
    "urem": lambda a, b: np.remainder(a, np.where(b == 0, 1, b)),
    "shl": lambda a, b: np.left_shift(a, np.clip(b, 0, 63)),
    "shr": lambda a, b: np.right_shift(a, np.clip(b, 0, 63)),
    "clamp": lambda a, low, high: np.minimum(np.maximum(a, low), high),
}


def computed(op: Op, operands: Sequence[Known], lanes: int) -> Known:
    """The first result of an operation without regions."""
    name, result = op.name, op.results[0]
    if result.dtype.is_float() and not isinstance(result.type, PointerType):
        return None
    if name == "offset":
        return moved(operands[0], operands[1], result)
    if name in ("uniform", "splat", "pointer_cast", "tensor_map"):
        return operands[0]
    if name in ("aligned", "together"):
        return np.ones(lanes, bool)  # memory of a device begins at large powers of two
    if name == "cast":
        return _cast(operands[0], result)
    if name == "select":
        return chosen(*operands)
    if name == "lanes" and all(isinstance(value, np.ndarray) for value in operands):
        return _any(operands) if result.dtype.kind == "bool" else None
    compute = _ROWS.get(name)
    numbers = [value for value in operands if isinstance(value, np.ndarray)]
    if compute is None or len(numbers) != len(operands) or result.simd.width > 1:
        return None
    with np.errstate(all="ignore"):
        found: Array = compute(*numbers)
    return found


def moved(pointer: Known, offset: Known, of: Value) -> Known:
    """An address so many elements further on."""
    if not isinstance(pointer, Spot):
        return None
    if pointer.at is None or not isinstance(offset, np.ndarray):
        return Spot(pointer.buffer, None)
    return Spot(pointer.buffer, pointer.at + offset * of.dtype.bits // 8)


def chosen(condition: Known, a: Known, b: Known) -> Known:
    """`a` in the lanes where the condition holds, else `b`; what is not known of one lane is not known."""
    if isinstance(condition, np.ndarray):
        if condition.all():
            return a
        if not condition.any():
            return b
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            result: Array = np.where(condition, a, b)
            return result
    if isinstance(a, Spot) and isinstance(b, Spot) and a.buffer is b.buffer:
        return Spot(a.buffer, None)
    return None


def constant(value: Value, lanes: int) -> Known:
    """A number that is known at compile time."""
    number = value.const
    if isinstance(number, bool):
        return np.full(lanes, number)
    if isinstance(number, int):
        return np.full(lanes, _wrapped(number), np.int64)
    return None


def _wrapped(number: int) -> int:
    word = number & _WORD
    return word - (1 << 64) if word >> 63 else word


def _cast(value: Known, result: Value) -> Known:
    if not isinstance(value, np.ndarray):
        return None
    if result.dtype.kind == "bool":
        return np.not_equal(value, 0)
    number: Array = value.astype(np.int64)
    if (bits := result.dtype.bits) < 64:
        number = number & ((1 << bits) - 1)
        if result.dtype.kind == "int":
            number = number - ((number >> (bits - 1)) << bits)
    return number


def _any(values: Sequence[Known]) -> Array:
    result: Array = np.logical_or.reduce([value for value in values if isinstance(value, np.ndarray)])
    return result
