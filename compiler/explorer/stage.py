"""Gives one stage of one op's compilation as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dsl.diagnostics.errors import CompileError, did_you_mean
from ...dsl.environment.knobs import STAGES
from ...dsl.package.container import Instance
from ...dsl.package.library import LoadedKernel, load_library
from ..instances import instance_entries, make_instance
from ..pipeline import compile_entry
from ..targets import lookup


def inspect_stage(source: str, target: str, stage: str, **wanted: Any) -> str:
    """The text of a stage, `typed`, `mlir`, `llvm` or `asm`, of an op of `source`; `wanted` goes to `choose_instance`.

    Raises:
        PackageError: no kernels there, or no op of that name.
        TargetError: an unknown target.
        CompileError: a mistake in the kernel, an unknown stage, or an instance that the op does not have.
    """
    kernel, instance = choose_instance(source, **wanted)
    return stage_text(kernel, instance, target, stage)


def stage_text(kernel: LoadedKernel, instance: Instance, target: str, stage: str) -> str:
    """The text of a stage of an instance of a kernel.

    Raises:
        TargetError: an unknown target.
        CompileError: a mistake in the kernel, or an unknown stage.
    """
    check_stage(stage)
    machine = lookup(target)
    artifact = compile_entry(*instance_entries(kernel.portable, instance, machine)[0])
    return str(getattr(artifact, stage))


def check_stage(stage: str) -> None:
    """Raises CompileError EK0608 unless there is such a stage."""
    if stage not in STAGES:
        raise CompileError(
            f"unknown stage '{stage}'",
            code="EK0608",
            expected=", ".join(STAGES),
            got=stage,
            hint=did_you_mean(stage, STAGES),
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
