"""A program whose compilations are interrupted at random moments, whatever calls them: handlers raise what they like.

Each round compiles something new through one caller, and a signal comes while it does. Either the result is right, or
the handler's own exception comes out, unchanged; then the same is done again, and is right. In the end no reproducer
and no marker of a compilation lies in the cache or in the temporary folder, and the process is as it was.

Run as a program: python interrupted_callers.py COUNT SEED [CALLER ...], with `EINKORN_CACHE_DIR` and `TMPDIR` folders
that are new.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from einkorn.tensor import Tensor

from einkorn.cli.application import run
from einkorn.dsl import kernels_of
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.loading.background import BACKGROUND

HOST = DeviceRef.CPU()
KERNEL = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)

@register("{name}")
def {name}(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, factor: float = 2.0):
    foreach(out, lambda i: x[i] * factor + {number})
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class Stop(Exception):
    """An exception of a program of the user's."""


class Timeout(TimeoutError):
    """One of a kind that programs catch where files are read."""


RAISED: tuple[type[BaseException], ...] = (
    *(KeyboardInterrupt, SystemExit, Stop, Timeout, RuntimeError, ValueError, TypeError, KeyError),
    *(RecursionError, MemoryError),
)

Caller = Callable[[int], Callable[[], None]]  # of a number that is new: what compiles something new, and checks it
CALLERS: dict[str, Caller] = {}
STARTING = {"torch_compile"}  # callers that start the alarm


def caller(function: Caller) -> Caller:
    CALLERS[function.__name__] = function
    return function


class Alarm:
    """Lets a handler raise at a moment."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.raised, self.stack = False, ""  # and where the signal came
        self.delay, self.begun = 0.0, 0.0

    def handle(self, number: int, frame: Any) -> None:
        if self.error is not None and not self.raised:
            self.raised, self.stack = True, "".join(traceback.format_stack(frame))
            raise self.error

    def set(self, seconds: float, error: BaseException) -> None:
        """What is raised so many seconds after the start."""
        self.error, self.raised, self.delay = error, False, max(seconds, 1e-5)

    def start(self) -> None:
        self.begun = time.perf_counter()
        if self.error is not None and not self.raised:
            signal.setitimer(signal.ITIMER_REAL, self.delay)

    def off(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.error = None


ALARM = Alarm()


def kernel(number: int, name: str = "scaled") -> Any:
    return kernels_of(KERNEL.format(name=name, number=number))[name]


def expected(number: int, factor: float = 2.0) -> Any:
    return X * np.float32(factor) + np.float32(number)


def check(found: Any, number: int) -> None:
    assert np.allclose(np.asarray(found), expected(number), rtol=1e-6), found


@caller
def direct(number: int) -> Callable[[], None]:
    scaled = kernel(number)
    return lambda: check(scaled(X), number)


@caller
def text(number: int) -> Callable[[], None]:
    """The kernel is made, too."""
    return lambda: check(kernel(number)(X), number)


@caller
def load(number: int) -> Callable[[], None]:
    def forward(x: Any) -> list[Any]:
        y = ops.exp(x * (1 / (number + 1)))
        return [ops.softmax(y), ops.sum(y @ ops.transpose(y, 0, 1), axis=0)]

    def work() -> None:
        graph = Graph("interrupted", forward, [TensorType(DType.float32, ["m", "n"], HOST)])
        softmax, total = InferenceSession().load(graph)(X)
        y = np.exp(X * np.float32(1 / (number + 1)))
        e = np.exp(y - y.max(-1, keepdims=True))
        assert np.allclose(np.asarray(softmax), e / e.sum(-1, keepdims=True), rtol=1e-5)
        assert np.allclose(np.asarray(total), (y @ y.T).sum(0, keepdims=True), rtol=1e-4)

    return work


@caller
def extension(number: int) -> Callable[[], None]:
    """A kernel file of a graph."""
    file = Path(tempfile.gettempdir()) / f"kernels_{number}.py"
    file.write_text(KERNEL.format(name="scaled", number=number))

    def forward(x: Any) -> Any:
        return ops.custom("scaled", device=HOST, values=[x], out_types=[x.type])[0]

    def work() -> None:
        types = [TensorType(DType.float32, ["m", "n"], HOST)]
        graph = Graph("extended", forward, types, custom_extensions=[file])
        check(InferenceSession().load(graph)(X)[0], number)

    return work


@caller
def eager(number: int) -> Callable[[], None]:
    scaled = kernel(number)
    return lambda: check(scaled(Tensor.constant(X)).to_numpy(), number)


@caller
def torch_op(number: int) -> Callable[[], None]:
    import einkorn.torch
    import torch

    scaled, x = kernel(number), torch.from_numpy(X)
    return lambda: check(einkorn.torch.op(scaled)(x), number)


@caller
def torch_call(number: int) -> Callable[[], None]:
    import torch

    scaled, x = kernel(number), torch.from_numpy(X)
    return lambda: check(scaled(x), number)


@caller
def torch_compile(number: int) -> Callable[[], None]:
    """A compiled program, interrupted from where it runs: Dynamo may die of exceptions of handlers."""
    import einkorn.torch
    import torch

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            ALARM.start()
            return graph(*args)

        return run

    op, x = einkorn.torch.op(kernel(number)), torch.from_numpy(X)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: op(x), backend=backend, fullgraph=True)
    return lambda: check(compiled(x), number)


@caller
def package(number: int) -> Callable[[], None]:
    from einkorn.compiler.build import build_package
    from einkorn.compiler.instances import Wanted

    file = Path(tempfile.gettempdir()) / f"packed_{number}.py"
    file.write_text(KERNEL.format(name="scaled", number=number))

    def work() -> None:
        wanted = Wanted(dtypes={"T": "float32"}, ranks={"s": 2})
        build_package(source=str(file), output=str(file.with_suffix(".pkg")), targets=["host"], wanted=wanted)
        assert file.with_suffix(".pkg").stat().st_size

    return work


@caller
def command(number: int) -> Callable[[], None]:
    """The command line, within this process."""
    file = Path(tempfile.gettempdir()) / f"inspected_{number}.py"
    file.write_text(KERNEL.format(name="scaled", number=number))

    def work() -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = run(["inspect", str(file), "--stage", "asm"])
        assert status == 0 and ".text" in said.getvalue(), status

    return work


def same(found: BaseException, error: BaseException) -> bool:
    """Whether what came out is what the handler has raised."""
    return found is error and error.__cause__ is None and not getattr(error, "__notes__", None)


def round_(name: str, number: int, moment: float, error: BaseException) -> str:
    """What became of one round: "interrupted", "right", or what was wrong."""
    work = CALLERS[name](number)
    outcome = "right"
    try:
        try:
            ALARM.set(moment, error)
            if name not in STARTING:
                ALARM.start()
            work()
        finally:
            ALARM.off()
    except BaseException as found:
        if not same(found, error):
            return "".join(traceback.format_exception(found))
        outcome = "interrupted"
    else:
        if ALARM.raised:
            return f"{error!r} was lost\n{ALARM.stack}"
    try:
        work()
    except BaseException as found:
        return "again: " + "".join(traceback.format_exception(found))
    return outcome


def state() -> tuple[Any, ...]:
    return sys.getrecursionlimit(), sys.getswitchinterval(), threading.stack_size(), signal.getsignal(signal.SIGALRM)


def left() -> list[str]:
    """Reproducers and markers."""
    folders = [Path(os.environ["EINKORN_CACHE_DIR"]), Path(tempfile.gettempdir())]
    return [str(path) for folder in folders for path in folder.rglob("einkorn-[cf][oa]*.json")]


def main(count: int, seed: int, names: list[str]) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, ALARM.handle)
    moments = random.Random(seed)
    names = names or list(CALLERS)
    seconds: dict[str, float] = {}
    for k, name in enumerate(names):  # imports, and how long a compilation takes
        for again in range(2):
            work = CALLERS[name](10_000 + 2 * k + again)
            ALARM.start()
            work()
            seconds[name] = time.perf_counter() - ALARM.begun
    before, right, interrupted = state(), 0, 0
    for number in range(count):
        name = names[number % len(names)]
        error = moments.choice(RAISED)(f"round {number}")
        result = round_(name, seed * 100_000 + number, moments.random() * seconds[name] * 1.1, error)
        right += result in ("right", "interrupted")
        interrupted += result == "interrupted"
        if result not in ("right", "interrupted"):
            print(f"round {number} of seed {seed}: {name}, {error!r}: {result}", flush=True)
        BACKGROUND.wait()  # what compiles there switches threads more often meanwhile
        assert state() == before, (name, state(), before)
        assert not left(), (name, left())
    print(f"right {right} {interrupted}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
