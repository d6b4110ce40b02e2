"""Gives values their declared types: checks them against an annotation, or adopts what it says.

An annotation is a scalar or vector type, a dtype, a type variable, a struct, `tuple[...]`, or one of Python's own
types, which stand for compile-time values. `Floating`, `Index`, `AnyTensor` and the other kinds, and `A | B`, refuse
what is no such value and convert nothing. Anything else says nothing.
"""

from __future__ import annotations

from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.language.annotations import BOUNDS
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.program import PointerType, Value
from ..conversion import coerce, weak_kind
from ..evaluator import Point
from ..exact_terms import as_written
from ..values.compile_time import (
    PYTHON_TYPES,
    Bound,
    Closure,
    Frame,
    LibraryRef,
    StructType,
    StructValue,
    StubRef,
    is_comptime_number,
)
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor

# The dtypes of which one has to be in a bound that a number of this kind, known at compile time, fits.
_HOLD = {
    "bool": (DType.bool,),
    "int": (DType.int64, DType.float64, DType.complex128),
    "float": (DType.float64, DType.complex128),
    "complex": (DType.complex128,),
}


def as_declared(here: Point, annotation: s.Expr, value: object, home: Frame, what: str) -> Any:
    """`value` as the annotation wants it; `home` is where the annotation's names are known.

    A type variable that is not known yet takes the dtype of the value: `home.typevars` has it from then on.
    """
    if isinstance(annotation, s.Kind | s.OneOf):
        if not fits(here, annotation, value, home):
            text = f"{what} {spelled(annotation)}, not {describe(value)}"
            hint = "write tuple[Index, ...], or no annotation" if isinstance(value, BodyIndex) else None
            raise here.error("EK0202", text, label=describe(value), hint=hint)
        return value
    if isinstance(annotation, s.TupleOf):
        return _tuple_of(here, annotation, value, home, what)
    variable = typevar_in(annotation, home)
    if variable is not None and home is not here.frame:  # a call gives it its dtype
        if variable not in home.typevars and isinstance(value, Value) and value.weak is None:
            home.typevars[variable] = value.dtype
        if variable not in home.typevars:
            return value
    if variable is not None and isinstance(annotation, s.Global):
        here.evaluator.expr(annotation, home)
        typed = _of_typevar(here, variable, value, home, what)
        return as_written(here, typed) if home is here.frame and isinstance(typed, Value) else typed
    if isinstance(annotation, s.Subscript) and _is_marker(annotation.value, home, "Pointer"):
        return _pointer(here, annotation, value, home, what)
    if _is_tuple(annotation, home):
        return _tuple(here, annotation, value, home, what)
    type = here.evaluator.expr(annotation, home)
    if isinstance(type, DType):
        type = SIMDType(type)
    if isinstance(type, SIMDType) and not isinstance(value, BodyIndex):
        return as_written(here, coerce(here, value, type, f"{what} {type}"))
    if isinstance(type, StructType) and not (isinstance(value, StructValue) and value.type == type):
        raise here.error("EK0202", f"{what} {type.name}, not {describe(value)}", label=describe(value))
    return value


def fits(here: Point, annotation: s.Expr, value: object, home: Frame) -> bool:
    """Whether a value is what an annotation says; a compile-time number fits the types that hold it."""
    match annotation:
        case s.Kind():
            return _is_of_kind(annotation.name, value)
        case s.OneOf():
            return any(fits(here, member, value, home) for member in annotation.members)
        case s.TupleOf():
            items = _items(value)
            parts = annotation.items * len(items) if annotation.repeated else annotation.items
            return (
                isinstance(value, tuple | BodyIndex)
                and len(parts) == len(items)
                and all(fits(here, part, item, home) for part, item in zip(parts, items, strict=True))
            )
        case s.Constant():
            return value is None
        case s.Subscript() if _is_tuple(annotation, home):
            parts = annotation.index.items if isinstance(annotation.index, s.Tuple) else (annotation.index,)
            return fits(here, s.TupleOf(tuple(parts), False), value, home)
        case s.Subscript() if _is_marker(annotation.value, home, "Pointer"):
            return isinstance(value, Value) and isinstance(value.type, PointerType)
    entry = home.program.globals[annotation.index] if isinstance(annotation, s.Global) else None
    if entry is not None and entry.kind == "stub":
        wanted = PYTHON_TYPES.get(entry.value)
        return wanted is None or type(value) is wanted or (isinstance(value, Value) and value.weak == entry.value)
    if entry is not None and entry.kind == "typevar":
        return is_number(value)
    type_ = here.evaluator.expr(annotation, home)
    type_ = SIMDType(type_) if isinstance(type_, DType) else type_
    if isinstance(type_, StructType):
        return isinstance(value, StructValue) and value.type == type_
    if isinstance(value, BodyIndex):
        return len(value.dims) == 1 and type_ == INT
    return weak_kind(value) is not None or (isinstance(value, Value) and value.type == type_)


def is_number(value: object) -> bool:
    """Whether a value is a number or a vector, or the index of one axis."""
    if isinstance(value, BodyIndex):
        return len(value.dims) == 1
    return is_comptime_number(value) or (isinstance(value, Value) and isinstance(value.type, SIMDType))


_DTYPES = {bound.__name__: frozenset(bound.dtypes) for bound in BOUNDS}


def _is_of_kind(kind: str, value: Any) -> bool:
    """Whether a value is of a kind of `kinds.KINDS`."""
    match kind:
        case "Callable":
            return isinstance(value, Closure | StubRef | LibraryRef | Bound | StructType | DType | SIMDType)
        case "AnyDType":
            return isinstance(value, DType | SIMDType)
        case "AnyTensor":
            return isinstance(value, KernelTensor)
        case "Parts":
            return is_number(value) or isinstance(value, tuple | StructValue | BodyIndex)
        case "Index":
            whole = isinstance(value, Value) and value.dtype.is_integral() and value.type == SIMDType(value.dtype)
            return type(value) is int or whole or (isinstance(value, BodyIndex) and len(value.dims) == 1)
    if not is_number(value):
        return False
    if (weak := weak_kind(value)) is not None:
        return any(dtype in _DTYPES[kind] for dtype in _HOLD[weak])
    dtype = DType.int64 if isinstance(value, BodyIndex) else value.dtype
    return dtype in _DTYPES[kind]


def spelled(annotation: s.Expr) -> str:
    """An annotation as it was written."""
    match annotation:
        case s.OneOf():
            return " or ".join(spelled(member) for member in annotation.members)
        case s.TupleOf():
            return f"tuple[{', '.join(map(spelled, annotation.items))}{', ...' if annotation.repeated else ''}]"
        case s.Subscript():
            parts = annotation.index.items if isinstance(annotation.index, s.Tuple) else (annotation.index,)
            return f"{spelled(annotation.value)}[{', '.join(map(spelled, parts))}]"
        case s.Constant():
            return repr(annotation.value)
    return str(getattr(annotation, "name", "a type"))


def _items(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else value.dims if isinstance(value, BodyIndex) else ()


def _tuple_of(here: Point, annotation: s.TupleOf, value: object, home: Frame, what: str) -> Any:
    """A tuple whose parts are as their annotations say; the index of a `foreach` stays what it is."""
    length = len(_items(value))
    wanted = length if annotation.repeated else len(annotation.items)
    if not isinstance(value, tuple | BodyIndex) or length != wanted:
        number = "" if annotation.repeated else f" of {wanted}"
        raise here.error("EK0202", f"{what} a tuple{number}, not {describe(value)}", label=describe(value))
    if isinstance(value, BodyIndex):
        return value
    parts = annotation.items * length if annotation.repeated else annotation.items
    return tuple(
        as_declared(here, part, item, home, f"item {number} of what {what}")
        for number, (part, item) in enumerate(zip(parts, value, strict=True))
    )


def of_python_type(here: Point, annotation: s.Expr, value: object, home: Frame, what: str) -> bool:
    """Whether a field is declared as one of Python's own types; refuses a value that is none of that type."""
    entry = home.program.globals[annotation.index] if isinstance(annotation, s.Global) else None
    if entry is None or entry.kind != "stub" or entry.value not in PYTHON_TYPES:
        return False
    wanted = PYTHON_TYPES[entry.value]
    if type(value) is not wanted:
        hint = None
        if isinstance(value, Value):
            hint = f"{entry.value} is a compile-time value; Int, Float32, … and type variables are run-time ones"
        raise here.error("EK0202", f"{what} {entry.value}, not {describe(value)}", hint=hint)
    return True


def _of_typevar(here: Point, name: str, value: object, home: Frame, what: str) -> Any:
    if not (is_comptime_number(value) or (isinstance(value, Value) and isinstance(value.type, SIMDType))):
        return value
    dtype = home.typevars[name]
    type = SIMDType(dtype)
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None:
        type = value.type.with_dtype(dtype) if value.dtype is dtype else type
    return coerce(here, value, type, f"{what} {name}, which is {type} here")


def _is_marker(annotation: s.Expr, home: Frame, name: str) -> bool:
    entry = home.program.globals[annotation.index] if isinstance(annotation, s.Global) else None
    return entry is not None and entry.kind == "marker" and entry.value == name


def _pointer(here: Point, annotation: s.Subscript, value: object, home: Frame, what: str) -> Value:
    """`Pointer[T]`: a pointer to elements of that dtype, whether or not it may be written through."""
    if not isinstance(value, Value) or not isinstance(value.type, PointerType):
        text = f"{what} a pointer, not {describe(value)}"
        hint = "x.pointer() is the address of a tensor's first element" if hasattr(value, "dims") else None
        raise here.error("EK0202", text, label=describe(value), hint=hint)
    type = here.evaluator.expr(annotation, home)
    if type.dtype is not value.dtype:
        raise here.error("EK0202", f"{what} {type}, not {describe(value)}", label=describe(value))
    return value


def _is_tuple(annotation: s.Expr, home: Frame) -> bool:
    if not isinstance(annotation, s.Subscript) or not isinstance(annotation.value, s.Global):
        return False
    entry = home.program.globals[annotation.value.index]
    return entry.kind == "stub" and entry.value == "tuple"


def _tuple(here: Point, annotation: s.Expr, value: object, home: Frame, what: str) -> Any:
    assert isinstance(annotation, s.Subscript)
    index = annotation.index
    wanted = index.items if isinstance(index, s.Tuple) else (index,)
    if not isinstance(value, tuple) or len(value) != len(wanted):
        raise here.error("EK0202", f"{what} a tuple of {len(wanted)}, not {describe(value)}")
    return tuple(
        as_declared(here, part, item, home, f"item {number} of what {what}")
        for number, (part, item) in enumerate(zip(wanted, value, strict=True))
    )


def typevar_in(annotation: s.Expr, home: Frame) -> str | None:
    """The type variable of an annotation: `T`, or the one in `SIMD[T, 8]` or `Pointer[T]`."""
    if isinstance(annotation, s.Subscript) and isinstance(annotation.value, s.Global):
        marker = home.program.globals[annotation.value.index].value
        if marker == "SIMD" and isinstance(annotation.index, s.Tuple) and annotation.index.items:
            return typevar_in(annotation.index.items[0], home)
        if marker == "Pointer":
            return typevar_in(annotation.index, home)
    if isinstance(annotation, s.Global):
        entry = home.program.globals[annotation.index]
        if entry.kind == "typevar":
            return str(entry.value)
    return None
