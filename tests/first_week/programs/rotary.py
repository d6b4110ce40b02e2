"""Rotary position embedding, with cosines and sines of the angles from NumPy, as programs of PyTorch keep them."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register


@register("rotary")
def rotary(
    out: OutputTensor[float32, "length width"],
    x: InputTensor[float32, "length width"],
    cos: InputTensor[float32, "length half"],
    sin: InputTensor[float32, "length half"],
):
    half = x.shape[1] // 2

    def element(i):
        row, column = i
        if column < half:
            return x[row, column] * cos[row, column] - x[row, column + half] * sin[row, column]
        k = column - half
        return x[row, column] * cos[row, k] + x[row, k] * sin[row, k]

    foreach(out, element)


def main():
    x = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    angle = (np.arange(12)[:, None] / 10000.0 ** (np.arange(4) / 4)).astype(np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    low, high = x[:, :4], x[:, 4:]
    yield rotary(x, cos, sin), np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=1)
