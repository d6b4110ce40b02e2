"""Stages arithmetic of complex numbers, as `ops.complex`: pairs of real and imaginary part in a last axis of size 2.

See also `signal` (transforms).
"""

from __future__ import annotations

from ..staging.value import TensorValue, TensorValueLike
from .operands import broadcast, check_kind, tensors
from .signal import check_pairs
from .stage import builtin, op

__all__ = ["mul"]


@op(namespace="complex", dtypes={"lhs": "numeric", "rhs": "numeric"}, example="ops.complex.mul(lhs, rhs)")
def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The products of complex numbers, which are pairs in a last axis of size 2; the axes before it broadcast.

    Raises:
        GraphError: a last axis has not size 2; shapes do not broadcast.
    """
    left, right = tensors("complex.mul", lhs=lhs, rhs=rhs)
    for argument, value in (("lhs", left), ("rhs", right)):
        check_kind("complex.mul", argument, value, "numeric")
        check_pairs("complex.mul", argument, value)
    return builtin("signal", "complex_mul", broadcast("complex.mul", {"lhs": left, "rhs": right}))[0]
