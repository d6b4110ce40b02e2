"""Kernels whose monoids take tuples and structs as elements, for `test_elements`."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Integral,
    OutputTensor,
    abs,
    float32,
    float64,
    int64,
    register,
    select,
    sqrt,
    store,
    struct,
)
from einkorn.stdlib import Monoid, Sum, reduce, rowwise, scan

F = TypeVar("F", bound=Floating)
K = TypeVar("K", bound=Integral)


class Recurrence(Monoid):
    """h[t] = a[t] * h[t - 1] + b[t]; an element is the pair (a, b)."""

    lanes = 1

    @staticmethod
    def identity(dtype):
        return dtype[0](1), dtype[1](0)

    @staticmethod
    def combine(first, second):
        return first[0] * second[0], first[1] * second[0] + second[1]

    @staticmethod
    def finish(state, dtype):
        return state[1].cast(dtype[1])


class Both(Recurrence):
    """The same; the product of all a comes out, too."""

    @staticmethod
    def finish(state, dtype):
        return state[0].cast(dtype[0]), state[1].cast(dtype[1])


class Wide(Recurrence):
    """The same in float64."""

    @staticmethod
    def identity(dtype):
        return float64(1), float64(0)

    @staticmethod
    def lift(value, place):
        return value[0].cast(float64), value[1].cast(float64)


@register("recurrence")
def recurrence(
    h: OutputTensor[F, "*s"], a: InputTensor[F, "*s"], b: InputTensor[F, "*s"], *, axis: int, exclusive: bool = False
):
    scan(h, (a, b), Wide, axis=axis, exclusive=exclusive)


@register("recurrence_parts")
def recurrence_parts(
    product: OutputTensor[F, "*s"],
    h: OutputTensor[F, "*s"],
    a: InputTensor[F, "*s"],
    b: InputTensor[F, "*s"],
    *,
    axis: int,
    exclusive: bool = False,
):
    scan((product, h), (a, b), Both, axis=axis, exclusive=exclusive)


@register("driven")
def driven(
    last: OutputTensor[float32, "m"],
    every: OutputTensor[float32, "m n"],
    x: InputTensor[float32, "m n"],
    step: InputTensor[float32, "m n"],
):
    """A state that is driven by x in steps of a given length: what a state-space model does."""
    pairs = lambda v, d: (1 / (1 + d), d * v / (1 + d))  # noqa: E731
    scan(every, (x, step), Recurrence, of=pairs)
    rowwise((x, step), Recurrence, lambda row, h: store(last, row, h), of=pairs)


class Weighted(Monoid):
    """Mean and variance of elements (value, weight): weighted Welford."""

    @staticmethod
    def identity(dtype):
        return float64(0), float64(0), float64(0)

    @staticmethod
    def lift(element, place):
        value, weight = element[0].cast(float64), element[1].cast(float64)
        return weight, value, value.dtype(0)

    @staticmethod
    def combine(a, b):
        total = a[0] + b[0]
        share = b[0] / select(total == 0, 1, total)
        delta = b[1] - a[1]
        return total, a[1] + delta * share, a[2] + b[2] + delta * delta * (a[0] * share)

    @staticmethod
    def finish(state, dtype):
        return state[1].cast(dtype[0]), (state[2] / state[0]).cast(dtype[0])


@register("weighted")
def weighted(
    mean: OutputTensor[F, "*p{axis} *q"],
    variance: OutputTensor[F, "*p{axis} *q"],
    x: InputTensor[F, "*p{axis} n *q"],
    w: InputTensor[F, "n"],
    *,
    axis: int,
):
    def put(row, found):
        mean[row], variance[row] = found

    rowwise((x, w), Weighted, put, axis=axis)


@register("weighted_all")
def weighted_all(out: OutputTensor[float64, "2"], x: InputTensor[float64, "*s"], w: InputTensor[float64, "*s"]):
    out[0], out[1] = reduce((x, w), Weighted)


@struct
class Best:
    key: F
    value: F
    label: K


class Farthest(Monoid):
    """Of elements (key, value, label) the one with the largest key; of equals the smallest label."""

    lanes = 8

    @staticmethod
    def identity(dtype):
        return Best(dtype.key(-inf), dtype.value(0), dtype.label(-1))

    @staticmethod
    def lift(element, place):
        return element

    @staticmethod
    def combine(a, b):
        second = (b.key > a.key) | ((b.key == a.key) & (b.label < a.label))
        return Best(select(second, b.key, a.key), select(second, b.value, a.value), select(second, b.label, a.label))

    @staticmethod
    def finish(state, dtype):
        return state


@register("farthest")
def farthest(
    value: OutputTensor[F, "*p{axis} *q"],
    label: OutputTensor[int64, "*p{axis} *q"],
    x: InputTensor[F, "*p{axis} n *q"],
    centre: InputTensor[F, "n"],
    labels: InputTensor[int64, "n"],
    *,
    axis: int,
):
    """Which element lies farthest from the centre, with its label."""

    def put(row, best):
        value[row] = best.value
        label[row] = best.label

    rowwise((x, centre, labels), Farthest, put, axis=axis, of=lambda v, c, k: Best(abs(v - c), v, k))


class Turns(Monoid):
    """The product of complex numbers (re, im), in order."""

    lanes = 1

    @staticmethod
    def identity(dtype):
        return dtype[0](1), dtype[1](0)

    @staticmethod
    def combine(a, b):
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


class Lengths(Monoid):
    """The sum of the lengths of complex numbers."""

    @staticmethod
    def identity(dtype):
        return dtype[0](0)

    @staticmethod
    def lift(value, place):
        return sqrt(value[0] * value[0] + value[1] * value[1])

    @staticmethod
    def finish(state, dtype):
        return state


@register("turned")
def turned(
    re: OutputTensor[float64, "m"],
    im: OutputTensor[float64, "m"],
    length: OutputTensor[float64, "m"],
    x: InputTensor[float64, "m n"],
    y: InputTensor[float64, "m n"],
):
    """Two monoids over the same pairs, in one pass."""

    def put(row, product, total):
        re[row], im[row] = product
        length[row] = total

    rowwise((x, y), (Turns, Lengths), put)


class Sums(Monoid):
    """The sum of each part, with what `Monoid` does unless overridden."""

    @staticmethod
    def combine(a, b):
        return a[0] + b[0], a[1] + b[1]


@register("sums")
def sums(out: OutputTensor[F, "2 n"], running: OutputTensor[F, "m n"], x: InputTensor[F, "m n"]):
    def put(column, found):
        out[0, column], out[1, column] = found

    rowwise(x, Sums, put, axis=0, of=lambda v: (v, v * v))
    scan(running, x, Sum, axis=0)
