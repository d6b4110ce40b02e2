"""Kernels that use the public algorithms, for `test_rows`."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from einkorn.dsl import (
    Element,
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    abs,
    bool8,
    float32,
    float64,
    int64,
    max,
    min,
    register,
    store,
    struct,
)
from einkorn.stdlib import All, Any, ArgMax, ArgMin, LogSumExp, Max, Min, Monoid, Product, Sum, Welford, reduce, rowwise

E = TypeVar("E", bound=Element)
N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)


@register("totals")
def totals(
    a: OutputTensor[N, "*p{axis} *q"],
    b: OutputTensor[N, "*p{axis} *q"],
    c: OutputTensor[N, "*p{axis} *q"],
    x: InputTensor[N, "*p{axis} n *q"],
    *,
    axis: int,
):
    def put(row, total, largest, smallest):
        a[row] = total.cast(N)
        b[row] = largest
        c[row] = smallest

    rowwise(x, (Sum, Max, Min), put, axis=axis, abreast=True)


@register("places")
def places(
    a: OutputTensor[int64, "*p{axis} *q"],
    b: OutputTensor[int64, "*p{axis} *q"],
    x: InputTensor[N, "*p{axis} n *q"],
    *,
    axis: int,
):
    def put(row, first, second):
        a[row] = first
        b[row] = second

    rowwise(x, (ArgMax, ArgMin), put, axis=axis, abreast=True)


@register("moments")
def moments(
    mean: OutputTensor[F, "*p{axis} *q"],
    variance: OutputTensor[F, "*p{axis} *q"],
    powers: OutputTensor[F, "*p{axis} *q"],
    x: InputTensor[F, "*p{axis} n *q"],
    *,
    axis: int,
):
    def put(row, found, power):
        mean[row], variance[row] = found
        powers[row] = power

    rowwise(x, (Welford, LogSumExp), put, axis=axis, abreast=True)


@register("truths")
def truths(some: OutputTensor[bool8, "*p"], all_: OutputTensor[bool8, "*p"], x: InputTensor[E, "*p n"]):
    def put(row, a, b):
        some[row] = a
        all_[row] = b

    rowwise(x, (Any, All), put, abreast=True)


@register("product")
def product(out: OutputTensor[N, "*p"], x: InputTensor[N, "*p n"]):
    rowwise(x, Product, lambda row, value: store(out, row, value.cast(N)), abreast=True)


@register("of_everything")
def of_everything(out: OutputTensor[float32, "3"], x: InputTensor[float32, "*s"]):
    def put(row, largest, total):
        out[0] = largest
        out[1] = total

    rowwise(x, (Max, Sum), put, axis=None)
    out[2] = reduce(x, Sum)


@register("dots")
def dots(out: OutputTensor[float32, "m"], x: InputTensor[F, "m n"], w: InputTensor[F, "n"]):
    """The rows of x times w, added up in float32."""

    def product_of(a, b):
        return a.cast(float32) * b.cast(float32)

    rowwise((x, w), Sum, lambda row, total: store(out, row, total), of=product_of, abreast=True)


@register("dots_of_columns")
def dots_of_columns(out: OutputTensor[float32, "n"], x: InputTensor[float32, "m n"], w: InputTensor[float32, "m"]):
    rowwise((x, w), Sum, lambda row, total: store(out, row, total), of=lambda a, b: a * b, axis=0)


@register("extremes_of_parts")
def extremes_of_parts(
    largest: OutputTensor[N, "m"],
    smallest: OutputTensor[N, "m"],
    first: OutputTensor[int64, "m"],
    second: OutputTensor[int64, "m"],
    x: InputTensor[N, "k"],
    begins: InputTensor[int64, "m"],
    ends: InputTensor[int64, "m"],
):
    """Each monoid alone, over elements begins[i]..ends[i]-1."""
    for i in range(begins.dim(0)):
        part = x[begins[i] : ends[i]]
        largest[i] = reduce(part, Max)
        smallest[i] = reduce(part, Min)
        first[i] = reduce(part, ArgMax)
        second[i] = reduce(part, ArgMin)


@register("extremes_of_strided")
def extremes_of_strided(
    largest: OutputTensor[N, "m"],
    smallest: OutputTensor[N, "m"],
    first: OutputTensor[int64, "m"],
    second: OutputTensor[int64, "m"],
    x: InputTensor[N, "m n"],
):
    """Each monoid alone, over every other element of the rows but the first three."""
    part = x[:, 3::2]
    rowwise(part, Max, lambda row, value: store(largest, row, value))
    rowwise(part, Min, lambda row, value: store(smallest, row, value))
    rowwise(part, ArgMax, lambda row, place: store(first, row, place))
    rowwise(part, ArgMin, lambda row, place: store(second, row, place))


class Farthest(Max):
    """The largest distance from 0: what is faster for `Max` is not for what this one changes."""

    @staticmethod
    def lift(value, place):
        return Max.lift(abs(value), place)


@register("farthest")
def farthest(out: OutputTensor[F, "m"], x: InputTensor[F, "m n"]):
    rowwise(x, Farthest, lambda row, value: store(out, row, value))


class Composed(Monoid):
    """x -> a * x + b, one after the other: not commutative, so there is one lane."""

    lanes = 1

    @staticmethod
    def identity(dtype):
        return int64(1), int64(0)

    @staticmethod
    def lift(value, place):
        return value % 3 + 1, value

    @staticmethod
    def combine(first, second):
        return first[0] * second[0], first[1] * second[0] + second[1]

    @staticmethod
    def finish(state, dtype):
        return state[0] + state[1]


class Squares(Sum):
    @staticmethod
    def lift(value, place):
        return value * value


@register("composed")
def composed(out: OutputTensor[int64, "m"], squares: OutputTensor[int64, "m"], x: InputTensor[int64, "m n"]):
    def put(row, found, square):
        out[row] = found
        squares[row] = square

    rowwise(x, (Composed, Squares), put, abreast=True)


@struct
class Extent:
    low: F
    high: F


@struct
class Summary:
    """What was seen of elements: a struct in a struct, a tuple, and a field that is known at compile time."""

    extent: Extent
    sums: tuple[N]
    name: str


class Summarised(Monoid):
    lanes = 32

    @staticmethod
    def identity(dtype):
        wide = dtype if dtype == float64 else float32
        return Summary(Extent(dtype(inf), dtype(-inf)), (wide(0),), "seen")

    @staticmethod
    def lift(value, place):
        return Summary(Extent(value, value), (value.cast(float64 if value.dtype == float64 else float32),), "seen")

    @staticmethod
    def combine(a, b):
        extent = Extent(min(a.extent.low, b.extent.low), max(a.extent.high, b.extent.high))
        return Summary(extent, (a.sums[0] + b.sums[0],), a.name)

    @staticmethod
    def settle(state, first):
        return Summary(state.extent, (state.sums[0].cast(float64),), state.name)

    @staticmethod
    def finish(state, dtype):
        return state.extent.high - state.extent.low, state.sums[0].cast(dtype)


@register("summaries")
def summaries(
    spread: OutputTensor[F, "*p{axis} *q"],
    total: OutputTensor[F, "*p{axis} *q"],
    x: InputTensor[F, "*p{axis} n *q"],
    *,
    axis: int,
):
    def put(row, found):
        spread[row], total[row] = found

    rowwise(x, Summarised, put, axis=axis)


@register("centred")
def centred(out: OutputTensor[F, "m n"], x: InputTensor[F, "m n"]):
    """Rows less their means: a second pass over each row, and reductions of a part of it."""

    def body(row, total):
        mean = total / F(x.dim(1))
        largest = reduce(x[row, :], Max, of=lambda v: v - mean)
        for k in range(x.dim(1)):
            out[row, k] = x[row, k] - mean if largest > 0 else x[row, k]

    rowwise(x, Sum, body)
