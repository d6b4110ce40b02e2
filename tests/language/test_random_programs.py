"""Random programs: the compiled function gives what Python gives for the very same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile
from random_programs import program

SEEDS = range(12)

HEAD = """from einkorn.dsl import InputTensor, OutputTensor, foreach, int64, max, min, register, unroll

"""
KERNEL = """
@register("run_{seed}")
def run_{seed}(out: OutputTensor[int64, "n"], v: InputTensor[int64, "n"], w: InputTensor[int64, "n"]) -> None:
    foreach(out, lambda i: program_{seed}(v[i], w[i]))

"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelFile:
    file: Path = tmp_path_factory.mktemp("programs") / "random_kernels.py"
    file.write_text(HEAD + "".join(program(seed) + KERNEL.format(seed=seed) for seed in SEEDS))
    return KernelFile(file)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(kernels: KernelFile, seed: int) -> None:
    names: dict[str, Any] = {"unroll": range}
    exec(program(seed), names)
    rng = np.random.default_rng(seed)
    v, w = rng.integers(-20, 40, (2, 60))
    wanted = [names[f"program_{seed}"](int(a), int(b)) for a, b in zip(v, w, strict=True)]
    got = kernels(f"run_{seed}", v, w)[0].tolist()
    bad = [k for k, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
    assert not bad, f"program({v[bad[0]]}, {w[bad[0]]}) is {wanted[bad[0]]}, got {got[bad[0]]}\n{program(seed)}"
