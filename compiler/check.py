"""Checks kernel files without building them: every signature, every kernel, for instances that stand for all.

A kernel is evaluated down to its typed program, where every mistake in its text is found; no machine code is made. Its
instances are the default one, and for each type variable and each pack of axes one more for every other choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import EinkornError, InternalError, Remark, each_of, has_more, is_endless, without_repeats
from ..dsl.diagnostics.shield import passes_signals
from ..dsl.package.container import Instance
from ..dsl.package.library import LoadedKernel, kernel_files, load_library
from ..dsl.signature.check import undetermined_sizes
from ..dsl.signature.schema import OpSchema
from .instances import instance_entries, make_instance
from .pipeline import typed_program
from .targets import Target, lookup

RANKS = (1, 0, 2, 3)
SAMPLES: dict[str, object] = {"int": 1, "float": 1.0, "bool": False, "str": "", "dtype": "float32", "ints": (1, 2)}
REFUSED = "EK0215"  # a static_assert: the author's own way to say what an instance may be


@dataclass(frozen=True)
class Checked:
    """What was looked at, and the mistakes that were found; `more` when the search in a kernel was ended early.

    `remarks` are on kernels that can be used, but hardly as they were meant.
    """

    files: int
    kernels: int
    instances: int
    errors: tuple[EinkornError, ...]
    more: bool = False
    remarks: tuple[Remark, ...] = ()


@passes_signals
def check_kernels(source: str, targets: Iterable[str] = ("host",)) -> Checked:
    """Checks the kernels of a file, a folder or a package.

    Raises:
        TargetError: an unknown target.
        InternalError: a fault of the compiler.
    """
    machines = [lookup(name) for name in dict.fromkeys(targets)]
    files = kernel_files(source)
    mistakes: list[EinkornError] = []
    try:
        library = load_library(source, mistakes)
    except InternalError:
        raise
    except EinkornError as error:
        return Checked(max(1, len(files)), 0, 0, tuple(each_of(error)))
    count, more = 0, False
    for kernel in (*library.kernels.values(), *library.unusable):
        results = list(failures(kernel, representative_instances(kernel.schema), machines))
        wrong = [error for error in results if error is not None]
        count, more = count + len(results), more or any(map(has_more, wrong))
        mistakes += _not_refused([each_of(error) for error in wrong], len(results))
    remarks = [remark for kernel in library.kernels.values() for remark in undetermined_sizes(kernel.schema)]
    errors = tuple(without_repeats(mistakes, files))
    return Checked(max(1, len(files)), len(library.kernels), count, errors, more, tuple(remarks))


def failures(
    kernel: LoadedKernel, instances: Iterable[Instance], targets: Sequence[Target]
) -> Iterator[EinkornError | None]:
    """What is wrong with each of a kernel's instances, for each target; None where nothing is.

    What took all the work that a compilation may take ends the search: the other instances would take as much again.

    Raises:
        InternalError: a fault of the compiler.
    """
    for instance in instances:
        for target in targets:
            try:
                for spec, machine in instance_entries(kernel.portable, instance, target):
                    typed_program(spec, machine)
            except InternalError:
                raise
            except EinkornError as error:
                yield error
                if is_endless(error):
                    return
            else:
                yield None


def _not_refused(mistakes: list[list[EinkornError]], instances: int) -> list[EinkornError]:
    """The mistakes of a kernel's instances without those that its author refuses, unless that is each of them."""
    refused = [error for errors in mistakes for error in errors if error.code == REFUSED]
    others = [error for errors in mistakes for error in errors if error.code != REFUSED]
    each = sum(any(error.code == REFUSED for error in errors) for errors in mistakes) == instances
    return others + refused[:1] if each else others


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
