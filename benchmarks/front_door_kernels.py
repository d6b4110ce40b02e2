"""Kernels that `front_door.py` calls."""

from typing import TypeVar

from einkorn.dsl import InputTensor, MutableInputTensor, Numeric, OutputTensor, float32, foreach, register

T = TypeVar("T", bound=Numeric)
ONE, TWO, THREE, FOUR = 1.0, 2.0, 3.0, 4.0


@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 1)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("scaled")
def scaled(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, scale: float = 1.0):
    foreach(out, lambda i: x[i] * scale)


@register("polynomial")
def polynomial(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: ONE + x[i] * (TWO + x[i] * (THREE + x[i] * FOUR)))


@register("axpy")
def axpy(out: OutputTensor[T, "n"], a: T, x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: a * x[i] + y[i])


@register("increase")
def increase(x: MutableInputTensor[T, "n"]):
    foreach(x, lambda i: x[i] + 1)
