"""Measures how exact the mathematics is and writes the table of docs/numerics.md.

Functions of one float32 are tried on every one of the 2**32 numbers (on half of them where f(-x) is f(x) or -f(x)),
against our own function of float64, whose error is some 2**-29 of that; the worst of each is computed again with
mpmath. Functions of a float64, or of two numbers, are tried on arguments from every part of their domains (see
`truths`), against mpmath. Rows of functions that are not named stay as they are.

    python benchmarks/accuracy.py                     everything, half an hour on one core
    python benchmarks/accuracy.py sin cos             some functions
    python benchmarks/accuracy.py --stride 37 exp     every 37th of the float32 numbers
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf
from truths import BINARY, BOUNDS, EVEN, ODD, UNARY, Array, distance, precise, precision, samples, size_of

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "numerics.md"
DISTANCE = ROOT / "benchmarks" / "accuracy_kernels.py"
KERNELS = ROOT / "tests" / "numerics" / "kernels_math.py"
MARKS = ("<!-- table: accuracy -->", "<!-- end of table -->")
CHUNK = 1 << 18


@dataclass(frozen=True)
class Worst:
    """The largest error that was found, in ulp, and where."""

    error: float
    arguments: tuple[float, ...]


def function(name: str, dtype: DType) -> Callable[..., Array]:
    """One of our functions, on arrays of any size."""
    device = DeviceRef.CPU()
    count = 2 if name in BINARY else 1
    graph = Graph(
        name,
        forward=lambda *values: ops.custom(f"{name}_each", device=device, values=values)[0],
        input_types=[TensorType(dtype, ["n"], device)] * count,
        custom_extensions=[KERNELS],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    return lambda *arrays: np.asarray(model(*arrays)[0].to_numpy())


def against_mpmath(name: str, dtype: type[Any], count: int) -> Worst:
    """The worst of so many arguments from every part of the domain."""
    arguments = samples(name, dtype, count)
    got = function(name, DType.from_numpy(np.dtype(dtype)))(*arguments)
    truth = precise(name)
    worst = Worst(0.0, ())
    with mp.workprec(precision(name)):
        for value, *at in zip(got, *arguments, strict=True):
            exact = truth(*(mpf(float(a)) for a in at))
            error = distance(float(value), exact, dtype, size_of(name, exact, mpf(float(at[0]))))
            if error > worst.error:
                worst = Worst(error, tuple(float(a) for a in at))
    return worst


def patterns(name: str, stride: int) -> Iterator[Array]:
    """The float32 numbers, in chunks; without the negative ones where these add nothing, and without NaN."""
    last = 0x7F800000
    signs = (0,) if name in ODD + EVEN else (0, 0x80000000)
    for sign in signs:
        for start in range(0, last, CHUNK * stride):
            bits = np.arange(start, min(start + CHUNK * stride, last), stride, dtype=np.uint32)
            yield (bits | np.uint32(sign)).view(np.float32)


def against_float64(name: str, stride: int) -> Worst:
    """The worst of all float32 numbers."""
    device = DeviceRef.CPU()
    graph = Graph(
        name,
        forward=lambda x: ops.custom("distance", device=device, values=[x], parameters={"number": UNARY.index(name)})[
            0
        ],
        input_types=[TensorType(DType.float32, ["n"], device)],
        custom_extensions=[DISTANCE],
    )
    model = InferenceSession(devices=[CPU()]).load(graph)
    worst = Worst(0.0, ())
    for x in patterns(name, stride):
        if name in ("lgamma", "y0", "y1") and x[0] < 0:
            continue  # below 0 the errors of lgamma near its zeros are described in words
        errors = model(x)[0].to_numpy()
        at = int(np.argmax(errors))
        if errors[at] > worst.error:
            worst = Worst(float(errors[at]), (float(x[at]),))
    (at_worst,) = worst.arguments
    got = float(function(name, DType.float32)(np.array([at_worst], np.float32))[0])
    with mp.workprec(precision(name)):
        return Worst(distance(got, precise(name)(mpf(at_worst)), np.float32), worst.arguments)


def measure(name: str, stride: int, count: int) -> str:
    """A row of the table."""
    start = time.monotonic()
    narrow = against_mpmath(name, np.float32, count) if name in BINARY else against_float64(name, stride)
    wide = against_mpmath(name, np.float64, count)
    print(f"{name}: {narrow}, {wide}, {time.monotonic() - start:.0f} s", flush=True)
    share = "sampled" if name in BINARY else "all" if stride == 1 else f"1 in {stride}"
    low, high = BOUNDS[name]
    return f"| `{name}` | {low} | {narrow.error:.3f} | {share} | {high} | {wide.error:.3f} |"


def write(rows: dict[str, str]) -> None:
    """Replaces these rows of the table; the functions stand in the order of `truths`."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    table, after = rest.split(MARKS[1])
    known = {m[1]: m[0] for m in re.finditer(r"^\| `(\w+)` .*\|$", table, re.MULTILINE)} | rows
    lines = [
        "| function | float32 bound | found | tried | float64 bound | found |",
        "|---|---|---|---|---|---|",
        *(known[name] for name in UNARY + BINARY if name in known),
    ]
    PAGE.write_text(before + MARKS[0] + "\n" + "\n".join(lines) + "\n" + MARKS[1] + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions; by default all")
    parser.add_argument("--stride", type=int, default=1, help="every so manieth of the float32 numbers")
    parser.add_argument("--count", type=int, default=30_000, help="arguments that mpmath is requested")
    options = parser.parse_args()
    for name in options.names or UNARY + BINARY:
        write({name: measure(name, options.stride, options.count)})


if __name__ == "__main__":
    main()
