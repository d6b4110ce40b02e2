"""MaxRoiPool gives ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession, from_onnx

onnxruntime = pytest.importorskip("onnxruntime")


def max_roi_pool(pooled: list[int], scale: float) -> Any:
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], name="pool", pooled_shape=pooled, spatial_scale=scale)
    shapes: dict[str, Any] = {"x": ["n", 2, "h", "w"], "rois": ["r", 5]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "m", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(("pooled", "scale"), [([3, 2], 1.0), ([2, 5], 0.5), ([1, 1], 0.3)])
def test_regions_of_any_size(pooled: list[int], scale: float) -> None:
    made = max_roi_pool(pooled, scale)
    theirs = onnxruntime.InferenceSession(made.SerializeToString())
    ours = InferenceSession().load(from_onnx(made))
    random = np.random.default_rng(3)
    for n, h, w, r in [(2, 7, 9, 12), (1, 1, 4, 3)]:
        x = random.standard_normal((n, 2, h, w)).astype(np.float32)
        corners = random.uniform(0, 12, (r, 2, 2))  # boxes with a width below 0, and such that lie outside
        rois = np.concatenate([random.integers(0, n, (r, 1)), corners.reshape(r, 4)], 1).astype(np.float32)
        wanted = theirs.run(None, {"x": x, "rois": rois})[0]
        np.testing.assert_array_equal(ours(x, rois)[0].to_numpy(), wanted)


def test_a_box_of_an_image_that_there_is_not() -> None:
    model = InferenceSession(interpret=True).load(from_onnx(max_roi_pool([1, 1], 1.0)))
    with pytest.raises(EinkornError, match="box 0 is of image 2, and there are 1"):
        model(np.zeros((1, 2, 3, 3), np.float32), np.array([[2, 0, 0, 1, 1]], np.float32))
