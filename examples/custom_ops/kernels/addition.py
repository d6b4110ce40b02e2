"""One line of work: an elementwise op for every floating dtype, every rank and every target."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """Adds one to every element of `x`."""
    foreach(out, lambda i: x[i] + 1)
