"""Are kernels with known shapes as fast as those with unknown ones? A table of times, for ops and kernels by axis.

    python benchmarks/static_shapes.py                       all, in some minutes
    python benchmarks/static_shapes.py --only rope softmax   some
    python benchmarks/static_shapes.py --last 64 100         some lengths of the last axis

Each is compiled with symbolic dims, with a static last axis, and with static dims alone. Rounds are short and
interleaved, on one thread, in processor time: numbers are medians of a round's ratios, above 1 where knowing more is
slower. Compile times and sizes of code are next to them.

See also `run` (how fast that is).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from with_einkorn import KERNELS, NativeEntry
from workloads import TWENTY

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "custom_ops" / "kernels"
FILES = [KERNELS, HERE / "kernels", *sorted(EXAMPLES.glob("*.py"))]
LAST = (1, 3, 7, 8, 16, 31, 32, 64, 100, 128, 384, 1000)
ELEMENTS = 32768  # of each input, nearly: they lie in the second cache
NOISE = 1.15
MODES = ("symbolic", "last", "static")
CPU = DeviceRef.CPU()
MINUS = float("-inf")


@dataclass(frozen=True)
class StaticCase:
    """What is measured: a function that stages it, and its inputs' axes by name ("m n") with dtypes."""

    forward: Callable[..., Any]
    inputs: tuple[tuple[str, DType], ...]
    even: bool = False  # whether the last axis is cut in halves


def custom(name: str) -> Callable[..., Any]:
    return lambda *values: ops.custom(name, device=CPU, values=list(values))[0]


def _inputs(*dims: str) -> tuple[tuple[str, DType], ...]:
    return tuple((each.removeprefix("?"), DType.bool if each[0] == "?" else DType.float32) for each in dims)


def cases() -> dict[str, StaticCase]:
    """By name."""
    graphs: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "add_one": (lambda x: x + 1.0, ("m n",)),
        "exp": (ops.exp, ("m n",)),
        "gelu": (ops.gelu, ("m n",)),
        "add_row": (lambda x, w: x + w, ("m n", "n")),
        "add_column": (lambda x, w: x + w, ("m n", "m 1")),
        "where": (lambda c, x: ops.where(c, x, 0.0), ("?m n", "m n")),
        "transpose": (lambda x: ops.transpose(x, 0, 1), ("m n",)),
        "add_transposed": (lambda x, y: ops.transpose(x, 0, 1) + y, ("m n", "n m")),
        "slice": (lambda x: x[:, 1:] * 2.0, ("m n",)),
        "concat": (lambda x, y: ops.concat([x, y], 1), ("m n", "m n")),
        "concat_rows": (lambda x, y: ops.concat([x, y], 0), ("m n", "m n")),
        "stack": (lambda x, y: ops.stack([x, y], -1), ("m n", "m n")),
        "broadcast": (lambda x, y: ops.broadcast_to(x, y.shape), ("n", "m n")),
        "sum": (lambda x: ops.sum(x, -1), ("m n",)),
        "sum_columns": (lambda x: ops.sum(x, 0), ("m n",)),
        "mean": (lambda x: ops.mean(x, -1), ("m n",)),
        "max": (lambda x: ops.max(x, axis=-1), ("m n",)),
        "argmax": (lambda x: ops.argmax(x, -1), ("m n",)),
        "softmax": (lambda x: ops.softmax(x, -1), ("m n",)),
        "softmax_columns": (lambda x: ops.softmax(x, 0), ("m n",)),
        "logsoftmax": (lambda x: ops.logsoftmax(x, -1), ("m n",)),
        "softmax_masked": (lambda c, x: ops.softmax(ops.where(c, x, MINUS)), ("?m n", "m n")),
        "softmax_row_masked": (lambda c, x: ops.softmax(ops.where(c, x, MINUS)), ("?n", "m n")),
        "attention_masked": (lambda c, x: ops.softmax(ops.where(c, x * 0.125, MINUS)), ("?n n", "b n n")),
        "layer_norm": (_normed, ("m n", "n", "n")),
        "matmul": (ops.matmul, ("m n", "n n")),
        "matmul_bias": (lambda x, w, b: ops.relu(x @ w + b), ("m n", "n n", "n")),
        "matmul_row": (lambda x, w: x @ w, ("1 n", "n n")),
        "matmul_across": (lambda x, y: x @ ops.transpose(y, 0, 1), ("16 n", "m n")),
    }
    cases_by_name = {f"ops.{name}": StaticCase(forward, _inputs(*dims)) for name, (forward, dims) in graphs.items()}
    kernels: dict[str, tuple[str, ...]] = {
        "shapes::rope": ("4 m n", "m h", "m h"),
        "shapes::rope_angles": ("4 m n", "m h"),
        "shapes::rope_pairs": ("m n", "m h", "m h"),
        "shapes::masked_softmax": ("m n", "?m n"),
        "shapes::masked_rows": ("m n", "?m n"),
        "shapes::layer_norm": ("m n", "n", "n"),
        "shapes::plain_norm": ("m n",),
        "shapes::conv": ("m n", "3"),
        "shapes::clamped": ("m n",),
        "shapes::laplace": ("m n",),
        "shapes::rolled": ("m n",),
        "shapes::flipped": ("m n",),
        "shapes::causal": ("m n",),
        "shapes::glu": ("m n",),
        "shapes::product": ("m n", "n n"),
        "shapes::dots": ("m n", "m n"),
        "shapes::linear_time": ("m n", "n"),
        "blur": ("m n",),
        "brightness": ("m n",),
        "matrix_multiplication": ("m n", "n n"),
        "layer_norm": ("m n", "n", "n"),
        "row_softmax": ("m n",),
        "bilateral": ("m n 3",),
    }
    for name, (_, inputs, _) in TWENTY.items():
        axes = {"x": "m n", "mn": "m n", "n": "n"}
        kernels[f"twenty::{name}"] = tuple(axes[each] for each in inputs.split())
    for name, inputs in kernels.items():
        cases_by_name[name] = StaticCase(custom(name), _inputs(*inputs), even=any("h" in each for each in inputs))
    return cases_by_name


def _normed(x: Any, w: Any, b: Any) -> Any:
    mean = ops.mean(x, -1)
    variance = ops.mean((x - mean) * (x - mean), -1)
    return (x - mean) * ops.rsqrt(variance + 1e-5) * w + b


@dataclass(frozen=True)
class CompiledCase:
    """One compilation of a case: what to call, and what it took."""

    run: Callable[[], Any]
    seconds: float
    size: int


def _dim(name: str, mode: str, sizes: dict[str, int]) -> Any:
    """An axis of a type: a size by name, or a number."""
    if name.isdigit():
        return int(name)
    return sizes[name] if mode == "static" or (mode == "last" and name in "nh") else name


def compiled(case: StaticCase, mode: str, sizes: dict[str, int]) -> CompiledCase:
    """The case for known or unknown sizes, over arrays of these sizes."""
    types = [TensorType(t, [_dim(d, mode, sizes) for d in dims.split()], CPU) for dims, t in case.inputs]
    cache = Path(os.environ["EINKORN_CACHE_DIR"])
    before = set(cache.rglob("*.so"))
    start = time.process_time()
    graph = Graph("case", forward=case.forward, input_types=types, custom_extensions=FILES)
    model = InferenceSession().load(graph)
    seconds = time.process_time() - start
    made = set(cache.rglob("*.so")) - before  # none where it was compiled before
    random = np.random.default_rng(1)
    arrays = []
    for dims, dtype in case.inputs:
        shape = [int(d) if d.isdigit() else sizes[d] for d in dims.split()]
        array = random.standard_normal(shape).astype(np.float32)
        arrays.append(array > -0.5 if dtype is DType.bool else array)
    output = np.empty_like(model(*arrays)[0].to_numpy())
    return CompiledCase(NativeEntry(model, arrays, output, sizes), seconds, sum(code.stat().st_size for code in made))


def measured(variants: Sequence[CompiledCase], rounds: int, least: float) -> list[float]:
    """Processor time of one call of each."""
    counts = []
    for variant in variants:
        variant.run()
        start = time.thread_time()
        variant.run()
        counts.append(max(1, round(least / max(time.thread_time() - start, 1e-7))))
    times: list[list[float]] = [[] for _ in variants]
    for number in range(rounds):
        order = list(range(len(variants)))
        for k in order[number % len(order) :] + order[: number % len(order)]:
            start = time.thread_time()
            for _ in range(counts[k]):
                variants[k].run()
            times[k].append((time.thread_time() - start) / counts[k])
    return [statistics.median(taken) for taken in times]


def main() -> int:
    options = _options()
    os.environ["EINKORN_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="einkorn-shapes-") as cache:
        os.environ["EINKORN_CACHE_DIR"] = cache
        worst = list(_rows(options))
    slower = sorted((each for each in worst if each[0] > NOISE), reverse=True)
    named = "; ".join(f"{name} {ratio:.2f}" for ratio, name in slower)
    print(f"{len(worst)} cases, {len(slower)} slower: {named}")
    return 0


def _rows(options: argparse.Namespace) -> Iterator[tuple[float, str]]:
    """Prints a row for each case and length; gives its worst ratio, with its name."""
    print(
        f"{'':24}{'axis':>5}  {'symbolic':>9}  {'last':>5} {'static':>6}   compile, s: sym.  last  static   code, KiB"
    )
    for name, case in cases().items():
        if options.only and not any(word in name for word in options.only):
            continue
        for last in options.last:
            if case.even and last % 2:
                continue
            rows = max(4, options.elements // last)
            sizes = {"n": last, "h": last // 2, "m": rows, "b": max(1, rows // last)}
            variants = [compiled(case, mode, sizes) for mode in MODES]
            times = measured(variants, options.rounds, options.least)
            ratios = [took / times[0] for took in times[1:]]
            seconds = " ".join(f"{variant.seconds:5.2f}" for variant in variants)
            kib = " ".join(f"{variant.size / 1024:5.1f}" for variant in variants)
            mark = "  <<<" if max(ratios) > NOISE else ""
            shown = f"{times[0] * 1e6:7.1f}us  {ratios[0]:5.2f} {ratios[1]:6.2f}"
            print(f"{name:24}{last:5}  {shown}        {seconds}      {kib}{mark}", flush=True)
            yield max(ratios), f"{name}, {last}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", help="words in the names of cases")
    parser.add_argument("--last", nargs="+", type=int, default=LAST, help="lengths of the last axis")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="elements of an input, nearly")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--least", type=float, default=5e-4, help="seconds of a round")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
