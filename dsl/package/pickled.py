"""Pickles kernels: by the name of their module where that can be imported, else by their portable programs.

What is pickled holds both. A process that can import the module gets that module's kernel object, and an error where
the kernel is another one there. Elsewhere, as for kernels of `__main__`, notebooks and `kernels_of`, the program is
read and verified as one from a package is, and its kernel is called in the same ways.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..diagnostics.errors import EinkornError, PackageError
from ..diagnostics.extension_points import ExtensionPoint
from ..diagnostics.forks import fork_lock
from ..diagnostics.installation import PACKAGE
from ..diagnostics.json_reading import read_json
from ..diagnostics.places import is_shipped
from ..diagnostics.shield import raise_if_of_handler
from ..frontend.program import PortableKernel
from ..frontend.python.register import REGISTERED, Kernel
from ..frontend.read_program import read_program
from ..signature.schema import OpSchema
from ..signature.tuning import TuningSpace
from . import library
from .container import MAX_PROGRAM

MAINS = ("__main__", "__mp_main__")  # the module of this name is another one in each process
ORIGIN = "<pickle>"
SHIPPED_KERNEL: ExtensionPoint[Callable[[str, str], library.LoadedKernel]] = ExtensionPoint(
    "graph.staging.kernels", "shipped_kernel"
)
_lock = fork_lock()
_kernels: weakref.WeakValueDictionary[tuple[str, str, str], library.LibraryKernel] = weakref.WeakValueDictionary()


@dataclasses.dataclass(frozen=True)
class Named:
    """The name of a kernel: its module, its op, its digest, and the version of Einkorn that computed that."""

    module: str
    op: str
    digest: str
    version: str


Program = tuple[bytes, tuple[str, ...]]  # of a kernel: its portable program, and the files of its functions


def reduced(kernel: Kernel | library.LibraryKernel) -> tuple[Any, ...]:
    """What `kernel.__reduce__` returns.

    Raises:
        CompileError: the kernel cannot be named, and is outside the language.
    """
    loaded = library.loaded_kernel(kernel)
    if isinstance(kernel, library.LibraryKernel):
        own = kernel.gradient is not None and kernel.gradient is not loaded.gradient
        return library_kernel_of, (loaded, kernel.__module__), {"gradient": kernel.gradient} if own else None
    named = _name_of(kernel)
    if named is not None and named.module not in MAINS:
        try:
            program = _program_of(loaded)
        except EinkornError:  # the process that imports the module says what is wrong with the kernel
            return kernel_of, (named, None, None)
        return kernel_of, (named, program, loaded.tuning), _gradient(kernel, of_module=True)
    return kernel_of, (named, _program_of(loaded), loaded.tuning), _gradient(kernel, of_module=False)


def reduced_loaded(kernel: library.LoadedKernel) -> tuple[Any, ...]:
    """What `LoadedKernel.__reduce__` returns; the kernels of built-in ops are those of the process that reads it."""
    if kernel.shipped:
        return shipped_of, (Path(kernel.origin).stem, kernel.schema.name, kernel.schema.counts)
    gradient = kernel.gradient
    of_file = kernel.package is not None or (gradient is not None and not _is_kernel(gradient.compute))
    facts = (kernel.schema.name, kernel.portable.digest, kernel.tuning)
    state = None if gradient is None or of_file else {"gradient": gradient}
    return loaded_of, (_program_of(kernel), kernel.origin, of_file, *facts), state


def _is_kernel(value: object) -> bool:
    return isinstance(value, Kernel | library.LibraryKernel)


def _gradient(kernel: Kernel, of_module: bool) -> dict[str, Any] | None:
    """The state that is set when the kernel is there; a module sets the functions of its own kernels."""
    gradient = kernel.gradient
    if gradient is None or (of_module and not _is_kernel(gradient.compute)):
        return None
    return {"gradient": gradient}


def _name_of(kernel: Kernel) -> Named | None:
    """The name of a kernel; None where its module cannot be imported, or has another kernel by now."""
    function = kernel.function
    module = sys.modules.get(function.__module__)
    if module is None or "<locals>" in function.__qualname__ or not _is_importable(module):
        return None
    result = _registered(module, kernel.schema.name)
    if result is not kernel and getattr(result, "function", None) is not function:
        return None
    return Named(function.__module__, kernel.schema.name, _digest_of(kernel), _version())


def _is_importable(module: Any) -> bool:
    return module.__name__ in MAINS or getattr(module, "__spec__", None) is not None


def _registered(module: object, op: str) -> Any:
    """The kernel of an op in a module; None where there is none."""
    return next((each for each in vars(module).get(REGISTERED, ()) if each.schema.name == op), None)


def _digest_of(kernel: object) -> str:
    try:
        return library.loaded_kernel(kernel).portable.digest if isinstance(kernel, Kernel) else ""
    except EinkornError:
        return ""


def _version() -> str:
    version: str = sys.modules[PACKAGE].__version__
    return version


def _program_of(kernel: library.LoadedKernel) -> Program:
    program = kernel.portable
    text = json.dumps(program.to_json(), separators=(",", ":")).encode()
    return zlib.compress(text, 1), tuple(each.file for each in program.functions)


# *** reading ***


def kernel_of(
    named: Named | None, program: Program | None, tuning: TuningSpace | None
) -> Kernel | library.LibraryKernel:
    """The kernel that was pickled.

    Raises:
        PackageError: EK0871, the module has another kernel here; EK0510, the program is invalid.
    """
    if named is not None:
        result = _by_name(named, program)
        if result is not None:
            return result
    assert program is not None
    read = _read(program)
    loaded = library.LoadedKernel(read.schema, ORIGIN, lambda: read, tuning=tuning)
    return library_kernel_of(loaded, ORIGIN if named is None else named.module)


def library_kernel_of(loaded: library.LoadedKernel, module: str) -> library.LibraryKernel:
    """The kernel object of a kernel; the same for equal ones, as long as it is used."""
    key = (loaded.schema.name, loaded.digest, module)
    with _lock:
        known = _kernels.get(key)
        if known is None:
            known = _kernels[key] = library.LibraryKernel(loaded)
            known.__module__ = module
        return known


def _by_name(named: Named, program: Program | None) -> Kernel | None:
    """The kernel of a module that can be imported; None where it cannot."""
    if named.module in MAINS:
        return next((result for name in MAINS if (result := _of_main(sys.modules.get(name), named)) is not None), None)
    try:
        module = importlib.import_module(named.module)
    except ModuleNotFoundError as error:
        if program is None or not f"{named.module}.".startswith(f"{error.name}."):
            raise
        return None
    result = _registered(module, named.op)
    if isinstance(result, Kernel) and _says_the_same(result, named, program):
        return result
    file = getattr(module, "__file__", None) or named.module
    raise PackageError(
        f"kernel '{named.op}' was pickled by the name of module '{named.module}', "
        + ("which has no such kernel here" if result is None else "where it is another kernel here"),
        code="EK0871",
        op=named.op,
        expected=named.digest[:16],
        got=None if result is None else _digest_of(result)[:16],
        notes=[f"the module is {file}"],
        hint="use the same file in both processes, or rename the module: kernels of other modules are pickled whole",
    )


def _of_main(module: object, named: Named) -> Kernel | None:
    result = None if module is None else _registered(module, named.op)
    return result if isinstance(result, Kernel) and _digest_of(result) == named.digest else None


def _says_the_same(kernel: Kernel, named: Named, program: Program | None) -> bool:
    """Whether a kernel is the one that was pickled; digests of different versions of Einkorn do not compare."""
    if not named.digest or named.version == _version():
        return _digest_of(kernel) == named.digest
    return program is None or _signature(_read(program).schema) == _signature(kernel.schema)


def _signature(schema: OpSchema) -> dict[str, Any]:
    """What a schema says without its text for people."""
    return {name: value for name, value in schema.to_json().items() if name != "doc"}


def _read(program: Program) -> PortableKernel:
    """A program, verified; its own functions keep the names of their files, for messages.

    Raises:
        PackageError: EK0510, it is not a program.
    """
    packed, files = program
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MAX_PROGRAM)
        if unpacker.unconsumed_tail:
            raise ValueError(f"it has more than {MAX_PROGRAM} bytes")
        data = read_json(text)
    except (ValueError, zlib.error) as error:
        raise_if_of_handler(error)
        raise PackageError(f"the pickled program cannot be read: {error}", code="EK0510") from None
    return _with_files(read_program(data, "the pickled program"), files)


def _with_files(read: PortableKernel, files: Sequence[str]) -> PortableKernel:
    if len(files) != len(read.functions) or not all(isinstance(file, str) for file in files):
        raise PackageError("the pickled program cannot be read: it names other files", code="EK0510")
    functions = [
        each if is_shipped(each.file) else dataclasses.replace(each, file=file)
        for each, file in zip(read.functions, files, strict=True)
    ]
    return dataclasses.replace(read, functions=tuple(functions))


def loaded_of(
    program: Program, origin: str, of_file: bool, op: str, digest: str, tuning: TuningSpace | None
) -> library.LoadedKernel:
    """A kernel of a library that was pickled.

    With `of_file` it is read from its file where that has the same program: with the functions that compute its
    gradients, and with the code of a package.

    Raises:
        PackageError: EK0510, the program is invalid.
    """
    if of_file and Path(origin).is_file():
        try:
            entry = library.load_library(origin).kernels.get(op)
        except EinkornError:
            entry = None
        if entry is not None and entry.portable.digest == digest:
            return entry
    read = _read(program)
    return library.LoadedKernel(read.schema, origin, lambda: read, tuning=tuning)


def shipped_of(family: str, op: str, counts: Sequence[tuple[str, int]]) -> library.LoadedKernel:
    """A kernel of a built-in op.

    Raises:
        PackageError: EK0504, this version of Einkorn does not have it.
    """
    kernel = SHIPPED_KERNEL.get()(family, op)
    return kernel.expanded(dict(counts)) if counts else kernel
