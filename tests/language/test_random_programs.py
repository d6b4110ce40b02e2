"""Random programs: the compiled function gives what Python gives for the very same text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile
from random_programs import PAIR, program

SEEDS = range(12)

HEAD = f"""from typing import Any

from einkorn.dsl import InputTensor, OutputTensor, foreach, int64, max, min, register, static_assert, struct, unroll

@struct{PAIR}

"""
KERNEL = """
@register("run_{seed}")
def run_{seed}(out: OutputTensor[int64, "n"], v: InputTensor[int64, "n"], w: InputTensor[int64, "n"]) -> None:
    {folded}
    foreach(out, lambda i: program_{seed}(v[i], w[i]))

"""


def as_python(seed: int) -> Callable[[int, int], int]:
    """The program as Python runs it; structs that it changes are its own, so they may be mutable here."""
    names: dict[str, Any] = {"unroll": range, "Any": Any}
    exec(PAIR + program(seed), names)
    dataclass(names["Pair"])
    actual: Callable[[int, int], int] = names[f"program_{seed}"]
    return actual


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelFile:
    file: Path = tmp_path_factory.mktemp("programs") / "random_kernels.py"
    texts = []
    for seed in SEEDS:
        run = as_python(seed)
        known = [f"program_{seed}({a}, {b}) == {run(a, b)}" for a, b in ((3, 5), (-4, 17), (0, 0))]
        folded = f"static_assert({' and '.join(known)}, 'folding is not what Python does')"
        texts.append(program(seed) + KERNEL.format(seed=seed, folded=folded))
    file.write_text(HEAD + "".join(texts))
    return KernelFile(file)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(kernels: KernelFile, seed: int) -> None:
    run = as_python(seed)
    rng = np.random.default_rng(seed)
    v, w = rng.integers(-20, 40, (2, 60))
    wanted = [run(int(a), int(b)) for a, b in zip(v, w, strict=True)]
    got = kernels(f"run_{seed}", v, w)[0].tolist()
    bad = [k for k, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
    assert not bad, f"program({v[bad[0]]}, {w[bad[0]]}) is {wanted[bad[0]]}, got {got[bad[0]]}\n{program(seed)}"
