"""Masks, steps, indices and pointers over what neighbours compute; atomics among many threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNELS = Path(__file__).parent / "access_kernels.py"
CPU = DeviceRef.CPU()


def model_of(forward: Any, *types: Any, interpret: bool = False) -> Any:
    graph = Graph("test", forward=forward, input_types=types, custom_extensions=[KERNELS])
    return InferenceSession(interpret=interpret).load(graph)


@pytest.mark.parametrize("op", ["masked_rows", "by_pointer", "element_by_pointer", "turned_rows"])
@pytest.mark.parametrize("dtype", [DType.float32, DType.int8, DType.bfloat16], ids=str)
def test_what_neighbours_compute(op: str, dtype: DType) -> None:
    def forward(x: Any) -> Any:
        return ops.custom(op, CPU, [x * 2 + 1])[0] - 3

    x = np.random.default_rng(0).integers(-20, 20, (5, 16)).astype(dtype.to_numpy())
    (got,) = model_of(forward, TensorType(dtype, ["m", 16], CPU))(x)
    (same,) = model_of(forward, TensorType(dtype, ["m", 16], CPU), interpret=True)(x)
    np.testing.assert_array_equal(got.to_numpy(), same.to_numpy())
    before = (x * dtype.to_numpy().type(2) + dtype.to_numpy().type(1)).astype(x.dtype)
    wanted = before[:, ::-1][:, 1::2] if op == "turned_rows" else before
    wanted = wanted + x.dtype.type(1) if op == "element_by_pointer" else wanted
    np.testing.assert_array_equal(got.to_numpy(), (wanted - x.dtype.type(3)).astype(x.dtype))


def test_many_threads() -> None:
    def forward(x: Any) -> Any:
        types = [TensorType(DType.int64, [4], CPU), TensorType(DType.float32, [2], CPU)]
        return ops.custom("race", CPU, [x], types)

    model = model_of(forward, TensorType(DType.int64, ["n"], CPU))
    x = np.random.default_rng(0).integers(-1000, 1000, 50_000)
    for _ in range(3):
        counts, sums = (b.to_numpy() for b in model(x))
        assert counts.tolist() == [x.sum(), max(x.max(), 0), min(x.min(), 0), 2 * len(x)]
        assert sums.tolist() == [x.max(), len(x)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, ml_dtypes.bfloat16, np.float64], ids=str)
def test_neighbours_in_a_word(dtype: Any) -> None:
    kind = DType.from_numpy(np.dtype(dtype))

    def forward(counts: Any, x: Any) -> Any:
        ops.inplace_custom("histogram_of_bytes", CPU, [counts, x])
        return ops.buffer_load(counts)

    model = model_of(forward, BufferType(kind, [16], CPU), TensorType(DType.int64, ["n"], CPU))
    x = np.random.default_rng(0).integers(0, 16, 2000)
    counts = np.zeros(16, dtype)
    (got,) = model(counts, x)
    wanted = np.bincount(x, minlength=16)
    assert got.to_numpy().astype(np.int64).tolist() == wanted.tolist()
