"""Kernels that reach memory by masks, steps, indices, pointers and atomics."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Element,
    InputTensor,
    Int,
    Integral,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    Pointer,
    Storable,
    atomic,
    atomic_add,
    bool8,
    int64,
    iota,
    min,
    parallel_for,
    register,
    stack,
)

E = TypeVar("E", bound=Storable)
N = TypeVar("N", bound=Numeric)
I = TypeVar("I", bound=Integral)  # noqa: E741
T = TypeVar("T", bound=Element)


@register("reads")
def reads(
    o: OutputTensor[E, "8 n w"],
    x: InputTensor[E, "n w2"],
    m: InputTensor[bool8, "n w"],
    k: InputTensor[I, "n w"],
    *,
    w: int = 8,
) -> None:
    """Rows of twice the width, read in all ways: by the tensor and by a pointer."""
    for i in range(o.dim(1)):
        mask = m.load(i, 0, width=w)
        at = k.load(i, 0, width=w)
        other = x.load(i, w, width=w)
        p = x.pointer(i, 1)
        o.store(x.load(i, 0, width=w, mask=mask), 0, i, 0)
        o.store(x.load(i, 0, width=w, mask=mask, other=other), 1, i, 0)
        o.store(x.load(i, 1, width=w, stride=2, mask=mask, other=other), 2, i, 0)
        o.store(x.gather(i, at), 3, i, 0)
        o.store(x.gather(i, at, mask=mask, other=other), 4, i, 0)
        o.store(p.load(2, width=w, stride=1, align=1 if E.bits < 16 else E.bits // 8), 5, i, 0)
        o.store((p - 1).gather(at, mask=mask, other=other), 6, i, 0)
        o.store(p.load(width=w, stride=w // w + 1, mask=mask, other=other[0]), 7, i, 0)


@register("writes")
def writes(
    o: MutableInputTensor[E, "6 n w2"],
    x: InputTensor[E, "n w"],
    m: InputTensor[bool8, "n w"],
    k: InputTensor[I, "n w"],
    *,
    w: int = 8,
) -> None:
    for i in range(x.dim(0)):
        mask = m.load(i, 0, width=w)
        at = k.load(i, 0, width=w)
        v = x.load(i, 0, width=w)
        o.store(v, 0, i, 3, mask=mask)
        o.store(v, 1, i, 1, stride=2, mask=mask)
        o.scatter(v, 2, i, at)
        o.scatter(v, 3, i, at, mask=mask)
        p = o.pointer(4, i, 0)
        p.store(v, 3, mask=mask)
        q = o.pointer(5, i, 0) + 1
        q.store(v, stride=2)
        q[-1] = v[0]


@register("scalars")
def scalars(o: MutableInputTensor[E, "4 n"], x: InputTensor[E, "n"], m: InputTensor[bool8, "n"]) -> None:
    """The same with a width of 1."""
    for i in range(x.dim(0)):
        o[0, i] = x.load(i, mask=m[i], other=x[0])
        o[1, i] = x.gather(i, mask=m[i])
        o.store(x[i], 2, i, mask=m[i])
        o.scatter(x[i], 3, i, mask=m[i])


@register("views")
def views(o: MutableInputTensor[E, "3 8 8"], x: InputTensor[E, "8 8"], m: InputTensor[bool8, "8"]) -> None:
    """Columns and every other element: neighbours of a slice that are not neighbours in memory."""
    mask = m.load(0, width=8)
    for c in range(8):
        column = x[:, c]
        o[0, :, :].store(column.load(0, width=8), c, 0)
        o[1, :, c].store(column.load(0, width=8, mask=mask, other=column.load(0, width=8).reverse()), 0)
        o[2, c, ::2].store(x[c, ::2].load(0, width=4).reverse(), 0)
        o[2, c, 1::2].store(x[c, 1::2].load(0, width=2, stride=2), 0, stride=2)
        o[2, 7 - c, :].pointer()[3] = column[3:].load(0)


def total(p: Pointer[N], n: Int):
    """The sum of n elements."""
    end = n
    acc = p[0] * 0
    while end >= 4:
        acc += p.load(width=4).reduce_add().cast(N)
        p += 4
        end -= 4
    for j in range(end):
        acc += p[j]
    return acc


def later(p, q, flip):
    r = p
    if flip:
        r = q
    return r


@register("walks")
def walks(o: OutputTensor[N, "6 n"], x: InputTensor[N, "n m"]) -> None:
    """Pointers in functions, branches, loops and storage."""
    for i in range(x.dim(0)):
        row = x.pointer(i, 0)
        o[0, i] = total(row, x.dim(1))
        o[1, i] = later(row, row + 1, i % 2 == 1)[1] + (row + 2 if i % 2 == 0 else row)[0]
        buffer = stack[N](16)
        start = buffer.pointer()
        a, b = start, start + 8
        for j in range(x.dim(1)):
            a[0] = x[i, j]
            a, b = b, a
        o[2, i], o[3, i] = buffer[0], buffer[8]
        start.store(iota(N, 8), 1)
        o[4, i] = total(8 + start - 7, 4)
        k = 0
        p = row
        while k < 3:
            k += 1
            if k == 2:
                continue
            p = p + k
        o[5, i] = p[0]
        x.prefetch(min(i + 1, x.dim(0) - 1), 0)
        row.prefetch(4, locality=0, write=True)


@register("atomics")
def atomics(o: MutableInputTensor[N, "13 n"], old: OutputTensor[N, "13 n"], x: InputTensor[N, "n"]) -> None:
    def one(i):
        v = x[i]
        old[0, i] = atomic.add(o, (0, i), v)
        old[1, i] = atomic.sub(o, (1, i), v, ordering="acquire")
        old[2, i] = atomic.min(o, (2, i), v, ordering="release")
        old[3, i] = atomic.max(o, (3, i), v, ordering="acq_rel")
        old[4, i] = atomic.exchange(o, (4, i), v, ordering="seq_cst")
        old[5, i] = atomic.compare_exchange(o, (5, i), x[0], v)
        old[6, i] = atomic.compare_exchange(o.pointer(6, 0), i, o[6, i], v, ordering="acq_rel")
        old[7, i] = atomic.load(o[7, :], i)
        old[8, i] = atomic.load(x, i, ordering="acquire")
        atomic.store(o, (9, i), v, ordering="release")
        old[9, i] = v
        atomic_add(o, (10, i), v)
        old[10, i] = v
        old[11, i] = atomic.max(o[11, :], i, 3)
        mine = stack[N](2)
        atomic.add(mine, 1, v)
        old[12, i] = atomic.exchange(mine.pointer(), 1, v)
        atomic.store(o.pointer(12, i), 0, mine[1])

    parallel_for(x.dim(0), one, grain=64)


@register("atomic_bits")
def atomic_bits(o: MutableInputTensor[I, "3 n"], old: OutputTensor[I, "3 n"], x: InputTensor[I, "n"]) -> None:
    def one(i):
        old[0, i] = atomic.and_(o, (0, i), x[i])
        old[1, i] = atomic.or_(o, (1, i), x[i])
        old[2, i] = atomic.xor(o, (2, i), x[i])

    parallel_for(x.dim(0), one, grain=64)


@register("contended")
def contended(o: MutableInputTensor[N, "4"], x: InputTensor[N, "n"]) -> None:
    """Every thread at the same elements: what comes out does not depend on which comes first."""

    def one(i):
        atomic.add(o, 0, 1)
        atomic.max(o, 1, x[i])
        atomic.min(o, 2, x[i])
        seen = atomic.load(o, 3)
        tries = 0
        while tries < 100000:
            tries += 1
            result = atomic.compare_exchange(o, 3, seen, seen + 1)
            if result == seen:
                break
            seen = result

    parallel_for(x.dim(0), one, grain=8)


@register("on_gpus")
def on_gpus(
    o: MutableInputTensor[N, "n 8"],
    x: InputTensor[N, "n 8"],
    m: InputTensor[bool8, "n 8"],
    k: InputTensor[int64, "n 8"],
) -> None:
    """All of it, in a form that GPUs run."""

    def row(i):
        mask = m.load(i, 0, width=8)
        at = k.load(i, 0, width=8) & 7
        p = x.pointer(i, 0)
        x.prefetch(i, 0, locality=2)
        v = (
            x.load(i, 0, width=8, mask=mask, other=1)
            + p.gather(at, mask=~mask)
            + p.load(width=4, stride=2).join(p.load(width=4))
        )
        o.store(v, i, 0, mask=mask)
        o.scatter(v, i, at, mask=mask)
        q = o.pointer(i, 0)
        for j in range(3):
            atomic.add(q, 0, v[0], ordering="acq_rel")
            atomic.max(q, j, v[1])
            if atomic.compare_exchange(q, 1, v[2], v[3], ordering="seq_cst") == v[2]:
                atomic.exchange(q, 2, atomic.load(q, 1, ordering="acquire"))
            q += 1
        atomic.store(o, (i, 7), v[7], ordering="release")

    parallel_for(x.dim(0), row)


@register("gathered")
def gathered(
    o: OutputTensor[T, "n"], x: InputTensor[T, "m"], k: InputTensor[I, "n"], m: InputTensor[bool8, "n"], *, w: int = 8
) -> None:
    for b in range(0, o.dim(0), w):
        o.store(x.gather(k.load(b, width=w), mask=m.load(b, width=w)), b)


@register("scattered")
def scattered(
    o: MutableInputTensor[T, "m"],
    x: InputTensor[T, "n"],
    k: InputTensor[I, "n"],
    m: InputTensor[bool8, "n"],
    *,
    w: int = 8,
) -> None:
    for b in range(0, x.dim(0), w):
        v = x.load(b, width=w, mask=m.load(b, width=w))
        o.scatter(v, k.load(b, width=w), mask=m.load(b, width=w))
        o.store(v, b, mask=m.load(b, width=w))


@register("alias")
def alias(o: MutableInputTensor[N, "n"]) -> None:
    """A pointer and its tensor, both from outside of the tasks: each sees what the other stores."""
    p = o.pointer() + 1

    def body(i):
        o[i] = o[i] + 1
        p[i - 1] = p[i - 1] * 2
        o[i] = o[i] + 3

    parallel_for(o.dim(0), body)


def find(p, n, least):
    """Where the first number above `least` lies."""
    for i in range(n):
        if p[i] > least:
            return p + i
    return p


@register("returned")
def returned(o: OutputTensor[N, "n 2"], x: InputTensor[N, "n m"]) -> None:
    for i in range(x.dim(0)):
        p = find(x.pointer(i, 0), x.dim(1), 3)
        o.store(p.load(width=2), i, 0)


@register("stacks")
def stacks(o: OutputTensor[E, "n 2 8"], x: InputTensor[E, "n 16"]) -> None:
    """Storage of three axes and of one: vectors go in and come out."""

    def row(i):
        a = stack[E](2, 2, 4)
        b = stack[E](16, zeroed=False)
        for j in range(2):
            a.store(x.load(i, 8 * j, width=4), j, 0, 0)
            a.store(x.load(i, 8 * j + 4, width=4), j, 1, 0)
        b.store(a[0, 1, :].load(0, width=4).join(a[1, 0, :].load(0, width=4)), 0)
        for j in range(8, 16):
            b[j] = a[(j - 8) // 4, 0, j % 4]
        o.store(b.load(0, width=8), i, 0, 0)
        o.store(b.load(8, width=8), i, 1, 0)

    parallel_for(x.dim(0), row)
