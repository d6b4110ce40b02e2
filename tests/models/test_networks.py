"""Whole networks that the `onnx` package ships without their weights agree with ONNX Runtime.

Their weights are random, and scaled so that numbers stay as large as they are from layer to layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.graph import InferenceSession, from_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")
SPREADS = 4  # the position of a variance among the inputs of a batch normalization


def with_weights(model: Any) -> Any:
    """The model with random numbers in the place of each `ConstantOfShape`; a last softmax shows its input."""
    random = np.random.default_rng(0)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    norms = [node for node in nodes if node.op_type == "BatchNormalization"]
    positive = {node.input[k] for node in norms for k in (1, SPREADS)}
    del model.graph.node[:]
    for node in nodes:
        if node.op_type != "ConstantOfShape":
            model.graph.node.append(node)
            continue
        shape = shapes[node.input[0]]
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        values = np.float32(scale) * random.standard_normal(shape, np.float32)
        values = np.abs(values) + np.float32(0.7) if node.output[0] in positive else values
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
    model.ir_version = 8  # before the fourth, initialisers had to be inputs
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_network_agrees_with_onnx_runtime(name: str) -> None:
    model = with_weights(onnx.load(FOLDER / f"light_{name}.onnx"))
    data = model.SerializeToString()
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224), np.float32)
    first = theirs.get_inputs()[0].name
    expected = theirs.run(None, {first: x})
    for one, other in zip(InferenceSession().load(from_onnx(data))(x), expected, strict=True):
        assert np.std(other) > 0 and np.abs(one.to_numpy() - other).max() <= 1e-5 * np.abs(other).max()
