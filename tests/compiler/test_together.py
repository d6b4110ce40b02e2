"""Long loops over elements work on several vectors at a time, where there are registers for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.inner_loops import innermost_loops

from einkorn.dsl import DType

KERNELS = Path(__file__).parents[1] / "numerics" / "kernels_math.py"
STORE = re.compile(r"vmov\w+ %zmm\d+, .*\)$")
LOOPS = """
from einkorn.dsl import InputTensor, OutputTensor, exp, float32, foreach, register

@register("pairs")
def pairs(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def one(i):
        total = 0.0
        for j in range(x.dim(0)):
            total += exp(x[i] - x[j])
        return total

    foreach(out, one)
"""


def stores(asm: str) -> set[int]:
    """How many vectors of 512 bits each innermost loop that stores such vectors stores."""
    counts = [sum(bool(STORE.match(line)) for line in loop.instructions) for loop in innermost_loops(asm)]
    return {count for count in counts if count}


@pytest.mark.parametrize(("name", "vectors"), [("exp", 4), ("tanh", 4), ("acosh", 2)])
def test_long_loops_take_several_vectors(name: str, vectors: int, compile_kernel: Callable[..., Any]) -> None:
    inputs = [(DType.float32, (4096,))]
    artifact, _ = compile_kernel(KERNELS, f"{name}_each", inputs, target="x86-64-v4")
    assert stores(artifact.asm) == {vectors}
    assert "ek.together" not in artifact.asm


def test_loops_around_loops_are_left_alone(compile_kernel: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "pairs.py"
    path.write_text(LOOPS)
    artifact, _ = compile_kernel(path, "pairs", [(DType.float32, (4096,))], target="x86-64-v4")
    assert not stores(artifact.asm)
