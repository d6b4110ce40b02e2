"""Graphs being built: tracing, transactions, places, promotion, and what goes wrong."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, PackageError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import CPU, DeviceRef, Dim, Graph, InferenceSession, TensorType, TensorValue, ops
from einkorn.graph.ir import ConstantTensor, Node

pytestmark = pytest.mark.usefixtures("kernels")

FLOAT = TensorType(DType.float32, ["rows", 10])
INT = TensorType(DType.int32, [4])


def shown(error: BaseException) -> str:
    """The text of an error without what depends on where this file lies: path, line and column."""
    assert isinstance(error, EinkornError)
    text = re.sub(r"^\S*\.py:\d+:\d+: ", "", str(error))
    return re.sub(r"^ *\d+ \| +", "      | ", re.sub(r"^( +\| +)(?=[\^~])", "      | ", text, flags=re.M), flags=re.M)


def traced(forward: Callable[..., Any], *types: TensorType) -> Graph:
    return Graph("g", forward, types)


# --- the two ways of building ---


def test_callable_form() -> None:
    graph = Graph("g", lambda x, y, *, scale: (x + y, x * scale), [FLOAT, FLOAT], scale=2)
    assert graph.output_types == [FLOAT, FLOAT]
    assert [value.type for value in graph.inputs] == [FLOAT, FLOAT]
    assert [node.name for node in graph.ir.nodes if isinstance(node, Node)] == ["add", "broadcast_to", "mul"]


def test_positional_extra_arguments() -> None:
    graph = Graph("g", lambda x, k: x + k, [INT], None, 5)
    (constant, _, _) = graph.ir.nodes
    assert isinstance(constant, ConstantTensor) and constant.array == 5


def test_context_form() -> None:
    with Graph("g", input_types=[FLOAT]) as graph:
        assert Graph.current is graph
        x = graph.inputs[0]
        with pytest.raises(GraphError, match="no output yet"):
            _ = graph.ir
        graph.output(x, x + x, 3)
    assert graph.ir.outputs == (0, 1, 2)
    assert graph.output_types == [FLOAT, FLOAT, TensorType(DType.int64, [])]


def test_current_is_the_innermost() -> None:
    with Graph("outer", input_types=[FLOAT]) as outer:
        with Graph("inner", input_types=[FLOAT]) as inner:
            assert Graph.current is inner
        assert Graph.current is outer
        Graph("traced", lambda x: x + x, [FLOAT])
        assert Graph.current is outer
    with pytest.raises(GraphError, match="no graph is being built"):
        _ = Graph.current


def test_current_is_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError), Graph("g"):
        raise RuntimeError
    with pytest.raises(GraphError):
        _ = Graph.current


def test_forward_may_set_the_output_itself() -> None:
    def forward(x: TensorValue) -> None:
        Graph.current.output(x)

    graph = traced(forward, FLOAT)
    assert graph.ir.outputs == (0,)


def test_outputs_from_an_iterator() -> None:
    assert len(traced(lambda x: (x + k for k in range(3)), FLOAT).output_types) == 3


def test_finished_graphs_do_not_change() -> None:
    with Graph("g", input_types=[FLOAT]) as graph:
        x = graph.inputs[0]
        graph.output(x + x)
        text = str(graph)
        for attempt in (lambda: x + x, lambda: ops.constant(1), lambda: graph.output(x)):
            with pytest.raises(GraphError, match="graph 'g' is finished"):
                attempt()
    assert str(graph) == text


def test_ir_is_frozen() -> None:
    graph = traced(lambda x: x + np.ones(10), FLOAT)
    constant = graph.ir.nodes[0]
    assert isinstance(constant, ConstantTensor)
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0] = 2
    with pytest.raises(AttributeError):
        graph.ir.name = "h"  # type: ignore[misc]


def test_ir_numbers_values_in_order() -> None:
    ir = traced(lambda x: ops.softmax(x * 2) @ np.ones((10, 3)), FLOAT).ir
    defined = list(range(len(ir.inputs)))
    for node in ir.nodes:
        assert all(value in defined for value in getattr(node, "operands", ()))
        assert node.results == (len(defined),)
        defined += node.results
    assert len(ir.types) == len(defined)
    assert ir.output_types == (TensorType(DType.float32, ["rows", 3]),)


# --- transactions ---


def test_an_op_that_raises_leaves_no_trace() -> None:
    with Graph("g", input_types=[FLOAT, INT]) as graph:
        x, i = graph.inputs
        mask = x > 1
        before = str(graph)
        attempts: list[Callable[[], Any]] = [
            lambda: ops.add(x, np.ones((3, 7))),  # the constant is staged before the shapes are compared
            lambda: ops.where(mask, x, np.ones(3)),
            lambda: ops.matmul(x, np.ones((3, 7))),
            lambda: x[2:, 11],  # the condition rows >= 2 comes before axis 1 is looked at
            lambda: ops.div(i, np.ones(3)),  # after the cast to float64
            lambda: x.rebind(["rows", 11]),
            lambda: x.sum(axis=(0, 0)),
        ]
        for attempt in attempts:
            with pytest.raises(EinkornError):
                attempt()
            assert str(graph) == before
        assert (x + x).number == mask.number + 1


def test_output_is_all_or_nothing() -> None:
    with Graph("g", input_types=[FLOAT]) as graph:
        before = str(graph)
        with pytest.raises(GraphError, match="output 1 is not a value but str"):
            graph.output(5, "x")
        assert str(graph) == before
        graph.output(graph.inputs[0])


# --- places ---


def test_nodes_know_the_users_line() -> None:
    with Graph("g", input_types=[FLOAT]) as graph:
        x = graph.inputs[0]
        y = (x
             + 2 * x)  # fmt: skip
        graph.output(y.mean())
    places = {node.name: node.place for node in graph.ir.nodes if isinstance(node, Node)}
    assert all(place is not None and place.file == __file__ for place in places.values())
    add, mul, mean = places["add"], places["mul"], places["reduce_mean"]
    assert add and mul and mean
    assert (add.end_line, mul.line, mean.line) == (add.line + 1, add.line + 1, add.line + 2)
    line = mul.source_line()
    assert line and line[mul.column - 1 : mul.end_column - 1] == "2 * x"


def test_place_columns_count_characters() -> None:
    with Graph("g", input_types=[FLOAT]) as graph:
        größe = graph.inputs[0]
        for text, summe in (("äöü", größe + größe),):
            assert text and summe is not größe
        graph.output(größe)
    node = graph.ir.nodes[0]
    assert node.place
    line = node.place.source_line()
    assert line and line[node.place.column - 1 : node.place.end_column - 1] == "größe + größe"


def test_error_points_at_the_users_line() -> None:
    with pytest.raises(GraphError) as caught, Graph("g", input_types=[FLOAT, INT]) as graph:
        x, i = graph.inputs
        ops.where(x > 0, x, x) + ops.cast(i, DType.float32)
    assert caught.value.place and caught.value.place.file == __file__
    assert shown(caught.value) == (
        "error[EK0420]: add: shapes (rows, 10) and (4) do not broadcast: 10 and 4 on axis -1\n"
        "      | ops.where(x > 0, x, x) + ops.cast(i, DType.float32)\n"
        "      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    )
    assert (caught.value.op, caught.value.argument, caught.value.expected, caught.value.got) == (
        "add",
        "rhs",
        "10 or 1",
        "4",
    )


# --- values of the wrong graph, at the wrong time ---


def test_values_of_two_graphs() -> None:
    with Graph("a", input_types=[FLOAT]) as a:
        foreign = a.inputs[0]
    with Graph("b", input_types=[FLOAT]) as b:
        for attempt in (lambda: b.inputs[0] + foreign, lambda: ops.relu(foreign), lambda: b.output(foreign)):
            with pytest.raises(GraphError, match="belongs to graph 'a', and the one being built is 'b'"):
                attempt()
    with Graph("a", input_types=[FLOAT]) as same, pytest.raises(GraphError, match="another graph of the name 'a'"):
        same.output(foreign)


def test_ops_outside_a_graph() -> None:
    x = traced(lambda x: x, FLOAT).inputs[0]
    attempts: list[Callable[[], Any]] = [lambda: x + 1, lambda: ops.constant(1), lambda: x.reshape([-1])]
    for attempt in attempts:
        with pytest.raises(GraphError, match="no graph is being built here"):
            attempt()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (bool, "has no truth value"),
        (len, "has no length"),
        (list, "cannot be iterated or unpacked"),
        (lambda x: 1.0 in x, "cannot be searched with 'in'"),
        (np.asarray, "cannot become a NumPy array"),
        (lambda x: operator.setitem(x, 0, 1.0), "cannot be changed"),
        (lambda x: max(x, x), "has no truth value"),
        (float, "has no number"),
        (int, "has no number"),
        (complex, "has no number"),
        (math.sqrt, "has no number"),
        (range, "has no number"),
        (lambda x: [1, 2][x], "has no number"),
    ],
)
def test_questions_without_an_answer(question: Callable[[Any], Any], answer: str) -> None:
    with pytest.raises(GraphError, match=f"a tensor {answer} while its graph is built"):
        traced(lambda x: question(x), FLOAT)


@pytest.mark.parametrize(
    ("function", "op", "instead"),
    [
        (lambda x: np.exp(x), "np.exp", "write ops.exp(...)"),
        (lambda x: np.maximum(x, 0), "np.maximum", "write ops.maximum(...)"),
        (lambda x: np.multiply(x, x), "np.multiply", "write ops.mul(...)"),
        (lambda x: np.sum(x), "np.sum", "write ops.sum(...)"),
        (lambda x: np.concatenate([x, x]), "np.concatenate", "write ops.concat(...)"),
        (lambda x: np.add.reduce(x), "np.add.reduce", "use the functions of ops, or run the graph"),
        (lambda x: np.add(np.ones(3), x, where=False), "np.add", "write ops.add(...)"),
    ],
)
def test_functions_of_numpy_say_which_op_to_write(function: Callable[[Any], Any], op: str, instead: str) -> None:
    with pytest.raises(GraphError) as error:
        traced(lambda x: function(x), FLOAT)
    assert error.value.code == "EK0450" and f"{op} takes arrays" in error.value.message
    assert (error.value.op, error.value.hint) == (op, instead)
    assert error.value.place is not None and error.value.place.file == __file__


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq"]
)
def test_operators_between_arrays_and_tensors(name: str) -> None:
    operate = getattr(operator, name)
    left, right = np.array([1, 7, 2], np.float32), np.array([3, 2, 2], np.float32)
    for array in (left, np.float32(4)):
        graph = traced(lambda x, a=array: operate(a, x), TensorType(DType.float32, [3]))
        result = InferenceSession(interpret=True).load(graph)(right)[0].to_numpy()
        np.testing.assert_allclose(result, operate(array, right), rtol=1e-6)
        assert result.dtype == operate(array, right).dtype


@pytest.mark.parametrize("take", [range, lambda dim: [0] * dim, float, math.sqrt, int])
def test_numbers_that_no_dim_has_yet(take: Callable[[Any], Any]) -> None:
    for size in (Dim("n"), Dim("n") + 1):
        with pytest.raises(GraphError, match=r"dim n( \+ 1)? has no number until the graph runs") as error:
            take(size)
        assert error.value.code == "EK0331" and error.value.hint
    assert take(Dim(4)) is not None


def test_arrays_in_another_byte_order() -> None:
    swapped = np.ones(3, ">f4")
    with pytest.raises(DTypeError) as error:
        traced(lambda x: x + swapped, FLOAT)
    assert error.value.hint == 'convert it: x.astype(x.dtype.newbyteorder("="))'


def test_values_hash_by_identity() -> None:
    x = traced(lambda x: x, FLOAT).inputs[0]
    assert {x: 1}[x] == 1 and x.tensor is x


# --- graphs that are declared wrong ---


def test_wrong_declarations() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: Graph("g", input_types=[DType.float32]), "input type 0 is not a TensorType but DType"),  # type: ignore[list-item]
        (
            lambda: Graph("g", input_types=[TensorType(DType.int8, [Dim("n") * Dim("m")])]),
            r"axis 0 of input 0 has the size .*, from which '[mn]' does not follow",
        ),
        (lambda: Graph("g", lambda x: None, [FLOAT]), "'forward' returned nothing"),
        (lambda: Graph("g", lambda x: "x", [FLOAT]), "output 0 is not a value but str"),
        (lambda: Graph("g", lambda x: [], [FLOAT]), "at least one output"),
        (lambda: Graph("g", scale=2), "there is none"),
        (lambda: Graph("g", path="g.bin"), "cannot be loaded"),  # type: ignore[arg-type]
        (lambda: TensorType("float32", [1]), "needs a DType"),  # type: ignore[arg-type]
        (lambda: TensorType(DType.float32, [1.5]), "not a size"),  # type: ignore[list-item]
    ]
    for attempt, message in cases:
        with pytest.raises((GraphError, DTypeError), match=message):
            attempt()


def test_tensor_types() -> None:
    a = TensorType(DType.float32, ["n", 2], DeviceRef.CPU())
    assert a == TensorType(DType.float32, (Dim("n"), 2), CPU()) and hash(a) == hash(TensorType(DType.float32, ["n", 2]))
    assert a != a.with_dtype(DType.int8) and a != a.with_shape([2, "n"])
    assert a != TensorType(DType.float32, ["n", 2], DeviceRef.GPU())
    assert a.rank == 2 and str(a) == "Tensor[float32, (n, 2), cpu:0]"


# --- devices ---


def test_nothing_moves_by_itself() -> None:
    remote = TensorType(DType.float32, ["rows", 10], DeviceRef.GPU())
    with pytest.raises(GraphError) as caught:
        traced(lambda x, y: x + y, FLOAT, remote)
    assert caught.value.code == "EK0430"
    assert caught.value.message == "add: argument 'rhs' lies on gpu:0, and argument 'lhs' lies on cpu:0"
    assert traced(lambda x: x + 1, remote).output_types == [remote]
    assert traced(lambda x: x.to(CPU()), FLOAT).ir.nodes == ()


def test_a_missing_library_kernel_is_an_error(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(family: str, name: str) -> Any:
        raise PackageError(f"no {family}/{name}", code="EK0501")

    monkeypatch.setattr(kernels, "builtin", missing)
    with Graph("g", input_types=[FLOAT]) as graph:
        with pytest.raises(PackageError):
            graph.inputs[0] + 1
        assert graph._nodes == []


def test_a_list_as_one_output_has_a_hint_how_to_give_it_back() -> None:
    with pytest.raises(GraphError, match=r"output 1 is not a value but list(.|\n)*\*values"):
        graphs.build(lambda x: [x, list(ops.top_k(x, 1))], (np.float32, [3]))
