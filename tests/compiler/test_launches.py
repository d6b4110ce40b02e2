"""Grids on a CPU: a launch becomes loops, which give threads and blocks their numbers; and how much one task does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.passes.choose_grains import MIN_GRAIN, TASK
from einkorn.compiler.pipeline import Stopped, compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, foreach, gpu, int64, register

def number(out, values):
    block = gpu.block_idx.x + gpu.grid_dim.x * (gpu.block_idx.y + gpu.grid_dim.y * gpu.block_idx.z)
    thread = gpu.thread_idx.x + gpu.block_dim.x * (gpu.thread_idx.y + gpu.block_dim.y * gpu.thread_idx.z)
    size = gpu.block_dim.x * gpu.block_dim.y * gpu.block_dim.z
    for k in range(gpu.thread_idx.x, gpu.thread_idx.x + 1):
        out[block * size + thread] = values[k] + 1000 * gpu.block_idx.y + 100000 * gpu.global_idx.z

@register("numbered")
def numbered(out: OutputTensor[int64, "n"], values: InputTensor[int64, "w"], ctx: DeviceContext):
    ctx.launch(number, out, values, grid=(2, 3, 2), block=(4, 1, 2))

@register("one_axis")
def one_axis(out: OutputTensor[int64, "n"], values: InputTensor[int64, "w"], ctx: DeviceContext):
    ctx.launch(number, out, values, grid=values.dim(0), block=4)

@register("halves")
def halves(out: OutputTensor[float32, "r 32"], x: InputTensor[float32, "r 32"]):
    foreach(out, lambda i: x[i[0], 31 - i[1]] * 2)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grids") / "kernels.py"
    path.write_text(KERNELS)
    return path


def expected(grid: tuple[int, int, int], block: tuple[int, int, int], values: Any) -> list[int]:
    """What every thread stores, blocks and threads in their order, x the fastest."""
    return [
        int(values[x]) + 1000 * by + 100000 * (bz * block[2] + z)
        for bz in range(grid[2])
        for by in range(grid[1])
        for _ in range(grid[0])
        for z in range(block[2])
        for _ in range(block[1])
        for x in range(block[0])
    ]


@pytest.mark.parametrize(
    ("op", "grid", "block"), [("numbered", (2, 3, 2), (4, 1, 2)), ("one_axis", (5, 1, 1), (4, 1, 1))]
)
def test_every_thread_of_a_grid_runs_once(
    op: str, grid: tuple[int, int, int], block: tuple[int, int, int], kernels: Path, run_kernel: Callable[..., Any]
) -> None:
    values = np.arange(7, 12)
    wanted = expected(grid, block, values)
    assert run_kernel(kernels, op, [values], outputs=[(DType.int64, (len(wanted),))])[0].tolist() == wanted


def after(
    name: str, op: str, kernels: Path, target: str, entry_of: Callable[..., Any], patch: pytest.MonkeyPatch
) -> str:
    """The program after a pass."""
    patch.setenv("EINKORN_STOP", name)
    types = [(DType.float32, (8, 32))] if op == "halves" else [(DType.int64, (5,))]
    outputs = None if op == "halves" else [(DType.int64, (96,))]
    spec = entry_of(kernels, op, types, {}, outputs)[0]
    with pytest.raises(Stopped) as stopped:
        compile_entry(spec, lookup(target))
    return stopped.value.text


def test_inference_leaves_the_launch(
    kernels: Path, entry_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inferred = after("infer", "numbered", kernels, "x86-64-v3", entry_of, monkeypatch)
    assert "launch 2, 3, 2, 4, 1, 2" in inferred and "gpu_id {which=thread_idx.x}" in inferred
    expanded = after("expand_launches", "numbered", kernels, "x86-64-v3", entry_of, monkeypatch)
    assert "launch " not in expanded and "gpu_id" not in expanded and "parallel 12, 1 " in expanded
    assert "launch " in after("expand_launches", "numbered", kernels, "sm_90a", entry_of, monkeypatch)


def test_a_task_is_some_microseconds_of_work(
    kernels: Path, entry_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inferred = after("infer", "halves", kernels, "x86-64-v3", entry_of, monkeypatch)
    assert "parallel 8, 1 {unit=32}" in inferred and "axis=32" in inferred
    text = after("choose_grains", "halves", kernels, "x86-64-v3", entry_of, monkeypatch)
    (grain,) = map(int, re.findall(r"parallel 8, (\d+) ", text))
    assert "axis" not in text and "unit" not in text and MIN_GRAIN / 32 <= grain <= TASK / 32
