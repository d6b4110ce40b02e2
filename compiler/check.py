"""Checks kernel files without building them: every signature, every kernel, for instances that stand for all.

A kernel is evaluated down to its typed program, where every mistake in its text is found; no machine code is made. Its
instances are the default one, and for each type variable and each pack of axes one more for every other choice.

Input: the path of kernels, targets. Output: `Checked`. Non-goals: what only a run can find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..dsl.errors import CompileErrors, EinkornError, InternalError
from ..dsl.kernel_files import import_file
from ..dsl.library import KernelLibrary, LoadedKernel, kernel_files, load_library
from ..dsl.package import Instance
from ..dsl.schema import OpSchema
from .build import instance_entry
from .instances import make_instance
from .pipeline import typed_program
from .targets import Target, lookup

RANKS = (1, 0, 2, 3)
SAMPLES: dict[str, Any] = {"int": 1, "float": 1.0, "bool": False, "str": "", "dtype": "float32"}
REFUSED = "EK0215"  # a static_assert: the author's own way to say what an instance may be


@dataclass(frozen=True)
class Checked:
    """What was looked at, and the mistakes that were found."""

    files: int
    kernels: int
    instances: int
    errors: tuple[EinkornError, ...]


def check_kernels(source: str, targets: Iterable[str] = ("host",)) -> Checked:
    """Checks the kernels of a file, a folder or a package.

    Raises:
        TargetError: an unknown target.
        PackageError: there is nothing at that path.
        InternalError: a fault of the compiler.
    """
    machines = [lookup(name) for name in dict.fromkeys(targets)]
    files = kernel_files(source)
    errors: list[EinkornError] = []
    for file in files:
        errors += _mistakes(lambda file=file: import_file(file))
    if errors:
        return Checked(len(files), 0, 0, tuple(errors))
    libraries: list[KernelLibrary] = []
    errors += _mistakes(lambda: libraries.append(load_library(source)))
    count = 0
    kernels = [kernel for library in libraries for kernel in library.kernels.values()]
    for kernel in kernels:
        checker = _Checker(kernel, machines)
        checker.run()
        count += checker.count
        errors += checker.errors
    return Checked(max(1, len(files)), len(kernels), count, tuple(errors))


def _mistakes(work: Any) -> list[EinkornError]:
    """The user's mistakes that `work` raises."""
    try:
        work()
    except InternalError:
        raise
    except EinkornError as error:
        return list(error.errors) if isinstance(error, CompileErrors) else [error]
    return []


class _Checker:
    """Evaluates the instances of one kernel, and keeps one error for each place."""

    def __init__(self, kernel: LoadedKernel, targets: list[Target]) -> None:
        self.kernel = kernel
        self.targets = targets
        self.count = 0
        self.errors: list[EinkornError] = []

    def run(self) -> None:
        self.errors = _mistakes(lambda: self.kernel.portable)
        if self.errors:
            return
        found: dict[Any, EinkornError] = {}
        refusals: list[EinkornError] = []
        for instance in representative_instances(self.kernel.schema):
            spec = instance_entry(self.kernel.portable, instance)
            for target in self.targets:
                errors = _mistakes(lambda spec=spec, target=target: typed_program(spec, target))
                self.count += 1
                for error in errors:
                    if error.code == REFUSED:
                        refusals.append(error)
                    else:
                        found.setdefault((error.place, error.code), error)
        self.errors = list(found.values())
        if len(refusals) == self.count:  # no instance is allowed at all
            self.errors.append(refusals[0])


def representative_instances(schema: OpSchema) -> Iterator[Instance]:
    """Instances that stand for all: each choice of each type variable and each rank is in one of them.

    A parameter without a default gets a sample: 1, 1.0, False, "" or float32.
    """
    parameters = {p.name: SAMPLES[p.kind] for p in schema.parameters if p.required}
    default = make_instance(schema, {}, {}, parameters)
    seen = {default}
    yield default
    others: list[Any] = [({name: dtype.name}, {}) for name, options in schema.typevars for dtype in options]
    others += [({}, {name: rank}) for name, _ in default.ranks for rank in RANKS]
    for dtypes, ranks in others:
        instance = make_instance(schema, dtypes, ranks, parameters)
        if instance not in seen:
            seen.add(instance)
            yield instance
