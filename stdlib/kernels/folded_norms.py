"""Folds the normalization of channels into the filter of the convolution before it.

See also `fold_batch_norm` of the graph (which are folded).
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import AnyDType, AnyTensor, Floating, Index, InputTensor, OutputTensor, foreach, register, sqrt
from ..algorithms.algorithm import wide_dtype

F = TypeVar("F", bound=Floating)
G = TypeVar("G", bound=Floating)
H = TypeVar("H", bound=Floating)
M = TypeVar("M", bound=Floating)
V = TypeVar("V", bound=Floating)


def _scale(gamma: AnyTensor, variance: AnyTensor, c: Index, wide: AnyDType, epsilon: float) -> Any:
    """What the elements of a channel are multiplied by."""
    return gamma[c].cast(wide) / sqrt(variance[c].cast(wide) + epsilon)


@register("scaled_filter")
def scaled_filter(
    out: OutputTensor[F, "c *k"],
    filter: InputTensor[F, "c *k"],
    gamma: InputTensor[G, "c"],
    variance: InputTensor[V, "c"],
    *,
    epsilon: float,
) -> None:
    """A filter (results, channels, taps) whose results are multiplied as `batch_norm` does."""
    wide = wide_dtype(F)
    foreach(out, lambda i: (filter[i].cast(wide) * _scale(gamma, variance, i[0], wide, epsilon)).cast(F))


@register("channel_shift")
def channel_shift(
    out: OutputTensor[F, "c"],
    gamma: InputTensor[G, "c"],
    beta: InputTensor[H, "c"],
    mean: InputTensor[M, "c"],
    variance: InputTensor[V, "c"],
    *,
    epsilon: float,
) -> None:
    """What `batch_norm` adds to the elements of a channel."""
    wide = wide_dtype(F)

    def one(i: tuple[Index, ...]):
        c = i[0]
        return (beta[c].cast(wide) - mean[c].cast(wide) * _scale(gamma, variance, c, wide, epsilon)).cast(F)

    foreach(out, one)


@register("add_channels")
def add_channels(out: OutputTensor[F, "n c *s"], x: InputTensor[F, "n c *s"], shift: InputTensor[F, "c"]) -> None:
    """x + shift, which is that of the channel."""
    foreach(out, lambda i: x[i] + shift[i[1]])
