"""Kernels with storage of run-time size."""

from typing import TypeVar

from einkorn.dsl import (
    Element,
    InputTensor,
    Number,
    OutputTensor,
    bool8,
    complex64,
    float32,
    foreach,
    int64,
    parallel_for,
    register,
    scratch,
    uint8,
    unroll,
)

T = TypeVar("T", bound=Element)
N = TypeVar("N", bound=Number)


@register("levenshtein")
def levenshtein(out: OutputTensor[int64, "1"], a: InputTensor[uint8, "n"], b: InputTensor[uint8, "m"]):
    row = scratch[int64](b.dim(0) + 1)
    for j in range(b.dim(0) + 1):
        row[j] = j
    for i in range(a.dim(0)):
        corner = row[0]
        row[0] = i + 1
        for j in range(b.dim(0)):
            cost = corner if a[i] == b[j] else corner + 1
            corner = row[j + 1]
            row[j + 1] = min(cost, min(row[j], corner) + 1)
    out[0] = row[b.dim(0)]


@register("primes_below")
def primes_below(out: OutputTensor[int64, "1"], limits: InputTensor[int64, "1"]):
    """A sieve whose flags are bits."""
    n = limits[0]
    composite = scratch[uint8](n // 8 + 1, zeroed=True)
    count = 0
    for k in range(2, n):
        if (composite[k // 8] >> (k % 8).cast(uint8)) & 1 == 0:
            count += 1
            for multiple in range(k * k, n, k):
                composite[multiple // 8] = composite[multiple // 8] | (uint8(1) << (multiple % 8).cast(uint8))
    out[0] = count


@register("row_histograms")
def row_histograms(out: OutputTensor[int64, "r"], x: InputTensor[int64, "r n"], bins: InputTensor[int64, "1"]):
    """The largest bin of each row."""

    def row(r):
        counts = scratch[int64](bins[0], zeroed=True)
        for k in range(x.dim(1)):
            counts[x[r, k] % bins[0]] += 1
        most = 0
        for b in range(bins[0]):
            most = max(most, counts[b])
        out[r] = most

    parallel_for(x.dim(0), row)


@register("counting_sort")
def counting_sort(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):
    """Of numbers from 0 on."""
    most = 0
    for k in range(x.dim(0)):
        most = max(most, x[k])
    starts = scratch[int64](most + 2, zeroed=True)
    for k in range(x.dim(0)):
        starts[x[k] + 1] += 1
    for b in range(most + 1):
        starts[b + 1] += starts[b]
    for k in range(x.dim(0)):
        out[starts[x[k]]] = x[k]
        starts[x[k]] += 1


def reversed_row(x, r, kept):
    """Fills `kept` with a row from its end on, by vectors where there are 4 elements."""
    n = x.dim(1)
    for k in range(0, n - n % 4, 4):
        kept.store(x.load(r, n - k - 4, width=4).reverse(), k)
    for k in range(n - n % 4, n):
        kept[k] = x[r, n - k - 1]


@register("reversed_rows")
def reversed_rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    def row(r):
        kept = scratch[T](x.dim(1))
        reversed_row(x, r, kept)
        for k in range(x.dim(1)):
            out[r, k] = kept[k]

    parallel_for(x.dim(0), row)


@register("transposed_twice")
def transposed_twice(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]):
    kept = scratch[N](x.dim(1), x.dim(0))

    def put(i, j):
        kept[j, i] = x[i, j]

    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            put(i, j)
    foreach(out, lambda i: kept[i[1], i[0]] + kept[i[1], i[0]])


@register("in_elements")
def in_elements(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    """Prefix sums, each with storage of its own size."""

    def prefix(i):
        kept = scratch[float32](i[0] + 1)
        for k in range(i[0] + 1):
            kept[k] = x[k]
        total = float32(0)
        for k in range(i[0] + 1):
            total += kept[k]
        return total

    foreach(out, prefix)


@register("several")
def several(out: OutputTensor[int64, "n"], sizes: InputTensor[int64, "n"]):
    """Pieces of growing and shrinking size in one loop; unrolled rounds have a piece each."""
    for i in range(sizes.dim(0)):
        total = 0
        for which in unroll(2):
            kept = scratch[int64](sizes[i] * (which + 1))
            for k in range(sizes[i]):
                kept[k] = k + which
            for k in range(sizes[i]):
                total += kept[k]
        out[i] = total


@register("leaves_early")
def leaves_early(out: OutputTensor[int64, "n"], sizes: InputTensor[int64, "n"]):
    def one(i):
        kept = scratch[int64](sizes[i] + 1)
        kept[sizes[i]] = sizes[i]
        assert kept[sizes[i]] < 1000, "too large"
        out[i] = kept[sizes[i]]

    parallel_for(sizes.dim(0), one)


@register("of_size")
def of_size(out: OutputTensor[int64, "1"], sizes: InputTensor[int64, "2"]):
    kept = scratch[int64](sizes[0], sizes[1])
    out[0] = kept.dim(0) * 10 + kept.dim(1)


@register("mixed")
def mixed(out: OutputTensor[complex64, "n"], x: InputTensor[complex64, "n"]):
    """Complex numbers and Bools, by pointer and by mask."""
    kept, seen = scratch[complex64](x.dim(0)), scratch[bool8](x.dim(0), zeroed=True)
    for k in range(x.dim(0)):
        p = kept.pointer(k)
        p[0] = x[k] * 2
        seen[k] = x[k].real > 0
    foreach(out, lambda i: kept[i[0]] if seen[i[0]] else x[i])


@register("unwritten")
def unwritten(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, how: str):
    kept = scratch[float32](x.dim(0) + 8)
    for i in range(x.dim(0)):
        kept[i] = x[i]
    if how == "element":
        foreach(out, lambda i: kept[i[0] + 1])
    elif how == "vector":
        foreach(out, lambda i: kept.load(i[0], width=2).reduce_add())
    elif how == "pointer":
        foreach(out, lambda i: kept.pointer(i[0])[1])
    else:
        foreach(out, lambda i: kept[i[0]])


def sum_from(start, n):
    kept = scratch[int64](n)
    for k in range(n):
        kept[k] = start + k
    total = 0
    for k in range(n):
        total += kept[k]
    return total


@register("sums_from")
def sums_from(out: OutputTensor[int64, "n"], twice: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):
    """A function with storage of its own, in a loop and in the elements of one."""
    for i in range(x.dim(0)):
        out[i] = sum_from(i, x[i])
    foreach(twice, lambda i: sum_from(i[0], x[i] + i[0]))


@register("sums_of_rows")
def sums_of_rows(out: OutputTensor[int64, "m n"], x: InputTensor[int64, "m n"]):
    """Storage of a parallel loop within another."""

    def row(r):
        kept = scratch[int64](x.dim(1))
        foreach(kept, lambda k: x[r, k[0]])

        def prefix(c):
            inner = scratch[int64](c + 1)
            for k in range(c + 1):
                inner[k] = kept[k]
            total = 0
            for k in range(c + 1):
                total += inner[k]
            out[r, c] = total

        parallel_for(x.dim(1), prefix)

    parallel_for(x.dim(0), row)
