"""Moves what control flow gives back: a loop's first values, and what a body has from elsewhere."""

from __future__ import annotations

from typing import TypeVar

from ...dsl import InputTensor, OutputTensor, Storable, foreach, register

S = TypeVar("S", bound=Storable)


@register("copy", reads={"x": 1})
def copy(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"]) -> None:
    """The same elements in memory of their own."""
    foreach(out, lambda i: x[i])
