"""A product of matrices by tiles: on the processor, and as instructions of the tensor cores of a GPU."""

from __future__ import annotations

import numpy as np
from _common import KERNELS, compare, run_both_ways

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def staged(extension: str, place: DeviceRef) -> Graph:
    """relu(a @ b + bias) in float16, of sizes that are known at the call only."""
    return Graph(
        "tiled_products",
        forward=lambda *values: ops.custom("tiled_products", device=place, values=list(values))[0],
        input_types=[TensorType(DType.float16, shape, place) for shape in (["m", "k"], ["k", "n"], [1, "n"])],
        custom_extensions=[extension],
    )


def check(extension: str) -> str:
    random = np.random.default_rng(0)
    a, b, bias = (random.standard_normal(shape).astype(np.float16) for shape in ((70, 100), (100, 90), (1, 90)))
    model = InferenceSession(devices=[CPU()]).load(staged(extension, DeviceRef.CPU()))
    result = model(a, b, bias)[0].to_numpy()
    wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0).astype(np.float16)
    return compare(result, wanted, tolerance=0.03)


if __name__ == "__main__":
    run_both_ways("tiled_products.py", check)
    code = staged(str(KERNELS / "tiled_products.py"), DeviceRef.GPU()).code("asm", "sm_90a")
    products, operands = code.count("mma.sync"), code.count("ldmatrix")
    print(f"for an H100: {products} instructions of tensor cores, {operands} that read their operands")
