"""Defines what a name of the language is: stubs, and groups of them.

A `Stub` stands for an operation that the compiler has under the same name: a row of its table of operations, or a
rule of its own. A library stub (`exp`, `sin`, …) is written in the language itself, in the standard library. Outside a
kernel a stub only says that it belongs into one; `abs`, `max` and other names of Python's do what Python's do there,
so that `from einkorn.dsl import *` changes nothing for the rest of a file.
"""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from ..diagnostics.cached import cached
from ..diagnostics.errors import EinkornError, UnpicklableError
from ..diagnostics.extension_points import ExtensionPoint
from ..diagnostics.places import user_place

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")


class Exported:
    """An object that stands for a name of `einkorn.dsl`: pickled by that name, and the same in its copies."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _exported, (_path_of(self),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


LANGUAGE: ExtensionPoint[ModuleType] = ExtensionPoint("dsl")  # all names of the language


def exported_names() -> frozenset[str]:
    """The names of `einkorn.dsl`."""
    return frozenset(LANGUAGE.get().__all__)


def _path_of(value: object) -> tuple[str, ...]:
    """The names that lead to an object: `gpu`, `warp`."""
    groups: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), vars(LANGUAGE.get()))]
    for path, members in groups:  # which grows
        for name, member in members.items():
            if member is value:
                return (*path, name)
            if isinstance(member, Namespace):
                groups.append(((*path, name), vars(member)))
    raise UnpicklableError.of(repr(value), "it is not a name of einkorn.dsl", "import the name where it is used")


def _exported(path: tuple[str, ...]) -> Any:
    return functools.reduce(getattr, path, LANGUAGE.get())


class Stub(Exported):
    """A name of the language. `kind` is `row`, `rule`, `library` (on numbers), `written` (a function of the library as
    an author could write it) or `value` (used without a call).
    """

    def __init__(self, name: str, kind: str, function: Callable[..., Any], in_python: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.function = function
        self.in_python = in_python
        self.__doc__ = function.__doc__
        self.__name__ = name

    @cached
    def signature(self) -> inspect.Signature:
        """Its parameters; read on first use, since every process defines all the stubs."""
        result = inspect.signature(self.function)
        if not self.folds:
            return result
        return result.replace(parameters=[p for p in result.parameters.values() if p.kind is not p.VAR_POSITIONAL])

    @cached
    def operands(self) -> tuple[str, ...]:
        """The names of its parameters that are no options: those that may be given by position."""
        return tuple(name for name, p in self.signature.parameters.items() if p.kind is not p.KEYWORD_ONLY)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.in_python:
            return self.function(*args, **kwargs)
        if hasattr(builtins, self.name):
            return getattr(builtins, self.name)(*args, **kwargs)
        raise EinkornError(
            f"'{self.name}' works inside kernels only",
            code="EK0106",
            place=user_place(),
            hint="call it in a function that is compiled: one under @register, or a helper of one",
        )

    def __repr__(self) -> str:
        return f"<einkorn.dsl.{self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _stub_named, (self.name,)

    @property
    def folds(self) -> bool:
        """Whether it takes more arguments than its operation has, and combines them from the left."""
        return self.kind == "row" and self.function.__code__.co_flags & inspect.CO_VARARGS != 0


STUBS: dict[str, Stub] = {}


def _stub_named(name: str) -> Stub:
    return STUBS[name]


def stub(kind: str, name: str = "", *, in_python: bool = False) -> Callable[[F], F]:
    """Makes a name of the language of a function's name, signature and text; to a checker it stays the function.

    `in_python`: called outside of kernels, the function runs, for helpers that Python and kernels share.
    """

    def made(function: F) -> F:
        entry = Stub(name or function.__name__.rstrip("_"), kind, function, in_python)
        STUBS[entry.name] = entry
        return cast(F, entry)

    return made


def value(name: str, doc: str) -> Any:
    """A name that is used without a call."""

    def nothing() -> Any: ...

    nothing.__doc__ = doc
    return stub("value", name)(nothing)


class UnknownName:
    """A name that a group does not have: a mistake of the ops that use it, and of no others in the file."""

    def __init__(self, text: str, known: Iterable[str]) -> None:
        self.text = text
        self.known = tuple(known)

    def __getattr__(self, name: str) -> UnknownName:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


class Storage(Exported):
    """A name that makes storage of a dtype: `stack[dtype](m, n)`; `takes` shows the arguments of the second call."""

    def __init__(self, name: str, takes: str, doc: str) -> None:
        self.name = name
        self.takes = takes
        self.__doc__ = doc

    if TYPE_CHECKING:

        def __getitem__(self, item: Any) -> Callable[..., Any]: ...


class Namespace(Exported):
    """A group of names, such as `gpu`; resolved when a kernel is parsed."""

    __slots__ = ("__dict__", "_name")  # its name is none of the group's
    is_namespace = True

    def __init__(self, _name: str = "this group", **members: Any) -> None:
        self._name = _name
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> UnknownName:
        if name.startswith("_"):
            raise AttributeError(name)
        return UnknownName(f"{self._name} has no name '{name}'", vars(self))


def namespace(group: type[C]) -> type[C]:
    """Makes a group of names of a class; each of its functions is a rule, `group.function`."""
    return named_namespace(group.__name__)(group)


def named_namespace(prefix: str) -> Callable[[type[C]], type[C]]:
    """As `namespace`, for a group that stands within another one: `gpu.warp`."""

    def made(group: type[C]) -> type[C]:
        members = {name: member for name, member in vars(group).items() if not name.startswith("_")}
        for name, member in members.items():
            if isinstance(member, staticmethod):
                function = member.__func__
                kind = "written" if getattr(function, WRITTEN, False) else "rule"
                members[name] = stub(kind, f"{prefix}.{name.rstrip('_')}")(function)
        return cast(type[C], Namespace(**members, _name=f"'{prefix}'"))

    return made


WRITTEN = "_einkorn_written"


def written(function: F) -> F:
    """Marks a function of a group as one that the standard library has under `@implements`, with any arguments."""
    setattr(function, WRITTEN, True)
    return function
