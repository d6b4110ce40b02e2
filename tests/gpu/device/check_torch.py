"""Tensors of PyTorch on a GPU: memory goes both ways without a copy, in the order of streams. Hardware only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.graph import Accelerator, Buffer, DeviceRef, DeviceStream, DType, Graph, InferenceSession, TensorType

torch = pytest.importorskip("torch")
GPU = DeviceRef.GPU()


def model(gpu: Accelerator) -> Any:
    graph = Graph("twice", forward=lambda x: x * 2.0, input_types=[TensorType(DType.float32, ["n"], GPU)])
    return InferenceSession([gpu]).load(graph)


def check_tensors_go_in_and_out(gpu: Accelerator) -> None:
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    (y,) = model(gpu)(x)
    taken = torch.from_dlpack(y)
    assert taken.data_ptr() == y.address and taken.device.type == "cuda"
    assert torch.equal(taken, 2 * x)
    assert Buffer.from_dlpack(x).address == x.data_ptr()


def check_order_with_streams_of_torch(gpu: Accelerator) -> None:
    """Each side enqueues, and nothing waits on the host; the last result is right only in this order."""
    call = model(gpu)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), DeviceStream(gpu, stream.cuda_stream):
        x = torch.ones(1 << 22, device="cuda")
        for _ in range(8):
            x = torch.from_dlpack(call(x)[0]) + 1
    torch.cuda.synchronize()
    assert float(x.min()) == float(x.max()) == 511
    y = torch.ones(1 << 22, device="cuda")  # and with streams of their own
    with DeviceStream(gpu):
        for _ in range(8):
            y = torch.from_dlpack(call(y)[0]) + 1
    assert float(y.min()) == float(y.max()) == 511


def check_memory_is_not_taken_again_too_early(gpu: Accelerator) -> None:
    """What PyTorch still reads on a stream of its own is not overwritten when its tensor is dropped."""
    call, stream = model(gpu), torch.cuda.Stream()
    x = torch.full((1 << 22,), 3.0, device="cuda")
    totals = []
    for _ in range(16):
        result = call(x)[0]
        with torch.cuda.stream(stream):
            taken = torch.from_dlpack(result)
            torch.cuda._sleep(1_000_000)
            totals.append(taken.sum())
        del taken, result
    torch.cuda.synchronize()
    assert [float(total) for total in totals] == [6.0 * (1 << 22)] * 16


def check_bfloat16(gpu: Accelerator) -> None:
    x = torch.linspace(-1, 1, 64, dtype=torch.bfloat16, device="cuda")
    buffer = Buffer.from_dlpack(x)
    assert buffer.dtype is DType.bfloat16
    np.testing.assert_array_equal(buffer.to_numpy().astype(np.float32), x.float().cpu().numpy())
