"""Rows of the plainest ops: a number of each number or pair of numbers, constants, and changes of order in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import DeviceRef, DType, ops

from .row import MAKE, Array, Call, Row, floats, functional, places, torch_module

SHAPE = (256, 4096)
SIZE = "256 x 4096"


def _bools() -> Array:
    return places(2, *SHAPE) == 1


def _ints() -> Array:
    return places(1000, *SHAPE).astype(np.int32)


def _plain() -> Array:
    return floats(*SHAPE)


def _positive() -> Array:
    return MAKE.uniform(0.1, 9, SHAPE).astype(np.float32)


def _inside() -> Array:
    return MAKE.uniform(-0.9, 0.9, SHAPE).astype(np.float32)


DTYPES = {_bools: " bool", _ints: " int32"}


def _one(op: str, numpy: Call | None, torch: Call | None, onnx: str = "", make: Call = _plain) -> Row:
    return Row(op, SIZE + DTYPES.get(make, ""), lambda: [make()], getattr(ops, op), numpy, torch,
               (onnx, {}) if onnx else None, tolerance=1e-5)  # fmt: skip


def _two(op: str, numpy: Call, torch: str, onnx: str = "", make: Call = _plain) -> Row:
    return Row(op, f"{SIZE}{DTYPES.get(make, '')}, two", lambda: [make(), make()], getattr(ops, op), numpy,
               lambda x, y: getattr(torch_module(), torch)(x, y), (onnx, {}) if onnx else None,
               tolerance=1e-5)  # fmt: skip


def _t(name: str) -> Call:
    return lambda x: getattr(torch_module(), name)(x)


def _f(name: str) -> Call:
    return lambda x: getattr(functional(), name)(x)


ONE = [
    _one("negate", np.negative, _t("neg"), "Neg"), _one("abs", np.abs, _t("abs"), "Abs"),
    _one("relu", None, _f("relu"), "Relu"), _one("exp", np.exp, _t("exp"), "Exp"),
    _one("log", np.log, _t("log"), "Log", _positive), _one("log1p", np.log1p, _t("log1p"), "", _positive),
    _one("acos", np.arccos, _t("acos"), "Acos", _inside), _one("atanh", np.arctanh, _t("atanh"), "Atanh", _inside),
    _one("sqrt", np.sqrt, _t("sqrt"), "Sqrt", _positive), _one("rsqrt", None, _t("rsqrt"), "", _positive),
    _one("sin", np.sin, _t("sin"), "Sin"), _one("cos", np.cos, _t("cos"), "Cos"),
    _one("tanh", np.tanh, _t("tanh"), "Tanh"), _one("erf", None, _t("erf"), "Erf"),
    _one("sigmoid", None, _t("sigmoid"), "Sigmoid"), _one("silu", None, _f("silu")),
    _one("gelu", None, _f("gelu"), "Gelu"), _one("floor", np.floor, _t("floor"), "Floor"),
    _one("ceil", np.ceil, _t("ceil"), "Ceil"), _one("round", np.round, _t("round"), "Round"),
    _one("trunc", np.trunc, _t("trunc")), _one("is_nan", np.isnan, _t("isnan")),
    _one("is_inf", np.isinf, _t("isinf")), _one("logical_not", np.logical_not, _t("logical_not"), "Not", _bools),
    _one("bitwise_not", np.bitwise_not, _t("bitwise_not"), "BitwiseNot", _ints),
]  # fmt: skip

TWO = [
    _two("add", np.add, "add", "Add"), _two("sub", np.subtract, "sub", "Sub"), _two("mul", np.multiply, "mul", "Mul"),
    _two("div", np.divide, "div", "Div"), _two("floordiv", np.floor_divide, "floor_divide"),
    _two("mod", np.mod, "remainder"), _two("pow", np.power, "pow", "Pow", _positive),
    _two("maximum", np.maximum, "maximum", "Max"), _two("minimum", np.minimum, "minimum", "Min"),
    _two("equal", np.equal, "eq", "", _ints), _two("not_equal", np.not_equal, "ne", "", _ints),
    _two("less", np.less, "lt"), _two("less_equal", np.less_equal, "le"), _two("greater", np.greater, "gt"),
    _two("greater_equal", np.greater_equal, "ge"), _two("logical_and", np.logical_and, "logical_and", "And", _bools),
    _two("logical_or", np.logical_or, "logical_or", "Or", _bools),
    _two("logical_xor", np.logical_xor, "logical_xor", "Xor", _bools),
    _two("bitwise_or", np.bitwise_or, "bitwise_or", "BitwiseOr", _ints),
    _two("bitwise_xor", np.bitwise_xor, "bitwise_xor", "BitwiseXor", _ints),
    _two("isclose", np.isclose, "isclose"), _two("gcd", np.gcd, "gcd", make=_ints),
    _two("lcm", np.lcm, "lcm", make=_ints),
    Row("right_shift", f"{SIZE} int32", lambda: [_ints()], lambda x: x >> 3, lambda x: x >> 3, lambda x: x >> 3),
    Row("prelu", f"{SIZE}, a slope a column", lambda: [floats(*SHAPE), floats(4096)], ops.prelu,
        lambda x, s: np.where(x >= 0, x, s * x), lambda x, s: functional().prelu(x, s), ("PRelu", {})),
    Row("where", SIZE, lambda: [_bools(), floats(*SHAPE), floats(*SHAPE)], ops.where, np.where,
        lambda c, x, y: torch_module().where(c, x, y)),
    Row("cast", f"{SIZE} to int32", lambda: [floats(*SHAPE)], lambda x: ops.cast(x, DType.int32),
        lambda x: x.astype(np.int32), lambda x: x.int()),
    Row("cast", f"{SIZE} to float16", lambda: [floats(*SHAPE)], lambda x: ops.cast(x, DType.float16),
        lambda x: x.astype(np.float16), lambda x: x.half()),
    Row("bitcast", f"{SIZE} to int32", lambda: [floats(*SHAPE)], lambda x: ops.bitcast(x, DType.int32),
        lambda x: x.view(np.int32).copy(), lambda x: x.view(torch_module().int32).clone()),
]  # fmt: skip


def _full(op: str, value: float, ours: Call) -> Row:
    return Row(op, SIZE, lambda: [], ours, lambda: np.full(SHAPE, value, np.float32),
               lambda: torch_module().full(SHAPE, value))  # fmt: skip


def _like(op: str, value: float, ours: Call) -> Row:
    return Row(op, SIZE, lambda: [floats(*SHAPE)], ours, lambda x: np.full_like(x, value),
               lambda x: torch_module().full_like(x, value))  # fmt: skip


CPU = DeviceRef.CPU()
CREATION = [
    _full("full", 2.5, lambda: ops.full(SHAPE, 2.5, DType.float32, CPU)),
    _full("zeros", 0.0, lambda: ops.zeros(SHAPE, DType.float32, CPU)),
    _full("ones", 1.0, lambda: ops.ones(SHAPE, DType.float32, CPU)),
    _like("full_like", 2.5, lambda x: ops.full_like(x, 2.5)),
    _like("zeros_like", 0.0, ops.zeros_like), _like("ones_like", 1.0, ops.ones_like),
    Row("hann_window", "65536", lambda: [], lambda: ops.hann_window(65536, CPU), None,
        lambda: torch_module().hann_window(65536), ("HannWindow", {}), (np.array(65536),), tolerance=1e-5),
    *(Row(f"random.{name}", "1000000", lambda: [], lambda name=name: getattr(ops.random, name)([1000000]),
          lambda numpy=numpy: getattr(np.random.default_rng(), numpy)(1000000, np.float32),
          lambda torch=torch: getattr(torch_module(), torch)(1000000), tolerance=None)
      for name, numpy, torch in (("uniform", "random", "rand"), ("gaussian", "standard_normal", "randn"))),
    Row("random.bernoulli", SIZE, lambda: [MAKE.random(SHAPE).astype(np.float32)], ops.random.bernoulli,
        lambda p: np.random.default_rng().random(SHAPE, np.float32) < p, lambda p: p.bernoulli(), tolerance=None),
    Row("random.dropout", SIZE, lambda: [floats(*SHAPE)], ops.random.dropout, None,
        lambda x: functional().dropout(x, 0.5, True), ("Dropout", {}),
        (np.array(0.5, np.float32), np.array(True)), tolerance=None),
]  # fmt: skip


def _halves(x: Any) -> Any:
    return ops.split(x, [128, 128])[1]


MEMORY = [
    Row("permute", "8 x 64 x 64 x 64, (0, 2, 3, 1)", lambda: [floats(8, 64, 64, 64)],
        lambda x: ops.permute(x, [0, 2, 3, 1]), lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
        lambda x: x.permute(0, 2, 3, 1).contiguous(), ("Transpose", {"perm": [0, 2, 3, 1]})),
    Row("transpose", "1024 x 1024", lambda: [floats(1024, 1024)], lambda x: ops.transpose(x, 0, 1),
        lambda x: np.ascontiguousarray(x.T), lambda x: x.T.contiguous(), ("Transpose", {})),
    Row("concat", "two of 256 x 4096, last axis", lambda: [floats(*SHAPE), floats(*SHAPE)],
        lambda x, y: ops.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1),
        lambda x, y: torch_module().cat([x, y], 1), ("Concat", {"axis": 1})),
    Row("stack", "two of 256 x 4096, first axis", lambda: [floats(*SHAPE), floats(*SHAPE)],
        lambda x, y: ops.stack([x, y], 0), lambda x, y: np.stack([x, y]),
        lambda x, y: torch_module().stack([x, y])),
    Row("split", "256 x 4096, second half, copied", lambda: [floats(*SHAPE)], _halves,
        lambda x: np.split(x, 2)[1].copy(), lambda x: x.split(128)[1].clone()),
    Row("chunk", "256 x 4096, second half, copied", lambda: [floats(*SHAPE)], lambda x: ops.chunk(x, 2, 1)[1],
        lambda x: np.split(x, 2, 1)[1].copy(), lambda x: x.chunk(2, 1)[1].contiguous()),
]  # fmt: skip

ELEMENTS = [*ONE, *TWO, *CREATION, *MEMORY]
