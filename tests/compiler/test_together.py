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


def nine(v):
    a, b, c, d, e, f, g, h, i = v * 3, v * 5, v * 7, v * 11, v * 13, v * 17, v * 19, v * 23, v * 29
    return ((((((((a - 1) * b - 2) * c - 3) * d - 4) * e - 5) * f - 6) * g - 7) * h - 8) * i

@register("nine_alive")
def nine_alive(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: nine(x[i]))
"""


def stores(asm: str) -> set[int]:
    """How many vectors of 512 bits each innermost loop that stores such vectors stores."""
    counts = [sum(bool(STORE.match(line)) for line in loop.instructions) for loop in innermost_loops(asm)]
    return {count for count in counts if count}


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_long_loops_take_four_vectors(name: str, compile_kernel: Callable[..., Any]) -> None:
    artifact, _ = compile_kernel(KERNELS, f"{name}_each", [(DType.float32, (4096,))], target="x86-64-v4")
    assert stores(artifact.asm) == {4}
    assert "ek.together" not in artifact.asm


@pytest.mark.parametrize(("name", "vectors"), [("nine_alive", {2}), ("pairs", set())])
def test_less_where_registers_are_short_and_nothing_around_loops(
    name: str, vectors: set[int], compile_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    artifact, _ = compile_kernel(path, name, [(DType.float32, (4096,))], target="x86-64-v4")
    assert stores(artifact.asm) == vectors
