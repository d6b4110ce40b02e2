"""Calls from unusual places and with unusual arrays: they are right, or say what is wrong; the process lives."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError

from . import direct_kernels as kernels

X = np.arange(64, dtype=np.float32)
LARGE = np.ones(60_000, np.float32)
AS_STRIDED = np.lib.stride_tricks.as_strided


def repeated(call: Callable[[], Any], count: int = 4) -> Any:
    """The last of some calls: by Python first, then through a door."""
    return [call() for _ in range(count)][-1]


def refused(kernel: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(EinkornError) as caught:
        repeated(lambda: kernel(*args, **kwargs))
    return str(caught.value.code)


# *** arrays ***


def views() -> Iterator[np.ndarray[Any, Any]]:
    square, cube = X.reshape(8, 8), X.reshape(4, 4, 4)
    yield from (X[::-1], X[::-2], X[::3], square[::-1, ::-1], square.T, cube.transpose(2, 0, 1)[::-1])
    yield from (np.broadcast_to(np.float32(3), (8,)), np.broadcast_to(X[:8], (8, 8)), AS_STRIDED(X, (8, 8), (4, 4)))
    yield from (np.ones((1,) * 32, np.float32), np.ones((2,) * 12, np.float32).T, X[:0][::-1], np.array(3, np.float32))


@pytest.mark.parametrize("number", range(len(list(views()))))
def test_views(number: int) -> None:
    view = list(views())[number]
    np.testing.assert_array_equal(repeated(lambda: kernels.add_one(view)), view + 1)
    memory = np.zeros(view.shape, view.dtype)
    backwards = memory[(slice(None, None, -1),) * view.ndim] if view.ndim else memory
    given = np.ascontiguousarray(view).reshape(view.shape)
    assert repeated(lambda: kernels.add_one(given, out=backwards)) is backwards
    np.testing.assert_array_equal(backwards, view + 1)


def test_arrays_that_are_refused() -> None:
    unaligned = np.zeros(4 * 64 + 1, np.uint8)[1:].view(np.float32)
    masked = np.ma.masked_array(X, X > 5)  # type: ignore[no-untyped-call]
    assert refused(kernels.add_one, X.astype(">f4")) == "EK0850"
    assert refused(kernels.add_one, unaligned) == "EK0464"
    assert refused(kernels.add_one, np.zeros(8, [("a", "u1"), ("f", "<f4")])["f"]) == "EK0453"
    assert refused(kernels.add_one, masked) == "EK0477"
    for dtype in (object, "U1", "S1", "M8[s]", np.clongdouble, np.longdouble, [("a", "f4")]):
        assert refused(kernels.add_one, np.zeros(3, dtype)) == "EK0850"
    for out in (
        X,
        np.empty(64, ">f4"),
        np.empty(63, np.float32),
        np.broadcast_to(X, (64,)),
        masked,
        AS_STRIDED(X.copy(), (64,), (0,)),
        "text",
    ):
        assert refused(kernels.add_one, X, out=out) in ("EK0461", "EK0462", "EK0477", "EK0853")


def test_arrays_of_other_classes_are_read_as_arrays() -> None:
    class Mine(np.ndarray[Any, Any]):
        pass

    for value in (np.ones((1, 2)).view(np.matrix), X.view(Mine), np.rec.array(X)):
        actual = repeated(lambda value=value: kernels.add_one(value))  # type: ignore[misc]
        assert type(actual) is np.ndarray and np.array_equal(actual, np.asarray(value) + 1)


def test_sizes_without_memory() -> None:
    huge = AS_STRIDED(X, (1 << 45,), (0,))
    assert refused(kernels.add_one, huge) == "EK0813"
    with pytest.raises(EinkornError):
        kernels.outer(AS_STRIDED(X, (1 << 33,), (0,)), AS_STRIDED(X, (1 << 33,), (0,)))
    assert kernels.add_one(np.empty((0, 1 << 40), np.float32)).shape == (0, 1 << 40)


def test_memory_may_be_resized_after_a_call() -> None:
    array = np.ones(60_000, np.float32)
    kernels.add_one(array)
    array.resize((4,), refcheck=True)  # nothing else has it


# *** places ***


def test_many_threads_over_one_kernel() -> None:
    wrong: list[int] = []

    def work() -> None:
        for size in [*range(64), 50_000] * 8:
            given = LARGE[:size] if size > 64 else X[:size]
            if not np.array_equal(kernels.add_one(given), given + 1):
                wrong.append(size)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_with_a_small_stack() -> None:
    collected: list[Any] = []
    before = threading.stack_size(64 << 10)
    try:
        thread = threading.Thread(target=lambda: collected.append((kernels.add_one(X)[1], kernels.add_one(LARGE)[0])))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert collected == [(2, 2)]


def test_finalizers() -> None:
    seen = []

    class Finalized:
        def __del__(self) -> None:
            seen.append(kernels.add_one(X)[0])

    cycle: Any = Finalized()
    cycle.me = cycle
    del cycle
    gc.collect()
    Finalized()
    assert seen == [1, 1]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
def test_handlers_of_signals_call_kernels_and_raise() -> None:
    calls, raised = [0], 0

    def handler(*_: Any) -> None:
        calls[0] += 1
        kernels.add_one(X)
        kernels.add_one(LARGE)
        raise KeyError("by the handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                while True:
                    kernels.add_one(LARGE)
            except KeyError:
                raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls[0] == raised == 20 and kernels.add_one(X)[0] == 1


def test_debuggers_and_profilers() -> None:
    events: list[str] = []

    def traced(frame: Any, event: str, argument: Any) -> Any:
        events.append(event)
        return traced

    trace, profile = sys.gettrace(), sys.getprofile()
    for install in (sys.settrace, sys.setprofile):
        install(traced)
        try:
            for _ in range(4):
                kernels.add_one(X)
                with pytest.raises(EinkornError):
                    kernels.add(X, X[:3])
        finally:
            sys.settrace(trace)
            sys.setprofile(profile)
    assert len(events) > 20


def test_deep_in_recursion() -> None:
    def deep(left: int) -> Any:
        return deep(left - 1) if left else kernels.add_one(X)[0]

    assert deep(500) == 1

    def without_end() -> Any:
        return kernels.add_one(X) is None or without_end()

    with pytest.raises(RecursionError):
        without_end()
    assert kernels.add_one(X)[0] == 1


EXIT = """
import atexit, os, sys, threading
import numpy as np
sys.path.insert(0, {folder!r})
from direct_kernels import add_one
x, large = np.arange(64, dtype=np.float32), np.ones(60_000, np.float32)
for _ in range(4):
    add_one(x)
    add_one(large)

def work():
    while True:
        add_one(large), add_one(x)

class Finalized:
    def __del__(self):
        print("finalized", add_one(x)[0], flush=True)

if {threads}:
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        add_one(large)
        os._exit(0 if add_one(x)[0] == 1 else 1)
    children.append(os.waitpid(child, 0)[1])
cycle = Finalized()
cycle.me = cycle
atexit.register(lambda: print("exit", add_one(x)[0], add_one(large)[0], children, flush=True))
"""


@pytest.mark.parametrize("threads", [True, False])
def test_the_end_of_a_process(threads: bool) -> None:
    """Calls at exit, in finalizers of the interpreter's end, in threads that it does not wait for, in children."""
    text = EXIT.format(folder=str(Path(__file__).parent), threads=threads)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=dict(os.environ))
    said = ["exit 1.0 2.0 [0, 0, 0]", *([] if threads else ["finalized 1.0"])]  # frames of such threads are kept
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr
