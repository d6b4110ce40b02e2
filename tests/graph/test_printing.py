"""The text of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.dsl.types.dtype import DType
from einkorn.graph import Graph, TensorType, TensorValue, ops
from einkorn.graph.staging.value import TensorValueLike

pytestmark = pytest.mark.usefixtures("kernels")


def model(x: TensorValue, w: TensorValue) -> tuple[TensorValue, ...]:
    hidden = ops.gelu(x @ w + 0.5, approximate="tanh")
    return ops.softmax(hidden), hidden[1:, 0], ops.cast(hidden, DType.bfloat16)


TYPES = [TensorType(DType.float32, ["rows", 4]), TensorType(DType.float32, [4, 3])]

TEXT = """\
graph model(%0: Tensor[float32, (rows, 4), cpu:0], %1: Tensor[float32, (4, 3), cpu:0]) {
  require rows >= 1
  %2 = matmul(%0, %1) : Tensor[float32, (rows, 3), cpu:0]
  %3 = constant 0.5 : Tensor[float32, (), cpu:0]
  %4 = broadcast_to(%3) : Tensor[float32, (rows, 3), cpu:0]
  %5 = add(%2, %4) : Tensor[float32, (rows, 3), cpu:0]
  %6 = gelu(%5) {approximate = "tanh"} : Tensor[float32, (rows, 3), cpu:0]
  %7 = softmax(%6) {axis = 1} : Tensor[float32, (rows, 3), cpu:0]
  %8 = slice(%6) {starts = (1, 0), steps = (1, 1)} : Tensor[float32, (rows - 1, 1), cpu:0]
  %9 = reshape(%8) : Tensor[float32, (rows - 1), cpu:0]
  %10 = cast(%6) {dtype = bfloat16} : Tensor[bfloat16, (rows, 3), cpu:0]
  output %7, %9, %10
}"""


def test_golden() -> None:
    graph = Graph("model", model, TYPES)
    assert str(graph) == TEXT == str(graph.ir)


def test_the_text_is_stable() -> None:
    assert {str(Graph("model", model, TYPES)) for _ in range(3)} == {TEXT}


def test_unfinished_graphs_print() -> None:
    with Graph("g", input_types=[TensorType(DType.int8, ["n"])]) as graph:
        assert str(graph) == "graph g(%0: Tensor[int8, (n), cpu:0]) {\n}"
        assert repr(graph) == "Graph('g', 1 inputs, 0 nodes, being built)"
        x = graph.inputs[0]
        assert repr(-x) == "%1: Tensor[int8, (n), cpu:0]"
        assert str(graph).splitlines()[1:] == ["  %1 = negate(%0) : Tensor[int8, (n), cpu:0]", "}"]


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, None, "True"),
        (7, None, "7"),
        (0.1, DType.float64, "0.1"),
        ([[1, 2], [3, 4]], DType.bfloat16, "[[1.0, 2.0], [3.0, 4.0]]"),
        ([], DType.float32, "[]"),
        (float("inf"), None, "inf"),
        (np.arange(9), None, "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (np.arange(1000.0).reshape(10, 100), DType.bfloat16, "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ...]"),
    ],
)
def test_constants(value: TensorValueLike | list[Any], dtype: DType | None, text: str) -> None:
    with Graph("g") as graph:
        ops.constant(value, dtype)
    assert f"%0 = constant {text} : " in str(graph)
