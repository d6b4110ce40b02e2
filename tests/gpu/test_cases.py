"""Every GPU test kernel: interpreted, compiled for a CPU, and compiled for every GPU."""

from __future__ import annotations

import pytest
from support.gpu_cases import CASES, GPUS, GpuCase

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl.diagnostics.errors import CompileError

PTXAS = find_ptxas()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted(case: GpuCase) -> None:
    """With 32 lanes in a drawn order, with 64 one after the other."""
    case = case.smaller()
    for target, seed in (("sm_90a", 1), ("gfx942", None))[: 1 if case.heavy else 2]:
        if case.refusal(target) is None:
            case.check(case.interpret(target, seed), lookup(target).lanes)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_cpu(case: GpuCase) -> None:
    case.check(case.run())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_for_every_gpu(case: GpuCase) -> None:
    for name in GPUS:
        code = case.refusal(name)
        if code is not None:
            with pytest.raises(CompileError) as refused:
                case.compile(name)
            assert refused.value.code == code
            continue
        artifact = case.compile(name)
        assert artifact.kernels and artifact.code
        if PTXAS is not None and artifact.target.format.suffix == "ptx":
            assert assemble(artifact.asm, artifact.target)
