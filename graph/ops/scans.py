"""Declares scans along one axis. One row an op (see `rows`)."""

from __future__ import annotations

from ..arguments import flag_of
from ..staging.value import TensorValue, TensorValueLike
from .rows import along

_FLAGS = {"exclusive": flag_of, "reverse": flag_of}


@along("comparable", sums=True, pairs=True, attributes=_FLAGS)
def cumsum(x: TensorValueLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorValue:
    """The sum of each element and of those before it along `axis`, in the dtype of `sum`.

    Args:
        x: a tensor; integers and bools give int64, or uint64 if they are unsigned.
        axis: negative ones count from the end.
        exclusive: the element itself is left out: the first sum is 0.
        reverse: sums run from the last element to the first.
    """


@along("any", sums=True, attributes=_FLAGS)
def cumprod(x: TensorValueLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorValue:
    """The product of each element and of those before it along `axis`; `exclusive` begins with 1, else as `cumsum`."""
