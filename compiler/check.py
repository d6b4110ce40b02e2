"""Checks kernel files without building them: every signature, every kernel, for instances that stand for all.

A kernel is evaluated down to its typed program, where every mistake in its text is found; no machine code is made. Its
instances are the default one, and for each type variable and each pack of axes one more for every other choice.

Input: the path of kernels, targets. Output: `Checked`. Non-goals: what only a run can find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..dsl.errors import EinkornError, InternalError, each_of, has_more, repeated_once
from ..dsl.library import LoadedKernel, kernel_files, load_library
from ..dsl.package import Instance
from ..dsl.schema import OpSchema
from ..dsl.unit import EntrySpec
from .build import instance_entry
from .instances import make_instance
from .pipeline import typed_program
from .targets import Target, lookup

RANKS = (1, 0, 2, 3)
SAMPLES: dict[str, Any] = {"int": 1, "float": 1.0, "bool": False, "str": "", "dtype": "float32"}
REFUSED = "EK0215"  # a static_assert: the author's own way to say what an instance may be


@dataclass(frozen=True)
class Checked:
    """What was looked at, and the mistakes that were found; `more` when the search in a kernel was ended early."""

    files: int
    kernels: int
    instances: int
    errors: tuple[EinkornError, ...]
    more: bool = False


def check_kernels(source: str, targets: Iterable[str] = ("host",)) -> Checked:
    """Checks the kernels of a file, a folder or a package.

    Raises:
        TargetError: an unknown target.
        InternalError: a fault of the compiler.
    """
    machines = [lookup(name) for name in dict.fromkeys(targets)]
    files = kernel_files(source)
    found: list[EinkornError] = []
    try:
        kernels = list(load_library(source, found).kernels.values())
    except InternalError:
        raise
    except EinkornError as error:
        return Checked(max(1, len(files)), 0, 0, tuple(each_of(error)))
    mistakes = [found]
    count, more = 0, False
    for kernel in kernels:
        checker = _Checker(kernel, machines)
        checker.run()
        count, more = count + checker.count, more or checker.more
        mistakes += checker.errors
    return Checked(max(1, len(files)), len(kernels), count, tuple(repeated_once(mistakes, files)), more)


class _Checker:
    """Evaluates the instances of one kernel; `errors` holds what each of them finds."""

    def __init__(self, kernel: LoadedKernel, targets: list[Target]) -> None:
        self.kernel = kernel
        self.targets = targets
        self.count = 0
        self.more = False
        self.errors: list[list[EinkornError]] = []

    def run(self) -> None:
        refusals: list[EinkornError] = []
        program = self.kernel.portable
        for instance in representative_instances(self.kernel.schema):
            for target in self.targets:
                errors = self.mistakes(instance_entry(program, instance), target)
                self.count += 1
                self.errors.append([error for error in errors if error.code != REFUSED])
                refusals += [error for error in errors if error.code == REFUSED]
        if len(refusals) == self.count:  # no instance is allowed at all
            self.errors.append(refusals[:1])

    def mistakes(self, spec: EntrySpec, target: Target) -> list[EinkornError]:
        """The author's mistakes in one instance."""
        try:
            typed_program(spec, target)
        except InternalError:
            raise
        except EinkornError as error:
            self.more = self.more or has_more(error)
            return each_of(error)
        return []


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
