"""Declares the elementwise ops: arithmetic, comparisons, logic, mathematics. One row an op (see `rows`).

Operands are promoted to one dtype (see `types.promotion`) and broadcast to one shape; the result has both, comparisons
and predicates give bool. With `fast=True` a GPU takes its instructions that approximate a function of float32 and half
types (see `docs/numerics.md`); elsewhere nothing changes, and other dtypes are refused.
"""

from __future__ import annotations

from functools import partial

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.types.dtype import DType
from ..arguments import choice_of, dtype_of, flag_of, number_of
from ..staging.value import TensorValue, TensorValueLike
from .operands import cast_to, check_kind, parts_kernel, tensor
from .rows import elementwise
from .stage import builtin, fail, op

# *** arithmetic ***


@elementwise("number", operator="__add__")
def add(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs + rhs; integers wrap."""


@elementwise("number", operator="__sub__")
def sub(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs - rhs; integers wrap."""


@elementwise("number", operator="__mul__")
def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs * rhs; integers wrap."""


@elementwise("comparable", integers=DType.float64, fast=True, operator="__truediv__")
def div(lhs: TensorValueLike, rhs: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """True division. Integers (and bools) are divided in float64."""


@elementwise("numeric", operator="__floordiv__")
def floordiv(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The quotient rounded down, in the operands' dtype; Python's signs."""


@elementwise("numeric", operator="__mod__")
def mod(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs - rhs * floor(lhs / rhs): the remainder with the sign of rhs, as Python's %."""


@elementwise("number", operator="__pow__")
def pow(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs to the power rhs."""


@elementwise("numeric")
def maximum(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The larger of the two; NaN if either is."""


@elementwise("numeric")
def minimum(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The smaller of the two; NaN if either is."""


# *** comparisons ***


@elementwise("comparable", operator="__eq__")
def equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs == rhs as bool; false where either is NaN."""


@elementwise("comparable", operator="__ne__")
def not_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs != rhs as bool; true where either is NaN."""


@elementwise("numeric", operator="__lt__")
def less(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs < rhs as bool; false where either is NaN."""


@elementwise("numeric", operator="__le__")
def less_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs <= rhs as bool; false where either is NaN."""


@elementwise("numeric", operator="__gt__")
def greater(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs > rhs as bool; false where either is NaN."""


@elementwise("numeric", operator="__ge__")
def greater_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """lhs >= rhs as bool; false where either is NaN."""


# *** logic ***


@elementwise("bool", operator="__and__")
def logical_and(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Both are true; bool operands only."""


@elementwise("bool", operator="__or__")
def logical_or(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """One or both are true; bool operands only."""


@elementwise("bool", operator="__xor__")
def logical_xor(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Exactly one is true; bool operands only."""


@elementwise("bool", operator="__invert__")
def logical_not(x: TensorValueLike) -> TensorValue:
    """True where x is false; bool only."""


# *** functions of one tensor ***


@elementwise("number", operator="__neg__")
def negate(x: TensorValueLike) -> TensorValue:
    """-x; integers wrap."""


@op(dtypes={"x": "number"}, example="ops.abs(x)", operator="__abs__")
def abs(x: TensorValueLike) -> TensorValue:
    """The absolute value, of complex numbers a float; the smallest signed integer stays what it is."""
    value = tensor("abs", "x", x)
    check_kind("abs", "x", value, "number")
    return parts_kernel("modulus", value) if value.dtype.is_complex() else builtin("elementwise", "abs", [value])[0]


@elementwise("numeric")
def relu(x: TensorValueLike) -> TensorValue:
    """max(x, 0); NaN stays NaN."""


@elementwise("inexact", fast=True)
def exp(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """e to the power x."""


@elementwise("inexact", fast=True)
def log(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The natural logarithm; NaN below 0, -inf at 0."""


@elementwise("inexact")
def log1p(x: TensorValueLike) -> TensorValue:
    """log(1 + x), exact also near 0; NaN below -1, -inf at -1."""


@elementwise("inexact")
def acos(x: TensorValueLike) -> TensorValue:
    """The angle whose cosine is x, from 0 to pi; numbers beyond -1 and 1 count as these."""


@elementwise("inexact")
def atanh(x: TensorValueLike) -> TensorValue:
    """The number whose hyperbolic tangent is x; NaN beyond -1 and 1."""


@elementwise("inexact", fast=True)
def sqrt(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The square root; NaN below 0."""


@elementwise("float", fast=True)
def rsqrt(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """1 / sqrt(x)."""


@elementwise("inexact", fast=True)
def sin(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The sine of x in radians."""


@elementwise("inexact", fast=True)
def cos(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The cosine of x in radians."""


@elementwise("inexact", fast=True)
def tanh(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The hyperbolic tangent."""


@elementwise("float", fast=True)
def erf(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """The Gauss error function."""


@elementwise("float", fast=True)
def sigmoid(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """1 / (1 + exp(-x)); half types compute in float32."""


@elementwise("float", fast=True)
def silu(x: TensorValueLike, *, fast: bool = False) -> TensorValue:
    """x * sigmoid(x); half types compute in float32."""


@elementwise(
    "float",
    attributes={"approximate": partial(choice_of, known=("none", "tanh", "quick"), code="EK0414")},
    fast=True,
)
def gelu(x: TensorValueLike, approximate: str = "none", *, fast: bool = False) -> TensorValue:
    """x times the normal distribution function at x.

    Args:
        x: a tensor of floats; half types compute in float32.
        approximate: "none" by erf; "tanh"; "quick" as x * sigmoid(1.702 * x).
        fast: on GPUs their instructions for `erf`, `tanh` or `exp`: see `docs/numerics.md`.

    Raises:
        GraphError: another `approximate`.
    """


@elementwise("float")
def floor(x: TensorValueLike) -> TensorValue:
    """The largest integer <= x, as a float."""


@elementwise("float")
def ceil(x: TensorValueLike) -> TensorValue:
    """The smallest integer >= x, as a float."""


@elementwise("float", operator="__round__")
def round(x: TensorValueLike) -> TensorValue:
    """The nearest integer, as a float; ties go to the even one."""


@elementwise("float")
def trunc(x: TensorValueLike) -> TensorValue:
    """x without its fraction, as a float."""


@elementwise("inexact")
def is_nan(x: TensorValueLike) -> TensorValue:
    """True where x is NaN."""


@elementwise("inexact")
def is_inf(x: TensorValueLike) -> TensorValue:
    """True where x is plus or minus infinity."""


@elementwise("number", attributes={"rtol": number_of, "atol": number_of, "equal_nan": flag_of})
def isclose(
    lhs: TensorValueLike, rhs: TensorValueLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> TensorValue:
    """Whether abs(lhs - rhs) <= atol + rtol * abs(rhs); equal infinities are close, NaN to NaN with `equal_nan`."""


# *** choices and casts ***


@elementwise("storable", apart={"condition": "bool"})
def where(condition: TensorValueLike, x: TensorValueLike, y: TensorValueLike) -> TensorValue:
    """Elements of `x` where `condition` is true, of `y` elsewhere; all three broadcast.

    Raises:
        DTypeError: `condition` is not a bool tensor, or `x` and `y` do not go together or are both plain numbers.
    """


@op(dtypes={"x": "storable"}, example="ops.cast(x, DType.float16)", method="cast")
def cast(x: TensorValueLike, dtype: DType) -> TensorValue:
    """`x` in another dtype. Floats lose their fraction on the way to integers; other values round to nearest.

    Raises:
        DTypeError: `x` is a plain number or array, or `dtype` is not a DType.
    """
    value = tensor("cast", "x", x)
    return cast_to(value, dtype_of("dtype", dtype, "EK0413"))


def _is_complex(*dtypes: DType) -> bool:
    return any(dtype.is_complex() for dtype in dtypes)


@op(dtypes={"x": "storable"}, example="ops.bitcast(x, DType.int32)")
def bitcast(x: TensorValueLike, dtype: DType) -> TensorValue:
    """The bits of `x` read as another dtype of the same width.

    Raises:
        DTypeError: EK0413, `dtype` has another width, or one of the two is bool.
    """
    value = tensor("bitcast", "x", x)
    wanted = dtype_of("dtype", dtype, "EK0413")
    if value.dtype is wanted:
        return value
    if wanted.bits != value.dtype.bits or DType.bool in (wanted, value.dtype) or _is_complex(wanted, value.dtype):
        text = f"the bits of {value.dtype} are none of {wanted}"
        expected = f"a dtype of {value.dtype.bits} bits"
        fail("bitcast", text, code="EK0413", kind=DTypeError, argument="dtype", expected=expected, got=str(wanted))
    return builtin("elementwise", "bitcast", [value], {"dtype": wanted}, [value.type.with_dtype(wanted)])[0]
