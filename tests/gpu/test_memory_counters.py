"""Bytes, sectors, bank conflicts and atomics of kernels on a simulated GPU, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.gpu_case import KERNELS as GPU_KERNELS

from einkorn.cli.application import run
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.profiling.line_counters import NUMBERS
from einkorn.graph.profiling.memory_counters import MemoryCounters, added

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def moved(out, x, step):
    t = gpu.global_idx.x
    v = x[(t * step) % 1024]
    out[t] = v

@register("c::moved")
def moved_op(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext, *, step: int):
    ctx.launch(moved, out, x, step, grid=8, block=128, parameters={})

def kept(out, x, n):
    tile = gpu.shared[float32](32)
    tile[gpu.thread_idx.x + n] = x[gpu.thread_idx.x]
    gpu.barrier()
    out[gpu.thread_idx.x] = tile[31 - gpu.thread_idx.x + n]

@register("c::kept")
def kept_op(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext):
    ctx.launch(kept, out, x, x.dim(0) // 2048, grid=1, block=32)

def rounds(out, x):
    t = gpu.global_idx.x
    for k in range(3):
        out[t] = x[t] + float32(k)
        gpu.barrier()
    gpu.warp.sync()

@register("c::rounds")
def rounds_op(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext):
    ctx.launch(rounds, out, x, grid=8, block=128)

def turned(out, x, wide: int):
    tile = gpu.shared[float32](32, wide)
    c, r = gpu.thread_idx.x, gpu.thread_idx.y
    tile[r, c] = x[32 * r + c]
    gpu.barrier()
    out[32 * r + c] = tile[c, r]

@register("c::turned")
def turned_op(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext, *, wide: int):
    ctx.launch(turned, out, x, grid=1, block=(32, 32), parameters={"wide": wide})
"""

PROGRAM = """
import numpy as np
from einkorn.graph import *
gpu, device = DeviceRef.GPU(), Accelerator("sim", checks="races")
row = TensorType(DType.float32, [1024], gpu)
def forward(x):
    return ops.custom("c::moved", gpu, [x], [row], parameters=dict(step=8))
model = InferenceSession(devices=[device]).load(Graph("g", forward, [row], custom_extensions=[{kernels!r}]))
x = Buffer.from_numpy(np.zeros(1024, np.float32)).to(device)
model(x)
model.count_memory(x)
model(x)
"""


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def counted(folder: Path, op: str, like: str = "sm_90a", **more: Any) -> Any:
    (folder / "kernels.py").write_text(KERNELS)
    gpu, device = DeviceRef.GPU(), Accelerator("sim", like=like, checks="races")
    room = more.pop("room", 1 << 16)
    row = TensorType(DType.float32, [1024], gpu)

    def forward(value: Any) -> Any:
        return ops.custom(op, device=gpu, values=[value], out_types=[row], parameters=more)

    graph = Graph("counted", forward, [row], custom_extensions=[folder / "kernels.py"])
    model = InferenceSession(devices=[device]).load(graph)
    actual = model.count_memory(Buffer.from_numpy(np.arange(1024, dtype=np.float32)).to(device), room=room)
    return actual, {line.place.source_line().strip(): line for line in actual.lines}


@pytest.mark.parametrize(("step", "sectors", "share"), [(1, 128, 1.0), (2, 256, 0.5), (8, 1024, 0.125)])
def test_sectors_of_global_memory(step: int, sectors: int, share: float, tmp_path: Path) -> None:
    actual, lines = counted(tmp_path, "c::moved", step=step)
    read, written = lines["v = x[(t * step) % 1024]"], lines["out[t] = v"]
    assert (read.accesses, read.requests, read.bytes, read.sectors) == (1024, 32, 4096, sectors)
    assert (read.least, written.least) == (128, 128)
    assert (read.coalescing, written.coalescing, written.sectors, read.space) == (share, 1.0, 128, "global")
    assert actual.whole and (read.op, read.kernel, read.atomics) == ("c::moved", "moved", 0)


def test_a_warp_of_64_lanes_makes_fewer_requests(tmp_path: Path) -> None:
    _, lines = counted(tmp_path, "c::moved", "gfx942", step=1)
    assert lines["out[t] = v"].requests == 16


@pytest.mark.parametrize(("wide", "conflicts"), [(32, 32 * 31), (33, 0), (34, 32)])
def test_conflicts_of_banks(wide: int, conflicts: int, tmp_path: Path) -> None:
    _, lines = counted(tmp_path, "c::turned", wide=wide)
    both = lines["out[32 * r + c] = tile[c, r]"]
    assert lines["tile[r, c] = x[32 * r + c]"].bytes == 4096
    actual, _ = counted(tmp_path, "c::turned", wide=wide)
    shared = [line for line in actual.lines if line.space == "shared"]
    assert sum(line.conflicts for line in shared) == conflicts and both.accesses == 1024
    assert {line.sectors for line in shared} == {0}


def test_barriers(tmp_path: Path) -> None:
    """Once for each block that waited there, in the kernel that they stand in."""
    actual, lines = counted(tmp_path, "c::rounds")
    barrier, sync = lines["gpu.barrier()"], lines["gpu.warp.sync()"]
    assert (barrier.barriers, barrier.space, barrier.kernel, barrier.op) == (8 * 3, "barrier", "rounds", "c::rounds")
    assert (sync.barriers, sync.accesses, sync.bytes, sync.sectors) == (8 * 4, 0, 0, 0)
    assert all(line.barriers == 0 for line in actual.lines if line.space != "barrier")
    assert "24 barriers" in actual.html() and actual.table().splitlines()[0].endswith("barriers")


@pytest.mark.parametrize(("by", "divergent"), [(32, 0), (8, 2), (1, 2)])
def test_divergence(by: int, divergent: int) -> None:
    """Of conditions and of rounds of loops, once for each warp that comes there."""
    device = Accelerator("sim", checks="races")
    row = TensorType(DType.int32, [64], DeviceRef.GPU())

    def forward(value: Any) -> Any:
        return ops.custom("wrong::parting", DeviceRef.GPU(), [value], [row], parameters={"by": by})

    graph = Graph("parting", forward, [row], custom_extensions=[GPU_KERNELS / "wrong_memory.py"])
    model = InferenceSession(devices=[device]).load(graph)
    actual = model.count_memory(Buffer.from_numpy(np.zeros(64, np.int32)).to(device))
    lines = {line.place.source_line().strip(): line for line in actual.lines if line.space == "branch"}  # type: ignore
    branch, loop, last = (lines[text] for text in ("if t // by % 2 == 0:", "for k in range(t // by):", "while n > 0:"))
    assert [(line.branches, line.divergent) for line in (branch, loop)] == [(2, divergent)] * 2
    assert (branch.kernel, branch.op, branch.bytes, branch.barriers) == ("parting", "wrong::parting", 0, 0)
    rounds = [
        [len({(t // by, t // by > k) for t in range(w, w + 32) if t // by >= k}) for k in range(64)] for w in (0, 32)
    ]
    assert last.branches == sum(one > 0 for warp in rounds for one in warp)
    assert f"{divergent} of 2" in actual.table() and f"{divergent} of 2 branches divergent" in actual.html()


def test_the_table_and_json(tmp_path: Path) -> None:
    actual, _ = counted(tmp_path, "c::moved", step=8)
    assert "coalescing" in actual.table().splitlines()[0] and "12.5%" in actual.table()
    values = json.loads(json.dumps(actual.to_list()))
    assert values[0]["coalescing"] == 0.125 and values[0]["place"]["line"] > 1
    short, _ = counted(tmp_path, "c::moved", step=8, room=100)
    assert not short.whole and "too short" in short.table() and sum(line.accesses for line in short.lines) == 98


def test_one_sector_for_all_lanes_is_the_least(tmp_path: Path) -> None:
    _, lines = counted(tmp_path, "c::moved", step=1024)
    read = lines["v = x[(t * step) % 1024]"]
    assert (read.sectors, read.least, read.coalescing) == (32, 32, 1.0)


def test_the_page(tmp_path: Path) -> None:
    actual, _ = counted(tmp_path, "c::moved", step=8)
    actual.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page == actual.html() and "http" not in page and "<script" not in page
    assert "<code>x[(t * step) % 1024]</code> 1,024 sectors, 128 at least" in page
    assert '<pre>    v = x[(t * step) % 1024]</pre><div class="counts">' in page
    assert '<div class="least" style="width:12.5%"></div><div class="more" style="width:87.5%"></div>' in page
    shared, _ = counted(tmp_path, "c::turned", wide=32)
    turned = shared.html("Tile <32>")
    assert "<title>Tile &lt;32&gt;</title>" in turned and "<code>tile[c, r]</code> 992 conflicts" in turned
    assert '<div class="conflict" style="width:100.0%">' in turned
    short, _ = counted(tmp_path, "c::moved", step=8, room=100)
    assert "too short" in short.html() and "too short" not in page
    (tmp_path / "kernels.py").unlink()
    assert "992 conflicts" in shared.html(), "without the text, too"
    assert "No kernel used memory" in MemoryCounters((), whole=True).html()


def test_an_access_with_a_check_is_shown_as_a_whole(tmp_path: Path) -> None:
    actual, _ = counted(tmp_path, "c::kept")
    assert "<code>tile[gpu.thread_idx.x + n]</code>" in actual.html()


def test_several_calls_are_added(tmp_path: Path) -> None:
    first, _ = counted(tmp_path, "c::moved", step=8)
    short, _ = counted(tmp_path, "c::moved", step=8, room=100)
    both = added([first, first])
    assert both.whole and not added([first, short]).whole
    for one, two in zip(first.lines, both.lines, strict=True):
        assert one.place == two.place and one.coalescing == two.coalescing
        assert all(getattr(two, name) == 2 * getattr(one, name) for name in NUMBERS)


def test_the_command_profile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    script, page, numbers = tmp_path / "program.py", tmp_path / "page.html", tmp_path / "numbers.json"
    script.write_text(PROGRAM.format(kernels=str(tmp_path / "kernels.py")))
    assert run(["profile", "-o", str(page), "--json", str(numbers), str(script)]) == 0
    printed, shown = capfd.readouterr().out, json.loads(numbers.read_text())
    table = [line.split() for line in printed.splitlines() if "kernels.py:" in line]
    assert [(row[1], *map(int, row[2:5])) for row in table] == [
        ("global", 3 * 1024, 3 * 4096, 3 * 1024),
        ("global", 3 * 1024, 3 * 4096, 3 * 128),
    ]
    assert [line["accesses"] for line in shown["memory"]] == [3 * 1024] * 2, "count_memory's own call, too"
    assert [group["runs"] for group in shown["groups"]] == [3]
    assert (
        "<h2>Memory of simulated kernels</h2>" in page.read_text() and "3,072 sectors, 384 at least" in page.read_text()
    )


def test_a_device_that_does_not_report_it() -> None:
    row = TensorType(DType.float32, [4], DeviceRef.CPU())
    model = InferenceSession().load(Graph("g", lambda x: x + 1, [row]))
    with pytest.raises(DeviceError, match="does not report the memory accesses of kernels") as raised:
        model.count_memory(np.zeros(4, np.float32))
    assert raised.value.code == "EK0744"
