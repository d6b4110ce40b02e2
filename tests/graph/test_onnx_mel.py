"""MelWeightMatrix gives ONNX Runtime's matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession, from_onnx

onnxruntime = pytest.importorskip("onnxruntime")
NAMES = ["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"]


def mel_weights(*numbers: float, dtype: int = TensorProto.FLOAT) -> Any:
    node = helper.make_node("MelWeightMatrix", NAMES, ["y"], name="mel", output_datatype=dtype)
    arrays = [np.asarray(number, np.float32 if k > 2 else np.int64) for k, number in enumerate(numbers)]
    weights = [numpy_helper.from_array(array, name) for name, array in zip(NAMES, arrays, strict=True)]
    output = helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph([node], "m", [], [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize(
    "numbers", [(8, 16, 8192, 0.0, 4096.0), (20, 401, 16000, 20.0, 7600.0), (40, 64, 8000, 0.0, 4000.0)]
)
def test_matrices(numbers: tuple[float, ...]) -> None:
    for dtype in (TensorProto.FLOAT, TensorProto.DOUBLE):
        made = mel_weights(*numbers, dtype=dtype)
        wanted = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {})[0]
        got = InferenceSession(interpret=True).load(from_onnx(made))()[0].to_numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6, strict=True)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((8, 16, 0, 0.0, 1.0), "num_mel_bins is 8, dft_length 16 and sample_rate 0"),
        ((8, 16, 8192, 0.0, 1e6), "its edges are 0.0 and 1000000.0 Hz, outside of the 9 frequencies of the transform"),
    ],
)
def test_what_does_not_fit_is_refused(numbers: tuple[float, ...], text: str) -> None:
    with pytest.raises(EinkornError) as error:
        from_onnx(mel_weights(*numbers))
    assert error.value.message.startswith(f"node 'mel' (MelWeightMatrix): {text}")
