"""How long a large graph takes to become code: an encoder of n equal layers, staged, compiled, loaded and called.

    python benchmarks/large_graphs.py --layers 1 6 24 --rounds 3

Every sample is a process of its own, with a cache folder of its own: "cold" finds nothing, "warm" finds the whole
graph, "changed" finds all of a graph that differs in its last op, "parts" finds every kernel, but not this graph. All
numbers are medians, of the wall clock and of the processor; a ratio is to one layer. Weights are inputs, so that their
random numbers are in no time. `tiny` is the time of a call of one element.

See also `run.py`, `minilm.py` (how fast the graphs run).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WIDTH, HEADS = 384, 12
KINDS = ("cold", "warm", "changed", "parts")
TIMES = ("stage", "load", "first call")


def encoder(layers: int, last: str) -> Any:
    """The graph; `last` is the op behind the last layer."""
    from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops

    host = DeviceRef.CPU()
    shapes = [[WIDTH, WIDTH]] * 4 + [[WIDTH, 4 * WIDTH], [4 * WIDTH, WIDTH]] + [[WIDTH]] * 4

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - ops.mean(x, -1)
        return centred * ops.rsqrt(ops.mean(centred * centred, -1) + 1e-5) * scale + shift

    def layer(x: Any, query: Any, key: Any, value: Any, out: Any, up: Any, down: Any, *norms: Any) -> Any:
        batch, length, _ = x.shape

        def heads(weight: Any) -> Any:
            return ops.permute(ops.reshape(x @ weight, [batch, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

        scores = ops.softmax((heads(query) @ ops.permute(heads(key), [0, 1, 3, 2])) * (WIDTH // HEADS) ** -0.5)
        mixed = ops.reshape(ops.permute(scores @ heads(value), [0, 2, 1, 3]), [batch, length, WIDTH])
        x = norm(x + mixed @ out, *norms[:2])
        return norm(x + ops.gelu(x @ up) @ down, *norms[2:])

    def forward(x: Any, *weights: Any) -> Any:
        for number in range(layers):
            x = layer(x, *weights[number * len(shapes) : (number + 1) * len(shapes)])
        return getattr(ops, last)(x)

    types = [TensorType(DType.float32, shape, host) for shape in [["batch", "length", WIDTH], *shapes * layers]]
    return Graph("encoder", forward=forward, input_types=types)


def sample(layers: int, last: str) -> dict[str, Any]:
    """The times of one process, as pairs of wall clock and processor."""
    import numpy as np

    from einkorn.graph import InferenceSession

    session, marks = InferenceSession(), [(time.perf_counter(), time.process_time())]

    def mark() -> None:
        marks.append((time.perf_counter(), time.process_time()))

    graph = encoder(layers, last)
    mark()
    model = session.load(graph)
    mark()
    inputs = [np.ones([1 if dim is None else dim for dim in spec.shape], np.float32) for spec in model.input_metadata]
    started = (time.perf_counter(), time.process_time())
    model(*inputs)
    ended = (time.perf_counter(), time.process_time())
    pairs = [*itertools.pairwise(marks), (started, ended)]
    taken = {name: [b - a for a, b in zip(*pair, strict=True)] for name, pair in zip(TIMES, pairs, strict=True)}
    return {**taken, "kernels": len(model.kernel_summaries), "nodes": len(graph.ir.nodes)}


def tiny_call() -> float:
    """Seconds of one call of a graph of one element; the best of many."""
    import numpy as np

    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

    types = [TensorType(DType.float32, [1], DeviceRef.CPU())]
    model, x = (
        InferenceSession().load(Graph("tiny", forward=lambda x: x + 1.0, input_types=types)),
        np.ones(1, np.float32),
    )
    times = []
    for _ in range(40):
        start = time.perf_counter()
        for _ in range(500):
            model(x)
        times.append((time.perf_counter() - start) / 500)
    return min(times)


def measured(layers: int, last: str, cache: Path) -> dict[str, Any]:
    """A sample in a process of its own."""
    command = [sys.executable, __file__, "--one", str(layers), last]
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(layers: list[int], rounds: int) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Samples by number of layers and kind; the numbers of layers take turns."""
    samples: dict[int, dict[str, list[dict[str, Any]]]] = {n: {kind: [] for kind in KINDS} for n in layers}
    for _ in range(rounds):
        for count in layers:
            with tempfile.TemporaryDirectory() as folder:
                cache = Path(folder) / "cache"
                for kind, last in (("cold", "relu"), ("warm", "relu"), ("changed", "tanh")):
                    samples[count][kind].append(measured(count, last, cache))
                for record in cache.glob("v1/*/*.json"):
                    if b'"pieces"' in record.read_bytes():  # of a whole graph
                        record.unlink()
                samples[count]["parts"].append(measured(count, "relu", cache))
                shutil.rmtree(cache, ignore_errors=True)
    return samples


def table(samples: dict[int, dict[str, list[dict[str, Any]]]]) -> str:
    """The medians in Markdown."""
    lines = ["| layers | nodes | kernels | start | stage | load | load, processor | of one layer |", "|---" * 8 + "|"]
    first = min(samples)
    for count, kinds in samples.items():
        for kind, taken in kinds.items():
            median = {
                name: [statistics.median(one[name][clock] for one in taken) for clock in (0, 1)] for name in TIMES
            }
            base = statistics.median(one["load"][1] for one in samples[first][kind])
            known = f"{count} | {taken[0]['nodes']} | {taken[0]['kernels']} | {kind}"
            numbers = f"{median['stage'][0]:.2f} s | {median['load'][0]:.3f} s | {median['load'][1]:.3f} s"
            lines.append(f"| {known} | {numbers} | {median['load'][1] / base:.2f} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--layers", type=int, nargs="+", default=[1, 6, 24])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--one", nargs=2, metavar=("LAYERS", "LAST"), help="one sample in this process, as JSON")
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(sample(int(chosen.one[0]), chosen.one[1])))
        return
    print(table(measure(chosen.layers, chosen.rounds)))
    print(f"\ntiny: {tiny_call() * 1e6:.2f} µs a call")


if __name__ == "__main__":
    main()
