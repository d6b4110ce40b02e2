"""Collects the portable program of a registered kernel of Python: follows names from function to function."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeVar

from ...diagnostics.collecting import Broken
from ...diagnostics.errors import CompileError, EinkornError, did_you_mean, each_of
from ...diagnostics.places import Place
from ...language import foreign_names
from ...language.annotations import SIMD, DeviceContext, Pointer
from ...language.structs import is_struct
from ...language.stubs import STUBS, Namespace, Storage, Stub, UnknownName
from ...signature.late_dims import SIZES, shape_schema
from ...signature.schema import OpSchema
from ...types.dtype import DType, SIMDType
from .. import syntax
from ..program import GlobalEntry, PortableKernel, SourceFunction
from ..reads import Reads
from .names import AlreadyReported, Unresolved
from .register import BrokenKernel, Kernel, implementation
from .statements import lines_of_head, parse_function
from .statements import text_file as text_of_function
from .structs import parse_struct
from .structs import text_file as text_of_struct


def portable(kernel: Kernel, reads: Reads | None = None) -> PortableKernel:
    """The program of a registered kernel; its mistakes say what in it is outside the language.

    `reads` is passed what its functions name around them.
    """
    collector = _Collector(reads)
    collector.begin(kernel.function)
    shape = None if kernel.shape_function is None else _shape_program(kernel.schema, kernel.shape_function, reads)
    return collector.program(kernel.schema, shape)


def as_far_as_known(broken: BrokenKernel) -> PortableKernel:
    """The program of a kernel whose signature is wrong, which is one of its mistakes."""
    collector = _Collector()
    collector.begin(broken.function)
    head = lines_of_head(broken.function)
    inside = [e for e in collector.mistakes if e.place and (e.place.file, e.place.line) not in head]
    collector.mistakes = [*(each_of(broken.error) if broken.error else ()), *inside]
    return dataclasses.replace(collector.program(broken.schema), unknown=broken.unknown)


@cache
def operator_program(name: str) -> PortableKernel:
    """The program of an operator on floats that the standard library writes; its function 0 is the operator."""
    collector = _Collector()
    collector.function(implementation(name))
    return PortableKernel(OpSchema(name, ()), collector.table(), tuple(collector.globals))


def _shape_program(schema: OpSchema, function: FunctionType, reads: Reads | None = None) -> PortableKernel:
    """The kernel around a shape function: `sizes[0], sizes[1] = function(x, y, parameter=parameter)`."""
    collector = _Collector(reads)
    collector.functions.append(_NOTHING)
    collector.begin(function)
    if collector.unusable:
        return collector.program(shape_schema(schema))
    collector.globals.append(GlobalEntry("function", 1))
    called = collector.table()[1]
    assert isinstance(called.syntax, syntax.Function)
    span, name = called.syntax.span, called.syntax.name
    out = syntax.Name(SIZES, span=span)
    targets = tuple(syntax.Subscript(out, syntax.Constant(k, span=span), span=span) for k in range(len(schema.late)))
    wanted = {param.name for param in called.syntax.params}
    keywords = tuple(
        syntax.Keyword(p.name, syntax.Name(p.name, span=span), span=span) for p in schema.parameters if p.name in wanted
    )
    call = syntax.Call(
        syntax.Global(len(collector.globals) - 1, name, span=span),
        tuple(syntax.Name(argument.name, span=span) for argument in schema.inputs),
        keywords,
        span=span,
    )
    target = targets[0] if len(targets) == 1 else syntax.Tuple(targets, span=span)
    body = (syntax.Assign(target, call, span=span),)
    collector.functions[0] = SourceFunction(syntax.Function(f"{name}_sizes", (), body, span=span), called.file)
    return collector.program(shape_schema(schema))


_NOTHING = SourceFunction(syntax.Function("", (), ()), "")


class _Collector:
    """Follows names from function to function and numbers what it reaches, in that order."""

    def __init__(self, reads: Reads | None = None) -> None:
        self.reads = Reads() if reads is None else reads
        self.functions: list[SourceFunction | None] = []
        self.globals: list[GlobalEntry] = []
        self.seen_functions: dict[object, int] = {}
        self.seen_globals: dict[tuple[str, object, str], int] = {}
        self.mistakes: list[EinkornError] = []
        self.unusable: set[int] = set()  # functions and structs that nothing can be made of, which has been noted

    def begin(self, function: FunctionType) -> None:
        """Follows what a kernel's function names."""
        try:
            self.function(function)
        except AlreadyReported:
            pass
        except CompileError as error:
            self.mistakes.append(error)

    def program(self, schema: OpSchema, shape: PortableKernel | None = None) -> PortableKernel:
        """The program of all that was reached."""
        return PortableKernel(schema, self.table(), tuple(self.globals), shape, tuple(self.mistakes))

    def table(self) -> tuple[SourceFunction, ...]:
        """All functions that were reached; an empty one for each that is unusable."""
        assert all(f is not None or k in self.unusable for k, f in enumerate(self.functions))
        return tuple(f or _NOTHING for f in self.functions)

    def function(self, function: FunctionType) -> int:
        return self.source(function, text_of_function, lambda: parse_function(function, self.resolve, self.reads))

    def struct(self, cls: type) -> int:
        """A class under `@struct`; it stands in the table of functions."""
        return self.source(cls, text_of_struct, lambda: parse_struct(cls, self.resolve, self.reads))

    def source(
        self, what: object, file_of: Callable[[Any], str], parse: Callable[[], tuple[Any, list[EinkornError]]]
    ) -> int:
        """The number of a function or a struct, which is read when it is reached first."""
        if what not in self.seen_functions:
            index = len(self.functions)
            self.seen_functions[what] = index
            self.functions.append(None)  # the place is taken before the body is read: functions may be recursive
            parsed = None
            try:
                parsed, mistakes = parse()
                self.mistakes += mistakes
            finally:
                if parsed is None:
                    self.unusable.add(index)
            if parsed is not None:
                self.functions[index] = SourceFunction(parsed, file_of(what))
        if self.seen_functions[what] in self.unusable:
            raise AlreadyReported
        return self.seen_functions[what]

    def resolve(self, value: object, name: str, place: Place) -> int:
        try:
            entry = self.entry(value, name)
        except (EinkornError, AlreadyReported, Unresolved, RecursionError):
            raise
        except Exception as error:  # raised by a class of the author's, whose object is inspected
            raise Unresolved(f"looking at it raises {type(error).__name__}") from None
        key = (entry.kind, entry.value, type(entry.value).__name__)  # 1, 1.0 and True are different constants
        if key not in self.seen_globals or entry.kind in ("constant", "instance"):
            self.seen_globals[key] = len(self.globals)
            self.globals.append(entry)
        return self.seen_globals[key]

    def members(self, cls: type) -> Iterator[tuple[str, GlobalEntry]]:
        """The public members of a class, inherited ones too, in alphabetical order."""
        for member in sorted(name for name in dir(cls) if not name.startswith("_")):
            value = inspect.getattr_static(cls, member)
            self.reads.in_class(cls, member)
            if isinstance(value, classmethod) and isinstance(value.__func__, FunctionType):
                self.reads.in_function(value.__func__)
                yield member, GlobalEntry("classmethod", self.function(value.__func__))
            else:
                yield member, self.entry(value.__func__ if isinstance(value, staticmethod) else value, member)

    def entry(self, value: Any, name: str) -> GlobalEntry:
        match value:
            case Broken():
                raise AlreadyReported(value.error)
            case UnknownName():
                raise Unresolved(value.text, did_you_mean(value.text.split("'")[-2], value.known))
            case Stub(kind="library"):
                return GlobalEntry("library", (value.name, self.function(implementation(value.name))))
            case Stub(kind="written"):
                return GlobalEntry("function", self.function(implementation(value.name)))
            case Stub():
                return GlobalEntry("stub", value.name)
            case FunctionType() if not foreign_names.is_of_arrays(value):
                self.reads.in_function(value)
                return GlobalEntry("function", self.function(value))
            case DType():
                return GlobalEntry("dtype", value)
            case SIMDType():
                return GlobalEntry("type", value)
            case TypeVar():
                return GlobalEntry("typevar", value.__name__)
            case bool() | int() | float() | complex() | str() | None:
                return GlobalEntry("constant", value)
            case tuple():
                return GlobalEntry("constant", tuple(self.entry(item, name) for item in value))
            case Storage():
                return GlobalEntry("marker", value.name)
            case Kernel():
                return GlobalEntry("function", self.function(value.function))  # called with its outputs first
            case ModuleType() | Namespace():
                raise Unresolved("it is a group of names, name one of its members")
        for marker, called in ((SIMD, "SIMD"), (Pointer, "Pointer")):
            if value is marker:
                return GlobalEntry("marker", called)
        if value is DeviceContext:
            raise Unresolved("the device context comes as an argument")
        if getattr(value, "__module__", None) == "math" and getattr(value, "__name__", None) in MATHEMATICS:
            return self.entry(STUBS[MATHEMATICS[value.__name__]], name)
        if callable(value) and (here := foreign_names.same_function(value)) is not None:
            return self.entry(STUBS[here], name)
        python = getattr(builtins, name, None) is value
        if python and name in STUBS:
            return self.entry(STUBS[name], name)
        hint = foreign_names.of_foreign(name) or foreign_names.of_object(value, name)
        if python or isinstance(value, BuiltinFunctionType):
            raise Unresolved("it is a function of Python's own, not of the kernel language", hint)
        if is_struct(value):
            return GlobalEntry("struct", self.struct(value))
        if is_struct(type(value)):
            parts = tuple(self.entry(getattr(value, field.name), name) for field in fields(value))
            return GlobalEntry("instance", (self.struct(type(value)), parts))
        if isinstance(value, type) and is_namespace(value):
            return GlobalEntry("class", (value.__name__, tuple(self.members(value))))
        if isinstance(value, type):
            text = "it is a class without @struct; kernels see structs, numbers, strings, tuples, dtypes and functions"
            raise Unresolved(text, hint)
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a NumPy scalar
            return self.entry(value.item(), name)
        what = f"it is of type {type(value).__name__}"
        raise Unresolved(f"{what}; kernels see numbers, strings, tuples, dtypes and functions", hint)


# Functions of Python's `math` that mean what functions of the language do.
MATHEMATICS: Final = {
    name: {"fabs": "abs"}.get(name, name)
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "copysign", "cos", "cosh", "erf", "erfc"),
        *("exp", "exp2", "expm1", "fabs", "hypot", "isfinite", "isinf", "isnan", "log10", "log1p", "log2", "pow"),
        *("gamma", "gcd", "lcm", "lgamma", "modf", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
    if {"fabs": "abs"}.get(name, name) in STUBS
}


def is_namespace(cls: type) -> bool:
    """Whether a class is a group of functions and constants that is never made an object of: it has static methods."""
    own = [value for base in cls.__mro__[:-1] for value in vars(base).items()]
    return any(isinstance(value, staticmethod) for _, value in own) and all(name != "__init__" for name, _ in own)
