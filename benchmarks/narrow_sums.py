"""Times sums of each dtype: `ops.sum` and `ops.cumsum`, and kernels that add up in a loop from a literal.

`python benchmarks/narrow_sums.py` prints microseconds, the best of 60 calls. Run in two checkouts it shows what wide
accumulators cost.

See also `ops.py` (other ops).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from einkorn.dsl import InputTensor, Numeric, OutputTensor, register
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

N = TypeVar("N", bound=Numeric)
W = TypeVar("W", bound=Numeric)
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float32", "float16", "float64")
SUMS = (((256, 768), 1), ((4_000_000,), 0), ((256, 768), 0))


@register("benchmark::literal_sum")
def literal_sum(out: OutputTensor[W, ""], x: InputTensor[N, "n"]) -> None:
    total = 0
    for i in range(x.dim(0)):
        total += x[i]
    out[()] = total


@register("benchmark::literal_dot")
def literal_dot(out: OutputTensor[W, ""], x: InputTensor[N, "n"], y: InputTensor[N, "n"]) -> None:
    """Products that do not wrap."""
    total = 0
    for i in range(x.dim(0)):
        total += x[i] * y[i]
    out[()] = total


@register("benchmark::wrapped_dot")
def wrapped_dot(out: OutputTensor[W, ""], x: InputTensor[N, "n"], y: InputTensor[N, "n"]) -> None:
    """Products in the dtype of the elements."""
    total = 0
    for i in range(x.dim(0)):
        total += (x[i] * y[i]).cast(N)
    out[()] = total


def best(call: Callable[[], Any]) -> float:
    """Microseconds of the fastest call."""
    rows = []
    for _ in range(62):
        begun = time.perf_counter()
        call()
        rows.append(time.perf_counter() - begun)
    return min(rows[2:]) * 1e6


def main() -> None:
    session = InferenceSession(devices=[CPU()], num_threads=1)
    print(f"{'':24}" + "".join(f"{name:>10}" for name in DTYPES))

    def row(title: str, shape: tuple[int, ...], make: Callable[[Any], Any]) -> None:
        times = []
        for name in DTYPES:
            model = session.load(Graph("sums", make, [TensorType(getattr(DType, name), list(shape), DeviceRef.CPU())]))
            x = np.random.default_rng(0).integers(0, 100, shape).astype(name)
            times.append(best(lambda: model(x)))  # noqa: B023
        print(f"{title:24}" + "".join(f"{each:10.1f}" for each in times))

    for shape, axis in SUMS:
        row(f"sum {shape} axis {axis}", shape, lambda x: ops.sum(x, axis))  # noqa: B023
    row("cumsum (256, 768)", (256, 768), lambda x: ops.cumsum(x, 1))
    for title, kernel, count in (("sum", literal_sum, 1), ("dot", literal_dot, 2), ("dot that wraps", wrapped_dot, 2)):
        times = []
        for name in DTYPES:
            x = [np.ones(1_000_000, name)] * count
            out = np.zeros((), getattr(DType, name).sum_dtype().to_numpy())
            times.append(best(lambda: kernel(*x, out=out)))  # noqa: B023
        print(f"{title + ', a million':24}" + "".join(f"{each:10.1f}" for each in times))


if __name__ == "__main__":
    main()
