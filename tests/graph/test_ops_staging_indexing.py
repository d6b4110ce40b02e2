"""Slices and splits: agreement with NumPy, symbolic axes, and the errors of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import Dim, Graph, TensorType, ops
from einkorn.graph.ir import Node

pytestmark = pytest.mark.usefixtures("kernels")

Shape = list[Any]


def typed(*shapes: Shape, dtype: DType = DType.float32) -> list[TensorType]:
    return [TensorType(dtype, shape) for shape in shapes]


def stage(forward: Callable[..., Any], *shapes: Shape, dtype: DType = DType.float32) -> Graph:
    return Graph("g", forward, typed(*shapes, dtype=dtype))


def shapes(graph: Graph) -> list[tuple[Any, ...]]:
    return [tuple(type.shape) for type in graph.output_types]


def parameters(graph: Graph, name: str) -> list[dict[str, Any]]:
    return [dict(node.parameters) for node in graph.ir.nodes if isinstance(node, Node) and node.name == name]


def refused(code: str, forward: Callable[..., Any], *shapes: Shape, dtype: DType = DType.float32) -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        stage(forward, *shapes, dtype=dtype)
    assert caught.value.code == code, caught.value
    assert caught.value.place is not None and caught.value.place.file == __file__
    return caught.value


# --- indexing ---


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), None), (None, slice(None)), (slice(1, 3), None), (slice(1, 3), Ellipsis), (Ellipsis, None),
        (None, 1), (1, None), (slice(None), None, None), (slice(1, 3),), (None, None, slice(None, None, -1)),
    ],
)  # fmt: skip
def test_vectors_are_indexed_as_in_numpy(index: Any) -> None:
    array = np.arange(5)
    assert shapes(stage(lambda x: x[index], [5])) == [array[index].shape]


@pytest.mark.parametrize(
    "index",
    [
        0, -1, 4, (1, 2), (slice(None), 2), slice(1, 4), slice(None, None, 2), slice(None, None, -1),
        slice(4, 0, -2), slice(3, None, -1), slice(None, 1, -1), slice(-2, None), slice(None, -2), slice(2, 2),
        slice(4, 1), (Ellipsis, 0), (0, Ellipsis), (None, slice(1, 3), None, 1), Ellipsis, None, (), slice(5, 5),
        (slice(1, 5, 3), slice(None, None, -3)), np.int64(2), slice(-5, 5), slice(None, -6, -1),
    ],
)  # fmt: skip
def test_static_slices_agree_with_numpy(index: Any) -> None:
    array = np.arange(35).reshape(5, 7)
    graph = stage(lambda x: x[index], [5, 7])
    assert shapes(graph) == [array[index].shape]
    for node in graph.ir.nodes:  # the elements, by the rule that the kernel follows
        if isinstance(node, Node) and node.name == "slice":
            (p,) = parameters(graph, "slice")
            starts, steps = (p[key] for key in ("starts", "steps"))
            sizes = [int(dim) for dim in node.out_types[0].shape]
            taken = array[
                np.ix_(*[[s + k * t for k in range(n)] for s, t, n in zip(starts, steps, sizes, strict=True)])
            ]
            assert taken.ravel().tolist() == array[index].ravel().tolist()


N = Dim("n")


@pytest.mark.parametrize(
    ("index", "size", "start", "step", "required"),
    [
        (slice(1, None), N - 1, 1, 1, ["n >= 1"]),
        (slice(None, -1), N - 1, 0, 1, ["n >= 1"]),
        (slice(1, -1), N - 2, 1, 1, ["n >= 1", "n - 2 >= 0"]),
        (slice(None, 5), 5, 0, 1, ["n >= 5"]),
        (slice(-3, None), 3, -3, 1, ["n >= 3"]),
        (slice(2, 7, 2), 3, 2, 2, ["n >= 2", "n >= 7"]),
        (slice(None, None, 2), (N + 1) // 2, 0, 2, []),
        (slice(None, None, -1), N, -1, -1, []),
        (slice(None, None, -2), (N + 1) // 2, -1, -2, []),
        (slice(4, 1, -1), 3, 4, -1, ["n >= 5", "n >= 2"]),
        (slice(None, N - 1), N - 1, 0, 1, ["n - 1 >= 0"]),
    ],
)
def test_symbolic_slices(index: slice, size: Any, start: int, step: int, required: list[str]) -> None:
    graph = stage(lambda x: x[index], ["n"])
    assert shapes(graph) == [(size,)]
    assert parameters(graph, "slice") == [{"starts": (start,), "steps": (step,)}]
    assert [str(c).removeprefix("require ") for c in graph.ir.constraints] == required
    array = np.arange(9)
    concrete = slice(*(p if p is None or isinstance(p, int) else 8 for p in (index.start, index.stop, index.step)))
    first, count = start % 9, len(array[concrete])
    assert [first + k * step for k in range(count)] == array[concrete].tolist()


def test_symbolic_elements() -> None:
    graph = stage(lambda x: (x[3], x[-2], x[:, 0]), ["n", 4])
    assert shapes(graph) == [(4,), (4,), ("n",)]
    assert [str(c) for c in graph.ir.constraints] == ["require n >= 4", "require n >= 2"]
    assert all(c.place and c.place.file == __file__ for c in graph.ir.constraints)
    assert graph.ir.constraints[0].message == "slice_tensor: index 3 on axis 0 of size n is out of range"


@pytest.mark.parametrize(
    "index",
    [
        5, -6, slice(0, 6), slice(-6, None), (0, 0, 0), slice(None, None, 0), (Ellipsis, Ellipsis), 1.5, True, "a",
        [[0, 1]], slice(5, None, -1), slice(None, None, 1.5),
    ],
)  # fmt: skip
def test_indices_out_of_range(index: Any) -> None:
    refused("EK0425", lambda x: x[index], [5, 5])


def test_indexing_by_other_dims_and_tensors_is_refused() -> None:
    refused("EK0425", lambda x: x[x], [3])
    refused("EK0413", lambda x: x[ops.sum(x, keepdims=False)], [3])
    refused("EK0431", lambda x: x[N], [5, 5])
    refused("EK0431", lambda x: x[N:], [5, 5])
    refused("EK0425", lambda x: x[x.shape[0]], ["n"])
    refused("EK0425", lambda x: x[: x.shape[0] + 1], ["n"])
    one = DType.int64
    refused("EK0482", lambda x: x[: ops.sum(x, keepdims=False)], [3], dtype=one)
    refused("EK0482", lambda x: x[:, ops.sum(x, axis=None, keepdims=False) :], [3, 3], dtype=one)
    error = refused("EK0423", lambda x: x[[(slice(1, None), 3)]], [3])
    assert error.message == "slice_tensor: the size is 2, and out_dim is 3"
    refused("EK0425", lambda x: x[:: ops.sum(x, keepdims=False)], [3], dtype=one)


def test_a_slice_gets_a_name() -> None:
    graph = stage(lambda x: x[(slice(1, None), "rest")] + 1, ["n"])
    assert shapes(graph) == [("rest",)]
    graph = stage(lambda x: x[(slice(1, None), "m"), 0], ["n", "m"])
    assert shapes(graph) == [("m",)] and "require" in str(graph)


def test_split_and_chunk() -> None:
    graph = stage(lambda x: (*ops.split(x, [1, 4, 0], -1), *ops.chunk(x, 5, 1)), ["n", 5])
    assert shapes(graph) == [("n", 1), ("n", 4), ("n", 0), *[("n", 1)] * 5]
    refused("EK0425", lambda x: ops.split(x, [1, 2]), [4])
    refused("EK0425", lambda x: ops.split(x, [-1, 5]), [4])
    refused("EK0425", lambda x: ops.split(x, [2, 2]), ["n"])
    refused("EK0425", lambda x: ops.chunk(x, 3), [4])
    refused("EK0425", lambda x: ops.chunk(x, 0), [4])
