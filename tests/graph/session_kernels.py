"""Kernels for the tests of sessions: they stop and print."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, int64, parallel_for, register

T = TypeVar("T", bound=Floating)


@register("positive")
def positive(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """x, all of which has to be above 0."""

    def element(i):
        assert x[i] > 0, f"found {x[i]}"
        return x[i]

    foreach(out, element)


@register("positive_rows")
def positive_rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]) -> None:
    """x, by rows in many threads; stops at a row that starts at 0 or below."""

    def row(r):
        if x[r, 0] <= 0:
            raise ValueError(f"row {r} starts at {x[r, 0]}")
        for c in range(x.dim(1)):
            out[r, c] = x[r, c]

    parallel_for(x.dim(0), row)


@register("print_each")
def print_each(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Twice x, and prints each element."""
    for k in range(x.dim(0)):
        print("element", k, "is", x[k])
        out[k] = x[k] * 2
