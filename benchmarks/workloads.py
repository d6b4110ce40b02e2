"""What is measured: ops over arrays, each with the bytes or floating-point operations that it cannot do without.

See also `with_*` (how a library does them).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mathematics import BINARY, UNARY, arguments

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

ELEMENTWISE = {"add_one": ("x + 1", 1), "multiply_add": ("x*y + z", 3), "relu": ("relu(x)", 1), "exp": ("exp(x)", 1)}
# What the kernels of `twenty_kernels` take and give: x, or m rows of n elements.
TWENTY = {
    "add_one": ("x + 1", "x", "x"),
    "multiply_add": ("x*y + z", "x x x", "x"),
    "relu": ("relu", "x", "x"),
    "gelu": ("gelu, with erf", "x", "x"),
    "silu": ("silu", "x", "x"),
    "softplus": ("softplus", "x", "x"),
    "lerp": ("lerp", "x x", "x"),
    "length": ("sqrt(x*x + y*y)", "x x", "x"),
    "quantised": ("to int8", "x", "x"),
    "polynomial": ("polynomial of degree 7", "x", "x"),
    "row_sum": ("sums of rows", "mn", "m"),
    "row_max": ("maxima of rows", "mn", "m"),
    "row_argmax": ("argmax of rows", "mn", "m"),
    "row_moments": ("mean and variance", "mn", "2m"),
    "row_dot": ("rows times weights", "mn n", "m"),
    "logsumexp": ("logsumexp", "mn", "m"),
    "rms_norm": ("rms_norm", "mn n", "mn"),
    "layer_norm": ("layer_norm", "mn n n", "mn"),
    "softmax": ("softmax", "mn", "mn"),
    "row_cumsum": ("cumsum of rows", "mn", "mn"),
}
CHAIN = "relu(x*2 + 1)*0.5 - 3"


@dataclass(frozen=True)
class Workload:
    """One op.

    Attributes:
        key: what the libraries know it by.
        title: what it computes.
        inputs, output: shapes; all float32 but in `math`, the output of argmax int64.
        amount: bytes that have to be moved when `unit` is "GB/s", operations when it is "GFLOP/s", else 1.
        axis: of a reduction; None is all of them.
        dtype: of the output; in `math` of the inputs, too.
    """

    section: str
    key: str
    title: str
    inputs: tuple[Shape, ...]
    output: Shape
    amount: float
    unit: str
    axis: int | None = None
    dtype: str = "float32"

    def arrays(self) -> list[Array]:
        """The same inputs each time, between -4 and 4 or where a function is defined."""
        mathematics = self.section == "math"
        return arguments(self.key if mathematics else "", self.inputs, self.dtype if mathematics else "float32")

    def empty(self) -> Array:
        """Memory for an output, touched once."""
        return np.zeros(self.output, np.int64 if self.key == "argmax" else self.dtype)


@dataclass(frozen=True)
class WorkloadSizes:
    """How large the arrays are: elements of the elementwise ops and reductions, (m, k, n) of the products."""

    elements: int
    products: tuple[tuple[int, int, int], ...]


FULL = WorkloadSizes(
    1 << 24, ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (1000, 1001, 999), (2048, 2048, 2048))
)
SMALL = WorkloadSizes(1 << 10, ((8, 8, 8), (5, 7, 3)))


def workloads(sizes: WorkloadSizes, sections: Sequence[str], functions: Sequence[str] = ()) -> Iterator[Workload]:
    """The workloads of these sections, in the order of the report; of mathematics these functions, if any are named."""
    n = sizes.elements
    mathematics = _math(n, functions or (UNARY + BINARY if n >= 1 << 16 else ("exp", "erf", "pow")))
    given = (_latency(), _elementwise(n), mathematics, _reductions(n), _products(sizes), _twenty(max(n >> 2, 64)))
    for workload in itertools.chain(*given):
        if workload.section in sections:
            yield workload


def _latency() -> Iterator[Workload]:
    yield Workload("latency", "add_one", "x + 1, one element", ((1,),), (1,), 1, "")


def _elementwise(n: int) -> Iterator[Workload]:
    shape = (n,)
    for key, (title, inputs) in ELEMENTWISE.items():
        yield Workload("elementwise", key, title, (shape,) * inputs, shape, 4.0 * n * (inputs + 1), "GB/s")
    yield Workload("chain", "add_one", "x + 1", (shape,), shape, 8.0 * n, "GB/s")
    yield Workload("chain", "chain", CHAIN, (shape,), shape, 8.0 * n, "GB/s")


def _twenty(n: int) -> Iterator[Workload]:
    """The kernels of `twenty_kernels`: elementwise ones over n elements, the others over as many in square rows."""
    side = math.isqrt(n)
    for key, (title, inputs, output) in TWENTY.items():
        shapes = {"x": (n,), "m": (side,), "n": (side,), "mn": (side, side), "2m": (2, side)}
        dtype = "int8" if key == "quantised" else "int64" if key == "row_argmax" else "float32"
        chosen = tuple(shapes[name] for name in inputs.split())
        amount = 4.0 * sum(math.prod(shape) for shape in chosen)
        amount += np.dtype(dtype).itemsize * math.prod(shapes[output])
        yield Workload("twenty", f"twenty::{key}", title, chosen, shapes[output], amount, "GB/s", None, dtype)


def _math(n: int, functions: Sequence[str]) -> Iterator[Workload]:
    shape = (min(n, 1 << 16),)  # fits the second cache
    for name in functions:
        for dtype in ("float32", "float64"):
            inputs = (shape,) * (2 if name in BINARY else 1)
            yield Workload("math", name, f"{name}, {dtype}", inputs, shape, float(shape[0]), "G/s", dtype=dtype)


def _reductions(n: int) -> Iterator[Workload]:
    side = math.isqrt(n)
    shape = (side, n // side)
    size = 4.0 * math.prod(shape)
    for key in ("sum", "mean", "max", "argmax", "softmax"):
        for axis, name in ((1, "last axis"), (0, "first axis")):
            output = shape if key == "softmax" else (1, shape[1]) if axis == 0 else (shape[0], 1)
            amount = size * (2 if key == "softmax" else 1)
            yield Workload("reductions", key, f"{key}, {name}", (shape,), output, amount, "GB/s", axis)
    yield Workload("reductions", "sum", "sum, all", (shape,), (1, 1), size, "GB/s", None)


def _products(sizes: WorkloadSizes) -> Iterator[Workload]:
    for m, k, n in sizes.products:
        title = f"{m}x{k} @ {k}x{n}"
        yield Workload("matmul", "matmul", title, ((m, k), (k, n)), (m, n), 2.0 * m * k * n, "GFLOP/s")
