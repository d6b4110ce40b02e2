"""Kernels that take as long as their input says: `many` rounds, or for ever."""

from __future__ import annotations

from einkorn.dsl import InputTensor, MutableInputTensor, OutputTensor, foreach, int64, parallel_for, register


@register("endless")
def endless(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """A loop without an end of its own."""
    k = x[0]
    while True:
        if k == 0:
            break
        k = k * 3 | 1
    foreach(out, lambda i: x[i] + k)


@register("endless_elements")
def endless_elements(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """One in each element, in many threads."""

    def element(i):
        k = x[i]
        while k > 0:
            k = k * 3 % 1000003 + 1
        return k

    foreach(out, element)


@register("long_rows")
def long_rows(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """As many rounds as x says, one row of which may take for ever while the others are done."""

    def row(r):
        total = 0
        for k in range(x[r]):
            total = total * 5 + k
        out[r] = total

    parallel_for(x.dim(0), row, grain=1)


@register("long_nest")
def long_nest(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Loops in loops, none of which is long."""
    total = 0
    for i in range(x[0]):
        for j in range(x[0]):
            for k in range(x.dim(0)):
                total += x[k] * (i ^ j)
    foreach(out, lambda i: total + x[i])


@register("printing")
def printing(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Prints in each round."""
    for k in range(x[0]):
        print("round", k)
    foreach(out, lambda i: x[i] + 1)


@register("counting")
def counting(x: MutableInputTensor[int64, "n"], rounds: InputTensor[int64, "1"]) -> None:
    """Adds 1 to every element, again and again."""
    for _ in range(rounds[0]):
        foreach(x, lambda i: x[i] + 1)
