"""Keeps bands of matrices.

See also `matmul` (products).
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import Index, InputTensor, OutputTensor, Storable, foreach, register

S = TypeVar("S", bound=Storable)


@register("band", reads={"x": 1})
def band(out: OutputTensor[S, "*s m n"], x: InputTensor[S, "*s m n"], *, lower: int, upper: int, exclude: bool) -> None:
    """The elements of which the row is at most `lower` below the column, and the column at most `upper` behind the
    row; zeros elsewhere. With `exclude` it is the other way round."""

    def element(i: tuple[Index, ...]):
        row, column = i[-2], i[-1]
        inside = row - column <= lower and column - row <= upper
        if exclude:
            inside = not inside
        return x[i] if inside else S(0)

    foreach(out, element)
