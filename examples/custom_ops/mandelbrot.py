"""The Mandelbrot set: an op without inputs and with two outputs, and an op that paints what it found."""

from __future__ import annotations

import functools

import numpy as np
from _common import compare, output_folder, run_both_ways
from PIL import Image

from einkorn.graph import CPU, DeviceRef, Graph, InferenceSession, Model, TensorValue, ops

HEIGHT, WIDTH, LIMIT = 600, 900, 256
LEFT, TOP, PIXEL = -2.45, 1.2, 0.004


def load_mandelbrot(extension: str) -> Model:
    """A model that takes nothing and gives the number of steps and the picture."""

    def forward() -> tuple[TensorValue, TensorValue]:
        cpu = DeviceRef.CPU()
        window = {"height": HEIGHT, "width": WIDTH, "limit": LIMIT, "left": LEFT, "top": TOP, "pixel": PIXEL}
        steps, size = ops.custom("mandelbrot", device=cpu, values=[], parameters=window)
        picture = ops.custom("palette", device=cpu, values=[steps, size], parameters={"limit": LIMIT})[0]
        return steps, picture

    graph = Graph("mandelbrot", forward=forward, input_types=[], custom_extensions=[extension])
    return InferenceSession(devices=[CPU()]).load(graph)


@functools.cache
def reference() -> np.ndarray:
    """The number of steps of every point, in NumPy: all points that are still small take a step together."""
    real = np.broadcast_to(LEFT + np.arange(WIDTH) * PIXEL, (HEIGHT, WIDTH)).ravel()
    imaginary = np.repeat(TOP - np.arange(HEIGHT) * PIXEL, WIDTH)
    points, steps = np.arange(real.size), np.zeros(real.size, np.int32)
    x, y = np.zeros_like(real), np.zeros_like(real)
    for _ in range(LIMIT):
        small = x * x + y * y <= 65536
        points, x, y, real, imaginary = (values[small] for values in (points, x, y, real, imaginary))
        steps[points] += 1
        x, y = x * x - y * y + real, 2 * x * y + imaginary
    return steps.reshape(HEIGHT, WIDTH)


def check(extension: str) -> str:
    steps, picture = (buffer.to_numpy() for buffer in load_mandelbrot(extension)())
    Image.fromarray(picture).save(output_folder() / "mandelbrot.png")
    return compare(steps, reference())


if __name__ == "__main__":
    run_both_ways("mandelbrot.py", check)
    print("picture: output/mandelbrot.png")
