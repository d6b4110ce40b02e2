"""Grayscale -> brightness -> blur on a photograph, with built-in ops between custom ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _common import DATA, compare, output_folder, run_both_ways
from PIL import Image

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, Model, TensorType, TensorValue, ops

FACTOR, RADIUS = 1.4, 4


def load_pipeline(extension: str) -> Model:
    """The pipeline for pictures of any size."""

    def custom(name: str, image: TensorValue, **parameters: float) -> TensorValue:
        return ops.custom(name, device=DeviceRef.CPU(), values=[image], parameters=parameters)[0]

    def forward(image: TensorValue) -> TensorValue:
        grey = custom("brightness", custom("grayscale", image), factor=FACTOR)
        soft = custom("blur", custom("blur", grey, axis=0, radius=RADIUS), axis=1, radius=RADIUS)
        return ops.cast(ops.round(soft), DType.uint8)

    picture = TensorType(DType.uint8, ["height", "width", 3], DeviceRef.CPU())
    graph = Graph("image_pipeline", forward=forward, input_types=[picture], custom_extensions=[extension])
    return InferenceSession(devices=[CPU()]).load(graph)


def reference(image: np.ndarray) -> np.ndarray:
    """The same in NumPy, in the same order of operations."""
    red, green, blue = np.moveaxis(image.astype(np.float32), 2, 0)
    grey = np.float32(0.2126) * red + np.float32(0.7152) * green + np.float32(0.0722) * blue
    soft = np.minimum(grey * np.float32(FACTOR), np.float32(255))
    for axis in (0, 1):
        padding = [(RADIUS, RADIUS) if axis == k else (0, 0) for k in (0, 1)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(soft, padding, mode="edge"), 2 * RADIUS + 1, axis)
        soft = sum(np.moveaxis(windows, 2, 0)) / np.float32(2 * RADIUS + 1)
    return np.round(soft).astype(np.uint8)


def save(before: np.ndarray, after: np.ndarray) -> tuple[Path, Path]:
    paths = output_folder() / "coffee-before.png", output_folder() / "coffee-after.png"
    for path, picture in zip(paths, (before, after), strict=True):
        Image.fromarray(picture).save(path)
    return paths


def check(extension: str) -> str:
    image = np.asarray(Image.open(DATA / "coffee.png"))
    result = load_pipeline(extension)(image)[0].to_numpy()
    save(image, result)
    return compare(result, reference(image))


if __name__ == "__main__":
    run_both_ways("images.py", check)
    print("pictures: output/coffee-before.png, output/coffee-after.png")
