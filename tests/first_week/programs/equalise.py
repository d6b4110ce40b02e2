"""Equalises the histogram of a grey image."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, foreach, int64, register, uint8


@register("histogram")
def histogram(counts: OutputTensor[int64, "256"], image: InputTensor[uint8, "h w"]):
    for k in range(256):
        counts[k] = 0
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            counts[image[y, x]] += 1


@register("equalised")
def equalised(out: OutputTensor[uint8, "h w"], image: InputTensor[uint8, "h w"], total: InputTensor[int64, "256"]):
    lowest = total[0]
    pixels = image.shape[0] * image.shape[1]
    foreach(out, lambda i: round((total[image[i]] - lowest) / (pixels - lowest) * 255))


def main():
    image = np.random.default_rng(0).normal(120, 20, (40, 50)).clip(0, 255).astype(np.uint8)
    counts = histogram(image)
    yield counts, np.bincount(image.ravel(), minlength=256)
    total = np.cumsum(counts)
    yield equalised(image, total), np.round((total[image] - total[0]) / (image.size - total[0]) * 255).astype(np.uint8)
