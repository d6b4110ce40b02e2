"""Ops: what each stages, its types, and the errors of its arguments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import DeviceRef, Dim, Graph, TensorType, TensorValue, ops
from einkorn.graph.ir import Node
from einkorn.graph.ops import other_names
from einkorn.graph.ops import stage as stage_module

pytestmark = pytest.mark.usefixtures("kernels")

Shape = list[Any]


def typed(*shapes: Shape, dtype: DType = DType.float32) -> list[TensorType]:
    return [TensorType(dtype, shape) for shape in shapes]


def stage(forward: Callable[..., Any], *shapes: Shape, dtype: DType = DType.float32) -> Graph:
    return Graph("g", forward, typed(*shapes, dtype=dtype))


def names(graph: Graph) -> list[str]:
    return [node.name if isinstance(node, Node) else "constant" for node in graph.ir.nodes]


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


# --- elementwise ---

BINARY = ["add", "sub", "mul", "floordiv", "mod", "pow", "maximum", "minimum"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("name", ["var", "matmul", "less"])
def test_no_arithmetic_on_bools(name: str) -> None:
    function = getattr(ops, name)
    binary = name in ("matmul", "less")
    refused("EK0413", (lambda x: function(x, x)) if binary else function, [3, 3], dtype=DType.bool)


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (["n", 3], ["n", 3], ["n", 3]),
        (["n", 3], [3], ["n", 3]),
        ([1, 3], ["n", 1], ["n", 3]),
        ([], ["n"], ["n"]),
        (["n", 1, 1], ["m", 4], ["n", "m", 4]),
        ([0], [1], [0]),
    ],
)
def test_binary_broadcasts(name: str, left: Shape, right: Shape, result: Shape) -> None:
    graph = (
        stage(getattr(ops, name), left, right)
        if not {"m"} & {*left, *right}
        else stage(lambda x, y, _: getattr(ops, name)(x, y), left, right, ["m"])
    )
    broadcasts = (left != result) + (right != result)
    assert names(graph) == ["broadcast_to"] * broadcasts + [name]
    assert graph.output_types == typed(result, dtype=DType.bool if name in COMPARISONS else DType.float32)


@pytest.mark.parametrize("name", LOGICAL)
def test_logical(name: str) -> None:
    assert names(stage(getattr(ops, name), [3], [3], dtype=DType.bool)) == [name]
    refused("EK0413", getattr(ops, name), [3], [3])
    with pytest.raises(DTypeError):
        Graph("g", getattr(ops, name), [TensorType(DType.bool, [3]), TensorType(DType.int8, [3])])
    refused("EK0413", ops.logical_not, [3])


def test_operators() -> None:
    def all_of(x: TensorValue, y: TensorValue) -> list[TensorValue]:
        return [
            x + y, x - y, x * y, x / y, x // y, x % y, x**y, x @ y, -x, +x, abs(x), round(x), *divmod(x, y),
            1 + x, 1 - x, 1 * x, 1 / x, 1 // x, 1 % x, 1**x, np.ones((3, 3)) @ x, *divmod(1, x),  # type: ignore[list-item]
            x == y, x != y, x < y, x <= y, x > y, x >= y,
            (x > y) & (x < y), (x > y) | (x < y), (x > y) ^ (x < y), ~(x > y), True & (x > y),
        ]  # fmt: skip

    graph = stage(all_of, [3, 3], [3, 3])
    binary = ["add", "sub", "mul", "div", "floordiv", "mod", "pow", "matmul"]
    unary = ["negate", "abs", "round"]
    logic = [part for name in ("and", "or", "xor") for part in ("greater", "less", f"logical_{name}")]
    division = ["floordiv", "mod"]
    expected = [*binary, *unary, *division, *binary, *division, *COMPARISONS, *logic, "greater", "logical_not"]
    expected += ["greater", "logical_and"]
    assert [name for name in names(graph) if name not in ("constant", "broadcast_to")] == expected
    reverse_sub = next(n for n in graph.ir.nodes if isinstance(n, Node) and n.name == "sub" and n.operands[1] == 0)
    assert reverse_sub.operands[0] != 0


def test_division_of_integers() -> None:
    for forward in (lambda x: x / x, lambda x: x / 2, lambda x: 1 / x, lambda x: x / 2.5):
        graph = stage(forward, [3], dtype=DType.int32)
        assert graph.output_types == typed([3], dtype=DType.float64) and names(graph)[0] in ("cast", "constant")
    assert stage(lambda x: x // 2, [3], dtype=DType.int32).output_types == typed([3], dtype=DType.int32)
    assert stage(lambda x: x / 2, [3]).output_types == typed([3])


def test_cast() -> None:
    assert names(stage(lambda x: x.cast(DType.float32), [3])) == []
    graph = stage(lambda x: x.cast(DType.int8), ["n"])
    assert parameters(graph, "cast") == [{"dtype": DType.int8}]
    assert graph.output_types == typed(["n"], dtype=DType.int8)
    refused("EK0413", lambda x: x.cast("int8"), [3])


def test_gelu() -> None:
    assert parameters(stage(ops.gelu, [3]), "gelu") == [{"approximate": "none"}]
    assert isinstance(refused("EK0414", lambda x: ops.gelu(x, "fast"), [3]), ValueError)


def test_where() -> None:
    graph = stage(lambda x, y: ops.where(x > y, x, 0), ["n", 3], [3])
    assert names(graph) == ["broadcast_to", "greater", "constant", "broadcast_to", "where"]
    assert graph.output_types == typed(["n", 3])
    refused("EK0413", lambda x: ops.where(x, x, x), [3])
    refused("EK0411", lambda x: ops.where(x > 0, 1, 2), [3])
    refused("EK0420", lambda x, y: ops.where(x > 0, x, y), [3], [4])


# --- reductions ---


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    ("axis", "kept", "dropped", "staged"),
    [
        (-1, ["n", 3, 1], ["n", 3], []),
        (0, [1, 3, 4], [3, 4], []),
        (1, ["n", 1, 4], ["n", 4], []),
        ((1, 2), ["n", 1, 1], ["n"], ["reshape"]),
        ((0, -1), [1, 3, 1], [3], ["permute", "reshape"]),
        (None, [1, 1, 1], [], ["reshape"]),
        ((1,), ["n", 1, 4], ["n", 4], []),
    ],
)
def test_reductions(name: str, axis: Any, kept: Shape, dropped: Shape, staged: list[str]) -> None:
    for keepdims, expected in ((True, kept), (False, dropped)):
        graph = stage(lambda x, k=keepdims: getattr(ops, name)(x, axis=axis, keepdims=k), ["n", 3, 4])
        assert graph.output_types == typed(expected)
        assert names(graph)[: len(staged) + 1] == [*staged, f"reduce_{name}"]
        method = stage(lambda x, k=keepdims: getattr(x, name)(axis=axis, keepdims=k), ["n", 3, 4])
        assert str(method) == str(graph)


def test_reduction_defaults() -> None:
    for name in ("sum", "mean", "max", "min", "argmax", "argmin"):
        assert shapes(stage(getattr(ops, name), ["n", 3])) == [("n", 1)]
    assert stage(ops.argmax, ["n", 3]).output_types[0].dtype is DType.int64
    assert shapes(stage(lambda x: ops.argmin(x, None, False), ["n", 3])) == [()]
    assert stage(ops.mean, [3], dtype=DType.int32).output_types == typed([1], dtype=DType.float64)
    assert names(stage(lambda x: x.sum(axis=None), [])) == [] == names(stage(lambda x: x.sum(axis=()), [3]))


def test_max_of_two() -> None:
    assert names(stage(lambda x, y: ops.max(x, y), [3], [3])) == ["maximum"]
    assert names(stage(lambda x: ops.min(x, 0), [3])) == ["constant", "broadcast_to", "minimum"]
    for each in (ops.max, ops.min):
        for axis in (0, -1, None, (0,)):
            with pytest.raises(GraphError, match=r"element by element, and axis has no meaning") as error:
                stage(lambda x, e=each, a=axis: e(x, x, axis=a), [3])
            assert (error.value.code, error.value.argument) == ("EK0478", "axis")
    with pytest.raises(GraphError, match=r"an axis is given by its name: ops\.max\(x, axis=0, keepdims=False") as error:
        stage(lambda x: ops.max(x, 0, keepdims=False), [3])  # 0 is an operand
    assert error.value.code == "EK0478"


def test_reductions_refuse() -> None:
    for name, axis in itertools.product(("sum", "max", "argmax", "softmax"), (2, -3, 1.5, True, "0")):
        refused("EK0422", lambda x, n=name, a=axis: getattr(ops, n)(x, axis=a), [2, 3])
    refused("EK0422", lambda x: x.sum(axis=(0, -2)), [2, 3])
    refused("EK0422", lambda x: x.sum(), [])
    for name in ("max", "min", "argmax", "argmin"):
        refused("EK0424", lambda x, n=name: getattr(ops, n)(x, axis=1), [2, 0])
    assert shapes(stage(lambda x: x.sum(axis=1), [2, 0])) == [(2, 1)]


# --- matmul ---


@pytest.mark.parametrize(
    ("left", "right", "result", "kernel"),
    [
        (["m", 4], [4, "n"], ["m", "n"], "matmul"),
        ([4], [4, 3], [3], "matmul"),
        (["m", 4], [4], ["m"], "matmul"),
        ([4], [4], [], "matmul"),
        (["b", "m", 4], [4, 3], ["b", "m", 3], "matmul"),
        (["b", "m", 4], ["b", 4, 3], ["b", "m", 3], "batch_matmul"),
        (["m", 4], ["b", 4, 3], ["b", "m", 3], "batch_matmul"),
        (["b", 1, 2, 4], [5, 4, 3], ["b", 5, 2, 3], "batch_matmul"),
        ([2, 3, 4], [4], [2, 3], "matmul"),
        ([4], [2, 4, 3], [2, 3], "batch_matmul"),
        ([0, 4], [4, 0], [0, 0], "matmul"),
    ],
)
def test_matmul(left: Shape, right: Shape, result: Shape, kernel: str) -> None:
    graph = stage(ops.matmul, left, right)
    assert shapes(graph) == [tuple(result)]
    assert [name for name in names(graph) if "matmul" in name] == [kernel]
    if all(isinstance(size, int) for size in (*left, *right)):
        assert (np.ones(left) @ np.ones(right)).shape == tuple(result)


def test_matmul_refuses() -> None:
    error = refused("EK0427", lambda x, y: x @ y, ["m", 4], ["m", 5])
    assert error.message == "matmul: (m, 4) @ (m, 5): the inner sizes are 4 and m" and error.hint
    refused("EK0421", lambda x: x @ x, [])
    refused("EK0420", lambda x, y: x @ y, [2, 3, 4], [3, 4, 5])
    refused("EK0427", lambda x, y: x @ y, [3], [4])


# --- movement ---


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        (["n", 6], [-1], [Dim("n") * 6]),
        (["n", 6], [-1, 3], [Dim("n") * 2, 3]),
        (["n", 6], [2, "n", 3], [2, "n", 3]),
        (["n", 6], [3, -1, "n"], [3, 2, "n"]),
        (["n", "m"], ["m", -1], ["m", "n"]),
        (["n", "m"], [Dim("n") * Dim("m")], [Dim("n") * Dim("m")]),
        ([2, 3], [6], [6]),
        ([], [1, 1], [1, 1]),
        ([1], [], []),
        ([0, 3], [3, -1], [3, 0]),
        ([4, 0], [0], [0]),
    ],
)
def test_reshape(shape: Shape, target: Shape, result: Shape) -> None:
    graph = stage(lambda x: x.reshape(target), shape)
    assert shapes(graph) == [tuple(result)] and names(graph) == ["reshape"]


def test_reshape_to_the_same_is_nothing() -> None:
    assert names(stage(lambda x: x.reshape(["n", -1]), ["n", 3])) == []


@pytest.mark.parametrize(
    ("shape", "target", "message"),
    [
        ([2, 3], [5], "(2, 3) has 6 elements, and (5) has 5"),
        (["n", 6], [-1, 4], "(n, 6) has 6*n elements, which the 4 of (-1, 4) do not divide"),
        (["n", 6], [3, 2], "(n, 6) has 6*n elements, and (3, 2) has 6"),
        ([2, 3], [-1, -1], "shape (-1, -1) leaves 2 sizes open, and only one can be inferred"),
        ([0, 3], [0, -1], "the size left open in (0, -1) could be anything, the others make 0 elements"),
        ([6], [-2, -3], "size -2 on axis 0 is negative"),
        (["n"], ["m"], "(n) has n elements, and (m) has m"),
    ],
)
def test_reshape_refuses(shape: Shape, target: Shape, message: str) -> None:
    error = refused("EK0423", lambda x: x.reshape(target), shape)
    assert error.message == f"reshape: {message}" and isinstance(error, ValueError)


def test_permute_and_transpose() -> None:
    graph = stage(lambda x: (x.permute([2, 0, -2]), x.T, x.transpose(0, -1), x.permute([0, 1, 2])), ["a", "b", 3])
    assert shapes(graph) == [(3, "a", "b"), ("a", 3, "b"), (3, "b", "a"), ("a", "b", 3)]
    assert [p["order"] for p in parameters(graph, "permute")] == [(2, 0, 1), (0, 2, 1), (2, 1, 0)]
    for dims in ([0, 1], [0, 0, 1], [0, 1, 3]):
        refused("EK0422", lambda x, d=dims: x.permute(d), [1, 2, 3])
    refused("EK0422", lambda x: x.T, [3])


def test_broadcast_to() -> None:
    graph = stage(lambda x, _: x.broadcast_to(["n", 2, 3]), [1, 3], ["n"])
    assert shapes(graph) == [("n", 2, 3)] and names(graph) == ["broadcast_to"]
    assert names(stage(lambda x: x.broadcast_to([3]), [3])) == []
    for shape in ([2], [4, 2], [], [3, 1]):
        refused("EK0420", lambda x, s=shape: x.broadcast_to(s), [1, 3])
    error = refused("EK0431", lambda x, _: x.broadcast_to(["row", 3]), [1, 3], ["rows"])
    assert error.message == "broadcast_to: nothing determines the size of dim 'row' of the result (row, 3)"
    assert error.hint == "did you mean 'rows'?"


def test_names_that_no_input_has() -> None:
    error = refused("EK0431", lambda x: x.broadcast_to(["row", 3]), [1, 3])
    assert error.notes == ["a named dim takes its size from an input of the graph; the inputs have none"]


def test_squeeze_unsqueeze_flatten() -> None:
    graph = stage(lambda x: (ops.squeeze(x, -2), ops.unsqueeze(x, -1), ops.unsqueeze(x, 0), x.flatten()), ["n", 1, 3])
    assert shapes(graph) == [("n", 3), ("n", 1, 3, 1), (1, "n", 1, 3), (Dim("n") * 3,)]
    assert shapes(stage(lambda x: (x.flatten(1), x.flatten(0, 1)), ["n", 2, 3])) == [("n", 6), (Dim("n") * 2, 3)]
    assert shapes(stage(lambda x: x.flatten(), [])) == [(1,)]
    refused("EK0421", lambda x: ops.squeeze(x, 0), ["n"])
    refused("EK0422", lambda x: ops.unsqueeze(x, 3), [1, 2])
    refused("EK0422", lambda x: x.flatten(2, 1), [1, 2, 3])


def test_concat_and_stack() -> None:
    graph = stage(lambda x, y: (ops.concat([x, y, x], -2), ops.stack([x, x], -1)), ["n", 3], [2, 3])
    assert shapes(graph) == [(Dim("n") * 2 + 2, 3), ("n", 3, 2)]
    assert names(graph) == ["concat2", "concat2", "reshape", "reshape", "concat2"]
    assert names(stage(lambda x: ops.concat([x]), [3])) == []
    assert names(stage(lambda x: ops.concat([x, np.ones(2)]), [3])) == ["constant", "concat2"]
    refused("EK0426", lambda x: ops.concat([]), [3])
    refused("EK0426", lambda x, y: ops.concat([x, y]), [2, 3], [2, 4])
    refused("EK0426", lambda x, y: ops.concat([x, y]), [2], [2, 4])
    refused("EK0426", lambda x, y: ops.stack([x, y]), [2], [3])
    refused("EK0410", lambda x: ops.concat([x, x.cast(DType.int8)]), [2])
    refused("EK0422", lambda x: ops.concat([x, x], 1), [2])


def test_rebind() -> None:
    graph = stage(lambda x, y: x.rebind(["n", 3], "look at the tokenizer") + y, ["m", 3], ["n", 3])
    assert names(graph) == ["reshape", "add"]
    (constraint,) = graph.ir.constraints
    assert str(constraint) == "require m == n"
    assert constraint.message == "rebind: axis 0 has to have size n: look at the tokenizer"
    assert stage(lambda x: x.rebind(["n"]), ["n"]).ir.constraints == ()
    refused("EK0421", lambda x: x.rebind([3]), [3, 1])
    refused("EK0423", lambda x: x.rebind([4]), [3])
    refused("EK0423", lambda x: x.rebind([Dim("n") + 1]), ["n"])


def test_transfer() -> None:
    graph = stage(lambda x: x.to(DeviceRef.GPU()), [3])
    assert names(graph) == ["transfer_to"] and [each.device for each in graph.output_types] == [DeviceRef.GPU()]


def test_names_of_other_libraries() -> None:
    """An op that has another name here, or is not a method, is said in the AttributeError; checkers see no more
    names."""
    assert set(other_names.RENAMED.values()) <= set(stage_module.OPS) and not set(other_names.RENAMED) & set(
        stage_module.OPS
    )
    with pytest.raises(AttributeError, match=r"has no op 'bmm': it is ops\.matmul here"):
        _ = ops.bmm  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no op 'sofmax': did you mean 'softmax'"):
        _ = ops.sofmax  # type: ignore[attr-defined]
    (x,) = Graph("test", input_types=[TensorType(DType.float32, [3, 3], DeviceRef.CPU())]).inputs
    for name, op in (("unsqueeze", "unsqueeze"), ("view", "reshape")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': write ops\.{op}\(x, \.\.\.\)"):
            getattr(x, name)
    for name, hint in other_names.WRITTEN.items():
        with pytest.raises(AttributeError, match=re.escape(f"'TensorValue' object has no attribute '{name}': {hint}")):
            getattr(x, name)
    assert not hasattr(x, "nothing") and not hasattr(x, "__array_struct__") and not hasattr(ops, "_nothing")
    with pytest.raises(GraphError, match="indices that a mask selects"):
        stage(lambda x: x[x > 0], [3])
    with pytest.raises(EinkornError, match="ops that return several values return a list, also of one"):
        stage(lambda x: ops.relu([x]), [3])  # type: ignore[arg-type,list-item]
