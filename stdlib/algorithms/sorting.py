"""`sort`, `argsort` and `top_k` of short rows, each by one thread in storage of its own.

    sort(out, x)                                      # rows in ascending order, at most 1024 elements each
    argsort(places, x, descending=True, limit=64)
    top_k(values, places, x, 5)

All are stable: equal elements keep their order, -0.0 and 0.0 are equal, and NaN comes last whatever the direction is.

Rows are sorted in runs of 16 by insertion, then runs are merged pairwise, between two halves of the storage. `top_k`
keeps the best so far in order and inserts what beats the last of them. On a GPU the threads of a block sort a row in
shared memory, by Batcher's bitonic network; and those of a warp or of a block look k times for the first element behind
those that they have found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyDType,
    AnyTensor,
    Element,
    Index,
    Int,
    Integral,
    Parts,
    bool8,
    ceildiv,
    compiled_for,
    gpu,
    int32,
    min,
    parallel_for,
    select,
    stack,
    static_assert,
    uint8,
    within_parallel,
)
from .algorithm import highest, key_dtype, lowest, order_key, product, same_sizes, unravelled
from .monoid import Monoid
from .monoids import NO_PLACE
from .rows import TASK, same
from .teams import THREADS, in_teams, reduced, thread_of

MOST_SHARED = 2048  # elements of a row that shared memory has room for
RUN = 16  # elements that are sorted by insertion


def sort(
    out: AnyTensor,
    x: AnyTensor,
    *,
    axis: int = -1,
    descending: bool = False,
    key: Callable[[Parts], Parts] = same,
    limit: int = 1024,
) -> None:
    """Stores the elements of x in order along `axis` into `out`, which has the same shape and dtype.

    Args:
        out, x: tensors.
        axis: the axis along which elements are sorted.
        descending: whether the largest come first.
        key: a function of an element; what it gives is compared.
        limit: how many elements a row has at most, known at compile time: it sets the size of the storage. A longer
            row stops the op with a `KernelError`.
    """
    same_sizes(out, x)
    _sorted(x, axis, descending, key, limit, lambda at, place, value: out.store(value, *at))


def argsort(
    out: AnyTensor,
    x: AnyTensor,
    *,
    axis: int = -1,
    descending: bool = False,
    key: Callable[[Parts], Parts] = same,
    limit: int = 1024,
) -> None:
    """Stores the places of the elements of x, in the order in which `sort` has them, into `out`: indices along
    `axis`.
    """
    same_sizes(out, x)
    _sorted(x, axis, descending, key, limit, lambda at, place, value: out.store(place.cast(out.dtype), *at))


def top_k(
    values: AnyTensor,
    places: AnyTensor,
    x: AnyTensor,
    k: int,
    *,
    axis: int = -1,
    descending: bool = True,
    key: Callable[[Parts], Parts] = same,
) -> None:
    """Stores the k first elements along `axis` in the order of `sort`, and their places, into `values` and `places`.

    Args:
        values, places: tensors with k elements along `axis`; None for what is not wanted.
        x: a tensor with at least k elements along `axis`; it may be long.
        k: how many, known at compile time.
        axis, descending, key: as in `sort`; the largest elements come first unless `descending` is False.
    """
    axis = axis % x.rank
    static_assert(k >= 1, "top_k takes at least one element")
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    n = x.dim(axis)
    _has_room(values, x, axis, k)
    _has_room(places, x, axis, k)

    def row(number: Index):
        lead = unravelled(number, sizes)
        assert n >= k, f"top_k is to find {k} of {n} elements"
        keys = stack[keys_of(x, key)](k, zeroed=False)
        at = stack[int32](k)
        for place in range(n):
            result = key_of(x, key, descending, (lead[:axis], place, lead[axis:]))
            if place < k or result < keys[k - 1]:
                j = min(place, k - 1)
                while j > 0 and keys[j - 1] > result:
                    keys[j] = keys[j - 1]
                    at[j] = at[j - 1]
                    j -= 1
                keys[j] = result
                at[j] = int32(place)
        for j in range(k):
            if values != None:  # noqa: E711
                values[lead[:axis], j, lead[axis:]] = x[lead[:axis], at[j], lead[axis:]]
            if places != None:  # noqa: E711
                places[lead[:axis], j, lead[axis:]] = at[j].cast(places.dtype)

    if compiled_for().is_gpu and not within_parallel():
        assert n >= k, f"top_k is to find {k} of {n} elements"
        _top_k_by_team(values, places, x, k, axis, descending, key)
    else:
        parallel_for(product(sizes), row, grain=ceildiv(TASK, 4 * n + 16))


class Earliest(Monoid):
    """The pair of a key and its place that comes first: the smallest key, and of equals the smallest place."""

    @staticmethod
    def identity(dtype: tuple[AnyDType, AnyDType]):
        return dtype[0](highest(dtype[0])), int32(NO_PLACE)

    @staticmethod
    def lift(value: tuple[Integral, Integral], place: Integral):
        return value

    @staticmethod
    def combine(a: tuple[Integral, Integral], b: tuple[Integral, Integral]):
        other = (b[0] < a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
        return select(other, b[0], a[0]), select(other, b[1], a[1])

    @staticmethod
    def finish(state: tuple[Integral, Integral], dtype: tuple[AnyDType, AnyDType]):
        return state


def _top_k_by_team(
    values: AnyTensor,
    places: AnyTensor,
    x: AnyTensor,
    k: int,
    axis: int,
    descending: bool,
    key: Callable[[Parts], Parts],
) -> None:
    """On a GPU: the first element, then the first behind that, and so on."""
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    n = x.dim(axis)
    keys = keys_of(x, key)

    def row(number: Index, team: int):
        lead = unravelled(number, sizes)
        last = keys(lowest(keys)), int32(-1)
        for j in range(k):

            def left(place: Index):
                result, at = key_of(x, key, descending, (lead[:axis], place, lead[axis:])), int32(place)
                is_left = (result > last[0]) | ((result == last[0]) & (at > last[1]))  # noqa: B023
                return select(is_left, result, highest(keys)), select(is_left, at, NO_PLACE)

            last = reduced(team, n, left, Earliest, (keys, int32))
            if thread_of(team) == 0:
                if values != None:  # noqa: E711
                    values[lead[:axis], j, lead[axis:]] = x[lead[:axis], last[1], lead[axis:]]
                if places != None:  # noqa: E711
                    places[lead[:axis], j, lead[axis:]] = last[1].cast(places.dtype)

    in_teams(product(sizes), n, row)


def _has_room(out: AnyTensor, x: AnyTensor, axis: int, k: int) -> None:
    """Stops the op unless a result of `top_k`, if it is wanted, has k elements along the axis."""
    if out != None:  # noqa: E711
        same_sizes(out, x, axis)
        assert out.dim(axis) >= k, f"top_k stores {k} elements along axis {axis}, which has {out.dim(axis)}"


def keys_of(x: AnyTensor, key: Callable[[Parts], Parts]) -> Any:
    """The dtype of `key_of`."""
    return key_dtype(_number(key(x.dtype(False if x.dtype == bool8 else 0))).dtype)


def _number(value: Element) -> Any:
    """What can be compared: False is before True."""
    return value.cast(uint8) if value.dtype == bool8 else value


def key_of(
    x: AnyTensor, key: Callable[[Parts], Parts], descending: bool, at: tuple[Index | tuple[Index, ...], ...]
) -> Any:
    """An integer that is smaller the earlier an element comes, and largest for NaN."""
    value = _number(key(x[at]))
    value = value + 0 if value.dtype.is_float() else value  # makes -0.0 equal to 0.0
    if descending:
        return ~order_key(value, lowest(key_dtype(value.dtype)))
    return order_key(value, highest(key_dtype(value.dtype)))


def _sorted(
    x: AnyTensor,
    axis: int,
    descending: bool,
    key: Callable[[Parts], Parts],
    limit: int,
    put: Callable[[tuple[Index, ...], Integral, Parts], None],
) -> None:
    """Calls put(index, place, element) for every index of x, with the element that belongs there and where it was."""
    axis = axis % x.rank
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    n = x.dim(axis)

    def row(number: Index):
        lead = unravelled(number, sizes)
        assert n <= limit, f"a row of {n} elements is longer than limit={limit}"
        keys = stack[keys_of(x, key)](2 * limit, zeroed=False)
        places = stack[int32](2 * limit, zeroed=False)
        for k in range(n):
            keys[k] = key_of(x, key, descending, (lead[:axis], k, lead[axis:]))
            places[k] = int32(k)
        _insert(keys, places, n)
        first = _merge(keys, places, n, limit)
        for k in range(n):
            place = places[first + k]
            put((*lead[:axis], k, *lead[axis:]), place, x[lead[:axis], place, lead[axis:]])

    if compiled_for().is_gpu and limit <= MOST_SHARED and not within_parallel():
        assert n <= limit, f"a row of {n} elements is longer than limit={limit}"
        _sorted_by_block(x, axis, descending, key, limit, put)
    else:
        parallel_for(product(sizes), row, grain=ceildiv(TASK, 16 * n + 16))


def _sorted_by_block(
    x: AnyTensor,
    axis: int,
    descending: bool,
    key: Callable[[Parts], Parts],
    limit: int,
    put: Callable[[tuple[Index, ...], Integral, Parts], None],
) -> None:
    """On a GPU: a block sorts a row in shared memory."""
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    n = x.dim(axis)

    def block():
        lead = unravelled(gpu.block_idx.x, sizes)
        keys, places = gpu.shared[keys_of(x, key)](limit), gpu.shared[int32](limit)
        for k in range(gpu.thread_idx.x, n, THREADS):
            keys[k] = key_of(x, key, descending, (lead[:axis], k, lead[axis:]))
            places[k] = int32(k)

        def order(i: Index, j: Index):
            if (keys[i] > keys[j]) | ((keys[i] == keys[j]) & (places[i] > places[j])):
                keys[i], keys[j] = keys[j], keys[i]
                places[i], places[j] = places[j], places[i]

        order_by_block(n, order)
        for k in range(gpu.thread_idx.x, n, THREADS):
            put((*lead[:axis], k, *lead[axis:]), places[k], x[lead[:axis], places[k], lead[axis:]])

    gpu.launch(block, grid=product(sizes), block=THREADS)


def order_by_block(n: Index, order: Callable[[Index, Index], None]) -> None:
    """Sorts n elements by the threads of a block, which may write them before and read them behind it.

    order(i, j), with i < j, lets two elements change places if they are in the wrong order. In a round two sorted parts
    become one: the first step compares their elements with one of them turned round, so that all steps have one
    direction, and what would be behind the last element stays there.
    """
    gpu.barrier()
    size = Int(2)
    while size < 2 * n:
        half = size // 2
        for pair in range(gpu.thread_idx.x, ceildiv(n, size) * half, THREADS):
            first = pair // half * size
            j = first + size - 1 - pair % half
            if j < n:
                order(first + pair % half, j)
        gpu.barrier()
        stride = half // 2
        while stride > 0:
            for pair in range(gpu.thread_idx.x, ceildiv(n, size) * half, THREADS):
                i = pair // stride * (2 * stride) + pair % stride
                if i + stride < n:
                    order(i, i + stride)
            gpu.barrier()
            stride = stride // 2
        size = size * 2


def _insert(keys: AnyTensor, places: AnyTensor, n: Index) -> None:
    """Sorts runs of the first n elements by insertion."""
    for first in range(0, n, RUN):
        for k in range(first + 1, min(first + RUN, n)):
            key = keys[k]
            place = places[k]
            j = k
            while j > first and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                places[j] = places[j - 1]
                j -= 1
            keys[j] = key
            places[j] = place


def _merge(keys: AnyTensor, places: AnyTensor, n: Index, limit: int) -> Any:
    """Merges the sorted runs; returns where the result begins: in the first or in the second half of the memory."""
    run = RUN + n * 0
    source = n * 0
    while run < n:
        target = limit - source
        for number in range(ceildiv(n, 2 * run)):
            first = number * 2 * run
            middle = min(first + run, n)
            last = min(first + 2 * run, n)
            i = first
            j = middle
            for k in range(first, last):
                # Of equals the left one comes first. An index that is used up points at something that is not taken.
                a = keys[source + min(i, n - 1)]
                b = keys[source + min(j, n - 1)]
                left = (j >= last) | ((i < middle) & (a <= b))
                keys[target + k] = select(left, a, b)
                places[target + k] = places[source + select(left, i, j)]
                i = select(left, i + 1, i)
                j = select(left, j, j + 1)
        source = target
        run = run * 2
    return source
