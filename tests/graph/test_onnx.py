"""ONNX models become graphs: names, shapes, constants, functions; and what is wrong with a model is reported."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.contract.checks import SAFE
from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import DType, Graph, InferenceSession, from_onnx, ops
from einkorn.graph.loading.cache_keys import graph_key
from einkorn.graph.onnx.initialisers import take_out
from einkorn.stdlib.kernels.random import uniform_reference

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
helper, FLOAT, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def value(name: str, shape: Any, type: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, type, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = (), opset: int = 18, **more: Any
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **more)


def tensor(name: str, array: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def run(graph: Graph, *inputs: Any) -> list[np.ndarray[Any, Any]]:
    return [b.to_numpy() for b in InferenceSession(interpret=True).load(graph).execute(*inputs)]


def linear(weights: Any = None) -> Any:
    w = np.arange(6, dtype=np.float32).reshape(2, 3) if weights is None else weights
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])]
    return model(nodes, [value("x", ["batch", 2])], [value("y", ["batch", 3])], [tensor("w", w)])


def test_a_model_is_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(linear().SerializeToString())
    x = np.array([[1, -2], [3, 4]], np.float32)
    expected = np.maximum(x @ np.arange(6, dtype=np.float32).reshape(2, 3), 0)
    for given in (path, str(path), path.read_bytes(), linear()):
        graph = from_onnx(given)
        assert str(graph.inputs[0].type) == "Tensor[float32, (batch, 2), cpu:0]"
        np.testing.assert_array_equal(run(graph, x)[0], expected)
    assert from_onnx(path, name="other").name == "other"
    assert str(from_onnx(path, shapes={"x": [4, 2]}).inputs[0].shape) == "[4, 2]"


def test_dims_have_names_that_are_identifiers() -> None:
    inputs = [value("a", ["n", "n + 1", None]), value("b", ["n", "n - 1", None])]
    graph = from_onnx(model([helper.make_node("Identity", ["a"], ["y"])], inputs, [value("y", None)]))
    assert [str(v.shape) for v in graph.inputs] == ["[n, n___1, a_axis_2]", "[n, n___1_2, b_axis_2]"]


def test_shapes_are_computed_at_import() -> None:
    """Shape, Gather-like slices, Concat and Reshape leave no node behind but the reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    known = [tensor("zero", np.array([0])), tensor("one", np.array([1])), tensor("rest", np.array([-1]))]
    graph = from_onnx(model(nodes, [value("x", ["n", 3, 4])], [value("y", None)], known))
    assert str(graph.output_types[0].shape) == "[n, 12]"
    assert len(graph.ir.nodes) == 1
    assert run(graph, np.zeros((5, 3, 4), np.float32))[0].shape == (5, 12)


def test_a_slice_up_to_a_symbolic_size_has_that_size() -> None:
    """As models of texts cut a table of places to the length of a text."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Slice", ["table", "zero", "n"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    table = np.arange(8, dtype=np.float32)
    known = [tensor("table", table), tensor("zero", np.array([0]))]
    graph = from_onnx(model(nodes, [value("x", ["n"])], [value("y", None)], known))
    np.testing.assert_array_equal(run(graph, np.zeros(5, np.float32))[0], table[:5])
    with pytest.raises(EinkornError, match="on axis -1 have to be equal"):
        run(graph, np.zeros(9, np.float32))


def test_functions_of_the_model_are_inlined() -> None:
    body = [
        helper.make_node("Constant", [], ["c"], value_float=2.0),
        helper.make_node("Mul", ["a", "c"], ["m"]),
        helper.make_node("LeakyRelu", ["m"], ["b"]),
    ]
    body[2].attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    imports = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "twice", ["a"], ["b"], body, imports, attributes=["slope"])
    made = model(
        [helper.make_node("twice", ["x"], ["y"], domain="own", slope=0.25)], [value("x", [3])], [value("y", [3])]
    )
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(run(from_onnx(made), np.array([-1, 0, 1], np.float32))[0], [-0.5, 0, 2])


def test_a_function_that_calls_itself_ends() -> None:
    body = [helper.make_node("loop", ["a"], ["b"], domain="own")]
    function = helper.make_function("own", "loop", ["a"], ["b"], body, [helper.make_opsetid("own", 1)])
    made = model([helper.make_node("loop", ["x"], ["y"], domain="own")], [value("x", [3])], [value("y", [3])])
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(GraphError, match="functions call functions"):
        from_onnx(made)


def test_inputs_that_are_always_the_same() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0, name="total")
    made = model([node], [value("x", ["a", "b"]), value("axes", [1], INT64)], [value("y", None)])
    with pytest.raises(GraphError, match=r"node 'total' \(ReduceSum\): input 'axes' \(axes\) has to be known") as error:
        from_onnx(made)
    assert error.value.code == "EK0529" and error.value.argument == "axes"
    graph = from_onnx(made, constants={"axes": [0]})
    np.testing.assert_array_equal(run(graph, np.ones((2, 3), np.float32))[0], [2, 2, 2])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_of_integers_keep_their_dtype_and_wrap(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Einsum", ["x"], ["terms"], equation="ij->i"),
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
        helper.make_node("ReduceProd", ["x", "axes"], ["product"], keepdims=0),
    ]
    names = ["terms", "sum", "product"]
    made = model(
        nodes,
        [value("x", ["a", 3], kind)],
        [value(name, None, kind) for name in names],
        [tensor("axes", np.array([1]))],
    )
    x = np.array([[1 << 30, 1 << 30, 1 << 30], [2, -3, 4]], dtype)
    got = run(from_onnx(made), x)
    wanted = [x.sum(1, dtype=dtype), x.sum(1, dtype=dtype), x.prod(1, dtype=dtype)]
    for result, expected in zip(got, wanted, strict=True):
        assert result.dtype == dtype and result.tolist() == expected.tolist()


def test_all_unknown_op_types_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("Fancy", ["x"], ["a"], domain="other", name="one"),
        helper.make_node("StringConcat", ["a", "a"], ["b"], name="two"),
        helper.make_node("Fancy", ["b"], ["y"], domain="other", name="three"),
    ]
    made = model(nodes, [value("x", [1])], [value("y", [1])], opset=20)
    made.opset_import.append(helper.make_opsetid("other", 1))
    with pytest.raises(GraphError) as error:
        from_onnx(made)
    assert error.value.code == "EK0527" and error.value.got == ["StringConcat", "other.Fancy"]
    assert error.value.notes == ["StringConcat: 'two'", "other.Fancy: 'one', 'three'"]


# *** what is wrong with a file ***


def refused(given: Any, code: str, text: str) -> None:
    with pytest.raises(GraphError) as error:
        from_onnx(given)
    assert error.value.code == code, error.value
    assert text in error.value.message, error.value
    assert error.value.place is not None and error.value.place.file == __file__


def changed(**weight: Any) -> Any:
    made = linear()
    for name, content in weight.items():
        field = getattr(made.graph.initializer[0], name)
        if isinstance(content, list):
            del field[:]
            field.extend(content)
        else:
            setattr(made.graph.initializer[0], name, content)
    return made


def test_what_is_no_model(tmp_path: Path) -> None:
    refused(3, "EK0526", "is a path, bytes or an onnx.ModelProto")
    refused(b"", "EK0526", "is empty")
    refused(b"\xff" * 40, "EK0526", "not an ONNX model")
    refused(tmp_path, "EK0526", "is not a file")
    refused(tmp_path / "none.onnx", "EK0526", "there is no file")
    refused(linear().SerializeToString()[:-20], "EK0526", "")
    huge = tmp_path / "huge.onnx"
    with open(huge, "wb") as file:
        file.truncate(1 << 32)  # a file with a hole: nothing is written, and nothing may be read
    refused(huge, "EK0526", "at most 2,147,483,647")


@pytest.mark.parametrize(
    ("made", "code", "text"),
    [
        (changed(dims=[2, 4]), "EK0526", "needs 32 bytes and has 24"),
        (changed(dims=[1 << 40, 1 << 40]), "EK0526", "no memory holds"),
        (changed(dims=[-1, 6]), "EK0526", "negative"),
        (changed(dims=[0, 1 << 62]), "EK0526", "needs 0 bytes"),
        (changed(data_type=99), "EK0530", "number 99"),
        (changed(data_type=onnx.TensorProto.COMPLEX64), "EK0530", "COMPLEX64"),
        (changed(raw_data=b"", float_data=[1.0]), "EK0526", "needs 24 bytes"),
    ],
)
def test_tensors_that_contradict_themselves(made: Any, code: str, text: str) -> None:
    refused(made, code, text)


def test_graphs_that_contradict_themselves() -> None:
    made = linear()
    made.graph.node[1].input[0] = "nothing"
    refused(made, "EK0526", "node making 'y' (Relu): nothing before it makes its input 'nothing'")
    made = linear()
    made.graph.node.append(helper.make_node("Relu", ["h"], ["y"]))
    refused(made, "EK0526", "another node makes 'y', too")
    made = linear()
    made.graph.output[0].name = "z"
    refused(made, "EK0526", "nothing makes the output 'z'")
    made = linear()
    made.opset_import[0].version = 0
    refused(made, "EK0526", "version 0 of ONNX's operators")
    made.opset_import[0].version = 1 << 40
    refused(made, "EK0526", "of ONNX's operators")
    made = linear()
    made.ir_version = 1 << 30
    refused(made, "EK0526", "file format")
    made = linear()
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    refused(made, "EK0530", "input 'x' is a sequence")
    made = linear()
    made.graph.input[0].type.tensor_type.ClearField("shape")
    refused(made, "EK0530", "the number of axes of input")


def test_nodes_that_are_wrong_are_named() -> None:
    refused(linear(np.zeros((5, 3), np.float32)), "EK0427", "node 'product' (MatMul): matmul: (batch, 2) @ (5, 3)")
    made = linear()
    made.graph.node[1].attribute.append(helper.make_attribute("alpha", 1.0))
    refused(made, "EK0528", "node making 'y' (Relu): there is no attribute 'alpha'")
    made = linear()
    made.graph.node[0].input.append("w")
    refused(made, "EK0528", "node 'product' (MatMul): takes 2 to 2 inputs, and has 3")
    node = helper.make_node("Concat", ["x", "x"], ["y"], name="joined")
    refused(model([node], [value("x", [2])], [value("y", [4])]), "EK0528", "attribute 'axis' is missing")
    node = helper.make_node("Flatten", ["x"], ["y"], axis="one")
    refused(model([node], [value("x", [2])], [value("y", [4])]), "EK0528", "attribute 'axis' has the wrong type")


def test_nothing_is_made_of_what_a_file_claims() -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    made = model([node], [], [value("y", None)], [tensor("s", np.array([1 << 20, 1 << 20]))])
    assert str(from_onnx(made).output_types[0].shape) == "[1048576, 1048576]"


@pytest.mark.parametrize(
    "op_type, gates, direction", [("RNN", 1, "reverse"), ("GRU", 3, "forward"), ("LSTM", 4, "bidirectional")]
)
def test_recurrent_layers_of_any_length(op_type: str, gates: int, direction: str) -> None:
    """A symbolic number of steps is a loop, and gives what the unrolled layer gives; items end at their lengths."""
    numbers, ways, size = np.random.default_rng(1), 1 + (direction == "bidirectional"), 3
    shapes = [(ways, gates * size, 2), (ways, gates * size, size), (ways, 2 * gates * size)]
    weights = [tensor(name, numbers.random(shape, np.float32) - 0.5) for name, shape in zip("wrb", shapes, strict=True)]
    outputs = ["y", "h"]
    node = helper.make_node(op_type, ["x", "w", "r", "b", "lengths"], outputs, hidden_size=size, direction=direction)
    inputs = [value("x", ["steps", "batch", 2]), value("lengths", ["batch"], onnx.TensorProto.INT32)]
    made = model([node], inputs, [value(name, None) for name in outputs], weights)
    graph = from_onnx(made)
    assert "while_loop" in str(graph)
    looped = InferenceSession(interpret=True).load(graph)
    for steps in (1, 4):
        x, lengths = numbers.random((steps, 2, 2), np.float32), np.array([steps, max(steps - 2, 0)], np.int32)
        unrolled = from_onnx(made, shapes={"x": [steps, 2, 2], "lengths": [2]})
        assert "while_loop" not in str(unrolled)
        for got, wanted in zip(looped(x, lengths), run(unrolled, x, lengths), strict=True):
            np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-6, atol=1e-7)
    empty, last = looped(np.zeros((0, 2, 2), np.float32), np.zeros(2, np.int32))
    assert empty.shape == (0, ways, 2, size) and not last.to_numpy().any()


def test_sizes_that_contradict_each_other_in_a_call_name_the_node() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="head")]
    shape = tensor("shape", np.array([2, 3], np.int64))
    graph = from_onnx(model(nodes, [value("x", ["n"])], [value("y", None)], [shape]))
    with pytest.raises(GraphError, match=r"node 'head' \(Reshape\): .*a reshape keeps the number of elements"):
        run(graph, np.zeros(5, np.float32))


# *** weights ***


def large(seed: int) -> Any:
    """A product whose weight has enough elements to stay in the file, and a bias."""
    numbers = np.random.default_rng(seed)
    weights = [tensor("w", numbers.random((40, 32), np.float32)), tensor("b", numbers.random(32, np.float32))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    return model(nodes, [value("x", ["n", 40])], [value("y", ["n", 32])], weights)


def test_initialisers_are_weights() -> None:
    """They have names, what a registry brings goes before what the model has, and one code serves all."""
    first, second = (from_onnx(large(seed)) for seed in (1, 2))
    assert list(first.weights) == ["w", "b"] and 'weight "w" : Tensor[float32, (40, 32), cpu:0]' in str(first)
    keys = {graph_key(graph.ir, [], True, SAFE) for graph in (first, second)}
    assert len(keys) == 1
    x = np.ones((1, 40), np.float32)
    session = InferenceSession(interpret=True)
    results = [session.load(graph)(x)[0].to_numpy() for graph in (first, second)]
    assert not np.array_equal(*results)
    np.testing.assert_array_equal(session.load(first, weights_registry=second.weights)(x)[0].to_numpy(), results[1])
    other = session.load(first, weights_registry={"b": np.zeros(32, np.float32)})(x)[0].to_numpy()
    np.testing.assert_allclose(other + first.weights["b"], results[0], rtol=1e-6)
    with pytest.raises(GraphError, match="weight 'b' has the shape") as error:
        session.load(first, weights_registry={"b": np.zeros(3, np.float32)})
    assert error.value.code == "EK0433"


def test_large_initialisers_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    data = large(3).SerializeToString()
    path.write_bytes(data)
    graph, whole = from_onnx(path), from_onnx(large(3))
    assert isinstance(buffer_of(graph.weights["w"]), mmap.mmap)
    assert buffer_of(from_onnx(data).weights["w"]) is data
    for name, array in whole.weights.items():
        np.testing.assert_array_equal(graph.weights[name], array)
    rest, elements = take_out(memoryview(data))
    assert len(rest) < 500 and [len(each) for each in elements.values()] == [40 * 32 * 4]
    for askew in (data[:-1], data[1:], b"\x3b" + data, data + b"\x08"):  # no messages: protobuf gets them as they are
        assert take_out(memoryview(askew)) == (askew, {})
    cut = large(3)
    cut.graph.initializer[0].dims[0] = 41
    refused(cut.SerializeToString(), "EK0526", "needs 5248 bytes and has 5120")


def test_large_initialisers_of_damaged_models_are_what_protobuf_reads() -> None:
    """Bytes around the elements changed: what is taken out is what protobuf has there, and nothing else changes."""
    random.seed(12)
    data = large(5).SerializeToString()
    places = [k for k in range(len(data)) if k < 200 or k > len(data) - 250]
    taken = 0
    for _ in range(300):
        mutant = bytearray(data)
        for place in random.sample(places, random.randint(1, 3)):
            mutant[place] = random.randrange(256)
        whole, part = onnx.ModelProto(), onnx.ModelProto()
        try:
            whole.ParseFromString(bytes(mutant))
        except Exception:
            continue
        rest, elements = take_out(memoryview(bytes(mutant)))
        part.ParseFromString(bytes(rest))
        for number, raw in elements.items():
            part.graph.initializer[number].raw_data = bytes(raw)
        taken += bool(elements)
        assert whole == part
    assert taken > 100


def buffer_of(array: Any) -> Any:
    """The object whose memory an array shows."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array


def test_what_is_computed_of_weights_follows_them() -> None:
    """Transposed, reshaped and cast weights are known where sizes are requested, and ops of the weights elsewhere."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Reshape", ["t", "flat"], ["f"]),
        helper.make_node("Mul", ["f", "x"], ["y"]),
        helper.make_node("Resize", ["image", "", "scales2"], ["z"]),
        helper.make_node("Concat", ["ones", "twos"], ["scales"], axis=0),
        helper.make_node("Identity", ["scales"], ["scales2"]),
    ]
    nodes = [*nodes[4:], *nodes[:4]]
    weights = [tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3)), tensor("flat", np.array([6], np.int64))]
    weights += [tensor("ones", np.ones(2, np.float32)), tensor("twos", np.full(2, 2, np.float32))]
    inputs = [value("x", [6]), value("image", [1, 1, 1, 2])]
    graph = from_onnx(model(nodes, inputs, [value("y", [6]), value("z", [1, 1, 2, 4])], weights))
    assert list(graph.weights) == ["w"]
    given = {"w": np.ones((2, 3), np.float32)}
    x, image = np.arange(6, dtype=np.float32), np.ones((1, 1, 1, 2), np.float32)
    plain, replaced = (
        InferenceSession(interpret=True).load(graph, weights_registry=each)(x, image) for each in (None, given)
    )
    np.testing.assert_array_equal(plain[0].to_numpy(), x * np.arange(6).reshape(2, 3).T.reshape(-1))
    np.testing.assert_array_equal(replaced[0].to_numpy(), x)
    assert plain[1].shape == (1, 1, 2, 4)


def test_a_model_within_a_graph_brings_its_weights() -> None:
    inner = from_onnx(large(4))
    with Graph("outer", input_types=[inner.inputs[0].type]) as outer:
        outer.output(*ops.call(inner, outer.inputs[0], prefix="onnx."))
    assert list(outer.weights) == ["onnx.w", "onnx.b"]
    x = np.ones((2, 40), np.float32)
    np.testing.assert_array_equal(run(outer, x)[0], run(inner, x)[0])


# *** external data ***


def external(folder: Path, location: str, **entries: Any) -> Path:
    made = linear()
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, content in {"location": location, **entries}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, str(content)
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"\0" * 64 + data.tobytes())
    for entries in ({"offset": 64}, {"offset": 64, "length": 24}):
        graph = from_onnx(external(tmp_path, "w.bin", **entries))
        x = np.ones((1, 2), np.float32)
        np.testing.assert_array_equal(run(graph, x)[0], x @ data.reshape(2, 3))
    (weight,) = graph.weights.values()
    assert weight is not None and isinstance(weight.base, np.memmap) and not weight.flags.owndata


def test_external_data_stays_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\0" * 24)
    os.symlink(secret, folder / "link.bin")
    os.symlink(tmp_path, folder / "up")
    for location in ("../secret.bin", str(secret), "inner/../../secret.bin", "..\\secret.bin", "C:\\secret.bin"):
        refused(external(folder, location), "EK0531", "not in the model's folder")
    for location in ("link.bin", "up/secret.bin"):
        refused(external(folder, location), "EK0531", "a link leads out")
    refused(external(folder, ""), "EK0531", "names no file")
    refused(external(folder, "a\0b"), "EK0531", "names no file")
    refused(external(folder, "none.bin"), "EK0531", "No such file")
    refused(external(folder, "inner"), "EK0531", "is not a file")
    (folder / "w.bin").write_bytes(b"\0" * 24)
    refused(external(folder, "w.bin", offset=1), "EK0531", "needs 24 bytes from 1 on, and w.bin has 24")
    refused(external(folder, "w.bin", length=1 << 60), "EK0531", "its entry says")
    refused(external(folder, "w.bin", offset=-8), "EK0531", "is not a number")
    refused(external(folder, "w.bin", offset="9" * 30), "EK0531", "is not a number")
    refused(external(folder, "w.bin").read_bytes(), "EK0531", "the path of the model is unknown")


def test_damaged_bytes_are_never_a_crash() -> None:
    """Single bytes of a model changed or cut off: a graph, or an error of Einkorn."""
    random.seed(11)
    data = linear().SerializeToString()
    for _ in range(300):
        mutant = bytearray(data)
        for _ in range(random.randint(1, 3)):
            mutant[random.randrange(len(mutant))] = random.randrange(256)
        try:
            from_onnx(bytes(mutant[: random.choice([len(mutant), random.randrange(1, len(mutant))])]))
        except EinkornError as error:
            assert error.code.startswith("EK0"), error


def test_dtypes_have_one_counterpart() -> None:
    from einkorn.graph.onnx.tensors import CODES, DTYPES

    assert len(CODES) == len(DTYPES)
    assert set(DType) - set(CODES) == {
        DType.float6_e2m3fn,
        DType.float6_e3m2fn,
        DType.complex64,
        DType.complex128,
    }


# *** what is known when the graph runs ***


def test_models_are_called_by_the_names_of_their_inputs() -> None:
    node = helper.make_node("Sub", ["left:0", "right"], ["y"])
    graph = from_onnx(model([node], [value("left:0", [2]), value("right", [2])], [value("y", [2])]))
    loaded = InferenceSession(interpret=True).load(graph)
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    np.testing.assert_array_equal(loaded(**{"right": one, "left:0": two})[0].to_numpy(), [1, 1])


def test_a_loop_whose_rounds_are_counted_when_it_runs() -> None:
    """x is doubled as often as `trips` says, and as long as it is below 100."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["v2"]),
            helper.make_node("ReduceMax", ["v2"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "limit"], ["go"]),
        ],
        "body",
        [value("i", [], INT64), value("c", [], onnx.TensorProto.BOOL), value("v", [2])],
        [value("go", [], onnx.TensorProto.BOOL), value("v2", [2])],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    inputs = [value("trips", [], INT64), value("x", [2])]
    made = model([node], inputs, [value("y", [2])], [tensor("limit", np.float32(100))])
    loaded = InferenceSession(interpret=True).load(from_onnx(made))
    x = np.array([1, 3], np.float32)
    for trips, factor in ((0, 1), (1, 2), (4, 16), (50, 64)):
        np.testing.assert_array_equal(loaded.execute(np.int64(trips), x)[0].to_numpy(), x * factor)


@pytest.mark.parametrize("seed", [None, 3.0])
def test_a_loop_draws_new_numbers_in_each_round(seed: float | None) -> None:
    """Also with a seed of the node's own, and where the rounds are known at import."""
    own = {} if seed is None else {"seed": seed}
    body = helper.make_graph(
        [
            helper.make_node("RandomUniform", [], ["u"], shape=[3], **own),
            helper.make_node("Add", ["v", "v"], ["v2"]),
            helper.make_node("Add", ["v2", "u"], ["v3"]),
            helper.make_node("Identity", ["c"], ["go"]),
        ],
        "body",
        [value("i", [], INT64), value("c", [], onnx.TensorProto.BOOL), value("v", [3])],
        [value("go", [], onnx.TensorProto.BOOL), value("v3", [3])],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    when_it_runs = model([node], [value("trips", [], INT64), value("x", [3])], [value("y", [3])])
    at_import = model([node], [value("x", [3])], [value("y", [3])], [tensor("trips", np.int64(3))])
    x, drawn = np.zeros(3, np.float32), np.zeros(3, np.float32)
    for stream in range(3):
        seeds = 0 if seed is None else int(np.float32(seed).view(np.int32))
        drawn = drawn * 2 + uniform_reference(3, np.float32, seeds, stream, 0.0, 1.0).astype(np.float32)
    for made, inputs in ((when_it_runs, (np.int64(3), x)), (at_import, (x,))):
        loaded = InferenceSession(interpret=True).load(from_onnx(made))
        np.testing.assert_allclose(loaded.execute(*inputs)[0].to_numpy(), drawn, rtol=1e-6)


def test_a_size_that_is_squared_many_times() -> None:
    """What is beyond the algebra of sizes is computed when the graph runs, and there it is too large."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"])]
    nodes += [helper.make_node("Mul", [f"s{k}", f"s{k}"], [f"s{k + 1}"]) for k in range(30)]
    made = model([*nodes, helper.make_node("Expand", ["x", "s30"], ["y"])], [value("x", ["n"])], [value("y", None)])
    loaded = InferenceSession(interpret=True).load(from_onnx(made))
    assert loaded.execute(np.ones(1, np.float32))[0].to_numpy().shape == (1,)


def test_a_branch_that_is_chosen_when_it_runs() -> None:
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [value("b", None)]) for op in ("Neg", "Relu")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = [value("c", [], onnx.TensorProto.BOOL), value("x", ["n"])]
    loaded = InferenceSession(interpret=True).load(from_onnx(model([node], inputs, [value("y", None)])))
    x = np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(loaded.execute(np.bool_(True), x)[0].to_numpy(), -x)
    np.testing.assert_array_equal(loaded.execute(np.bool_(False), x)[0].to_numpy(), [1, 0, 3])


def test_shapes_that_are_computed_when_the_graph_runs() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Slice", ["r", "start", "end"], ["s"]),
        helper.make_node("Expand", ["s", "wide"], ["y"]),
    ]
    given = [
        value("shape", [2], INT64),
        value("start", [1], INT64),
        value("end", [1], INT64),
        value("wide", [3], INT64),
    ]
    loaded = InferenceSession(interpret=True).load(
        from_onnx(model(nodes, [value("x", ["n"]), *given], [value("y", None)]))
    )
    x = np.arange(12, dtype=np.float32)
    for shape, start, end, wide in (
        ([3, -1], 1, 99, [2, 1, 4]),
        ([-1, 2], -4, -1, [3, 1, 2]),
        ([0, 1], 3, 3, [2, 1, 1]),
    ):
        numbers = [np.array(each) for each in (shape, [start], [end], wide)]
        expected = x.reshape([12 if size == 0 else size for size in shape])[start:end]
        expected = np.broadcast_to(expected, np.broadcast_shapes(expected.shape, wide))
        np.testing.assert_array_equal(loaded.execute(x, *numbers)[0].to_numpy(), expected)


def test_a_reshape_to_another_number_of_elements_is_refused() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    made = model([node], [value("x", ["n"]), value("shape", [2], INT64)], [value("y", None)])
    loaded = InferenceSession(interpret=True).load(from_onnx(made))
    with pytest.raises(EinkornError, match="a reshape keeps the number of elements"):
        loaded.execute(np.zeros(7, np.float32), np.array([2, 3]))


def test_transforms_and_parts_of_sizes_that_are_known_when_the_graph_runs() -> None:
    """Frames of a signal, their spectra, and what is there once, all of symbolic sizes."""
    nodes = [
        helper.make_node("STFT", ["x", "step", "w"], ["frames"]),
        helper.make_node("DFT", ["pairs", "", "axis"], ["back"], inverse=1),
        helper.make_node("Einsum", ["x", "x"], ["norm"], equation="bnk, bnk -> b"),
        helper.make_node("Unique", ["rows"], ["u", "first", "which", "count"], axis=1, sorted=0),
    ]
    inputs = [value("x", ["b", "n", 1]), value("pairs", ["b", "n", 2]), value("rows", [2, "m"], INT64)]
    weights = [tensor("step", np.int64(3)), tensor("w", np.hanning(8).astype(np.float32)), tensor("axis", np.int64(-2))]
    outputs = [value(name, None) for name in ("frames", "back", "norm", "u", "first", "which", "count")]
    graph = from_onnx(model(nodes, inputs, outputs, weights, opset=20))
    r = np.random.default_rng(0)
    x, pairs = r.normal(size=(2, 21, 1)).astype(np.float32), r.normal(size=(2, 21, 2)).astype(np.float32)
    rows = np.array([[3, 1, 3, 3, 1], [0, 5, 0, 2, 5]])
    frames, back, norm, *unique = run(graph, x, pairs, rows)
    cut = np.lib.stride_tricks.sliding_window_view(x[..., 0], 8, 1)[:, ::3] * np.hanning(8)
    for got, wanted in ((frames, np.fft.rfft(cut)), (back, np.fft.ifft(pairs[..., 0] + 1j * pairs[..., 1]))):
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], wanted, atol=1e-5)
    np.testing.assert_allclose(norm, (x * x).sum((1, 2)), rtol=1e-5)
    for part, same in zip(unique, ([[3, 1, 3], [0, 5, 2]], [0, 1, 3], [0, 1, 0, 2, 1], [2, 2, 1]), strict=True):
        np.testing.assert_array_equal(part, same)


def test_transforms_that_are_wrong_are_named() -> None:
    def made(node: Any, shape: Any, **weights: Any) -> Any:
        return model([node], [value("x", shape)], [value("y", None)], [tensor(*w) for w in weights.items()], opset=20)

    dft = helper.make_node("DFT", ["x", "", "axis"], ["y"], name="d")
    refused(made(dft, ["n", 3, 1], axis=np.int64(2)), "EK0528", "node 'd' (DFT): transforms along axis 2")
    refused(made(dft, ["n", 3, 4], axis=np.int64(0)), "EK0528", "last axis of size 1 or 2, and gets the shape")
    stft = helper.make_node("STFT", ["x", "step", "", "size"], ["y"])
    refused(made(stft, ["n", 9, 1], step=np.int64(0), size=np.int64(4)), "EK0528", "begin 0 elements apart")
    unique = helper.make_node("Unique", ["x"], ["y"], axis=0)
    refused(made(unique, [4, "n"]), "EK0528", "compares parts of n elements along an axis")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subnormal_numbers_among_what_products_read_are_0(dtype: Any) -> None:
    tiny = np.finfo(dtype).tiny
    weights = np.array([[1, tiny / 2, -tiny / 4], [0, tiny, -2]], dtype)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=tensor("c", weights)),
        helper.make_node("Constant", [], ["d"], value=tensor("d", weights)),
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["h"]),  # (2, 2)
        helper.make_node("MatMul", ["h", "c"], ["y"]),
        helper.make_node("Mul", ["x", "d"], ["z"]),
        helper.make_node("Mul", ["x", "v"], ["u"]),
        helper.make_node("MatMul", ["h", "v"], ["s"]),  # `v` is read by another op, too
    ]
    outputs = [value(name, [2, 3], code) for name in "yzus"]
    made = model(nodes, [value("x", [2, 3], code)], outputs, [tensor("w", weights), tensor("v", weights)])
    graph = from_onnx(made)
    kept = np.array([[1, 0, 0], [0, tiny, -2]], dtype)
    np.testing.assert_array_equal(graph.weights["w"], kept)
    np.testing.assert_array_equal(graph.weights["v"], weights)
    large = np.full((2, 3), 2.0**100, dtype)
    y, z, u, _ = run(graph, large)
    np.testing.assert_array_equal(z, large * weights)
    np.testing.assert_array_equal(u, large * weights)
    np.testing.assert_array_equal(y[:, 1], ((large @ kept.T) @ kept)[:, 1])


def test_subnormal_numbers_that_a_graph_inside_a_node_reads_stay() -> None:
    """An arm of an If reads a weight of the graph around it."""
    tiny = np.float32(1e-40)
    arms = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x", "w"], [name])], name, [], [value(name, [2, 2])])
        for name, op in (("then", "Mul"), ("else", "MatMul"))
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("If", ["flag"], ["y"], **arms)]
    inputs = [value("flag", [], onnx.TensorProto.BOOL), value("x", [2, 2])]
    made = model(nodes, inputs, [value("h", [2, 2]), value("y", [2, 2])], [tensor("w", np.full((2, 2), tiny))])
    x = np.full((2, 2), 1e30, np.float32)
    np.testing.assert_array_equal(run(from_onnx(made), np.array(True), x)[1], x * tiny)


def test_weights_without_subnormal_numbers_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(linear(np.full((2, 4096), np.inf, np.float32)).SerializeToString())
    assert not from_onnx(path).weights["w"].flags.owndata


@pytest.mark.parametrize("opset", [9, 15])
@pytest.mark.parametrize("bias", [False, True])
def test_a_batch_normalization_is_folded_into_its_convolution(opset: int, bias: bool) -> None:
    random = np.random.default_rng(opset)
    numbers = {name: random.standard_normal(5).astype(np.float32) for name in ("scale", "shift", "mean", "b")}
    numbers |= {"var": random.random(5).astype(np.float32), "w": random.standard_normal((5, 3, 3, 3), np.float32)}
    norm = helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["y"], epsilon=1e-3)
    conv = helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["h"], pads=[1, 1, 1, 1])
    weights = [tensor(name, array) for name, array in numbers.items()]
    inputs, outputs = [value("x", ["n", 3, "h", "w"])], [value("y", ["n", 5, "h", "w"])]
    graph = from_onnx(model([conv, norm], inputs, outputs, weights, opset))
    x = random.standard_normal((2, 3, 6, 7)).astype(np.float32)
    loaded = InferenceSession().load(graph)
    folded = {each.name: each.changed for each in loaded.passes}["fold_batch_norm"]
    assert bool(folded) != bias
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    plain = np.einsum("nchwij,rcij->nrhw", seen, numbers["w"])
    shape = (1, 5, 1, 1)
    plain = plain + (numbers["b"].reshape(shape) if bias else 0) - numbers["mean"].reshape(shape)
    factor = (numbers["scale"] / np.sqrt(numbers["var"] + 1e-3)).reshape(shape)
    expected = plain * factor + numbers["shift"].reshape(shape)
    np.testing.assert_allclose(loaded.execute(x)[0].to_numpy(), expected, rtol=1e-4, atol=1e-5)
