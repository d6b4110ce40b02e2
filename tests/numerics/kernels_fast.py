"""One kernel for each function that takes `fast=True`, and all of them on vectors."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    OutputTensor,
    cos,
    erf,
    exp,
    exp2,
    foreach,
    log,
    log2,
    log10,
    parallel_for,
    reciprocal,
    register,
    rsqrt,
    sin,
    sqrt,
    tanh,
)

T = TypeVar("T", bound=Floating)


@register("one")
def one(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, name: str, fast: bool = True):
    foreach(out, lambda i: _function(x[i], name, fast))


@register("vectors")
def vectors(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, name: str, fast: bool = True):
    parallel_for(x.dim(0) // 4, lambda j: out.store(_function(x.load(4 * j, width=4), name, fast), 4 * j))


def _function(v, name: str, fast: bool):
    if name == "exp":
        return exp(v, fast=fast)
    if name == "exp2":
        return exp2(v, fast=fast)
    if name == "log":
        return log(v, fast=fast)
    if name == "log2":
        return log2(v, fast=fast)
    if name == "log10":
        return log10(v, fast=fast)
    if name == "sin":
        return sin(v, fast=fast)
    if name == "cos":
        return cos(v, fast=fast)
    if name == "tanh":
        return tanh(v, fast=fast)
    if name == "sqrt":
        return sqrt(v, fast=fast)
    if name == "rsqrt":
        return rsqrt(v, fast=fast)
    if name == "erf":
        return erf(v, fast=fast)
    return reciprocal(v, fast=fast)
