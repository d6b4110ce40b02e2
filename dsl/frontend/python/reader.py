"""Reads kernels in Python: functions under `@register`; a file is imported to find them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from ...diagnostics.errors import EinkornError
from ..base import Frontend, SourceKernel
from ..program import PortableKernel
from ..reads import Reads
from .collect import as_far_as_known, portable
from .import_file import import_file, import_root
from .register import KERNEL_FILE, REGISTERED, BrokenKernel, Kernel
from .scan_files import is_broken, is_test, registers


def kernels_of(module: ModuleType) -> list[SourceKernel]:
    """The kernels that the module itself registers, not those it imports; also those whose signature is wrong.

    In a program, unlike in a kernel file, one may be registered again: the last one of a name counts.
    """
    names = vars(module)
    listed = {id(value): value for value in (*names.values(), *names.get(REGISTERED, ()))}
    own = [value for value in listed.values() if isinstance(value, Kernel | BrokenKernel)]
    own = [kernel for kernel in own if kernel.function.__module__ == module.__name__]
    if KERNEL_FILE not in names:
        last = {kernel.schema.name: kernel for kernel in names.get(REGISTERED, ())}
        own = [kernel for kernel in own if last.get(kernel.schema.name, kernel) is kernel]
    return [source_of(kernel) for kernel in own]


def source_of(kernel: Kernel | BrokenKernel) -> SourceKernel:
    """A kernel object as libraries hold it."""

    reads = Reads()

    def make() -> PortableKernel:
        return as_far_as_known(kernel) if isinstance(kernel, BrokenKernel) else portable(kernel, reads)

    if isinstance(kernel, BrokenKernel):
        return SourceKernel(kernel.schema, make, usable=False)
    return SourceKernel(
        kernel.schema,
        make,
        reference=kernel.numpy_reference,
        gradient=kernel.gradient,
        reads=reads,
        tuning=kernel.tuning,
    )


class _Python(Frontend):
    def read(self, file: Path, mistakes: list[EinkornError]) -> list[SourceKernel]:
        module = import_file(file, mistakes)
        return [] if module is None else kernels_of(module)

    def holds_kernels(self, file: Path) -> bool:
        return file.name != "__init__.py" and not is_test(file) and registers(file, import_root(file.parent))

    def is_test(self, file: Path) -> bool:
        return is_test(file)

    def is_broken(self, file: Path) -> bool:
        return file.name != "__init__.py" and is_broken(file)


PYTHON = _Python()
