"""Kernels that call a case rare: alone, in a branch, next to a print, of several outputs."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, MutableInputTensor, OutputTensor, foreach, rare, register, select

T = TypeVar("T", bound=Floating)


def bent(v):
    """v, but for large numbers, which are halved; negative ones among them are turned."""
    if rare(v > 100):
        v = v / 2
    if rare(v < -100):
        v = -v
    return v


@register("bend")
def bend(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: bent(x[i]))


@register("bend_both")
def bend_both(out: OutputTensor[T, "m n"], other: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    foreach((out, other), lambda i: (bent(x[i]), bent(-x[i])))


@register("bend_transposed")
def bend_transposed(out: OutputTensor[T, "m n"], x: InputTensor[T, "n m"]):
    def at(i):
        row, column = i
        return bent(x[column, row])

    foreach(out, at)


def worn(v):
    """v, halved until it is no more than 100: the rare case has a loop."""
    if rare(v > 100):
        for _ in range(3):
            v = select(v > 100, v / 2, v)
    return v


@register("wear")
def wear(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: worn(x[i]))


@register("bend_far")
def bend_far(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    """What is rare is known after many operations."""
    foreach(out, lambda i: bent(x[i] * x[i] * x[i] * x[i] * x[i] * x[i] - x[i]))


@register("bend_in_place")
def bend_in_place(out: OutputTensor[T, "*s"], x: MutableInputTensor[T, "*s"]):
    """Elements that are read and written."""
    foreach(x, lambda i: bent(x[i]))
    foreach(out, lambda i: x[i])


@register("bend_far_in_place")
def bend_far_in_place(out: OutputTensor[T, "*s"], x: MutableInputTensor[T, "*s"]):
    """The same, where what is rare is known after more operations than are spared."""
    foreach(x, lambda i: bent(x[i] * x[i] * x[i] * x[i] * x[i] * x[i] - x[i]))
    foreach(out, lambda i: x[i])


@register("bend_known")
def bend_known(out: OutputTensor[T, "n"], x: InputTensor[T, "m"]):
    """The rare case keeps the others from reading out of bounds."""

    def at(i):
        v = out.dtype(0)
        if not rare(i >= x.dim(0)):
            v = x[i] + 1
        return v

    foreach(out, lambda i: at(i[0]))


@register("bend_clamped")
def bend_clamped(out: OutputTensor[T, "n"], x: InputTensor[T, "m"]):
    """The rare case decides which element is read."""
    foreach(out, lambda i: x[select(rare(i[0] >= x.dim(0)), x.dim(0) - 1, i[0])])


@register("bend_sums")
def bend_sums(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]):
    """What is rare depends on a loop, which is not done twice."""

    def total(i):
        row = x[i, 0] * 0
        for k in range(x.dim(1)):
            row += x[i, k]
        return bent(row)

    foreach(out, lambda i: total(i[0]))


@register("bend_some")
def bend_some(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    def within(v):
        if v > 0:
            v = bent(v)
        return v

    foreach(out, lambda i: within(x[i]))
