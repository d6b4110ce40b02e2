"""Converts elementwise op types: arithmetic, comparisons, logic, mathematics, activations, casts.

ONNX has no promotion: operands have one dtype already. Half types compute in float32 where a row takes several steps.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Set
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim, dim_max, dim_min
from ..agreement import broadcast_sizes
from ..call import NodeCall
from ..known import Array, KnownTensor, choose, divide, elementwise, known, quotient, same
from ..table import Value, onnx_op, same_op
from ..tensors import CODES, DTYPES

# *** arithmetic ***

same_op("Add", ops.add, elementwise(np.add, operator.add))
same_op("Sub", ops.sub, elementwise(np.subtract, operator.sub))
same_op("Mul", ops.mul, elementwise(np.multiply, operator.mul))
same_op("Neg", ops.negate, elementwise(np.negative, operator.neg))
same_op("Abs", ops.abs, elementwise(np.abs, lambda x: Dim(x).maximum(-Dim(x))))
same_op("And", ops.logical_and, np.logical_and)
same_op("Or", ops.logical_or, np.logical_or)
same_op("Xor", ops.logical_xor, np.logical_xor)
same_op("Not", ops.logical_not, np.logical_not)


def _as_bools(apply: Callable[..., Array]) -> Callable[..., Array]:
    """A comparison of arrays of objects gives bools."""
    return lambda *arrays: apply(*arrays).astype(np.bool_)


def _equal(left: Array, right: Array, axis_sizes: Set[Dim]) -> Array:
    """Whether elements are equal. That the size of an axis is -1, which PyTorch's exports compare it with, is decided
    even where import cannot prove an expression of sizes to be at least 0."""
    return elementwise(np.equal, functools.partial(same, axis_sizes=axis_sizes))(left, right).astype(np.bool_)


same_op("Equal", ops.equal, _equal)
same_op("Less", ops.less, _as_bools(elementwise(np.less, operator.lt)))
same_op("LessOrEqual", ops.less_equal, _as_bools(elementwise(np.less_equal, operator.le)))
same_op("Greater", ops.greater, _as_bools(elementwise(np.greater, operator.gt)))
same_op("GreaterOrEqual", ops.greater_equal, _as_bools(elementwise(np.greater_equal, operator.ge)))


@onnx_op("Div", known=elementwise(divide, quotient), broadcasts=True)
def div(a: TensorValue, b: TensorValue) -> TensorValue:
    """True division of floats; integers are rounded towards zero."""
    if a.dtype.is_float():
        return ops.div(a, b)
    down = ops.floordiv(a, b)
    if not a.dtype.is_signed():
        return down
    inexact = ops.logical_and(ops.not_equal(down * b, a), ops.logical_xor(ops.less(a, 0), ops.less(b, 0)))
    return ops.where(inexact, down + 1, down)


@onnx_op("Mod", known=elementwise(np.mod, operator.mod), broadcasts=True)
def mod(a: TensorValue, b: TensorValue, *, fmod: int = 0) -> TensorValue:
    """The remainder with the sign of the divisor, or of the dividend with fmod."""
    return ops.fmod(a, b) if fmod else ops.mod(a, b)


@onnx_op("Pow", known=lambda a, b: np.power(a, b).astype(a.dtype), broadcasts=True)
def pow(base: TensorValue, exponent: TensorValue) -> TensorValue:
    """The result has the base's dtype."""
    if exponent.dtype.is_float() and not base.dtype.is_float():
        return ops.cast(ops.pow(ops.cast(base, exponent.dtype), exponent), base.dtype)
    return ops.pow(base, ops.cast(exponent, base.dtype))


def _over_all(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: functools.reduce(function, values)


same_op("Sum", _over_all(ops.add), _over_all(elementwise(np.add, operator.add)))
same_op("Max", _over_all(ops.maximum), _over_all(elementwise(np.maximum, dim_max)))
same_op("Min", _over_all(ops.minimum), _over_all(elementwise(np.minimum, dim_min)))


@onnx_op("Mean", broadcasts=True)
def mean(*data: TensorValue) -> TensorValue:
    """The mean of several tensors."""
    return ops.div(functools.reduce(ops.add, data), float(len(data)))


# *** functions of one tensor ***

for _name, _function in {
    "Acosh": ops.acosh,
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "BitwiseNot": ops.bitwise_not,
    "Cosh": ops.cosh,
    "HardSwish": ops.hard_swish,
    "Mish": ops.mish,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Softsign": ops.softsign,
    "Tan": ops.tan,
    "Sigmoid": ops.sigmoid,
    "Erf": ops.erf,
    "IsNaN": ops.is_nan,
}.items():
    same_op(_name, _function)
for _name, _function, _known in (
    ("Cos", ops.cos, np.cos),
    ("Exp", ops.exp, np.exp),
    ("Log", ops.log, np.log),
    ("Relu", ops.relu, lambda x: np.maximum(x, 0)),
    ("Round", ops.round, np.round),
    ("Sin", ops.sin, np.sin),
    ("Tanh", ops.tanh, np.tanh),
):
    same_op(_name, _function, _known)
same_op("Ceil", ops.ceil, np.ceil)
same_op("Floor", ops.floor, np.floor)
same_op("Sqrt", ops.sqrt, np.sqrt)
same_op("Reciprocal", ops.reciprocal, np.reciprocal)
same_op("Sign", ops.sign, np.sign)
same_op("BitwiseAnd", ops.bitwise_and)
same_op("BitwiseOr", ops.bitwise_or)
same_op("BitwiseXor", ops.bitwise_xor)


@onnx_op("BitShift", broadcasts=True)
def bit_shift(call: NodeCall, x: TensorValue, y: TensorValue, *, direction: str) -> TensorValue:
    """Bits moved up (LEFT) or down (RIGHT)."""
    if direction not in ("LEFT", "RIGHT"):
        call.fail(f"shifts LEFT or RIGHT, not {direction!r}", argument="direction")
    return ops.left_shift(x, y) if direction == "LEFT" else ops.right_shift(x, y)


def widened(function: Callable[..., TensorValue]) -> Callable[..., TensorValue]:
    """A function of a tensor that computes half types in float32."""

    @functools.wraps(function)
    def apply(x: TensorValue, *args: object, **attributes: object) -> TensorValue:
        if not x.dtype.is_half():
            return function(x, *args, **attributes)
        wide = [ops.cast(a, DType.float32) if isinstance(a, TensorValue) and a.dtype.is_half() else a for a in args]
        return ops.cast(function(ops.cast(x, DType.float32), *wide, **attributes), x.dtype)

    return apply


@onnx_op("Acos")
def acos(x: TensorValue) -> TensorValue:
    """NaN beyond -1 and 1, where `ops.acos` clamps."""
    return ops.where(ops.greater(ops.abs(x), 1), math.nan, ops.acos(x))


@onnx_op("IsInf")
def is_inf(x: TensorValue, *, detect_negative: int = 1, detect_positive: int = 1) -> TensorValue:
    """True where x is infinity of one of the signs requested."""
    if detect_negative and detect_positive:
        return ops.is_inf(x)
    if not detect_negative and not detect_positive:
        return ops.logical_and(ops.is_inf(x), False)
    return ops.equal(x, math.inf if detect_positive else -math.inf)


@onnx_op("Where", known=choose, broadcasts=True)
def where(condition: TensorValue, x: TensorValue, y: TensorValue) -> TensorValue:
    """Elements of x where condition is true, of y elsewhere."""
    return ops.where(condition, x, y)


# *** activations ***


@onnx_op("LeakyRelu")
def leaky_relu(x: TensorValue, *, alpha: float) -> TensorValue:
    """alpha * x below 0."""
    return ops.leaky_relu(x, alpha)


@onnx_op("PRelu")
def prelu(call: NodeCall, x: TensorValue, slope: TensorValue) -> TensorValue:
    """slope * x below 0; slope broadcasts to x, before version 7 along the channels."""
    if call.version < 7 and slope.rank == 1:
        slope = ops.reshape(slope, [slope.shape[0], *[1] * (x.rank - 2)])
    x, slope = broadcast_sizes(call, [x, slope])
    return ops.prelu(x, slope) if x.dtype.is_float() else ops.where(ops.less(x, 0), x * slope, x)


@onnx_op("Elu")
def elu(x: TensorValue, *, alpha: float) -> TensorValue:
    """alpha * (e^x - 1) below 0."""
    return ops.elu(x, alpha)


@onnx_op("Celu")
def celu(x: TensorValue, *, alpha: float) -> TensorValue:
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))."""
    return ops.celu(x, alpha)


@onnx_op("Selu")
def selu(x: TensorValue, *, alpha: float, gamma: float) -> TensorValue:
    """gamma times x, or times alpha * (e^x - 1) up to 0."""
    return ops.selu(x, alpha, gamma)


@onnx_op("ThresholdedRelu")
def thresholded_relu(x: TensorValue, *, alpha: float) -> TensorValue:
    """x above alpha, else 0."""
    return ops.thresholded_relu(x, alpha)


@onnx_op("HardSigmoid")
def hard_sigmoid(x: TensorValue, *, alpha: float, beta: float) -> TensorValue:
    """alpha * x + beta, cut off at 0 and 1."""
    return ops.hard_sigmoid(x, alpha, beta)


@onnx_op("Swish")
@widened
def swish(x: TensorValue, *, alpha: float) -> TensorValue:
    """x * sigmoid(alpha * x)."""
    return x * ops.sigmoid(x * alpha)


@onnx_op("Gelu")
def gelu(x: TensorValue, *, approximate: str) -> TensorValue:
    """By erf, or by tanh."""
    return ops.gelu(x, approximate)


@onnx_op("Shrink")
def shrink(x: TensorValue, *, bias: float, lambd: float) -> TensorValue:
    """x moved towards 0 by bias, and 0 within lambd of it."""
    if not x.dtype.is_float():
        return ops.cast(ops.shrink(ops.cast(x, DType.float64), lambd, bias), x.dtype)
    return ops.shrink(x, lambd, bias)


@onnx_op("Clip")
def clip(call: NodeCall, x: TensorValue, min: Value = None, max: Value = None) -> TensorValue:
    """x between min and max; max wins where they cross."""
    for bound, function in ((min, ops.maximum), (max, ops.minimum)):
        if bound is not None:
            x = function(x, ops.cast(call.tensor(bound), x.dtype))
    return x


# *** casts ***


def _known_cast(x: Array, to: int) -> KnownTensor:
    dtype = DTYPES[to]
    if x.dtype == object:
        return known(x, dtype)
    if x.dtype.kind == "f" and not dtype.is_float():
        x = np.trunc(x) if dtype is not DType.bool else x != 0
    return KnownTensor(np.asarray(x.astype(dtype.to_numpy())), dtype)


@onnx_op("Cast", known=_known_cast, unlimited=True)
def cast(call: NodeCall, x: TensorValue, *, to: int, saturate: int = 1, round_mode: str = "up") -> TensorValue:
    """Another dtype."""
    return _cast_to(call, x, call.dtype(to), saturate, round_mode)


@onnx_op("BitCast")
def bit_cast(call: NodeCall, x: TensorValue, *, to: int) -> TensorValue:
    """The same bits, read as another dtype of as many."""
    dtype = call.dtype(to)
    if x.dtype is DType.bool and dtype is not DType.bool:
        x = ops.cast(x, DType.uint8)  # a bool is 0 or 1
    return ops.bitcast(x, dtype)


@onnx_op("CastLike")
def cast_like(call: NodeCall, x: Value, target: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """The dtype of another tensor."""
    dtype = target.dtype if isinstance(target, KnownTensor) else call.tensor(target).dtype
    if isinstance(x, KnownTensor) and not dtype.is_storage() and not x.dtype.is_storage():
        return _known_cast(x.array, CODES[dtype])
    return _cast_to(call, call.tensor(x), dtype, saturate, round_mode)


def _cast_to(call: NodeCall, x: TensorValue, dtype: DType, saturate: int, round_mode: str) -> TensorValue:
    """Narrow floats are cut off at their largest number; integers of 4 bits wrap."""
    if x.dtype.is_storage() and x.dtype.is_float() and not dtype.is_float():
        x = ops.cast(x, DType.float32)
    if dtype.is_storage() and dtype.is_integral() and x.dtype.is_float():
        return ops.cast(ops.cast(x, DType.int32), dtype)
    if not (dtype.is_storage() and dtype.is_float() and saturate):
        return ops.cast(x, dtype)
    if x.dtype is not DType.float64:
        x = ops.cast(x, DType.float32)
    low, high = (2.0**-127, 2.0**127) if dtype is DType.float8_e8m0fnu else (-LARGEST[dtype], LARGEST[dtype])
    return ops.cast(_power_of_two(ops.maximum(ops.minimum(x, high), low), dtype, round_mode), dtype)


def _power_of_two(x: TensorValue, dtype: DType, round_mode: str) -> TensorValue:
    """For scales that are powers of two, the next one up or down, where that is requested."""
    if dtype is not DType.float8_e8m0fnu or round_mode == "nearest":
        return x
    nearest = ops.cast(ops.cast(x, dtype), x.dtype)
    if round_mode == "up":
        return ops.where(ops.less(nearest, x), nearest * 2.0, nearest)
    return ops.where(ops.greater(nearest, x), nearest * 0.5, nearest)


LARGEST = {
    DType.float4_e2m1fn: 6.0,
    DType.float8_e4m3fn: 448.0,
    DType.float8_e4m3fnuz: 240.0,
    DType.float8_e5m2: 57344.0,
    DType.float8_e5m2fnuz: 57344.0,
}
