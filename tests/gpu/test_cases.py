"""Every GPU test kernel: interpreted, compiled for a CPU, and compiled for every GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pytest
from support.gpu_cases import CASES, GPUS, OTHER_ON_SM_75, GpuCase
from support.ptx_joined import assemble_all

from einkorn.compiler.pipeline import Artifact
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
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


def together() -> Iterator[Sequence[GpuCase]]:
    """The cases by their files, up to eight at once."""
    for _, group in groupby(sorted(CASES, key=lambda case: case.path), lambda case: case.path):
        cases = list(group)
        yield from (cases[at : at + 8] for at in range(0, len(cases), 8))


@pytest.mark.parametrize("cases", [*together()], ids=lambda cases: f"{cases[0]} and {len(cases) - 1}")
def test_for_every_gpu(cases: Sequence[GpuCase]) -> None:
    """Each case is compiled for each of its GPUs, or refused as it says; ptxas takes all cases of a GPU at once."""
    for name in GPUS:
        mine = [case for case in cases if name in case.gpus]
        made = [artifact for case in mine if (artifact := compiled(case, name)) is not None]
        if PTXAS is not None and made and made[0].target.format.suffix == "ptx":
            cubin = assemble_all([each.asm for each in made], made[0].target)
            names = [f"{kernel.symbol}_of_{number}" for number, each in enumerate(made) for kernel in each.kernels]
            assert [name for name in names if name.encode() not in cubin] == []
    for case in cases:
        if not case.name.startswith(OTHER_ON_SM_75) and case.refusal("sm_75") is None:
            old, new = (case.compile(name).asm.split(".address_size")[1] for name in ("sm_75", "sm_90a"))
            assert old == new, (case.name, "is run as PTX for one of them alone: see OTHER_ON_SM_75")


def compiled(case: GpuCase, name: str) -> Artifact | None:
    """The code for a GPU; none for one that has to refuse the case, and does."""
    code = case.refusal(name)
    if code is None:
        artifact = case.compile(name)
        assert artifact.kernels and artifact.code, (case.name, name)
        return artifact
    with pytest.raises(CompileError) as refused:
        case.compile(name)
    assert refused.value.code == code, (case.name, name)
    return None


@pytest.mark.parametrize("case", CASES[::25], ids=str)
def test_the_optimiser_does_the_same_for_all_gpus_that_share_it(case: GpuCase) -> None:
    """`support.shared_fronts` runs it once for GPUs with this in common."""
    collected: dict[tuple[str, str, int], set[str]] = {}
    for name in GPUS:
        if case.refusal(name) is None:
            made, target = case.compile(name).compiled, lookup(name)
            collected.setdefault((made.text, target.kind, target.lanes), set()).add(made.llvm)
    assert len(collected) < len(GPUS) and all(len(texts) == 1 for texts in collected.values())
