"""What control flow and subgraphs refuse while a graph is built, and what calls of subgraphs stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.graphs import HOST

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from einkorn.graph import BufferType, DType, Graph, InferenceSession, TensorType, Weight, ops, parse_graph

F32, I64, BOOL = DType.float32, DType.int64, DType.bool
X = TensorType(F32, ["n"], HOST)
MATRIX = TensorType(F32, ["m", "n"], HOST)
FLAG = TensorType(BOOL, [], HOST)
HERE = Path(__file__).name


def words(error: EinkornError) -> str:
    """What an error says, without the line that it is about."""
    return "\n".join([error.message, *error.notes, error.hint or ""])


def leak(x: Any, p: Any, y: Any) -> Any:
    kept: list[Any] = []
    ops.cond(p, [x.type], lambda: kept.append(x + 1) or x, lambda: x)  # type: ignore[func-returns-value]
    return kept[0] * 2


def leak_carried(x: Any, p: Any, y: Any) -> Any:
    kept: list[Any] = []
    ops.while_loop(x, lambda v: p, lambda v: kept.append(v) or v)  # type: ignore[func-returns-value]
    return kept[0] * 2


def leak_between(x: Any, p: Any, y: Any) -> Any:
    kept: list[Any] = []
    return ops.cond(p, [x.type], lambda: kept.append(x + 1) or x, lambda: kept[0])  # type: ignore[func-returns-value]


def elsewhere(x: Any, p: Any, y: Any) -> Any:
    with Graph("other", input_types=[X]) as other:
        return ops.cond(True, [X], lambda: other.inputs[0], lambda: x)


def finish(x: Any, p: Any, y: Any) -> Any:
    return ops.cond(p, [x.type], lambda: Graph.current.output(x), lambda: x)


# What is staged, and what the error says: code, argument, a part of its text, parts of what it adds.
WRONG: dict[str, tuple[Callable[..., Any], str, str | None, list[str]]] = {
    "float": (lambda x, p, y: ops.cond(x[0], [x.type], lambda: x, lambda: x), "EK0413", "pred", ["has to be bool"]),
    "axes": (lambda x, p, y: ops.cond(x > 0, [x.type], lambda: x, lambda: x), "EK0444", "pred",
             ["a single bool", "ops.all"]),
    "number": (lambda x, p, y: ops.cond(1, [x.type], lambda: x, lambda: x), "EK0411", "pred", []),
    "value": (lambda x, p, y: ops.cond(p, [x.type], x, lambda: x), "EK0478", "then_fn", ["a function", "lambda: x"]),
    "type": (lambda x, p, y: ops.cond(p, [F32], lambda: x, lambda: x), "EK0441", "out_types[0]", ["a TensorType"]),
    "one type": (lambda x, p, y: ops.cond(p, x.type, lambda: x, lambda: x), "EK0441", "out_types", ["a list of types"]),
    "dtype": (lambda x, p, y: ops.cond(p, [x.type], lambda: x, lambda: x > 0), "EK0445", "else_fn",
              ["result 0 of else_fn is Tensor[bool, (n), cpu:0], staged at",
               "result 0 of then_fn is", "ops.cast(x, DType.float32)"]),
    "shape": (lambda x, p, y: ops.cond(p, [x.type], lambda: ops.sum(x, 0), lambda: x), "EK0445", "then_fn", [HERE]),
    "dims": (lambda x, p, y: ops.cond(p, [x.type], lambda: ops.sum(y, 1, keepdims=False), lambda: x), "EK0445",
             "then_fn", ["Tensor[float32, (m), cpu:0]", "rebind"]),
    "count": (lambda x, p, y: ops.cond(p, [x.type], lambda: (x, x), lambda: x), "EK0445", "then_fn",
              ["gives back 2 values, and out_types says 1"]),
    "nothing": (lambda x, p, y: ops.cond(p, [x.type], lambda: None, lambda: x), "EK0445", "then_fn",
                ["gives back nothing"]),
    "something": (lambda x, p, y: ops.cond(p, None, lambda: x, lambda: None), "EK0445", "then_fn",
                  ["out_types is None"]),
    "text": (lambda x, p, y: ops.cond(p, [x.type], lambda: "x", lambda: x), "EK0403", "then_fn",
             ["is not a tensor but str"]),
    "leak": (leak, "EK0446", None, ["was made in then_fn of cond, and that body has ended", "return it from the body"]),
    "carried": (leak_carried, "EK0446", None, ["was made in while_loop"]),
    "between": (leak_between, "EK0446", "else_fn", ["was made in then_fn of cond"]),
    "elsewhere": (elsewhere, "EK0402", None, ["belongs to"]),
    "output": (finish, "EK0448", None, ["the graph is finished in a body of control flow, here then_fn of cond"]),
    "empty": (lambda x, p, y: ops.while_loop([], lambda: p, lambda: []), "EK0447", "initial_values", ["is empty"]),
    "no values": (lambda x, p, y: ops.while_loop(None, lambda v: p, lambda v: v), "EK0447", "initial_values", []),
    "predicate": (lambda x, p, y: ops.while_loop(x, lambda v: v, lambda v: v), "EK0444", "predicate",
                  ["returns %", "a comparison"]),
    "predicates": (lambda x, p, y: ops.while_loop(x, lambda v: [p, p], lambda v: v), "EK0444", "predicate",
                   ["2 values"]),
    "wide predicate": (lambda x, p, y: ops.while_loop(x, lambda v: v > 0, lambda v: v), "EK0444", "predicate",
                       ["a single bool"]),
    "no predicate": (lambda x, p, y: ops.while_loop(x, True, lambda v: v), "EK0478", "predicate", ["a function"]),
    "body": (lambda x, p, y: ops.while_loop((x, 0), lambda v, n: p, lambda v, n: [v, ops.cast(n, F32)]), "EK0445",
             "body", ["result 1 of body is Tensor[float", "initial_values[1] is Tensor[int64, (), cpu:0]"]),
    "body's count": (lambda x, p, y: ops.while_loop((x, 0), lambda v, n: p, lambda v, n: v), "EK0445", "body",
                     ["gives back 1"]),
    "growing": (lambda x, p, y: ops.while_loop(x, lambda v: p, lambda v: ops.concat([v, v])), "EK0445", "body",
                ["2*n"]),
}  # fmt: skip


STAGED_BEFORE = ("float", "axes", "leak", "carried")  # where something stands that is right


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    forward, code, argument, parts = WRONG[name]
    with Graph("test", input_types=[X, FLAG, MATRIX]) as graph:
        before = str(graph)
        with pytest.raises(EinkornError) as caught:
            forward(*graph.inputs)
        if name not in STAGED_BEFORE:
            assert str(graph) == before, "something was left behind"
        assert not graph.bodies.open
    error = caught.value
    assert error.code == code, str(error)
    assert argument is None or error.argument == argument
    assert error.place is not None and error.place.file == __file__
    for part in parts:
        assert part in words(error), str(error)


def test_kinds_of_errors() -> None:
    """As the documentation names them."""
    with Graph("test", input_types=[BufferType(F32, [2], HOST), X]) as graph:
        buffer, x = graph.inputs
        with pytest.raises(NotImplementedError, match=r"initial_values\[0\] is a buffer"):
            ops.while_loop([buffer, x], lambda b, v: True, lambda b, v: [b, v])
        with pytest.raises(ValueError, match="is empty"):
            ops.while_loop([], lambda: True, lambda: [])
        with pytest.raises(ValueError, match="gives back 2 values"):
            ops.cond(True, [x.type], lambda: [x, x], lambda: x)
        with pytest.raises(DTypeError):
            ops.cond(x[0], None, lambda: None, lambda: None)


def test_errors_of_bodies_are_their_own() -> None:
    """A mistake in a body has its own line and op; other exceptions pass; the graph is as before."""
    with Graph("test", input_types=[X]) as graph:
        (x,) = graph.inputs
        with pytest.raises(GraphError) as caught:
            ops.cond(True, [X], lambda: ops.transpose(x, 0, 5), lambda: x)
        assert caught.value.op == "transpose"
        with pytest.raises(ZeroDivisionError):
            ops.while_loop(x, lambda v: v[0] < 1, lambda v: v + 1 // 0)
        assert str(graph).count("\n") == 1 and not graph.bodies.open
        graph.output(ops.cond(True, [X], lambda: x, lambda: -x)[0])


def test_sizes_depend_on_nothing_that_runs_in_a_body() -> None:
    """On what a loop carries, or on a buffer, sizes in bodies cannot depend; on all else they can, and run before."""
    types = [TensorType(I64, ["n"], HOST), BufferType(I64, ["n"], HOST)]

    def found(x: Any) -> Any:
        return ops.sum(ops.nonzero(x, Graph.current.unused_dim("k")), 0, keepdims=False)[0]

    with Graph("test", input_types=types) as graph:
        x, buffer = graph.inputs
        with pytest.raises(GraphError) as caught:
            ops.while_loop(x, lambda v: v[0] < 1, lambda v: v + found(v * 2))
        assert caught.value.code == "EK0448" and "depends on what a loop carries" in words(caught.value)
        with pytest.raises(GraphError) as caught:
            ops.cond(True, [x.type], lambda: x + found(ops.buffer_load(buffer) * 2), lambda: x)
        assert caught.value.code == "EK0448" and "depends on 'buffer_load'" in words(caught.value)
        assert str(graph).count("\n") == 1
        (y,) = ops.cond(True, [x.type], lambda: x + found(ops.exp(ops.cast(x, DType.float32)) > 2), lambda: x)
        graph.output(y)
    before, _, body = str(graph).partition("= cond(")
    assert before.count("= exp(") == 1 and "nonzero" in before and "defines" in before
    assert "exp(" not in body and "= nonzero(" in body and str(parse_graph(str(graph))) == str(graph)


def test_branches_without_work_are_no_branches() -> None:
    """A branch that are not read and that changes nothing does not run; one that does nothing is left out."""

    def forward(x: Any, p: Any, y: Any) -> Any:
        ops.cond(p, [x.type], lambda: ops.exp(x), lambda: x)
        ops.while_loop(x, lambda v: p, lambda v: v + 1)
        ops.cond(p, None, lambda: None, lambda: None)
        return x + 1

    model = InferenceSession().load(Graph("test", forward, [X, FLAG, MATRIX]))
    assert "endless" not in repr(model)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(graphs.results(model, x, True, np.ones((1, 3), np.float32))[0], x + 1)


# *** subgraphs ***


def test_a_subgraph_is_called_with_dims_of_its_own() -> None:
    def forward(x: Any, p: Any, y: Any) -> Any:
        twice = Graph.current.add_subgraph("twice", lambda v: (v * 2, v[:1]), [TensorType(F32, ["k"], HOST)])
        (double, first), (rest, _) = ops.call(twice, x), ops.call(twice, x[1:])
        (column, _) = ops.call(twice, ops.sum(y, 1, keepdims=False))
        return double, first, rest, column

    graph = Graph("test", forward, [X, FLAG, MATRIX])
    assert [str(type.shape) for type in graph.output_types] == ["[n]", "[1]", "[n - 1]", "[m]"]
    model = InferenceSession().load(graph)
    x, y = graphs.numbers((4,), np.float32), graphs.numbers((3, 4), np.float32)
    for got, wanted in zip(graphs.results(model, x, True, y), (x * 2, x[:1], x[1:] * 2, y.sum(1) * 2), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_the_prefix_begins_the_names_of_weights() -> None:
    def layer(x: Any) -> Any:
        return ops.relu(x @ Weight("w", F32, [2, 2], HOST) + Weight("b", F32, [2], HOST))

    def forward(x: Any) -> Any:
        sub = Graph.current.add_subgraph("layer", layer, [TensorType(F32, ["rows", 2], HOST)])
        for k in range(2):
            (x,) = ops.call(sub, x, prefix=f"layers.{k}.")
        return ops.call(sub, ops.call(sub, x)[0])

    graph = Graph("test", forward, [TensorType(F32, ["n", 2], HOST)])
    names = ["layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b", "w", "b"]
    weights = {
        name: graphs.numbers((2, 2) if name.endswith("w") else (2,), np.float32, k) for k, name in enumerate(names)
    }
    model = InferenceSession().load(graph, weights_registry=weights)
    x = wanted = graphs.numbers((3, 2), np.float32)
    for prefix in ("layers.0.", "layers.1.", "", ""):
        wanted = np.maximum(wanted @ weights[f"{prefix}w"] + weights[f"{prefix}b"], 0)
    np.testing.assert_allclose(graphs.results(model, x)[0], wanted, rtol=1e-5)


def test_subgraphs_hold_control_flow_buffers_and_other_subgraphs() -> None:
    with Graph("test", input_types=[X, BufferType(F32, ["n"], HOST)]) as graph:
        x, y = graph.inputs
        with graph.add_subgraph("add", input_types=[X, BufferType(F32, ["n"], HOST)]) as add:
            v, held = add.inputs
            held[...] = held[...] + v
            add.output(v + 1)

        def forward(v: Any, held: Any) -> Any:
            return ops.while_loop((v, 0), lambda v, n: n < 3, lambda v, n: [*ops.call(add, v, held), n + 1])[0]

        outer = graph.add_subgraph("outer", forward, [X, BufferType(F32, ["n"], HOST)])
        graph.output(*ops.call(outer, x, y), *ops.cond(x[0] > 5, [X], lambda: ops.call(add, x, y), lambda: x))
    for interpret in (False, True):
        model = InferenceSession(interpret=interpret).load(graph)
        for start in (1, 9):
            x, y = np.full(2, start, np.float32), np.zeros(2, np.float32)
            last, chosen = graphs.results(model, x, y)
            np.testing.assert_array_equal(last, x + 3)
            np.testing.assert_array_equal(chosen, x + (start > 5))
            np.testing.assert_array_equal(y, 3 * x + 3 + (x if start > 5 else 0))


def test_what_subgraphs_know_of_the_graph_around() -> None:
    """Its dims and its kernels."""
    kernels = str(Path(__file__).parent / "buffer_kernels.py")
    with Graph("test", input_types=[MATRIX], custom_extensions=[kernels]) as graph:
        (y,) = graph.inputs

        def forward(row: Any) -> Any:
            wide = ops.broadcast_to(row, ["m", row.shape[0]])
            return ops.custom("row_total", device=HOST, values=[wide])[0]

        sub = graph.add_subgraph("sub", forward, [X], devices=[HOST])
        graph.output(*ops.call(sub, y[0]))
    y = graphs.numbers((3, 4), np.float32)
    got = graphs.results(InferenceSession().load(graph), y)[0]
    np.testing.assert_allclose(got, np.full(3, y[0].sum(dtype=np.float32)), rtol=1e-5)


WRONG_CALLS: dict[str, tuple[Callable[..., Any], str, list[str]]] = {
    "no graph": (lambda x, y: ops.call(lambda v: v, x), "EK0449", ["has to be a Graph", "add_subgraph"]),
    "unfinished": (lambda x, y: ops.call(Graph("open", input_types=[X]), x), "EK0405", ["no output yet"]),
    "too few": (lambda x, y: ops.call(pair()), "EK0449", ["takes 2 values, nothing given"]),
    "dtype": (lambda x, y: ops.call(pair(), ops.cast(x, I64), x), "EK0449", ["args[0] has dtype int64", "ops.cast"]),
    "rank": (lambda x, y: ops.call(pair(), x, y), "EK0449", ["args[1] has rank 2", "Tensor[float32, (k), cpu:0]"]),
    "sizes": (lambda x, y: ops.call(pair(), x, x[1:]), "EK0449", ["args[1] has size n - 1 on axis 0, which is n here"]),
    "a size": (lambda x, y: ops.call(Graph("g", lambda v: v, [TensorType(F32, [3], HOST)]), x), "EK0449", ["size n"]),
    "no tensor": (lambda x, y: ops.call(pair(), x, "x"), "EK0403", ["args[1]"]),
    "no buffer": (lambda x, y: ops.call(held(), x), "EK0449", ["Buffer"]),
    "required": (lambda x, y: ops.call(rebound(), x[:3], x[:2]), "EK0454", ["in subgraph 'rebound'", HERE]),
}


def pair() -> Graph:
    return Graph("pair", lambda a, b: a + b, [TensorType(F32, ["k"], HOST)] * 2)


def held() -> Graph:
    return Graph("held", lambda a: a[...], [BufferType(F32, ["k"], HOST)])


def rebound() -> Graph:
    types = [TensorType(F32, [name], HOST) for name in ("j", "k")]
    return Graph("rebound", lambda a, b: ops.rebind(a, ["k"]) + b, types)


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_calls_that_are_refused(name: str) -> None:
    forward, code, parts = WRONG_CALLS[name]
    with Graph("test", input_types=[X, MATRIX]) as graph:
        with pytest.raises(EinkornError) as caught:
            forward(*graph.inputs)
        assert caught.value.code == code, str(caught.value)
        assert caught.value.place is not None and caught.value.place.file == __file__
        for part in parts:
            assert part in words(caught.value), str(caught.value)


def test_a_failure_in_a_subgraph_names_both_lines() -> None:
    kernels = str(Path(__file__).parent / "buffer_kernels.py")
    types = [BufferType(F32, [1], HOST)]

    def inner(y: Any) -> None:
        ops.inplace_custom("stops", HOST, [y, ops.constant(1.0, F32, HOST)])

    def forward(y: Any) -> None:
        ops.call(Graph("inner", inner, types, custom_extensions=[kernels]), y)

    model = InferenceSession().load(Graph("test", forward, types))
    with pytest.raises(EinkornError) as caught:
        model(np.array([2.0], np.float32))
    text = str(caught.value)
    lines = [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if 'inplace_custom("stops' in line]
    assert f"{HERE}:{lines[0]}:" in text and "called at" in text, text


def test_subgraphs_have_names_of_their_own() -> None:
    with Graph("test", input_types=[X]) as graph:
        graph.add_subgraph("f", lambda v: v, [X])
        for wrong in (
            lambda: graph.add_subgraph("f", lambda v: v, [X]),
            lambda: graph.add_subgraph("g", lambda v: v, [X], path="g.mlir"),  # type: ignore[arg-type]
            lambda: graph.add_subgraph("g", lambda v: v, [X], devices=["cpu"]),  # type: ignore[list-item]
            lambda: graph.add_subgraph("g", 3, [X]),  # type: ignore[arg-type]
        ):
            with pytest.raises(GraphError):
                wrong()


def test_ready_made_code_of_an_op_serves_no_branch(tmp_path: Path) -> None:
    """A graph with a single op of a package in a branch is not that op."""
    package = tmp_path / "k.pkg"
    build_package(str(Path(__file__).parent / "buffer_kernels.py"), str(package), ["host"], op="stops")

    def forward(y: Any, p: Any) -> None:
        stops: Any = lambda: ops.inplace_custom("stops", HOST, [y, ops.constant(100.0, F32, HOST)])  # noqa: E731
        ops.cond(p, None, stops, lambda: None)

    graph = Graph("test", forward, [BufferType(F32, [2], HOST), FLAG], custom_extensions=[package])
    with graphs.cache_in(tmp_path / "cache"):
        model, y = InferenceSession().load(graph), np.ones(2, np.float32)
        for taken in (False, True):
            model(y, taken)
            np.testing.assert_array_equal(y, [1 + taken, 1 + taken])
