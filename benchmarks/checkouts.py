"""Starts, calls and compilations of two checkouts, in turns: what a change made slower or faster.

    python benchmarks/checkouts.py ../before                 # this checkout next to that one
    python benchmarks/checkouts.py ../before --pairs 31 import "first call, warm"

Each checkout has its own `.venv`. A sample is a process of its own, and the samples of the two checkouts take turns.
Times of starts and compilations are processor time, of all threads; bytecode (.pyc) lies in a folder of the
measurement's own, filled by a pair that is not counted. The ratio is the median of the ratios of pairs: above 1, this
checkout is slower.

See also `loading` (starts next to other libraries), `front_door` (calls) and `compiling` (stages of a compilation).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CALLS, REPETITIONS = 2000, 40


# *** samples: each runs in a process of its own, and returns seconds ***


def import_package() -> float:
    """`import einkorn`, which loads nothing else."""
    start = time.process_time()
    import einkorn  # noqa: F401

    return time.process_time() - start


def import_language() -> float:
    """`import einkorn.dsl`."""
    start = time.process_time()
    import einkorn.dsl  # noqa: F401

    return time.process_time() - start


def import_graph() -> float:
    """`import einkorn.graph`."""
    start = time.process_time()
    import einkorn.graph  # noqa: F401

    return time.process_time() - start


def first_call() -> float:
    """From the first import to the result of a kernel."""
    import numpy as np

    x = np.ones(64, np.float32)
    start = time.process_time()
    from addition import add_one

    add_one(x)
    return time.process_time() - start


def first_model() -> float:
    """From the first import to the result of a model of one op."""
    import numpy as np

    x = np.ones(64, np.float32)
    start = time.process_time()
    _model()(x)
    return time.process_time() - start


def call_kernel() -> float:
    """A call of a kernel on 64 elements."""
    import numpy as np
    from addition import add_one

    return _repeated(add_one, np.ones(64, np.float32))


def call_ufunc() -> float:
    """A call of a kernel as a ufunc on 64 elements."""
    import numpy as np
    from addition import add_one

    return _repeated(add_one.ufunc, np.ones(64, np.float32))


def call_model() -> float:
    """A call of a model of one op on 64 elements."""
    import numpy as np

    return _repeated(_model(), np.ones(64, np.float32))


def compile_bilateral() -> float:
    """A filter of fifty lines, as a graph of one custom op."""
    from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops

    host = DeviceRef.CPU()
    image = TensorType(DType.float32, ["height", "width", 3], host)
    graph = Graph(
        "bilateral",
        forward=lambda x: ops.custom("bilateral", device=host, values=[x], out_types=[image])[0],
        input_types=[image],
        custom_extensions=[str(HERE / "kernels" / "bilateral.py")],
    )
    return _loaded(graph, graph, times=5)


def compile_encoder() -> float:
    """The encoder of `large_graphs`."""
    import large_graphs

    return _loaded(large_graphs.encoder(1, "tanh"), large_graphs.encoder(6, "relu"), times=1)


def _model() -> Callable[[Any], Any]:
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

    types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())]
    model: Callable[[Any], Any] = InferenceSession().load(Graph("one", forward=lambda x: x + 1.0, input_types=types))
    return model


def _repeated(call: Callable[[Any], Any], x: Any) -> float:
    """Seconds of one call: the best of many, after the calls in which a background thread compiles the fast path."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        call(x)
        time.sleep(0.001)
    return min(timeit.repeat(lambda: call(x), number=CALLS, repeat=REPETITIONS)) / CALLS


def _loaded(first: Any, graph: Any, times: int) -> float:
    """Seconds in which a graph is optimised, compiled and loaded: the median, after another one that loads LLVM."""
    from einkorn.graph import InferenceSession

    InferenceSession().load(first)
    taken = []
    for _ in range(times):
        start = time.process_time()
        InferenceSession().load(graph)
        taken.append(time.process_time() - start)
    return statistics.median(taken)


# *** rows ***

# By name: the function, and which cache the process gets: an empty one, that of the sample before it, or none.
ROWS: dict[str, tuple[Callable[[], float], str]] = {
    "import einkorn": (import_package, "kept"),
    "import einkorn.dsl": (import_language, "kept"),
    "import einkorn.graph": (import_graph, "kept"),
    "first call of a kernel, cold": (first_call, "empty"),
    "first call of a kernel, warm": (first_call, "kept"),
    "first call of a model, cold": (first_model, "empty"),
    "first call of a model, warm": (first_model, "kept"),
    "call of a kernel": (call_kernel, "kept"),
    "call of a model": (call_model, "kept"),
    "call of a ufunc": (call_ufunc, "kept"),
    "compile the bilateral filter": (compile_bilateral, "none"),
    "compile an encoder of six layers": (compile_encoder, "none"),
}


def sample(checkout: Path, row: str, work: Path) -> float:
    """Seconds of one sample."""
    function, cache = ROWS[row]
    folder = work / f"cache-{checkout.parent.name}-{checkout.name}-{function.__name__}"
    if cache == "empty":
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"EINKORN_CACHE_DIR": str(folder), "PYTHONPYCACHEPREFIX": str(work / "bytecode")}
    if cache == "none":
        environment["EINKORN_CACHE"] = "0"
    command = [str(checkout / ".venv" / "bin" / "python"), __file__, "--sample", row]
    done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{row} in {checkout} failed:\n{done.stderr.strip()}")
    return float(done.stdout.splitlines()[-1])


def measure(before: Path, after: Path, rows: Iterable[str], pairs: int) -> dict[str, list[tuple[float, float]]]:
    """Pairs of seconds by row: of the checkout before, and of the one after. Which one begins alternates."""
    taken: dict[str, list[tuple[float, float]]] = {row: [] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for number in range(-1, pairs):  # the pair before the first fills the folder of bytecode and the caches
            for row, samples in taken.items():
                order = (before, after) if number % 2 else (after, before)
                seconds = {checkout: sample(checkout, row, work) for checkout in order}
                if number >= 0:
                    samples.append((seconds[before], seconds[after]))
    return taken


def table(taken: dict[str, list[tuple[float, float]]]) -> str:
    """Medians, the median of the ratios, and in how many pairs this checkout was slower."""
    lines = ["| what | before | after | ratio | slower in |", "|---|---|---|---|---|"]
    for row, samples in taken.items():
        before, after = (statistics.median(side) for side in zip(*samples, strict=True))
        ratio = statistics.median(new / old for old, new in samples)
        slower = sum(new > old for old, new in samples)
        lines.append(f"| {row} | {_shown(before)} | {_shown(after)} | {ratio:.3f} | {slower} of {len(samples)} |")
    return "\n".join(lines)


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e9:.0f} ns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout with a .venv")
    parser.add_argument("rows", nargs="*", help="parts of names of rows; all without any")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--sample", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sample:
        sys.path.append(str(HERE.parent / "examples" / "custom_ops" / "kernels"))
        print(ROWS[arguments.sample][0]())
        return
    if arguments.before is None:
        parser.error("name the checkout to compare with")
    rows = [row for row in ROWS if not arguments.rows or any(part in row for part in arguments.rows)]
    print(table(measure(arguments.before.resolve(), HERE.parent, rows, arguments.pairs)))


if __name__ == "__main__":
    sys.exit(main())
