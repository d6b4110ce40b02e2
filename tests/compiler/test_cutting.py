"""Loops over elements: several vectors at a time where there are registers, and masks instead of remainders."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile
from support.inner_loops import innermost_loops

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.pipeline import Artifact, compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.package.library import load_library

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
    assert "ek.hint" not in artifact.asm


@pytest.mark.parametrize(("name", "vectors"), [("nine_alive", {2}), ("pairs", set())])
def test_less_where_registers_are_short_and_nothing_around_loops(
    name: str, vectors: set[int], compile_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    artifact, _ = compile_kernel(path, name, [(DType.float32, (4096,))], target="x86-64-v4")
    assert stores(artifact.asm) == vectors


# What a loop reads and writes, and what it computes: little, much, from narrow to wide and back.
KINDS = {
    "plain": ("float32", "float32", "x[k] * 2 + 1"),
    "long": ("float32", "float32", "exp(x[k]) / (1 + exp(-x[k]))"),
    "double": ("float64", "float64", "sqrt(abs(x[k]))"),
    "narrowed": ("float64", "int8", "round(x[k] * 3).cast(int8)"),
    "widened": ("int8", "float64", "x[k].cast(float64) / 3"),
    "signs": ("float32", "bool8", "x[k] < 0"),
    "chosen": ("bool8", "int16", "select(x[k], int16(7), int16(k))"),
    "half": ("float16", "bfloat16", "x[k].cast(bfloat16)"),
    "eighth": ("float32", "float8_e4m3fn", "x[k].cast(float8_e4m3fn)"),
    "shifted": ("int32", "int32", "x[k + 1] - x[k - 1]"),
}
KERNEL = """
@register("{name}")
def {name}(y: MutableInputTensor[{to}, "n"], x: InputTensor[{of}, "m"], bounds: InputTensor[int64, "2"]):
    for k in range(bounds[0], bounds[1]):
        y[k] = {value}
"""
HEAD = "from einkorn.dsl import *\n"
BOUNDS = [(1, 1 + n) for n in (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200)]
BOUNDS += [(70, 3), (5, 5), (3, 70), (64, 141)]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cutting") / "kinds.py"
    path.write_text(HEAD + "".join(KERNEL.format(name=n, of=o, to=t, value=v) for n, (o, t, v) in KINDS.items()))
    return path


@pytest.fixture(scope="module")
def harness(kinds: Path) -> KernelFile:
    return KernelFile(kinds)


@pytest.mark.parametrize("name", KINDS)
def test_whole_vectors_and_masks_reach_every_element_and_no_other(name: str, harness: KernelFile) -> None:
    """The harness compares with the interpreter, bit for bit, also what lies around."""
    of, to, _ = KINDS[name]
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(210) * 20).astype(DType[of.replace("bool8", "bool")].to_numpy())
    y = rng.integers(0, 2, 210).astype(DType[to.replace("bool8", "bool")].to_numpy())
    for bounds in BOUNDS:
        harness(name, y.copy(), x, np.array(bounds))


def compiled(path: Path, name: str, target: str = "x86-64-v4") -> Artifact:
    """A kernel of sizes that are not known yet."""
    kernel = load_library(path).kernels[name]
    return compile_entry(instance_entry(kernel.portable, make_instance(kernel.schema, {}, {}, {})), lookup(target))


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_left_over_for_single_elements(name: str, kinds: Path) -> None:
    """A rest of one vector at most needs no loop."""
    asm = compiled(kinds, name).asm
    loops = ["\n".join(loop.instructions) for loop in innermost_loops(asm) if loop.function == f"{name}_0"]
    assert 1 <= len(loops) <= 2 and all(re.search(r"%[xyz]mm\d+[^,]*, .*\)", loop) for loop in loops), loops
    assert "{%k" in asm
    assert "masked" not in compiled(kinds, name, "x86-64-v3").emitted.text


KEPT_WHOLE = {
    "copied": "y[k] = x[k]",
    "backwards": "y[k] = 1 - x[bounds[1] - k]",
    "gathered": "y[k] = 1 - x[k * 3]",
    "scattered": "y[2 * k] = 1 - x[k]",
    "summed": "y[0] += x[k]",
    "chosen": "if x[k] > 0: y[k] = 1 - x[k]",
    "divided": "y[k] = x[k] // 3",
}


@pytest.mark.parametrize("name", KEPT_WHOLE)
def test_what_is_no_loop_over_neighbours_stays_one(name: str, tmp_path: Path) -> None:
    """A mask would not help there, or LLVM has something better."""
    path = tmp_path / "whole.py"
    text = KERNEL.format(name=name, of="int32", to="int32", value="0").replace("y[k] = 0", KEPT_WHOLE[name])
    path.write_text(HEAD + text)
    assert "masked" not in compiled(path, name).emitted.text


@pytest.mark.parametrize(("n", "masked"), [(16, False), (31, True), (33, False), (64, False), (1007, True)])
def test_a_known_number_of_rounds_is_masked_where_much_is_left(n: int, masked: bool, tmp_path: Path) -> None:
    of, to, value = KINDS["long"]
    text = KERNEL.format(name="known", of=of, to=to, value=value).replace("bounds[0], bounds[1]", str(n))
    (tmp_path / "known.py").write_text(HEAD + text)
    assert ("masked" in compiled(tmp_path / "known.py", "known").emitted.text) == masked
