"""Kernels that reach their tensors by masks, steps, indices and pointers, and promise enough to fuse together."""

from typing import TypeVar

from einkorn.dsl import (
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    atomic,
    float32,
    foreach,
    int32,
    int64,
    iota,
    parallel_for,
    register,
)

N = TypeVar("N", bound=Numeric)


@register("masked_rows", writes_once=True, reads={"x": 1})
def masked_rows(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]):
    """A copy in vectors whose tails are masked."""
    n = x.dim(1)

    def row(i):
        for j in range(0, n, 8):
            inside = iota(int32, 8) < (n - j).cast(int32)
            out.store(x.load(i, j, width=8, mask=inside), i, j, mask=inside)

    parallel_for(x.dim(0), row)


@register("turned_rows", writes_once=True, reads={"x": 1})
def turned_rows(out: OutputTensor[N, "m 8"], x: InputTensor[N, "m 16"]):
    """Every other element of each row, backwards."""

    def row(i):
        at = iota(int64, 8, 14, -2)
        kept = at != 4
        v = x.gather(i, at, mask=kept, other=x.load(i, 0, width=8, stride=2).reverse())
        out.scatter(v, i, iota(int64, 8), mask=kept)
        out.scatter(v, i, iota(int64, 8), mask=~kept)

    parallel_for(x.dim(0), row)


@register("by_pointer", writes_once=True, reads={"x": 1})
def by_pointer(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]):
    def row(i):
        p, q = x.pointer(i, 0), out.pointer(i, 0)
        for j in range(x.dim(1)):
            q[j] = p[j]

    parallel_for(x.dim(0), row)


@register("element_by_pointer")
def element_by_pointer(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]):
    foreach(out, lambda i: x.pointer(i[0], i[1])[0] + 1)


@register("race")
def race(counts: OutputTensor[int64, "4"], sums: OutputTensor[float32, "2"], x: InputTensor[int64, "n"]):
    """Every thread at the same few elements; what comes out does not depend on which comes first."""
    foreach(counts, lambda i: int64(0))
    foreach(sums, lambda i: float32(0))

    def one(i):
        atomic.add(counts, 0, x[i])
        atomic.max(counts, 1, x[i])
        atomic.min(counts, 2, x[i], ordering="acq_rel")
        seen = atomic.load(counts, 3)
        while True:
            result = atomic.compare_exchange(counts, 3, seen, seen + 2, ordering="seq_cst")
            if result == seen:
                break
            seen = result
        atomic.max(sums, 0, x[i].cast(float32))
        atomic.add(sums, 1, float32(1))

    parallel_for(x.dim(0), one, grain=64)


@register("histogram_of_bytes")
def histogram_of_bytes(counts: MutableInputTensor[N, "16"], x: InputTensor[int64, "n"]):
    """Counts in elements of any size: neighbours in one word are left alone."""
    parallel_for(x.dim(0), lambda i: bump(counts, x[i] % 16), grain=64)


def bump(counts, at):
    atomic.add(counts, at, 1)
