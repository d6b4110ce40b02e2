"""The mutants of GPU kernels: how they are made, and that a simulated GPU finds one of each kind."""

from __future__ import annotations

import pytest
from support import gpu_mutants
from support.gpu_cases import CASES

OF_SHARED = {mutant.name: mutant for mutant in gpu_mutants.mutants("shared.py")}


@pytest.mark.parametrize(
    "name",
    [
        "barrier removed shared.py sum_thread: gpu.barrier() #1",
        "index shifted shared.py reverse_thread: kept[t] = x[i] #1",
        "mask dropped shared.py sum_thread: if t < half: #1",
    ],
)
def test_a_mutant_is_found(name: str) -> None:
    mutant = OF_SHARED[name]
    cases = [case for case in CASES if case.file == "shared.py"]
    used = gpu_mutants.cases_of(mutant, cases)
    assert {case.op for case in used} <= {"shared::row_sums", "shared::reverse_twice"} and used
    assert gpu_mutants.apart(mutant, used[:1]) != ""


def test_weaker_orders_and_narrower_scopes_are_found() -> None:
    cases = [case for case in CASES if case.op in ("barriers::last_block", "barriers::last_block_in_order")]
    made = [mutant for mutant in gpu_mutants.mutants("barriers.py") if mutant.function.startswith("last_")]
    wanted = [mutant for mutant in made if mutant.kind.startswith(("order ", "scope ", "fence "))]
    kinds = [mutant.kind for mutant in wanted]
    assert sorted(set(kinds)) == [
        "fence removed",
        "order weakened to acquire",
        "order weakened to release",
        "scope narrowed",
    ]
    for mutant in wanted:
        assert gpu_mutants.apart(mutant, gpu_mutants.cases_of(mutant, cases)), mutant.name


def test_a_barrier_of_a_block_is_none_of_a_cluster() -> None:
    cases = [case for case in CASES if case.op == "clusters::ring"]
    made = [
        m for m in gpu_mutants.mutants("clusters.py") if m.kind == "barrier narrowed" and m.function == "ring_thread"
    ]
    assert len(made) == 3
    assert all(gpu_mutants.apart(mutant, cases[:1]).startswith("report: {'found': 1") for mutant in made), "a race"


def test_mutants_change_one_place() -> None:
    text = (gpu_mutants.KERNELS / "shared.py").read_text()
    kinds = {mutant.kind for mutant in OF_SHARED.values()}
    assert kinds >= {"barrier removed", "barrier moved up", "index shifted", "mask dropped"}
    for mutant in OF_SHARED.values():
        compile(mutant.text, mutant.file, "exec")
        changed = [a for a, b in zip(text.splitlines(), mutant.text.splitlines(), strict=True) if a != b]
        assert 1 <= len(changed) <= 2, mutant.name


def test_what_is_explained_is_there() -> None:
    files = {case.file for case in CASES if case.path.parent == gpu_mutants.KERNELS}
    names = {mutant.name for file in files for mutant in gpu_mutants.mutants(file)}
    assert gpu_mutants.EXPLAINED.keys() <= names
