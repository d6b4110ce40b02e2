"""Standardises the columns of a table, and shifts it by a number: arguments of different shapes."""

from typing import TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("standardise")
def standardise(
    out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], mean: InputTensor[T, "*s"], std: InputTensor[T, "*s"]
):
    foreach(out, lambda i: (x[i] - mean[i]) / (std[i] + 1e-6))


def main():
    table = np.random.default_rng(0).normal(3.0, 2.0, (100, 4)).astype(np.float32)
    mean, std = table.mean(axis=0), table.std(axis=0)
    yield standardise(table, mean, std), (table - mean) / (std + 1e-6)
    yield standardise(table, 1.0, std), (table - 1.0) / (std + 1e-6)
    yield standardise(table, mean, 2.0), (table - mean) / (2.0 + 1e-6)
