"""Kernels with storage in the stack: much of it, in many pieces."""

from einkorn.dsl import InputTensor, OutputTensor, float32, parallel_for, register, stack, unroll


def kept(x, i, k):
    """x[i], by way of storage of its own."""
    part = stack[float32](4096)
    part[(i + k) % 4096] = x[i]
    return part[(i + k) % 4096] + part[(i + k + 1) % 4096]


@register("in_tasks")
def in_tasks(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, count: int):
    def one(i):
        total = float32(0)
        for k in unroll(count):
            total += kept(x, i, k)
        out[i] = total

    parallel_for(x.dim(0), one)


@register("on_the_host")
def on_the_host(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, count: int):
    for i in range(x.dim(0)):
        total = float32(0)
        for k in unroll(count):
            total += kept(x, i, k)
        out[i] = total


@register("in_both")
def in_both(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, count: int):
    first = float32(0)
    for k in unroll(count):
        first += kept(x, 0, k)

    def one(i):
        total = first
        for k in unroll(count):
            total += kept(x, i, k)
        out[i] = total

    parallel_for(x.dim(0), one)
