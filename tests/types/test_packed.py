"""Elements that share bytes: every way in which a kernel reaches half a byte. Code and interpreter are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.packed import packed

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

FILE = Path(__file__).parent / "packed_kernels.py"
CASTS = Path(__file__).parent / "storage_kernels.py"
PACKED = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn]
STORED_FLOATS = [dtype for dtype in DType if dtype.is_storage() and dtype.is_float()]
HOST = DeviceRef.CPU()
Array = np.ndarray[Any, Any]


def elements(dtype: Any, shape: Any, seed: int = 0) -> Array:
    low, high = (-8, 8) if dtype is ml_dtypes.int4 else (0, 16)
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int8).view(np.dtype(dtype))


def numbers(array: Array) -> Array:
    return array.astype(np.float64)


@pytest.mark.parametrize("dtype", PACKED)
def test_elements_are_found_wherever_they_are(packed_kernels: Any, dtype: Any) -> None:
    x = elements(dtype, 301)
    (got,) = packed_kernels("scatter", x, step=5)
    want = np.empty_like(x)
    want[np.arange(301) * 5 % 301] = x
    assert got.tobytes() == want.tobytes()
    (got,) = packed_kernels("windows", x[:40])
    assert np.array_equal(got, np.lib.stride_tricks.sliding_window_view(numbers(x[:40]), 8))
    x = elements(dtype, (5, 8))
    (got,) = packed_kernels("apart", x)
    assert np.array_equal(numbers(got), np.insert(numbers(x), 8, 1, axis=1).reshape(-1))
    x = elements(dtype, (5, 7))
    (got,) = packed_kernels("rows", x)
    assert np.array_equal(numbers(got), numbers(x).T)
    (got,) = packed_kernels("window_of", x)
    assert np.array_equal(numbers(got), np.where(np.arange(7) > 0, numbers(x), 0))
    scale = np.random.default_rng(1).random(5).astype(np.float32)
    (got,) = packed_kernels("dequantize", x, scale)
    assert np.array_equal(got, x.astype(np.float32) * scale[:, None])


def test_storage_of_half_bytes(packed_kernels: Any) -> None:
    x = elements(ml_dtypes.uint4, (3, 50))
    (got,) = packed_kernels("counted", x)
    assert np.array_equal(got, [np.bincount(row.astype(int), minlength=16) % 16 for row in x])
    (got,) = packed_kernels("shared_table", outs=[(DType.int4, (1001,))])
    assert np.array_equal(got.astype(int), (np.arange(1001) % 13 - 6)[::-1])


def test_values_go_round_loops_and_into_inputs(packed_kernels: Any) -> None:
    x = elements(ml_dtypes.int4, 31)
    (got,) = packed_kernels("carried", x)
    last, want = -1, []
    for value in x.astype(int).tolist():
        last = value if value > 2 else last
        want.append(last if value > -5 else 0)
    assert got.astype(int).tolist() == want
    changed = x.copy()
    (got,) = packed_kernels("in_place", changed)
    assert np.array_equal(got.astype(int)[::-1], (x.astype(int) * 3 + 8) % 16 - 8)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float8_e8m0fnu])
def test_bit_patterns(packed_kernels: Any, dtype: Any) -> None:
    x = np.arange(256, dtype=np.uint8)
    types = [DType.uint8, DType.uint4, DType.int4, DType.float4_e2m1fn, DType.from_numpy(np.dtype(dtype))]
    same, low, signed, number, other = packed_kernels("patterns", x, outs=[(t, x.shape) for t in types])
    assert np.array_equal(same, x) and np.array_equal(low.astype(int), x & 15)
    assert np.array_equal(signed.astype(int), ((x & 15).astype(int) + 8) % 16 - 8)
    assert np.array_equal(number.view(np.uint8), x & 15)
    assert np.array_equal(other.view(np.uint8), x & 63 if "float6" in np.dtype(dtype).name else x)


@pytest.mark.parametrize("dtype", STORED_FLOATS, ids=str)
def test_constants_are_rounded_as_at_run_time(packed_kernels: Any, dtype: DType) -> None:
    x = np.array([1, -1, 0.5], np.float32)
    outs = [(DType.float8_e4m3fn, x.shape), (dtype, x.shape), (DType.float32, x.shape)]
    known, given, mixed = packed_kernels("constants", x, outs=outs)
    assert known.view(np.uint8).tolist() == [0x1D, 0x7F, 0x1D]
    want = np.array([0.7, 4, 0.7], np.float32).astype(dtype.to_numpy())
    assert given.tobytes() == want.tobytes()
    assert mixed.tolist() == [3 + 0.3125 + 15] * 3


def test_quantisation(packed_kernels: Any) -> None:
    x = np.random.default_rng(2).standard_normal((5, 33)).astype(np.float32)
    x[3] = 0
    q, scale = packed_kernels("quantize", x)
    top = np.abs(x).max(axis=1)
    assert np.array_equal(scale, top / np.float32(7))
    factor = np.divide(np.float32(7), top, out=np.zeros_like(top), where=top > 0)
    assert np.array_equal(numbers(q), np.clip(np.rint(x * factor[:, None]), -8, 7))


def test_saturating_casts(packed_kernels: Any) -> None:
    x = np.array([*range(-40, 41), 2**31 - 1, -(2**31)], np.int32)
    signed, unsigned = packed_kernels("saturate", x)
    assert np.array_equal(signed.astype(int), np.clip(x, -8, 7))
    assert np.array_equal(unsigned.astype(int), np.clip(x, 0, 15))


def test_prints(packed_kernels: Any) -> None:
    packed_kernels("shown", np.array([1.5, -448], ml_dtypes.float8_e4m3fn))
    assert [json.loads(report)[2] for report in packed_kernels.reports] == [["", "float8_e4m3fn"]] * 2


@pytest.mark.parametrize("dtype", PACKED)
def test_threads_leave_neighbours_alone(dtype: Any) -> None:
    """Each of many tasks stores into every part of the output; a lost half would show in one of the rounds."""
    x = elements(dtype, 100_003, seed=5)
    kind = DType.from_numpy(x.dtype)

    def forward(x: Any) -> Any:
        return ops.custom("scatter", device=HOST, values=[x], parameters={"step": 7919})

    types = [TensorType(kind, x.shape, HOST)]
    model = InferenceSession().load(Graph("races", forward=forward, input_types=types, custom_extensions=[FILE]))
    want = np.empty_like(x)
    want[np.arange(x.size) * 7919 % x.size] = x
    given = Buffer.from_numpy(x)
    for _ in range(20):
        assert model(given)[0].to_numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "sm_75", "sm_90", "gfx942", "gfx1100"])
def test_code_for_every_target(compile_kernel: Callable[..., Any], target: str) -> None:
    """No target has to have narrow floats or atomics of a byte; nothing is left for a library."""
    for op, types, outs in [
        ("to_storage", [(DType.float64, (99,))], None),
        ("to_storage", [(DType.int64, (99,))], None),
        ("to_storage", [(DType.float16, (99,))], None),
        ("from_storage", [(DType.float8_e4m3fn, (99,))], None),
        ("from_storage", [(DType.int4, (99,))], None),
    ]:
        artifact, _ = compile_kernel(CASTS, op, types, outputs=outs, target=target)
        check_calls(artifact, target)
    for op, types in [
        ("scatter", [(DType.int4, (99,))]),
        ("windows", [(DType.float4_e2m1fn, (99,))]),
        ("rows", [(DType.uint4, (9, 11))]),
        ("counted", [(DType.uint4, (9, 11))]),
    ]:
        artifact, _ = compile_kernel(FILE, op, types, {"step": 7} if op == "scatter" else None, target=target)
        check_calls(artifact, target)


def check_calls(artifact: Any, target: str) -> None:
    assert len(artifact.code) > 100
    if target.startswith("x86"):
        called = set(re.findall(r"call[lq]?\s+([A-Za-z_.][\w.]*)", artifact.asm))
        ours = re.compile(r"\w+_\d+|ek\.\w+|memset")
        assert not {name for name in called if not ours.fullmatch(name)}, called


@pytest.mark.parametrize(
    ("source", "to", "wanted"),
    [
        (DType.float8_e4m3fn, DType.float32, r"vpmovzxbd.*%ymm"),
        (DType.float32, DType.float8_e5m2, r"vpsrld.*%ymm"),
        (DType.float8_e8m0fnu, DType.bfloat16, r"vpmovzxbd.*%ymm"),
        (DType.int4, DType.float32, r"vpunpcklbw"),
        (DType.float4_e2m1fn, DType.float32, r"vpslld.*%ymm"),
        (DType.float32, DType.int4, r"vcvttps2dq.*%ymm"),
        (DType.float32, DType.float4_e2m1fn, r"vpsrld.*%ymm"),
        (DType.int64, DType.float8_e4m3fn, r"vcvtdq2ps"),
    ],
    ids=str,
)
def test_casts_are_vector_code(compile_kernel: Callable[..., Any], source: DType, to: DType, wanted: str) -> None:
    shape = (10_000,)
    artifact, _ = compile_kernel(CASTS, "cast", [(source, shape)], outputs=[(to, shape)], target="x86-64-v3")
    assert re.search(wanted, artifact.asm) and "lock" not in artifact.asm


def test_padding_is_zero() -> None:
    """The half behind an odd number of elements is 0, so that equal tensors have equal bytes."""
    x = elements(ml_dtypes.int4, (7, 1))
    types = [TensorType(DType.int4, ["m", "n"], HOST)]
    graph = Graph("turned", forward=lambda x: ops.permute(x, [1, 0]), input_types=types)
    (got,) = InferenceSession().load(graph)(x)
    assert got.view(DType.uint8, (4,)).to_numpy().tobytes() == packed(x).tobytes()


def test_checks_see_storage_types() -> None:
    """Bounds of packed tensors, and the NaN that a narrow type makes of a number beyond its largest."""
    x = np.array([1, 2, 1000, 3], np.float32)
    session = InferenceSession(checks="all+nan")

    def model(dtype: DType) -> Any:
        types = [TensorType(DType.float32, x.shape, HOST)]
        return session.load(Graph("narrowed", forward=lambda x: ops.cast(x, dtype), input_types=types))

    with pytest.raises(KernelError) as caught:
        model(DType.float8_e4m3fn)(x)
    assert caught.value.index == (2,)
    assert model(DType.float8_e5m2)(x)[0].to_numpy().astype(float).tolist() == [1, 2, 1024, 3]
    assert model(DType.float4_e2m1fn)(x)[0].to_numpy().astype(float).tolist() == [1, 2, 6, 3]
    assert model(DType.int4)(x)[0].to_numpy().astype(int).tolist() == [1, 2, 7, 3]

    def scattered(x: Any, step: int) -> Any:
        return ops.custom("scatter", device=HOST, values=[x], parameters={"step": step})

    types = [TensorType(DType.uint4, ["n"], HOST)]
    for step in (5, -5):
        graph = Graph("checked", forward=lambda x: scattered(x, step), input_types=types, custom_extensions=[FILE])  # noqa: B023
        loaded = session.load(graph)
        given = elements(ml_dtypes.uint4, 7)
        assert loaded(given)[0].to_numpy()[5 * 3 % 7 if step > 0 else -5 * 3 % 7] == given[3]


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_storage()], ids=str)
def test_scattered_accesses(packed_kernels: Any, dtype: DType) -> None:
    x = np.arange(16).astype(np.int8).view(np.uint8) if dtype is not DType.int4 else np.arange(-8, 8).astype(np.int8)
    x = x.view(dtype.to_numpy())
    outs = [(dtype, (5, 4))] * 3 + [(dtype, x.shape)]
    a, b, c, d = packed_kernels("memory", x, outs=outs)
    rows, lanes = np.arange(5)[:, None], np.arange(4)
    one = np.array(1, np.float32).astype(x.dtype)
    assert a.tobytes() == x[(lanes * 3 + rows) % 16].tobytes()
    assert b.tobytes() == x[rows + 2 * lanes].tobytes()
    assert c.tobytes() == np.where(lanes < 2, x[rows + lanes].view(np.uint8), one.view(np.uint8)).tobytes()
    want = np.full(16, one.view(np.uint8))
    want[[1, 3, 5, 7]] = x[:4].view(np.uint8)
    want[[8, 10, 11]] = x[[4, 6, 7]].view(np.uint8)
    assert d.tobytes() == want.tobytes()
