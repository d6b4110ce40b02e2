"""Printed graphs are read back: the same text, the same code, the same constants, for every op that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import HOST
from support.op_cases import Batch, families

from einkorn.dsl.contract.checks import SAFE
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import BufferType, DType, Graph, InferenceSession, TensorType, Weight, ops, parse_graph
from einkorn.graph.ir import ConstantTensor
from einkorn.graph.loading.cache_keys import graph_key

F32 = TensorType(DType.float32, ["n", 3], HOST)
CASES = families()


def again(graph: Graph, extensions: Any = ()) -> Graph:
    constants = {node.result: node.array for node in graph.ir.nodes if isinstance(node, ConstantTensor)}
    large = {number: array for number, array in constants.items() if array.size > 8}
    read = parse_graph(str(graph), custom_extensions=extensions, constants=large)
    assert str(read) == str(graph)
    assert graph_key(read.ir, [], True, SAFE) == graph_key(graph.ir, [], True, SAFE)
    for node in read.ir.nodes:
        if isinstance(node, ConstantTensor):
            assert node.array.dtype == constants[node.result].dtype
            assert node.array.tobytes() == constants[node.result].tobytes()
    return read


@pytest.mark.parametrize("family", CASES)
def test_every_op(family: str) -> None:
    for case in CASES[family]:
        again(Batch([case], case.dtypes[0]).graph(), [case.extensions] if case.extensions else ())


def test_a_graph_that_was_read_runs(tmp_path: Path) -> None:
    def forward(x: Any, b: Any) -> Any:
        w = Weight("a b.w", DType.float32, [3], HOST, align=64)
        y = ops.rebind(ops.concat([x, x]), ["rows", 3])
        ops.buffer_store(b, b[...] + 1)
        ops.print("a } text : Tensor[")
        (z,) = ops.while_loop([ops.constant(0.5)], lambda k: k < 3, lambda k: k * 2)
        (s,) = ops.cond(x[0, 0] > 0, [TensorType(DType.float32, [], HOST)], lambda: z, lambda: -z)
        return y * w + s, y.shape[0]

    graph = Graph("a (small) one", forward, [F32, BufferType(DType.int32, [2], HOST)])
    x, w = np.ones((2, 3), np.float32), np.float32([1, 2, 3])
    results = []
    for each in (graph, again(graph)):
        buffer = np.zeros(2, np.int32)
        model = InferenceSession(interpret=True).load(each, weights_registry={"a b.w": w})
        results.append([b.to_numpy() for b in model(x, buffer)] + [buffer])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 0.1])
def test_numbers_are_exact(value: float) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        again(Graph("g", lambda d=dtype: ops.constant(np.array([[value], [1]], d))))


def test_what_is_not_read() -> None:
    graph = Graph("g", lambda x: x + np.arange(9, dtype=np.float32).reshape(3, 3)[:, None, :], [F32])
    text = str(graph)
    lines = text.splitlines()
    large = {node.result: node.array for node in graph.ir.nodes if isinstance(node, ConstantTensor)}
    cases = {
        "a part of a constant": text,
        "begins with no line": "\n".join(lines[1:]),
        "without an output": "\n".join(line for line in lines if "output" not in line),
        "should be the last": text + "\n}",
        "reads %9": "graph g(%0: Tensor[float32, (n), cpu:0]) {\n  output %9\n}",
        "no such op": "graph g(%0: Tensor[float32, (n), cpu:0]) {\n  %1 = ad(%0) : Tensor[float32, (n), cpu:0]\n}",
        "cannot be read": "graph g(%0: Tensor[float32, (n), cpu:0]) {\n  %1 = exp(%0) : Tensor[float16, (n), cpu:0]\n}",
        "values from %1": "graph g(%0: Tensor[float32, (n), cpu:0]) {\n  %2 = exp(%0) : Tensor[float32, (n), cpu:0]\n}",
        "no type": "graph g(%0: Tensor[float32, n, cpu:0]) {\n  output %0\n}",
    }
    for part, wrong in cases.items():
        with pytest.raises(EinkornError) as caught:
            parse_graph(wrong, constants=None if part.startswith("a part") else large)
        assert part in caught.value.message and caught.value.code in ("EK0436", "EK0440"), caught.value
        assert caught.value.place is not None and caught.value.place.file == __file__
    with pytest.raises(EinkornError):
        parse_graph(text, constants={number: np.zeros(9) for number in large})
