"""Estimates of the share of a device's limit: from counts of a simulated GPU, and from machine code alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ladder import HAS_TOOLS, compiled

from einkorn.compiler.explorer.instruction_costs import amd, nvidia
from einkorn.compiler.explorer.kernel_code import Coded
from einkorn.compiler.explorer.natural_loops import loops_of
from einkorn.compiler.explorer.page import explore
from einkorn.compiler.explorer.steady_loops import steady_loops
from einkorn.compiler.targets import amdgcn, nvptx
from einkorn.dsl import DType
from einkorn.dsl.contract.gpus import PEAKS, RESIDENT, architecture_of, peaks_of, resident_of
from einkorn.dsl.contract.launches import LaunchCounters
from einkorn.dsl.diagnostics.errors import CompileError, TargetError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph
from einkorn.graph.profiling.memory_counters import MemoryCounters
from einkorn.graph.profiling.roofline import Roofline
from einkorn.graph.profiling.static_roofline import launch_counts, roofline_html

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)


def counted(
    build: Callable[..., Any], *shapes: tuple[int, ...], dtype: np.dtype[Any] = F32, room: int = 1 << 23
) -> MemoryCounters:
    gpu, device = DeviceRef.GPU(), Accelerator("sim", like="sm_90a", checks="races")
    arrays = [np.ones(shape, dtype) for shape in shapes]
    graph = Graph("g", build, [TensorType(DType[array.dtype.name], array.shape, gpu) for array in arrays])
    model = InferenceSession(devices=[device]).load(graph)
    return model.count_memory(*(Buffer.from_numpy(array).to(device) for array in arrays), room=room)


def test_operations_are_those_of_the_mathematics() -> None:
    (added,) = counted(lambda a, b: a + b, (100, 64), (100, 64)).launches
    assert (added.op, added.operations, added.bytes) == ("add", {"float32": 6400}, 3 * 4 * 6400)
    (product,) = counted(lambda a, b: a @ b, (64, 32), (32, 64)).launches
    assert product.operations == {"float32": 2 * 64 * 32 * 64} and product.shared > 0
    (of_tiles,) = counted(lambda a, b: a @ b, (64, 64), (64, 64), dtype=F16).launches
    assert of_tiles.operations == {"dot.float16": 2 * 64**3}


def test_a_trace_without_room_for_a_call_is_said_to_be_short() -> None:
    """The inner axis is cut: of the launch that adds up, and of the last steps, nothing was counted."""
    short, whole = (
        counted(lambda a, b: a @ b, (17, 1030), (1030, 8), dtype=F16, room=room) for room in (1 << 17, 1 << 23)
    )
    assert "too short" in short.roofline().table() and "too short" not in whole.roofline().table()
    assert [launch.op for launch in whole.launches] == ["matmul"] * 2
    assert sum(whole.launches[0].operations.values()) == 17 * 2 * 64**3
    assert sum(short.launches[0].operations.values()) < 17 * 2 * 64**3


def test_sectors_once_and_all() -> None:
    (launch,) = counted(lambda a, b: a + b, (64, 64), (64, 64)).launches
    assert launch.distinct == 3 * 64 * 64 * 4 // 32 <= launch.cached


def launch(**more: Any) -> LaunchCounters:
    """A launch that fills an H100 with copies."""
    size = 1 << 28
    known: dict[str, Any] = {
        **{"op": "o", "kernel": "k", "blocks": 132 * 16, "threads": 256, "shared": 0, "lanes": 32},
        **{"requests": size // 512, "bytes": size, "sectors": size // 32, "distinct": size // 32, "cached": size // 32},
        **{"turns": 0, "conflicts": 0, "operations": {}},
    }
    return LaunchCounters(**known | more)


@pytest.mark.parametrize(
    ("more", "wall"),
    [
        ({}, "memory"),
        ({"cached": 1 << 26}, "cache"),
        ({"turns": 1 << 30}, "shared memory"),
        ({"operations": {"float32": 1 << 43}}, "float32"),
        ({"operations": {"float64": 1 << 42}}, "float64"),
        ({"operations": {"dot.bfloat16": 1 << 47}}, "matrix units"),
        ({"operations": {"dot.float32": 1 << 43}}, "float32"),
        ({"blocks": 32}, "latency"),
    ],
)
def test_walls(more: dict[str, Any], wall: str) -> None:
    (kernel,) = Roofline.of([launch(**more)], "sm_90a").kernels
    assert kernel.wall == wall
    assert (kernel.share == 1) == (wall not in ("cache", "shared memory", "latency"))


def test_few_blocks_leave_multiprocessors_idle() -> None:
    work = {"operations": {"float32": 1 << 43}}
    shares = [Roofline.of([launch(blocks=blocks, **work)], "sm_90a").kernels[0].share for blocks in (66, 132, 133)]
    assert shares[0] == pytest.approx(0.5) and shares[1] == 1 and shares[2] == pytest.approx(133 / 264)


def test_shared_memory_limits_occupancy() -> None:
    kernels = Roofline.of([launch(shared=size) for size in (0, 100 * 1024)], "sm_90a").kernels
    assert [kernel.occupancy for kernel in kernels] == [1, 0.25]


def test_the_table_and_the_page() -> None:
    counters = counted(lambda a: ops.softmax(a, axis=-1) + 1.0, (64, 256))
    for device, name in (("", "H100 SXM"), ("gfx942", "MI300X"), ("sm_80", "A100 SXM 80 GB")):
        table = counters.roofline(device).table()
        assert f"estimated for {name}" in table and "figures: " in table and table.count("\n") >= 3
    page = counters.html()
    assert (
        '<svg class="rooflines"' in page
        and "H100 SXM" in page
        and page.count('class="share"') == len(counters.launches)
    )
    assert {"moved", "least", "wall", "share"} <= set(counters.roofline().to_list()[0])


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(TargetError, match="no peak figures of a device of sm_42 are known") as caught:
        counted(lambda a: a + 1.0, (8, 8)).roofline("sm_42")
    assert caught.value.code == "EK0601"


def test_the_table_of_devices() -> None:
    assert set(PEAKS) <= set(RESIDENT)
    for name in PEAKS:
        peaks, resident = peaks_of(name), resident_of(name)
        assert peaks.source and peaks.products["bfloat16"] > peaks.float32 > 0
        lanes = peaks.float32 / (2 * peaks.clock * resident.multiprocessors)
        assert 55 < lanes < 280, (name, lanes)  # float32 lanes of a multiprocessor
    for name, target in (*nvptx.TARGETS.items(), *amdgcn.TARGETS.items()):
        assert target.limits.multiprocessors == RESIDENT[architecture_of(name)].multiprocessors
        if architecture_of(name) in PEAKS:
            assert target.lanes == peaks_of(name).lanes


def test_costs_of_instructions() -> None:
    assert nvidia("LDG.E.128.CONSTANT").memory == 16 and nvidia("STG.E.U16").memory == 2
    assert nvidia("LDSM.16.MT88.4").shared == 16 and nvidia("FFMA").floats == 2
    assert 32 * nvidia("HMMA.16816.F32.BF16").products == 2 * 16 * 8 * 16
    assert 128 * nvidia("HGMMA.64x128x16.F32.BF16").products == 2 * 64 * 128 * 16
    assert amd("global_load_dwordx4", 64).memory == 16 and amd("buffer_store_short", 64).memory == 2
    assert amd("ds_read2_b64", 64).shared == 16 and amd("v_pk_fma_f32", 64).floats == 4
    assert 64 * amd("v_mfma_f32_16x16x16_f16", 64).products == 2 * 16**3
    assert amd("v_mfma_f32_16x16x16_bf16", 64).dtype == "bfloat16" and amd("v_exp_f32", 64).special


def test_loops_of_code() -> None:
    code = [Coded(), Coded(), Coded(to="two"), Coded(), Coded(to="one"), Coded(always=True)]
    assert set(loops_of(code, {"one": 1, "two": 2})) == {frozenset({1, 2, 3, 4}), frozenset({2})}
    assert loops_of([Coded(to="on", always=True), Coded(), Coded()], {"on": 2}) == []


@pytest.mark.skipif(not HAS_TOOLS, reason="machine code is shown by ptxas and nvdisasm")
def test_steady_loops_of_nvidia(tmp_path: Path) -> None:
    (naive,) = steady_loops(compiled(tmp_path, "naive"))
    assert naive.wall == "memory" and naive.spot is not None and naive.occupancy == 1
    (product,) = steady_loops(compiled(tmp_path, "cores"))
    assert product.clocks["matrix units"] > 0 and product.ends == "registers" and product.kernel.threads == 64


def test_steady_loops_of_amd(tmp_path: Path) -> None:
    (product,) = steady_loops(compiled(tmp_path, "cores", "gfx942"))
    assert product.clocks["matrix units"] > 0 and product.kernel.registers > 0 and 0 < product.occupancy <= 1


def test_the_page_of_explore_has_limits(tmp_path: Path) -> None:
    compiled(tmp_path, "shared", "gfx942")
    page = explore(str(tmp_path / "shared.py"), ["x86-64-v3", "gfx942"])
    assert page.count("limits on ") == 1 and "MI300X" in page and '<div class="unit"><span>memory</span>' in page
    assert "roofline on" not in page


def test_the_page_of_explore_has_the_roofline_of_sizes_and_the_reasons_of_lines(tmp_path: Path) -> None:
    compiled(tmp_path, "ahead", "gfx942")
    targets, source = ["x86-64-v3", "gfx942", "sm_75"], str(tmp_path / "ahead.py")
    page = explore(source, targets, {"m": 256, "n": 512}, roofline_html)
    (title,) = re.findall(r"<summary>(roofline on [^<]*)</summary>", page)
    assert re.fullmatch(r"roofline on gfx942 for m = 256, k = 1024, n = 512: \d+% of the limit, by [a-z ]+", title)
    assert "<svg" in page and "268 M" in page  # 2 * 256 * 512 * 1024 operations
    (reason,) = re.findall(r'<div class="loop" data-target="gfx942">(product: mfma[^<]*)</div>', page)
    assert "as gfx942 has no mfma_16_bytes" in reason
    with pytest.raises(CompileError, match="has no axis 'q'"):
        explore(source, targets, {"q": 1}, roofline_html)


def test_neighbours_of_elementwise_kernels_move_their_sectors_once() -> None:
    """A thread has four neighbours, one behind the other in the typed program and together in machine code."""
    for name, inputs in (("add", 2), ("exp", 1)):
        graph = op_graph(name, ["float32[4096, 1024]"] * inputs, {}, "sm_90a")
        (launch,) = launch_counts(graph.ir, "sm_90a", {})
        assert launch.sectors == launch.distinct == (inputs + 1) * 4096 * 1024 * 4 // 32, name
