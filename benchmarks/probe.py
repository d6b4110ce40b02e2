"""One start of one contender, timed from inside: `python probe.py einkorn|numpy|torch|numba`.

Runs in a process of its own. The clock starts in the first line, so the interpreter's own start is not in it, and stops
when the first result is there. The work is one element-wise op over a small float32 array.
"""

import time

START = time.perf_counter()


def ready_without_core() -> float:
    """Seconds that this thread has stood ready without a core; 0 where the system does not report it."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) * 1e-9
    except OSError:
        return 0.0


WAITED = ready_without_core()
BUSY = time.thread_time()

import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from operator import sub  # noqa: E402
from typing import Any  # noqa: E402

laps = [START]


def lap() -> None:
    laps.append(time.perf_counter())


def run_einkorn(kernels: str) -> object:
    import numpy

    from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    lap()
    graph = Graph(
        "addition",
        forward=lambda x: ops.custom("add_one", device=DeviceRef.CPU(), values=[x])[0] if kernels else x + 1.0,
        input_types=[TensorType(DType.float32, ["rows", 10], DeviceRef.CPU())],
        custom_extensions=[kernels] if kernels else [],
    )
    lap()
    model = InferenceSession(devices=[CPU()]).load(graph)
    lap()
    return model(numpy.ones((5, 10), numpy.float32))[0].to_numpy()


def run_numpy(_: str) -> object:
    import numpy

    lap()
    lap()
    lap()
    return numpy.ones((5, 10), numpy.float32) + 1


def run_torch(_: str) -> object:
    import numpy
    import torch

    lap()
    lap()
    lap()
    return (torch.from_numpy(numpy.ones((5, 10), numpy.float32)) + 1).numpy()


def run_numba(_: str) -> object:
    import numba
    import numpy

    lap()

    @numba.njit("void(float32[:,::1], float32[:,::1])", cache=True)
    def add_one(out: Any, x: Any) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[i, j] + 1

    lap()
    lap()
    x = numpy.ones((5, 10), numpy.float32)
    out = numpy.empty_like(x)
    add_one(out, x)
    return out


RUNS: dict[str, Callable[[str], object]] = {
    "einkorn": run_einkorn,
    "numpy": run_numpy,
    "torch": run_torch,
    "numba": run_numba,
}


def main() -> None:
    result = RUNS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
    lap()
    seconds = dict(zip(("import", "stage", "load", "run"), map(sub, laps[1:], laps), strict=True))
    right = bool((result == 2).all())  # type: ignore[attr-defined]
    waited = ready_without_core() - WAITED
    busy = time.thread_time() - BUSY
    print(json.dumps({**seconds, "total": laps[-1] - laps[0], "cpu": busy, "waited": waited, "right": right}))


main()
