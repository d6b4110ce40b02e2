"""Compile-time parameters: the same kernel twice in one graph, with two values."""

from __future__ import annotations

import numpy as np
from _common import compare, run_both_ways

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops


def add(x: TensorValue, value: float) -> TensorValue:
    return ops.custom("add_constant", device=DeviceRef.CPU(), values=[x], parameters={"value": value})[0]


def check(extension: str) -> str:
    graph = Graph(
        "parametric_addition",
        forward=lambda x: add(add(x, 2.5), -10),
        input_types=[TensorType(DType.float32, [64, 48], DeviceRef.CPU())],
        custom_extensions=[extension],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    x = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    result = model(x)[0].to_numpy()
    return compare(result, x + np.float32(2.5) + np.float32(-10))


if __name__ == "__main__":
    run_both_ways("parametric_addition.py", check)
