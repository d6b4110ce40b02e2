"""Makes the ops of a library attributes of one object: `einkorn.load("my.pkg").rope(x)`.

See also `library` (reading of files), `frontend.caller` (what a call does).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from ..diagnostics.errors import OpAttributeError, OpKeyError, PackageError, did_you_mean
from ..diagnostics.places import shown_path, user_place
from ..environment.tracebacks import placed
from .library import LibraryKernel, LoadedKernel, LoadedLibrary, load_library

_SEPARATOR = "::"


class OpNamespace:
    """The ops of a library that are registered as `"prefix::name"`; an op is an attribute.

    Names of ops and of further namespaces are attributes. An op of a deeper namespace is an attribute, too, where it is
    the only one of that name: `"mine::rope"` is `library.mine.rope` and `library.rope`.
    """

    def __init__(self, path: str, prefix: str, ops: Mapping[str, LibraryKernel]) -> None:
        self.__path = path
        self.__prefix = prefix
        self.__ops = dict(ops)
        self.__dict__.update(_attributes(path, prefix, self.__ops))

    def __getitem__(self, name: str) -> LibraryKernel:
        """The op of this name, with its namespace or, where that is unambiguous, without it.

        Raises:
            PackageError: EK0505, there is none, or there are several. It is a `KeyError`, too.
        """
        if name in self.__ops:  # which Dynamo follows
            return self.__ops[name]
        result = self.__find(name)
        if result is None:
            _missing(OpKeyError, self.__path, name, self.__prefix, self.__ops)
        return result

    def __find(self, name: object) -> LibraryKernel | None:
        """The op of this name; None where there is none, and where there are several."""
        entry = self.__ops.get(f"{self.__prefix}{name}")
        ends = [op for full, op in self.__ops.items() if full.endswith(f"{_SEPARATOR}{name}")]
        return entry or (ends[0] if len(ends) == 1 else None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # what Python and its tools look for
            raise AttributeError(name)
        _missing(OpAttributeError, self.__path, name, self.__prefix, self.__ops)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith(f"_{OpNamespace.__name__}__"):
            raise AttributeError(f"the ops of {self!r} are those of its library: '{name}' cannot be set")
        object.__setattr__(self, name, value)

    def __iter__(self) -> Iterator[str]:
        """The full names of the ops, in alphabetical order."""
        return iter(self.__ops)

    def __len__(self) -> int:
        return len(self.__ops)

    def __contains__(self, name: object) -> bool:
        return name in self.__ops or self.__find(name) is not None

    def __dir__(self) -> Iterable[str]:
        return sorted(name for name in vars(self) if not name.startswith(f"_{OpNamespace.__name__}__"))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.__ops)

    def __repr__(self) -> str:
        what = f"namespace {self.__prefix.removesuffix(_SEPARATOR)} of" if self.__prefix else "library"
        return f"<{what} {shown_path(self.__path)}: {', '.join(self.__ops)}>"

    def __copy__(self) -> OpNamespace:
        return self

    def __deepcopy__(self, memo: object) -> OpNamespace:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.__path, self.__prefix, self.__ops)


class Library(OpNamespace):
    """The ops of a package, a folder of kernel files or one file; each is called like a function.

    `library.op_name(x)` calls an op. `library["mine::op_name"]` finds it by its full name; iteration gives these names.
    Graphs take the library as `custom_extensions=[library]`.
    """

    def __init__(self, path: str, ops: Iterable[LibraryKernel]) -> None:
        super().__init__(path, "", {op.schema.name: op for op in ops})

    def __reduce__(self) -> tuple[Any, ...]:
        return Library, (self._OpNamespace__path, [self[name] for name in self])


def kernels_in(library: OpNamespace) -> LoadedLibrary:
    """The ops of a library as graphs take them."""
    path: str = library._OpNamespace__path
    return LoadedLibrary(path, {name: library[name].loaded for name in library})


@placed
def load(path: str | os.PathLike[str]) -> Library:
    """Loads the ops of a package (`.pkg`), of a folder of kernel files, or of one such file.

    An op is an attribute that is called like a function: `load("my.pkg").rope(x)`. Packages are read without running
    anything, and need no Python sources; code that fits the machine and the call is used, and else the op is compiled.
    Each call reads the path anew; libraries that were loaded before keep their ops.

    Raises:
        PackageError: EK0501 to EK0503 the path holds no kernel library, EK0551 to EK0568 a package cannot be used.
        CompileError: a kernel file is not valid Python, or a signature is wrong.
    """
    if not isinstance(path, str | os.PathLike):
        raise PackageError(
            f"a library is loaded from a path, not from {type(path).__name__}",
            code="EK0501",
            place=user_place(),
            argument="path",
            expected="the path of a package, of a folder of kernel files or of one such file",
            got=type(path).__name__,
        )
    library = load_library(os.fspath(path))
    return Library(os.path.abspath(path), _ops(library.kernels))


def _ops(kernels: Mapping[str, LoadedKernel]) -> list[LibraryKernel]:
    return [LibraryKernel(kernels[name]) for name in sorted(kernels)]


def _attributes(path: str, prefix: str, ops: Mapping[str, LibraryKernel]) -> dict[str, Any]:
    """What a namespace has: ops of deeper namespaces where their names are unique, before these namespaces, and before
    its own ops."""
    below = {name.removeprefix(prefix): op for name, op in ops.items()}
    ends = [name.rpartition(_SEPARATOR)[2] for name in below]
    results: dict[str, Any] = {end: op for end, op in zip(ends, below.values(), strict=True) if ends.count(end) == 1}
    for first in {name.partition(_SEPARATOR)[0] for name in below if _SEPARATOR in name}:
        inside = f"{prefix}{first}{_SEPARATOR}"
        results[first] = OpNamespace(path, inside, {name: op for name, op in ops.items() if name.startswith(inside)})
    return results | {name: op for name, op in below.items() if _SEPARATOR not in name}


def _missing(
    kind: type[OpKeyError | OpAttributeError], path: str, name: object, prefix: str, ops: Mapping[str, LibraryKernel]
) -> NoReturn:
    names = [full.removeprefix(prefix) for full in ops]
    several = [full for full in names if full.endswith(f"{_SEPARATOR}{name}")]
    near = did_you_mean(str(name), dict.fromkeys([*names, *(full.rpartition(_SEPARATOR)[2] for full in names)]))
    inside = f" in namespace '{prefix.removesuffix(_SEPARATOR)}'" if prefix else ""
    raise kind(
        f"'{shown_path(path)}' has several ops '{name}'{inside}: {' and '.join(several)}"
        if several
        else f"'{shown_path(path)}' has no op '{name}'{inside}",
        code="EK0505",
        place=user_place(),
        got=name,
        expected=names,
        notes=[] if several else [f"it has {', '.join(names)}"],
        hint=f'write library["{prefix}{several[0]}"]' if several else near,
    )
