"""The workloads in NumPy: one call for each op, into given memory where there is some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import twenty_numpy
from mathematics import with_numpy
from workloads import Array, Workload

Run = Callable[[], Any]


def _chain(x: Array, out: Array | None) -> Array:
    y = np.multiply(x, np.float32(2), out=out)
    np.add(y, np.float32(1), out=y)
    np.maximum(y, np.float32(0), out=y)
    np.multiply(y, np.float32(0.5), out=y)
    return np.subtract(y, np.float32(3), out=y)


def _multiply_add(arrays: list[Array], out: Array | None) -> Array:
    x, y, z = arrays
    product = np.multiply(x, y, out=out)
    return np.add(product, z, out=product)


def _softmax(x: Array, axis: int | None, out: Array | None) -> Array:
    y = np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    np.exp(y, out=y)
    return np.divide(y, y.sum(axis=axis, keepdims=True), out=y)


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Run]:
    """What to call; "new" makes the output's memory, "given" writes into the same memory each time."""
    if workload.section == "twenty":
        return twenty_numpy.prepare(workload, arrays)
    if workload.section == "math":
        into = with_numpy(workload.key)
        if into is None:
            return {}
        return {
            "new": lambda: into(np.empty_like(arrays[0]), *arrays),
            "given": partial(into, workload.empty(), *arrays),
        }
    reduce: dict[str, Any] = {"axis": workload.axis, "keepdims": True}
    run: Callable[..., Any] = {
        "add_one": lambda out: np.add(arrays[0], np.float32(1), out=out),
        "multiply_add": lambda out: _multiply_add(arrays, out),
        "relu": lambda out: np.maximum(arrays[0], np.float32(0), out=out),
        "exp": lambda out: np.exp(arrays[0], out=out),
        "chain": lambda out: _chain(arrays[0], out),
        "sum": lambda out: arrays[0].sum(out=out, **reduce),
        "mean": lambda out: arrays[0].mean(out=out, **reduce),
        "max": lambda out: arrays[0].max(out=out, **reduce),
        "argmax": lambda out: arrays[0].argmax(out=out, **reduce),
        "softmax": lambda out: _softmax(arrays[0], workload.axis, out),
        "matmul": lambda out: np.matmul(arrays[0], arrays[1], out=out),
    }[workload.key]
    return {"new": partial(run, None), "given": partial(run, workload.empty())}
