"""Custom ops for the tests of fusion: elementwise, with several outputs, with a promise, without fusion, with loops."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    atomic_add,
    bool8,
    foreach,
    int64,
    parallel_for,
    register,
    store,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)


@register("scale_add")
def scale_add(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"], *, factor: int = 3) -> None:
    foreach(out, lambda i: x[i] * factor + y[i])


@register("unfused_add", fuse=False)
def unfused_add(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    foreach(out, lambda i: x[i] + y[i])


@register("both_ways")
def both_ways(
    up: OutputTensor[N, "*s"], down: OutputTensor[N, "*s"], high: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"]
) -> None:
    foreach((up, down, high), lambda i: (x[i] + 1, x[i] - 1, x[i] > 3))


@register("neighbours")
def neighbours(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]) -> None:
    """Reads three elements for each one."""
    n = x.dim(0)

    def body(i):
        k = i[0]
        left = x[k - 1] if k > 0 else x[n - 1]
        right = x[k + 1] if k < n - 1 else x[0]
        return left + x[k] * 2 + right

    foreach(out, body)


@register("double_rows", writes_once=True, reads={"x": 1})
def double_rows(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]) -> None:
    """Loops of its own; promises to write each element once and to read each once."""

    def row(i):
        for j in range(x.dim(1)):
            store(out, (i, j), x[i, j] * 2)

    parallel_for(x.dim(0), row)


@register("running_sum")
def running_sum(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]) -> None:
    """Loops of its own and no promise: no kernel may be fused into it."""

    def row(i):
        total = 0
        for j in range(x.dim(1)):
            total += x[i, j]
            store(out, (i, j), total.cast(N))

    parallel_for(x.dim(0), row)


@register("count_up")
def count_up(out: OutputTensor[int64, "k"], x: InputTensor[int64, "n"], *, k: int) -> None:
    foreach(out, lambda i: 0)
    parallel_for(x.dim(0), lambda i: atomic_add(out, x[i] % k, 1), grain=100)


@register("horner")
def horner(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """An element with a loop inside: too dear to be computed twice."""

    def body(i):
        total = 0.0
        for _ in range(20):
            total = total * x[i] + 1
        return total

    foreach(out, body)


@register("addressed", writes_once=True, reads={"x": 1})
def addressed(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]) -> None:
    """Promises that anything may is fused with it, and takes addresses, which only what is in memory has."""

    def row(i):
        source, target = x.pointer(i, 0), out.pointer(i, 0)
        for j in range(x.dim(1)):
            target[j] = source[j] + 1

    parallel_for(x.dim(0), row)
