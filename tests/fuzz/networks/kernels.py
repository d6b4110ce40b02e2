"""Custom ops of every kind, to stand between built-in ones: what each does is said once more in `oracle`."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    OutputVariadicTensors,
    VariadicTensors,
    bool8,
    foreach,
    parallel_for,
    register,
    store,
    unroll,
)
from einkorn.stdlib import Max, Sum, rowwise, scan

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
def neighbours(out: OutputTensor[N, "n *s"], x: InputTensor[N, "n *s"]) -> None:
    """Reads three elements for each one."""
    n = x.dim(0)

    def body(i):
        k = i[0]
        left = x[(k - 1, *i[1:])] if k > 0 else x[(n - 1, *i[1:])]
        right = x[(k + 1, *i[1:])] if k < n - 1 else x[(0, *i[1:])]
        return left + x[i] * 2 + right

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
    """Loops of its own and no promise: nothing may is fused with it."""

    def row(i):
        total = x.dtype(0)
        for j in range(x.dim(1)):
            total += x[i, j]
            store(out, (i, j), total)

    parallel_for(x.dim(0), row)


@register("scanned")
def scanned(out: OutputTensor[N, "*s n"], x: InputTensor[N, "*s n"]) -> None:
    scan(out, x, Max)


@register("row_totals", writes_once=True, reads={"x": 1})
def row_totals(total: OutputTensor[N, "m"], largest: OutputTensor[N, "m"], x: InputTensor[N, "m n"]) -> None:
    """Two results of one pass."""

    def body(row, added, top):
        store(total, row, added.cast(N))
        store(largest, row, top)

    rowwise(x, (Sum, Max), body)


@register("horner")
def horner(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """An element with a loop inside."""

    def body(i):
        total = x.dtype(0)
        for _ in range(5):
            total = total * x[i] * 0.25 + 1
        return total

    foreach(out, body)


@register("outer")
def outer(out: OutputTensor[N, "m n"], x: InputTensor[N, "m"], y: InputTensor[N, "n"]) -> None:
    foreach(out, lambda i: x[i[0]] * y[i[1]])


@register("blend")
def blend(out: OutputTensor[N, "*s"], a: N, x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """A scalar argument."""
    foreach(out, lambda i: a * x[i] - y[i])


@register("scaled_rows", reads={"x": 1})
def scaled_rows(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"], scale: N) -> None:
    """Each row times a number that is read before the loop."""

    def row(r):
        for c in range(x.dim(1)):
            out[r, c] = x[r, c] * scale

    parallel_for(x.dim(0), row)


@register("total")
def total(out: OutputTensor[N, "*s"], xs: VariadicTensors[N, "*s"]) -> None:
    """The sum of any number of tensors of one shape."""

    def element(i):
        result = xs[0][i]
        for x in xs[1:]:
            result = result + x[i]
        return result

    foreach(out, element)


@register("scaled_all")
def scaled_all(outs: OutputVariadicTensors[N, "*s_k"], xs: VariadicTensors[N, "*s_k"], by: N) -> None:
    """Each tensor times a number."""
    for k in unroll(len(xs)):
        foreach(outs[k], lambda i, k=k: xs[k][i] * by)


@register("twice")
def twice(out: OutputTensor[N, "(2*n) *s"], x: InputTensor[N, "n *s"]) -> None:
    """Below each other."""
    foreach(out, lambda i: x[(i[0] % max(x.dim(0), 1), *i[1:])])


@register("kept")
def kept(out: OutputTensor[N, "k"], x: InputTensor[N, "n"], limit: N) -> None:
    """The elements above a limit, in order."""
    at = Int(0)
    for i in range(x.dim(0)):
        if x[i] > limit:
            out[at] = x[i]
            at = at + 1


@kept.shape
def kept_shape(x, limit):
    count = Int(0)
    for i in range(x.dim(0)):
        if x[i] > limit:
            count = count + 1
    return count


@register("axpy_into", reads={"x": 1})
def axpy_into(y: MutableInputTensor[N, "*s"], a: N, x: InputTensor[N, "*s"]) -> None:
    """y += a * x."""
    foreach(y, lambda i: y[i] + a * x[i])


@register("bump_and_total")
def bump_and_total(out: OutputTensor[N, "m"], y: MutableInputTensor[N, "m n"], by: InputTensor[N, "n"]) -> None:
    """Adds a row to every row, and gives the sums of the new rows."""

    def row(r):
        result = y.dtype(0)
        for c in range(y.dim(1)):
            y[r, c] += by[c]
            result = result + y[r, c]
        out[r] = result

    parallel_for(y.dim(0), row)


@register("read_rows")
def read_rows(out: OutputTensor[N, "m"], x: InputTensor[N, "m n"]) -> None:
    """Reads only; takes a buffer, too."""

    def row(r):
        result = x.dtype(0)
        for c in range(x.dim(1)):
            result = result + x[r, c]
        out[r] = result

    parallel_for(x.dim(0), row)
