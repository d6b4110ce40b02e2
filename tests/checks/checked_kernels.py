"""Kernels that leave their tensors, and kernels that look as if they did."""

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    atomic,
    atomic_add,
    float32,
    foreach,
    int32,
    int64,
    parallel_for,
    register,
    sqrt,
    stack,
    store,
    uint8,
)
from einkorn.stdlib import Sum, reduce, sort

N = TypeVar("N", bound=Numeric)
T = TypeVar("T", bound=Floating)


def element(x, row, column):
    return x[row, column]


@register("take")
def take(out: OutputTensor[N, "n m"], table: InputTensor[N, "v m"], ids: InputTensor[int64, "n"]):
    foreach(out, lambda i: element(table, ids[i[0]], i[1]))


@register("put")
def put(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], ids: InputTensor[int32, "n"]):
    parallel_for(x.dim(0), lambda k: store(out, ids[k], x[k]))


@register("histogram")
def histogram(out: OutputTensor[int32, "256"], x: InputTensor[uint8, "n"]):
    foreach(out, lambda i: int32(0))
    parallel_for(x.dim(0), lambda k: atomic_add(out, x[k], 1))


@register("histogram_of_ids")
def histogram_of_ids(out: OutputTensor[int32, "16"], ids: InputTensor[int64, "n"]):
    foreach(out, lambda i: int32(0))
    parallel_for(ids.dim(0), lambda k: atomic_add(out, ids[k], 1))


@register("shifted")
def shifted(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], *, by: int = 1):
    foreach(out, lambda i: x[i[0] + by])


@register("shifted_rows")
def shifted_rows(out: OutputTensor[N, "h w"], x: InputTensor[N, "h w"], *, by: int = 1):
    foreach(out, lambda i: x[i[0] + by, i[1]])


@register("shifted_where_it_is")
def shifted_where_it_is(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]):
    foreach(out, lambda i: x[i[0] - 1] if i[0] > 0 else x[0])


@register("clamped")
def clamped(out: OutputTensor[N, "h w"], x: InputTensor[N, "h w"]):
    def body(i):
        y, x_ = i
        return x[min(max(y - 1, 0), x.dim(0) - 1), min(x_ + 1, x.dim(1) - 1)]

    foreach(out, body)


@register("returned_early")
def returned_early(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], ids: InputTensor[int64, "n"]):
    def body(i):
        k = ids[i]
        if k < 0 or k >= x.dim(0):
            return N(0)
        return x[k]

    foreach(out, body)


@register("from_column")
def from_column(out: OutputTensor[N, "n m"], x: InputTensor[N, "n m"], row: InputTensor[N, "k"]):
    def value(i):
        total = 0  # its type is not known yet where the index is taken apart
        for k in range(2):
            total += row[i[1] + k]
        return total + x[i]

    foreach(out, value)


@register("row_sums")
def row_sums(out: OutputTensor[T, "h"], x: InputTensor[T, "h w"], *, beyond: int = 0):
    def one(r):
        total = 0.0
        row = x[r, :]
        for k in range(x.dim(1) + beyond):
            total += row[k]
        out[r] = total

    parallel_for(x.dim(0), one)


@register("strided_sums")
def strided_sums(out: OutputTensor[T, "h"], x: InputTensor[T, "h w"], *, step: int = 3):
    def one(r):
        total = 0.0
        for k in range(0, x.dim(1), 4):
            total += x[r, k + step]
        out[r] = total

    parallel_for(x.dim(0), one)


@register("windows")
def windows(out: OutputTensor[T, "h"], x: InputTensor[T, "h w"], starts: InputTensor[int64, "h"], *, size: int = 2):
    def one(r):
        first = starts[r]
        window = x[r, first : first + size]
        total = 0.0
        for k in range(size):
            total += window[k]
        out[r] = total

    parallel_for(x.dim(0), one)


@register("loaded")
def loaded(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ids: InputTensor[int64, "n"]):
    parallel_for(x.dim(0), lambda k: store(out, k, x.load(ids[k], width=4).reduce_add()))


@register("strays")
def strays(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], k: InputTensor[int64, "n"], *, how: str):
    """Vectors of elements, some of which are masked."""
    at = k.load(0, width=4)
    foreach(out, lambda i: x[i])
    if how == "gather":
        out.store(x.gather(at), 0)
    if how == "masked gather":
        out.store(x.gather(at, mask=at < 8), 0)
    if how == "scatter":
        out.scatter(SIMD[N, 4](1), at)
    if how == "masked":
        out.store(x.load(k[0], width=4, mask=at >= 0), 0)
    if how == "strided":
        out.store(x.load(k[1], width=4, stride=2), 0)
    if how == "steps":
        out.store(x.load(0, width=4, stride=k[2]), 0)
    if how == "atomic":
        atomic.add(out, k[3], 1)


@register("in_stack")
def in_stack(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], ids: InputTensor[int64, "n"]):
    def one(k):
        local = stack[N](4)
        local[ids[k]] = x[k]
        out[k] = local[3]

    parallel_for(x.dim(0), one)


@register("at_position")
def at_position(out: OutputTensor[N, "n"], x: InputTensor[N, "h w"], ids: InputTensor[int64, "n"]):
    foreach(out, lambda i: x.at(ids[i]))


@register("quotients")
def quotients(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], y: InputTensor[N, "n"]):
    foreach(out, lambda i: x[i] // y[i])


@register("roots")
def roots(out: OutputTensor[T, "h w"], x: InputTensor[T, "h w"]):
    foreach(out, lambda i: sqrt(x[i]))


@register("masked_roots")
def masked_roots(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], order: InputTensor[int64, "n"]):
    """Eight at a time: those below 100 straight, those above by their order, every other one with a step."""
    for i in range(0, x.dim(0), 8):
        v = x.load(i, width=8)
        out.store(sqrt(v), i, mask=v < 100)
        out.scatter(sqrt(v - 100), order.load(i, width=8), mask=v > 100)


@register("stepped_roots")
def stepped_roots(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    for i in range(2):
        out.store(sqrt(x.load(i * 4, width=4)), i, stride=2)


@register("vector_roots")
def vector_roots(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    for i in range(x.dim(0)):
        for j in range(0, x.dim(1), 4):
            out.store(sqrt(x.load(i, j, width=4)), i, j)


@register("inverses")
def inverses(out: OutputTensor[T, "h w"], x: InputTensor[T, "h w"]):
    foreach(out, lambda i: 1 / x[i])


@register("asserted")
def asserted(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    def body(i):
        assert x[i] >= 0, f"{x[i]} at {i[0]}"
        return x[i]

    foreach(out, body)


@register("raised")
def raised(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    def one(k):
        if x[k] < 0:
            raise ValueError(f"negative: {x[k]}")
        out[k] = x[k]

    parallel_for(x.dim(0), one)


@register("nested")
def nested(out: OutputTensor[N, "h w"], x: InputTensor[N, "h w"], ids: InputTensor[int64, "w"]):
    def one(r):
        parallel_for(x.dim(1), lambda c: store(out, (r, c), x[r, ids[c]]))

    parallel_for(x.dim(0), one)


@register("flat")
def flat(out: OutputTensor[N, "h w"], x: InputTensor[N, "h w"], y: InputTensor[N, "n"]):
    def body(i):
        r, c = i
        return x[r, c] + y[r * x.dim(1) + c]

    foreach(out, body)


@register("searched")
def searched(out: OutputTensor[int64, "n"], x: InputTensor[N, "m"], y: InputTensor[N, "n"]):
    """How many elements of the sorted x come before each of y, counted one by one."""

    def one(k):
        place = 0
        while place < x.dim(0) and x[place] < y[k]:
            place += 1
        out[k] = place

    parallel_for(y.dim(0), one)


@register("guarded_reads")
def guarded_reads(out: OutputTensor[N, "n"], x: InputTensor[N, "m"], on: InputTensor[int32, "n"], *, form: str):
    """Indices of many forms, read only where `on` says so."""

    def at(k):
        if form == "shifted":
            return k + 3
        if form == "squared":
            return k * k
        if form == "halved":
            return (k + 9) // 2
        if form == "masked":
            return (k * 7) % 11
        if form == "clamped":
            return max(k - 2, min(k, 1))
        return k * 4611686018427387904  # of four rounds the first and the last come to 0, as arithmetic wraps

    foreach(out, lambda i: x[at(i[0])] if on[i] != 0 else N(0))


@register("guarded_writes")
def guarded_writes(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], on: InputTensor[int32, "n"], *, by: int):
    foreach(out, lambda i: N(0))
    for k in range(x.dim(0)):
        if on[k] != 0:
            out[k + by] = x[k]


@register("wrapped_guard")
def wrapped_guard(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], k: InputTensor[int64, "w"]):
    """A condition on a product that wraps says nothing of the product."""
    foreach(out, lambda i: N(0))
    for j in range(k[0], k[0] + 2):
        if j * j * j < x.dim(0):
            out[0] = x[j * j * j]


@register("wrapped_slice")
def wrapped_slice(
    out: OutputTensor[N, "n"], x: InputTensor[N, "n"], ends: InputTensor[int64, "w"], *, back: bool = False
):
    """A slice whose extent would wrap has no elements."""
    foreach(out, lambda i: N(0))
    part = x[ends[0] : ends[1] : -1] if back else x[ends[0] : ends[1]]
    out[0] = part[2]


@register("dot_of_two_sizes")
def dot_of_two_sizes(out: OutputTensor[T, "1"], x: InputTensor[T, "n"], y: InputTensor[T, "m"]):
    out[0] = reduce((x, y), Sum, of=lambda a, b: a * b)


@register("sorted_into_less")
def sorted_into_less(out: OutputTensor[T, "k"], x: InputTensor[T, "n"], like: InputTensor[T, "k"]):
    sort(out, x, limit=64)


@register("vector_of_a_scalar")
def vector_of_a_scalar(out: OutputTensor[T, "n"], x: InputTensor[T, ""], y: InputTensor[T, "n"]):
    foreach(out, lambda i: y[i])
    out.store(x.load(width=4), 0)


@register("steps_backwards")
def steps_backwards(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, first: int = 3):
    foreach(out, lambda i: x[i])
    out.store(x.load(first, width=4, stride=-1), 0)
