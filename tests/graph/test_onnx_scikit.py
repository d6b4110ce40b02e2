"""Estimators of scikit-learn, exported by skl2onnx, give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="make callers installs scikit-learn")
pytest.importorskip("skl2onnx", reason="make callers installs skl2onnx, which exports estimators")
pytest.importorskip("onnxruntime", reason="make callers installs onnxruntime, which these tests compare with")
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
from sklearn import (
    compose,
    datasets,
    ensemble,
    feature_extraction,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from support.onnx_runtime import by_runtime

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import InferenceSession, from_onnx

Array = np.ndarray[Any, Any]
NAMES = np.array(["red", "green", "blue"])
ESTIMATORS: dict[str, tuple[Callable[[], Any], str]] = {
    "logistic": (linear_model.LogisticRegression, "three"),
    "logistic, texts": (linear_model.LogisticRegression, "texts"),
    "ridge classifier": (linear_model.RidgeClassifier, "two"),
    "bayes": (naive_bayes.GaussianNB, "three"),
    "svc": (svm.SVC, "two"),
    "svc, probabilities, texts": (lambda: svm.SVC(probability=True), "texts"),
    "nusvc": (lambda: svm.NuSVC(kernel="poly", probability=True), "three"),
    "svr": (svm.SVR, "reals"),
    "one class": (svm.OneClassSVM, "none"),
    "forest, texts": (lambda: ensemble.RandomForestClassifier(9), "texts"),
    "forest": (lambda: ensemble.RandomForestClassifier(9), "two"),
    "trees of two targets": (lambda: ensemble.ExtraTreesRegressor(5), "pairs"),
    "one tree": (tree.DecisionTreeClassifier, "three"),
    "boosting": (lambda: ensemble.GradientBoostingClassifier(n_estimators=5), "two"),
    "boosting, three": (lambda: ensemble.GradientBoostingClassifier(n_estimators=5), "three"),
    "ada": (lambda: ensemble.AdaBoostRegressor(n_estimators=3), "reals"),
    "isolation": (lambda: ensemble.IsolationForest(n_estimators=3), "none"),
    "network, texts": (lambda: neural_network.MLPClassifier((7,), max_iter=20), "texts"),
    "neighbours": (lambda: neighbors.KNeighborsClassifier(3), "few"),
    "bins": (lambda: preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), "none"),
    "ranges": (preprocessing.MinMaxScaler, "none"),
    "powers": (preprocessing.PowerTransformer, "none"),
    "missing by neighbours": (impute.KNNImputer, "missing rows"),
    "pipeline": (
        lambda: pipeline.make_pipeline(
            impute.SimpleImputer(),
            preprocessing.StandardScaler(),
            preprocessing.PolynomialFeatures(2),
            linear_model.LogisticRegression(max_iter=300),
        ),
        "missing",
    ),
    "columns": (
        lambda: pipeline.make_pipeline(
            compose.make_column_transformer(
                (preprocessing.StandardScaler(), [0, 1]), (preprocessing.Normalizer(), [3, 4, 5])
            ),
            linear_model.LogisticRegression(),
        ),
        "two",
    ),
}


def samples(kind: str) -> tuple[Array, Array | None]:
    """Rows of features, and what an estimator predicts of them."""
    x, y = datasets.make_classification(200, 8, n_informative=6, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    x[::9, 2] = np.nan if kind.startswith("missing") else x[::9, 2]
    targets = {
        "two": y > 0,
        "texts": NAMES[y],
        "reals": x[:, 0] * 3 + y,
        "pairs": np.stack([x[:, 1] + y, x[:, 2] - y], 1),
        "none": None,
        "missing rows": None,
    }
    if kind == "two":
        targets["two"] = (y > 0).astype(np.int64)
    return (x[:40], y[:40]) if kind in ("few", "missing rows") else (x, targets.get(kind, y))


def plain(output: Any) -> Array:
    """An output of ONNX Runtime as an array: maps of labels as rows."""
    maps = isinstance(output, list) and isinstance(output[0], dict)
    return np.array([list(each.values()) for each in output], np.float32) if maps else np.asarray(output)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator(name: str) -> None:
    make, kind = ESTIMATORS[name]
    x, y = samples(kind)
    estimator = make()
    if hasattr(estimator, "random_state"):
        estimator.random_state = 0
    estimator.fit(x, y)
    model = to_onnx(estimator, x[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    graph = from_onnx(model)
    loaded = InferenceSession().load(graph)
    for rows in (x[:30], x[30:31]):
        wanted = by_runtime(model, {model.graph.input[0].name: rows})
        outputs = loaded.execute(rows)
        assert len(outputs) == len(wanted)
        for number, (output, right) in enumerate(zip(outputs, map(plain, wanted), strict=True)):
            got = output.to_numpy()
            if number in graph.output_texts:
                got = np.array(graph.output_texts[number])[got]
            assert got.shape == right.shape
            if right.dtype.kind == "f":
                assert got.dtype == right.dtype
                np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-5)
            else:
                np.testing.assert_array_equal(got, right)


def test_a_vectorizer_of_maps_is_left_out() -> None:
    """The hint of the error: the rest of the pipeline is converted."""
    maps = [{"a": float(k), "b": float(k % 3)} for k in range(9)]
    estimator = pipeline.make_pipeline(feature_extraction.DictVectorizer(sparse=False), linear_model.LinearRegression())
    estimator.fit(maps, np.arange(9.0))
    of_maps = [("X", DictionaryType(StringTensorType([1]), FloatTensorType([1])))]
    with pytest.raises(GraphError) as error:
        from_onnx(to_onnx(estimator, initial_types=of_maps))
    assert error.value.code == "EK0527" and "to_onnx(pipeline[1:], rows[:1])" in str(error.value.hint)
    rows = estimator[:1].transform(maps).astype("float32")
    model = InferenceSession().load(from_onnx(to_onnx(estimator[1:], rows[:1])))
    np.testing.assert_allclose(model.execute(rows)[0].to_numpy()[:, 0], estimator.predict(maps), rtol=1e-4, atol=1e-4)
