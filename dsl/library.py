"""Kernel libraries: the kernels in a file, in a folder of files, or in a package.

Loading a file imports it, once for each state of its text; packages are read without running anything. A library lists
its kernels by name and makes the portable program of one when asked.

Input: a path. Output: `KernelLibrary`. Non-goals: nothing is compiled.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType

from .errors import CompileError, EinkornError, PackageError
from .package import Package, Variant, read_package
from .portable import PortableKernel, portable
from .register import Kernel
from .schema import OpSchema
from .source import Place, instruction_place


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel of a library.

    `variants` are its ready-made codes, when it comes from a package; `shipped` marks the kernels of built-in ops.
    """

    schema: OpSchema
    origin: str
    override: bool
    make: Callable[[], PortableKernel] = field(repr=False)
    package: Package | None = field(default=None, repr=False)
    shipped: bool = False
    known_digest: str = ""

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
        files = sorted(p for p in where.glob("*.py") if p.name != "__init__.py" and not p.name.startswith("."))
        return _from_files(str(path), where, files)
    if not where.exists():
        raise PackageError(
            f"there is no kernel library at '{path}'",
            code="EK0501",
            got=str(path),
            hint="custom_extensions= takes a folder of kernel files, one file, or a .pkg",
        )
    if where.suffix == ".py":
        return _from_files(str(path), where.parent, [where])
    return _from_package(str(path), where)


def _from_files(path: str, folder: Path, files: list[Path]) -> KernelLibrary:
    kernels: dict[str, LoadedKernel] = {}
    for file in files:
        for kernel in _kernels_of(import_file(file, folder)):
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
            kernels[name] = LoadedKernel(kernel.schema, str(file), kernel.override, _maker(kernel))
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
    kernels = {
        k.schema.name: LoadedKernel(k.schema, origin, k.override, _maker(k), shipped=True) for k in _kernels_of(module)
    }
    return KernelLibrary(origin, kernels)


def _maker(kernel: Kernel) -> Callable[[], PortableKernel]:
    return lambda: portable(kernel)


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


_IMPORTED: dict[tuple[str, int, int], ModuleType] = {}


def import_file(file: Path, folder: Path) -> ModuleType:
    """Imports a kernel file; its neighbours in `folder` can be imported by their plain names meanwhile.

    Raises:
        CompileError: the file is not valid Python, or importing it fails.
    """
    stat = file.stat()
    key = (str(file), stat.st_mtime_ns, stat.st_size)
    if key in _IMPORTED:
        return _IMPORTED[key]
    package = _dotted_name(file)
    if package is None:
        module = _execute(file, folder, f"_einkorn_kernels_{file.stem}_{len(_IMPORTED)}")
    else:
        root, name = package
        with _neighbours(root), _located(file):
            module = importlib.import_module(name)
    _IMPORTED[key] = module
    return module


def _dotted_name(file: Path) -> tuple[Path, str] | None:
    """For a file of a package: the folder that the package lies in, and the module's dotted name."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.append(folder.name)
        folder = folder.parent
    return (folder, ".".join(reversed(parts))) if len(parts) > 1 else None


def _execute(file: Path, folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _neighbours(folder), _located(file):
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    return module


@contextmanager
def _located(file: Path) -> Iterator[None]:
    """Turns what importing a kernel file raises into an error at its place."""
    try:
        yield
    except EinkornError as error:
        if error.place is None:
            error.place = _place_of(error, file)
        raise
    except RecursionError as error:
        raise CompileError("this file is nested too deeply", code="EK0112", place=_place_of(error, file)) from None
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, error.end_offset or column + 1
        raise CompileError(
            f"this is not valid Python: {error.msg}",
            code="EK0100",
            place=Place(error.filename or str(file), line, column, end_line, max(end_column, column + 1)),
        ) from None
    except (Exception, SystemExit) as error:
        raise CompileError(
            f"importing this kernel file failed: {type(error).__name__}: {error}",
            code="EK0110",
            place=_place_of(error, file),
        ) from error


def _place_of(error: BaseException, file: Path) -> Place:
    """The deepest frame of the traceback that lies in the file."""
    place = Place(str(file), 1)
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == str(file):
            place = instruction_place(code, traceback.tb_lasti, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place


@contextmanager
def _neighbours(folder: Path) -> Iterator[None]:
    """Makes the files beside a kernel file importable by plain name, and forgets them afterwards.

    Two libraries may both have a `helpers.py`: each has to get its own.
    """
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            found = getattr(sys.modules[name], "__file__", None)
            if found and "." not in name and Path(found).parent == folder:
                del sys.modules[name]
