"""Edges of an image by Sobel's masks; outside of the image is black."""

import math

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float64, foreach, register, uint8


@register("sobel")
def sobel(out: OutputTensor[float64, "h w"], image: InputTensor[uint8, "h w"]):
    h, w = image.shape

    def at(y, x):
        if y < 0 or y >= h or x < 0 or x >= w:
            return 0.0
        return float(image[y, x])

    def pixel(i):
        y, x = i
        gx = (
            at(y - 1, x + 1)
            + 2 * at(y, x + 1)
            + at(y + 1, x + 1)
            - at(y - 1, x - 1)
            - 2 * at(y, x - 1)
            - at(y + 1, x - 1)
        )
        gy = (
            at(y + 1, x - 1)
            + 2 * at(y + 1, x)
            + at(y + 1, x + 1)
            - at(y - 1, x - 1)
            - 2 * at(y - 1, x)
            - at(y - 1, x + 1)
        )
        return math.sqrt(gx * gx + gy * gy)

    foreach(out, pixel)


def main():
    image = np.random.default_rng(0).integers(0, 256, (20, 31)).astype(np.uint8)
    padded = np.pad(image.astype(np.float64), 1)
    mask = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
    places = [(dy, dx) for dy in range(3) for dx in range(3)]
    gx = sum(mask[dy][dx] * padded[dy : dy + 20, dx : dx + 31] for dy, dx in places)
    gy = sum(mask[dx][dy] * padded[dy : dy + 20, dx : dx + 31] for dy, dx in places)
    yield sobel(image), np.sqrt(gx**2 + gy**2)
