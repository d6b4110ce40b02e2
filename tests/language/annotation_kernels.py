"""Kernels whose helpers say what their arguments are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from einkorn.dsl import (
    AnyDType,
    AnyTensor,
    Floating,
    Index,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    Parts,
    float32,
    foreach,
    int64,
    map_parts,
    register,
    stack,
    struct,
)

T = TypeVar("T", bound=Floating)


@struct
class Pair:
    a: Floating
    at: Index | None = None


def element(x: AnyTensor, at: tuple[Index, ...], f: Callable[[Floating], Floating], scale: Floating | None = None):
    value = f(x[at])
    return value if scale == None else value * scale  # noqa: E711


def doubled(parts: Parts):
    return map_parts(lambda part: part + part, parts)


def nothing_is_converted(n: Index, x: Floating):
    return (7 // n) * x  # of 2 this is 3 as of Int(2); a number that stays known at compile time is folded


def as_dtype(x: Integral, dtype: AnyDType):
    return x.cast(dtype)


@register("annotations::kinds")
def kinds(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    def one(i):
        pair = Pair(element(x, i, lambda v: -v, 2), Int(1))
        near = stack[x.dtype](2)
        near[1] = pair.a
        first, (second, third) = doubled((element(near, (1,), lambda v: v), (Pair(1.0).a, 3.0)))
        return first + second * nothing_is_converted(2, third) + as_dtype(pair.at, x.dtype)

    foreach(out, one)


@register("annotations::number_for_tensor")
def number_for_tensor(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: element(x[i], i, lambda v: v))


@register("annotations::float_for_index")
def float_for_index(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: element(x, (1.5,), lambda v: v))


@register("annotations::number_for_indices")
def number_for_indices(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: element(x, 1, lambda v: v))


@register("annotations::number_for_function")
def number_for_function(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: element(x, i, x[i]))


@register("annotations::integer_for_float")
def integer_for_float(out: OutputTensor[float32, "n"], x: InputTensor[int64, "n"]):
    foreach(out, lambda i: nothing_is_converted(2, x[i]))


@register("annotations::tuple_for_either")
def tuple_for_either(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: element(x, i, lambda v: v, (1, 2)))


@register("annotations::indices_for_index")
def indices_for_index(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "n m"]):
    def element_at(i: Index):
        return x[i]

    foreach(out, element_at)


@register("annotations::indices_for_indices")
def indices_for_indices(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "n m"]):
    def element_at(i: tuple[Index, ...]):
        return x[i]

    foreach(out, element_at)


@register("annotations::number_for_dtype")
def number_for_dtype(out: OutputTensor[float32, "n"], x: InputTensor[int64, "n"]):
    foreach(out, lambda i: as_dtype(x[i], 32))


@register("annotations::function_for_parts")
def function_for_parts(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: doubled(lambda: x[i]))


@register("annotations::string_in_field")
def string_in_field(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: Pair(x[i], "here").a)
