"""Loads kernel libraries: the kernels in a file, in a folder of files, or in a package.

Loading a file imports it, once for each state of its text; packages are read without running anything. A library lists
its kernels by name and makes the portable program of one on request.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import EinkornError, PackageError, did_you_mean, joined, without_repeats
from ..diagnostics.rich import Rich
from ..diagnostics.shield import passes_signals, raise_if_of_handler, shielded
from ..environment.compiling import compiling
from ..frontend.base import Gradient, Reference, SourceKernel
from ..frontend.caller import PICKLING, Called, show_help
from ..frontend.program import PortableKernel
from ..frontend.python.reader import kernels_of, source_of
from ..frontend.python.register import Kernel
from ..frontend.read_program import read_program
from ..frontend.readers import FRONTENDS, frontend_of, is_source, sources_in
from ..frontend.reads import Reads
from ..signature.late_dims import shape_schema
from ..signature.schema import OpSchema
from ..signature.tuning import TuningSpace
from ..signature.variadic import expand

if TYPE_CHECKING:
    from .container import Package, Variant
    from .findings import TunedCalls


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel of a library.

    `variants` are its ready-made codes, when it comes from a package; `shipped` marks the kernels of built-in ops.
    `reference` is the NumPy function that stands next to it in its file, if there is one, and `tuning` what `@autotune`
    says; packages have neither. `reads` is what its program was made of, once it is made.
    """

    schema: OpSchema
    origin: str
    make: Callable[[], PortableKernel] = field(repr=False)
    package: Package | None = field(default=None, repr=False)
    shipped: bool = False
    known_digest: str = ""
    reference: Reference | None = field(default=None, repr=False)
    gradient: Gradient | None = field(default=None, repr=False)
    reads: Reads = field(default_factory=Reads, repr=False)
    tuning: TuningSpace | None = field(default=None, repr=False)

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[object, ...] = PICKLING.get().reduced_loaded(self)
        return reduced

    @property
    def is_tuned(self) -> bool:
        """Whether there may be findings of tuning for it."""
        return self.tuning is not None or (self.package is not None and self.package.manifest.tuning is not None)

    @property
    def findings(self) -> Sequence[TunedCalls]:
        """What tuning found for it: what is in the user's cache, then what is in its package."""
        if not self.is_tuned:
            return ()
        with shielded():
            from .findings import kept  # most kernels are not tuned

        digest, name = self.portable.digest, self.schema.name
        own = () if self.package is None or self.package.manifest.tuning is None else self.package.findings
        return [*kept(digest), *(each for each in own if (each.op, each.digest) == (name, digest))]

    @cached
    @compiling
    def portable(self) -> PortableKernel:
        """The portable program; made on first use.

        Raises:
            CompileError: the kernel is outside the language.
        """
        return self.make()

    @property
    def digest(self) -> str:
        """The program's digest; known without making the program where it was noted."""
        return self.known_digest or self.portable.digest

    def expanded(self, counts: Mapping[str, int]) -> LoadedKernel:
        """The kernel for so many tensors of each variadic argument; itself if it has none."""
        if not self.schema.variadic:
            return self
        return dataclasses.replace(
            self,
            schema=expand(self.schema, counts),
            make=lambda: self.portable.expanded(counts),
            known_digest=f"{self.known_digest} {sorted(counts.items())}" if self.known_digest else "",
        )

    @cached
    def shape(self) -> LoadedKernel | None:
        """The kernel that computes the late dims of this one's outputs, if it has any."""
        if not self.schema.late:
            return None

        def make() -> PortableKernel:
            assert self.portable.shape is not None
            return self.portable.shape

        known = f"{self.known_digest} shape" if self.known_digest else ""
        return LoadedKernel(shape_schema(self.schema), self.origin, make, known_digest=known)

    @property
    def variants(self) -> tuple[Variant, ...]:
        if self.package is None:
            return ()
        return tuple(v for v in self.package.variants if v.op == self.schema.name)


@dataclass(frozen=True)
class LoadedLibrary:
    """The kernels of one path, by op name, and those with a mistake around their bodies, which can be looked at."""

    path: str
    kernels: Mapping[str, LoadedKernel]
    unusable: tuple[LoadedKernel, ...] = ()

    def choose(self, op: str | None) -> LoadedKernel:
        """The op of this name, also without its namespace where one has it; the only op where no name is given.

        Raises:
            PackageError: EK0505, there is none, or there are several.
        """
        names = list(self.kernels)
        if op is None and len(names) == 1:
            return self.kernels[names[0]]
        if op is not None and op not in self.kernels:
            ends = [name for name in names if name.rpartition("::")[2] == op]
            op = ends[0] if len(ends) == 1 else op
        if op is None or op not in self.kernels:
            given = f"write --op {min(names)}, or op={min(names)!r} in Python"
            raise PackageError(
                f"'{self.path}' has no op '{op}'" if op else f"'{self.path}' has several ops, name one",
                code="EK0505",
                got=op,
                expected=names,
                notes=[f"it has {', '.join(sorted(names))}"],
                hint=did_you_mean(op, names) if op else given,
            )
        return self.kernels[op]


KERNELS = "kernels"  # the folder of kernel files in a project


@passes_signals
def load_library(path: str | Path, collected: list[EinkornError] | None = None) -> LoadedLibrary:
    """Loads the kernels of a file that a frontend reads, a folder of such files, or a `.pkg`.

    With `collected`, mistakes of files are added there, and the library has the remaining kernels.

    Raises:
        PackageError: the path does not exist, holds no kernels, or a package cannot be trusted.
        CompileError: without `collected`: a file is not valid Python, or a signature is wrong; all of them together.
    """
    where = _existing(path)
    if where is None:
        suffixes = ", ".join(FRONTENDS)
        raise PackageError(
            f"no kernel library at '{path}'",
            code="EK0501",
            got=str(path),
            hint=f"a kernel library is a folder of kernel files, one such file ({suffixes}), or a package (.pkg)",
        )
    if where.is_dir():
        if not os.access(where, os.R_OK | os.X_OK):
            raise PackageError(f"the folder '{path}' cannot be read: Permission denied", code="EK0501", got=str(path))
        # Where nothing registers kernels, mistakes that kept a file from being read are worth more than that.
        files = kernel_files(where) or [file for file in _candidates(where) if frontend_of(file).is_broken(file)]
        return _from_files(str(path), files, collected)
    if is_source(where):
        return _from_files(str(path), [where], collected)
    return _from_package(str(path), where)


def kernel_files(path: str | Path) -> list[Path]:
    """The source files that a library is made of; none for a package, or where nothing is.

    Of a folder these are the files that hold kernels, as their frontends find. If it has none, and a folder `kernels`
    as `einkorn new` makes it, they are the files of that.
    """
    where = _existing(path)
    if where is None:
        return []
    if where.is_dir():
        return [file for file in _candidates(where) if frontend_of(file).holds_kernels(file)]
    return [where] if is_source(where) and where.is_file() else []


def _candidates(folder: Path) -> list[Path]:
    """The files of a folder that may hold kernels; of its folder `kernels`, where it has none itself."""
    files, below = sources_in(folder), folder / KERNELS
    if below.is_dir() and not any(frontend_of(file).holds_kernels(file) for file in files):
        files += sources_in(below)
    return files


def _existing(path: str | Path) -> Path | None:
    """Where a path leads, if that is a folder or a file; an empty text is not a name of the folder that one is in."""
    try:
        where = Path(path).resolve() if str(path) else None
        return where if where is not None and (where.is_dir() or where.is_file()) else None
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, links in a circle, a NUL
        raise_if_of_handler(error)
        return None


def _from_files(path: str, files: list[Path], collected: list[EinkornError] | None) -> LoadedLibrary:
    kernels: dict[str, LoadedKernel] = {}
    mistakes: list[EinkornError] = []
    unusable: list[LoadedKernel] = []
    for file in files:
        for kernel in frontend_of(file).read(file, mistakes):
            name = kernel.schema.name
            if not kernel.usable:
                unusable.append(_loaded(kernel, str(file)))
            elif name in kernels:
                mistakes.append(_twice(kernel, kernels[name]))
                unusable.append(_loaded(kernel, str(file)))
            else:
                kernels[name] = _loaded(kernel, str(file))
    mistakes = without_repeats([*mistakes, *(e for kernel in unusable for e in kernel.portable.mistakes)], files)
    if mistakes and collected is None:
        raise joined(mistakes)
    if not kernels and not mistakes:
        where = Path(path)
        tests = [file.name for file in sources_in(where) if frontend_of(file).is_test(file)] if where.is_dir() else []
        raise PackageError(
            f"no kernels are registered in '{path}'",
            code="EK0502",
            got=path,
            notes=[f"files for tests are left out: {', '.join(tests)}"] if tests else [],
            hint='put @register("name") over a function of the file',
        )
    if collected is not None:
        collected += mistakes
    return LoadedLibrary(path, kernels, tuple(unusable))


def _twice(kernel: SourceKernel, first: LoadedKernel) -> PackageError:
    name = kernel.schema.name
    return PackageError(
        f"op '{name}' is registered twice",
        code="EK0503",
        place=kernel.schema.place,
        op=name,
        notes=[f"the first one is at {first.schema.place}"],
        hint='give one of them another name, or a namespace: @register("mine::name")',
    )


def library_of(module: ModuleType) -> LoadedLibrary:
    """The kernels of an imported module of the standard library."""
    origin = str(module.__file__)
    kernels = {kernel.schema.name: _loaded(kernel, origin, shipped=True) for kernel in kernels_of(module)}
    return LoadedLibrary(origin, kernels)


class LibraryKernel(Called, Rich):
    """A kernel of a library, as callers from outside of graphs take it: what they keep of it is kept here."""

    def __init__(self, loaded: LoadedKernel) -> None:
        self.loaded = loaded
        self.schema = loaded.schema
        self.gradient = loaded.gradient
        self.__name__ = loaded.schema.name.rpartition("::")[2]
        self.__module__ = loaded.origin
        self.calls: Any = None  # see `Kernel.calls`

    def __repr__(self) -> str:
        return f"<kernel {self.schema.name}>"


show_help(LibraryKernel)


def loaded_kernel(kernel: Called) -> LoadedKernel:
    """A kernel object as libraries hold it: the same as before, until its signature or what its functions read has
    changed."""
    if isinstance(kernel, LibraryKernel):
        return kernel.loaded
    assert isinstance(kernel, Kernel)
    known: LoadedKernel | None = kernel.loaded
    if known is None or known.schema is not kernel.schema or not known.reads.hold():
        known = kernel.loaded = _loaded(source_of(kernel), kernel.function.__code__.co_filename)
    return known


def _loaded(kernel: SourceKernel, origin: str, shipped: bool = False) -> LoadedKernel:
    return LoadedKernel(
        kernel.schema,
        origin,
        kernel.make,
        shipped=shipped,
        reference=kernel.reference,
        gradient=kernel.gradient,
        reads=kernel.reads,
        tuning=kernel.tuning,
    )


def _from_package(path: str, file: Path) -> LoadedLibrary:
    with shielded():
        from .container import read_package  # most runs read no package

    package = read_package(file)
    kernels = {}
    for record in package.ops:
        schema = record.schema

        def make(schema: OpSchema = schema) -> PortableKernel:
            return read_program(package.program(schema.name), package.program_name(schema.name), schema)

        kernels[schema.name] = LoadedKernel(schema, str(file), make, package)
    derived = [(record.schema.name, record.backward) for record in package.ops if record.backward]
    backwards = {name: LibraryKernel(kernels[name]) for _, name in derived}
    for name, backward in derived:
        gradient = Gradient(backwards[backward])
        kernels[name] = replace(kernels[name], gradient=gradient)
        if name in backwards:
            backwards[name].gradient = gradient
    return LoadedLibrary(path, kernels)
