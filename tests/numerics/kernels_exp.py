"""Kernels for `test_exp_by_instruction`."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, log, register

T = TypeVar("T", bound=Floating)


@register("exp_each")
def exp_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp(x[i]))


@register("exp_and_log")
def exp_and_log(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp(x[i]) + log(exp(x[i]) + 1))


@register("in_place")
def in_place(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i])
    foreach(out, lambda i: exp(out[i]) * out[i])


@register("two_outputs")
def two_outputs(a: OutputTensor[T, "*s"], b: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach((a, b), lambda i: (exp(x[i]), 1 / (1 + exp(x[i]))))
