"""Helpers of several families of kernels: dtypes and orders of elements, index arithmetic, slices."""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Element,
    Index,
    Integral,
    Number,
    Numeric,
    bitcast,
    bool8,
    compiled_for,
    float32,
    float64,
    int16,
    int32,
    int64,
    isnan,
    select,
    static_assert,
    uint32,
    uint64,
    unroll,
)

# *** dtypes ***


def wide_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype in which elements of `dtype` are accumulated: float32 for half types, else `dtype` itself."""
    return float32 if dtype.is_half() else dtype


def sum_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype of sums and products, as in NumPy: int64 or uint64 of integers, int64 of bools, else `dtype` itself."""
    if dtype.is_float():
        return dtype
    return int64 if dtype == bool8 or dtype.is_signed() else uint64


def block_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype in which at most 16384 elements are added up: 32 bits wide for integers of 16 bits and less."""
    if dtype.is_float():
        return wide_dtype(dtype)
    if dtype == bool8 or dtype.bits <= 16:
        return int32 if sum_dtype(dtype) == int64 else uint32
    return sum_dtype(dtype)


def total_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype in which sums of many elements are added up: float64 for floats, int64 or uint64 for integers."""
    return float64 if dtype.is_float() else sum_dtype(dtype)


def widened(x: Number) -> Any:
    """`x` in the dtype of `wide_dtype`."""
    return x.cast(wide_dtype(x.dtype))


def summand(x: Numeric) -> Any:
    """`x` as a term of sums: in the dtype of `sum_dtype`, half types in float32."""
    return x.cast(sum_dtype(wide_dtype(x.dtype)))


# *** order ***


def key_dtype(dtype: AnyDType) -> Any:
    """The integers that order elements of `dtype`; see `order_key`."""
    if not dtype.is_float():
        return dtype
    return int16 if dtype.bits == 16 else int32 if dtype.bits == 32 else int64


def lowest(dtype: AnyDType) -> Any:
    """The smallest number of an integer dtype."""
    return -(1 << (dtype.bits - 1)) if dtype.is_signed() else 0


def highest(dtype: AnyDType) -> Any:
    """The largest number of an integer dtype."""
    return (1 << (dtype.bits - 1)) - 1 if dtype.is_signed() else (1 << dtype.bits) - 1


def order_key(x: Numeric, nan: int) -> Any:
    """An integer that stands where x stands: smaller for smaller x, -0.0 below 0.0, and `nan` for NaN.

    Positive floats order as their bits do; negative ones the other way round, so all bits but the sign are turned over.
    """
    if not x.dtype.is_float():
        return x
    bits = bitcast(x, key_dtype(x.dtype))
    return select(isnan(x), nan, select(bits < 0, bits ^ highest(bits.dtype), bits))


def of_order_key(key: Integral, dtype: AnyDType) -> Any:
    """The element of `dtype` that has this key; NaN for the keys that no number has."""
    if not dtype.is_float():
        return key
    return bitcast(select(key < 0, key ^ highest(key.dtype), key), dtype)


# *** indices ***


def same_sizes(x: AnyTensor, other: AnyTensor, axis: int | None = None) -> None:
    """Stops the op unless x and the other tensor have the same sizes; along `axis` x may have any."""
    static_assert(x.rank == other.rank, "these tensors have as many axes as each other")
    for k in unroll(x.rank):
        if axis != k:
            assert x.dim(k) == other.dim(k), f"sizes differ along axis {k}: {x.dim(k)} and {other.dim(k)}"


def product(sizes: tuple[Index, ...]) -> Any:
    """The product of a tuple of sizes; 1 of an empty one."""
    total = 1
    for k in unroll(len(sizes)):
        total = total * sizes[k]
    return total


def unravelled(position: Index, sizes: tuple[Index, ...]) -> Any:
    """The index, as a tuple, of a row-major position over axes of these sizes."""
    index: Any = ()
    rest = position
    for k in unroll(len(sizes)):
        size = max(sizes[len(sizes) - 1 - k], 1)
        if k == len(sizes) - 1:
            index = (rest, *index)
        else:
            index = (rest % size, *index)
            rest = rest // size
    return index


# *** vectors ***


def every(x: AnyTensor, index: tuple[Index, ...], width: int, stride: int, mask: Element) -> Any:
    """Every `stride`-th of the elements from an index on along the last axis; `stride` is a compile-time number.

    Every second one is taken from vectors twice as wide, which is faster than to fetch each by itself.
    """
    if stride == 2 and width > 1 and not compiled_for().is_gpu:
        there = SIMD[bool8, width](mask)
        even = there.interleave(SIMD[bool8, width](False))
        return x.load(*index, width=2 * width, mask=even).deinterleave()[0]
    return x.load(*index, width=width, stride=stride, mask=mask)


# *** slices ***


def start_of(starts: tuple[int, ...], given_at: tuple[int, ...], axis: int, given: AnyTensor, size: Index) -> Any:
    """Where a slice begins on an axis of this size: at `starts[axis]`, or at `given[given_at[axis]]` unless that is
    negative. Negative starts count from the end."""
    if given_at[axis] < 0:
        start = starts[axis]
        return start if start >= 0 else size + start
    begin = given[given_at[axis]]
    return begin + size if begin < 0 else begin
