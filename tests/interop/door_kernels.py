"""Kernels for doors: one that reads variables, one without an end, one with loops, one that prints."""

from typing import TypeVar

from einkorn.dsl import InputTensor, Numeric, OutputTensor, float32, foreach, register

T = TypeVar("T", bound=Numeric)
FACTOR = 2.0


@register("scaled_by_module")
def scaled_by_module(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: max(x[i] * FACTOR, 0.0))


def made(offset):
    @register("moved")
    def moved(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
        foreach(out, lambda i: x[i] + offset)

    def change(value):
        nonlocal offset
        offset = value

    return moved, change


@register("add_rows")
def add_rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i[1]])


@register("row_sums")
def row_sums(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    def row(i):
        total = float32(0)
        for k in range(x.dim(1)):
            total = total + x[i[0], k]
        return total

    foreach(out, row)


@register("without_end")
def without_end(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def element(i):
        value = x[i]
        while value > 0:
            value = value + 1.0
            if value > 100.0:
                value = float32(1)
        return value

    foreach(out, element)


@register("printing")
def printing(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    print("there are", x.dim(0))
    foreach(out, lambda i: x[i])


@register("beyond")
def beyond(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i[0] + 1])
