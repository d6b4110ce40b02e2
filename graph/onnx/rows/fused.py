"""Converts the products, convolutions and activations that ONNX Runtime fuses, in the domain com.microsoft.

Half types compute in float32 and are rounded once.

See also `quantised_products`, `blocked` (the same on integers, and on blocks of channels).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import ops
from ...staging.value import TensorValue
from ..agreement import same_sizes
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .images import conv
from .matmul import gemm, product_operands
from .normalisation import widen

Activation = Callable[[TensorValue, list[float]], TensorValue]


def _by_default(params: Sequence[float], *defaults: float) -> list[float]:
    return [*params, *defaults[len(params) :]]


def _hard_swish(x: TensorValue, params: Sequence[float]) -> TensorValue:
    alpha, beta = _by_default(params, 1 / 6, 0.5)
    return x * ops.hard_sigmoid(x, alpha, beta)


def _quick_gelu(x: TensorValue, alpha: float) -> TensorValue:
    wide = widen(x)
    return ops.cast(wide * ops.sigmoid(wide * alpha), x.dtype)


# By the names that nodes have; each takes the numbers of `activation_params`.
_ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda x, params: ops.relu(x),
    "Sigmoid": lambda x, params: ops.sigmoid(x),
    "Tanh": lambda x, params: ops.tanh(x),
    "Softplus": lambda x, params: ops.softplus(x),
    "Softsign": lambda x, params: ops.softsign(x),
    "Gelu": lambda x, params: ops.gelu(x),
    "QuickGelu": lambda x, params: _quick_gelu(x, *_by_default(params, 1.702)),
    "HardSwish": _hard_swish,
    "HardSigmoid": lambda x, params: ops.hard_sigmoid(x, *_by_default(params, 0.2, 0.5)),
    "LeakyRelu": lambda x, params: ops.leaky_relu(x, *_by_default(params, 0.01)),
    "ThresholdedRelu": lambda x, params: ops.thresholded_relu(x, *_by_default(params, 1.0)),
    "Elu": lambda x, params: ops.elu(x, *_by_default(params, 1.0)),
    "Clip": lambda x, params: ops.clamp(x, *params),
}


def activated(call: NodeCall, x: TensorValue, name: str | None, params: Sequence[float] | None) -> TensorValue:
    """The activation of a fused node, of its result."""
    if not name:
        return x
    if name not in _ACTIVATIONS:
        call.fail(f"has the activation {name!r}; known are {', '.join(_ACTIVATIONS)}", argument="activation")
    return _ACTIVATIONS[name](x, list(params or []))


# *** activations ***


@onnx_op("Gelu", domain=MICROSOFT)
def gelu(x: TensorValue) -> TensorValue:
    """x times the normal distribution function at x."""
    return ops.gelu(x)


@onnx_op("BiasGelu", domain=MICROSOFT, broadcasts=True)
def bias_gelu(a: TensorValue, b: TensorValue) -> TensorValue:
    """The same of a + b."""
    return ops.gelu(a + b)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(x: TensorValue, bias: TensorValue | None = None) -> TensorValue:
    """The same by tanh, of x + bias."""
    return ops.gelu(x if bias is None else x + bias, "tanh")


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: TensorValue, *, alpha: float = 1.702) -> TensorValue:
    """x * sigmoid(alpha * x)."""
    return _quick_gelu(x, alpha)


# *** products ***


def _transposed(x: TensorValue, inner: int, batch: int) -> TensorValue:
    """With the first axis moved before the last (`batch`), then with the last two axes swapped (`inner`)."""
    if batch and x.rank > 2:
        x = ops.permute(x, [*range(1, x.rank - 1), 0, x.rank - 1])
    return ops.transpose(x, -1, -2) if inner and x.rank > 1 else x


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> TensorValue:
    """alpha * A @ B, each transposed on request."""
    operands = _transposed(a, transA, transBatchA), _transposed(b, transB, transBatchB)
    product = ops.matmul(*product_operands(call, *operands))
    return product if alpha == 1 else product * alpha


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    call: NodeCall,
    a: TensorValue,
    b: TensorValue,
    c: TensorValue | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> TensorValue:
    """The activation of alpha * A @ B + beta * C."""
    product = gemm(call, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    params = [each for each in (activation_alpha, activation_beta, activation_gamma) if each is not None]
    return activated(call, product, activation, params)


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    b: TensorValue | None = None,
    z: TensorValue | None = None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The activation of a convolution, to which Z is added before."""
    attributes = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads}
    result = conv(call, x, w, b, auto_pad=auto_pad, group=group, **attributes)
    if z is not None:
        left, right = same_sizes(call, [result, z])
        result = left + right
    return activated(call, result, activation, activation_params)
