"""Kernels whose loops run along axes of any length; `static_shapes.py` compiles them for known and unknown ones."""

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    OutputTensor,
    bool8,
    cos,
    exp,
    float32,
    foreach,
    max,
    min,
    parallel_for,
    register,
    rsqrt,
    select,
    sin,
)
from einkorn.stdlib import Max, Sum, Welford, reduce, rowwise, stencil

T = TypeVar("T", bound=Floating)


@register("shapes::rope")
def rope(
    out: OutputTensor[T, "b s d"],
    x: InputTensor[T, "b s d"],
    cosines: InputTensor[T, "s h"],
    sines: InputTensor[T, "s h"],
):
    """Rotary embedding: halves of each row are turned against each other."""
    half = x.dim(2) // 2

    def turned(index):
        b, s, d = index
        j = d % half
        if d < half:
            value = x[b, s, j] * cosines[s, j] - x[b, s, j + half] * sines[s, j]
        else:
            value = x[b, s, j] * sines[s, j] + x[b, s, j + half] * cosines[s, j]
        return value

    foreach(out, turned)


@register("shapes::rope_angles")
def rope_angles(out: OutputTensor[T, "b s d"], x: InputTensor[T, "b s d"], angles: InputTensor[T, "s h"]):
    """The same from angles."""
    half = x.dim(2) // 2

    def turned(index):
        b, s, d = index
        angle = angles[s, d % half]
        other = -x[b, s, d + half] if d < half else x[b, s, d - half]
        return x[b, s, d] * cos(angle) + other * sin(angle)

    foreach(out, turned)


@register("shapes::rope_pairs")
def rope_pairs(
    out: OutputTensor[T, "m d"],
    x: InputTensor[T, "m d"],
    cosines: InputTensor[T, "m h"],
    sines: InputTensor[T, "m h"],
):
    """Rotary embedding of neighbours."""

    def turned(index):
        s, d = index
        j = d // 2
        if d % 2 == 0:
            value = x[s, d] * cosines[s, j] - x[s, d + 1] * sines[s, j]
        else:
            value = x[s, d - 1] * sines[s, j] + x[s, d] * cosines[s, j]
        return value

    foreach(out, turned)


@register("shapes::masked_softmax")
def masked_softmax(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], mask: InputTensor[bool8, "m n"]):
    n = x.dim(1)

    def body(row):
        largest = T(float("-inf"))
        for k in range(n):
            if mask[row, k]:
                largest = max(largest, x[row, k])
        total = T(0)
        for k in range(n):
            value = T(0)
            if mask[row, k]:
                value = exp(x[row, k] - largest)
            out[row, k] = value
            total += value
        for k in range(n):
            out[row, k] = out[row, k] / total

    parallel_for(x.dim(0), body)


@register("shapes::masked_rows")
def masked_rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], mask: InputTensor[bool8, "m n"]):
    """The same by `rowwise`."""

    def kept(value, keep):
        return select(keep, value, float("-inf"))

    def body(row, largest):
        for k in range(x.dim(1)):
            out[row, k] = exp(kept(x[row, k], mask[row, k]) - largest)
        scale = 1 / reduce(out[row, :], Sum)
        for k in range(x.dim(1)):
            out[row, k] = out[row, k] * scale

    rowwise((x, mask), Max, body, of=kept)


@register("shapes::layer_norm")
def layer_norm(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], w: InputTensor[T, "n"], b: InputTensor[T, "n"]):
    def body(row, moments):
        mean, variance = moments
        scale = rsqrt(variance + 1e-5)
        for k in range(x.dim(1)):
            out[row, k] = (x[row, k] - mean) * scale * w[k] + b[k]

    rowwise(x, Welford, body)


@register("shapes::plain_norm")
def plain_norm(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    """With loops of the author's alone."""
    n = x.dim(1)

    def body(row):
        total = T(0)
        for k in range(n):
            total += x[row, k] * x[row, k]
        scale = rsqrt(total / n.cast(T) + 1e-5)
        for k in range(n):
            out[row, k] = x[row, k] * scale

    parallel_for(x.dim(0), body)


@register("shapes::conv")
def conv(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], w: InputTensor[T, "3"]):
    """Three neighbours, those beyond the ends left out."""

    def element(index):
        y, k = index
        total = T(0)
        for d in range(3):
            at = k + d - 1
            if at >= 0 and at < x.dim(1):
                total += x[y, at] * w[d]
        return total

    foreach(out, element)


@register("shapes::clamped")
def clamped(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    """Five neighbours, the ends repeated."""
    last = x.dim(1) - 1

    def element(index):
        y, k = index
        total = T(0)
        for d in range(-2, 3):
            total += x[y, min(max(k + d, 0), last)]
        return total * 0.2

    foreach(out, element)


@register("shapes::laplace")
def laplace(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    def body(near, index):
        return near(-1, 0) + near(1, 0) + near(0, -1) + near(0, 1) - 4 * near(0, 0)

    stencil(out, x, body, reach=(1, 1), border="edge")


@register("shapes::rolled")
def rolled(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    n = x.dim(1)

    def element(index):
        y, k = index
        return x[y, (k + 1) % n]

    foreach(out, element)


@register("shapes::flipped")
def flipped(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    n = x.dim(1)

    def element(index):
        y, k = index
        return x[y, n - 1 - k]

    foreach(out, element)


@register("shapes::causal")
def causal(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    """What lies ahead is left out."""

    def element(index):
        y, k = index
        return x[y, k] if k <= y % x.dim(1) else T(0)

    foreach(out, element)


@register("shapes::glu")
def glu(out: OutputTensor[T, "m (n // 2)"], x: InputTensor[T, "m n"]):
    half = x.dim(1) // 2

    def element(index):
        y, k = index
        gate = x[y, k + half]
        return x[y, k] / (1 + exp(-gate))

    foreach(out, element)


@register("shapes::product")
def product(out: OutputTensor[T, "m n"], a: InputTensor[T, "m n"], b: InputTensor[T, "n n"]):
    """A matrix product as one writes it first."""
    n = a.dim(1)

    def element(index):
        i, j = index
        total = T(0)
        for k in range(n):
            total += a[i, k] * b[k, j]
        return total

    foreach(out, element)


@register("shapes::dots")
def dots(out: OutputTensor[float32, "m"], a: InputTensor[T, "m n"], b: InputTensor[T, "m n"]):
    n = a.dim(1)

    def element(index):
        (i,) = index
        total = float32(0)
        for k in range(n):
            total += a[i, k].cast(float32) * b[i, k].cast(float32)
        return total

    foreach(out, element)


@register("shapes::linear_time")
def linear_time(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], decay: InputTensor[T, "n"]):
    """A state of n numbers that goes through time."""

    def channel(k):
        state = T(0)
        for t in range(x.dim(0)):
            state = state * decay[k] + x[t, k]
            out[t, k] = state

    parallel_for(x.dim(1), channel)
