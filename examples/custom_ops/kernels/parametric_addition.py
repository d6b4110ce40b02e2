"""A compile-time parameter: keyword-only in the signature, a constant in the machine code."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("add_constant")
def add_constant(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, value: float = 1.0) -> None:
    """Adds `value` to every element of `x`; each value compiles to code of its own."""
    foreach(out, lambda i: x[i] + value)
