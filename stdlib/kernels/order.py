"""Orders the elements of rows of any length, and finds the first of them.

Keys are integers in the order of the elements, upside down for descending ones, with NaN last. Rows are sorted by
their digits of 8 bits, the lowest first ("least significant digit" radix sort), which keeps equal elements in their
order; digits that are the same in all keys cost nothing. Short rows are sorted by insertion. Elements of up to 32 bits
are moved together with their place, as one word of 64 bits; others have a second word for it.

On a GPU the threads of a block sort a row, by a bitonic network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Element,
    Index,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    Pointer,
    bitcast,
    ceildiv,
    compiled_for,
    foreach,
    gpu,
    int32,
    int64,
    parallel_for,
    register,
    stack,
    uint8,
    uint16,
    uint32,
    uint64,
    unroll,
)
from ..algorithms import sorting
from ..algorithms.algorithm import product, unravelled
from ..algorithms.references import Array
from ..algorithms.rows import TASK, same
from ..algorithms.teams import THREADS

E = TypeVar("E", bound=Element)

INSERTED = 32  # elements of a row that is sorted by insertion
DIGITS = 256
PLACE = (1 << 32) - 1  # the bits of a word that hold a place


@register("sort")
def sort(
    out: OutputTensor[E, "*a n"],
    work: OutputTensor[uint64, "(2*words) *a n"],
    x: InputTensor[E, "*a n"],
    ctx: DeviceContext,
    *,
    descending: bool,
    words: int,
) -> None:
    """The elements of each row in order. `work` has room for two copies of the words: 1, or 2 of 64-bit elements."""

    def put(lead: tuple[Index, ...], k: Index, place: Index):
        out[lead, k] = x[lead, place]

    _ordered(x, work, descending, words, put)


@register("argsort")
def argsort(
    out: OutputTensor[int64, "*a n"],
    work: OutputTensor[uint64, "(2*words) *a n"],
    x: InputTensor[E, "*a n"],
    ctx: DeviceContext,
    *,
    descending: bool,
    words: int,
) -> None:
    """The places of the elements of each row in order; `work` as for `sort`."""

    def put(lead: tuple[Index, ...], k: Index, place: Index):
        out[lead, k] = place

    _ordered(x, work, descending, words, put)


@register("sort_pairs")
def sort_pairs(
    values: OutputTensor[E, "*a n"],
    places: OutputTensor[int64, "*a n"],
    work: OutputTensor[uint64, "(2*words) *a n"],
    x: InputTensor[E, "*a n"],
    ctx: DeviceContext,
    *,
    descending: bool,
    words: int,
) -> None:
    """The elements of each row in order, and their places; `work` as for `sort`."""

    def put(lead: tuple[Index, ...], k: Index, place: Index):
        values[lead, k] = x[lead, place]
        places[lead, k] = place

    _ordered(x, work, descending, words, put)


@register("top_k")
def top_k(
    values: OutputTensor[E, "*a{axis} k *b"],
    places: OutputTensor[int64, "*a{axis} k *b"],
    x: InputTensor[E, "*a{axis} n *b"],
    ctx: DeviceContext,
    *,
    k: int,
    axis: int,
    descending: bool,
) -> None:
    """The first k elements along `axis` in the order of `sort`, and their places; for small k."""
    sorting.top_k(values, places, x, k, axis=axis, descending=descending)


@register("searchsorted")
def searchsorted(
    out: OutputTensor[int64, "*s"], row: InputTensor[E, "n"], x: InputTensor[E, "*s"], *, right: bool
) -> None:
    """How many elements of a row that is in order come before each element of x, or do not come behind it."""
    n = row.dim(0)

    def place(i: tuple[Index, ...]):
        key = sorting.key_of(x, same, False, i)
        low = Int(0)
        high = n
        while low < high:
            middle = (low + high) // 2
            result = sorting.key_of(row, same, False, (middle,))
            if result < key or (right and result == key):
                low = middle + 1
            else:
                high = middle
        return low

    foreach(out, place)


# *** references ***


def _order(x: Array, descending: bool):
    """Places in a stable order with NaN last."""
    if x.dtype.kind in "iub":
        wide = x.astype(np.int64) if x.dtype != np.uint64 else x
        return np.argsort(~wide if descending else wide, -1, kind="stable")
    wide = x.astype(np.float64) + 0.0
    return np.argsort(-wide if descending else wide, -1, kind="stable")


def _room(x: AnyTensor, words: int):
    return np.zeros((2 * words, *x.shape), np.uint64)


@sort.reference
def sort_reference(x: Array, *, descending: bool, words: int):
    return np.take_along_axis(x, _order(x, descending), -1), _room(x, words)


@argsort.reference
def argsort_reference(x: Array, *, descending: bool, words: int):
    return _order(x, descending), _room(x, words)


@sort_pairs.reference
def sort_pairs_reference(x: Array, *, descending: bool, words: int):
    order = _order(x, descending)
    return np.take_along_axis(x, order, -1), order, _room(x, words)


@top_k.reference
def top_k_reference(x: Array, *, k: int, axis: int, descending: bool):
    rows = np.moveaxis(x, axis, -1)
    places = _order(rows, descending)[..., :k]
    values = np.take_along_axis(rows, places, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


@searchsorted.reference
def searchsorted_reference(row: Array, x: Array, *, right: bool):
    if x.dtype.kind == "V" or x.dtype.name == "bfloat16":
        row, x = row.astype(np.float32), x.astype(np.float32)
    return np.searchsorted(row, x, "right" if right else "left").astype(np.int64).reshape(x.shape)


# *** words ***


def _unsigned(bits: int) -> Any:
    return uint8 if bits == 8 else uint16 if bits == 16 else uint32 if bits == 32 else uint64


def _word(x: AnyTensor, lead: tuple[Index, ...], k: Index, descending: bool) -> Any:
    """The key of an element as an unsigned number of 64 bits; of up to 32 bits in the upper half, the place below."""
    key = sorting.key_of(x, same, descending, (lead, k))
    bits = key.dtype.bits
    turned = bitcast(key, _unsigned(bits)).cast(uint64)
    if key.dtype.is_signed():
        turned = turned ^ (1 << (bits - 1))
    return turned if bits == 64 else (turned << 32) | Int(k).cast(uint64)


def _ordered(
    x: AnyTensor, work: AnyTensor, descending: bool, words: int, put: Callable[[tuple[Index, ...], Index, Index], None]
) -> None:
    """Calls put(row, k, place) for every index of x, with the place of the element that belongs there."""
    n = x.dim(-1)
    sizes = x.shape[:-1]
    first_digit = 0 if words == 2 else 32
    digits = sorting.keys_of(x, same).bits // 8

    def row(number: Index):
        lead = unravelled(number, sizes)
        assert n <= PLACE, f"a row of {n} elements is longer than 2**32 - 1"
        source = work.pointer(0, *lead, 0)
        target = work.pointer(words, *lead, 0)
        places = work.pointer(words - 1, *lead, 0)
        places_after = work.pointer(2 * words - 1, *lead, 0)
        if n <= INSERTED:
            for k in range(n):
                _insert(source, places, k, _word(x, lead, k, descending), words)
        else:
            counts = stack[int32](digits * DIGITS)
            for k in range(n):
                word = _word(x, lead, k, descending)
                source[k] = word
                if words == 2:
                    places[k] = Int(k).cast(uint64)
                for digit in unroll(digits):
                    at = DIGITS * digit + _digit(word, first_digit + 8 * digit)
                    counts[at] = counts[at] + 1
            for digit in unroll(digits):
                first = DIGITS * digit
                if counts[first + _digit(source[0], first_digit + 8 * digit)] < n.cast(int32):
                    _add_up(counts, first)
                    for k in range(n):
                        word = source[k]
                        at = first + _digit(word, first_digit + 8 * digit)
                        to = counts[at]
                        counts[at] = to + 1
                        target[to.cast(int64)] = word
                        if words == 2:
                            places_after[to.cast(int64)] = places[k]
                    source, target = target, source
                    places, places_after = places_after, places
        for k in range(n):
            put(lead, k, (places[k] & PLACE).cast(int64))

    if compiled_for().is_gpu:
        _ordered_by_block(x, work, descending, words, put)
    else:
        parallel_for(product(sizes), row, grain=ceildiv(TASK, 16 * n + 16))


def _ordered_by_block(
    x: AnyTensor, work: AnyTensor, descending: bool, words: int, put: Callable[[tuple[Index, ...], Index, Index], None]
) -> None:
    """On a GPU: the threads of a block sort the words of a row where they lie."""
    n = x.dim(-1)
    sizes = x.shape[:-1]

    def block():
        lead = unravelled(gpu.block_idx.x, sizes)
        keys, places = work.pointer(0, *lead, 0), work.pointer(words - 1, *lead, 0)
        for k in range(gpu.thread_idx.x, n, THREADS):
            keys[k] = _word(x, lead, k, descending)
            if words == 2:
                places[k] = Int(k).cast(uint64)

        def order(i: Index, j: Index):
            if (keys[i] > keys[j]) | ((keys[i] == keys[j]) & (places[i] > places[j])):
                keys[i], keys[j] = keys[j], keys[i]
                if words == 2:
                    places[i], places[j] = places[j], places[i]

        sorting.order_by_block(n, order)
        for k in range(gpu.thread_idx.x, n, THREADS):
            put(lead, k, (places[k] & PLACE).cast(int64))

    gpu.launch(block, grid=product(sizes), block=THREADS)


def _digit(word: Integral, shift: int) -> Any:
    return ((word >> shift) & (DIGITS - 1)).cast(int64)


def _add_up(counts: AnyTensor, first: int) -> None:
    """Makes of how often each digit occurs where its first element goes."""
    total = int32(0)
    for digit in range(DIGITS):
        here = counts[first + digit]
        counts[first + digit] = total
        total = total + here


def _insert(source: Pointer[uint64], places: Pointer[uint64], k: Index, word: Integral, words: int) -> None:
    """Puts a word before all larger ones."""
    j = k
    while j > 0 and source[j - 1] > word:
        source[j] = source[j - 1]
        if words == 2:
            places[j] = places[j - 1]
        j = j - 1
    source[j] = word
    if words == 2:
        places[j] = Int(k).cast(uint64)
