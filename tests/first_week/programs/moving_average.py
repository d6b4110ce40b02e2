"""A weighted moving average of a series of prices."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float64, foreach, register


@register("moving_average")
def moving_average(
    out: OutputTensor[float64, "n - k + 1"], prices: InputTensor[float64, "n"], weights: InputTensor[float64, "k"]
):
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k]

    def average(i):
        value = 0.0
        for k in range(len(weights)):
            value += prices[i[0] + k] * weights[k]
        return value / total

    foreach(out, average)


def main():
    prices = np.random.default_rng(0).normal(size=50).cumsum() + 100
    weights = np.array([1, 2, 3, 4])
    yield moving_average(prices, weights.astype(float)), np.convolve(prices, weights[::-1], "valid") / weights.sum()
