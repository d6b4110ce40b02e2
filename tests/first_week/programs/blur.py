"""Blurs a grey image of bytes by the mean of 3 x 3 pixels; the border repeats."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, foreach, register, uint8


@register("blur")
def blur(out: OutputTensor[uint8, "h w"], image: InputTensor[uint8, "h w"]):
    height, width = image.shape

    def pixel(i):
        y, x = i
        total = 0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                yy = min(max(y + dy, 0), height - 1)
                xx = min(max(x + dx, 0), width - 1)
                total += image[yy, xx]
        return total // 9

    foreach(out, pixel)


def main():
    image = np.random.default_rng(0).integers(0, 256, (20, 31)).astype(np.uint8)
    padded = np.pad(image.astype(int), 1, mode="edge")
    expected = sum(padded[dy : dy + 20, dx : dx + 31] for dy in range(3) for dx in range(3)) // 9
    yield blur(image), expected.astype(np.uint8)
