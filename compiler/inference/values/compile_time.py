"""What an expression can be while a kernel is evaluated at compile time.

Run-time values are `program.Value`. Everything else here exists only during compilation: Python's own numbers, strings
and tuples stand for themselves; closures, stubs, types, index tuples and loop ranges have a class each.

Input: nothing. Output: these classes and `describe`, which names a value's type the way the author thinks of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....dsl.diagnostics.errors import CompileError, plural
from ....dsl.diagnostics.places import Place
from ....dsl.frontend import syntax
from ....dsl.frontend.program import PortableKernel
from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Builder, Location, Value
from ..recovery import Poisoned


@dataclass(eq=False)
class Frame:
    """One activation of a function: its variables, and what its kernel instance fixes."""

    env: dict[str, Any]
    program: PortableKernel
    file: str
    typevars: dict[str, DType]
    caller: Location | None
    path: tuple[int, ...]
    stack: tuple[syntax.Node, ...] = ()
    origins: dict[str, Place] = field(default_factory=dict)
    end: str = "function"  # what comes after the statement that is being evaluated; see `Evaluator.block`
    given: tuple[tuple[str, Any], ...] = ()  # the arguments of a call, for messages

    def place(self, node: syntax.Node) -> Place:
        return Place(self.file, *node.span)

    def location(self, node: syntax.Node) -> Location:
        name = function_name(self.stack[-1]) if self.stack else ""
        return Location(self.place(node), self.caller, name, self.given)


def function_name(function: syntax.Node) -> str:
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


PYTHON_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


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


@dataclass(frozen=True)
class Marker:
    """`SIMD` or `stack`, waiting for its subscript."""

    name: str


@dataclass(frozen=True)
class StackType:
    """`stack[T]`, waiting for its sizes."""

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
    """A generator expression: for each item a function that computes it when it is asked for."""

    items: tuple[Callable[[], Any], ...]


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


class NeedPairs(Exception):
    """Somebody reads half a byte at the position of a flat loop: it is better taken two elements a round."""


class NeedComponents(Exception):
    """Somebody asked a linear index for its components: the loop has to be a nest after all."""


_serials = itertools.count()


class Index:
    """The index that a `foreach` body gets: one Int per axis, or one linear position over the same dims.

    A contiguous tensor of these dims is addressed by the position alone, so that elementwise work over any rank is
    one flat loop. Whoever asks for the components of a position that stands for several axes gets `NeedComponents`,
    unless the position may be taken apart (`divisible`).
    """

    def __init__(
        self,
        dims: tuple[Value, ...],
        *,
        linear: Value | None = None,
        components: tuple[Value, ...] | None = None,
        divisible: bool = False,
        unchecked: bool = False,
        flat: bool = False,
    ) -> None:
        self.serial = next(_serials)
        self.dims = dims
        self.flat = flat  # the position of a flat loop, which could as well take two elements a round
        self.linear = linear
        self.divisible = divisible
        self.unchecked = unchecked  # made of an author's numbers, which may lie outside the dims
        if components is None and len(dims) == 1 and linear is not None:
            components = (linear,)
        if components is None and not dims:
            components = ()
        self._components = components

    @property
    def is_position(self) -> bool:
        """Whether it is a position over all axes that may be taken apart, and has not been made of components."""
        return self._components is None and self.divisible

    def components(self, builder: Builder) -> tuple[Value, ...]:
        """One Int per axis."""
        if self._components is not None:
            return self._components
        if not self.divisible:
            raise NeedComponents
        assert self.linear is not None
        key = ("components", self.serial)
        found = builder.remembered(key)
        if found is None:
            found = unravel(builder, self.linear, self.dims)
            builder.remember(key, found)
        return found  # type: ignore[no-any-return]

    def position(self, builder: Builder) -> Value:
        """The row-major position over the dims."""
        if self.linear is not None:
            return self.linear
        assert self._components is not None
        key = ("position", self.serial)
        found = builder.remembered(key)
        if found is None:
            found = ravel(builder, self._components, self.dims)
            builder.remember(key, found)
        return found  # type: ignore[no-any-return]

    def ahead(self, builder: Builder, count: Value) -> Index:
        """The index of the element that lies `count` elements further on, in a row or in row-major order."""
        if self._components is None:
            assert self.linear is not None
            return Index(self.dims, linear=builder.iadd(self.linear, count), divisible=self.divisible)
        *outer, inner = self._components
        return Index(self.dims, components=(*outer, builder.iadd(inner, count)))

    def key(self) -> tuple[Any, ...]:
        """Equal for indices that are made of the same values."""
        if self._components is not None:
            return ("components", *(value_key(c) for c in self._components))
        return ("linear", self.linear and self.linear.serial, *(value_key(d) for d in self.dims))


def value_key(value: Value) -> Any:
    """Constants by their number, everything else by identity."""
    return ("const", value.const) if value.const is not None else value.serial


def same_dims(a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(value_key(x) == value_key(y) for x, y in zip(a, b, strict=True))


def unravel(builder: Builder, position: Value, dims: tuple[Value, ...]) -> tuple[Value, ...]:
    """The components of a row-major position that lies within the dims."""
    out: list[Value] = []
    rest = position
    for axis in range(len(dims) - 1, 0, -1):
        out.append(builder.irem(rest, dims[axis]))
        rest = builder.idiv(rest, dims[axis])
    if dims:
        out.append(rest)
    for component, dim in zip(reversed(out), dims, strict=True):
        if component.const is None:
            builder.live(builder.counter(component, None, dim))
    return tuple(reversed(out))


def ravel(builder: Builder, components: tuple[Value, ...], dims: tuple[Value, ...]) -> Value:
    """The row-major position of components."""
    position = builder.int_(0)
    for component, dim in zip(components, dims, strict=True):
        position = builder.iadd(builder.imul(position, dim), component)
    return position


def shown(value: Any) -> str:
    """A compile-time number as messages show it: whole, unless it would fill the screen."""
    if type(value) is int and value.bit_length() > 256:
        return f"<an integer of {value.bit_length()} bits>"
    return repr(value)


def is_comptime_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def describe(value: Any) -> str:
    """A value's type, for messages."""
    match value:
        case Value(weak=str() as kind):
            return f"a compile-time {kind}"
        case Value():
            return str(value.type)
        case bool() | int() | float():
            return f"the compile-time {type(value).__name__} {shown(value)}"
        case str():
            return "a string"
        case None:
            return "None"
        case Poisoned():
            return "unknown"
        case tuple():
            return f"a tuple of {len(value)}"
        case Index():
            return f"an index of {plural(len(value.dims), 'axis')}"
        case DType():
            return f"the dtype {value}"
        case SIMDType():
            return f"the type {value}"
        case StructValue():
            return value.type.name
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
        case StackType():
            return f"stack[{value.dtype}] without its sizes"
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
        case complex():
            return f"the complex number {value}"
        case ClassValue():
            return f"the class '{value.name}'"
        case TargetValue():
            return "the target"
        case ContextValue():
            return "the device context"
        case Bound():
            return f"the method '{value.name}'"
    name = getattr(value, "name", None)
    return f"the tensor '{name}'" if hasattr(value, "dims") else f"a {type(value).__name__}"
