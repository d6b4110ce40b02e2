"""Takes values with parts to pieces: tuples and structs go through branches and loops part by part.

A number goes through a branch or round a loop as a value of the running program. A tuple or a struct does so with each
of its numbers; its other parts (dtypes, strings, functions, ...) are known at compile time and have to stay what they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import PointerType, Type, Value
from .compile_time import Copies, Marker, StorageType, StructType, StructValue, StubRef, is_comptime_number
from .tiles import TileProduct, TileValue

PLAIN = (str, DType, SIMDType, StructType, StubRef, Marker, StorageType, type(None))


def parts_of(value: object) -> tuple[Any, ...] | None:
    """The items of a tuple or the fields of a struct; None for a value without parts."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, Copies):
        return (value.number,)
    if isinstance(value, TileValue):
        return value.parts
    if isinstance(value, TileProduct):
        return value.tile.parts
    return value.parts if isinstance(value, StructValue) else None


def with_parts(value: object, parts: tuple[object, ...]) -> Any:
    """A value of the same kind with other parts."""
    if isinstance(value, Copies):
        return Copies(value.what, *parts)
    if isinstance(value, TileValue):
        return TileValue(value.dtype, value.layout, parts)
    if isinstance(value, TileProduct):
        return TileProduct(TileValue(value.tile.dtype, value.tile.layout, parts), value.first)
    return StructValue(value.type, parts) if isinstance(value, StructValue) else parts


def is_static(value: object, part: int) -> bool:
    """Whether a part is a field that is declared as one of Python's own types: it stays known at compile time."""
    return isinstance(value, StructValue) and value.type.is_static(part)


def same_kind(a: Any, b: Any) -> bool:
    """Whether two values are tuples of one length, or the same struct."""
    if isinstance(a, Copies) or isinstance(b, Copies):
        return isinstance(a, Copies) and isinstance(b, Copies) and a.what == b.what
    if isinstance(a, TileProduct) or isinstance(b, TileProduct):
        alike = isinstance(a, TileProduct) and isinstance(b, TileProduct)
        return alike and a.first == b.first and same_kind(a.tile, b.tile)
    if isinstance(a, TileValue) or isinstance(b, TileValue):
        alike = isinstance(a, TileValue) and isinstance(b, TileValue)
        return alike and a.dtype is b.dtype and a.layout == b.layout
    if isinstance(a, StructValue) or isinstance(b, StructValue):
        return isinstance(a, StructValue) and isinstance(b, StructValue) and a.type == b.type
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b)


def is_number(value: object) -> bool:
    """Whether a value can be one of the running program: a number, known now or not, or a pointer."""
    return isinstance(value, Value) or is_comptime_number(value)


def has_numbers(value: object) -> bool:
    """Whether a value is a number, or has one among its parts."""
    return bool(numbers_of(value))


def numbers_of(value: object, key: tuple[object, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Every number in a value, with the way to it: the key, then the numbers of the parts."""
    parts = parts_of(value)
    if parts is None:
        return [(key, value)] if is_number(value) else []
    results: list[tuple[tuple[Any, ...], Any]] = []
    for number, part in enumerate(parts):
        if not is_static(value, number):
            results += numbers_of(part, (*key, number))
    return results


def replaced(
    value: object, with_number: Callable[[tuple[object, ...], object], object], key: tuple[object, ...] = ()
) -> Any:
    """A value of the same shape with other numbers; `with_number` gets the way to each, and the number."""
    parts = parts_of(value)
    if parts is None:
        return with_number(key, value) if is_number(value) else value
    return with_parts(
        value,
        tuple(
            part if is_static(value, number) else replaced(part, with_number, (*key, number))
            for number, part in enumerate(parts)
        ),
    )


def same_shape(a: object, b: object) -> bool:
    """Whether two values differ in their numbers alone."""
    if is_number(a) or is_number(b):
        return is_number(a) and is_number(b)
    parts, others = parts_of(a), parts_of(b)
    if parts is None or others is None:
        return same_constant(a, b)
    return same_kind(a, b) and all(
        same_constant(x, y) if is_static(a, k) else same_shape(x, y)
        for k, (x, y) in enumerate(zip(parts, others, strict=True))
    )


def same_constant(a: object, b: object) -> bool:
    """Whether two compile-time values are the same for every purpose: 1 and True are not."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Value | tuple | StructValue):
        return False
    try:
        return bool(a == b) and repr(a) == repr(b)
    except Exception:
        return False


def nothing(builder: Builder, type: Type) -> Value:
    """A placeholder value of a type, which is not read: another branch or iteration provides the real one."""
    if isinstance(type, PointerType):
        return builder.one("null_pointer", [], type)
    number = 0.0 if type.dtype.is_float() else False if type.dtype is DType.bool else 0
    return builder.const(number, type)
