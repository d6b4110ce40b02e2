"""Declares what combines and moves the bits of integers. One row an op (see `rows`).

The operators `&`, `|`, `^` and `~` take bools, of which they are the logic, and integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..staging.value import TensorValue, TensorValueLike
from .elementwise import logical_and, logical_not, logical_or, logical_xor
from .rows import elementwise
from .stage import add_method


@elementwise("integral", operator="__and__")
def bitwise_and(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The bits that are set in both; integers only, `logical_and` is for bools."""


@elementwise("integral", operator="__or__")
def bitwise_or(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The bits that are set in one or both; integers only, `logical_or` is for bools."""


@elementwise("integral", operator="__xor__")
def bitwise_xor(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The bits that are set in exactly one; integers only, `logical_xor` is for bools."""


@elementwise("integral", operator="__invert__")
def bitwise_not(x: TensorValueLike) -> TensorValue:
    """All bits turned over; integers only, `logical_not` is for bools."""


@elementwise("integral")
def gcd(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The greatest common divisor, 0 or more; gcd(0, 0) is 0."""


@elementwise("integral")
def lcm(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The least common multiple, 0 or more; 0 where either is 0. It wraps around like a product."""


@elementwise("integral", operator="__lshift__")
def left_shift(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The bits of lhs moved up by rhs places; 0 where rhs is below 0, or is the width of the dtype or more."""


@elementwise("integral", operator="__rshift__")
def right_shift(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The bits of lhs moved down by rhs places, sign bits following; a shift out of range leaves sign bits alone."""


# *** operators that bools and integers share ***


def _either(of_bools: Callable[..., TensorValue], of_integers: Callable[..., TensorValue]) -> Callable[..., Any]:
    """The op of bools, unless a tensor among the operands is of integers."""

    def operator(x: TensorValue, y: TensorValueLike) -> TensorValue:
        strong = [value.dtype for value in (x, y) if isinstance(value, TensorValue)]
        integers = [dtype for dtype in strong if dtype.is_integral() and not dtype.is_storage()]
        return of_integers(x, y) if integers else of_bools(x, y)

    return operator


def _mirrored(operator: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: operator(y, x)


for _name, _operator in (
    ("and", _either(logical_and, bitwise_and)),
    ("or", _either(logical_or, bitwise_or)),
    ("xor", _either(logical_xor, bitwise_xor)),
):
    add_method(TensorValue, f"__{_name}__")(_operator)
    add_method(TensorValue, f"__r{_name}__")(_mirrored(_operator))


@add_method(TensorValue, "__invert__")
def _invert(x: TensorValue) -> TensorValue:
    """`logical_not` of bools, `bitwise_not` of integers."""
    return bitwise_not(x) if x.dtype.is_integral() and not x.dtype.is_storage() else logical_not(x)
