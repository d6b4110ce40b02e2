"""One op with a path for CPUs and one for GPUs: the first is run, the second is compiled for NVIDIA and AMD."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from _common import KERNELS, compare, run_both_ways

from einkorn.compiler.build import build_package
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def check(extension: str) -> str:
    vector = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    graph = Graph(
        "vector_addition",
        forward=lambda a, b: ops.custom("vector_addition", device=DeviceRef.CPU(), values=[a, b])[0],
        input_types=[vector, vector],
        custom_extensions=[extension],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    a, b = np.random.default_rng(0).standard_normal((2, 100_003)).astype(np.float32)
    return compare(model(a, b)[0].to_numpy(), a + b)


def compile_for_gpus() -> None:
    with tempfile.TemporaryDirectory() as folder:
        package = build_package(
            source=str(KERNELS / "vector_addition.py"),
            output=str(Path(folder, "vector_addition.pkg")),
            targets=["sm_80", "sm_90a", "gfx942", "gfx1100"],
        )
        for variant in package.variants:
            print(f"  {variant.target}: {len(package.code(variant)):,} bytes of {variant.kind}")


if __name__ == "__main__":
    run_both_ways("vector_addition.py", check)
    print("the same op, compiled for GPUs:")
    compile_for_gpus()
