"""Removes specks from an image: each pixel is the median of its 3 x 3 neighbours, found by sorting them."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, foreach, register, uint8


@register("median")
def median(out: OutputTensor[uint8, "h w"], image: InputTensor[uint8, "h w"]):
    height, width = image.shape

    def pixel(i):
        y, x = i
        if y == 0 or x == 0 or y == height - 1 or x == width - 1:
            return image[y, x]
        window = sorted(
            (
                image[y - 1, x - 1], image[y - 1, x], image[y - 1, x + 1],
                image[y, x - 1], image[y, x], image[y, x + 1],
                image[y + 1, x - 1], image[y + 1, x], image[y + 1, x + 1],
            )
        )  # fmt: skip
        return window[4]

    foreach(out, pixel)


def main():
    image = np.random.default_rng(0).integers(0, 256, (20, 31)).astype(np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(18, 29, 9)
    expected = image.copy()
    expected[1:-1, 1:-1] = np.median(windows, axis=-1)
    yield median(image), expected
