"""Loops over elements, which the compiler makes grids of."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import InputTensor, Numeric, OutputTensor, foreach, register

T = TypeVar("T", bound=Numeric)


@register("elements::doubled")
def doubled(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + x[i])


@register("elements::biased")
def biased(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], bias: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + bias[i[1]])


@register("elements::turned")
def turned(out: OutputTensor[T, "k n m"], x: InputTensor[T, "m n k"]):
    foreach(out, lambda i: x[i[2], i[1], i[0]])
