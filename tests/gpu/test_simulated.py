"""A simulated GPU: the GPU test kernels in sessions, what the device is, and what its kernels report."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs, simulated
from support.gpu_cases import CASES, GpuCase

from einkorn.compiler.targets import lookup
from einkorn.dsl.diagnostics.errors import CompileError, DeviceError, GraphError, KernelError, TargetError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

GPU = DeviceRef.GPU()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


SEEDS = range(int(os.environ.get("GPU_SEEDS", "3")))
# With 64 lanes what depends on lanes, and a few of the others.
RUNS = [(case, "sm_90a") for case in CASES] + [
    (case, "gfx942") for k, case in enumerate(CASES) if case.by_lanes or k % 5 == 0
]


@pytest.mark.parametrize(("case", "like"), RUNS, ids=str)
def test_gpu_kernels(case: GpuCase, like: str) -> None:
    if case.refusal(like) is not None:
        with pytest.raises(CompileError) as refused:
            case.compile(f"sim:{like}")
        assert refused.value.code == case.refusal(like)
        return
    inputs, outputs = case.inputs(), case.expected(lookup(like).lanes)
    for seed in SEEDS:
        arrays = [*(array.copy() for array in inputs), *(np.zeros_like(array) for array in outputs)]
        device = Accelerator("sim", like=like, seed=seed, checks="all")
        simulated.run_unit(case.spec(), device, arrays, outputs=len(outputs))
        case.check(arrays[len(inputs) :], lookup(like).lanes)


def test_what_the_device_is() -> None:
    device = Accelerator("sim")
    assert (device.api, device.architecture_name, device.is_host) == ("sim", "sm_90a", False)
    assert str(device) == "gpu:0 (sim:sm_90a)"
    assert device == Accelerator("sim:sm_90a") != Accelerator("sim", like="gfx942")
    assert len({device, Accelerator("sim", like="sm_90a")}) == 1
    before = device.stats["used_memory"]
    buffer = Buffer.from_numpy(np.arange(1000, dtype=np.float32)).to(device)
    assert device.stats["used_memory"] >= before + 4000
    assert np.array_equal(buffer.to(CPU()).to_numpy(), np.arange(1000, dtype=np.float32))
    del buffer
    assert device.stats["used_memory"] == before
    with pytest.raises(TargetError, match="unknown target"):
        InferenceSession(devices=[Accelerator("sim", like="sm_9")]).load(graph())
    for wrong, like in (("sims", None), ("sim:", None), ("gpu", "gfx942"), ("sim:sm_80", "gfx942"), (0, "sm_90a")):
        with pytest.raises(DeviceError, match="is not a simulated GPU"):
            Accelerator(wrong, like=like)


def graph() -> Graph:
    return Graph("twice", lambda x: x * 2, [TensorType(graphs.DType.float32, ["n"], GPU)])


def test_a_session_says_what_gpu_0_is() -> None:
    one, other = Accelerator("sim"), Accelerator("sim", like="gfx942")
    x = np.arange(300, dtype=np.float32)
    for device in (one, other):
        model = InferenceSession(devices=[CPU(), device]).load(graph())
        assert np.array_equal(model(Buffer.from_numpy(x).to(device))[0].to_numpy(), x * 2)
        wrong = other if device is one else one
        with pytest.raises(GraphError, match=re.escape(f"lies on {wrong}, and the graph takes it on {device}")):
            model(Buffer.from_numpy(x).to(wrong))
    with pytest.raises(DeviceError):
        InferenceSession().load(graph())


KERNEL = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def check(out, x, most):
    i = gpu.global_idx.x
    assert x[i] < most, f"thread {gpu.thread_idx.x} of block {gpu.block_idx.x} has {x[i]}"
    gpu.barrier()
    if i == 3:
        print("thread", i, "has", x[i])
    out[i] = x[i]

@register("checked")
def checked(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(check, out, x, 100.0, grid=x.dim(0) // 32, block=32)

def reach(out, x):
    out[gpu.global_idx.x] = x[gpu.global_idx.x + 1]

@register("reached")
def reached(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(reach, out, x, grid=x.dim(0) // 32, block=32)

def name(out):
    out[gpu.global_idx.x] = float32(gpu.cluster_idx.x)

@register("clustered")
def clustered(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(name, out, grid=(x.dim(0) // 32, 2), block=32, cluster=(3, 2))
"""


def of_kernels(path: Path, op: str, **session: Any) -> Callable[..., Any]:
    """A call of an op of `KERNEL` on a simulated GPU, with an array."""
    path.write_text(KERNEL)
    type = TensorType(graphs.DType.float32, ["n"], GPU)

    def forward(x: Any) -> Any:
        return ops.custom(op, device=GPU, values=[x], out_types=[x.type])[0]

    device = Accelerator("sim", seed=session.pop("seed", None))
    model = InferenceSession(devices=[device], **session).load(Graph(op, forward, [type], custom_extensions=[path]))
    return lambda x: model(Buffer.from_numpy(x).to(device))[0].to_numpy()


def test_kernels_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checked = of_kernels(tmp_path / "kernels.py", "checked")
    x = np.arange(96, dtype=np.float32)
    assert np.array_equal(checked(x), x)
    assert capfd.readouterr().out == "thread 3 has 3.0\n"
    x[40] = 100.0
    with pytest.raises(KernelError, match=r"assertion failed in op 'checked': thread 8 of block 1 has 100.0"):
        checked(x)
    x[40] = 99.0
    assert np.array_equal(checked(x), x)
    reached = of_kernels(tmp_path / "kernels.py", "reached", checks="all")
    with pytest.raises(KernelError, match="index 96 is out of bounds for axis 0 of 'x', whose size is 96") as actual:
        reached(x)
    assert actual.value.code == "EK0703"


def test_checks_of_a_session_that_leave_out_data_races_are_reported() -> None:
    """At the user's line, for devices that the graph uses."""
    graph = Graph("scaled", lambda x: x * 2.0, [TensorType(DType.float32, [3], GPU)])
    with pytest.warns(UserWarning, match="data races are looked for by Accelerator") as caught:
        InferenceSession([Accelerator("sim")], checks="all").load(graph)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InferenceSession([Accelerator("sim", checks="all")], checks="all").load(graph)
        InferenceSession([Accelerator("sim")], checks="safe").load(graph)


def test_a_grid_is_whole_clusters(tmp_path: Path) -> None:
    clustered = of_kernels(tmp_path / "kernels.py", "clustered")
    assert np.array_equal(clustered(np.zeros(192, np.float32)), np.arange(192) // 96)
    assert clustered(np.zeros(0, np.float32)).shape == (0,)
    with pytest.raises(
        KernelError, match="a launch requests clusters of 3 blocks along x, and its grid has 7"
    ) as actual:
        clustered(np.zeros(224, np.float32))
    error = actual.value
    assert (error.code, error.op, error.expected, error.got) == ("EK0830", "clustered", 3, 7)
    assert error.place is not None and "ctx.launch(name" in KERNEL.splitlines()[error.place.line - 1]


ORDERED = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def swap(out, x, correct):
    i = gpu.thread_idx.x
    mine = gpu.shared[float32](96)
    mine[i] = x[gpu.global_idx.x]
    gpu.barrier()
    for k in range(3):
        got = mine[(i + 33) % 96]
        if correct:
            gpu.barrier()
        mine[i] = got + gpu.warp.shuffle_xor(got, 1)
        gpu.barrier()
    out[gpu.global_idx.x] = mine[i]

@register("ordered")
def ordered(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext, *, correct: bool):
    ctx.launch(swap, out, x, grid=x.dim(0) // 96, block=96, parameters={"correct": correct})
"""


def test_a_seed_draws_an_order_and_draws_it_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels.py").write_text(ORDERED)
    x = np.random.default_rng(0).integers(0, 9, 96 * 5).astype(np.float32)
    type = TensorType(graphs.DType.float32, ["n"], GPU)

    def run(seed: int | None, correct: bool) -> bytes:
        device = Accelerator("sim", seed=seed)

        def forward(x: Any) -> Any:
            values = {"device": GPU, "values": [x], "out_types": [x.type], "parameters": {"correct": correct}}
            return ops.custom("ordered", **values)[0]

        staged = Graph("ordered", forward, [type], custom_extensions=[tmp_path / "kernels.py"])
        model = InferenceSession(devices=[device]).load(staged)
        return bytes(model(Buffer.from_numpy(x).to(device))[0].to_numpy().tobytes())

    wanted = x.reshape(5, 96)
    for _ in range(3):
        got = np.roll(wanted, -33, axis=1)
        wanted = got + got.reshape(5, 48, 2)[:, :, ::-1].reshape(5, 96)
    assert {run(seed, True) for seed in range(8)} == {wanted.tobytes()}
    actual = [run(seed, False) for seed in range(1, 8)]
    assert len(set(actual)) > 2 and wanted.tobytes() not in actual
    assert [run(seed, False) for seed in range(1, 8)] == actual
    monkeypatch.setenv("EINKORN_SIM_SEED", "3")
    assert run(None, False) == actual[2]
    monkeypatch.setenv("EINKORN_SIM_SCHEDULE", "0:1.2=64")
    assert Accelerator("sim").driver.schedule == Accelerator("sim", schedule="0:1.2=64").driver.schedule != None  # noqa: E711
    assert run(3, False) == actual[2]
    monkeypatch.setenv("EINKORN_SIM_SCHEDULE", "later")
    with pytest.raises(DeviceError, match="is not a schedule"):
        Accelerator("sim")
    for wrong in (-1, 1 << 63, 1.5):
        with pytest.raises(DeviceError, match="a seed is a whole number"):
            Accelerator("sim", seed=wrong)  # type: ignore[arg-type]


def test_many_blocks_are_each_run_once(tmp_path: Path) -> None:
    for seed in (1, 2):
        checked = of_kernels(tmp_path / "kernels.py", "checked", seed=seed)
        for blocks in (1, 2, 7, 48, 7919):
            x = np.random.default_rng(blocks).random(blocks * 32).astype(np.float32)
            assert np.array_equal(checked(x), x)
        x[33] = 200.0
        with pytest.raises(KernelError, match=f"seed {seed}") as failed:
            checked(x)
        assert "thread 1 of block 1 has 200.0" in failed.value.message
