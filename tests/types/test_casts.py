"""Casts to and from storage types: every pattern, every border between two numbers, all source types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import type_references as references

from einkorn.dsl import DType

FILE = Path(__file__).parent / "storage_kernels.py"
Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]
NAMES = [t.name for t in references.TYPES]
WIDE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
WIDE += ("float16", "bfloat16", "float32", "float64")


def numbers(dtype: np.dtype[Any]) -> Array:
    """Numbers of a type where casts to storage types have to decide."""
    rng = np.random.default_rng(1)
    if dtype.name in NAMES:
        return references.patterns(dtype)
    if dtype.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype) if dtype.kind != "b" else np.array([True, False, True])
    if dtype.itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    narrow = [np.dtype(t) for t in references.FLOATS]
    borders = np.concatenate([np.append(references.borders(t), references.positive(t)) for t in narrow])
    if dtype.kind == "f":
        borders = np.unique(borders).astype(dtype)
        near = [borders, np.nextafter(borders, dtype.type(np.inf)), np.nextafter(borders, dtype.type(0))]
        special = np.array([0, np.inf, np.nan, 1e-30, 1e30], dtype)
        size = np.concatenate([*near, special, np.array([np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max])])
        patterns = rng.integers(0, 1 << 16, (4000, dtype.itemsize // 2)).astype(np.uint16)
        return np.concatenate([size, -size, patterns.view(dtype).reshape(-1)])
    info = np.iinfo(dtype)
    whole = {int(b) + k for b in borders if b < 2.0**64 for k in (-1, 0, 1)}
    whole |= {3 << k | 1 for k in range(62)} | {(3 << k) - 1 for k in range(62)} | {1 << k for k in range(64)}
    whole |= {-v for v in whole} | {info.min, info.max, info.max - 1}
    listed = [v for v in sorted(whole) if info.min <= v <= info.max]
    return np.concatenate([np.array(listed, dtype), rng.integers(info.min, info.max, 1000, dtype, endpoint=True)])


def check(got: Array, want: Array, x: Array) -> None:
    wrong = np.flatnonzero(got != want)
    assert not wrong.size, [(x[k], hex(got[k]), hex(want[k])) for k in wrong[:8]]


@pytest.mark.parametrize("name", [*WIDE, *NAMES])
def test_to_storage(run_kernel: Run, name: str) -> None:
    """An odd number of elements: the last one of a packed output has no neighbour."""
    x = numbers(DType[name].to_numpy())
    x = x[: x.size - (x.size + 1) % 2]
    x[:1] = x[-1:]
    outputs = [(DType.from_numpy(t), x.shape) for t in references.TYPES]
    for got, dtype in zip(run_kernel(FILE, "to_storage", [x], outputs=outputs), references.TYPES, strict=True):
        if dtype.name != name:
            check(got.view(np.uint8), references.cast(x, dtype), x)
        else:
            assert got.tobytes() == x.tobytes()


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "float16"])
def test_older_processors_give_the_same(run_kernel: Run, name: str) -> None:
    x = numbers(DType[name].to_numpy())
    outputs = [(DType.from_numpy(t), x.shape) for t in references.TYPES]
    got = run_kernel(FILE, "to_storage", [x], outputs=outputs, target="x86-64-v2")
    for one, dtype in zip(got, references.TYPES, strict=True):
        check(one.view(np.uint8), references.cast(x, dtype), x)


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
@pytest.mark.parametrize("name", NAMES)
def test_from_storage(run_kernel: Run, name: str, target: str) -> None:
    """ml_dtypes' numbers, and NumPy's own casts on from float64, which holds all of them."""
    x = references.patterns(np.dtype(getattr(ml_dtypes, name)))
    outputs = [(DType[to], x.shape) for to in WIDE]
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    for got, to in zip(run_kernel(FILE, "from_storage", [x], outputs=outputs, target=target), WIDE, strict=True):
        dtype = DType[to].to_numpy()
        if to == "bool":
            assert np.array_equal(got, wide != 0)
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if name in ("int4", "uint4"):
                assert np.array_equal(got, x.astype(np.int64).astype(dtype)), to
                continue
            whole = [min(max(int(v), limits.min), limits.max) for v in np.nan_to_num(wide, nan=0.0)]
            assert got.tolist() == whole, to
        else:
            with np.errstate(all="ignore"):
                want = wide.astype(dtype)
            numeric = ~np.isnan(wide)
            assert np.array_equal(got[numeric].view(np.uint8), want[numeric].view(np.uint8)), to
            assert np.isnan(got[~numeric]).all()


@pytest.mark.parametrize("dtype", references.FLOATS)
def test_references_agree_with_ml_dtypes(dtype: Any) -> None:
    """For float32 the casts of ml_dtypes are right; of a NaN they keep the sign, and below 2**-126 a scale goes up."""
    kind = np.dtype(dtype)
    x = numbers(np.dtype(np.float32))
    x = x[~np.isnan(x)]
    if kind.name == "float8_e8m0fnu":
        x = x[(x <= 0) | (x >= 2.0**-126)]
    want = x.astype(kind)
    codes = np.where(np.isnan(want.astype(np.float32)), references.NAN[references.format_of(kind)], want.view(np.uint8))
    check(references.nearest(x, kind), codes, x)
    assert np.array([np.nan], np.float32).astype(kind).view(np.uint8)[0] == references.NAN[references.format_of(kind)]


@pytest.mark.parametrize("dtype", references.FLOATS)
def test_formats_round_as_the_references(dtype: Any) -> None:
    """`FloatFormat`, which folding uses: encode and decode, on what code is tested with."""
    kind = DType.from_numpy(np.dtype(dtype))
    x = numbers(np.dtype(np.float64))[::7]
    got = np.array([kind.format.encode(float(v)) for v in x], np.uint8)
    check(got, references.nearest(x, np.dtype(dtype)), x)
    for pattern, value in enumerate(references.patterns(np.dtype(dtype))):
        assert str(kind.format.decode(pattern)) == str(float(value))


def test_the_interpreter_casts_as_code_does(kernels: Any) -> None:
    """Every pair of a storage type and another type; `KernelFile` compares the two bit for bit."""
    for name in ("bool", "int8", "int64", "uint64", "bfloat16", "float32", "float64", *NAMES[::2]):
        x = numbers(DType[name].to_numpy())
        some = np.append(x[:: max(len(x) // 24, 1)], x[-1:])
        kernels("to_storage", some, outs=[(DType.from_numpy(t), some.shape) for t in references.TYPES])
        if name in NAMES:
            kernels("from_storage", x[::5], outs=[(DType[to], x[::5].shape) for to in WIDE])
