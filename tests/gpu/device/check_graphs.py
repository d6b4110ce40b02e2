"""Graphs on a GPU: their results are those of the host, in each way to call them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gpu_cases import CASES, GpuCase

from einkorn.compiler.targets import newest_for
from einkorn.dsl.diagnostics.errors import KernelError, ReplayError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    DeviceStream,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    accelerator_count,
    ops,
)

SAMPLE_CASES = CASES[:5]  # all of them run in tests/gpu/test_ptx_cases.py
GPU = DeviceRef.GPU()
HOST = DeviceRef.CPU()
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


def network(device: DeviceRef) -> Graph:
    """Constants, temporaries, results that are inputs, constants and twice the same."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 8

    def forward(x: Any) -> Any:
        constant = ops.constant(weights, DType.float32, device)
        y = ops.relu(x * 2.0 + 1.0)
        return y, y @ constant, ops.sum(y, axis=1), x, constant, y

    return Graph("network", forward=forward, input_types=[TensorType(DType.float32, ["m", 3], device)])


def simple(device: DeviceRef = GPU, dtype: DType = DType.float32) -> Graph:
    def forward(x: Any) -> Any:
        return x * 2.0 + 1.0

    return Graph("simple", forward=forward, input_types=[TensorType(dtype, ["m", 3], device)])


def on_gpu(array: Any) -> Buffer:
    return Buffer.from_numpy(array).to(GPU)


@pytest.mark.parametrize("rows", [4, 1, 0])
def check_results_are_those_of_the_host(rows: int, gpu: Accelerator) -> None:
    session = InferenceSession([gpu, CPU()])
    there, here = session.load(network(GPU)), session.load(network(HOST))
    x = X[:rows]
    for _ in range(2):
        for got, wanted in zip(there(on_gpu(x)), here(x), strict=True):
            assert got.device == gpu and wanted.is_host
            np.testing.assert_allclose(got.to_numpy(), wanted.to_numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.float16, DType.float64, DType.int32])
def check_dtypes(dtype: DType, gpu: Accelerator) -> None:
    def forward(x: Any) -> Any:
        return x + x

    array = np.arange(-6, 6).reshape(4, 3).astype(dtype.to_numpy())
    model = InferenceSession([gpu]).load(Graph("sum", forward=forward, input_types=[TensorType(dtype, ["m", 3], GPU)]))
    np.testing.assert_array_equal(model(on_gpu(array))[0].to_numpy(), array + array)


def check_memory_is_changed_in_place_and_by_replays(gpu: Accelerator) -> None:
    def forward(memory: Any, x: Any) -> None:
        ops.buffer_store(memory, ops.buffer_load(memory) + x)

    types = [BufferType(DType.float32, ["n"], GPU), TensorType(DType.float32, ["n"], GPU)]
    model = InferenceSession([gpu]).load(Graph("sums", forward=forward, input_types=types))
    memory, x = on_gpu(X[0]), on_gpu(X[1])
    for times in (1, 2, 3):
        model(memory, x)
        np.testing.assert_allclose(memory.to_numpy(), X[0] + times * X[1], rtol=1e-6)
    model.capture(1, memory, x)  # which makes the call, too
    model.replay(1, memory, x)
    np.testing.assert_allclose(memory.to_numpy(), X[0] + 5 * X[1], rtol=1e-6)
    model.debug_verify_replay(1, memory, x)
    np.testing.assert_allclose(memory.to_numpy(), X[0] + 6 * X[1], rtol=1e-6)


def check_captures(gpu: Accelerator) -> None:
    model = InferenceSession([gpu]).load(network(GPU))
    x = on_gpu(X)
    outputs = model.capture(7, x)
    np.testing.assert_allclose(outputs[0].to_numpy(), np.maximum(2 * X + 1, 0))
    x.inplace_copy_from(Buffer.from_numpy(X + 1))
    model.replay(7, x)
    np.testing.assert_allclose(outputs[0].to_numpy(), np.maximum(2 * X + 3, 0))
    np.testing.assert_array_equal(outputs[3].to_numpy(), X + 1)
    model.debug_verify_replay(7, x)
    with pytest.raises(ReplayError, match="is not the memory that was captured"):
        model.replay(7, on_gpu(X))
    with DeviceStream(gpu):
        x.inplace_copy_from(Buffer.from_numpy(X))
        model.replay(7, x)
    np.testing.assert_allclose(outputs[0].to_numpy(), np.maximum(2 * X + 1, 0))


def check_conditions_cannot_be_captured(gpu: Accelerator) -> None:
    def forward(x: Any) -> Any:
        return ops.cond(ops.sum(x, axis=0)[0] > 0.0, [x.type], lambda: x * 2.0, lambda: x - 1.0)

    model = InferenceSession([gpu]).load(
        Graph("branch", forward=forward, input_types=[TensorType(DType.float32, [3], GPU)])
    )
    for x in (X[0], X[3]):
        np.testing.assert_allclose(model(on_gpu(x))[0].to_numpy(), x * 2 if x.sum() > 0 else x - 1, rtol=1e-6)
    with pytest.raises(ReplayError) as caught:
        model.capture(1, on_gpu(X[0]))
    assert caught.value.code == "EK0836"
    np.testing.assert_allclose(model(on_gpu(X[0]))[0].to_numpy(), X[0] - 1)  # the model goes on


def check_other_ways_to_call(gpu: Accelerator) -> None:
    model = InferenceSession([gpu]).load(simple())
    out = Buffer(DType.float32, (4, 3), GPU)
    assert model.execute(on_gpu(X), out=[out])[0] is out
    np.testing.assert_allclose(out.to_numpy(), 2 * X + 1)
    bound = model.bind(on_gpu(X))
    np.testing.assert_allclose(bound()[0].to_numpy(), 2 * X + 1)
    first = model.run_slots(on_gpu(X))[0]
    assert model.run_slots(on_gpu(X + 1))[0].address == first.address
    np.testing.assert_allclose(first.to_numpy(), 2 * X + 3)
    piped = model.run_pipelined([[on_gpu(X + k)] for k in range(3)])
    for k, (result,) in enumerate(piped):
        np.testing.assert_allclose(result.to_numpy(), 2 * (X + k) + 1)


def check_streams_of_calls(gpu: Accelerator) -> None:
    model = InferenceSession([gpu]).load(simple())
    streams = [DeviceStream(gpu) for _ in range(3)]
    value = on_gpu(X)
    for k in range(6):
        with streams[k % 3]:
            value = model(value)[0]
    expected = X
    for _ in range(6):
        expected = 2 * expected + 1
    np.testing.assert_allclose(value.to_numpy(), expected, rtol=1e-6)


def check_several_threads(gpu: Accelerator) -> None:
    model = InferenceSession([gpu]).load(simple())
    collected: list[bool] = []

    def work(number: int) -> None:
        with DeviceStream(gpu):
            for _ in range(4):
                result = model(on_gpu(X + number))[0]
            collected.append(np.allclose(result.to_numpy(), 2 * (X + number) + 1))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected == [True] * 3


class Foreign:
    """A tensor of another library on this GPU."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        return self._buffer.__dlpack__(stream=stream, **keywords)

    def __dlpack_device__(self) -> Any:
        return self._buffer.__dlpack_device__()


def check_tensors_of_other_libraries(gpu: Accelerator) -> None:
    model = InferenceSession([gpu]).load(simple())
    np.testing.assert_allclose(model(Foreign(on_gpu(X)))[0].to_numpy(), 2 * X + 1)
    out = on_gpu(X)
    model.execute(on_gpu(X), out=[Foreign(out)])
    np.testing.assert_allclose(out.to_numpy(), 2 * X + 1)


def check_kernels_with_blocks_and_warps(case: GpuCase, gpu: Accelerator) -> None:
    """The kernels that the other ways to run GPU code are tested with."""
    target = newest_for(gpu.architecture_name)
    if case.refusal(target.name) is not None:
        pytest.skip("the target refuses it")
    if "stdlib" in case.path.parts:
        pytest.skip("a kernel of built-in ops, which check_ops.py runs")
    arrays, outputs = case.inputs(), case.types(case.expected())

    def forward(*values: Any) -> Any:
        types = [TensorType(dtype, shape, GPU) for dtype, shape in outputs]
        return ops.custom(case.op, GPU, values, types, parameters=dict(case.params))

    types = [TensorType(dtype, shape, GPU) for dtype, shape in case.types(arrays)]
    graph = Graph("case", forward=forward, input_types=types, custom_extensions=[case.path])
    model = InferenceSession([gpu]).load(graph)
    case.check([result.to_numpy() for result in model(*map(on_gpu, arrays))], target.lanes)


POSITIVE = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("positive")
def positive(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def at(i):
        assert x[i] > 0, f"x[{i[0]}] is {x[i]}"
        return x[i]
    foreach(out, at)
"""


def check_assertions_of_kernels(gpu: Accelerator, tmp_path: Path) -> None:
    """Which waits behind a call is given it, and behind a replay; the device goes on."""
    (tmp_path / "positive.py").write_text(POSITIVE)

    def forward(x: Any) -> Any:
        return ops.custom("positive", GPU, [x], [x.type])[0]

    types = [TensorType(DType.float32, [6], GPU)]
    model = InferenceSession([gpu]).load(
        Graph("checked", forward=forward, input_types=types, custom_extensions=[tmp_path / "positive.py"])
    )
    good = np.arange(1, 7, dtype=np.float32)
    x = on_gpu(good)
    (out,) = model.capture(1, x)
    for _ in range(2):
        x[4] = -3.0
        for call in (lambda: model(x), lambda: model.replay(1, x)):
            with pytest.raises(KernelError, match=r"x\[4\] is -3"):
                call()
                gpu.synchronize()
        x[4] = 5.0
        model.replay(1, x)
        np.testing.assert_array_equal(out.to_numpy(), good)


def check_graphs_of_several_devices(gpu: Accelerator) -> None:
    """The host and all GPUs, one or two: copies are steps of the graph, and between two GPUs the driver's own."""
    gpus = [Accelerator(number) for number in range(min(2, accelerator_count()))]
    last = DeviceRef.GPU(len(gpus) - 1)

    def forward(x: Any) -> Any:
        there = (x + 1.0).to(GPU)
        far = (there * 2.0).to(last)
        return there, far * x.to(last), (far - 1.0).to(HOST) + x

    graph = Graph("several", forward=forward, input_types=[TensorType(DType.float32, ["m", 3], HOST)])
    model = InferenceSession([CPU(), *gpus]).load(graph)
    for x in (X, np.asfortranarray(X), X[:1], X[:0]):
        for run in (model, model.run_slots):
            there, far, near = run(x)
            assert (there.device, far.device, near.device) == (gpus[0], gpus[-1], CPU())
            np.testing.assert_array_equal(there.to_numpy(), x + 1)
            np.testing.assert_array_equal(far.to_numpy(), (x + 1) * 2 * x)
            np.testing.assert_array_equal(near.to_numpy(), (x + 1) * 2 - 1 + x)
    held = X.copy()
    outputs = model.capture(3, held)
    held[:] = 1
    model.replay(3, held)
    np.testing.assert_array_equal(outputs[2].to_numpy(), np.full((4, 3), 4.0))
    stream = DeviceStream(gpu)
    with stream:
        there, _, near = model(X)
        np.testing.assert_array_equal(near.to_numpy(), (X + 1) * 2 - 1 + X)
        np.testing.assert_array_equal(there.to_numpy(), X + 1)
