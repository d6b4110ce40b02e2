"""Ops that only move elements take dtypes that are only stored, and those whose elements share bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HOST = DeviceRef.CPU()
STORED = [dtype for dtype in DType if dtype.is_storage()]


def elements(dtype: DType, *shape: int, seed: int = 0) -> Any:
    """Numbers that each dtype has; none is zero."""
    return (2.0 ** np.random.default_rng(seed).integers(0, 3, shape)).astype(dtype.to_numpy())


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_parts_of_buffers_are_written(dtype: DType, interpret: bool) -> None:
    """By fixed and by computed indices, in steps, by another tensor and by a number."""

    def forward(y: Any, x: Any, k: Any) -> Any:
        ops.buffer_store_slice(y, x, [slice(1, 4), slice(None, None, 2)])
        ops.buffer_store_slice(y, x[0], [k, slice(3)])
        y[4, 1:3] = 2
        return ops.buffer_load(y)

    types = [BufferType(dtype, [6, 5], HOST), TensorType(dtype, [3, 3], HOST), TensorType(DType.int64, [], HOST)]
    model = InferenceSession(interpret=interpret).load(Graph("stored", forward=forward, input_types=types))
    wanted, x = elements(dtype, 6, 5), elements(dtype, 3, 3, seed=1)
    buffer = Buffer.from_numpy(wanted.copy())
    (loaded,) = model(buffer, x, np.array(5))
    wanted[1:4, ::2], wanted[5, :3], wanted[4, 1:3] = x, x[0], 2
    assert loaded.to_numpy().tobytes() == wanted.tobytes() == buffer.to_numpy().tobytes()


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_triangles(dtype: DType) -> None:
    def forward(x: Any) -> Any:
        return ops.tril(x), ops.triu(x, 1), ops.band_part(x, 1, 0, exclude=True)

    types = [TensorType(dtype, ["m", 5], HOST)]
    if dtype is DType.float8_e8m0fnu:
        with pytest.raises(GraphError, match="tril: 0 cannot be represented in float8_e8m0fnu"):
            Graph("triangles", forward=forward, input_types=types)
        return
    graph = Graph("triangles", forward=forward, input_types=types)
    x = elements(dtype, 3, 5)
    lower, upper, rest = (result.to_numpy() for result in InferenceSession().load(graph)(x))
    zero = np.zeros((), dtype.to_numpy())
    inside = np.tril(np.ones((3, 5), bool))
    band = inside & ~np.tril(inside, -2)
    for got, kept in ((lower, inside), (upper, ~inside), (rest, ~band)):
        assert got.tobytes() == np.where(kept, x, zero).astype(x.dtype).tobytes()
