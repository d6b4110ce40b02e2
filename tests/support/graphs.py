"""Graphs for tests: load one from a function, compare many outputs with NumPy at once, keep code in a cache of its own.

Compiling is what costs, so `check` puts all cases of a table into one graph.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType
from einkorn.graph.engine.model import Model

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Any], Callable[..., Any]]
Shape = Sequence[int | str]

HOST = DeviceRef.CPU()
FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def kind_of(dtype: Any) -> str:
    """The class of a dtype: its members are computed alike."""
    result = DType.from_numpy(np.dtype(dtype))
    if result.is_float() or result.is_storage():
        return f"{'float' if result.is_float() else 'storage'} of {result.bits} bits"
    return result.kind


def tried(shipped: bool, *values: Any) -> Any:
    """Parameters of a test; whether its kernels are compiled as they ship, or as the tests next to it compile."""
    return pytest.param(*values, marks=[pytest.mark.as_shipped] if shipped else [])


def tensor_type(dtype: Any, shape: Shape) -> TensorType:
    return TensorType(DType.from_numpy(np.dtype(dtype)), shape, HOST)


def build(forward: Callable[..., Any], *inputs: tuple[Any, Shape], extensions: Any = ()) -> Graph:
    """A graph over inputs given as (dtype, shape)."""
    types = [tensor_type(dtype, shape) for dtype, shape in inputs]
    return Graph("test", forward=forward, input_types=types, custom_extensions=extensions)


def load(forward: Callable[..., Any], *inputs: tuple[Any, Shape], extensions: Any = ()) -> Model:
    """The model of such a graph."""
    return InferenceSession().load(build(forward, *inputs, extensions=extensions))


def results(model: Model, *arrays: Any) -> list[Array]:
    """Copies of a call's outputs."""
    return [np.array(buffer.to_numpy()) for buffer in model(*arrays)]


def run(forward: Callable[..., Any], *arrays: Array, extensions: Any = ()) -> list[Array]:
    """The outputs of a graph with exactly these inputs."""
    return results(load(forward, *((a.dtype, a.shape) for a in arrays), extensions=extensions), *arrays)


def check(cases: Mapping[str, Case], *arrays: Array, shapes: Sequence[Shape] | None = None, ulps: float = 0) -> Model:
    """Runs all cases as one graph and compares each output with its NumPy counterpart; gives the model."""
    names = list(cases)
    inputs = [(a.dtype, shapes[k] if shapes else a.shape) for k, a in enumerate(arrays)]
    model = load(lambda *values: [cases[name][0](*values) for name in names], *inputs)
    compare(model, cases, *arrays, ulps=ulps)
    return model


def compare(model: Model, cases: Mapping[str, Case], *arrays: Array, ulps: float = 0) -> None:
    """One call of a model of `check`, compared; no input may change."""
    before = [a.copy() for a in arrays]
    outputs = results(model, *arrays)
    for old, array in zip(before, arrays, strict=True):
        assert old.tobytes() == array.tobytes(), "an input was modified"
    failures = []
    for (name, (_, reference)), output in zip(cases.items(), outputs, strict=True):
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(*arrays))
        trouble = difference(output, expected, ulps)
        if trouble:
            failures.append(f"{name}: {trouble}")
    shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
    assert not failures, f"on {shown}:\n" + "\n".join(failures)


def difference(actual: Array, expected: Array, ulps: float = 0) -> str | None:
    """What is wrong with `actual`, or None; `ulps` is in units of the last place of the expected value."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "iub" or DType.from_numpy(expected.dtype).is_integral():
        wrong = actual != expected
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        a, e = actual.astype(wide), expected.astype(wide)
        with np.errstate(all="ignore"):
            info = ml_dtypes.finfo(expected.dtype)
            unit = np.maximum(np.abs(e) * float(info.eps), float(info.smallest_subnormal))
            near = np.abs(a - e) <= ulps * unit
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        wrong = ~(same | (near & np.isfinite(a) & np.isfinite(e)))
    if not wrong.any():
        return None
    at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(wrong)))
    got, wanted = np.atleast_1d(actual)[at], np.atleast_1d(expected)[at]
    return f"{int(wrong.sum())} of {wrong.size} differ, the first at {at}: {got!r} instead of {wanted!r}"


def widely(function: Callable[..., Any]) -> Callable[..., Any]:
    """The NumPy counterpart of an op that computes half types in float32 and rounds once."""

    def wide(*arrays: Array) -> Any:
        if arrays[0].dtype in HALVES:
            return np.asarray(function(*(a.astype(np.float32) for a in arrays))).astype(arrays[0].dtype)
        return function(*arrays)

    return wide


def numbers(shape: Sequence[int], dtype: Any, seed: int = 0) -> Array:
    """All over an integer type's range; for floats small numbers of both signs; for bool both."""
    generator = np.random.default_rng([seed, *shape])
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return generator.integers(info.min, info.max, shape, kind, endpoint=True)
    return (generator.standard_normal(shape) * 3).astype(kind)


@contextlib.contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Code is kept in `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINKORN_CACHE_DIR", str(folder))
        yield


def python(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new process, with these variables set on top of this process's."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
