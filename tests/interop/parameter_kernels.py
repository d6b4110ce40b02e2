"""Kernels whose parameters are tuples, and whose loops have vectors of a chosen width."""

from __future__ import annotations

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, int32, register, unroll


@register("weighted")
def weighted(
    out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"], *, weights: tuple[int, ...] = (1, 2, 3)
) -> None:
    """The element times each weight, and the places of these."""

    def one(i):
        total = int32(0)
        for k in unroll(len(weights)):
            total += x[i] * weights[k] + k
        return total

    foreach(out, one)


@register("in_vectors")
def in_vectors(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "n m"], *, width: int = 8) -> None:
    """2 x + 1."""
    foreach(out, lambda i: x[i] * 2 + 1, simd_width=width)


@register("turned_in_vectors")
def turned_in_vectors(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"], *, width: int = 8) -> None:
    """2 x + 1, with the axes swapped."""
    foreach(out, lambda i: x[i[1], i[0]] * 2 + 1, simd_width=width)
