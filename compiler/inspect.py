"""One stage of one op's compilation, as text.

Input: a kernel library, an op, a target, a stage. Output: the text. Non-goals: choosing what to look at for the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dsl.errors import CompileError, PackageError, did_you_mean
from ..dsl.library import KernelLibrary, LoadedKernel, load_library
from .build import instance_entry
from .instances import make_instance
from .pipeline import STAGES, compile_entry
from .targets import lookup


def inspect_stage(
    source: str,
    op: str | None,
    target: str,
    stage: str,
    dtypes: Mapping[str, str],
    ranks: Mapping[str, int],
    parameters: Mapping[str, str],
    counts: Mapping[str, int] | None = None,
) -> str:
    """The text of a stage: `typed`, `mlir`, `llvm` or `asm`.

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
    kernel = _choose(load_library(source), op)
    instance = make_instance(kernel.schema, dtypes, ranks, parameters, counts)
    artifact = compile_entry(instance_entry(kernel.portable, instance), machine)
    return str(getattr(artifact, stage))


def _choose(library: KernelLibrary, op: str | None) -> LoadedKernel:
    names = list(library.kernels)
    if op is None and len(names) == 1:
        return library.kernels[names[0]]
    if op is None or op not in library.kernels:
        raise PackageError(
            f"'{library.path}' has no op '{op}'" if op else f"'{library.path}' has several ops, name one",
            code="EK0505",
            got=op,
            expected=names,
            notes=[f"it has {', '.join(sorted(names))}"],
            hint=did_you_mean(op or "", names),
        )
    return library.kernels[op]
