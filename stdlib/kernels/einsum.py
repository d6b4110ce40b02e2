"""Takes diagonals: what sums over named axes need in addition to products, permutations and sums."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ...dsl import InputTensor, OutputTensor, Storable, foreach, register

S = TypeVar("S", bound=Storable)


@register("diagonal")
def diagonal(out: OutputTensor[S, "*a n"], x: InputTensor[S, "*a n n"]) -> None:
    """The elements whose last two indices are equal."""
    foreach(out, lambda i: x[(*i, i[-1])])


diagonal.reference(lambda x: np.ascontiguousarray(np.diagonal(x, axis1=-2, axis2=-1)))
