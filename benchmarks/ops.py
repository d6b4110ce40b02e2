"""Times of graph ops beside NumPy, PyTorch and ONNX Runtime: one typical size an op, on one thread and on two.

    python benchmarks/ops.py                       # all rows
    python benchmarks/ops.py gather scatter_nd     # some ops
    python benchmarks/ops.py --threads 2 --rounds 9
    python benchmarks/ops.py --update              # all rows, and docs/ops-speed.md

An op is a line of `ROWS`: a text that says the size, arrays, and the call for each contender, as plain functions; of
ONNX Runtime it is an op type with its attributes. What is not installed is left out. Every result is compared with
ours before it is timed. Rounds are interleaved (see `measure`); each number of threads has a process of its own.

Input: names of ops. Output: a table in Markdown, with the best peer and how ours compares: 2.0 is twice as fast.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleave

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]
MAKE = np.random.default_rng(0)


@dataclass(frozen=True)
class Row:
    """An op at one size.

    Attributes:
        op: its name.
        size: what the table says of the size.
        arrays: the inputs.
        ours: of values of a graph.
        numpy, torch: of arrays, of tensors; None where there is no such function.
        onnx: an op type and its attributes; `onnx_inputs` are inputs that only it has, behind the others.
        tolerance: by how much results may differ, relative to the largest.
    """

    op: str
    size: str
    arrays: Callable[[], list[Array]]
    ours: Call
    numpy: Call | None = None
    torch: Call | None = None
    onnx: tuple[str, Mapping[str, Any]] | None = None
    onnx_inputs: tuple[Array, ...] = ()
    tolerance: float = 0.0


def floats(*shape: int) -> Array:
    return MAKE.standard_normal(shape).astype(np.float32)


def places(below: int, *shape: int) -> Array:
    return MAKE.integers(0, below, shape)


def _torch() -> Any:
    import torch

    return torch


def int64s(*values: int) -> Array:
    return np.array(values, np.int64)


# *** shape and indexing ***


def _scattered(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    np.put_along_axis(out, i, u, 1)
    return out


def _added(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    np.add.at(out, i[:, 0], u)
    return out


def _rows_set(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    out[i[:, 0]] = u
    return out


def _masked(x: Array, mask: Array, u: Array) -> Array:
    out = x.copy()
    out[mask] = u[: mask.sum()]
    return out


def _permutation(rows: int, columns: int) -> Array:
    return np.argsort(MAKE.random((rows, columns)), axis=1)


SHAPE_AND_INDEXING = [
    Row(
        "tile",
        "256 x 256, (4, 4)",
        lambda: [floats(256, 256)],
        lambda x: ops.tile(x, [4, 4]),
        lambda x: np.tile(x, (4, 4)),
        lambda x: x.tile((4, 4)),
        ("Tile", {}),
        (int64s(4, 4),),
    ),
    Row(
        "pad",
        "64 x 112 x 112, by 1",
        lambda: [floats(64, 112, 112)],
        lambda x: ops.pad(x, [0, 0, 1, 1, 1, 1]),
        lambda x: np.pad(x, ((0, 0), (1, 1), (1, 1))),
        lambda x: _torch().nn.functional.pad(x, (1, 1, 1, 1)),
        ("Pad", {}),
        (int64s(0, 1, 1, 0, 1, 1),),
    ),
    Row(
        "pad",
        "64 x 112 x 112, by 3, reflect",
        lambda: [floats(64, 112, 112)],
        lambda x: ops.pad(x, [0, 0, 3, 3, 3, 3], "reflect"),
        lambda x: np.pad(x, ((0, 0), (3, 3), (3, 3)), mode="reflect"),
        lambda x: _torch().nn.functional.pad(x, (3, 3, 3, 3), mode="reflect"),
        ("Pad", {"mode": "reflect"}),
        (int64s(0, 3, 3, 0, 3, 3),),
    ),
    Row(
        "repeat_interleave",
        "8 x 32 x 1024, 4 along axis 1",
        lambda: [floats(8, 32, 1024)],
        lambda x: ops.repeat_interleave(x, 4, 1),
        lambda x: np.repeat(x, 4, 1),
        lambda x: x.repeat_interleave(4, 1),
    ),
    Row(
        "repeat_interleave",
        "1000 x 64, by a tensor",
        lambda: [floats(1000, 64), places(5, 1000)],
        lambda x, n: ops.repeat_interleave(x, n, 0, out_dim="k"),
        lambda x, n: np.repeat(x, n, 0),
        lambda x, n: x.repeat_interleave(n, 0),
    ),
    Row(
        "flip",
        "1024 x 1024, last axis",
        lambda: [floats(1024, 1024)],
        lambda x: ops.flip(x, 1),
        lambda x: np.ascontiguousarray(x[:, ::-1]),
        lambda x: x.flip(1),
    ),
    Row(
        "roll",
        "1024 x 1024, last axis",
        lambda: [floats(1024, 1024)],
        lambda x: ops.roll(x, 5, 1),
        lambda x: np.roll(x, 5, 1),
        lambda x: x.roll(5, 1),
    ),
    Row(
        "gather",
        "30000 x 384, 4096 rows",
        lambda: [floats(30000, 384), places(30000, 4096)],
        lambda x, i: ops.gather(x, i, 0),
        lambda x, i: np.take(x, i, 0),
        lambda x, i: x.index_select(0, i),
        ("Gather", {"axis": 0}),
    ),
    Row(
        "gather",
        "1024 x 1024, 1024 columns",
        lambda: [floats(1024, 1024), places(1024, 1024)],
        lambda x, i: ops.gather(x, i, 1),
        lambda x, i: np.take(x, i, 1),
        lambda x, i: x.index_select(1, i),
        ("Gather", {"axis": 1}),
    ),
    Row(
        "take_along_axis",
        "1024 x 1024",
        lambda: [floats(1024, 1024), places(1024, 1024, 1024)],
        lambda x, i: ops.take_along_axis(x, i, 1),
        lambda x, i: np.take_along_axis(x, i, 1),
        lambda x, i: x.gather(1, i),
        ("GatherElements", {"axis": 1}),
    ),
    Row(
        "gather_nd",
        "256 x 256 x 64, 4096 pairs",
        lambda: [floats(256, 256, 64), places(256, 4096, 2)],
        ops.gather_nd,
        lambda x, i: x[i[:, 0], i[:, 1]],
        lambda x, i: x[i[:, 0], i[:, 1]],
        ("GatherND", {}),
    ),
    Row(
        "scatter",
        "1024 x 1024",
        lambda: [floats(1024, 1024), floats(1024, 1024), _permutation(1024, 1024)],
        ops.scatter,
        _scattered,
        lambda x, u, i: x.scatter(1, i, u),
    ),
    Row(
        "scatter_add",
        "1024 x 1024",
        lambda: [floats(1024, 1024), floats(1024, 1024), _permutation(1024, 1024)],
        ops.scatter_add,
        None,
        lambda x, u, i: x.scatter_add(1, i, u),
    ),
    Row(
        "scatter_nd",
        "10000 x 64, 4096 rows",
        lambda: [floats(10000, 64), floats(4096, 64), MAKE.permutation(10000)[:4096, None]],
        ops.scatter_nd,
        _rows_set,
        lambda x, u, i: x.index_copy(0, i[:, 0], u),
    ),
    Row(
        "scatter_nd_add",
        "10000 x 64, 4096 rows",
        lambda: [floats(10000, 64), floats(4096, 64), places(10000, 4096, 1)],
        ops.scatter_nd_add,
        _added,
        lambda x, u, i: x.index_add(0, i[:, 0], u),
        tolerance=1e-5,
    ),
    Row(
        "masked_scatter",
        "1024 x 1024, half",
        lambda: [floats(1024, 1024), places(2, 1024, 1024) == 1, floats(1 << 20)],
        lambda x, m, u: ops.masked_scatter(x, m, u, "k"),
        _masked,
        lambda x, m, u: x.masked_scatter(m, u),
    ),
    Row(
        "nonzero",
        "1024 x 1024, half",
        lambda: [places(2, 1024, 1024).astype(np.float32)],
        lambda x: ops.nonzero(x, "k"),
        np.argwhere,
        lambda x: x.nonzero(),
    ),
    Row(
        "range",
        "1000000 of float32",
        lambda: [],
        lambda: ops.range(0, 1000000),
        lambda: np.arange(0, 1000000, 1, np.float32),
        lambda: _torch().arange(0, 1000000, 1, dtype=_torch().float32),
    ),
    Row(
        "one_hot",
        "4096, 512 classes",
        lambda: [places(512, 4096)],
        lambda i: ops.one_hot(i, 512, dtype=DType.int64),
        None,
        lambda i: _torch().nn.functional.one_hot(i, 512),
    ),
    Row(
        "tril",
        "16 x 512 x 512",
        lambda: [floats(16, 512, 512)],
        ops.tril,
        np.tril,
        lambda x: x.tril(),
        ("Trilu", {"upper": 0}),
    ),
    Row(
        "band_part",
        "16 x 512 x 512",
        lambda: [floats(16, 512, 512)],
        lambda x: ops.band_part(x, 8, 8),
        lambda x: np.tril(np.triu(x, -8), 8),
        lambda x: x.triu(-8).tril(8),
    ),
    Row("outer", "1000 by 1000", lambda: [floats(1000), floats(1000)], ops.outer, np.outer, lambda x, y: x.outer(y)),
    Row(
        "broadcast_to",
        "1024 x 1 to 1024 x 1024",
        lambda: [floats(1024, 1)],
        lambda x: ops.broadcast_to(x, [1024, 1024]),
        lambda x: np.ascontiguousarray(np.broadcast_to(x, (1024, 1024))),
        lambda x: x.expand(1024, 1024).contiguous(),
        ("Expand", {}),
        (int64s(1024, 1024),),
    ),
    Row(
        "slice_tensor",
        "1024 x 1024, by a tensor",
        lambda: [floats(1024, 1024), np.array(512)],
        lambda x, k: x[(slice(k, None), "rest")],
        lambda x, k: x[int(k) :].copy(),
        lambda x, k: x[int(k) :].clone(),
    ),
]

# *** numbers ***


def _one(op: str, numpy: Call | None = None, torch: str = "", onnx: str = "", make: Call | None = None) -> Row:
    """An elementwise op of one tensor; `torch` is a function of it, or of `torch.nn.functional` after a dot."""

    def peer(x: Any) -> Any:
        return getattr(_torch().nn.functional if torch[0] == "." else _torch(), torch.lstrip("."))(x)

    return Row(op, "256 x 4096", make or (lambda: [floats(256, 4096)]), getattr(ops, op), numpy,
               peer if torch else None, (onnx, {}) if onnx else None, tolerance=1e-5)  # fmt: skip


def _along(op: str, numpy: Call | None, torch: Call | None, ours: Call | None = None, tolerance: float = 1e-4) -> Row:
    return Row(op, "256 x 768", lambda: [floats(256, 768)], ours or getattr(ops, op), numpy, torch, tolerance=tolerance)


def _normal(name: str, *arguments: Any) -> Call:
    return lambda x, *w: getattr(_torch().nn.functional, name)(x, *arguments, *w)


def _images() -> list[Array]:
    return [floats(4, 64, 56, 56), *(np.abs(floats(64)) + 1 for _ in range(2))]


def _pairs(x: Any) -> Any:
    return _torch().view_as_complex(x)


def _flat(z: Any) -> Any:
    return _torch().view_as_real(z)


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
    _one("lgamma", None, "lgamma"), _one("reciprocal", np.reciprocal, "reciprocal", "Reciprocal"),
    _one("square", np.square, "square"), _one("sign", np.sign, "sign", "Sign"),
    _one("is_finite", np.isfinite, "isfinite"), _one("asin", np.arcsin, "asin", "Asin", _inside),
    _one("log2", np.log2, "log2", "", _above_one), _one("log10", np.log10, "log10", "", _above_one),
    _one("acosh", np.arccosh, "acosh", "Acosh", _above_one),
]  # fmt: skip
NUMBERS = [
    *ONE_NUMBER,
    *(
        Row(op, "256 x 4096, two", lambda: [floats(256, 4096), floats(256, 4096)], getattr(ops, op), numpy,
            lambda x, y, op=op: getattr(_torch(), op)(x, y), tolerance=1e-5)
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
    _along("l2_normalize", None, lambda x: _torch().nn.functional.normalize(x, dim=-1)),
    Row("layer_norm", "256 x 768", lambda: [floats(256, 768), floats(768), floats(768)],
        lambda x, g, b: ops.layer_norm(x, g, b, 1e-5), None, _normal("layer_norm", (768,)),
        ("LayerNormalization", {}), tolerance=1e-5),
    Row("rms_norm", "256 x 768", lambda: [floats(256, 768), floats(768)], lambda x, w: ops.rms_norm(x, w, 1e-5), None,
        lambda x, w: _torch().nn.functional.rms_norm(x, (768,), w, 1e-5), tolerance=1e-5),
    Row("group_norm", "4 x 64 x 56 x 56, 8 groups", _images, lambda x, g, b: ops.group_norm(x, g, b, 8), None,
        _normal("group_norm", 8), tolerance=1e-5),
    Row("instance_norm", "4 x 64 x 56 x 56", _images, ops.instance_norm, None,
        lambda x, g, b: _torch().nn.functional.instance_norm(x, weight=g, bias=b),
        ("InstanceNormalization", {}), tolerance=1e-5),
    Row("batch_norm", "4 x 64 x 56 x 56", _images, lambda x, g, b: ops.batch_norm(x, g, b, b, g), None,
        lambda x, g, b: _torch().nn.functional.batch_norm(x, b, g, g, b), tolerance=1e-5),
    Row("sort", "1 000 000", lambda: [floats(1000000)], ops.sort, np.sort, lambda x: x.sort().values),
    Row("sort", "256 x 768", lambda: [floats(256, 768)], ops.sort, np.sort, lambda x: x.sort().values),
    Row("argsort", "256 x 768, axis 1", lambda: [floats(256, 768)], lambda x: ops.argsort(x, axis=1),
        lambda x: np.argsort(x, 1, kind="stable"), lambda x: x.argsort(dim=1, stable=True)),
    Row("top_k", "256 x 768, 5", lambda: [floats(256, 768)], lambda x: ops.top_k(x, 5), None,
        lambda x: x.topk(5).values),
    Row("fft", "256 x 1024", lambda: [floats(256, 1024, 2)], ops.fft,
        lambda x: _in_pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1])), lambda x: _flat(_torch().fft.fft(_pairs(x))),
        tolerance=1e-5),
    Row("rfft", "256 x 1024", lambda: [floats(256, 1024)], ops.rfft, lambda x: _in_pairs(np.fft.rfft(x)),
        lambda x: _flat(_torch().fft.rfft(x)), tolerance=1e-5),
    Row("irfft", "256 x 1024", lambda: [floats(256, 513, 2)], lambda x: ops.irfft(x, input_is_complex=True),
        lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1]), lambda x: _torch().fft.irfft(_pairs(x)), tolerance=1e-5),
    Row("complex.mul", "256 x 512", lambda: [floats(256, 512, 2), floats(256, 512, 2)], ops.complex.mul, None,
        lambda x, y: _flat(_pairs(x) * _pairs(y)), tolerance=1e-5),
    Row("einsum", "bhqd,bhkd->bhqk, 4 x 8 x 128 x 64", lambda: [floats(4, 8, 128, 64), floats(4, 8, 128, 64)],
        lambda x, y: ops.einsum("bhqd,bhkd->bhqk", x, y), None,
        lambda x, y: _torch().einsum("bhqd,bhkd->bhqk", x, y), tolerance=1e-5),
]  # fmt: skip

ROWS = [*SHAPE_AND_INDEXING, *NUMBERS]


# *** contenders ***


def einkorn(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any]:
    types = [TensorType(DType.from_numpy(a.dtype), a.shape, DeviceRef.CPU()) for a in arrays]
    model = InferenceSession(num_threads=threads).load(Graph(row.op, row.ours, types))
    return lambda: model(*arrays)[0].to_numpy()


def numpy(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any] | None:
    function = row.numpy
    return None if function is None else lambda: function(*arrays)


def torch(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any] | None:
    function = row.torch
    if function is None:
        return None
    _torch().set_num_threads(threads)
    tensors = [_torch().from_numpy(np.asarray(array)) for array in arrays]
    return lambda: np.asarray(function(*tensors))


def onnxruntime(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any] | None:
    if row.onnx is None:
        return None
    import onnxruntime as runtime
    from onnx import helper

    given = {f"x{k}": array for k, array in enumerate([*arrays, *row.onnx_inputs])}
    kind = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, kind(a.dtype), a.shape) for name, a in given.items()]
    outputs = [helper.make_tensor_value_info("y", kind(arrays[0].dtype), None)]
    node = helper.make_node(row.onnx[0], list(given), ["y"], **row.onnx[1])
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = min(model.ir_version, 10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, given)[0]


CONTENDERS: dict[str, Callable[[Row, list[Array], int], Callable[[], Any] | None]] = {
    "einkorn": einkorn,
    "numpy": numpy,
    "torch": torch,
    "onnxruntime": onnxruntime,
}


def measured(row: Row, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds of each contender, and why one could not take part."""
    arrays = row.arrays()
    calls: dict[str, Callable[[], Any]] = {}
    failures: dict[str, str] = {}
    expected = None
    for name, prepare in CONTENDERS.items():
        try:
            call = prepare(row, arrays, threads)
            if call is None:
                continue
            result = np.asarray(call())
            expected = result if expected is None else expected
            _check(result, expected, row.tolerance)
            calls[name] = call
        except ImportError:
            continue
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    times = interleave(calls, rounds, pause=0.01, limit=6.0)
    return {"times": {name: timing.median for name, timing in times.items()}, "failures": failures}


def _check(result: Array, expected: Array, tolerance: float) -> None:
    if result.shape != expected.shape:
        raise AssertionError(f"shape {result.shape}, ours is {expected.shape}")
    scale = float(np.abs(expected).max(initial=1)) if expected.dtype.kind == "f" else 1.0
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * scale)


def child(names: list[str], threads: int, rounds: int) -> None:
    for row in ROWS:
        if not names or row.op in names:
            found = measured(row, threads, rounds)
            print(json.dumps({"op": row.op, "size": row.size, "threads": threads, **found}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--update", action="store_true", help="write docs/ops-speed.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.ops, given.threads[0], given.rounds)
        return 0
    print(HEAD)
    failed, lines = False, list[tuple[float, str]]()
    for threads in given.threads:
        arguments = ["--child", "--threads", str(threads), "--rounds", str(given.rounds)]
        command = [sys.executable, __file__, *given.ops, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                failed |= show(json.loads(line), lines)
        failed |= process.returncode != 0
    if given.update and not given.ops:
        PAGE.write_text(page(lines), encoding="utf-8")
    return int(failed)


HEAD = "| op | size | threads | ours | best peer | its time | ours against it |\n|---|---|---|---|---|---|---|"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops-speed.md"


def page(lines: list[tuple[float, str]]) -> str:
    """docs/ops-speed.md: all rows, the weakest first."""
    low = [ratio for ratio, _ in lines if ratio < 0.5]
    text = f"""# How fast ops are

Ops of graphs beside NumPy, PyTorch and ONNX Runtime, one typical size each, in one run with the contenders in turn;
written by `make ops-speed`. *Ours against it* is the time of the best peer by ours: 2.0 is twice as fast. The weakest
rows come first; {len(low)} of {len(lines)} are below 0.5. Measured with {versions()} on {os.cpu_count()} cores.

"""
    return text + "\n".join([HEAD, *(line for _, line in sorted(lines))]) + "\n"


def versions() -> str:
    found = []
    for name in ("numpy", "torch", "onnxruntime"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def show(found: Mapping[str, Any], lines: list[tuple[float, str]]) -> bool:
    """Prints a row, and keeps it; gives whether it failed."""
    times = dict(found["times"])
    ours = times.pop("einkorn", None)
    for name, why in found["failures"].items():
        print(f"{found['op']}: {name}: {why}", file=sys.stderr)
    if ours is None or not times:
        return True
    best = min(times, key=times.__getitem__)
    cells = [found["op"], found["size"], found["threads"], _shown(ours), best, _shown(times[best])]
    lines.append((times[best] / ours, f"| {' | '.join(map(str, cells))} | {times[best] / ours:.2f} |"))
    print(lines[-1][1], flush=True)
    return bool(found["failures"])


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
