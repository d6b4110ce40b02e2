"""What kernels of a device report: the first failure, with its thread, and prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import harness
from support.launching_device import launching_kind
from support.ptx_device import run_ptx

from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.driver.devices import Accelerator
from einkorn.graph.engine.model import Model

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, bfloat16, ceildiv, float32, gpu, register

@register("risky")
def risky(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        i = gpu.global_idx.x
        if i < x.dim(0):
            if i % 100 == 0:
                print("element", i, "is", x[i], "or", bfloat16(x[i]))
            assert x[i] >= 0, f"element {i} is {x[i]}"
            out[i] = x[i] + 1
    ctx.launch(one, grid=ceildiv(x.dim(0), 32), block=32)

@register("talks")
def talks(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        print(gpu.global_idx.x)
        out[gpu.global_idx.x] = x[gpu.global_idx.x]
    ctx.launch(one, grid=x.dim(0) // 128, block=128)

@register("behind")
def behind(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        if gpu.thread_idx.x < 64:
            gpu.barrier(id=1, threads=64)
        assert x[gpu.thread_idx.x] >= 0
        out[gpu.thread_idx.x] = 1
    ctx.launch(one, grid=1, block=128)

@register("before")
def before(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        if x[0] > 1:
            assert x[gpu.thread_idx.x] >= 0
        if gpu.thread_idx.x < 64:
            gpu.barrier(id=1, threads=64)
        out[gpu.thread_idx.x] = 1
    ctx.launch(one, grid=1, block=128)

@register("round")
def round(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        for i in range(x.dim(0)):
            if gpu.thread_idx.x < 64:
                gpu.barrier(id=1, threads=64)
            assert x[i] >= 0
        out[gpu.thread_idx.x] = 1
    ctx.launch(one, grid=1, block=128)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with a GPU whose kernels run in the interpreter of PTX."""
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, "sm_80")])
    yield


def loaded(library: Path, op: str) -> Model:
    x = TensorType(DType.float32, ("n",), DeviceRef.GPU())
    with Graph("reports", input_types=[x], custom_extensions=[library]) as graph:
        graph.output(ops.custom(op, DeviceRef.GPU(), [graph.inputs[0]], [x])[0])
    return InferenceSession(devices=[Accelerator(0)]).load(graph)


def run(model: Model, values: np.ndarray) -> list[float]:  # type: ignore[type-arg]
    return model.execute(Buffer.from_numpy(values).to(DeviceRef.GPU()))[0].to_numpy().tolist()  # type: ignore[no-any-return]


def test_a_failure_names_its_place_and_its_thread(library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = loaded(library, "risky")
    assert run(model, np.arange(3, dtype=np.float32)) == [1, 2, 3]
    values = np.arange(128, dtype=np.float32)
    values[69] = -2.5
    with pytest.raises(KernelError, match=r"EK0701.*assertion failed in op 'risky': element 69 is -2\.5") as caught:
        run(model, values)
    assert caught.value.place is not None and Path(caught.value.place.file) == library
    assert "thread (5, 0, 0) of block (2, 0, 0)" in caught.value.notes
    assert capfd.readouterr().out.splitlines() == [
        "element 0 is 0.0 or 0.0",
        "element 0 is 0.0 or 0.0",
        "element 100 is 100.0 or 100.0",
    ]
    assert run(model, np.zeros(2, np.float32)) == [1, 1], "the next call has forgotten it"


def test_prints_without_room_are_counted(library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(loaded(library, "talks"), np.zeros(1024, np.float32))
    *lines, last = capfd.readouterr().out.splitlines()
    assert len(set(lines)) == len(lines) == (8192 - 130) // 9
    assert last == f"... and {1024 - len(lines)} more prints, for which there was no room"


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "gfx90a", "gfx1201"])
@pytest.mark.parametrize("op", ["risky", "behind", "before", "round"])
def test_kernels_trap_where_others_would_wait_for_ever(op: str, target: str, library: Path) -> None:
    """Only at assertions with a named barrier behind them, which AMD's GPUs do not have."""
    named = op not in ("risky",)
    if named and target.startswith("gfx"):
        return
    artifact = harness.compile_kernel(library, op, [(DType.float32, (100,))], target=target)[0]
    assert ("trap;" in artifact.asm) == (op in ("before", "round"))
    if artifact.target.format.suffix == "ptx" and find_ptxas() is not None:
        assert assemble(artifact.asm, artifact.target)
