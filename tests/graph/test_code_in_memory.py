"""Code is mapped once, and unmapped with the last model, call or variant that can run it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, ops
from einkorn.graph.calling import doors
from einkorn.graph.driver.shared_library import SharedLibrary
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.background import BACKGROUND

KERNELS = Path(__file__).parent / "session_kernels.py"
X = np.arange(24, dtype=np.float32).reshape(4, 6)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        graphs.load(lambda x: x + 1.0, (np.float32, ["n"]))  # the pool's code stays for good
        yield


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[weakref.WeakSet[SharedLibrary]]:
    """The libraries that live; nothing is collected but what nothing refers to."""
    alive: weakref.WeakSet[SharedLibrary] = weakref.WeakSet()
    open_library = SharedLibrary.__init__

    def opened(self: SharedLibrary, path: Path) -> None:
        open_library(self, path)
        alive.add(self)

    monkeypatch.setattr(SharedLibrary, "__init__", opened)
    gc.disable()
    yield alive
    gc.enable()


def scaled(factor: float) -> Model:
    return graphs.load(lambda x: [x * factor, ops.sum(x, axis=-1)], (np.float32, ["n", "m"]))


def mappings() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def mapped(folder: Path) -> set[str]:
    return {line.split()[-1] for line in mappings() if str(folder) in line}


@linux
def test_loads_and_drops_leave_nothing_mapped(libraries: weakref.WeakSet[SharedLibrary]) -> None:
    """Of many different graphs, called with plain arrays and with views, which have code of their own."""
    before = None
    for number in range(100):
        factor = float(number % 10)
        model = scaled(factor)
        for x in (X, X.T, X[::2]) if number < 10 else (X,):
            doubled, sums = model(x)
            assert np.array_equal(np.asarray(doubled), x * np.float32(factor))
            assert np.array_equal(np.asarray(sums), x.sum(-1, keepdims=True))
        assert libraries
        del model
        assert not libraries
        if number == 10:
            gc.collect()
            before = len(mappings())
    gc.collect()
    assert before is not None and len(mappings()) <= before + 8  # what the allocator maps comes and goes


@linux
def test_models_of_the_same_code_share_it(libraries: weakref.WeakSet[SharedLibrary], tmp_path: Path) -> None:
    with graphs.cache_in(tmp_path):
        first, second = scaled(3.0), scaled(3.0)
        assert len(libraries) == 2 and len(mapped(tmp_path)) == 1
        del first
        assert len(mapped(tmp_path)) == 1
        assert np.array_equal(np.asarray(second(X)[0]), X * 3)
        del second
        assert not mapped(tmp_path)


def test_what_a_call_gave_back_outlives_the_code(libraries: weakref.WeakSet[SharedLibrary]) -> None:
    """Outputs, failures with their places, and what the model says of itself."""
    model = graphs.load(
        lambda x: ops.custom("positive", device=DeviceRef.CPU(), values=[x]), (np.float32, ["n"]), extensions=[KERNELS]
    )
    outputs = model(X[0] + 1)
    with pytest.raises(KernelError) as caught:
        model(X[0])
    text = str(caught.value)
    metadata = model.input_metadata
    del model, caught
    gc.collect()  # a traceback and its frames hold each other
    assert not libraries
    assert np.array_equal(np.asarray(outputs[0]), X[0] + 1)
    assert "found 0.0" in text and metadata[0].dims == ("n",)


def test_a_model_is_dropped_while_others_call(libraries: weakref.WeakSet[SharedLibrary]) -> None:
    """Threads that share code with models that come and go, and the last reference in a thread that is in a call."""
    kept = scaled(5.0)
    dropped = threading.Event()

    def call(model: Any) -> bool:
        good = np.array_equal(np.asarray(model(X)[0]), X * 5)
        dropped.wait(10)
        return good and all(np.array_equal(np.asarray(model(X)[0]), X * 5) for _ in range(50))

    with ThreadPoolExecutor(4) as executor:
        models = [scaled(5.0) for _ in range(4)]
        actual = [executor.submit(call, model) for model in models]
        del models
        for _ in range(20):
            assert np.array_equal(np.asarray(scaled(5.0)(X)[0]), X * 5)
        dropped.set()
        assert all(each.result() for each in actual)
    del actual
    BACKGROUND.wait()
    assert len(set(libraries) - set(doors._opened.values())) == 1  # those of doors are for all models, and stay
    assert np.array_equal(np.asarray(kept(X)[0]), X * 5)


def test_what_cannot_be_mapped_is_an_error(tmp_path: Path, libraries: weakref.WeakSet[SharedLibrary]) -> None:
    with pytest.raises(OSError):
        SharedLibrary(tmp_path / "missing.so")
