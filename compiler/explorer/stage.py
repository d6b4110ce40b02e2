"""Gives one stage of one op's compilation as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dsl.diagnostics.errors import CompileError, did_you_mean
from ...dsl.environment.knobs import SASS, SHOWN_STAGES
from ...dsl.package.container import Instance
from ...dsl.package.library import LoadedKernel, load_library
from ..instances import instance_entries, make_instance
from ..pipeline import Artifact, compile_entry
from ..targets import lookup
from ..targets.base import Target
from ..targets.machine_code import check_disassembly, machine_code


def inspect_stage(source: str, target: str, stage: str, **wanted: Any) -> str:
    """The text of a stage (`typed`, `mlir`, `llvm`, `asm`, `sass`) of an op; `wanted` goes to `choose_instance`.

    Raises:
        PackageError: no kernels there, or no op of that name.
        TargetError: an unknown target, or one without machine code that can be shown here.
        CompileError: a mistake in the kernel, an unknown stage, or an instance that the op does not have.
    """
    kernel, instance = choose_instance(source, **wanted)
    return stage_text(kernel, instance, target, stage)


def stage_text(kernel: LoadedKernel, instance: Instance, target: str, stage: str) -> str:
    """The text of a stage of an instance of a kernel.

    Raises:
        TargetError: an unknown target, or one without machine code that can be shown here.
        CompileError: a mistake in the kernel, or an unknown stage.
    """
    machine = lookup(target)
    check_stage(stage, machine)
    return shown(compile_entry(*instance_entries(kernel.portable, instance, machine)[0]), stage)


def shown(artifact: Artifact, stage: str) -> str:
    """The text of a stage of a compilation.

    Raises:
        TargetError: EK0602 there is no machine code of its target, or no tool that shows it.
    """
    if stage == SASS:
        return machine_code(artifact.asm, artifact.target)
    return str(getattr(artifact, stage))


def check_stage(stage: str, target: Target) -> None:
    """Raises CompileError EK0608 unless there is such a stage, TargetError EK0602 unless it can be shown here."""
    if stage == SASS:
        check_disassembly(target)
    if stage not in SHOWN_STAGES:
        raise CompileError(
            f"unknown stage '{stage}'",
            code="EK0608",
            expected=", ".join(SHOWN_STAGES),
            got=stage,
            hint=did_you_mean(stage, SHOWN_STAGES),
        )


def choose_instance(
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
    kernel = load_library(source).choose(op)
    return kernel, make_instance(kernel.schema, dtypes or {}, ranks or {}, parameters or {}, counts)
