"""Declares the elementwise functions of two operands, as `elementwise` does those of one; and `clip`.

See also `graph.ops` (computation).
"""

from __future__ import annotations

import copy
import math

from ...dsl.environment.tracebacks import placed
from ..eager import functional as F
from ..eager.tensor import Tensor
from .elementwise import function
from .operands import Operand, cast, operands, tensor


def _log_add_exp(x1: Tensor, x2: Tensor) -> Tensor:
    """The larger one and what is left, without overflow; equal infinities, whose difference is NaN, are themselves."""
    larger, smaller = F.maximum(x1, x2), F.minimum(x1, x2)
    rest = F.log1p(F.exp(F.sub(smaller, larger)))
    return F.where(F.equal(smaller, larger), F.add(larger, math.log(2)), F.add(larger, rest))


@function(F.add)
def add(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 + x2; integers wrap."""


@function(F.atan2)
def atan2(x1: Operand, x2: Operand, /) -> Tensor:
    """The angle of the point (x2, x1), between -pi and pi."""


@function(F.bitwise_and, bools=F.logical_and)
def bitwise_and(x1: Operand, x2: Operand, /) -> Tensor:
    """The bits that both have."""


@function(F.left_shift)
def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 shifted left by x2 bits; bits that leave the type are lost."""


@function(F.bitwise_or, bools=F.logical_or)
def bitwise_or(x1: Operand, x2: Operand, /) -> Tensor:
    """The bits that one or both have."""


@function(F.right_shift)
def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 shifted right by x2 bits; the sign stays."""


@function(F.bitwise_xor, bools=F.logical_xor)
def bitwise_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """The bits that exactly one has."""


@function(F.copysign)
def copysign(x1: Operand, x2: Operand, /) -> Tensor:
    """The magnitude of x1 with the sign of x2."""


@function(F.div)
def divide(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 / x2; integers are divided in float64."""


@function(F.equal)
def equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 == x2 as bool; false where either is NaN."""


@function(F.floordiv)
def floor_divide(x1: Operand, x2: Operand, /) -> Tensor:
    """The quotient rounded down; Python's signs."""


@function(F.greater)
def greater(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 > x2 as bool."""


@function(F.greater_equal)
def greater_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 >= x2 as bool."""


@function(F.hypot)
def hypot(x1: Operand, x2: Operand, /) -> Tensor:
    """sqrt(x1 * x1 + x2 * x2) without overflow on the way."""


@function(F.less)
def less(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 < x2 as bool."""


@function(F.less_equal)
def less_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 <= x2 as bool."""


@function(_log_add_exp)
def logaddexp(x1: Operand, x2: Operand, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow."""


@function(F.logical_and)
def logical_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Both are true; bools only."""


@function(F.logical_or)
def logical_or(x1: Operand, x2: Operand, /) -> Tensor:
    """One or both are true; bools only."""


@function(F.logical_xor)
def logical_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Exactly one is true; bools only."""


@function(F.maximum)
def maximum(x1: Operand, x2: Operand, /) -> Tensor:
    """The larger of the two; NaN if either is."""


@function(F.minimum)
def minimum(x1: Operand, x2: Operand, /) -> Tensor:
    """The smaller of the two; NaN if either is."""


@function(F.mul)
def multiply(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 * x2; integers wrap."""


@function(F.nextafter)
def nextafter(x1: Operand, x2: Operand, /) -> Tensor:
    """The neighbour of x1 on the way to x2."""


@function(F.not_equal)
def not_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 != x2 as bool; true where either is NaN."""


@function(F.pow)
def pow(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 to the power x2."""


@function(F.mod)
def remainder(x1: Operand, x2: Operand, /) -> Tensor:
    """The remainder with the sign of x2, as Python's %."""


@function(F.sub)
def subtract(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 - x2; integers wrap."""


@placed
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x, but no less than `min` and no more than `max`, where these are given; in the dtype of x."""
    result = copy.copy(tensor("x", x))
    if min is not None:
        result = F.maximum(*_bounds(x, "min", min, result))
    if max is not None:
        result = F.minimum(*_bounds(x, "max", max, result))
    return result


def _bounds(x: Tensor, argument: str, bound: Operand, value: Tensor) -> list[Tensor]:
    if isinstance(bound, Tensor):
        return [value, cast(bound, x.dtype)]
    return operands({"x": value, argument: bound})
