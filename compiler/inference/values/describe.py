"""Describes values in messages: `Float32`, `a tuple of 2`, `the compile-time int 3`."""

from __future__ import annotations

from ....dsl.diagnostics.errors import plural
from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from .compile_time import (
    Bound,
    ClassValue,
    Closure,
    ContextValue,
    Copies,
    FormattedValue,
    Generated,
    LibraryRef,
    LoopRange,
    Marker,
    Poisoned,
    StorageType,
    StructType,
    StructValue,
    StubRef,
    TargetValue,
    Unrolled,
)
from .index import BodyIndex
from .mbarriers import MBarriers
from .tiles import TileProduct, TileValue, TileView


def literal_text(value: object) -> str:
    """A compile-time number as messages show it: whole, unless it would fill the screen."""
    if type(value) is int and value.bit_length() > 256:
        return f"<an integer of {value.bit_length()} bits>"
    return repr(value)


def describe(value: object) -> str:
    """A value's type, for messages."""
    match value:
        case Value(weak=str() as kind):
            return f"a compile-time {kind}"
        case Value():
            return str(value.type)
        case bool() | int() | float() | complex():
            return f"the compile-time {type(value).__name__} {literal_text(value)}"
        case str():
            return "a string"
        case None:
            return "None"
        case Poisoned():
            return "unknown"
        case tuple():
            return f"a tuple of {len(value)}"
        case BodyIndex():
            return f"an index of {plural(len(value.dims), 'axis')}"
        case DType():
            return f"the dtype {value}"
        case SIMDType():
            return f"the type {value}"
        case StructValue():
            return value.type.name
        case Copies() | MBarriers() | TileProduct() | TileValue() | TileView():
            return value.words
        case StructType():
            return f"the struct '{value.name}'"
        case Closure():
            return f"the function '{value.name}'"
        case StubRef() | LibraryRef():
            return f"the function '{value.name}'"
        case Marker(name="SIMD"):
            return "SIMD without its dtype and width"
        case Marker():
            return f"'{value.name}' without its dtype"
        case StorageType():
            return f"{value.name}[{value.dtype}] without its sizes"
        case LoopRange():
            return "a range"
        case Unrolled():
            return "an unrolled range"
        case Generated():
            return "a generator expression"
        case FormattedValue():
            return "an f-string of run-time values"
        case slice():
            return "a slice"
        case ClassValue():
            return f"the class '{value.name}'"
        case TargetValue() | ContextValue():
            return "the target" if isinstance(value, TargetValue) else "the device context"
        case Bound():
            return f"the method '{value.name}'"
    name = getattr(value, "name", None)
    return f"the tensor '{name}'" if hasattr(value, "dims") else f"a {type(value).__name__}"
