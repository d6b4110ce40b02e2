"""A program that forks at random moments while other threads compile; each child compiles, calls and forks, too.

Run as a program: python forked.py COUNT SEED, with `EINKORN_CACHE_DIR` a folder that is new.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.dsl import InputTensor, OutputTensor, register
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.loading.background import BACKGROUND

HOST = DeviceRef.CPU()
SECONDS = 200  # in which every child has to end
PAUSE = 0.15  # seconds between two forks, at most

T = TypeVar("T")


@register("scaled")
def scaled(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, factor: float = 2.0) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] * factor


def loaded(factor: float) -> Any:
    def forward(x: Any) -> list[Any]:
        y = ops.exp(x * factor)
        return [ops.softmax(y), y @ x]

    return InferenceSession().load(Graph("forked", forward, [TensorType(DType.float32, ["n", "n"], HOST)]))


def check_model(model: Any, factor: float) -> None:
    x = np.linspace(-1, 1, 49, dtype=np.float32).reshape(7, 7)
    softmax, product = (np.asarray(each) for each in model(x))
    y = np.exp(x * np.float32(factor))
    e = np.exp(y - y.max(-1, keepdims=True))
    assert np.allclose(softmax, e / e.sum(-1, keepdims=True), rtol=1e-5)
    assert np.allclose(product, y @ x, rtol=1e-4, atol=1e-4)


def check_graph(factor: float) -> None:
    check_model(loaded(factor), factor)


def check_call(factor: float) -> None:
    x = np.linspace(-1, 1, 100)
    assert np.allclose(scaled(x, factor=factor), x * factor)


def check_eager(factor: float) -> None:
    x = np.linspace(-1, 1, 30)
    for count in (3, 4):  # several ops, which a thread compiles as one graph when they come back
        for _ in range(4):
            with F.lazy():
                y = Tensor.constant(x) * factor
                for _ in range(round(factor * 1024) % 7 + count):
                    y = y * 0.5 + y * y / (y * y + 1.0)
            expected = x * factor
            for _ in range(round(factor * 1024) % 7 + count):
                expected = expected * 0.5 + expected * expected / (expected * expected + 1.0)
            assert np.allclose(y.to_numpy(), expected)


def check_settings() -> None:
    """What compilations change for the process is as it was."""
    assert sys.getrecursionlimit() == RECURSION and sys.getswitchinterval() == SWITCHING
    assert threading.stack_size() == 0


RECURSION, SWITCHING = sys.getrecursionlimit(), sys.getswitchinterval()
CHECKS: list[Callable[[float], None]] = [check_graph, check_call, check_eager]


class Compiling:
    """Threads that compile until they are stopped."""

    def __init__(self, seed: int) -> None:
        self.over = threading.Event()
        works = (loaded, check_eager, check_call)
        self.threads = [
            threading.Thread(target=self.work, args=(work, seed + number / 7), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in self.threads:
            thread.start()

    def work(self, compile: Callable[[float], Any], factor: float) -> None:
        while not self.over.is_set():
            compile(factor)
            factor += 1 / 1024

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def limit(seconds: int) -> None:
    """Ends this process after a while; what it waits for is printed before."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(seconds)


def child(number: int, seed: int, model: Any) -> None:
    """What a child does; an exception is its failure."""
    limit(SECONDS)
    check_settings()
    check_model(model, 0.5)
    CHECKS[number % len(CHECKS)](2.0 + seed + number / 512)
    if number % 5 == 0:  # a daemon forks twice
        pid = os.fork()
        if pid == 0:
            limit(SECONDS // 2)
            check_call(3.0 + seed + number / 512)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert status == 0, status


def forked(number: int, seed: int, model: Any) -> int:
    """The exit status of one child, made in one of several ways."""
    if number % 4 == 3:
        process = multiprocessing.get_context("fork").Process(target=child, args=(number, seed, model))
        process.start()
        process.join()
        return process.exitcode or 0
    pid, terminal = (os.fork(), -1) if number % 4 else os.forkpty()
    if pid == 0:
        status = 1
        try:
            child(number, seed, model)
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                sys.stderr.flush()
            os._exit(status)
    if terminal >= 0:
        with suppress(OSError), os.fdopen(terminal) as said:  # an OSError: its other end is closed
            for line in said:
                print(line, end="")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(count: int, seed: int) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks and threads
    moments = random.Random(seed)
    model = loaded(0.5) if seed % 2 else None
    compiling = Compiling(seed)
    if model is None:  # the first forks come while the compiler is imported
        time.sleep(moments.random())
        model = loaded(0.5)
    right = 0
    for number in range(count):
        time.sleep(moments.random() * PAUSE)
        status = [1]
        if number % 3 == 2:

            def other(number: int = number, status: list[int] = status) -> None:
                status[0] = forked(number, seed, model)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        else:
            status[0] = forked(number, seed, model)
        right += status[0] == 0
        if status[0]:
            print(f"child {number} of seed {seed}: {status[0]}", flush=True)
    check_graph(9.0)
    compiling.stop()
    BACKGROUND.wait()
    check_settings()
    print("right", right)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
