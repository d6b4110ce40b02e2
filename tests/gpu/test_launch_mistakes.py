"""Launches on fewer than no blocks, and what threads do on a CPU in a launch where nothing waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl.diagnostics.errors import CompileError, KernelError
from einkorn.dsl.package.library import load_library
from einkorn.graph import CPU, Accelerator, Buffer, Device, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, atomic, float32, gpu, int32, int64, register

def double(out, x):
    i = gpu.global_idx.x
    if i < x.dim(0):
        out[i] = x[i] * 2.0

@register("along_x")
def along_x(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], taken: InputTensor[float32, "m"],
            ctx: DeviceContext):
    ctx.launch(double, out, x, grid=x.dim(0) - taken.dim(0), block=4)

@register("along_y")
def along_y(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], taken: InputTensor[float32, "m"],
            ctx: DeviceContext):
    def waits():
        i = gpu.global_idx.x
        gpu.barrier()
        out[i] = x[i] * 2.0
    ctx.launch(waits, grid=(1, x.dim(0) - taken.dim(0)), block=4)

@register("constant")
def constant(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(double, out, x, grid=(1, -2), block=4)

@register("fenced")
def fenced(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def body():
        i = gpu.global_idx.x
        if i < x.dim(0):
            out[i] = x[i]
            gpu.fence()
            gpu.fence("seq_cst", "device")
            out[i] = out[i] + 1.0
    ctx.launch(body, grid=(x.dim(0) + 31) // 32, block=32)

@register("named")
def named(out: OutputTensor[int64, "7 n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def body():
        i = gpu.global_idx.x
        out[0, i] = gpu.lane_idx
        out[1, i] = gpu.warp_idx
        out[2, i] = gpu.cluster_idx.x
        out[3, i] = gpu.block_in_cluster.x
        out[4, i] = gpu.uniform(gpu.block_idx.x, "block")
        out[5, i] = gpu.warp_size
        out[6, i] = gpu.warps_per_block
    ctx.launch(body, grid=x.dim(0) // 64, block=64)
"""


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("kernels") / "launches.py"
    path.write_text(KERNELS)
    return path


def run(path: Any, op: str, device: Device, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    ref = DeviceRef.from_device(device)
    types = [TensorType(DType.float32, [f"n{k}"], ref) for k in range(len(arrays))]
    graph = Graph(op, lambda *x: ops.custom(op, ref, list(x))[0], types, custom_extensions=[path])
    model = InferenceSession(devices=[device]).load(graph)
    actual: np.ndarray[Any, Any] = model(*(Buffer.from_numpy(x).to(device) for x in arrays))[0].to_numpy()
    return actual


@pytest.mark.parametrize("device", [CPU(), Accelerator("sim")], ids=str)
@pytest.mark.parametrize(("op", "axis"), [("along_x", "x"), ("along_y", "y")])
def test_fewer_than_no_blocks_end_the_call(kernels: Any, device: Device, op: str, axis: str) -> None:
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(run(kernels, op, device, x, np.zeros(3, np.float32)), x * 2)
    assert run(kernels, op, device, x, x).shape == (4,)  # a grid of no blocks
    with pytest.raises(KernelError) as caught:
        run(kernels, op, device, x, np.zeros(9, np.float32))
    error = caught.value
    assert (error.code, error.op, error.expected, error.got) == ("EK0830", op, 0, -5)
    assert f"a launch requests -5 blocks along {axis}, and takes at least 0" in error.message
    assert error.place is not None and "grid=" in KERNELS.splitlines()[error.place.line - 1]


def test_fewer_than_no_blocks_that_are_known_are_refused(kernels: Any) -> None:
    with pytest.raises(CompileError, match="has -2 blocks along y") as caught:
        run(kernels, "constant", CPU(), np.zeros(4, np.float32))
    assert caught.value.code == "EK0221"


def test_a_number_of_blocks_that_a_size_gives_is_not_checked(kernels: Any) -> None:
    actual = load_library(str(kernels)).kernels["fenced"]
    spec = instance_entry(actual.portable, make_instance(actual.schema, dtypes={}, ranks={}, parameters={}))
    assert not [site for site in typed_program(spec, lookup("sm_90a")).sites if site.kind == "grid"]


@pytest.mark.parametrize("device", [CPU(), Accelerator("sim")], ids=str)
@pytest.mark.parametrize("size", [0, 1, 77])
def test_fences_where_nothing_waits(kernels: Any, device: Device, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    assert np.array_equal(run(kernels, "fenced", device, x), x + 1)


@pytest.mark.parametrize("device", [CPU(), Accelerator("sim")], ids=str)
def test_what_threads_know_where_nothing_waits(kernels: Any, device: Device) -> None:
    actual = run(kernels, "named", device, np.zeros(128, np.float32))
    thread, block = np.arange(128) % 64, np.arange(128) // 64
    assert np.array_equal(actual, [thread % 32, thread // 32, block, 0 * block, block, 0 * block + 32, 0 * block + 2])
