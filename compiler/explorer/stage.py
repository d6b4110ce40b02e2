"""One stage of one op's compilation, as text.

Input: a kernel library, an op, a target, a stage. Output: the text. Non-goals: choosing what to look at for the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dsl.diagnostics.errors import CompileError, PackageError, did_you_mean
from ...dsl.environment.knobs import STAGES
from ...dsl.package.container import Instance
from ...dsl.package.library import KernelLibrary, LoadedKernel, load_library
from ..instances import instance_entries, make_instance
from ..pipeline import compile_entry
from ..targets import lookup


def inspect_stage(source: str, target: str, stage: str, **wanted: Any) -> str:
    """The text of a stage, `typed`, `mlir`, `llvm` or `asm`, of an op of `source`; `wanted` goes to `chosen`.

    Raises:
        PackageError: no kernels there, or no op of that name.
        TargetError: an unknown target.
        CompileError: a mistake in the kernel, an unknown stage, or an instance that the op does not have.
    """
    if stage not in STAGES:
        raise CompileError(
            f"unknown stage '{stage}'",
            code="EK0608",
            expected=", ".join(STAGES),
            got=stage,
            hint=did_you_mean(stage, STAGES),
        )
    machine = lookup(target)
    kernel, instance = chosen(source, **wanted)
    artifact = compile_entry(*instance_entries(kernel.portable, instance, machine)[0])
    return str(getattr(artifact, stage))


def chosen(
    source: str,
    op: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    ranks: Mapping[str, int] | None = None,
    parameters: Mapping[str, str] | None = None,
    counts: Mapping[str, int] | None = None,
) -> tuple[LoadedKernel, Instance]:
    """An op of a library and one of its instances; what is left out is filled in by `make_instance`.

    Raises:
        PackageError: no kernels there, or no op of that name.
        CompileError: a mistake in the kernel's signature, or an instance that the op does not have.
    """
    kernel = choose(load_library(source), op)
    return kernel, make_instance(kernel.schema, dtypes or {}, ranks or {}, parameters or {}, counts)


def choose(library: KernelLibrary, op: str | None) -> LoadedKernel:
    """The op of this name; the only one where no name is given.

    Raises:
        PackageError: EK0505, there is none, or there are several.
    """
    names = list(library.kernels)
    if op is None and len(names) == 1:
        return library.kernels[names[0]]
    if op is not None and op not in library.kernels:  # the name without its namespace, if it is the only one
        ends = [name for name in names if name.rpartition("::")[2] == op]
        op = ends[0] if len(ends) == 1 else op
    if op is None or op not in library.kernels:
        given = f"write --op {min(names)}, or op={min(names)!r} in Python"
        raise PackageError(
            f"'{library.path}' has no op '{op}'" if op else f"'{library.path}' has several ops, name one",
            code="EK0505",
            got=op,
            expected=names,
            notes=[f"it has {', '.join(sorted(names))}"],
            hint=did_you_mean(op, names) if op else given,
        )
    return library.kernels[op]
