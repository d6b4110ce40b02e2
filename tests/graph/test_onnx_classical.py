"""Op types of ai.onnx.ml give what ONNX Runtime gives: features, linear models, support vectors, trees, labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="make callers installs onnxruntime, which these tests compare with")
import onnx
from onnx import TensorProto, helper
from support.onnx_runtime import ML, by_graph, by_runtime, compare, model_of

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import InferenceSession, from_onnx

Array = np.ndarray[Any, Any]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]
NODE_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def drawn(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def both(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], **more: Any) -> None:
    """Compares a node of ai.onnx.ml with ONNX Runtime, for a known and for a symbolic number of rows."""
    compare(op_type, inputs, attributes, domain=ML, **more)
    rows = {name: ["n", *array.shape[1:]] for name, array in inputs.items() if name != "y"}
    compare(op_type, inputs, attributes, domain=ML, symbolic=rows, interpret=False, **more)


# *** features ***


def test_features() -> None:
    x = drawn(0, 4, 3)
    both("ArrayFeatureExtractor", {"x": x, "y": np.array([[2, 0]], np.int64)}, {})
    both("Binarizer", {"x": x}, {"threshold": 0.25})
    both("Scaler", {"x": x}, {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 1.0, 0.5]})
    both("Scaler", {"x": (x * 9).astype(np.int64)}, {"offset": [0.5], "scale": [2.0]})
    missing = x.copy()
    missing[1:3, 1] = np.nan
    both("Imputer", {"x": missing}, {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")})
    whole = np.array([[1, -1], [-1, 5]], np.int64)
    both("Imputer", {"x": whole}, {"imputed_value_int64s": [3], "replaced_value_int64": -1})
    both("FeatureVectorizer", {"a": x, "b": drawn(1, 4, 2)}, {"inputdimensions": [3, 2]})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalised_rows(norm: str) -> None:
    x = drawn(0, 5, 4)
    x[2] = 0
    both("Normalizer", {"x": np.abs(x) if norm == "MAX" else x}, {"norm": norm})


def test_categories_of_numbers() -> None:
    x = np.array([[3, 1], [7, 3], [0, 9]], np.int64)
    both("OneHotEncoder", {"x": x}, {"cats_int64s": [1, 3, 9, 7], "zeros": 1})
    both("LabelEncoder", {"x": x}, {"keys_int64s": [9, 3, 1], "values_floats": [0.5, 1.5, 2.5], "default_float": -3.0})
    both("LabelEncoder", {"x": x}, {"keys_int64s": [9, 3], "values_int64s": [5, 6]})
    reals = np.array([[0.5, 0.25], [2.0, -1.0]], np.float32)
    both("LabelEncoder", {"x": reals}, {"keys_floats": [2.0, 7.0, 0.5], "values_int64s": [1, 2, 3]})


def test_nan_is_a_key_and_the_last_of_equal_keys_counts() -> None:
    """As ONNX defines it; in ONNX Runtime NaN is no key, and the first one counts."""
    x = np.array([[0.5, np.nan], [2.0, -1.0]], np.float32)
    given = {"keys_floats": [2.0, float("nan"), 0.5, 2.0], "values_int64s": [1, 2, 3, 4]}
    (result,) = by_graph(model_of("LabelEncoder", {"x": x}, given, domain=ML), {"x": x})
    assert result.tolist() == [[3, 2], [4, -1]]


def test_a_number_that_is_no_category_ends_the_call() -> None:
    x = np.array([[3], [4]], np.int64)
    model = InferenceSession().load(
        from_onnx(model_of("OneHotEncoder", {"x": x}, {"cats_int64s": [3, 5], "zeros": 0}, domain=ML))
    )
    with pytest.raises(Exception, match="index 2 is out of range"):
        model.execute(x)
    assert model.execute(x[:1] * 0 + np.array([[3], [5]]))[0].to_numpy().reshape(2, 2).tolist() == [[1, 0], [0, 1]]


# *** linear models and support vectors ***


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(transform: str) -> None:
    x = drawn(0, 5, 3)
    three = {"coefficients": drawn(1, 9).tolist(), "intercepts": [0.1, 0.2, -0.3], "post_transform": transform}
    both("LinearClassifier", {"x": x}, {**three, "classlabels_ints": [4, 2, 9]}, outputs=2)
    both("LinearRegressor", {"x": x}, {**three, "targets": 3})
    both("LinearRegressor", {"x": x}, {"coefficients": [1.0, 2.0, 3.0]})
    one = {"coefficients": [1.0, -2.0, 3.0], "intercepts": [0.25], "classlabels_ints": [4, 2]}
    both("LinearClassifier", {"x": x.astype(np.float64)}, {**one, "post_transform": transform}, outputs=2)


def test_a_score_of_one_target_is_transformed_as_well() -> None:
    """ONNX Runtime leaves it as it is; LOGISTIC is what XGBoost's own predictions have."""
    x = drawn(0, 5, 2)
    given = {"coefficients": [1.0, 2.0], "post_transform": "LOGISTIC"}
    (result,) = by_graph(model_of("LinearRegressor", {"x": x}, given, domain=ML), {"x": x})
    np.testing.assert_allclose(result[:, 0], 1 / (1 + np.exp(-(x[:, 0] + 2 * x[:, 1]))), rtol=1e-5)


def test_quantiles_of_the_normal_distribution() -> None:
    shares = np.array([[0.0], [1e-6], [0.2], [0.5], [0.9], [1.0], [-0.5]], np.float32)
    given = {"coefficients": [1.0], "post_transform": "PROBIT"}
    (result,) = by_graph(model_of("LinearRegressor", {"x": shares}, given, domain=ML), {"x": shares})
    wanted = [-np.inf, -4.753424, -0.8416212, 0.0, 1.2815516, np.inf, np.nan]
    np.testing.assert_allclose(result[:, 0], wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3], [1, 2, 2, 1]], ids=str)
def test_support_vectors(kernel: str, per_class: list[int]) -> None:
    classes, supports, features = len(per_class), sum(per_class), 3
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "coefficients": drawn(1, (classes - 1) * supports).tolist(),
        "support_vectors": drawn(2, supports * features).tolist(),
        "vectors_per_class": per_class,
        "rho": drawn(3, pairs).tolist(),
        "classlabels_ints": list(range(3, 3 + classes)),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 2.0],
    }
    x = drawn(4, 6, features)
    both("SVMClassifier", {"x": x}, attributes, outputs=2)
    likely = {"prob_a": (-np.abs(drawn(5, pairs))).tolist(), "prob_b": (drawn(6, pairs) / 9).tolist()}
    both("SVMClassifier", {"x": x}, {**attributes, **likely}, outputs=2)
    one = {key: attributes[key] for key in ("support_vectors", "kernel_type", "kernel_params")}
    one |= {"coefficients": drawn(1, supports).tolist(), "n_supports": supports, "rho": [0.125]}
    both("SVMRegressor", {"x": x}, one)
    both("SVMRegressor", {"x": x}, {**one, "one_class": 1})


# *** trees ***


class Grower:
    """Draws trees: a table of nodes in the attributes of TreeEnsembleRegressor and TreeEnsembleClassifier."""

    def __init__(
        self, seed: int, kind: str, outputs: int, modes: list[str], missing: bool = False, whole: bool = False
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.kind, self.outputs, self.modes, self.missing, self.whole = kind, outputs, modes, missing, whole
        self.nodes: list[tuple[Any, ...]] = []
        self.leaves: list[tuple[int, int, int, float]] = []
        for tree in range(4):
            self.numbers = iter(range(10**6))
            self.grow(tree, 4)

    def grow(self, tree: int, depth: int) -> int:
        number = next(self.numbers)
        at = len(self.nodes)
        self.nodes.append(())
        if depth == 0 or self.random.random() < 0.2:
            self.nodes[at] = (tree, number, 0, 0.0, "LEAF", 0, 0, 0)
            for output in self.random.choice(
                self.outputs, self.outputs if self.whole else self.random.integers(1, self.outputs + 1), False
            ):
                self.leaves.append((tree, number, int(output), float(self.random.standard_normal())))
            return number
        mode = str(self.random.choice(self.modes))
        split = float(self.random.integers(-2, 3)) / 2
        feature, tracks = int(self.random.integers(3)), int(self.missing and self.random.integers(2))
        yes, no = self.grow(tree, depth - 1), self.grow(tree, depth - 1)
        self.nodes[at] = (tree, number, feature, split, mode, yes, no, tracks)
        return number

    def attributes(self) -> dict[str, Any]:
        names = ["treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"]
        names.append("missing_value_tracks_true")
        result = {
            f"nodes_{name}": list(column) for name, column in zip(names, zip(*self.nodes, strict=True), strict=True)
        }
        columns = zip(("treeids", "nodeids", "ids", "weights"), zip(*self.leaves, strict=True), strict=True)
        return result | {f"{self.kind}_{name}": list(column) for name, column in columns}


def rows_on_splits(seed: int) -> Array:
    """Rows of which many elements equal a split, and some are missing."""
    x = np.random.default_rng(seed).integers(-3, 4, (40, 3)).astype(np.float32) / 2
    x[::7, 1] = np.nan
    return x


@pytest.mark.parametrize(
    "modes", [*([mode] for mode in NODE_MODES), NODE_MODES], ids=lambda modes: "+".join(modes)[:12]
)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("missing", [False, True])
def test_regression_trees(modes: list[str], outputs: int, missing: bool) -> None:
    aggregates, with_base = ["SUM", "AVERAGE", "MIN", "MAX"], [False, True]
    for aggregate, base in itertools.product(aggregates, with_base) if len(modes) > 1 else [("SUM", False)]:
        grower = Grower(len(modes), "target", outputs, modes, missing, whole=base)  # else ONNX Runtime leaves bases out
        given = {**grower.attributes(), "n_targets": outputs, "aggregate_function": aggregate}
        given |= {"base_values": [0.5] * outputs} if base else {}
        compare("TreeEnsembleRegressor", {"x": rows_on_splits(1)}, given, domain=ML, interpret=aggregate == "MIN")


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_classification_trees(transform: str, classes: int) -> None:
    attributes = Grower(3, "class", classes, ["BRANCH_LEQ"]).attributes()
    if classes == 2:  # boosted trees of two classes have weights for one of them
        attributes["class_ids"] = [0] * len(attributes["class_ids"])
    given = {"classlabels_int64s": [7, 5, 6][:classes], "post_transform": transform}
    both("TreeEnsembleClassifier", {"x": rows_on_splits(1)}, attributes | given, outputs=2)
    positive = {"class_weights": [abs(weight) / 4 for weight in attributes["class_weights"]]}
    base = {"base_values": [0.25] if classes == 2 else [0.5, 0.25, -0.5]}
    both("TreeEnsembleClassifier", {"x": rows_on_splits(1)}, attributes | given | positive | base, outputs=2)


def test_trees_of_64_bits() -> None:
    attributes = Grower(1, "target", 1, ["BRANCH_LT"]).attributes() | {"n_targets": 1}
    near = 1 + 1e-12
    for name in ("nodes_values", "target_weights"):
        values = np.asarray(attributes.pop(name), np.float64)
        values[values == 1.0] = near
        attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(values)
    x = rows_on_splits(1).astype(np.float64)
    x[::3, 0] = near
    both("TreeEnsembleRegressor", {"x": x}, attributes, opset=3)


def ensemble(aggregate: int = 1, transform: int = 0, dtype: Any = np.float32) -> dict[str, Any]:
    """Two trees of TreeEnsemble: a test for members of {1, 2.5}, and a comparison below another."""
    return {
        "n_targets": 2,
        "aggregate_function": aggregate,
        "post_transform": transform,
        "tree_roots": [0, 1],
        "nodes_modes": onnx.numpy_helper.from_array(np.array([6, 0, 3], np.uint8)),
        "nodes_featureids": [0, 1, 0],
        "nodes_splits": onnx.numpy_helper.from_array(np.array([0, 0.5, -0.5], dtype)),
        "nodes_trueleafs": [1, 0, 1],
        "nodes_truenodeids": [0, 2, 2],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 3, 4],
        "leaf_targetids": [0, 1, 1, 0, 0],
        "leaf_weights": onnx.numpy_helper.from_array(np.array([1, 2, 3.5, -1, 0.5], dtype)),
        "membership_values": onnx.numpy_helper.from_array(np.array([1, 2.5, np.nan], dtype)),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ensembles_with_sets(dtype: Any) -> None:
    x = np.array([[1, 0], [2.5, 1], [2, 0], [-1, 0], [0, 3]], dtype)
    for aggregate in range(4):
        both("TreeEnsemble", {"x": x}, ensemble(aggregate, 0, dtype), opset=5)


def test_trees_that_cannot_be_are_refused() -> None:
    x = drawn(0, 2, 3)
    good = Grower(1, "target", 1, ["BRANCH_LT"]).attributes() | {"n_targets": 1}

    def refused(message: str, **changed: Any) -> None:
        with pytest.raises(GraphError, match=message):
            from_onnx(model_of("TreeEnsembleRegressor", {"x": x}, {**good, **changed}, domain=ML))

    refused("different lengths", nodes_values=[1.0])
    refused("two nodes of the number", nodes_nodeids=[1] * len(good["nodes_nodeids"]))
    refused("leads to node 99", nodes_truenodeids=[99] * len(good["nodes_nodeids"]))
    refused("'BRANCH_NONE'", nodes_modes=["BRANCH_NONE"] * len(good["nodes_nodeids"]))
    refused("an output that is not among the 1", target_ids=[4] * len(good["target_ids"]))
    refused("compare feature 8", nodes_featureids=[8] * len(good["nodes_nodeids"]))
    refused("'MEDIAN'", aggregate_function="MEDIAN")
    circle = {
        "nodes_truenodeids": [1, 1, 0, 0],
        "nodes_falsenodeids": [2, 3, 0, 0],
        "nodes_modes": ["BRANCH_LT", "BRANCH_LT", "LEAF", "LEAF"],
    }
    plain: dict[str, Any] = {"nodes_treeids": [0] * 4, "nodes_nodeids": [0, 1, 2, 3], "nodes_featureids": [0] * 4}
    plain |= {"nodes_values": [0.5] * 4, "nodes_missing_value_tracks_true": [0] * 4}
    refused(
        "a circle of nodes",
        **circle,
        **plain,
        target_treeids=[0],
        target_nodeids=[2],
        target_ids=[0],
        target_weights=[1.0],
    )


def test_a_row_with_too_few_features_is_refused_by_the_call() -> None:
    attributes = Grower(1, "target", 1, ["BRANCH_LT"]).attributes() | {"n_targets": 1}
    x = drawn(0, 2, 3)
    model = InferenceSession().load(
        from_onnx(model_of("TreeEnsembleRegressor", {"x": x}, attributes, domain=ML, symbolic={"x": ["n", "f"]}))
    )
    assert model.execute(x)[0].shape == (2, 1)
    with pytest.raises(Exception, match="compare feature 2, and a row has"):
        model.execute(x[:, :2])


# *** labels that are texts ***


def test_labels_that_are_texts() -> None:
    x = drawn(0, 6, 2)
    names = ["red", "green", "blue"]
    given = {"coefficients": drawn(1, 6).tolist(), "intercepts": [0.0, 0.1, 0.2], "classlabels_strings": names}
    model = model_of("LinearClassifier", {"x": x}, given, outputs=2, domain=ML)
    graph = from_onnx(model)
    places, scores = (each.to_numpy() for each in InferenceSession().load(graph).execute(x))
    labels, wanted = by_runtime(model, {"x": x})
    assert graph.output_texts == {0: ("red", "green", "blue")}
    assert [names[place] for place in places] == list(labels)
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


def texts_model(nodes: list[Any], inputs: list[Any], texts: dict[str, Any], outputs: list[str]) -> Any:
    """A model with initialisers of texts."""
    fixed = [helper.make_tensor(name, TensorProto.STRING, [len(each)], each) for name, each in texts.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, results, initializer=fixed)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_texts_are_chosen_moved_and_looked_up() -> None:
    """What scikit-learn's classifiers do: a label by the place of the largest score, reshaped, and encoded again."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=1),
        helper.make_node("ArrayFeatureExtractor", ["names", "place"], ["chosen"], domain=ML),
        helper.make_node("Reshape", ["chosen", "shape"], ["row"]),
        helper.make_node("Identity", ["row"], ["label"]),
        helper.make_node(
            "LabelEncoder", ["row"], ["number"], domain=ML, keys_strings=["b", "c"], values_int64s=[20, 30]
        ),
        helper.make_node(
            "LabelEncoder", ["number"], ["again"], domain=ML, keys_int64s=[20, 30], values_strings=["B", "C"]
        ),
        helper.make_node("OneHotEncoder", ["row"], ["hot"], domain=ML, cats_strings=["c", "a"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    model = texts_model(nodes, inputs, {"names": ["a", "b", "c"]}, ["label", "number", "again", "hot"])
    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [1], [-1]))
    x = drawn(1, 9, 3)
    graph = from_onnx(model)
    label, number, again, hot = (each.to_numpy() for each in InferenceSession().load(graph).execute(x))
    wanted = by_runtime(model, {"x": x})
    assert [graph.output_texts[0][place] for place in label] == list(wanted[0])
    assert number.tolist() == wanted[1].tolist()
    assert [graph.output_texts[2][place] for place in again] == list(wanted[2])
    np.testing.assert_array_equal(hot, wanted[3])


def test_what_does_not_move_texts_refuses_them() -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    nodes = [helper.make_node("Equal", ["names", "names"], ["y"])]
    with pytest.raises(GraphError, match=r"node making 'y' \(Equal\): does not take texts"):
        from_onnx(texts_model(nodes, inputs, {"names": ["a"]}, ["y"]))


def test_maps_of_labels_are_columns() -> None:
    x = np.abs(drawn(0, 4, 2))
    model = model_of("ZipMap", {"x": x}, {"classlabels_int64s": [3, 8]}, domain=ML)
    assert by_runtime(model, {"x": x})[0][1] == {3: x[1, 0], 8: x[1, 1]}
    np.testing.assert_array_equal(by_graph(model, {"x": x})[0], x)


def test_an_ensemble_may_list_no_members() -> None:
    given = ensemble()
    given["nodes_modes"] = onnx.numpy_helper.from_array(np.array([0, 0, 3], np.uint8))
    given["membership_values"] = onnx.numpy_helper.from_array(np.zeros(0, np.float32))
    both("TreeEnsemble", {"x": np.array([[1, 0], [-1, 3]], np.float32)}, given, opset=5)


def test_attributes_that_fit_nothing_are_refused() -> None:
    def refused(message: str, op_type: str, x: Array, attributes: dict[str, Any]) -> None:
        with pytest.raises(GraphError, match=message):
            from_onnx(model_of(op_type, {"x": x}, attributes, outputs=2 if "Classifier" in op_type else 1, domain=ML))

    two = {"coefficients": [1.0, 2.0], "intercepts": [0.5], "classlabels_ints": [4, 2], "post_transform": "SIGMOID"}
    refused("'SIGMOID', and NONE", "LinearClassifier", drawn(0, 3, 2), two)
    three = {"coefficients": [1.0] * 6, "intercepts": [0.5] * 3, "classlabels_ints": [4, 2, 1]}
    refused("'SIGMOID', and NONE", "LinearClassifier", drawn(0, 3, 2), {**three, "post_transform": "SIGMOID"})
    keys = {"keys_floats": [0.5, 1.0], "values_int64s": [1, 2]}
    refused("elements of int64, and its keys are float32", "LabelEncoder", np.array([0, 1]), keys)


@pytest.mark.parametrize("sizes", [[3], [-1], [2**62]], ids=str)
def test_texts_that_are_not_as_many_as_their_sizes_say_are_refused(sizes: list[int]) -> None:
    model = texts_model(
        [helper.make_node("Gather", ["names", "x"], ["y"])],
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])],
        {"names": ["a"]},
        ["y"],
    )
    model.graph.initializer[0].dims[:] = sizes
    with pytest.raises(GraphError, match="'names' has the sizes"):
        from_onnx(model)
