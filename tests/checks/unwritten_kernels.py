"""Kernels that leave elements of their outputs out."""

from typing import TypeVar

from einkorn.dsl import InputTensor, MutableInputTensor, Numeric, OutputTensor, Storable, atomic, parallel_for, register

T = TypeVar("T", bound=Storable)
N = TypeVar("N", bound=Numeric)


@register("most")
def most(out: OutputTensor[T, "n m"], x: InputTensor[T, "n m"], *, left_out: int = 5):
    """Copies all but one column of the rows from the third on."""

    def row(i):
        for j in range(x.dim(1)):
            if i < 2 or j != left_out:
                out[i, j] = x[i, j]

    parallel_for(x.dim(0), row)


@register("doubled")
def doubled(out: OutputTensor[N, "n m"], x: InputTensor[N, "n m"]):
    """Not by `foreach`, so that it reads what lies in memory."""

    def row(i):
        for j in range(x.dim(1)):
            out[i, j] = x[i, j] + x[i, j]

    parallel_for(x.dim(0), row)


@register("counted")
def counted(total: MutableInputTensor[N, "n m"], x: InputTensor[N, "n m"]):
    for i in range(x.dim(0)):
        for j in range(x.dim(1)):
            total[i, j] = total[i, j] + x[i, j]


@register("gathered")
def gathered(out: OutputTensor[N, "m"], x: InputTensor[N, "n m"]):
    """Adds in any order."""
    for j in range(x.dim(1)):
        out[j] = x[0, j]

    def row(i):
        for j in range(x.dim(1)):
            atomic.add(out, j, x[i, j])

    parallel_for(x.dim(0), row, grain=1)
