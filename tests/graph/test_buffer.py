"""Buffers: sharing of memory with NumPy and by DLPack, views, copies, writing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, GraphError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import CPU, Buffer, DeviceRef, DLPackArray, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver.device import ALIGNMENT


class Producer:
    """A DLPack producer that is neither a NumPy array nor a buffer; `modern` speaks DLPack 1."""

    def __init__(self, source: Any, modern: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.source = source
        self.modern = modern
        self.device = device

    def __dlpack__(self, **keywords: Any) -> Any:
        if not self.modern and keywords:
            raise TypeError("unexpected keyword argument")
        return self.source.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 5), (3, 1, 2)])
def test_every_dtype_and_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    buffer = Buffer(dtype, shape)
    assert (buffer.dtype, buffer.shape, buffer.rank) == (dtype, shape, len(shape))
    assert buffer.num_elements == int(np.prod(shape))
    assert buffer.size_in_bytes == -(-buffer.num_elements * (8 if dtype.bits == 6 else dtype.bits) // 8)
    assert dtype.is_packed() or buffer.element_size == dtype.size_in_bytes
    assert buffer.is_contiguous and buffer.is_host and buffer.device == CPU() and not buffer.pinned
    assert buffer.address % ALIGNMENT == 0 or not buffer.num_elements
    buffer[...] = 1
    array = buffer.to_numpy()
    assert array.dtype == dtype.to_numpy() and array.shape == shape
    assert (array.astype(np.float64) == 1).all()
    zeros = Buffer.zeros(shape, dtype).to_numpy().astype(np.float64)
    assert np.array_equal(zeros, np.full(shape, np.nan if dtype is DType.float8_e8m0fnu else 0), equal_nan=True)
    assert Buffer.from_numpy(array).address == buffer.address or buffer.num_elements == 0 or dtype.is_packed()


def test_from_numpy_shares_memory_and_keeps_it() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = Buffer.from_numpy(array)
    array[0, 0] = 7
    assert buffer[0, 0].item() == 7
    watched = weakref.ref(array)
    del array
    gc.collect(1)
    assert watched() is not None and buffer.to_numpy().tolist() == [[7, 1, 2], [3, 4, 5]]


def test_to_numpy_outlives_the_buffer() -> None:
    buffer = Buffer.zeros((4,), DType.int32)
    array = buffer.to_numpy()
    array[1] = 5
    assert buffer[1].item() == 5
    del buffer
    gc.collect(1)
    assert array.tolist() == [0, 5, 0, 0]


def test_from_numpy_copies_when_it_must() -> None:
    strided = np.arange(6, dtype=np.int64)[::2]
    buffer = Buffer.from_numpy(strided)
    assert buffer.is_contiguous and buffer.to_numpy().tolist() == [0, 2, 4]
    strided[0] = 9
    assert buffer[0].item() == 0
    unaligned = np.frombuffer(b"x" + np.float32(2.5).tobytes(), np.float32, offset=1)
    assert Buffer.from_numpy(unaligned)[0].item() == 2.5


def test_read_only_stays_read_only() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    assert buffer.is_read_only
    with pytest.raises(DeviceError, match="read-only"):
        buffer[0] = 1
    with pytest.raises(ValueError):
        buffer.to_numpy()[0] = 1
    assert not buffer.copy().is_read_only


@pytest.mark.parametrize("bad", [np.zeros(2, "M8[s]"), np.zeros(2, ">f4"), np.array(["a"]), np.array([object()])])
def test_numpy_dtypes_without_counterpart(bad: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DTypeError, match="no counterpart"):
        Buffer.from_numpy(bad)


def test_from_numpy_wants_an_array() -> None:
    with pytest.raises(DTypeError, match="not list") as caught:
        Buffer.from_numpy([1, 2])  # type: ignore[arg-type]
    assert isinstance(caught.value, TypeError)


# --- DLPack ---


@pytest.mark.parametrize("dtype", [d for d in DType if d.bits >= 8])
@pytest.mark.parametrize("modern", [True, False])
def test_dlpack_round_trip_shares_memory(dtype: DType, modern: bool) -> None:
    buffer = Buffer.from_numpy(np.array([[2, 2, 2], [1, 1, 1]]).astype(dtype.to_numpy()))
    again = Buffer.from_dlpack(Producer(buffer, modern))
    assert (again.dtype, again.shape, again.address) == (dtype, (2, 3), buffer.address)
    buffer[0, 0] = 1
    first = 1 if dtype is DType.bool else 2
    del buffer
    gc.collect(1)
    assert again.to_numpy().astype(np.float64).tolist() == [[1, first, first], [1, 1, 1]]


def test_dlpack_bfloat16_says_bfloat() -> None:
    """What PyTorch would read: kind 4 (bfloat), 16 bits."""
    from einkorn.graph.driver import dlpack

    capsule = Buffer.zeros((2,), DType.bfloat16).__dlpack__()
    assert list(dlpack._dtype_of(capsule)) == [dlpack.KINDS["bfloat16"], 16]


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_storage() and d.bits == 8], ids=str)
def test_dlpack_floats_of_eight_bits(dtype: DType) -> None:
    """There and back over the same memory, and through PyTorch, which names the type itself."""
    buffer = Buffer.from_numpy(np.arange(256, dtype=np.uint8).view(dtype.to_numpy()))
    again = Buffer.from_dlpack(Producer(buffer))
    assert again.dtype is dtype and again.address == buffer.address
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype is getattr(torch, dtype.name) and tensor.data_ptr() == buffer.address
    assert Buffer.from_dlpack(tensor).dtype is dtype


def test_numpy_takes_a_buffer() -> None:
    buffer = Buffer.zeros((2,), DType.float32)
    array = np.from_dlpack(buffer)
    buffer[1] = 4
    assert array.tolist() == [0, 4]
    assert np.asarray(buffer).tolist() == [0, 4] and np.shares_memory(np.asarray(buffer), array)
    assert isinstance(buffer, DLPackArray) and isinstance(array, DLPackArray)


def test_from_dlpack_keeps_strides_and_copies_on_request() -> None:
    array = np.arange(6)[::-2]
    shared = Buffer.from_dlpack(array)
    assert not shared.is_contiguous and shared.contiguous().is_contiguous
    assert shared.to_numpy().tolist() == shared.contiguous().to_numpy().tolist() == [5, 3, 1]
    copied = Buffer.from_dlpack(array, copy=True)
    array[0] = 9
    assert shared[0].item() == 9 and copied[0].item() == 5


@pytest.mark.parametrize("bit, word", [("neg", "negative"), ("conj", "conjugate")])
def test_from_dlpack_refuses_what_memory_does_not_hold(bit: str, word: str) -> None:
    """A tensor of PyTorch may be the negative of what lies in its memory."""
    producer = Producer(np.ones(3, np.float32))
    setattr(producer, f"is_{bit}", lambda: False)
    assert Buffer.from_dlpack(producer).shape == (3,)
    setattr(producer, f"is_{bit}", lambda: True)
    with pytest.raises(DTypeError, match=f"its {word} bit is set") as caught:
        Buffer.from_dlpack(producer)
    assert caught.value.hint == f"write tensor.resolve_{bit}()"


def test_negated_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    negative = numbers.conj().imag  # [-2, 4], and in memory 2 and -4
    assert negative.is_neg()
    with pytest.raises(DTypeError, match="negative bit"):
        Buffer.from_dlpack(negative)
    assert Buffer.from_dlpack(negative.resolve_neg()).to_numpy().tolist() == [-2, 4]
    with pytest.raises(DTypeError, match="conjugate bit"):
        Buffer.from_dlpack(numbers.conj())


def test_from_dlpack_refuses() -> None:
    with pytest.raises(DTypeError, match="__dlpack__, not list"):
        Buffer.from_dlpack([1.0])
    with pytest.raises(DeviceError, match=r"DLPack device \(2, 0\)"):
        Buffer.from_dlpack(Producer(np.zeros(2), device=(2, 0)))
    with pytest.raises(DTypeError, match="no counterpart"):
        Buffer.from_dlpack(np.zeros(2, np.clongdouble))
    unaligned = np.frombuffer(b"x" * 9, np.float32, 2, 1)
    with pytest.raises(DeviceError, match="has to be copied"):
        Buffer.from_dlpack(unaligned, copy=False)


# --- elements, views, copies ---


def test_indexing_gives_views() -> None:
    buffer = Buffer.from_numpy(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    assert buffer[1].shape == (3, 4) and buffer[1, :, 2].to_numpy().tolist() == [14, 18, 22]
    assert buffer[..., 0].shape == (2, 3) and buffer[None, 0].shape == (1, 3, 4)
    assert buffer[1, 2, 3].shape == () and buffer[1, 2, 3].item() == 23
    row = buffer[0, 1]
    row[1:3] = [50, 60]
    assert buffer.to_numpy()[0, 1].tolist() == [4, 50, 60, 7]
    assert not buffer[:, 0].is_contiguous and buffer[0].is_contiguous
    assert not buffer[::-1].is_contiguous
    assert len(buffer) == 2 and [part.shape for part in buffer] == [(3, 4), (3, 4)]
    with pytest.raises(IndexError):
        buffer[2]
    for bad in ([0, 1], np.array([True, False]), True, 1.0):
        with pytest.raises(GraphError, match="indexed by ints"):
            buffer[bad]


def test_writing_never_loses_silently() -> None:
    small = Buffer.zeros((2, 2), DType.int8)
    small[0] = 127
    small[1] = np.array([1, -128])
    assert small.to_numpy().tolist() == [[127, 127], [1, -128]]
    with pytest.raises(DTypeError, match=r"cannot write 1\.5 into a buffer of int8"):
        small[0] = 1.5
    with pytest.raises(GraphError, match="out of the range of int8"):
        small[0] = 128
    with pytest.raises(GraphError, match="broadcast"):
        small[0] = [1, 2, 3]
    half = Buffer.zeros((1,), DType.bfloat16)
    half[0] = 1.00001
    assert half.to_numpy()[0] == ml_dtypes.bfloat16(1.0)
    half[0] = Buffer.scalar(2.5, DType.float32)
    assert half[0].item() == 2.5


def test_item() -> None:
    assert Buffer.scalar(3, DType.int32).item() == 3
    assert Buffer.scalar(True, DType.bool).item() is True
    assert type(Buffer.scalar(0.5, DType.bfloat16).item()) is float
    with pytest.raises(GraphError, match="one element"):
        Buffer.zeros((2,), DType.int32).item()


def test_view() -> None:
    buffer = Buffer.from_numpy(np.array([[1, 0], [0, 2]], np.int32))
    assert buffer.view(DType.uint8).shape == (2, 8) and buffer.view(DType.int64).shape == (2, 1)
    assert buffer.view(DType.int64).to_numpy().tolist() == [[1], [2 << 32]]
    flat = buffer.view(DType.int32, (4,))
    flat[1] = 9
    assert buffer.to_numpy().tolist() == [[1, 9], [0, 2]]
    assert Buffer.zeros((0, 4), DType.int8).view(DType.float32).shape == (0, 1)
    attempts: list[Callable[[], Buffer]] = [
        lambda: Buffer.zeros((3,), DType.int8).view(DType.int16),
        lambda: buffer.view(DType.int32, (5,)),
        lambda: buffer[:, 0].view(DType.int32, (2,)),
        lambda: Buffer.scalar(1, DType.int8).view(DType.int16),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError):  # documented as a ValueError
            attempt()


def test_copies() -> None:
    buffer = Buffer.from_numpy(np.arange(4.0))
    copy = buffer.copy()
    copy[0] = 9
    assert buffer[0].item() == 0 and copy[1:].to_numpy().tolist() == [1, 2, 3]
    assert buffer.to(CPU()) is buffer and buffer.to(DeviceRef.CPU()) is buffer and buffer.to([CPU()]) == [buffer]
    with pytest.raises(DeviceError):
        buffer.to(DeviceRef.GPU())
    target = Buffer.zeros((2, 2), DType.float64)
    target.inplace_copy_from(buffer)
    assert target.to_numpy().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(GraphError, match="equal dtypes"):
        target.inplace_copy_from(Buffer.zeros((2, 2), DType.float32))
    with pytest.raises(GraphError, match="contiguous"):
        target.inplace_copy_from(buffer[::2])


def test_mmap(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"head" + np.arange(6, dtype=np.float32).tobytes())
    buffer = Buffer.mmap(path, DType.float32, (2, 3), offset=4)
    assert buffer.to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    buffer[0] = 7
    assert path.read_bytes()[4:8] == bytes(4)
    assert Buffer.mmap(path, DType.float32, 6, "readonly", 4).is_read_only
    with pytest.raises(DeviceError, match="cannot map"):
        Buffer.mmap(path, DType.float32, (9,))
    with pytest.raises(DeviceError, match="cannot map"):
        Buffer.mmap(tmp_path / "none", DType.float32, (9,))


@pytest.mark.parametrize("shape", [(-1,), (1.5,), (True,), ("n",)])
def test_wrong_shapes(shape: Any) -> None:
    with pytest.raises(GraphError, match="int >= 0"):
        Buffer(DType.float32, shape)


def test_wrong_devices() -> None:
    with pytest.raises(DeviceError):
        Buffer(DType.float32, (1,), DeviceRef.GPU())
    with pytest.raises(DeviceError, match="is not a device"):
        Buffer(DType.float32, (1,), "cpu")  # type: ignore[arg-type]


def test_too_large() -> None:
    with pytest.raises(DeviceError, match="cannot allocate"):
        Buffer(DType.float64, (1 << 59,))
    for shape in ((1 << 60,), (1 << 70,), (1 << 40, 1 << 40), (0, 1 << 40, 1 << 40)):
        with pytest.raises(GraphError, match="more than 64 bits count") as caught:
            Buffer(DType.float64, shape)
        assert caught.value.code == "EK0476"


def test_repr() -> None:
    assert repr(Buffer(DType.float32, (2, 3))) == "Buffer(float32, (2, 3), cpu:0)"


# --- masks ---


def test_masked_arrays_are_refused_wherever_arrays_are_taken() -> None:
    masked = np.ma.masked_greater(np.float32([1, 2, 3]), 2)
    buffer = Buffer.zeros([3], DType.float32)
    with Graph("masked", input_types=[TensorType(DType.float32, [3])]) as graph:
        x = graph.inputs[0]
        takers: list[Callable[[], object]] = [
            lambda: Buffer.from_numpy(masked),
            lambda: Buffer.from_dlpack(masked),
            lambda: Buffer.scalar(masked[2], DType.float32),
            lambda: buffer.__setitem__(slice(None), masked),
            lambda: ops.constant(masked),
            lambda: ops.constant([masked, masked]),
            lambda: x + masked,
            lambda: masked + x,
            lambda: ops.where(x > 1.0, x, masked),
        ]
        for take in takers:
            with pytest.raises(DTypeError) as caught:
                take()
            assert caught.value.code == "EK0477" and "filled" in (caught.value.hint or "")
        graph.output(x + masked.filled(0))
    model = InferenceSession().load(graph)
    with pytest.raises(DTypeError) as caught:
        model(masked)
    assert caught.value.code == "EK0477" and caught.value.argument == "input0"
    assert model(masked.filled(7))[0].to_numpy().tolist() == [2, 4, 7]
