"""Kernel libraries: the kernels in a file, in a folder of files, or in a package.

Loading a file imports it, once for each state of its text; packages are read without running anything. A library lists
its kernels by name and makes the portable program of one when asked.

Input: a path. Output: `KernelLibrary`. Non-goals: nothing is compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType

from .companions import Reference, shape_schema
from .errors import PackageError
from .kernel_files import import_file
from .package import Package, Variant, read_package
from .portable import PortableKernel, portable
from .register import Kernel
from .schema import OpSchema
from .variadic import expand


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel of a library.

    `variants` are its ready-made codes, when it comes from a package; `shipped` marks the kernels of built-in ops.
    `reference` is the NumPy function that stands beside it in its file, if there is one; packages have none.
    """

    schema: OpSchema
    origin: str
    override: bool
    make: Callable[[], PortableKernel] = field(repr=False)
    package: Package | None = field(default=None, repr=False)
    shipped: bool = False
    known_digest: str = ""
    reference: Reference | None = field(default=None, repr=False)

    @cached_property
    def portable(self) -> PortableKernel:
        """The portable program; made when first asked for.

        Raises:
            CompileError: the kernel is outside the language.
        """
        return self.make()

    @property
    def digest(self) -> str:
        """The program's digest; known without making the program where somebody noted it."""
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

    @cached_property
    def shape(self) -> LoadedKernel | None:
        """The kernel that computes the late dims of this one's outputs, if it has any."""
        if not self.schema.late:
            return None

        def make() -> PortableKernel:
            assert self.portable.shape is not None
            return self.portable.shape

        known = f"{self.known_digest} shape" if self.known_digest else ""
        return LoadedKernel(shape_schema(self.schema), self.origin, False, make, known_digest=known)

    @property
    def variants(self) -> tuple[Variant, ...]:
        if self.package is None:
            return ()
        return tuple(v for v in self.package.variants if v.op == self.schema.name)


@dataclass(frozen=True)
class KernelLibrary:
    """The kernels of one path, by op name."""

    path: str
    kernels: Mapping[str, LoadedKernel]


def load_library(path: str | Path) -> KernelLibrary:
    """Loads the kernels of a `.py` file, a folder of such files, or a `.pkg`.

    Raises:
        PackageError: the path does not exist, holds no kernels, or a package cannot be trusted.
        CompileError: a file is not valid Python, or a signature is wrong.
    """
    where = Path(path).resolve()
    if where.is_dir():
        return _from_files(str(path), kernel_files(where))
    if not where.exists():
        raise PackageError(
            f"there is no kernel library at '{path}'",
            code="EK0501",
            got=str(path),
            hint="custom_extensions= takes a folder of kernel files, one file, or a .pkg",
        )
    if where.suffix == ".py":
        return _from_files(str(path), [where])
    return _from_package(str(path), where)


def kernel_files(path: str | Path) -> list[Path]:
    """The Python files that a library is made of; none for a package, or where nothing is."""
    where = Path(path).resolve()
    if where.is_dir():
        return sorted(p for p in where.glob("*.py") if p.name != "__init__.py" and not p.name.startswith("."))
    return [where] if where.suffix == ".py" and where.is_file() else []


def _from_files(path: str, files: list[Path]) -> KernelLibrary:
    kernels: dict[str, LoadedKernel] = {}
    for file in files:
        for kernel in _kernels_of(import_file(file)):
            name = kernel.schema.name
            if name in kernels:
                raise PackageError(
                    f"op '{name}' is registered twice",
                    code="EK0503",
                    place=kernel.schema.place,
                    op=name,
                    notes=[f"the first one is at {kernels[name].schema.place}"],
                    hint='give one of them another name, or a namespace: @register("mine::name")',
                )
            kernels[name] = _loaded(kernel, str(file))
    if not kernels:
        raise PackageError(
            f"no kernels are registered in '{path}'",
            code="EK0502",
            got=path,
            hint='put @register("name") over a function of the file',
        )
    return KernelLibrary(path, kernels)


def library_of(module: ModuleType) -> KernelLibrary:
    """The kernels of an imported module of the standard library."""
    origin = str(module.__file__)
    kernels = {k.schema.name: _loaded(k, origin, shipped=True) for k in _kernels_of(module)}
    return KernelLibrary(origin, kernels)


def _loaded(kernel: Kernel, origin: str, shipped: bool = False) -> LoadedKernel:
    def make() -> PortableKernel:
        return portable(kernel)

    reference = kernel.numpy_reference
    return LoadedKernel(kernel.schema, origin, kernel.override, make, shipped=shipped, reference=reference)


def _from_package(path: str, file: Path) -> KernelLibrary:
    package = read_package(file)
    kernels = {}
    for record in package.ops:
        schema = record.schema

        def make(name: str = schema.name) -> PortableKernel:
            return PortableKernel.from_json(package.program(name))

        kernels[schema.name] = LoadedKernel(schema, path, False, make, package)
    return KernelLibrary(path, kernels)


def _kernels_of(module: ModuleType) -> Iterator[Kernel]:
    """The kernels that the module itself registers, not those it imports."""
    seen: set[int] = set()
    for value in vars(module).values():
        if isinstance(value, Kernel) and value.__module__ == module.__name__ and id(value) not in seen:
            seen.add(id(value))
            yield value
