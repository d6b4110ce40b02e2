"""Declares what stands between the layers of networks: rectifiers and gates. One row an op (see `rows`).

Attributes are plain numbers, known when the graph is built.
"""

from __future__ import annotations

from ..arguments import number_of
from ..staging.value import TensorValue, TensorValueLike
from .rows import elementwise


@elementwise("float", attributes={"beta": number_of})
def softplus(x: TensorValueLike, beta: float = 1.0) -> TensorValue:
    """log(1 + exp(beta * x)) / beta."""


@elementwise("float")
def log_sigmoid(x: TensorValueLike) -> TensorValue:
    """The logarithm of sigmoid, without its underflow."""


@elementwise("float", attributes={"alpha": number_of})
def elu(x: TensorValueLike, alpha: float = 1.0) -> TensorValue:
    """x above 0, else alpha * (exp(x) - 1)."""


@elementwise("float", attributes={"alpha": number_of, "gamma": number_of})
def selu(x: TensorValueLike, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> TensorValue:
    """gamma * elu(x, alpha): with the defaults, what keeps mean 0 and variance 1."""


@elementwise("float", attributes={"alpha": number_of})
def celu(x: TensorValueLike, alpha: float = 1.0) -> TensorValue:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""


@elementwise("float", attributes={"negative_slope": number_of})
def leaky_relu(x: TensorValueLike, negative_slope: float = 0.01) -> TensorValue:
    """x from 0 on, else negative_slope * x."""


@elementwise("float", attributes={"alpha": number_of})
def thresholded_relu(x: TensorValueLike, alpha: float = 1.0) -> TensorValue:
    """x above alpha, else 0; NaN stays NaN."""


@elementwise("float")
def relu6(x: TensorValueLike) -> TensorValue:
    """min(max(x, 0), 6)."""


@elementwise("float", attributes={"min_val": number_of, "max_val": number_of})
def hard_tanh(x: TensorValueLike, min_val: float = -1.0, max_val: float = 1.0) -> TensorValue:
    """x held between min_val and max_val."""


@elementwise("float", attributes={"alpha": number_of, "beta": number_of})
def hard_sigmoid(x: TensorValueLike, alpha: float = 0.16666666666666666, beta: float = 0.5) -> TensorValue:
    """alpha * x + beta held between 0 and 1; the default alpha is 1/6, where ONNX has 0.2."""


@elementwise("float")
def hard_swish(x: TensorValueLike) -> TensorValue:
    """x * hard_sigmoid(x)."""


@elementwise("float")
def mish(x: TensorValueLike) -> TensorValue:
    """x * tanh(softplus(x))."""


@elementwise("float")
def softsign(x: TensorValueLike) -> TensorValue:
    """x / (1 + abs(x))."""


@elementwise("float", attributes={"lambd": number_of, "bias": number_of})
def shrink(x: TensorValueLike, lambd: float = 0.5, bias: float = 0.0) -> TensorValue:
    """x brought nearer to 0 by bias, and 0 within lambd of it: hard shrink, soft shrink with bias = lambd."""


@elementwise("float")
def prelu(x: TensorValueLike, slope: TensorValueLike) -> TensorValue:
    """x from 0 on, else slope * x, for a slope that is learnt; the two broadcast."""
