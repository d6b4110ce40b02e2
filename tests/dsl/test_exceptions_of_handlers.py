"""What a handler of a signal raises at any step of work is raised to its caller, whatever the work itself catches."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import brief
from einkorn.dsl.diagnostics.shield import passes_signals, raise_if_of_handler, shielded, window
from einkorn.dsl.environment import fingerprint, stacks
from einkorn.dsl.environment.cache import Cache
from einkorn.graph import Buffer
from einkorn.graph.weights import load_weights

KINDS: tuple[type[Exception], ...] = (
    *(ValueError, TypeError, TimeoutError, AttributeError, IndexError, MemoryError, RuntimeError, ImportError),
    *(SyntaxError, BufferError, FileNotFoundError),
)
KEY = "ab" * 32
WORK = (
    *("a shield", "a window", "a passage", "room", "versions of tools"),
    *("reading of the cache", "writing into the cache", "DLPack", "a text", "weights"),
)


class Producer:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Shown:
    def __repr__(self) -> str:
        return ",".join(map(str, range(5)))


def enter_and_leave() -> None:
    with shielded():
        pass


def open_a_window() -> None:
    with shielded(), window():
        pass


def look_for_room() -> None:
    stacks._forget_threads()
    stacks.has_room()


def work_on(folder: Path) -> dict[str, Callable[[], Any]]:
    cache, producer = Cache(folder), Producer(np.arange(4.0))
    cache.put(KEY, b"123")
    passage = passes_signals(lambda: None)
    shields: list[Callable[[], Any]] = [enter_and_leave, open_a_window, passage, look_for_room]
    reads = [fingerprint._tool_versions, lambda: cache.get(KEY), lambda: cache.put(KEY, b"123")]
    file = folder / "one.safetensors"
    header = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    others = [lambda: Buffer.from_dlpack(producer), lambda: brief(Shown()), lambda: load_weights([file])]
    return dict(zip(WORK, [*shields, *reads, *others], strict=True))


class Steps:
    """Sends a signal at one step of the work: where Python begins a function or comes back from one in C."""

    def __init__(self) -> None:
        self.count, self.at = 0, 0
        self.error: Exception | None = None
        self.sent = False

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename != __file__:
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                self.sent = True
                signal.raise_signal(signal.SIGUSR1)

    def handle(self, number: int, frame: Any) -> None:
        assert self.error is not None
        raise self.error

    def run(self, work: Callable[[], Any], at: int, error: Exception | None = None) -> BaseException | None:
        """What comes out of the work when the handler raises at a step."""
        self.count, self.at, self.error, self.sent = 0, at, error, False
        sys.setprofile(self)
        try:
            work()
        except BaseException as raised:
            return raised
        finally:
            sys.setprofile(None)
        return None


@pytest.fixture
def steps() -> Iterator[Steps]:
    steps = Steps()
    before, profiler = signal.signal(signal.SIGUSR1, steps.handle), sys.getprofile()
    yield steps
    sys.setprofile(profiler)
    assert signal.signal(signal.SIGUSR1, before) == steps.handle


@pytest.mark.parametrize("name", WORK)
def test_every_step(name: str, steps: Steps, tmp_path: Path) -> None:
    work = work_on(tmp_path)[name]
    assert steps.run(work, 0) is None
    # NumPy calls a producer of DLPack again after a TypeError: one that a handler raises as the call begins is lost.
    kinds = [kind for kind in KINDS if name != "DLPack" or kind is not TypeError]
    runs = [(kind, at) for kind in kinds for at in range(1, steps.count + 1)]
    for kind, at in runs[:: max(1, len(runs) // 700)]:
        error = kind("of the handler")
        actual = steps.run(work, at, error)
        assert actual is (error if steps.sent else None), (kind, at, actual)
    assert steps.run(work, 0) is None


def test_only_those_of_handlers_are_raised_again(steps: Steps) -> None:
    try:
        int("x")
    except ValueError as error:
        raise_if_of_handler(error)
