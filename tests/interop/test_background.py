"""Doors are compiled in the background: no call waits for one, code that calls; exits, forks and errors are
harmless."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn.dsl.environment.process_settings import SWITCHING
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType
from einkorn.graph.calling import doors
from einkorn.graph.calling.door_policy import PROGRAMS
from einkorn.graph.interop.own_class import own_member
from einkorn.graph.loading.background import BACKGROUND, Background

from . import direct_kernels as kernels
from . import door_kernels, elementwise_kernels

X = np.arange(6, dtype=np.float32)
HERE = str(Path(__file__).parent)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets the code of doors wait until a test says that it may come; gives what says so, and waits for it."""
    BACKGROUND.wait()
    released, loaded = threading.Event(), doors.load_door

    def load(name: str, *args: Any, **keywords: Any) -> Any:
        if threading.current_thread().name == "einkorn-background":
            assert released.wait(60)
        return loaded(name, *args, **keywords)

    def release() -> None:
        released.set()
        assert BACKGROUND.wait(60)

    from einkorn.graph.calling import python_door

    monkeypatch.setattr(python_door, "load_door", load)
    if "torch" in sys.modules:
        from einkorn.graph.interop.torch import door

        monkeypatch.setattr(door, "load_door", load)
    yield release
    release()


def test_kernels_are_called_while_their_door_is_made(held: Callable[[], None]) -> None:
    call = kernels.add_one
    call.__class__, call.calls = Kernel, None
    for n in range(1, 7):  # each of these would wait for ever
        assert call(X[:n]).tolist() == (X[:n] + 1).tolist()
    assert type(call) is Kernel
    held()
    assert type(own_member(call, "__call__")) is type(len)
    assert call(X).tolist() == (X + 1).tolist()


def test_models_and_eager_tensors_are_called_while_their_door_is_made(held: Callable[[], None]) -> None:
    graph = Graph("background", lambda x: x + 1.0, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    model = InferenceSession().load(graph)
    for _ in range(6):
        assert model(X)[0].to_numpy().tolist() == (X + 1).tolist()
    assert not model._doors
    x = Tensor.constant(X.reshape(2, 3).astype(np.float64))
    for _ in range(PROGRAMS.calls + 2):
        assert (x * x).numpy().tolist() == (X.reshape(2, 3) ** 2).tolist()
    held()
    assert len(model._doors) == 1 and model(X)[0].to_numpy().tolist() == (X + 1).tolist()
    assert (x * x).numpy().tolist() == (X.reshape(2, 3) ** 2).tolist()


def test_ops_of_pytorch_are_called_while_their_door_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import einkorn.torch as ek

    op = ek.op(elementwise_kernels.shifted)
    from einkorn.graph.interop.torch import door

    released, loaded = threading.Event(), door.load_door

    def load(*args: Any, **keywords: Any) -> Any:
        assert released.wait(60)
        return loaded(*args, **keywords)

    monkeypatch.setattr(door, "load_door", load)
    for n in range(1, 5):
        assert op(torch.ones(n)).tolist() == [3.0] * n
    assert not op._registered.doors._entered
    released.set()
    assert BACKGROUND.wait(60) and len(op._registered.doors._entered) == 1
    assert op(torch.ones(3)).tolist() == [3.0] * 3


def test_a_door_for_a_program_that_has_changed_is_not_put_in_place(
    held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = door_kernels.scaled_by_module
    call.__class__, call.calls = Kernel, None
    for _ in range(3):
        call(X)
    monkeypatch.setattr(door_kernels, "FACTOR", 7.0)
    assert call(X).tolist() == (X * 7).tolist()
    held()
    assert type(call) is Kernel and call(X).tolist() == (X * 7).tolist()


def test_work_that_fails_is_logged_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    background, done = Background(), list[Any]()
    with caplog.at_level(logging.WARNING, "einkorn.load"):
        background.submit(lambda: done.append(1 // 0))
        background.submit(lambda: done.append(sys.getswitchinterval()))
        assert background.wait(60)
    assert len(done) == 1 and done[0] <= SWITCHING * 1.01
    assert "ZeroDivisionError" in caplog.text
    background.stop()
    background.submit(lambda: done.append(2))
    assert background.wait(0) and len(done) == 1


def test_work_is_done_in_order_whatever_thread_submits_it() -> None:
    background, done = Background(), list[tuple[int, int]]()

    def submit(thread: int) -> None:
        for number in range(200):
            background.submit(lambda number=number: done.append((thread, number)))  # type: ignore[misc]

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert background.wait(60) and len(done) == 800
    for number in range(4):
        assert [n for thread, n in done if thread == number] == list(range(200))


SCRIPT = """
import os, sys
sys.path.insert(0, {folder!r})
import numpy as np
import direct_kernels as kernels
from einkorn.graph.loading.background import BACKGROUND
from einkorn.graph.interop.own_class import own_member
x = np.ones(4, np.float32)

def served(call):
    return type(own_member(call, "__call__")) is type(len)

for call in (kernels.add_one, kernels.halves):
    call(x), call(x)
"""
EXIT = "print('end', flush=True)\n"
FORK = """
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        right = kernels.add_one(x).tolist() == [2.0] * 4 and BACKGROUND.wait(60)
        os._exit(0 if right and served(kernels.add_one) and served(kernels.halves) else 1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
assert BACKGROUND.wait(60) and served(kernels.add_one) and served(kernels.halves)
print("end", flush=True)
"""


@pytest.mark.parametrize("end", [EXIT, FORK], ids=["exit", "fork"])
@pytest.mark.parametrize("cached", [False, True])
def test_the_process_ends_or_forks_while_doors_are_made(end: str, cached: bool, tmp_path: Path) -> None:
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.format(folder=HERE) + end]
    for _ in range(2 if cached else 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
