"""Kernels whose sizes go wrong when their inputs are small."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, MutableInputTensor, OutputTensor, foreach, int64, register

T = TypeVar("T", bound=Floating)


@register("shrink")
def shrink(out: OutputTensor[T, "(n - 5) m"], x: InputTensor[T, "n m"]):
    foreach(out, lambda i: x[i])


@register("fill")
def fill(out: OutputTensor[T, "*s"], x: InputTensor[T, ""]):
    foreach(out, lambda i: x[()])


@register("per_block")
def per_block(out: OutputTensor[T, "(n // k)"], x: InputTensor[T, "n"], y: InputTensor[T, "k"]):
    foreach(out, lambda i: x[i])


@register("counted")
def counted(out: OutputTensor[T, "k"], x: InputTensor[T, "n"], count: InputTensor[int64, ""]):
    foreach(out, lambda i: x[0])


@counted.shape
def counted_size(x, count):
    return count[()]


@register("overwrite")
def overwrite(x: MutableInputTensor[T, "*s"], by: InputTensor[T, ""], *, times: int):
    foreach(x, lambda i: by[()] * times)


@register("many")
def many(out: OutputTensor[T, "(n * 1000000000 * 10000000000)"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[0])
