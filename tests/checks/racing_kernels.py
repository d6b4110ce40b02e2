"""Parallel bodies that write elements of other calls, and bodies that look so and do not."""

from __future__ import annotations

from einkorn.dsl import (
    SIMD,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    atomic_add,
    float32,
    foreach,
    int64,
    parallel_chunks,
    parallel_for,
    register,
    stack,
    store,
)

# *** refused when they are compiled ***


@register("update_one")
def update_one(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"]):
    out[0] = 0.0

    def body(i):
        out[0] += x[i]

    parallel_for(x.dim(0), body)


@register("last_one")
def last_one(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"]):
    parallel_for(x.dim(0), lambda i: store(out, 0, x[i]))


@register("count_some")
def count_some(out: OutputTensor[int64, "1"], x: InputTensor[float32, "n"]):
    out[0] = 0

    def body(i):
        if x[i] > 0:
            out[0] = out[0] + 1

    parallel_for(x.dim(0), body)


@register("whole_row")
def whole_row(out: OutputTensor[float32, "m"], x: InputTensor[float32, "n m"]):
    out.fill(0.0)

    def body(i):
        row = x[i, :]
        for j in range(x.dim(1)):
            out[j] += row[j]

    parallel_for(x.dim(0), body)


@register("vector_of_all")
def vector_of_all(out: OutputTensor[float32, "4"], x: InputTensor[float32, "n"]):
    parallel_for(x.dim(0), lambda i: out.store(SIMD[float32, 4](x[i]), 0))


@register("next_to_elements")
def next_to_elements(out: OutputTensor[float32, "n"], top: OutputTensor[float32, "1"], x: InputTensor[float32, "n"]):
    top[0] = 0.0

    def body(i):
        top[0] = top[0] + x[i]
        return x[i]

    foreach(out, body)


# *** found when they run ***


@register("histogram")
def histogram(out: MutableInputTensor[int64, "m"], x: InputTensor[int64, "n"]):
    def body(i):
        out[x[i]] += 1

    parallel_for(x.dim(0), body)


@register("scattered")
def scattered(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], at: InputTensor[int64, "n"]):
    parallel_for(x.dim(0), lambda i: store(out, at[i], x[i]))


@register("running")
def running(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def body(i):
        out[i] = x[i] if i == 0 else out[i - 1] + x[i]

    parallel_for(x.dim(0), body)


@register("pairs")
def pairs(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    parallel_for(x.dim(0), lambda i: store(out, i // 2, x[i]))


@register("overlapping_vectors")
def overlapping_vectors(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    parallel_for(x.dim(0) - 1, lambda i: out.store(x.load(i, width=2), i))


@register("scattered_vectors")
def scattered_vectors(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], at: InputTensor[int64, "n"]):
    def body(k):
        out.scatter(x.load(2 * k, width=2), at.load(2 * k, width=2))

    parallel_for(x.dim(0) // 2, body)


@register("mixed_atomics")
def mixed_atomics(out: MutableInputTensor[int64, "m"], x: InputTensor[int64, "n"]):
    def body(i):
        if i % 2 == 0:
            atomic_add(out, x[i], 1)
        else:
            out[x[i]] += 1

    parallel_for(x.dim(0), body)


# *** right ***


@register("first_alone")
def first_alone(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"]):
    def body(i):
        if i == 0:
            out[0] = x[i]

    parallel_for(x.dim(0), body)


@register("any_positive")
def any_positive(out: OutputTensor[int64, "1"], x: InputTensor[float32, "n"]):
    out[0] = 0

    def body(i):
        if x[i] > 0:
            out[0] = 1

    parallel_for(x.dim(0), body)


@register("find_unique")
def find_unique(out: OutputTensor[int64, "1"], x: InputTensor[float32, "n"], wanted: InputTensor[float32, ""]):
    out[0] = -1

    def body(i):
        if x[i] == wanted[()]:
            out[0] = i

    parallel_for(x.dim(0), body)


@register("rows")
def rows(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "n m"]):
    def body(i):
        row = out[i, :]
        total = 0.0
        for j in range(x.dim(1)):
            total += x[i, j]
            row[j] = total
            out[i, j] += 1.0

    parallel_for(x.dim(0), body)


@register("own_storage")
def own_storage(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def body(i):
        kept = stack[float32](2)
        kept[0] = x[i]
        kept[1] = kept[0] + kept[0]
        out[i] = kept[1]

    parallel_for(x.dim(0), body)


@register("counted")
def counted(out: MutableInputTensor[int64, "m"], x: InputTensor[int64, "n"]):
    parallel_for(x.dim(0), lambda i: atomic_add(out, x[i], 1))


@register("claimed")
def claimed(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):
    def body(low, high):
        for k in range(low, high):
            out[k] = x[k]

    parallel_chunks(x.dim(0), body, grain=2)


@register("two_loops")
def two_loops(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    parallel_for(x.dim(0), lambda i: store(out, x.dim(0) - 1 - i, x[i]))
    parallel_for(x.dim(0), lambda i: store(out, i, out[i] * 2))


@register("digits")
def digits(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "n m"]):
    def body(k):
        r, c = k // x.dim(1), k % x.dim(1)
        out[r, c] = x[r, c]

    parallel_for(x.dim(0) * x.dim(1), body)
