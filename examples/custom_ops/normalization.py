"""Row kernels with monoids: layer normalisation and softmax, each a pass for its statistics and one for its result."""

from __future__ import annotations

import numpy as np
from _common import compare, run_both_ways

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def check(extension: str) -> str:
    rows = TensorType(DType.float32, ["tokens", 300], DeviceRef.CPU())
    row = TensorType(DType.float32, [300], DeviceRef.CPU())

    def forward(x, weight, bias):
        device = DeviceRef.CPU()
        normal = ops.custom("layer_norm", device=device, values=[x, weight, bias])[0]
        return ops.custom("row_softmax", device=device, values=[normal])[0]

    graph = Graph("normalization", forward=forward, input_types=[rows, row, row], custom_extensions=[extension])
    model = InferenceSession(devices=[CPU()]).load(graph)

    rng = np.random.default_rng(0)
    x = (rng.standard_normal((1000, 300)) + 30).astype(np.float32)
    weight, bias = rng.standard_normal((2, 300)).astype(np.float32)
    result = model(x, weight, bias)[0].to_numpy()

    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * weight + bias
    expected = np.exp(normal - normal.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    return compare(result, expected.astype(np.float32), tolerance=3e-6)


if __name__ == "__main__":
    run_both_ways("normalization.py", check)
