"""A program whose calls are interrupted: by itself, a moment after each begins.

Every call runs for ever, so that a call which cannot be interrupted never ends, and code that runs the program finds
out. After each interrupt the same model is called with an input that ends, and gives the right numbers.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

KERNELS = Path(__file__).parents[1] / "graph" / "interrupt_kernels.py"
HOST = DeviceRef.CPU()
INT = DType.int64
EVER = 1 << 60


def custom(name: str) -> Model:
    def forward(x: Any) -> Any:
        return ops.custom(name, device=HOST, values=[x + 0])[0]

    graph = Graph(name, forward=forward, input_types=[TensorType(INT, ["n"], HOST)], custom_extensions=[KERNELS])
    return InferenceSession().load(graph)


def counting() -> Model:
    def forward(x: Any, rounds: Any) -> Any:
        ops.inplace_custom("counting", device=HOST, values=[x, rounds])
        return rounds + 1

    types = [BufferType(INT, ["n"], HOST), TensorType(INT, [1], HOST)]
    return InferenceSession().load(Graph("counting", forward=forward, input_types=types, custom_extensions=[KERNELS]))


def raises(kind: type[BaseException], work: Callable[[], Any], signals: int = 1) -> None:
    """Calls with so many signals, the first after a moment."""

    def send() -> None:
        for _ in range(signals):
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        work()
    except kind:
        pass
    else:
        raise AssertionError("a call without an end has ended")
    finally:
        sender.join()


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


def row(rounds: int) -> int:
    total = 0
    for k in range(rounds):
        total = total * 5 + k
    return total


def nest(x: Any) -> Any:
    total = sum(int(v) * (i ^ j) for i in range(x[0]) for j in range(x[0]) for v in x)
    return total + x


# What never ends, what ends, and what that gives.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "endless": (numbers(1, 2, 3), numbers(0, 2, 3), numbers(0, 2, 3)),
    "endless_elements": (numbers(*range(64)), numbers(0, -1, -5), numbers(0, -1, -5)),
    "long_rows": (numbers(3, EVER, 1, 2), numbers(3, 9, 1, 2), numbers(*map(row, (3, 9, 1, 2)))),
    "long_nest": (numbers(1 << 40, 2, 3), numbers(5, 2, 3), nest(numbers(5, 2, 3))),
    "printing": (numbers(EVER, 1), numbers(0, 1), numbers(1, 2)),
}


def check(model: Model, name: str) -> None:
    for _ in range(2):
        assert np.array_equal(np.asarray(model(CASES[name][1])[0]), CASES[name][2]), name


def cases() -> None:
    """Every kernel; plain inputs and views, which have code of their own."""
    for name, (long, _, _) in CASES.items():
        model = custom(name)
        for x in (long, np.repeat(long, 2)[::2]):
            raises(KeyboardInterrupt, lambda model=model, x=x: model(x))  # type: ignore[misc]
            check(model, name)
        print(name, file=sys.stderr, flush=True)


def in_place() -> None:
    """A buffer may be changed in part; the next call goes on from there."""
    model = counting()
    memory = np.zeros(1000, np.int64)
    buffer = Buffer.from_numpy(memory)
    raises(KeyboardInterrupt, lambda: model(buffer, numbers(EVER)))
    before = memory.copy()
    model(buffer, numbers(3))
    assert before.max() > 0 and np.array_equal(memory, before + 3)
    print("in_place", file=sys.stderr, flush=True)


def loops() -> None:
    """Loops of graphs: their kernels are too short to request by themselves, and a body may have none."""

    def forward(x: Any) -> Any:
        ops.while_loop(x, lambda v: x[1] > 1, lambda v: v)
        return ops.while_loop((x, 0), lambda v, n: n < x[0], lambda v, n: [v + x, n + 1])[0]

    for interpret in (False, True):
        graph = Graph("loops", forward, [TensorType(INT, ["n"], HOST)])
        model = InferenceSession(interpret=interpret).load(graph)
        raises(KeyboardInterrupt, lambda model=model: model(numbers(EVER, 1)))  # type: ignore[misc]
        for rounds in (3, 4):
            assert np.array_equal(np.asarray(model(numbers(rounds, 1))[0]), numbers(rounds, 1) * (rounds + 1))
    print("loops", file=sys.stderr, flush=True)


class Stop(Exception):
    pass


def own_handlers() -> None:
    """The program's own handler runs within the call, which goes on unless it raises something."""
    for name in ("endless", "printing"):  # the second one is interrupted in the middle of prints, mostly
        stopped_by_its_own(name)
    print("own_handlers", file=sys.stderr, flush=True)


def stopped_by_its_own(name: str) -> None:
    model, came = custom(name), []

    def handler(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) == 3:
            raise Stop

    before = signal.signal(signal.SIGINT, handler)
    raises(Stop, lambda: model(CASES[name][0]), signals=3)
    assert len(came) == 3
    signal.signal(signal.SIGINT, before)
    check(model, name)


def other_threads() -> None:
    """A call of another thread is not interrupted; the main thread is, wherever it waits."""
    model, done = custom("long_rows"), []
    x = numbers(300_000_000, 3, 4, 5)

    def call() -> None:
        done.append(np.asarray(model(x)[0]))

    thread = threading.Thread(target=call)
    thread.start()
    raises(KeyboardInterrupt, lambda: time.sleep(3600))
    check(custom("endless"), "endless")
    thread.join()
    assert np.array_equal(done[0][1:], numbers(*map(row, (3, 4, 5))))
    print("other_threads", file=sys.stderr, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that started this may ignore it
    with open(os.devnull, "w") as sys.stdout:  # what kernels print
        cases()
        in_place()
        loops()
        own_handlers()
        other_threads()
    sys.stdout = sys.__stdout__
    print("right", file=sys.stderr, flush=True)
