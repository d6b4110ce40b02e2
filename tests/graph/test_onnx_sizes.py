"""Sizes of ONNX models that import cannot compare: what a call checks, and what it says."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import Graph, InferenceSession, from_onnx

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
onnxruntime = pytest.importorskip("onnxruntime")


def value(name: str, shape: Any, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), name=f"the_{kind}", **attributes)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 18, **constants: Any) -> Any:
    for k, each in enumerate(nodes):
        each.name = each.name if all(each.name != other.name for other in nodes[:k]) else f"{each.name}_{k}"
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    outputs = [value(each, None) if isinstance(each, str) else each for each in outputs]
    made = helper.make_graph(nodes, "m", inputs, outputs, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def agree(made: Any, *calls: dict[str, Any], graph: Graph | None = None, tolerance: float = 1e-6) -> Graph:
    """Runs calls here and by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(made.SerializeToString(), options)
    graph = graph or from_onnx(made)
    ours = InferenceSession(interpret=True).load(graph)
    for given in calls:
        wanted = theirs.run(None, given)
        got = [buffer.to_numpy() for buffer in ours(*[given[name] for name in graph.ir.names])]
        for result, expected in zip(got, wanted, strict=True):
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
    return graph


def refuses(graph: Graph, *inputs: Any) -> EinkornError:
    with pytest.raises(EinkornError) as error:
        InferenceSession(interpret=True).load(graph)(*inputs)
    return error.value


def numbers(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape, np.float32)


# *** elementwise ***


def test_named_sizes_are_equal_or_one_of_them_is_broadcast() -> None:
    made = model([node("Add", "x y", "z")], [value("x", ["n", 4]), value("y", ["m", 4])], ["z"])
    shapes = [(3, 3), (1, 5), (5, 1), (1, 1), (0, 0)]
    graph = agree(made, *({"x": numbers(n, 4), "y": numbers(m, 4)} for n, m in shapes))
    error = refuses(graph, numbers(2, 4), numbers(3, 4))
    assert (
        "node 'the_Add' (Add): the sizes of its inputs on axis -2 have to be equal, or one of them 1" in error.message
    )
    assert (error.expected, error.got) == ("n ~ m", "2 and 3")
    assert "n is 2, axis 0 of 'x'" in error.notes


def test_a_named_size_against_a_number() -> None:
    made = model([node("Mul", "x w", "y")], [value("x", ["n", 2])], ["y"], w=numbers(6, 2))
    graph = agree(made, {"x": numbers(6, 2)}, {"x": numbers(1, 2)})
    assert str(graph.output_types[0].shape) == "[6, 2]"
    assert refuses(graph, numbers(4, 2)).got == "4 and 6"


def test_the_first_element_of_an_axis_is_broadcast() -> None:
    bounds: dict[str, Any] = {"zero": np.array([0]), "one": np.array([1])}
    nodes = [node("Slice", "x zero one one", "first"), node("Sub", "x first", "y"), node("Add", "y x", "z")]
    made = model(nodes, [value("x", [2, "n"])], ["y", "z"], **bounds)
    agree(made, *({"x": numbers(2, n)} for n in (1, 2, 5, 0)))


def test_three_that_broadcast() -> None:
    made = model([node("Sum", "x y z", "s"), node("Mul", "s x", "p")], [value(n, [n, f"{n}2"]) for n in "xyz"], ["p"])
    shapes = [((2, 3), (2, 3), (2, 3)), ((1, 3), (2, 1), (1, 1)), ((1, 1), (1, 1), (4, 5)), ((4, 1), (1, 1), (4, 2))]
    agree(made, *({n: numbers(*shape) for n, shape in zip("xyz", each, strict=True)} for each in shapes))


def test_computed_sizes_have_to_be_equal() -> None:
    """A network that halves twice and doubles, as feature pyramids do."""
    pool = {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}
    nodes = [
        node("MaxPool", "x", "half", **pool),
        node("MaxPool", "half", "quarter", **pool),
        node("Resize", "quarter  scales", "doubled", mode="nearest"),
        node("Add", "half doubled", "sum"),
        node("Concat", "sum doubled", "y", axis=1),
    ]
    nodes[2].input[:] = ["quarter", "", "scales"]
    made = model(nodes, [value("x", [1, 1, "w"])], ["y"], scales=np.array([1, 1, 2], np.float32))
    graph = agree(made, *({"x": numbers(1, 1, w)} for w in (8, 7, 4, 16)))
    error = refuses(graph, numbers(1, 1, 10))
    assert "node 'the_Add' (Add): the sizes of its inputs on axis -1 have to be equal" in error.message
    assert "(w + 1)//2" in error.expected and "2*((w + 3)//4)" in error.expected
    assert sorted(error.got.split(" and ")) == ["5", "6"]
    known = from_onnx(made, shapes={"x": [1, 1, "4*k"]})
    assert [str(each) for each in known.ir.constraints if each.kind == "equal"] == [
        "require x_axis_2 == 4*(x_axis_2//4)"
    ]
    agree(made, {"x": numbers(1, 1, 12)}, graph=known)
    assert "input 'x': axis 2 has not the size that shapes= gives it" in refuses(known, numbers(1, 1, 10)).message


def test_expressions_in_shapes() -> None:
    made = model([node("Add", "x y", "z")], [value("x", [None, None]), value("y", [None, None])], ["z"])
    graph = from_onnx(made, shapes={"x": ["2*k + 1", "b"], "y": ["2*k + 1", "b"]})
    agree(made, {"x": numbers(5, 2), "y": numbers(5, 2)}, graph=graph)
    assert refuses(graph, numbers(4, 2), numbers(4, 2)).code == "EK0454"
    for given, text in ((["k*k", "b"], "does not follow"), (["2*", "b"], "cannot be read"), (["a*b", 1], "not follow")):
        with pytest.raises(GraphError, match=text) as error:
            from_onnx(made, shapes={"x": given})  # type: ignore[dict-item]
        assert error.value.code == "EK0530" and error.value.argument == "x"


def test_names_without_letters_are_no_names() -> None:
    made = model([node("MatMul", "x y", "z")], [value("x", ["?", "?"]), value("y", ["?", "-1"])], ["z"])
    graph = agree(made, {"x": numbers(2, 3), "y": numbers(3, 4)})
    assert len({dim for type in graph.ir.inputs for dim in type.shape}) == 4
    assert "the axes that are summed over" in refuses(graph, numbers(2, 3), numbers(4, 3)).message


# *** shapes ***


def test_products_and_gemm() -> None:
    inputs = [value("a", ["p", "n", "k"]), value("b", ["q", "l", "m"])]
    batches = [(2, 2), (1, 3), (3, 1)]
    calls = [{"a": numbers(p, 2, 4), "b": numbers(q, 4, 5)} for p, q in batches]
    agree(model([node("MatMul", "a b", "c")], inputs, ["c"]), *calls)
    inputs = [value("a", ["k", "n"]), value("b", ["m", "l"]), value("c", ["x", "y"])]
    made = model([node("Gemm", "a b c", "d", transA=1, transB=1)], inputs, ["d"])
    calls = [{"a": numbers(4, 2), "b": numbers(3, 4), "c": numbers(*shape)} for shape in ((2, 3), (1, 3), (2, 1))]
    graph = agree(made, *calls)
    assert refuses(graph, numbers(4, 2), numbers(3, 5), numbers(2, 3)).got in ("4 and 5", "5 and 4")


def test_squeeze_concat_expand_and_reshape() -> None:
    squeeze = model([node("Squeeze", "x axes", "y")], [value("x", ["n", "m", 3])], ["y"], axes=np.array([1]))
    graph = agree(squeeze, {"x": numbers(2, 1, 3)})
    assert "it removes axis 1" in refuses(graph, numbers(2, 2, 3)).message
    concat = model([node("Concat", "x y", "z", axis=1)], [value("x", ["n", "a"]), value("y", ["m", "b"])], ["z"])
    graph = agree(concat, {"x": numbers(2, 1), "y": numbers(2, 3)})
    assert refuses(graph, numbers(2, 1), numbers(1, 3)).got == "2 and 1"
    inputs = [value("x", ["n", 1]), value("shape", [2], INT64)]
    expand = model([node("Expand", "x shape", "y")], inputs, ["y"])
    sizes = [((2, 1), (2, 4)), ((2, 1), (1, 3)), ((1, 1), (3, 2)), ((3, 1), (1, 1))]
    agree(expand, *({"x": numbers(*own), "shape": np.array(shape)} for own, shape in sizes))
    reshape = model([node("Reshape", "x shape", "y")], [value("x", ["n", "m"])], ["y"], shape=np.array([-1, 6]))
    graph = agree(reshape, {"x": numbers(4, 3)}, {"x": numbers(0, 6)})
    error = refuses(graph, numbers(2, 2))
    assert "node 'the_Reshape' (Reshape)" in error.message and error.got == "4 and 0"


@pytest.mark.parametrize("start, end, step", [(0, 10**9, 1), (2, 10**9, 3), (0, 4, 1), (2, 5, 1), (6, 3, 1), (0, 5, 2)])
def test_slices_end_where_the_axis_does(start: int, end: int, step: int) -> None:
    bounds: dict[str, Any] = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "t": np.array([step])}
    made = model([node("Slice", "x s e a t", "y")], [value("x", ["n", 2])], ["y"], **bounds)
    agree(made, *({"x": numbers(n, 2)} for n in (0, 1, 3, 5, 9)))


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("start", [-7, -5, -3, -1, 0, 1, 2, 6])
def test_slices_whose_bounds_count_from_the_end(start: int, step: int) -> None:
    """One node for each end; axes shorter than the bounds give what is left, or nothing."""
    ends = [-(2**63), -6, -3, -2, -1, 0, 1, 2, 4, 2**63 - 1]
    nodes = [node("Slice", f"x s e{k} a t", f"y{k}") for k in range(len(ends))]
    bounds: dict[str, Any] = {"s": np.array([start]), "a": np.array([0]), "t": np.array([step])}
    bounds |= {f"e{k}": np.array([end]) for k, end in enumerate(ends)}
    made = model(nodes, [value("x", ["n", 2])], [f"y{k}" for k in range(len(ends))], **bounds)
    agree(made, *({"x": numbers(n, 2)} for n in (0, 1, 2, 3, 4, 5, 8)))


def test_parts_of_an_axis_make_it_up_again() -> None:
    """What slices cut off is the same size everywhere: nothing is left for a call to check."""
    bounds: dict[str, Any] = {
        "zero": np.array([0]),
        "two": np.array([2]),
        "back": np.array([-2]),
        "far": np.array([2**63 - 1]),
    }
    nodes = [
        node("Slice", "x zero back one", "head"),
        node("Slice", "x back far one", "tail"),
        node("Concat", "head tail", "whole", axis=1),
        node("Slice", "x two far one", "later"),
        node("Sub", "later head", "changes"),
        node("Add", "whole x", "sum"),
    ]
    made = model(nodes, [value("x", [2, "n"])], ["changes", "sum"], one=np.array([1]), **bounds)
    graph = agree(made, *({"x": numbers(2, n)} for n in (0, 1, 2, 3, 9)))
    assert not graph.ir.constraints


def test_a_slice_of_a_slice_of_the_last_elements() -> None:
    bounds: dict[str, Any] = {
        "three": np.array([-3]),
        "far": np.array([2**31 - 1]),
        "zero": np.array([0]),
        "two": np.array([-2]),
    }
    nodes = [node("Slice", "x three far zero", "last"), node("Slice", "last three far zero", "same")]
    nodes += [node("Slice", "same two far zero", "y"), node("ReduceSum", "y", "total", keepdims=0)]
    made = model(nodes, [value("x", ["n", 2])], ["same", "y", "total"], **bounds)
    agree(made, *({"x": numbers(n, 2)} for n in (0, 1, 2, 3, 6)))


def test_a_slice_up_to_another_size() -> None:
    nodes = [node("Shape", "y", "shape"), node("Slice", "x zero shape axes", "z")]
    made = model(nodes, [value("x", [5]), value("y", ["n"])], ["z"], zero=np.array([0]), axes=np.array([0]))
    agree(made, *({"x": numbers(5), "y": numbers(n)} for n in (0, 3, 5, 8)))


def test_split_into_equal_parts() -> None:
    made = model([node("Split", "x", "a b c", num_outputs=3)], [value("x", ["n"])], ["a", "b", "c"])
    agree(made, *({"x": numbers(n)} for n in (9, 8, 7)))
    made = model([node("Split", "x sizes", "a b")], [value("x", ["n"])], ["a", "b"], sizes=np.array([2, 3]))
    graph = agree(made, {"x": numbers(5)})
    assert refuses(graph, numbers(6)).got in ("6 and 5", "5 and 6")


def test_a_constant_of_a_shape_without_elements() -> None:
    nodes = [node("Shape", "x", "n"), node("Concat", "n zero", "s", axis=0), node("ConstantOfShape", "s", "y")]
    made = model(nodes, [value("x", ["n"])], ["y"], zero=np.array([0]))
    agree(made, {"x": numbers(3)}, {"x": numbers(0)})


def test_states_of_recurrent_layers() -> None:
    inputs = [value("x", ["t", "b", "f"]), value("h", [1, "c", 3])]
    weights = {"w": numbers(1, 9, 2), "r": numbers(1, 9, 3), "b": numbers(1, 18)}
    layer = node("GRU", "x w r b h", "y last", hidden_size=3)
    layer.input[:] = ["x", "w", "r", "b", "", "h"]
    made = model([layer], inputs, ["y", "last"], **weights)
    graph = agree(made, {"x": numbers(4, 2, 2), "h": numbers(1, 2, 3)})
    assert "an initial state" in refuses(graph, numbers(4, 2, 2), numbers(1, 3, 3)).message


# *** branches and loops ***


def branch(nodes: list[Any], output: Any) -> Any:
    return helper.make_graph(nodes, "arm", [], [output])


def test_axes_of_einsum_and_of_grids() -> None:
    nodes = [node("Einsum", "x y", "z", equation="bhid,b...jd->b...hij")]
    made = model(nodes, [value("x", ["b", 2, "n", 4]), value("y", ["c", 1, "m", "d"])], ["z"])
    calls = [{"x": numbers(b, 2, n, 4), "y": numbers(b, 1, m, 4)} for b, n, m in ((2, 3, 5), (1, 1, 2), (3, 0, 1))]
    error = refuses(agree(made, *calls), numbers(2, 2, 3, 4), numbers(3, 1, 3, 4))
    assert "the sizes of axis 'b' of 'bhid,b...jd->b...hij' have to be equal" in error.message
    made = model(
        [node("GridSample", "x y", "z")], [value("x", ["n", 1, "h", 3]), value("y", ["m", 2, 2, 2])], ["z"], 16
    )
    error = refuses(
        agree(made, {"x": numbers(2, 1, 4, 3), "y": numbers(2, 2, 2, 2)}), numbers(1, 1, 4, 3), numbers(2, 2, 2, 2)
    )
    assert "the sizes of the batch axes have to be equal" in error.message


@pytest.mark.parametrize("factor", [0.7, 1.5, 2 / 3, 1.05, 3.0, 0.25, 1.2345678])
def test_resize_by_any_factor(factor: float) -> None:
    """Where the size stays the same, ONNX Runtime copies, and ONNX interpolates: such sizes are not among these."""
    weights: dict[str, Any] = {"roi": np.zeros(0, np.float32), "scales": np.array([1, factor], np.float32)}
    way = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    for size, given in (("n", {"mode": "linear"}), ("n", way), (30, way), (41, way)):
        made = model([node("Resize", "x roi scales", "z", **given)], [value("x", [2, size])], ["z"], **weights)
        sizes = [size] if isinstance(size, int) else [1, 3, 7, 10, 30, 41]
        agree(made, *({"x": numbers(2, n)} for n in sizes if int(n * factor) != n), tolerance=1e-5)


def test_channels_of_statistics() -> None:
    nodes = [node("BatchNormalization", "x a b c d", "z")]
    weights = {name: numbers(3) + 1 for name in "abcd"}
    made = model(nodes, [value("x", ["n", "channels", "k"])], ["z"], **weights)
    error = refuses(agree(made, {"x": numbers(2, 3, 5)}, {"x": numbers(1, 3, 1)}), numbers(2, 4, 5))
    assert "the numbers of channels have to be equal" in error.message


@pytest.mark.parametrize(("added", "divisor", "then"), [(-1, 4, 2), (-10, 2, 5), (0, 3, 0), (-3, 1, 3)])
def test_quotients_of_sizes_round_towards_zero(added: int, divisor: int, then: int) -> None:
    nodes = [
        node("Shape", "x", "size"),
        node("Add", "size added", "sum"),
        node("Div", "sum divisor", "quotient"),
        node("Add", "quotient then", "result"),
        node("Expand", "one result", "z"),
    ]
    weights: dict[str, Any] = {"added": np.array([added]), "divisor": np.array([divisor]), "then": np.array([then])}
    made = model(nodes, [value("x", ["n"])], ["z"], one=numbers(1), **weights)
    graph = agree(made, *({"x": numbers(n)} for n in (0, 1, 2, 5, 9, 10, 11)))
    assert not graph.ir.steps  # sizes of the result are dims of those of the input


def test_a_product_of_sizes_over_one_of_them() -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("ReduceProd", "shape", "all", keepdims=1),
        node("Div", "all row", "count"),
        node("Concat", "count row", "sizes", axis=0),
        node("Reshape", "x sizes", "y"),
        node("LayerNormalization", "y scale", "z"),
    ]
    made = model(nodes, [value("x", ["n", "m"])], ["z"], row=np.array([4]), scale=numbers(4))
    calls = [{"x": numbers(n, m)} for n, m in ((1, 4), (2, 6), (8, 1), (0, 3))]
    assert "the sizes" not in str(agree(made, *calls))
    nodes[2:4] = [
        node("Slice", "shape zero one", "count"),
        node("Div", "all count", "rest"),
        node("Concat", "count rest", "sizes", axis=0),
    ]
    made = model(nodes, [value("x", ["n", "m"])], ["z"], zero=np.array([0]), one=np.array([1]), scale=numbers(4))
    error = refuses(agree(made, {"x": numbers(3, 4)}, {"x": numbers(1, 4)}), numbers(2, 5))
    assert "the sizes of the input and of its weights on axis -1 have to be equal" in error.message


def test_only_the_arm_that_runs_is_checked() -> None:
    then = branch([node("Add", "x y", "sum"), node("Relu", "sum", "t")], value("t", None))
    other = branch([node("Relu", "x", "e")], value("e", None))
    chosen = node("If", "c", "z", then_branch=then, else_branch=other)
    computed = [node("MaxPool", "given", "x", kernel_shape=[2], strides=[2])]
    inputs = [value("given", [1, 1, "n"]), value("y", [1, 1, 3]), value("c", [], BOOL)]
    made = model([*computed, chosen], inputs, ["z"])
    calls = [(6, True), (7, True), (6, False), (9, False), (20, False)]
    given = [{"given": numbers(1, 1, n), "y": numbers(1, 1, 3), "c": np.array(c)} for n, c in calls]
    graph = agree(made, *given)
    error = refuses(graph, numbers(1, 1, 10), numbers(1, 1, 3), np.array(True))
    assert "node 'the_Add' (Add): the sizes of its inputs on axis -1 have to be equal" in error.message
    assert "n//2 == 3" in error.message and "5 and 3" in error.message


@pytest.mark.parametrize("opposite", [False, True])
def test_arms_that_compute_the_sizes_of_their_results(opposite: bool) -> None:
    """Both arms run. torchvision's `batched_nms` is exported so: no boxes, or the boxes that are kept."""
    kept = [node("Greater", "x zero", "above"), node("Compress", "x above", "positive", axis=0)]
    arms = [
        branch([*kept, node("Neg", "positive", "t"), node("ReduceSum", "positive", "s", keepdims=0)], value("t", None)),
        branch([node("Concat", "x x", "e", axis=0), node("ReduceMax", "x", "m", keepdims=0)], value("e", None)),
    ]
    for arm, name in zip(arms, ("s", "m"), strict=True):
        arm.output.append(value(name, None))
    names = ("else_branch", "then_branch") if opposite else ("then_branch", "else_branch")
    made = model(
        [node("If", "c", "z w", **dict(zip(names, arms, strict=True))), node("Add", "z w", "y")],
        [value("x", ["n"]), value("c", [], BOOL)],
        ["y", "z", "w"],
        zero=np.array(0, np.float32),
    )
    agree(made, *({"x": numbers(n) - 0.5, "c": np.array(c)} for n in (1, 7, 0) for c in (True, False)))


def test_arms_of_other_sizes() -> None:
    then = branch([node("Concat", "x x", "t", axis=0)], value("t", None))
    other = branch([node("Relu", "y", "e")], value("e", None))
    chosen = node("If", "c", "z", then_branch=then, else_branch=other)
    inputs = [value("x", ["n"]), value("y", ["m"]), value("c", [], BOOL)]
    made = model([chosen, node("Neg", "z", "w")], inputs, ["w"])
    agree(made, *({"x": numbers(2), "y": numbers(3), "c": np.array(c)} for c in (True, False)))


def test_the_second_of_arms_of_other_ranks_where_no_op_takes_the_first() -> None:
    """Gemm takes matrices: two branches before it, of which the first arms give tensors of three axes."""
    two = helper.make_tensor("two", INT64, [1], [2])
    nodes = [node("Shape", "x", "size", start=0, end=1), node("Less", "size two", "small")]
    for k, (before, after) in enumerate((("x", "y"), ("y", "z"))):
        arms = [
            helper.make_graph([node("Unsqueeze", f"{before} zero", f"a{k}")], "then", [], [value(f"a{k}", None)]),
            helper.make_graph([node("Identity", before, f"b{k}")], "otherwise", [], [value(f"b{k}", None)]),
        ]
        nodes.append(node("If", "small", after, then_branch=arms[0], else_branch=arms[1]))
        nodes[-1].name = f"the_If_{after}"
    nodes.append(node("Gemm", "z w", "p"))
    made = model(nodes, [value("x", ["n", 4])], ["p"], zero=np.array([0]), w=numbers(4, 3))
    made.graph.initializer.append(two)
    graph = agree(made, {"x": numbers(2, 4)}, {"x": numbers(5, 4)})
    error = refuses(graph, numbers(1, 4))
    assert "its condition is true, and the model is imported for the case that it is false" in error.message


def test_arms_of_other_ranks_by_a_size() -> None:
    """What PyTorch exports for `squeeze`: the model is imported for the case in which the axis goes."""
    then = branch([node("Squeeze", "x one", "t")], value("t", None))
    other = branch([node("Identity", "x", "e")], value("e", None))
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "size", axis=0),
        node("Equal", "size one", "is_one"),
        node("If", "is_one", "y", then_branch=then, else_branch=other),
        node("Neg", "y", "z"),
    ]
    made = model(nodes, [value("x", ["n", "m"])], ["z"], one=np.array([1]))
    graph = agree(made, {"x": numbers(3, 1)})
    assert "node 'the_Squeeze' (Squeeze): it removes axis 1" in refuses(graph, numbers(3, 2)).message


def test_bodies_of_loops() -> None:
    body = helper.make_graph(
        [node("Add", "state y", "next"), node("Identity", "going", "go")],
        "body",
        [value("k", [], INT64), value("going", [], BOOL), value("state", None)],
        [value("go", [], BOOL), value("next", None)],
    )
    made = model(
        [node("Loop", "count going x", "z", body=body)],
        [value("x", ["n"]), value("y", ["m"]), value("count", [], INT64), value("going", [], BOOL)],
        ["z"],
    )
    calls = [{"x": numbers(3), "y": numbers(m), "count": np.array(2), "going": np.array(True)} for m in (3,)]
    agree(made, *calls)


@pytest.mark.parametrize("kind, start, step", [(INT64, 0, 1), (INT64, 2, 3), (FLOAT, 0, 1), (FLOAT, 1, 2)])
def test_a_range_up_to_a_size_needs_no_computed_size(kind: int, start: int, step: int) -> None:
    dtype = np.float32 if kind == FLOAT else np.int64
    nodes = [
        node("Shape", "x", "shape"),
        node("Squeeze", "shape", "size"),
        node("Cast", "size", "limit", to=kind),
        node("Range", "start limit step", "y"),
        node("Mul", "limit half", "z"),
    ]
    known = {"start": start, "step": step, "half": 2}
    constants: dict[str, Any] = {name: np.array(number, dtype) for name, number in known.items()}
    made = model(nodes, [value("x", ["n"])], [value("y", None, kind), value("z", None, kind)], **constants)
    graph = agree(made, *({"x": numbers(n)} for n in (0, 1, 2, 5, 6)))
    assert not graph.ir.steps


WINDOWS = list(itertools.product(["SAME_UPPER", "SAME_LOWER"], [(3, [2, 2]), (2, [3, 1]), (1, [4, 2])]))


@pytest.mark.parametrize("op_type", ["Conv", "MaxPool", "AveragePool", "LpPool"])
def test_windows_with_strides_are_padded_by_the_sizes_of_a_call(op_type: str) -> None:
    """As many windows as strides: of an axis whose size has a name as of one whose size is known."""
    random = np.random.default_rng(3)
    weights: dict[str, Any] = {}
    nodes = []
    for number, (auto_pad, (size, strides)) in enumerate(WINDOWS):
        window: dict[str, Any] = {"auto_pad": auto_pad, "strides": strides, "kernel_shape": [size] * 2}
        window |= {"p": 2} if op_type == "LpPool" else {}
        filter = f" f{size}" if op_type == "Conv" else ""
        if filter:
            weights[filter.strip()] = random.standard_normal((2, 2, size, size)).astype(np.float32)
        nodes.append(node(op_type, "x" + filter, f"y{number}", **window))
    outputs = [f"y{number}" for number in range(len(nodes))]
    made = model(nodes, [value("x", ["b", 2, "h", "w"])], outputs, **weights)
    session = InferenceSession(interpret=True)
    loaded = session.load(from_onnx(made))
    for shape in ((1, 2, 5, 4), (1, 2, 1, 1), (0, 2, 2, 3)):
        x = random.standard_normal(shape).astype(np.float32) - 2  # the padding of a maximum is no 0
        known = session.load(from_onnx(made, shapes={"x": [*shape]}))
        for got, wanted, how in zip(loaded.execute(x), known.execute(x), WINDOWS, strict=True):
            strides = how[1][1]
            assert got.shape[2:] == tuple(-(-n // by) for n, by in zip(shape[2:], strides, strict=True)), how
            np.testing.assert_allclose(got.to_numpy(), wanted.to_numpy(), rtol=1e-5, atol=1e-6, err_msg=str(how))


def test_a_transform_has_as_many_elements_as_an_axis_whose_size_has_a_name() -> None:
    """PyTorch exports the number of elements of each transform, which is a size of its input."""
    nodes = [
        node("Shape", "x", "all"),
        node("Gather", "all one", "n"),
        node("Add", "n one", "more"),
        node("DFT", "x n one", "half", onesided=1),
        node("DFT", "x more one", "longer"),
        node("DFT", "longer n one", "back", inverse=1),
    ]
    made = model(nodes, [value("x", ["b", "n", 1])], ["half", "longer", "back"], opset=20, one=np.int64(1))
    loaded = InferenceSession(interpret=True).load(from_onnx(made))
    for n in (1, 4):
        x = np.random.default_rng(n).standard_normal((1, n)).astype(np.float32)
        longer = np.fft.fft(x, n + 1)
        got = [buffer.to_numpy() for buffer in loaded.execute(x[..., None])]
        for pairs, wanted in zip(got, (np.fft.rfft(x), longer, np.fft.ifft(longer, n)), strict=True):
            np.testing.assert_allclose(pairs[..., 0] + 1j * pairs[..., 1], wanted, atol=1e-5)


def test_sizes_that_import_cannot_prove_to_be_at_least_0() -> None:
    """PyTorch's exports compare the size of each axis with -1, where `expand` was given a shape."""
    nodes = [
        node("Conv", "x w", "frames", strides=[20]),
        node("Shape", "frames", "sizes"),
        node("Equal", "sizes minus", "left"),
        node("Where", "left ones sizes", "whole"),
        node("Expand", "row whole", "y"),
    ]
    made = model(
        nodes,
        [value("x", ["b", 1, "n"])],
        ["y"],
        w=numbers(2, 1, 30),
        minus=np.full(3, -1, np.int64),
        ones=np.ones(3, np.int64),
        row=numbers(1, 2, 1),
    )
    graph = agree(made, {"x": numbers(2, 1, 64)}, {"x": numbers(1, 1, 31)})
    assert str(graph.output_types[0].shape) == "[b, 2, (n + 10)//20 - 1]"


def test_sizes_below_0_are_numbers_as_others() -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Neg", "sizes", "back"),
        node("Sub", "sizes three", "less"),
        node("Concat", "minus back less", "all", axis=0),
        node("Add", "x all", "y"),
    ]
    made = model(
        nodes,
        [value("x", ["n"], INT64)],
        [value("y", None, INT64)],
        three=np.int64(3),
        minus=np.array([-1], np.int64),
    )
    calls: list[dict[str, Any]] = [{"x": np.arange(3)}, {"x": np.array([5])}]
    agree(made, *calls)


def test_determinants_of_any_size() -> None:
    made = model([node("Det", "x", "y")], [value("x", ["b", "n", "m"])], ["y"])
    graph = agree(made, *({"x": numbers(2, n, n)} for n in (1, 3, 6)), tolerance=1e-5)
    assert "the numbers of rows and of columns have to be equal" in refuses(graph, numbers(1, 2, 3)).message
    with pytest.raises(GraphError) as error:
        from_onnx(model([node("Det", "x", "y")], [value("x", [2, 3])], ["y"]))
    assert error.value.message == "node 'the_Det' (Det): takes square matrices, and gets [2, 3]"


def test_a_depth_of_one_hot_below_0_is_refused() -> None:
    """PyTorch exports -1 where `F.one_hot` is not given a number of classes."""
    values: dict[str, Any] = {"depth": np.int64(-1), "values": np.array([0, 1], np.int64)}
    made = model(
        [node("OneHot", "x depth values", "y")], [value("x", ["n"], INT64)], [value("y", None, INT64)], **values
    )
    with pytest.raises(GraphError) as error:
        from_onnx(made)
    assert error.value.message.startswith("node 'the_OneHot' (OneHot): depth is -1, and is a number of classes")
