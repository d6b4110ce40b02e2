"""Kernels whose outputs have sizes that only the elements of their inputs determine."""

from typing import TypeVar

from einkorn.dsl import (
    Element,
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    bool8,
    int64,
    register,
    unroll,
)

N = TypeVar("N", bound=Numeric)
E = TypeVar("E", bound=Element)


@register("kept")
def kept(out: OutputTensor[N, "k"], x: InputTensor[N, "n"], limit: N):
    """The elements above a limit, in order."""
    at = Int(0)
    for i in range(x.dim(0)):
        if x[i] > limit:
            out[at] = x[i]
            at = at + 1


@kept.shape
def kept_shape(x, limit):
    count = Int(0)
    for i in range(x.dim(0)):
        if x[i] > limit:
            count = count + 1
    return count


@kept.reference
def kept_reference(x, limit):
    return x[x > limit]


def is_set(value):
    """Whether a number is not zero."""
    if value.dtype == bool8:
        return value
    return value != 0


@register("nonzero")
def nonzero(out: OutputTensor[int64, "count rank"], x: InputTensor[E, "*s"]):
    """The indices of the elements that are not zero, one row each, in row-major order."""
    row = Int(0)
    for position in range(x.size):
        if is_set(x.at(position)):
            rest = position
            for k in unroll(x.rank):
                axis = x.rank - 1 - k
                out[row, axis] = rest % x.dim(axis)
                rest = rest // x.dim(axis)
            row = row + 1


@nonzero.shape
def nonzero_shape(x: InputTensor[E, "*s"]):
    count = Int(0)
    for position in range(x.size):
        if is_set(x.at(position)):
            count += 1
    return count, x.rank


@register("repeated")
def repeated(
    out: OutputTensor[E, "total m"],
    ends: OutputTensor[int64, "n"],
    x: InputTensor[E, "n m"],
    counts: InputTensor[int64, "n"],
    *,
    times: int = 1,
):
    """Row i counts[i] * times times, and where each ends."""
    at = Int(0)
    for i in range(x.dim(0)):
        for _ in range(counts[i] * times):
            for c in range(x.dim(1)):
                out[at, c] = x[i, c]
            at = at + 1
        ends[i] = at


@repeated.shape
def repeated_shape(x, counts, *, times):
    total = Int(0)
    for i in range(counts.dim(0)):
        total += counts[i] * times
    return total


@register("popped")
def popped(out: OutputTensor[E, "k"], stack: MutableInputTensor[E, "n"], used: MutableInputTensor[int64, ""]):
    """Takes all that a stack holds, the last first, and empties it."""
    for i in range(out.dim(0)):
        out[i] = stack[out.dim(0) - 1 - i]
    used[()] = 0


@popped.shape
def popped_shape(stack, used):
    return used[()]


@register("common_prefix")
def common_prefix(out: OutputTensor[E, "k"], doubled: OutputTensor[E, "(2*k)"], xs: VariadicTensors[E, "n_k"]):
    """What all tensors begin with, once and twice."""
    for i in range(out.dim(0)):
        out[i] = xs[0][i]
        doubled[i] = xs[0][i]
        doubled[out.dim(0) + i] = xs[0][i]


@common_prefix.shape
def common_prefix_shape(xs):
    length = xs[0].dim(0)
    for x in xs[1:]:
        length = min(length, x.dim(0))
    count = Int(0)
    same = True
    while same and count < length:
        for x in xs[1:]:
            same = same and x[count] == xs[0][count]
        if same:
            count += 1
    return count


@register("requests_too_much")
def requests_too_much(out: OutputTensor[E, "k"], x: InputTensor[E, "n"], k_wanted: Int):
    for i in range(out.dim(0)):
        out[i] = x[0]


@requests_too_much.shape
def requests_too_much_shape(x, k_wanted):
    return k_wanted
