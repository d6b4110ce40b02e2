"""A custom op in a graph: `add_one`, for any number of rows."""

from __future__ import annotations

import numpy as np
from _common import compare, run_both_ways

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def check(extension: str) -> str:
    graph = Graph(
        "addition",
        forward=lambda x: ops.custom("add_one", device=DeviceRef.CPU(), values=[x])[0],
        input_types=[TensorType(DType.float32, ["rows", 10], DeviceRef.CPU())],
        custom_extensions=[extension],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    # "rows" is a name: the same code serves every number of them.
    for rows in (5, 1000):
        x = np.random.default_rng(rows).standard_normal((rows, 10)).astype(np.float32)
        result = model(x)[0].to_numpy()
        verdict = compare(result, x + 1)
    return verdict


if __name__ == "__main__":
    run_both_ways("addition.py", check)
