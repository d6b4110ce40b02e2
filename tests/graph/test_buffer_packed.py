"""Buffers whose elements share bytes, and their way through models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.packed import packed

from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, GraphError
from einkorn.graph import Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HOST = DeviceRef.CPU()
PACKED = [DType.int4, DType.uint4, DType.float4_e2m1fn]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (4, 4)]


def elements(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Any:
    codes = np.random.default_rng(seed).integers(-8 if dtype is DType.int4 else 0, 8, shape).astype(np.int8)
    return codes.view(dtype.to_numpy())


@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_packed_and_unpacked(dtype: DType, shape: tuple[int, ...]) -> None:
    array = elements(dtype, shape)
    buffer = Buffer.from_numpy(array)
    assert (buffer.dtype, buffer.shape, buffer.rank) == (dtype, shape, len(shape))
    assert buffer.size_in_bytes == (array.size + 1) // 2
    back = buffer.to_numpy()
    assert back.dtype == array.dtype and back.shape == shape and back.tobytes() == array.tobytes()
    data = buffer.view(DType.uint8, ((array.size + 1) // 2,))
    assert np.array_equal(data.to_numpy(), packed(array)) and data.address == buffer.address
    again = data.view(dtype, shape)
    assert again.to_numpy().tobytes() == array.tobytes() and again.address == data.address
    assert np.asarray(buffer).tobytes() == array.tobytes()
    assert buffer.copy().to_numpy().tobytes() == array.tobytes()


def test_elements_are_written() -> None:
    buffer = Buffer.zeros((3, 3), DType.int4)
    buffer[1] = [1, -2, 7]
    buffer[2, 2] = -8
    assert buffer.to_numpy().astype(int).tolist() == [[0, 0, 0], [1, -2, 7], [0, 0, -8]]
    other = Buffer(DType.int4, (9,))
    other.inplace_copy_from(buffer)
    assert other.to_numpy().reshape(3, 3).tobytes() == buffer.to_numpy().tobytes()
    assert Buffer.scalar(-3, DType.int4).item() == -3 and Buffer.scalar(0.4, DType.float4_e2m1fn).item() == 0.5
    with pytest.raises(GraphError, match="out of the range of int4"):
        buffer[0, 0] = 8
    with pytest.raises(DTypeError, match=r"cannot write 0\.5"):
        buffer[0, 0] = 0.5


def test_elements_have_no_address() -> None:
    buffer = Buffer.zeros((4,), DType.uint4)
    for wrong in (lambda: buffer[1], lambda: buffer.element_size, lambda: next(iter(buffer))):
        with pytest.raises(DTypeError) as caught:
            wrong()
        assert caught.value.code == "EK0251"
    with pytest.raises(GraphError, match="needs the shape"):
        buffer.view(DType.uint8)
    with pytest.raises(BufferError, match="view it as uint8"):
        np.from_dlpack(buffer)
    with pytest.raises(ValueError, match="by a copy only"):
        np.asarray(buffer, copy=False)
    with pytest.raises(DeviceError, match="have to be packed"):
        Buffer.from_dlpack(np.zeros(3, ml_dtypes.int4), copy=False)
    assert Buffer.from_dlpack(buffer) is buffer


def test_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    array = elements(DType.int4, (3, 3))
    path.write_bytes(b"head" + packed(array).tobytes())
    buffer = Buffer.mmap(path, DType.int4, (3, 3), offset=4)
    assert buffer.to_numpy().tobytes() == array.tobytes()
    with pytest.raises(DeviceError, match="read-only"):
        Buffer.mmap(path, DType.int4, (3, 3), "readonly", 4)[0, 0] = 1


@pytest.fixture(scope="module")
def model() -> Any:
    """Casts there and back, movements, a constant of an odd size, an input and a constant given back, a choice."""
    constant = elements(DType.int4, (5,), 3)

    def forward(x: Any, y: Any) -> list[Any]:
        c = ops.constant(constant)
        wide = ops.cast(x, DType.int32)
        return [
            ops.cast(x, DType.float32),
            ops.permute(x, [1, 0]),
            ops.concat([x, x], axis=0),
            ops.reshape(x, [-1]),
            ops.where(wide > 0, x, ops.constant(3, DType.int4, HOST)),
            ops.broadcast_to(c, [2, 5]),
            x,
            c,
            ops.cast(ops.cast(y, DType.int4), DType.float32) + y,
            ops.cast(wide * 3, DType.uint4),
        ]

    types = [TensorType(DType.int4, ["m", "n"], HOST), TensorType(DType.float32, ["k"], HOST)]
    return InferenceSession().load(Graph("packed", forward=forward, input_types=types)), constant


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 5), (2, 4), (5, 0)], ids=str)
def test_models_take_and_give_packed_tensors(model: Any, shape: tuple[int, ...]) -> None:
    loaded, constant = model
    x = elements(DType.int4, shape)
    y = np.linspace(-12, 12, shape[0] * 3 + 1, dtype=np.float32)
    wide = x.astype(np.int32)
    wanted = [
        wide,
        wide.T,
        np.concatenate([wide, wide]),
        wide.reshape(-1),
        np.where(wide > 0, wide, 3),
        np.broadcast_to(constant.astype(int), (2, 5)),
        wide,
        constant.astype(int),
        np.clip(np.trunc(y), -8, 7) + y,
        wide * 3 & 15,
    ]
    for given in (x, Buffer.from_numpy(x), np.asfortranarray(x).copy("C")):
        for got, want in zip(loaded(given, y), wanted, strict=True):
            assert got.shape == want.shape
            assert np.array_equal(got.to_numpy().astype(np.float64), want)


def test_the_interpreter_runs_packed_graphs() -> None:
    x = elements(DType.int4, (3, 3))

    def forward(x: Any) -> list[Any]:
        return [ops.permute(x, [1, 0]), ops.cast(ops.cast(x, DType.float8_e4m3fn), DType.uint4)]

    graph = Graph("interpreted", forward=forward, input_types=[TensorType(DType.int4, [3, 3], HOST)])
    turned, again = InferenceSession(interpret=True).load(graph)(x)
    assert turned.to_numpy().tobytes() == np.ascontiguousarray(x.T).tobytes()
    assert np.array_equal(again.to_numpy().astype(int), np.maximum(x.astype(int), 0))


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [
        (DType.int4, [-8, 7], [-8, 7]),
        (DType.float8_e4m3fn, [1.0625 + 2.0**-40, 448.0], [1.125, 448.0]),
        (DType.bfloat16, [1.00390625 + 2.0**-40], [1.0078125]),
        (DType.float8_e8m0fnu, [1.0, 3.0], [1.0, 4.0]),
        (DType.float4_e2m1fn, [6.9, -0.2], [6.0, -0.0]),
    ],
    ids=str,
)
def test_constants_round_once(dtype: DType, value: Any, want: Any) -> None:
    graph = Graph("constants", forward=lambda: ops.constant(value, dtype, HOST), input_types=[])
    (got,) = InferenceSession().load(graph)()
    assert got.dtype is dtype and got.to_numpy().astype(np.float64).tolist() == want


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DType.int4, 8),
        (DType.uint4, -1),
        (DType.int4, 0.5),
        (DType.float8_e4m3fn, 1e3),
        (DType.float4_e2m1fn, 7.0),
        (DType.float4_e2m1fn, float("nan")),
        (DType.float8_e8m0fnu, 0.0),
        (DType.float8_e4m3fnuz, float("inf")),
    ],
    ids=str,
)
def test_constants_that_a_type_lacks_are_refused(dtype: DType, value: Any) -> None:
    with pytest.raises(GraphError) as caught:
        Graph("constants", forward=lambda: ops.constant(value, dtype, HOST), input_types=[])
    assert caught.value.code == "EK0412"


def test_storage_types_are_not_computed_with() -> None:
    types = [TensorType(DType.float8_e4m3fn, ["n"], HOST)]
    for forward in (lambda x: x + x, lambda x: ops.exp(x), lambda x: x == x, lambda x: x * 2.0, lambda x: ops.sum(x)):
        with pytest.raises(DTypeError) as caught:
            Graph("arithmetic", forward=forward, input_types=types)
        assert caught.value.code == "EK0413" and "ops.cast(x, DType.float32)" in str(caught.value)
    with pytest.raises(DTypeError, match="do not go together"):
        Graph("mixed", forward=lambda x: x + ops.cast(x, DType.float32), input_types=types)
