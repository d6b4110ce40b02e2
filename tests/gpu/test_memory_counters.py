"""Bytes, sectors, bank conflicts and atomics of kernels on a simulated GPU, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def moved(out, x, step):
    t = gpu.global_idx.x
    v = x[(t * step) % 1024]
    out[t] = v

@register("c::moved")
def moved_op(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext, *, step: int):
    ctx.launch(moved, out, x, step, grid=8, block=128, parameters={})

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
    found = model.count_memory(Buffer.from_numpy(np.arange(1024, dtype=np.float32)).to(device), room=room)
    return found, {line.place.source_line().strip(): line for line in found.lines}


@pytest.mark.parametrize(("step", "sectors", "share"), [(1, 128, 1.0), (2, 256, 0.5), (8, 1024, 0.125)])
def test_sectors_of_global_memory(step: int, sectors: int, share: float, tmp_path: Path) -> None:
    found, lines = counted(tmp_path, "c::moved", step=step)
    read, written = lines["v = x[(t * step) % 1024]"], lines["out[t] = v"]
    assert (read.accesses, read.requests, read.bytes, read.sectors) == (1024, 32, 4096, sectors)
    assert (read.coalescing, written.coalescing, written.sectors, read.space) == (share, 1.0, 128, "global")
    assert found.whole and (read.op, read.kernel, read.atomics) == ("c::moved", "moved", 0)


def test_a_warp_of_64_lanes_makes_fewer_requests(tmp_path: Path) -> None:
    _, lines = counted(tmp_path, "c::moved", "gfx942", step=1)
    assert lines["out[t] = v"].requests == 16


@pytest.mark.parametrize(("wide", "conflicts"), [(32, 32 * 31), (33, 0), (34, 32)])
def test_conflicts_of_banks(wide: int, conflicts: int, tmp_path: Path) -> None:
    _, lines = counted(tmp_path, "c::turned", wide=wide)
    both = lines["out[32 * r + c] = tile[c, r]"]
    assert lines["tile[r, c] = x[32 * r + c]"].bytes == 4096
    found, _ = counted(tmp_path, "c::turned", wide=wide)
    shared = [line for line in found.lines if line.space == "shared"]
    assert sum(line.conflicts for line in shared) == conflicts and both.accesses == 1024
    assert {line.sectors for line in shared} == {0}


def test_the_table_and_json(tmp_path: Path) -> None:
    found, _ = counted(tmp_path, "c::moved", step=8)
    assert "coalescing" in found.table().splitlines()[0] and "12.5%" in found.table()
    values = json.loads(json.dumps(found.to_list()))
    assert values[0]["coalescing"] == 0.125 and values[0]["place"]["line"] > 1
    short, _ = counted(tmp_path, "c::moved", step=8, room=100)
    assert not short.whole and "too short" in short.table() and sum(line.accesses for line in short.lines) == 99


def test_a_device_that_does_not_tell() -> None:
    row = TensorType(DType.float32, [4], DeviceRef.CPU())
    model = InferenceSession().load(Graph("g", lambda x: x + 1, [row]))
    with pytest.raises(DeviceError, match="does not tell what kernels do with memory") as raised:
        model.count_memory(np.zeros(4, np.float32))
    assert raised.value.code == "EK0744"
