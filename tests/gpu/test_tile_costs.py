"""Which tiles a product takes, and into how many pieces its inner axis is cut: by the static model, without a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph

TARGETS = ("sm_80", "sm_90a", "gfx942")


def launches(m: int, k: int, n: int, target: str) -> list[int]:
    """The blocks of each launch of a product of bfloat16; kernels for aligned and for other matrices have as many."""
    graph = op_graph("matmul", [f"bfloat16[{m}, {k}]", f"bfloat16[{k}, {n}]"], {}, target)
    text = graph.code("typed", target)
    return [int(match) for match in re.findall(r"^\s*launch (\d+),", text, re.M)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [(16, 4096, 4096), (2, 4096, 4096), (256, 4096, 256), (64, 16384, 256)])
def test_few_tiles_are_cut_along_the_inner_axis_until_the_device_is_full(
    sizes: tuple[int, int, int], target: str
) -> None:
    blocks, *others = launches(*sizes, target)  # the last launch adds up
    with_roles = lookup(target).supports("wgmma") and sizes[0] > 16  # for which there are two kernels
    assert len(others) == (2 if with_roles else 1)
    most = sizes[1] // 32 // 4 * -(-sizes[0] // 64) * -(-sizes[2] // 64)  # pieces of four steps of small tiles
    assert blocks >= min(2 * lookup(target).limits.multiprocessors, most // 2)


@pytest.mark.parametrize("target", TARGETS)
def test_many_tiles_are_large_and_whole(target: str) -> None:
    wide = [32 * 16] if target == "sm_90a" else []  # tiles that wait for the cache less
    assert launches(4096, 4096, 4096, target) == [*wide, 32 * 32]


def test_wide_tiles_read_less_unless_they_are_half_empty() -> None:
    assert launches(128 * 132, 4096, 256, "sm_90a") == [132, 264]  # a round of an H100's multiprocessors
    assert launches(128 * 134, 4096, 256, "sm_90a") == [134, 268]  # two rounds, as of the 268 large ones
    assert launches(128 * 140, 4096, 128, "sm_90a") == [140, 140]  # large ones


def test_less_work_goes_by_smaller_tiles() -> None:
    assert set(launches(1024, 1024, 1024, "sm_90a")) == {16 * 16}
    assert set(launches(64, 64, 64, "sm_90a")) == {1}  # one step: there is nothing to cut


@pytest.mark.parametrize(
    ("sizes", "like"), [((16, 1030, 130), "sm_90a"), ((65, 700, 65), "sm_90a"), ((3, 515, 7), "gfx942")]
)
def test_pieces_are_added_up(sizes: tuple[int, int, int], like: str) -> None:
    m, k, n = sizes
    gpu, device = DeviceRef.GPU(), Accelerator("sim", like=like, checks="all")
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    types = [TensorType(DType.float16, ["rows", k], gpu), TensorType(DType.float16, [n, k], gpu)]
    graph = Graph("g", lambda x, y: ops.maximum(x @ ops.transpose(y, 0, 1), 0.0) + 1.0, types)
    model = InferenceSession(devices=[device]).load(graph)
    result = model(Buffer.from_numpy(a).to(device), Buffer.from_numpy(b).to(device))[0].to_numpy()
    exact = np.maximum(a.astype(np.float64) @ b.T.astype(np.float64), 0) + 1
    assert np.abs(result - exact).max() <= 2**-11 * np.abs(exact).max() + 1e-5 * np.sqrt(k)
