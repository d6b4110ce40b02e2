"""Combines and moves the bits of integers, and finds their divisors and multiples."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ... import dsl
from ...dsl import InputTensor, Integral, OutputTensor, foreach, register
from ..algorithms.references import Array, plain

I = TypeVar("I", bound=Integral)  # noqa: E741


@register("bitwise_and", laws=("idempotent",))
def bitwise_and(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The bits that are set in both."""
    foreach(out, lambda i: x[i] & y[i])


bitwise_and.reference(plain(np.bitwise_and))


@register("bitwise_or", laws=("idempotent",), neutral={"x": 0, "y": 0})
def bitwise_or(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The bits that are set in one or both."""
    foreach(out, lambda i: x[i] | y[i])


bitwise_or.reference(plain(np.bitwise_or))


@register("bitwise_xor", neutral={"x": 0, "y": 0})
def bitwise_xor(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The bits that are set in exactly one."""
    foreach(out, lambda i: x[i] ^ y[i])


bitwise_xor.reference(plain(np.bitwise_xor))


@register("bitwise_not", laws=("involution",))
def bitwise_not(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"]) -> None:
    """All bits turned over."""
    foreach(out, lambda i: ~x[i])


bitwise_not.reference(plain(np.bitwise_not))


@register("gcd")
def gcd(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The greatest common divisor."""
    foreach(out, lambda i: dsl.gcd(x[i], y[i]))


gcd.reference(plain(np.gcd))


@register("lcm")
def lcm(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The least common multiple."""
    foreach(out, lambda i: dsl.lcm(x[i], y[i]))


lcm.reference(plain(np.lcm))


@register("left_shift")
def left_shift(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The bits of x moved up by y places; 0 where y is below 0, or is the width or more."""
    foreach(out, lambda i: x[i] << y[i])


@left_shift.reference
def left_shift_reference(x: Array, y: Array):
    width = 8 * x.dtype.itemsize
    inside = (y >= 0) & (y < width)
    return np.where(inside, np.left_shift(x, np.where(inside, y, y.dtype.type(0))), x.dtype.type(0))


@register("right_shift")
def right_shift(out: OutputTensor[I, "*s"], x: InputTensor[I, "*s"], y: InputTensor[I, "*s"]) -> None:
    """The bits of x moved down by y places, sign bits following; all are sign bits where y is below 0, or is the
    width or more.
    """
    foreach(out, lambda i: x[i] >> y[i])


@right_shift.reference
def right_shift_reference(x: Array, y: Array):
    width = 8 * x.dtype.itemsize
    inside = (y >= 0) & (y < width)
    rest = np.where(x < 0, x.dtype.type(0) - x.dtype.type(1), x.dtype.type(0))
    return np.where(inside, np.right_shift(x, np.where(inside, y, y.dtype.type(0))), rest)
