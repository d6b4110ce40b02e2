"""Elementwise ops: arithmetic, comparisons, logic, mathematics.

One row an op: name, which dtypes it takes, what it means. Operands are promoted to one dtype (see `promotion`) and
broadcast to one shape; the result has both, comparisons and predicates give bool.

Input: tensors, numbers, arrays. Output: a tensor. Non-goals: reductions (`max` and `min` of two tensors are here as
`maximum` and `minimum`; `ops.max` and `ops.min` choose).
"""

from __future__ import annotations

from typing import Protocol

from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import choice_of, dtype_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.promotion import promote
from .operands import broadcast, cast_to, check_kind, tensor, tensors
from .stage import F, builtin, op

_FAMILY = "elementwise"


class UnaryOp(Protocol):
    """A function of one tensor."""

    def __call__(self, x: TensorValueLike) -> TensorValue: ...


class BinaryOp(Protocol):
    """A function of two tensors, or of a tensor and a number or array."""

    def __call__(self, lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue: ...


def _unary(name: str, kinds: str, doc: str) -> UnaryOp:
    def function(x: TensorValueLike) -> TensorValue:
        value = tensor(name, "x", x)
        check_kind(name, "x", value, kinds)
        return builtin(_FAMILY, name, [value])[0]

    return _named(function, name, doc)


def _binary(name: str, kinds: str, doc: str) -> BinaryOp:
    def function(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
        left, right = tensors(name, lhs=lhs, rhs=rhs)
        check_kind(name, "lhs", left, kinds)
        return builtin(_FAMILY, name, broadcast(name, {"lhs": left, "rhs": right}))[0]

    return _named(function, name, doc)


def _logical(name: str, doc: str) -> BinaryOp:
    """Both operands are bool before any promotion: bool and int8 would else meet as int8."""

    def function(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
        for argument, value in (("lhs", lhs), ("rhs", rhs)):
            if isinstance(value, TensorValue):
                check_kind(name, argument, value, "bool")
        left, right = tensors(name, lhs=lhs, rhs=rhs)
        return builtin(_FAMILY, name, broadcast(name, {"lhs": left, "rhs": right}))[0]

    return _named(function, name, doc)


def _named(function: F, name: str, doc: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(function)


add = _binary("add", "numeric", "lhs + rhs; integers wrap.")
sub = _binary("sub", "numeric", "lhs - rhs; integers wrap.")
mul = _binary("mul", "numeric", "lhs * rhs; integers wrap.")
floordiv = _binary("floordiv", "numeric", "The quotient rounded down, in the operands' dtype; Python's signs.")
mod = _binary("mod", "numeric", "lhs - rhs * floor(lhs / rhs): the remainder with the sign of rhs, as Python's %.")
pow = _binary("pow", "numeric", "lhs to the power rhs.")
maximum = _binary("maximum", "numeric", "The larger of the two; NaN if either is.")
minimum = _binary("minimum", "numeric", "The smaller of the two; NaN if either is.")

equal = _binary("equal", "any", "lhs == rhs as bool; false where either is NaN.")
not_equal = _binary("not_equal", "any", "lhs != rhs as bool; true where either is NaN.")
less = _binary("less", "numeric", "lhs < rhs as bool; false where either is NaN.")
less_equal = _binary("less_equal", "numeric", "lhs <= rhs as bool; false where either is NaN.")
greater = _binary("greater", "numeric", "lhs > rhs as bool; false where either is NaN.")
greater_equal = _binary("greater_equal", "numeric", "lhs >= rhs as bool; false where either is NaN.")

logical_and = _logical("logical_and", "Both are true; bool operands only.")
logical_or = _logical("logical_or", "One or both are true; bool operands only.")
logical_xor = _logical("logical_xor", "Exactly one is true; bool operands only.")
logical_not = _unary("logical_not", "bool", "True where x is false; bool only.")

negate = _unary("negate", "numeric", "-x; integers wrap.")
abs = _unary("abs", "numeric", "The absolute value; the smallest signed integer stays what it is.")
relu = _unary("relu", "numeric", "max(x, 0); NaN stays NaN.")
exp = _unary("exp", "float", "e to the power x.")
log = _unary("log", "float", "The natural logarithm; NaN below 0, -inf at 0.")
log1p = _unary("log1p", "float", "log(1 + x), exact also near 0; NaN below -1, -inf at -1.")
acos = _unary("acos", "float", "The angle whose cosine is x, from 0 to pi; numbers beyond -1 and 1 count as these.")
atanh = _unary("atanh", "float", "The number whose hyperbolic tangent is x; NaN beyond -1 and 1.")
sqrt = _unary("sqrt", "float", "The square root; NaN below 0.")
rsqrt = _unary("rsqrt", "float", "1 / sqrt(x).")
sin = _unary("sin", "float", "The sine of x in radians.")
cos = _unary("cos", "float", "The cosine of x in radians.")
tanh = _unary("tanh", "float", "The hyperbolic tangent.")
erf = _unary("erf", "float", "The Gauss error function.")
sigmoid = _unary("sigmoid", "float", "1 / (1 + exp(-x)); half types compute in float32.")
silu = _unary("silu", "float", "x * sigmoid(x); half types compute in float32.")
floor = _unary("floor", "float", "The largest integer <= x, as a float.")
ceil = _unary("ceil", "float", "The smallest integer >= x, as a float.")
round = _unary("round", "float", "The nearest integer, as a float; ties go to the even one.")
trunc = _unary("trunc", "float", "x without its fraction, as a float.")
is_nan = _unary("is_nan", "float", "True where x is NaN.")
is_inf = _unary("is_inf", "float", "True where x is plus or minus infinity.")


@op
def div(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """True division. Integers (and bools) are divided in float64."""
    strong = [value.dtype for value in (lhs, rhs) if isinstance(value, TensorValue)]
    dtype = promote(strong, "div", user_place()) if strong else None
    wanted = None if dtype is None or dtype.is_float() else DType.float64
    left, right = tensors("div", wanted, lhs=lhs, rhs=rhs)
    return builtin(_FAMILY, "div", broadcast("div", {"lhs": left, "rhs": right}))[0]


@op
def cast(x: TensorValueLike, dtype: DType) -> TensorValue:
    """`x` in another dtype. Floats lose their fraction on the way to integers; other values round to nearest.

    Raises:
        DTypeError: `x` is a plain number or array, or `dtype` is no DType.
    """
    value = tensor("cast", "x", x)
    return cast_to(value, dtype_of("dtype", dtype, "EK0413"))


@op
def gelu(x: TensorValueLike, approximate: str = "none") -> TensorValue:
    """x times the normal distribution function at x.

    Args:
        x: a tensor of floats; half types compute in float32.
        approximate: "none" by erf; "tanh"; "quick" as x * sigmoid(1.702 * x).

    Raises:
        GraphError: another `approximate`.
    """
    value = tensor("gelu", "x", x)
    check_kind("gelu", "x", value, "float")
    chosen = choice_of("approximate", approximate, ("none", "tanh", "quick"), "EK0414")
    return builtin(_FAMILY, "gelu", [value], {"approximate": chosen})[0]


@op
def where(condition: TensorValueLike, x: TensorValueLike, y: TensorValueLike) -> TensorValue:
    """Elements of `x` where `condition` is true, of `y` elsewhere; all three broadcast.

    Raises:
        DTypeError: `condition` is not a bool tensor, or `x` and `y` do not go together or are both plain numbers.
    """
    choice = tensor("where", "condition", condition)
    check_kind("where", "condition", choice, "bool")
    left, right = tensors("where", x=x, y=y)
    return builtin(_FAMILY, "where", broadcast("where", {"condition": choice, "x": left, "y": right}))[0]
