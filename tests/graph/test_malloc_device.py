"""What graphs compute on a device with memory of its own is what they compute on the host."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.malloc_device import MALLOC

from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    ops,
)
from einkorn.graph.driver import devices

GPU = DeviceRef.GPU()
HOST = DeviceRef.CPU()
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, MALLOC])


def network(device: DeviceRef) -> Graph:
    """Constants, temporaries, results that are inputs, constants and twice the same."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)

    def forward(x: Any) -> Any:
        constant = ops.constant(weights, DType.float32, device)
        y = ops.softmax(x * 2.0 + 1.0)
        return y, y @ constant, ops.sum(y, axis=0), x, constant, y

    return Graph("network", forward=forward, input_types=[TensorType(DType.float32, ["m", 3], device)])


def test_kernels_are_interpreted_on_the_host() -> None:
    with pytest.raises(DeviceError, match="runs on gpu:0, and kernels are interpreted in the host's memory") as caught:
        InferenceSession([Accelerator(0)], interpret=True).load(network(GPU))
    assert caught.value.code == "EK0806"


@pytest.mark.parametrize("rows", [4, 1, 0])
def test_results_are_those_of_the_host(rows: int) -> None:
    session = InferenceSession([Accelerator(0), CPU()])
    there, here = session.load(network(GPU)), session.load(network(HOST))
    x = X[:rows]
    for _ in range(2):
        for got, wanted in zip(there(Buffer.from_numpy(x).to(GPU)), here(x), strict=True):
            assert got.device == Accelerator(0) and wanted.is_host
            np.testing.assert_array_equal(got.to_numpy(), wanted.to_numpy())


def test_memory_is_changed_in_place() -> None:
    def forward(memory: Any, x: Any) -> None:
        ops.buffer_store(memory, ops.buffer_load(memory) + x)

    types = [BufferType(DType.float32, ["n"], GPU), TensorType(DType.float32, ["n"], GPU)]
    model = InferenceSession([Accelerator(0)]).load(Graph("sums", forward=forward, input_types=types))
    memory, x = (Buffer.from_numpy(X[k]).to(GPU) for k in (0, 1))
    for times in (1, 2, 3):
        model(memory, x)
        np.testing.assert_allclose(memory.to_numpy(), X[0] + times * X[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", DType)
def test_elements_survive_the_way_there_and_back(dtype: DType) -> None:
    array = np.arange(15).reshape(3, 5) % 2
    there = Buffer.from_numpy(array.astype(dtype.to_numpy())).to(GPU)
    assert there.to(CPU()).to_numpy().tobytes() == array.astype(dtype.to_numpy()).tobytes()
    zeros, wanted = Buffer.zeros((3, 5), dtype, GPU), Buffer.zeros((3, 5), dtype)
    assert zeros.to_numpy().tobytes() == wanted.to_numpy().tobytes()
    zeros.inplace_copy_from(there)
    assert zeros.copy().to_numpy().tobytes() == there.to_numpy().tobytes()


def test_elements_are_written_and_read() -> None:
    buffer = Buffer.zeros((2, 3), DType.float32, GPU)
    buffer[1, :2] = [2.5, -1.0]
    assert buffer.to_numpy().tolist() == [[0, 0, 0], [2.5, -1.0, 0]]
    assert Buffer.scalar(7, DType.int32, GPU).item() == 7
    assert buffer.view(DType.uint32, (6,)).to_numpy()[3] == np.float32(2.5).view(np.uint32)
    strided = Buffer.from_numpy(X)[:, 1]
    np.testing.assert_array_equal(strided.to(GPU).to_numpy(), X[:, 1])
    packed = Buffer.from_numpy(np.array([1, -2, 3], ml_dtypes.int4)).to(GPU)
    packed[2] = -4
    assert packed.to_numpy().astype(int).tolist() == [1, -2, -4]
