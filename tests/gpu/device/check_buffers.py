"""Buffers in a GPU's memory: transfers, streams, pinned memory, DLPack."""

from __future__ import annotations

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DeviceError, GraphError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    DeviceRef,
    DeviceStream,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    accelerator_count,
)

GPU = DeviceRef.GPU()
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("dtype", DType)
def check_elements_survive_the_way_there_and_back(dtype: DType) -> None:
    array = np.arange(15).reshape(3, 5) % 2
    there = Buffer.from_numpy(array.astype(dtype.to_numpy())).to(GPU)
    assert there.to(CPU()).to_numpy().tobytes() == array.astype(dtype.to_numpy()).tobytes()
    zeros, wanted = Buffer.zeros((3, 5), dtype, GPU), Buffer.zeros((3, 5), dtype)
    assert zeros.to_numpy().tobytes() == wanted.to_numpy().tobytes()
    zeros.inplace_copy_from(there)
    assert zeros.copy().to_numpy().tobytes() == there.to_numpy().tobytes()


def check_gpus_have_numbers_of_their_own() -> None:
    numbers = [Accelerator(k).driver.library.uuid() for k in range(accelerator_count())]
    assert all(len(number) == 16 for number in numbers) and len(set(numbers)) == len(numbers)


def check_elements_are_written_and_read() -> None:
    buffer = Buffer.zeros((2, 3), DType.float32, GPU)
    buffer[1, :2] = [2.5, -1.0]
    assert buffer.to_numpy().tolist() == [[0, 0, 0], [2.5, -1.0, 0]]
    assert Buffer.scalar(7, DType.int32, GPU).item() == 7
    assert buffer.view(DType.uint32, (6,)).to_numpy()[3] == np.float32(2.5).view(np.uint32)
    strided = Buffer.from_numpy(X)[:, 1]
    np.testing.assert_array_equal(strided.to(GPU).to_numpy(), X[:, 1])
    np.testing.assert_array_equal(Buffer.from_numpy(X.T).to(GPU).to_numpy(), X.T)
    packed = Buffer.from_numpy(np.array([1, -2, 3], ml_dtypes.int4)).to(GPU)
    packed[2] = -4
    assert packed.to_numpy().astype(int).tolist() == [1, -2, -4]
    for empty in (Buffer.zeros((0, 3), DType.float32, GPU), Buffer.from_numpy(X[:0]).to(GPU)):
        assert empty.to_numpy().shape == (0, 3) and empty.copy().num_elements == 0


def check_the_source_may_be_changed_at_once() -> None:
    """A copy takes what is there when it is requested, of pinned memory too once it was waited for."""
    array = np.arange(1 << 16, dtype=np.int32)
    there = Buffer.from_numpy(array).to(GPU)
    array[:] = -1
    np.testing.assert_array_equal(there.to_numpy(), np.arange(1 << 16))


def check_pinned_memory(gpu: Accelerator) -> None:
    pinned = Buffer(DType.float32, (4, 3), gpu, pinned=True)
    assert pinned.pinned and pinned.is_host and pinned.device == CPU() and pinned[1].pinned
    pinned.to_numpy()[...] = X
    there = pinned.to(GPU)
    del pinned  # before it is copied: it has to live until then
    gc.collect()
    np.testing.assert_array_equal(there.to_numpy(), X)
    back = Buffer(DType.float32, (4, 3), gpu, pinned=True)
    back.inplace_copy_from(there)
    np.testing.assert_array_equal(back.to_numpy(), X)
    assert not Buffer.from_numpy(X).pinned and not there.pinned
    assert not Buffer(DType.float32, (2,), pinned=True).pinned  # the host alone pins nothing


def check_streams_are_ordered_by_the_memory_they_share(gpu: Accelerator) -> None:
    streams = [DeviceStream(gpu) for _ in range(3)]
    buffer = Buffer.from_numpy(X).to(GPU)
    for number in range(12):
        with streams[number % 3]:
            buffer = buffer.copy()
    np.testing.assert_array_equal(buffer.to_numpy(), X)
    with streams[0]:
        other = Buffer.from_numpy(X + 1).to(GPU)
        with streams[1]:
            assert other.copy().to_numpy()[0, 0] == -1  # the inner one, and then the outer one again
        buffer.inplace_copy_from(other)
    np.testing.assert_array_equal(buffer.to_numpy(), X + 1)
    streams[2].wait_for(streams[0])
    streams[2].wait_for(gpu)
    streams[2].synchronize()
    assert gpu.default_stream is gpu.default_stream and "DeviceStream(" in repr(streams[0])


def check_a_stream_of_another_library(gpu: Accelerator) -> None:
    handle = gpu.driver.create_stream()
    with DeviceStream(gpu, handle):
        there = Buffer.from_numpy(X).to(GPU)
    np.testing.assert_array_equal(there.to_numpy(), X)
    del there
    gc.collect()
    gpu.driver.synchronize_stream(handle)  # it is its owner's, and still there
    Buffer.zeros((3,), DType.float32, GPU)
    gpu.driver.destroy_stream(handle)


def check_threads_have_streams_of_their_own(gpu: Accelerator) -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        with DeviceStream(gpu):
            for _ in range(20):
                value = Buffer.from_numpy(X + number).to(GPU).copy()
            results.append(np.array_equal(value.to_numpy(), X + number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


class Taker:
    """Memory of a buffer as another library shows it: it wants a stream."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.streams = buffer, list[Any]()

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        self.streams.append(stream)
        return self.buffer.__dlpack__(stream=stream, **keywords)

    def __dlpack_device__(self) -> Any:
        return self.buffer.__dlpack_device__()


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16, DType.float8_e4m3fn, DType.bool, DType.int64])
def check_memory_goes_through_dlpack(dtype: DType, gpu: Accelerator) -> None:
    array = (np.arange(6).reshape(2, 3) % 2).astype(dtype.to_numpy())
    buffer = Buffer.from_numpy(array).to(GPU)
    taker = Taker(buffer)
    taken = Buffer.from_dlpack(taker)
    assert taker.streams == [gpu.default_stream.handle]
    assert (taken.dtype, taken.shape, taken.device, taken.address) == (dtype, (2, 3), gpu, buffer.address)
    del buffer, taker
    gc.collect()
    assert taken.to_numpy().tobytes() == array.tobytes()
    copied = Buffer.from_dlpack(taken, copy=True)
    assert copied.address != taken.address and copied.to_numpy().tobytes() == array.tobytes()
    assert Buffer.from_dlpack(taken) is taken
    capsule = taken.__dlpack__(stream=-1)
    del capsule, taken, copied


def check_dlpack_to_the_host_and_what_it_refuses() -> None:
    buffer = Buffer.from_numpy(X).to(GPU)
    capsule = buffer.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert "dltensor" in repr(capsule)
    with pytest.raises(BufferError, match="is requested"):
        buffer.__dlpack__(dl_device=(13, 0))
    packed = Buffer.from_numpy(np.array([1, -2, 3], ml_dtypes.int4)).to(GPU)
    with pytest.raises(BufferError, match="does not go through DLPack"):
        packed.__dlpack__()


def check_memory_is_taken_again(gpu: Accelerator) -> None:
    first = Buffer.zeros((1000,), DType.float32, GPU)
    address = first.address
    del first
    gc.collect()
    again = Buffer.zeros((1010,), DType.float32, GPU)
    assert again.address == address
    stats = gpu.stats
    assert stats["pool_in_use"] >= 4040 and stats["pool_peak"] >= stats["pool_in_use"]
    assert stats["pool_reused"] > 0 and stats["total_memory"] > 0 and stats["multiprocessors"] > 0


def check_what_a_gpu_says_of_itself(gpu: Accelerator) -> None:
    assert gpu.api in ("cuda", "hip") and not gpu.is_host and gpu == Accelerator(0)
    assert gpu.architecture_name.startswith(("sm_", "gfx"))
    for name in ("name", "driver", "free_memory", "warp_size", "shared_memory"):
        assert gpu.stats[name]
    with pytest.raises(DeviceError, match="there is no gpu:99") as caught:
        Accelerator(99)
    assert caught.value.code == "EK0801"


def check_views_of_elements_are_refused() -> None:
    with pytest.raises(DeviceError, match="cannot be viewed"):
        Buffer.zeros((3,), DType.float32, GPU)[0]
    with pytest.raises(GraphError):
        Buffer.zeros((3,), DType.float32, GPU).inplace_copy_from(Buffer.zeros((4,), DType.float32))


@pytest.mark.parametrize("dtype", [DType.float32, DType.int4, DType.bool])
def check_copies_are_steps_of_graphs(dtype: DType, gpu: Accelerator) -> None:
    """Where no kernel runs at all."""
    gpus = [Accelerator(number) for number in range(min(2, accelerator_count()))]
    last = DeviceRef.GPU(len(gpus) - 1)
    graph = Graph(
        "moved",
        forward=lambda x: [x.to(GPU), x.to(GPU).to(last), x.to(last).to(DeviceRef.CPU())],
        input_types=[TensorType(dtype, ["m", 3], DeviceRef.CPU())],
    )
    model = InferenceSession([CPU(), *gpus]).load(graph)
    for rows in (5, 1, 0):
        x = (np.arange(rows * 3).reshape(rows, 3) % 2).astype(dtype.to_numpy())
        results = model(x)
        assert [each.device for each in results] == [gpus[0], gpus[-1], CPU()]
        assert all(each.to_numpy().tobytes() == x.tobytes() for each in results)
