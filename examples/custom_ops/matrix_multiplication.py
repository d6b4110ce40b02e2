"""A product of matrices by two algorithms, chosen by a compile-time parameter."""

from __future__ import annotations

import time

import numpy as np
from _common import compare, run_both_ways

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops


def load_product(extension: str, algorithm: str) -> Model:
    graph = Graph(
        f"matrix_multiplication_{algorithm}",
        forward=lambda a, b: ops.custom(
            "matrix_multiplication", device=DeviceRef.CPU(), values=[a, b], parameters={"algorithm": algorithm}
        )[0],
        input_types=[
            TensorType(DType.float32, ["m", "k"], DeviceRef.CPU()),
            TensorType(DType.float32, ["k", "n"], DeviceRef.CPU()),
        ],
        custom_extensions=[extension],
    )
    return InferenceSession(devices=[CPU()]).load(graph)


def check(extension: str) -> str:
    random = np.random.default_rng(0)
    a = random.standard_normal((515, 384)).astype(np.float32)
    b = random.standard_normal((384, 450)).astype(np.float32)
    lines = []
    for algorithm in ("naive", "tiled"):
        model = load_product(extension, algorithm)
        start = time.perf_counter()
        result = model(a, b)[0].to_numpy()
        milliseconds = (time.perf_counter() - start) * 1e3
        lines.append(f"\n  {algorithm}: {compare(result, a @ b, tolerance=1e-3)}, {milliseconds:.1f} ms")
    return "".join(lines)


if __name__ == "__main__":
    run_both_ways("matrix_multiplication.py", check)
