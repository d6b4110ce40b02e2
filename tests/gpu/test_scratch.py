"""Memory of the device for one call: sizes are computed before it, pieces lie apart, and sessions find room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gpu_case import KERNELS
from support.gpu_cases_memory import _neighbours
from support.recording_device import RecordingDriver, recording_kind

from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices

FILE = KERNELS / "scratch.py"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, recording_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, RecordingDriver)
    yield driver


def graph(device: DeviceRef, *names: str) -> Graph:
    """The ops one after the other."""

    def forward(x: Any) -> Any:
        for name in names:
            (x,) = ops.custom(f"scratch::{name}", device, [x], [x.type])
        return x

    return Graph("chain", forward, [TensorType(DType.float32, ["n"], device)], custom_extensions=[FILE])


@pytest.mark.parametrize("names", [("neighbours",), ("rounds", "neighbours", "rounds", "neighbours")])
def test_a_session_on_a_cpu_finds_room_for_every_size(names: tuple[str, ...]) -> None:
    """The second graph is linked of groups."""
    model = InferenceSession().load(graph(DeviceRef.CPU(), *names))
    for n in (0, 1, 10, 11, 500, 33, 3000):
        x = np.random.default_rng(n).integers(-3, 4, n).astype(np.float32)
        wanted = x
        for name in names:
            wanted = _neighbours(wanted) if name == "neighbours" else wanted + (2 if n > 10 else 1)
        assert np.array_equal(model.execute(x)[0].to_numpy(), wanted), (n, names)


def test_pieces_lie_apart_in_memory_of_the_device(driver: RecordingDriver) -> None:
    model = InferenceSession(devices=[Accelerator(0)]).load(graph(DeviceRef.GPU(), "neighbours", "rounds"))
    for n in (5000, 7):
        driver.launches.clear()
        model.execute(Buffer.from_numpy(np.zeros(n, np.float32)).to(DeviceRef.GPU()))
        partial, mark, shifted, *rounds = driver.launches
        assert len(rounds) == (2 if n > 10 else 1)
        pointers = [
            {value: p for p, value in zip(each.kernel.parameters, each.arguments, strict=True) if p.kind == "pointer"}
            for each in (partial, mark, shifted, *rounds)
        ]
        (kept,) = (at for at, p in pointers[0].items() if p.access == "write")
        (marks,) = pointers[1]
        blocks = -(-n // 32)
        assert pointers[0][kept].buffer == -1 and abs(marks - kept) >= 4 * blocks and (marks - kept) % 256 == 0
        assert {kept, marks} < set(pointers[2])
        if n > 10:  # the next op takes the same memory
            assert kept in pointers[3] and kept in pointers[4]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("kept = gpu.scratch[float32]()", "EK0208", "gpu.scratch[T](...) takes sizes: whole numbers"),
        ("kept = gpu.scratch[float32](1.5)", "EK0205", "the float 1.5 does not fit int64"),
        ("kept = gpu.scratch[3](1)", "EK0208", "takes a dtype"),
    ],
)
def test_mistakes(text: str, code: str, message: str, tmp_path: Path) -> None:
    refused(tmp_path, text, "pass", code, message)


def test_it_is_host_code(tmp_path: Path) -> None:
    refused(tmp_path, "pass", "kept = gpu.scratch[float32](8)", "EK0221", "it is made in host code")


def refused(tmp_path: Path, host: str, kernel: str, code: str, message: str) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register\n"
        f"def inner(out):\n    {kernel}\n    out[0] = 1\n"
        '@register("wrong")\n'
        'def wrong(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):\n'
        f"    {host}\n"
        "    ctx.launch(inner, out, grid=1, block=32)\n"
    )
    x = TensorType(DType.float32, [5], DeviceRef.CPU())
    made = Graph("wrong", lambda x: ops.custom("wrong", DeviceRef.CPU(), [x], [x.type]), [x], custom_extensions=[file])
    with pytest.raises(CompileError) as caught:
        InferenceSession().load(made)
    assert caught.value.code == code and message in str(caught.value)
