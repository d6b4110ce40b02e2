"""Times of graph ops next to NumPy, PyTorch, ONNX Runtime and JAX: one typical size an op, on one thread and on two.

    python benchmarks/ops.py                       # all rows
    python benchmarks/ops.py gather scatter_nd     # some ops
    python benchmarks/ops.py --threads 2 --rounds 9
    python benchmarks/ops.py --update              # all rows, and docs/ops-speed.md
    python benchmarks/ops.py --update gather       # the lines of some ops anew; the others of the page stay

The rows stand in `op_rows`: a text that says the size, arrays, and the call for each contender, as plain functions; of
ONNX Runtime it is an op type with its attributes. What is not installed is left out. Every result is compared with
ours before it is timed. Rounds are interleaved (see `measure`); each number of threads has a process of its own, and
when that dies, the row it died of is named and the others are gone on with.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleave
from op_rows import ROWS, WITHOUT, Array, Row

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

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
    import torch

    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(np.asarray(array)) for array in arrays]
    if row.prepare is not None:
        tensors = row.prepare(*tensors)
    return lambda: np.asarray(function(*tensors))


def onnxruntime(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any] | None:
    if row.onnx is None:
        return None
    import onnxruntime as runtime
    from onnx import helper

    values = [*arrays, *row.onnx_inputs] if row.onnx_given is None else row.onnx_given(arrays)
    names = [f"x{k}" if array.size else "" for k, array in enumerate(values)]  # an input without elements is left out
    given = {name: array for name, array in zip(names, values, strict=True) if name}
    kind = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, kind(a.dtype), a.shape) for name, a in given.items()]
    node = helper.make_node(row.onnx[0], names, ["y"], **row.onnx[1])
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = min(model.ir_version, 10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, given)[0]


def jax(row: Row, arrays: list[Array], threads: int) -> Callable[[], Any] | None:
    if row.jax is None:
        return None
    import jax

    function = jax.jit(row.jax)
    values = [jax.numpy.asarray(array) for array in arrays]
    return lambda: np.asarray(function(*values))


CONTENDERS: dict[str, Callable[[Row, list[Array], int], Callable[[], Any] | None]] = {
    "einkorn": einkorn,
    "numpy": numpy,
    "torch": torch,
    "onnxruntime": onnxruntime,
    "jax": jax,
}


def measured(row: Row, threads: int, rounds: int, best: bool = False) -> dict[str, Any]:
    """Seconds of each contender, and why one could not take part; of its best round, or in the median."""
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
            failures[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    times = interleave(calls, rounds, pause=0.005, limit=3.0)
    taken = {name: timing.best if best else timing.median for name, timing in times.items()}
    return {"times": taken, "failures": failures}


def _check(result: Array, expected: Array, tolerance: float | None) -> None:
    if result.shape != expected.shape:
        raise AssertionError(f"shape {result.shape}, ours is {expected.shape}")
    if tolerance is not None:
        scale = float(np.abs(expected).max(initial=1)) if expected.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * scale)


# *** processes ***


def child(numbers: list[int], threads: int, rounds: int, best: bool) -> None:
    """Times rows by number; a line of JSON each."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401
    with contextlib.suppress(ImportError):
        import jax  # noqa: F401
    gc.freeze()  # what peers keep alive is not gone through in every round
    for number in numbers:
        result = measured(ROWS[number], threads, rounds, best)
        print(json.dumps({"row": number, "threads": threads, **result}), flush=True)


def results(numbers: list[int], threads: int, rounds: int, best: bool = False) -> Iterator[dict[str, Any]]:
    """What children say of rows; a child that dies costs the row at which it died."""
    # JAX and the matrices of NumPy have as many threads as the environment says.
    threads_of_peers = {"NPROC": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    environment = {**os.environ, **threads_of_peers, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    left = list(numbers)
    while left:
        options = ["--threads", str(threads), "--rounds", str(rounds), *(["--best"] if best else [])]
        command = [sys.executable, __file__, *options, "--child", *map(str, left)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                result = json.loads(line)
                left.remove(result["row"])
                yield result
        if left:
            died = {"einkorn": f"the process ended with {process.returncode}"}
            yield {"row": left.pop(0), "threads": threads, "times": {}, "failures": died}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="names of ops; all of them when left out")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--best", action="store_true", help="of each contender its best round: for a busy machine")
    parser.add_argument("--update", action="store_true", help="write docs/ops-speed.md")
    parser.add_argument("--child", type=int, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.threads[0], given.rounds, given.best)
        return 0
    unknown = set(given.ops) - {row.op for row in ROWS}
    if unknown:
        parser.error("; ".join(f"{name}: {WITHOUT.get(name, 'no op of graphs')}" for name in sorted(unknown)))
    numbers = [number for number, row in enumerate(ROWS) if not given.ops or row.op in given.ops]
    print(HEAD)
    failed, lines = False, dict[Key, Line]()
    for threads in given.threads:
        for result in results(numbers, threads, given.rounds, given.best):
            failed |= show(result, lines)
    if given.update:
        kept = known() if given.ops or given.threads != [1, 2] else {}
        PAGE.write_text(page({**kept, **lines}), encoding="utf-8")
    return int(failed)


# *** the table ***

HEAD = "| op | size | threads | ours | best peer | its time | ours against it |\n|---|---|---|---|---|---|---|"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops-speed.md"
Key = tuple[str, str, str]  # op, size, threads
Line = tuple[float, str]  # the ratio and the whole line


def page(lines: Mapping[Key, Line]) -> str:
    """docs/ops-speed.md: all rows, the weakest first, and the ops that have none."""
    low = [ratio for ratio, _ in lines.values() if ratio < 0.5]
    text = f"""# How fast ops are

The ops of graphs compared with NumPy, PyTorch, ONNX Runtime and JAX: one typical size each, in one run, in
turn; written by `make ops-speed`. A contender begins when no thread of another one looks for work any more, which those
of ONNX Runtime do for a tenth of a second after a call. *Ours against it* is the time of the best peer by ours: 2.0 is
twice as fast. The weakest rows come first; {len(low)} of {len(lines)} are below 0.5. Numbers are float32 where the size
says nothing else.
Measured with {versions()} on {os.cpu_count()} cores.

"""
    table = "\n".join([HEAD, *(line for _, line in sorted(lines.values()))])
    return text + table + "\n\n## Ops without a row\n\n| op | why |\n|---|---|\n" + _without()


def _without() -> str:
    return "".join(f"| `{name}` | {why} |\n" for name, why in sorted(WITHOUT.items()))


def known() -> dict[Key, Line]:
    """The lines that stand on the page, as far as their rows are there still."""
    rows = {(row.op, row.size) for row in ROWS}
    lines_by_key: dict[Key, Line] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) == 7 and (cells[0], cells[1]) in rows:
            lines_by_key[cells[0], cells[1], cells[2]] = (float(cells[6]), line)
    return lines_by_key


def versions() -> str:
    rows = []
    for name in ("numpy", "torch", "onnxruntime", "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            rows.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(rows)


def show(result: Mapping[str, Any], lines: dict[Key, Line]) -> bool:
    """Prints a row, and keeps it; gives whether it failed."""
    row, times = ROWS[result["row"]], dict(result["times"])
    ours = times.pop("einkorn", None)
    for name, why in result["failures"].items():
        print(f"{row.op}, {row.size}: {name}: {why}", file=sys.stderr)
    if ours is None or not times:
        return True
    best = min(times, key=times.__getitem__)
    ratio = times[best] / ours
    cells = [row.op, row.size, str(result["threads"]), _shown(ours), best, _shown(times[best]), f"{ratio:.2f}"]
    lines[row.op, row.size, cells[2]] = (ratio, f"| {' | '.join(cells)} |")
    print(f"| {' | '.join(cells)} |", flush=True)
    return bool(result["failures"])


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
