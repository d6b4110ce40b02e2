"""Models as ONNX Runtime's optimiser and quantiser write them, whole: what they give here is what they give there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="make callers installs onnxruntime, which these tests compare with")
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime import quantization
from support.onnx_runtime import by_graph, by_runtime

from einkorn.graph.onnx.rows import FAMILIES
from einkorn.graph.onnx.table import ROWS

Array = np.ndarray[Any, Any]
DOCS = Path(__file__).parents[2] / "docs" / "onnx.md"


class Net:
    """A model of nodes that are written one after the other."""

    def __init__(self, **inputs: Any) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs = inputs
        self.random = np.random.default_rng(0)

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node's output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.3, value: Any = None) -> str:
        """The name of an initialiser: random numbers, or those given."""
        name = f"w{len(self.weights)}"
        array = (self.random.standard_normal(shape) * scale).astype(np.float32) if value is None else np.asarray(value)
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def model(self, *outputs: str) -> Any:
        """The model."""
        kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
        given = [helper.make_tensor_value_info(n, kinds[x.dtype], x.shape) for n, x in self.inputs.items()]
        actual = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "g", given, actual, initializer=self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def images() -> tuple[Any, dict[str, Array]]:
    """Convolutions, pools, a sum, a join, and what comes behind them."""
    given = {"x": np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)}
    net = Net(**given)
    padded = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    x = net("Conv", "x", net.weight(16, 3, 3, 3), net.weight(16), strides=[2, 2], **padded)
    x = net("Relu", x)
    y = net("LeakyRelu", net("Conv", x, net.weight(32, 16, 3, 3, scale=0.1), net.weight(32), **padded), alpha=0.1)
    z = net("Conv", y, net.weight(32, 1, 3, 3), net.weight(32), group=32, **padded)
    z = net("Relu", net("Add", net("Conv", z, net.weight(32, 32, 1, 1, scale=0.2), net.weight(32)), y))
    z = net("MaxPool", z, kernel_shape=[2, 2], strides=[2, 2])
    left = net("Sigmoid", net("Conv", z, net.weight(20, 32, 3, 3, scale=0.1), net.weight(20), **padded))
    joined = net("Concat", left, net("AveragePool", z, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    pooled = net("Flatten", net("GlobalAveragePool", joined))
    last = net("Softmax", net("Gemm", pooled, net.weight(10, 52), net.weight(10), transB=1), axis=-1)
    return net.model(last, joined), given


def encoder() -> tuple[Any, dict[str, Array]]:
    """A layer of a transformer, as PyTorch exports it."""
    r = np.random.default_rng(2)
    given = {"ids": r.integers(0, 20, (2, 5)), "mask": np.array([[1] * 5, [1, 1, 1, 0, 0]])}
    net = Net(**given)

    def dense(x: str, n: int, m: int) -> str:
        return net("Add", net("MatMul", x, net.weight(n, m)), net.weight(m))

    def heads(x: str, order: list[int]) -> str:
        return net("Transpose", net("Reshape", x, net.weight(value=[0, 0, 2, 8])), perm=order)

    def normed(x: str) -> str:
        return net("LayerNormalization", x, net.weight(16), net.weight(16), axis=-1, epsilon=1e-5)

    hidden = net("Add", net("Gather", net.weight(20, 16), "ids"), net.weight(5, 16))
    hidden = normed(hidden)
    wide = net("Cast", net("Unsqueeze", "mask", net.weight(value=[1, 2])), to=TensorProto.FLOAT)
    hiding = net("Mul", net("Sub", net.weight(value=np.float32(1)), wide), net.weight(value=np.float32(-10000)))
    q, k, v = (heads(dense(hidden, 16, 16), order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net("Div", net("MatMul", q, k), net.weight(value=np.float32(8**0.5)))
    shares = net("Softmax", net("Add", scores, hiding), axis=-1)
    mixed = net("Transpose", net("MatMul", shares, v), perm=[0, 2, 1, 3])
    hidden = normed(net("Add", dense(net("Reshape", mixed, net.weight(value=[0, 0, 16])), 16, 16), hidden))
    inner = dense(hidden, 16, 32)
    erf = net("Erf", net("Div", inner, net.weight(value=np.float32(2**0.5))))
    inner = net(
        "Mul", net("Mul", inner, net("Add", erf, net.weight(value=np.float32(1)))), net.weight(value=np.float32(0.5))
    )
    return net.model(normed(net("Add", dense(inner, 32, 16), hidden))), given


def recurrent() -> tuple[Any, dict[str, Array]]:
    """An LSTM in both directions, and a product."""
    given = {"x": np.random.default_rng(3).standard_normal((4, 2, 6)).astype(np.float32)}
    net = Net(**given)
    y = net(
        "LSTM",
        "x",
        net.weight(2, 32, 6),
        net.weight(2, 32, 8),
        net.weight(2, 64),
        direction="bidirectional",
        hidden_size=8,
    )
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), net.weight(value=[0, 0, 16]))
    return net.model(net("Tanh", net("Add", net("MatMul", y, net.weight(16, 5)), net.weight(5)))), given


NETS = {"images": images, "encoder": encoder, "recurrent": recurrent}
LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def optimised(model: Any, level: str, folder: Path) -> Any:
    """A model as ONNX Runtime saves it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimised.onnx")


def quantised(model: Any, how: str, given: dict[str, Array], folder: Path) -> Any:
    """A model as ONNX Runtime's quantiser writes it: dynamically, or with the formats `QDQ` and `QOperator`."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(model, before)
    if how == "dynamic":
        quantization.quantize_dynamic(before, after, weight_type=quantization.QuantType.QInt8)
        return onnx.load(after)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        left = 1

        def get_next(self) -> Any:
            self.left -= 1
            return given if self.left >= 0 else None

    kind = quantization.QuantFormat[how]
    quantization.quantize_static(before, after, Reader(), quant_format=kind, per_channel=False)
    return onnx.load(after)


def own_types(model: Any) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain.startswith("com.microsoft")}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("net", NETS)
def test_optimised_models(net: str, level: str, tmp_path: Path) -> None:
    model, given = NETS[net]()
    saved = optimised(model, level, tmp_path)
    for got, wanted in zip(by_graph(saved, given), by_runtime(saved, given), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    if level == "ORT_ENABLE_ALL":
        expected = {"images": {"Conv", "ReorderOutput"}, "encoder": {"SkipLayerNormalization", "FusedMatMul"}}
        assert expected.get(net, set()) <= own_types(saved)


@pytest.mark.parametrize("how", ["dynamic", "QDQ", "QOperator"])
@pytest.mark.parametrize("net", NETS)
def test_quantised_models(net: str, how: str, tmp_path: Path) -> None:
    """As written, and as the optimiser then makes them; a unit of a quantised result may become several behind it."""
    model, given = NETS[net]()
    first = quantised(model, how, given, tmp_path)
    for saved in (first, optimised(first, "ORT_ENABLE_ALL", tmp_path)):
        for got, wanted in zip(by_graph(saved, given), by_runtime(saved, given), strict=True):
            apart = np.abs(got - wanted)
            assert np.median(apart) <= 0.002 * np.abs(wanted).max() and apart.max() <= 0.05 * np.abs(wanted).max()


def test_the_page_lists_the_op_types() -> None:
    text = DOCS.read_text()
    own = [name for domain, name in ROWS if domain == "com.microsoft"]
    assert FAMILIES and len(own) > 30 and [name for name in own if f"`{name}`" not in text] == []
