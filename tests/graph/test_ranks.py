"""Ranks 0 to 8, and tensors without elements, through every kind of kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HOST = DeviceRef.CPU()
KERNELS = str(Path(__file__).parent / "rank_kernels.py")
SIZES = (3, 2, 4, 1, 2, 3, 1, 2)


def custom(op: str, *values: Any) -> list[Any]:
    return ops.custom(op, device=HOST, values=list(values))


def shapes(rank: int) -> Iterator[tuple[int, ...]]:
    """An ordinary shape, one of ones, and one without elements for each axis."""
    yield SIZES[:rank]
    yield (1,) * rank
    for axis in range(rank):
        yield (*SIZES[:axis], 0, *SIZES[axis + 1 : rank])


def forward(x: Any, y: Any) -> list[Any]:
    out = [
        *custom("by_foreach", x),
        *custom("by_components", x),
        *custom("by_positions", x),
        *custom("two_at_once", x, y),
        *custom("sizes", x),
        x * y + 1,
        ops.where(x > y, x, y),
        ops.cast(x, DType.int32),
        ops.reshape(x, [-1]),
        ops.broadcast_to(x, [2, *x.shape]) if x.rank < 8 else x,
        ops.permute(x, list(range(x.rank))[::-1]),
    ]
    for axis in axes(x.rank):
        out += [ops.sum(x, axis), ops.mean(x * 2, axis) if axis else ops.softmax(x, axis), ops.concat([x, y], axis)]
    return out


def axes(rank: int) -> list[int]:
    """The first, one in the middle, the last; for some ranks, since reductions are what takes long to compile."""
    return sorted({0, rank // 2, rank - 1} & set(range(rank))) if rank in (1, 2, 3, 8) else []


def reference(x: Any, y: Any) -> list[Any]:
    index = np.indices(x.shape).sum(0) if x.ndim else np.int64(0)
    out = [
        x + x,
        np.asarray(index, np.int64),
        x.reshape(-1)[::-1].reshape(x.shape),
        x + y,
        x - y,
        np.array([x.ndim, x.size, sum(x.shape)]),
        x * y + 1,
        np.where(x > y, x, y),
        x.astype(np.int32),
        x.reshape(-1),
        np.broadcast_to(x, (2, *x.shape)) if x.ndim < 8 else x,
        x.T,
    ]
    for axis in axes(x.ndim):
        powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
        soft = powers / powers.sum(axis, keepdims=True)
        out += [x.sum(axis, keepdims=True), (x * 2).mean(axis, keepdims=True) if axis else soft]
        out.append(np.concatenate([x, y], axis))
    return out


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rank", range(9))
def test_every_rank_with_and_without_elements(rank: int) -> None:
    names = [f"d{k}" for k in range(rank)]
    model = graphs.load(forward, (np.float32, names), (np.float32, names), extensions=[KERNELS])
    for shape in shapes(rank):
        x, y = graphs.numbers(shape, np.float32, 1), graphs.numbers(shape, np.float32, 2)
        results = graphs.results(model, x, y)
        for number, (actual, expected) in enumerate(zip(results, reference(x, y), strict=True)):
            assert actual.shape == expected.shape, (number, shape)
            assert actual.dtype == expected.dtype, (number, shape)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=f"output {number} of {shape}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rank", [0, 1, 3, 8])
def test_known_sizes_and_views_of_every_rank(rank: int) -> None:
    """The same with sizes in the types, on transposed and reversed arrays, by the interpreter too."""
    for shape in itertools.islice(shapes(rank), 0, 4, 2):
        kernels = lambda x: [*custom("by_foreach", x), *custom("by_components", x), *custom("by_positions", x)]  # noqa: E731
        graph = graphs.build(kernels, (np.int16, shape[::-1]), extensions=[KERNELS])
        x = graphs.numbers(shape, np.int16, 1)
        for interpret in (False, True):
            model = InferenceSession(interpret=interpret).load(graph)
            for view in (x.T, x.T[(slice(None, None, -1),) * rank]):
                doubled, index, backwards = graphs.results(model, view)
                np.testing.assert_array_equal(doubled, view + view)
                np.testing.assert_array_equal(index, np.indices(view.shape).sum(0) if rank else 0)
                np.testing.assert_array_equal(backwards, view.reshape(-1)[::-1].reshape(view.shape))


@pytest.mark.parametrize("rank", [0, 1, 3, 8])
def test_buffers_of_every_rank(rank: int) -> None:
    names = [f"d{k}" for k in range(rank)]

    def change(y: Any, x: Any) -> Any:
        before = y[...]
        ops.inplace_custom("zeroed", HOST, [y])
        zeros = y[...]
        ops.buffer_store(y, x)
        return before, zeros

    types = [BufferType(DType.float64, names, HOST), TensorType(DType.float64, names, HOST)]
    model = InferenceSession().load(Graph("change", change, types, custom_extensions=[KERNELS]))
    for shape in itertools.islice(shapes(rank), 3):
        x, y = (np.asarray(graphs.numbers(shape, np.float64, k)) for k in (1, 2))
        kept = y.copy()
        before, zeros = graphs.results(model, y, x)
        np.testing.assert_array_equal(before, kept)
        np.testing.assert_array_equal(zeros, np.zeros(shape))
        np.testing.assert_array_equal(y, x)
