"""Models in several threads and processes: shared, forked, spawned, and with every number of threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.graphs import Array

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, ops
from einkorn.graph.engine.model import Model

KERNELS = Path(__file__).parent / "session_kernels.py"
FORKS = hasattr(os, "fork")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def mixed(x: Any) -> list[Any]:
    """Loops, reductions and products, some of them over intermediate results."""
    y = ops.exp(x * 0.125)
    return [y, ops.sum(y, axis=None), y @ x, ops.softmax(x @ y), ops.argmax(y, axis=0)]


@pytest.fixture(scope="module")
def model() -> Model:
    return graphs.load(mixed, (np.float64, ["n", "n"]))


def square(n: int, seed: int = 0) -> Array:
    return graphs.numbers((n, n), np.float64, seed)


def same(actual: list[Any], expected: list[Array]) -> bool:
    return all(np.array_equal(np.asarray(a), e) for a, e in zip(actual, expected, strict=True))


def test_one_model_in_many_threads(model: Model) -> None:
    """Threads with other sizes wait for each other and never see each other's numbers."""
    inputs = [square(n, n) for n in (1, 30, 64, 130)]
    expected = [graphs.results(model, x) for x in inputs]

    def work(number: int) -> bool:
        return all(same(model(inputs[k % 4]), expected[k % 4]) for k in range(number, number + 12))

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(8)))


def test_models_of_their_own_in_many_threads() -> None:
    """Each thread stages, loads and calls; two in three load the same graph."""

    def work(number: int) -> bool:
        scale = float(number % 3)
        mine = graphs.load(lambda x: [x * scale, ops.sum(x * x, axis=-1)], (np.float64, ["n", "m"]))
        for n in (3, 200, 7):
            x = square(n, number)
            scaled, squares = graphs.results(mine, x)
            if not np.array_equal(scaled, x * scale):
                return False
            if not np.allclose(squares, (x * x).sum(-1, keepdims=True), rtol=1e-12):
                return False
        return True

    with ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(12)))


def test_failures_in_threads_stay_with_their_caller() -> None:
    stopping = graphs.load(
        lambda x: ops.custom("positive", device=DeviceRef.CPU(), values=[x]), (np.float64, ["n"]), extensions=[KERNELS]
    )

    def work(number: int) -> bool:
        x = np.full(5000, number + 1.0)
        for turn in range(20):
            if (number + turn) % 2:
                x[-1] = -number - 1.0
                try:
                    stopping(x)
                except KernelError as error:
                    if f"found {-number - 1.0}" not in str(error):
                        return False
                else:
                    return False
                x[-1] = number + 1.0
            elif not np.array_equal(stopping(x)[0].to_numpy(), x):
                return False
        return True

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(4)))


# *** processes ***


def in_child(work: Callable[[], bool], seconds: int = 20) -> int:
    """The exit status of a forked child: 0 when `work` was true; a child that hangs dies of an alarm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is the point here
        pid = os.fork()
    if pid == 0:
        status = 2
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not FORKS, reason="no fork on this system")
def test_a_forked_child_calls_loads_and_forks(model: Model) -> None:
    x = square(130, 1)
    expected = graphs.results(model, x)

    def work() -> bool:
        fresh = graphs.load(lambda x: ops.sum(x * 3.25 - 1.0, axis=0), (np.float64, ["n", "n"]))
        good = np.allclose(fresh(x)[0].to_numpy(), (x * 3.25 - 1).sum(0, keepdims=True))
        return good and same(model(x), expected) and in_child(lambda: same(model(x), expected)) == 0

    assert in_child(work) == 0
    assert same(model(x), expected)


@pytest.mark.skipif(not FORKS, reason="no fork on this system")
def test_a_fork_while_other_threads_are_calling(model: Model) -> None:
    x = square(200, 2)
    expected = graphs.results(model, x)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            model(x)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            time.sleep(0.005)
            assert in_child(lambda: same(model(x), expected), seconds=5) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert same(model(x), expected)


def _in_worker(n: int) -> float:
    return float(graphs.load(mixed, (np.float64, ["n", "n"]))(np.ones((n, n)))[1].item())


@pytest.mark.skipif(not FORKS, reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_of_multiprocessing_by_fork(model: Model) -> None:
    model(np.ones((3, 3)))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        sums = pool.map_async(_in_worker, [2, 50, 3]).get(60)
    np.testing.assert_allclose(sums, [n * n * np.exp(0.125) for n in (2, 50, 3)])


SPAWNED = """
import multiprocessing, sys
import numpy as np
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

def total(n):
    kind = TensorType(DType.float64, ["n"], DeviceRef.CPU())
    graph = Graph("g", forward=lambda x: ops.sum(x + 1.0, axis=None), input_types=[kind])
    return InferenceSession().load(graph)(np.ones(n))[0].item()

if __name__ == "__main__":
    here = total(4)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(here, *pool.map(total, [1, 200000]))
"""


def test_workers_of_multiprocessing_by_spawn(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    # Spawned workers import the main module, so it has to be a file.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["8.0", "2.0", "400000.0"], done.stderr


COUNTED = """
import sys
import numpy as np
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

def forward(x):
    y = ops.exp(x * 0.125)
    return [y, ops.sum(y, axis=None), ops.sum(y, axis=0), y @ x, ops.softmax(x), ops.argmax(y, axis=None)]

kind = TensorType(DType.float32, ["n", "n"], DeviceRef.CPU())
model = InferenceSession().load(Graph("g", forward=forward, input_types=[kind]))
x = np.random.default_rng(1).standard_normal((257, 257)).astype(np.float32)
import hashlib
print(*(hashlib.sha256(b.to_numpy().tobytes()).hexdigest()[:12] for b in model(x)))
"""


def test_the_number_of_threads_does_not_change_results() -> None:
    seen = {}
    for count in ("1", "2", "4"):
        done = graphs.python(COUNTED, EINKORN_NUM_THREADS=count)
        assert done.returncode == 0, done.stderr
        seen[count] = done.stdout.split()
    assert len(seen["1"]) == 6
    assert seen["1"] == seen["2"] == seen["4"]


AT_THE_END = """
import atexit
import numpy as np
from einkorn.graph import DType, Graph, InferenceSession, TensorType, ops

@atexit.register
def last():
    graph = Graph("g", lambda x: (ops.softmax(x), ops.cumsum(x, axis=1)), [TensorType(DType.float32, (8, 5))])
    print(*(float(each.to_numpy().sum()) for each in InferenceSession().load(graph)(np.ones((8, 5), np.float32))))
"""


def test_the_end_of_a_process_compiles(tmp_path: Path) -> None:
    """Several groups, when Python starts no pool of threads any more."""
    done = graphs.python(AT_THE_END, EINKORN_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "8.0 120.0\n", "")
