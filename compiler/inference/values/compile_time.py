"""Defines what an expression can be while a kernel is evaluated.

Run-time values are `program.Value`. Everything else here exists only during compilation: Python's own numbers, strings
and tuples stand for themselves; closures, stubs, types, index tuples and loop ranges have a class each.

See also `values.describe` (their names in messages).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.errors import CompileError
from ....dsl.diagnostics.places import Place
from ....dsl.frontend import syntax
from ....dsl.frontend.program import PortableKernel
from ....dsl.types.dtype import DType
from ...ir.program import Location, Value
from ...ir.scoped import Scoped


@dataclass(eq=False)
class Frame(Scoped):
    """One activation of a function: its variables, and what its kernel instance fixes."""

    env: dict[str, Any]
    program: PortableKernel
    file: str
    typevars: dict[str, DType]
    caller: Location | None
    path: tuple[int, ...]
    stack: tuple[syntax.SyntaxNode, ...] = ()
    origins: dict[str, Place] = field(default_factory=dict)
    end: str = "function"  # what comes after the statement that is being evaluated; see `Evaluator.block`
    given: tuple[tuple[str, Any], ...] = ()  # the arguments of a call, for messages

    def runs(self, function: syntax.SyntaxNode) -> bool:
        """Whether a call of a function is being evaluated."""
        return id(function) in map(id, self.stack)

    def snapshot(self) -> Frame:
        """The frame as a closure keeps it: values as they are now, not as they will be."""
        return Frame(
            dict(self.env),
            self.program,
            self.file,
            self.typevars,
            self.caller,
            self.path,
            self.stack,
            dict(self.origins),
        )

    def place(self, node: syntax.SyntaxNode) -> Place:
        return place_of(self.file, node.span)

    def location(self, node: syntax.SyntaxNode) -> Location:
        name = function_name(self.stack[-1]) if self.stack else ""
        return Location(place_of(self.file, node.span), self.caller, name, self.given)


@lru_cache(1 << 14)
def place_of(file: str, span: syntax.Span) -> Place:
    """A place in a file; the same ones are requested over and over."""
    return Place(file, *span)


def function_name(function: syntax.SyntaxNode) -> str:
    """How Python shows a function of the author's."""
    return function.name if isinstance(function, syntax.Function) else "<lambda>"


@dataclass(eq=False)
class Closure:
    """A function of the program, with the variables around it as they were when it was made."""

    function: syntax.Function | syntax.Lambda
    frame: Frame

    @property
    def name(self) -> str:
        return self.function.name if isinstance(self.function, syntax.Function) else "lambda"


PYTHON_TYPES: dict[str, type] = {"int": int, "float": float, "complex": complex, "bool": bool, "str": str}


@dataclass(frozen=True, eq=False)
class StructType:
    """A class under `@struct`; `frame` is where the names in its text are known."""

    syntax: syntax.Struct
    frame: Frame

    @property
    def name(self) -> str:
        return self.syntax.name

    def is_static(self, part: int) -> bool:
        """Whether a field is declared as `int`, `float`, `bool` or `str`: its value is known at compile time."""
        annotation = self.syntax.fields[part].annotation
        if not isinstance(annotation, syntax.Global):
            return False
        entry = self.frame.program.globals[annotation.index]
        return entry.kind == "stub" and entry.value in PYTHON_TYPES

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructType) and other.syntax is self.syntax

    def __hash__(self) -> int:
        return hash(id(self.syntax))


@dataclass(frozen=True, eq=False)
class StructValue:
    """A struct: one value for each field, in their order."""

    type: StructType
    parts: tuple[Any, ...]

    def part(self, name: str) -> int | None:
        """The number of the field of this name."""
        return next((k for k, f in enumerate(self.type.syntax.fields) if f.name == name), None)


@dataclass(frozen=True)
class StubRef:
    """A name of the language."""

    name: str


@dataclass(frozen=True, eq=False)
class LibraryRef:
    """A name of the language whose meaning is a function of the standard library."""

    name: str
    closure: Closure


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies under way: one (`copy`), or a `group` of them, by a number of the running program."""

    what: str
    number: Any

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return "a copy under way" if self.what == "copy" else "a group of copies"


@dataclass(frozen=True)
class Marker:
    """`SIMD`, `stack` or `gpu.shared`, waiting for its subscript."""

    name: str


@dataclass(frozen=True)
class StorageType:
    """`stack[T]` or `gpu.shared[T]`, waiting for its sizes."""

    name: str
    dtype: DType


@dataclass(eq=False)
class Bound:
    """A method of a value, waiting for its call."""

    owner: Any
    name: str
    call: Callable[..., Any]


@dataclass(frozen=True)
class FormattedValue:
    """An f-string with run-time values in it: values and their formats, for print and assert."""

    parts: tuple[tuple[Any, str], ...]


@dataclass(frozen=True)
class LoopRange:
    """`range(...)` at run time."""

    low: Any
    high: Any
    step: Any


@dataclass(frozen=True)
class Work:
    """`gpu.work(...)`: the numbers of this block's tiles, and what gives the row and the column of one."""

    numbers: LoopRange
    place: Callable[[Value], tuple[Value, Value]]


@dataclass(frozen=True)
class Unrolled:
    """`unroll(...)`: the values, all known."""

    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ClassValue:
    """A class that groups functions and constants, such as a monoid."""

    name: str
    members: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Generated:
    """A generator expression: for each item a function that computes it when it is requested."""

    items: tuple[Callable[[], object], ...]


@dataclass(frozen=True)
class ContextValue:
    """The `ctx: DeviceContext` argument."""


@dataclass(frozen=True)
class TargetValue:
    """`ctx.target`."""


@dataclass(frozen=True)
class Undefined:
    """A variable that has no single value here: assigned in one branch only, or of two types."""

    error: Callable[[Place], CompileError]


_NUMBERS = (bool, int, float, complex)


def is_comptime_number(value: object) -> bool:
    return isinstance(value, _NUMBERS)


@dataclass(frozen=True)
class Poisoned:
    """A value that a mistake has left unknown; `runtime` when it would surely be one of the running program."""

    runtime: bool = False


def is_poisoned(values: Any) -> bool:
    """Whether one of these values is poisoned."""
    return Poisoned in map(type, values)
