"""Weights: tensors that a model holds and that come when it is loaded, whatever graph they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import CallErrors, EinkornError, GraphError
from einkorn.graph import Buffer, DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.loading.load import load_graph

N = TensorType(DType.float32, ["n", 3], HOST)


def linear(w: Weight, b: Weight) -> Graph:
    return Graph("linear", forward=lambda x: x @ w + b, input_types=[N])


@pytest.fixture
def w() -> Weight:
    return Weight("w", DType.float32, [3, 2], HOST)


@pytest.fixture
def b() -> Weight:
    return Weight("b", DType.float32, [2], HOST)


X = np.arange(12, dtype=np.float32).reshape(4, 3)
W = np.arange(6, dtype=np.float32).reshape(3, 2)
B = np.array([1, -1], np.float32)


@pytest.mark.parametrize("interpret", [False, True])
def test_a_weight_is_an_operand_and_comes_at_load(w: Weight, b: Weight, interpret: bool) -> None:
    model = InferenceSession(interpret=interpret).load(linear(w, b), weights_registry={"w": W, "b": B})
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X @ W + B)
    np.testing.assert_array_equal(model(X[::2])[0].to_numpy(), X[::2] @ W + B)  # the variant for views has them, too


def test_it_is_read_where_it_lies(w: Weight, b: Weight) -> None:
    mine = W.copy()
    model = InferenceSession().load(linear(w, b), weights_registry={"w": mine, "b": Buffer.from_numpy(B)})
    model(X)
    mine[:] = 1
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X @ mine + B)


def test_one_compile_serves_all_weights(w: Weight, b: Weight) -> None:
    session = InferenceSession()
    session.load(linear(w, b), weights_registry={"w": W, "b": B})
    other = linear(Weight("v", DType.float32, [3, 2]), Weight("c", DType.float32, [2]))
    assert load_graph(other.ir).tier == "cache"
    model = session.load(other, weights_registry={"v": -W, "c": B})
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X @ -W + B)


def test_a_weight_serves_several_graphs_and_places(w: Weight) -> None:
    twice = Graph("twice", forward=lambda x: x @ w + (x @ w), input_types=[N])
    alone = Graph("alone", forward=lambda: (w, w * 2))
    assert str(twice).count("weight") == 1
    session = InferenceSession()
    np.testing.assert_array_equal(session.load(twice, weights_registry={"w": W})(X)[0].to_numpy(), 2 * (X @ W))
    first, second = session.load(alone, weights_registry={"w": W})()
    np.testing.assert_array_equal(first.to_numpy(), W)
    np.testing.assert_array_equal(second.to_numpy(), 2 * W)
    assert not np.shares_memory(first.to_numpy(), W), "results are memory of their own"


@pytest.mark.parametrize(
    "dtype", [np.float64, ml_dtypes.bfloat16, np.int8, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.int4]
)
def test_any_dtype_and_layout(dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    known = DType.from_numpy(array.dtype)
    graph = Graph("any", forward=lambda: ops.permute(Weight("w", known, [2, 3], HOST), [1, 0]))
    for given in (array, np.repeat(array, 2, axis=1)[:, ::2], Buffer.from_numpy(array)):
        result = InferenceSession().load(graph, weights_registry={"w": given})()[0]
        np.testing.assert_array_equal(result.to_numpy().astype(np.float64), array.T.astype(np.float64))


def test_an_alignment_is_kept_and_askew_memory_is_copied() -> None:
    raw = np.zeros(4 * 6 + 1, np.uint8)
    askew = raw[1:].view(np.float32)
    askew[:] = np.arange(6)
    aligned = Weight("w", DType.float32, [6], HOST, align=256)
    for weight in (Weight("w", DType.float32, [6], HOST), aligned):
        model = InferenceSession().load(Graph("g", lambda w=weight: w + 1), weights_registry={"w": askew})
        np.testing.assert_array_equal(model()[0].to_numpy(), np.arange(6) + 1)
    assert aligned.align == 256


def test_constant_external_names_a_weight() -> None:
    def forward(x: Any) -> Any:
        type = TensorType(DType.float32, [3], HOST)
        first, again = ops.constant_external("a.b", type), ops.constant_external(name="a.b", type=type)
        assert first.number == again.number
        return x + first

    model = InferenceSession().load(Graph("g", forward=forward, input_types=[N]), weights_registry={"a.b": X[0]})
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X + X[0])


def test_add_weight_gives_the_value_that_the_graph_has(w: Weight) -> None:
    with Graph("g", input_types=[N]) as graph:
        value = graph.add_weight(w, force_initial_weight_on_host=False)
        assert graph.add_weight(w) is value and (w.number, w.graph) == (value.number, graph)
        graph.output(graph.inputs[0] @ value)
    assert w.original_dtype_and_shape == (DType.float32, w.shape) and w.shard_idx is None


def test_an_op_that_fails_leaves_no_weight_behind(w: Weight) -> None:
    with Graph("g", input_types=[N]) as graph:
        before = str(graph)
        with pytest.raises(GraphError):
            w + graph.inputs[0]
        assert str(graph) == before
        graph.output(graph.inputs[0] @ w)


def test_all_that_is_wrong_is_reported_at_once(w: Weight, b: Weight) -> None:
    s = Weight("scale", DType.float32, [])
    graph = Graph("g", forward=lambda x: (x @ w + b) * s, input_types=[N])
    with pytest.raises(CallErrors) as caught:
        InferenceSession().load(graph, weights_registry={"w": W.T, "bias": B, "scale": np.float64(1)})
    reported = {(error.code, error.argument): error for error in caught.value.errors}
    assert set(reported) == {
        ("EK0433", "w"),
        ("EK0433", "b"),
        ("EK0452", "scale"),
    }
    assert all(error.place is not None and error.place.file == __file__ for error in reported.values())
    assert "weights_registry has nothing" in str(reported["EK0433", "b"])  # what else it has is not looked at
    assert "(3, 2)" in str(reported["EK0433", "w"]) and "(2, 3)" in str(reported["EK0433", "w"])


def refusals(w: Weight) -> Iterator[tuple[str, Any]]:
    yield "EK0401", lambda: w + 1
    yield "EK0401", lambda: w.number
    yield "EK0432", lambda: Weight("w", DType.float32, ["n"])
    yield "EK0432", lambda: Weight("w", DType.float32, [1], align=3)
    yield "EK0432", lambda: Weight("w", DType.float32, [1], sharding_strategy="rows")  # type: ignore[arg-type]
    yield "EK0432", lambda: Weight("w", DType.float32, [1], quantization_encoding="q4")  # type: ignore[arg-type]
    yield "EK0432", lambda: w.shard([HOST])
    yield "EK0478", lambda: Weight(3, DType.float32, [1])  # type: ignore[arg-type]
    yield "EK0432", lambda: Graph("g", forward=lambda: w @ Weight("w", DType.float32, [2, 3]))
    yield "EK0432", lambda: Graph("g", forward=lambda: w + ops.constant_external("w", TensorType(DType.int8, [3, 2])))
    yield "EK0432", lambda: Graph("g", forward=lambda: Graph.current.add_weight(W))  # type: ignore[arg-type]
    yield "EK0432", lambda: Graph("g", forward=lambda: ops.constant_external("w", N))
    yield "EK0403", lambda: Graph("g", forward=lambda: ops.constant_external("w", DType.int8))  # type: ignore[arg-type]
    graph = Graph("g", forward=lambda: w + 1)
    yield "EK0404", lambda: graph.add_weight(Weight("v", DType.int8, []))
    yield "EK0433", lambda: InferenceSession().load(graph)
    yield "EK0433", lambda: InferenceSession().load(graph, weights_registry=[W])  # type: ignore[arg-type]
    yield "EK0452", lambda: InferenceSession().load(graph, weights_registry={"w": [1.0]})


def test_what_is_refused(w: Weight) -> None:
    for code, call in refusals(w):
        with pytest.raises(EinkornError) as caught:
            call()
        assert caught.value.code == code, caught.value
        assert caught.value.place is not None and caught.value.place.file == __file__, code
