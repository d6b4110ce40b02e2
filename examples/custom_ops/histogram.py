"""A histogram of a photograph's bytes: counted in parallel, without losing a count."""

from __future__ import annotations

import numpy as np
from _common import DATA, compare, run_both_ways
from PIL import Image

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def check(extension: str) -> str:
    graph = Graph(
        "histogram",
        forward=lambda image: ops.custom("histogram", device=DeviceRef.CPU(), values=[image])[0],
        input_types=[TensorType(DType.uint8, ["height", "width", 3], DeviceRef.CPU())],
        custom_extensions=[extension],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    image = np.asarray(Image.open(DATA / "coffee.png"))
    counts = model(image)[0].to_numpy()
    assert counts.sum() == image.size
    return compare(counts, np.bincount(image.ravel(), minlength=256))


if __name__ == "__main__":
    run_both_ways("histogram.py", check)
