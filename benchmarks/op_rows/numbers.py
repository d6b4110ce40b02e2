"""Rows of ops that compute element by element, along axes, and of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import ops

from .row import MAKE, Array, Call, Row, floats, places, torch_module


def _one(op: str, numpy: Call | None = None, torch: str = "", onnx: str = "", make: Call | None = None) -> Row:
    """An elementwise op of one tensor; `torch` is a function of it, or of `torch.nn.functional` after a dot."""

    def peer(x: Any) -> Any:
        return getattr(torch_module().nn.functional if torch[0] == "." else torch_module(), torch.lstrip("."))(x)

    return Row(op, "256 x 4096", make or (lambda: [floats(256, 4096)]), getattr(ops, op), numpy,
               peer if torch else None, (onnx, {}) if onnx else None, tolerance=1e-5)  # fmt: skip


def _along(op: str, numpy: Call | None, torch: Call | None, ours: Call | None = None, tolerance: float = 1e-4) -> Row:
    return Row(op, "256 x 768", lambda: [floats(256, 768)], ours or getattr(ops, op), numpy, torch, tolerance=tolerance)


def _normal(name: str, *arguments: Any) -> Call:
    return lambda x, *w: getattr(torch_module().nn.functional, name)(x, *arguments, *w)


def _images() -> list[Array]:
    return [floats(4, 64, 56, 56), *(np.abs(floats(64)) + 1 for _ in range(2))]


def _pairs(x: Any) -> Any:
    return torch_module().view_as_complex(x)


def _flat(z: Any) -> Any:
    return torch_module().view_as_real(z)


def _complex(*shape: int) -> Array:
    pairs = floats(*shape, 2)
    return (pairs[..., 0] + 1j * pairs[..., 1]).astype(np.complex64)


def _in_pairs(z: Array) -> Array:
    return np.stack([z.real, z.imag], -1).astype(np.float32)


def _inside() -> list[Array]:
    return [MAKE.uniform(-0.9, 0.9, (256, 4096)).astype(np.float32)]


def _above_one() -> list[Array]:
    return [MAKE.uniform(1.1, 9, (256, 4096)).astype(np.float32)]


ONE_NUMBER = [
    _one("softplus", None, ".softplus", "Softplus"), _one("log_sigmoid", None, ".logsigmoid"),
    _one("elu", None, ".elu", "Elu"), _one("selu", None, ".selu", "Selu"), _one("celu", None, ".celu", "Celu"),
    _one("leaky_relu", None, ".leaky_relu", "LeakyRelu"), _one("relu6", None, ".relu6"),
    _one("hard_sigmoid", None, ".hardsigmoid"), _one("hard_swish", None, ".hardswish", "HardSwish"),
    _one("mish", None, ".mish", "Mish"), _one("softsign", None, ".softsign", "Softsign"),
    _one("shrink", None, ".hardshrink"), _one("hard_tanh", None, ".hardtanh"),
    _one("thresholded_relu", None, "", "ThresholdedRelu"),
    _one("tan", np.tan, "tan", "Tan"), _one("atan", np.arctan, "atan", "Atan"), _one("sinh", np.sinh, "sinh"),
    _one("cosh", np.cosh, "cosh"), _one("asinh", np.arcsinh, "asinh"), _one("exp2", np.exp2, "exp2"),
    _one("expm1", np.expm1, "expm1"), _one("cbrt", np.cbrt), _one("erfc", None, "erfc"),
    _one("reciprocal", np.reciprocal, "reciprocal", "Reciprocal"),
    _one("square", np.square, "square"), _one("sign", np.sign, "sign", "Sign"),
    _one("is_finite", np.isfinite, "isfinite"), _one("asin", np.arcsin, "asin", "Asin", _inside),
    _one("log2", np.log2, "log2", "", _above_one), _one("log10", np.log10, "log10", "", _above_one),
    _one("acosh", np.arccosh, "acosh", "Acosh", _above_one),
]  # fmt: skip
NUMBERS = [
    *ONE_NUMBER,
    *(Row("lgamma", f"256 x 4096, {which}", make, ops.lgamma, None, lambda x: x.lgamma(), tolerance=1e-5)
      for which, make in (("from 1.1 to 9", _above_one), ("half of them negative", lambda: [floats(256, 4096)]))),
    *(
        Row(op, "256 x 4096, two", lambda: [floats(256, 4096), floats(256, 4096)], getattr(ops, op), numpy,
            lambda x, y, op=op: getattr(torch_module(), op)(x, y), tolerance=1e-5)
        for op, numpy in (("atan2", np.arctan2), ("hypot", np.hypot), ("fmod", np.fmod), ("copysign", np.copysign),
                          ("nextafter", np.nextafter))
    ),
    Row("clamp", "256 x 4096", lambda: [floats(256, 4096)], lambda x: ops.clamp(x, -1, 1),
        lambda x: np.clip(x, np.float32(-1), np.float32(1)), lambda x: x.clamp(-1, 1)),
    Row("bitwise_and", "256 x 4096 int32", lambda: [places(1000, 256, 4096).astype(np.int32)], lambda x: x & 7,
        lambda x: x & 7, lambda x: x & 7),
    Row("left_shift", "256 x 4096 int32", lambda: [places(1000, 256, 4096).astype(np.int32)], lambda x: x << 3,
        lambda x: x << 3, lambda x: x << 3),
    _along("cumsum", lambda x: np.cumsum(x, -1), lambda x: x.cumsum(-1)),
    _along("cumprod", lambda x: np.cumprod(x, -1), lambda x: x.cumprod(-1)),
    _along("prod", lambda x: x.prod(-1, keepdims=True), lambda x: x.prod(-1, keepdim=True)),
    _along("var", lambda x: x.var(-1, keepdims=True), lambda x: x.var(-1, correction=0, keepdim=True)),
    _along("stdev", lambda x: x.std(-1, keepdims=True), lambda x: x.std(-1, correction=0, keepdim=True)),
    _along("any", lambda x: x.any(-1, keepdims=True), lambda x: x.any(-1, keepdim=True)),
    _along("all", lambda x: x.all(-1, keepdims=True), lambda x: x.all(-1, keepdim=True)),
    _along("count_nonzero", lambda x: np.count_nonzero(x, -1, keepdims=True), None),
    _along("logsumexp", None, lambda x: x.logsumexp(-1, keepdim=True)),
    _along("l1_norm", None, lambda x: x.norm(1, -1, keepdim=True)),
    _along("l2_norm", None, lambda x: x.norm(2, -1, keepdim=True)),
    _along("sum_of_squares", lambda x: (x * x).sum(-1, keepdims=True), lambda x: (x * x).sum(-1, keepdim=True)),
    _along("l2_normalize", None, lambda x: torch_module().nn.functional.normalize(x, dim=-1)),
    Row("layer_norm", "256 x 768", lambda: [floats(256, 768), floats(768), floats(768)],
        lambda x, g, b: ops.layer_norm(x, g, b, 1e-5), None, _normal("layer_norm", (768,)),
        ("LayerNormalization", {}), tolerance=1e-5),
    Row("rms_norm", "256 x 768", lambda: [floats(256, 768), floats(768)], lambda x, w: ops.rms_norm(x, w, 1e-5), None,
        lambda x, w: torch_module().nn.functional.rms_norm(x, (768,), w, 1e-5), tolerance=1e-5),
    Row("group_norm", "4 x 64 x 56 x 56, 8 groups", _images, lambda x, g, b: ops.group_norm(x, g, b, 8), None,
        _normal("group_norm", 8), tolerance=1e-5),
    Row("instance_norm", "4 x 64 x 56 x 56", _images, ops.instance_norm, None,
        lambda x, g, b: torch_module().nn.functional.instance_norm(x, weight=g, bias=b),
        ("InstanceNormalization", {}), tolerance=1e-5),
    Row("batch_norm", "4 x 64 x 56 x 56", _images, lambda x, g, b: ops.batch_norm(x, g, b, b, g), None,
        lambda x, g, b: torch_module().nn.functional.batch_norm(x, b, g, g, b), tolerance=1e-5),
    Row("sort", "1 000 000", lambda: [floats(1000000)], ops.sort, np.sort, lambda x: x.sort().values),
    Row("sort", "256 x 768", lambda: [floats(256, 768)], ops.sort, np.sort, lambda x: x.sort().values),
    Row("argsort", "256 x 768, axis 1", lambda: [floats(256, 768)], lambda x: ops.argsort(x, axis=1),
        lambda x: np.argsort(x, 1, kind="stable"), lambda x: x.argsort(dim=1, stable=True)),
    Row("top_k", "256 x 768, 5", lambda: [floats(256, 768)], lambda x: ops.top_k(x, 5), None,
        lambda x: x.topk(5).values),
    Row("bottom_k", "256 x 768, 5", lambda: [floats(256, 768)], lambda x: ops.bottom_k(x, 5), None,
        lambda x: x.topk(5, largest=False).values),
    Row("ifft", "256 x 1024", lambda: [floats(256, 1024, 2)], ops.ifft,
        lambda x: _in_pairs(np.fft.ifft(x[..., 0] + 1j * x[..., 1])),
        lambda x: _flat(torch_module().fft.ifft(_pairs(x))),
        tolerance=1e-5),
    Row("fft", "256 x 1024", lambda: [floats(256, 1024, 2)], ops.fft,
        lambda x: _in_pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1])), lambda x: _flat(torch_module().fft.fft(_pairs(x))),
        tolerance=1e-5),
    Row("rfft", "256 x 1024", lambda: [floats(256, 1024)], ops.rfft, np.fft.rfft,
        lambda x: torch_module().fft.rfft(x), tolerance=1e-5),
    Row("irfft", "256 x 1024", lambda: [floats(256, 513, 2)], lambda x: ops.irfft(x, input_is_complex=True),
        lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1]),
        lambda x: torch_module().fft.irfft(_pairs(x)), tolerance=1e-5),
    Row("fftn", "256 x 256", lambda: [_complex(256, 256)], ops.fftn, np.fft.fftn,
        lambda x: torch_module().fft.fftn(x), tolerance=1e-5),
    Row("rfftn", "256 x 256", lambda: [floats(256, 256)], ops.rfftn, np.fft.rfftn,
        lambda x: torch_module().fft.rfftn(x), tolerance=1e-5),
    Row("irfftn", "256 x 129", lambda: [_complex(256, 129)], ops.irfftn, np.fft.irfftn,
        lambda x: torch_module().fft.irfftn(x), tolerance=1e-5),
    Row("complex.mul", "256 x 512", lambda: [floats(256, 512, 2), floats(256, 512, 2)], ops.complex.mul, None,
        lambda x, y: _flat(_pairs(x) * _pairs(y)), tolerance=1e-5),
    Row("einsum", "bhqd,bhkd->bhqk, 4 x 8 x 128 x 64", lambda: [floats(4, 8, 128, 64), floats(4, 8, 128, 64)],
        lambda x, y: ops.einsum("bhqd,bhkd->bhqk", x, y), None,
        lambda x, y: torch_module().einsum("bhqd,bhkd->bhqk", x, y), tolerance=1e-5),
]  # fmt: skip
