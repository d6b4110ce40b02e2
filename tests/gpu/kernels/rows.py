"""Rows and columns that become values, by monoids of the library and by one whose order matters."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import InputTensor, Numeric, OutputTensor, float32, int32, int64, register, store
from einkorn.stdlib import ArgMax, LogSumExp, Max, Monoid, Sum, Welford, argsort, rowwise, scan, top_k

T = TypeVar("T", bound=Numeric)


class Affine(Monoid):
    """The map made of maps p -> 3 * p + value, done one after the other, modulo 2**32: a pair (factor, shift)."""

    lanes = 1

    @staticmethod
    def identity(dtype):
        return int32(1), int32(0)

    @staticmethod
    def lift(value, place):
        return int32(3), value

    @staticmethod
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    @staticmethod
    def finish(state, dtype):
        return state[1]


@register("rows::sum")
def sum_(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]):
    rowwise(x, Sum, lambda row, value: store(out, row, value))


@register("rows::several")
def several(places: OutputTensor[int64, "m"], most: OutputTensor[T, "m"], x: InputTensor[T, "m n"]):
    def put(row, place, value):
        places[row] = place
        most[row] = value

    rowwise(x, (ArgMax, Max), put)


@register("rows::variance")
def variance(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    rowwise(x, Welford, lambda row, found: store(out, row, found[1]))


@register("rows::affine")
def affine(out: OutputTensor[int32, "m"], x: InputTensor[int32, "m n"]):
    rowwise(x, Affine, lambda row, value: store(out, row, value))


@register("rows::affine_columns")
def affine_columns(out: OutputTensor[int32, "n"], x: InputTensor[int32, "m n"]):
    rowwise(x, Affine, lambda row, value: store(out, row, value), axis=0)


@register("rows::column_sum")
def column_sum(out: OutputTensor[T, "a c"], x: InputTensor[T, "a b c"]):
    rowwise(x, Sum, lambda row, value: store(out, row, value), axis=1)


@register("rows::total")
def total(out: OutputTensor[T, "1"], x: InputTensor[T, "m n"]):
    rowwise(x, Sum, lambda row, value: store(out, 0, value), axis=None)


@register("rows::exponents")
def exponents(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"], weights: InputTensor[float32, "n"]):
    rowwise((x, weights), LogSumExp, lambda row, value: store(out, row, value), of=lambda a, b: a * b)


@register("rows::running")
def running(out: OutputTensor[int32, "m n"], x: InputTensor[int32, "m n"]):
    scan(out, x, Affine)


@register("rows::running_back")
def running_back(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    scan(out, x, Sum, exclusive=True, reverse=True)


@register("rows::best")
def best(values: OutputTensor[T, "3 n"], places: OutputTensor[int32, "3 n"], x: InputTensor[T, "m n"]):
    top_k(values, places, x, 3, axis=0)


@register("rows::order")
def order(out: OutputTensor[int64, "m n"], x: InputTensor[T, "m n"]):
    argsort(out, x, descending=True, limit=300)
