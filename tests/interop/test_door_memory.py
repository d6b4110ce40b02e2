"""The memory of calls by doors: large outputs take that of earlier ones, and models keep arenas for temporaries."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DeviceError, KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.calling.door_memory import Arenas, LargeOutputs
from einkorn.graph.driver.lending import Lender
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as kernels
from .test_doors import F32, MISSED, door, floats

LARGE = 1 << 18  # elements of float32 that are 1 MiB


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


# *** large outputs ***


def test_memory_that_nothing_uses_is_taken_again() -> None:
    one, x = door(kernels.add_one, (F32, 1)), floats(LARGE)
    places = set()
    for _ in range(6):
        result = one(x)
        places.add(address(result))
        np.testing.assert_array_equal(result, x + 1)
    assert len(places) == 2  # the last result is alive during the next call
    views = [one(x)[k:] for k in range(4)]
    assert len({address(view) - 4 * k for k, view in enumerate(views)}) == 4
    assert all(view[0] == k + 1 for k, view in enumerate(views))


def test_a_result_of_a_result() -> None:
    one, x = door(kernels.add_one, (F32, 1)), floats(LARGE)
    y = x
    for _ in range(5):
        y = one(y)
    np.testing.assert_array_equal(y, x + 5)


def test_sizes_around_the_threshold_and_other_sizes() -> None:
    halves = door(kernels.halves, (F32, 1))
    for size in (LARGE - 1, 2 * LARGE, 2 * LARGE + 1, 2 * LARGE - 1, 8, 2 * LARGE, 0):
        low, high = halves(floats(size))
        np.testing.assert_array_equal(np.concatenate([low, high]), floats(size))


def test_outputs_in_the_order_of_inputs() -> None:
    one = door(kernels.add_one, (F32, 3), order=(2, 0, 1), ranks=(3,))
    x = floats(7, 300, 200).transpose(1, 2, 0)
    for _ in range(3):
        result = one(x)
        assert result.strides == x.strides and result.flags.writeable
        np.testing.assert_array_equal(result, x + 1)


def test_without_memory_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise MemoryError

    halves, x = door(kernels.halves, (F32, 1)), floats(2 * LARGE)
    monkeypatch.setattr(Lender, "__init__", none)
    assert halves(x) is MISSED
    monkeypatch.undo()
    assert halves(x)[1][0] == LARGE


def test_an_exception_of_a_signal_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    one, x = door(kernels.add_one, (F32, 1)), floats(LARGE)
    monkeypatch.setattr(LargeOutputs, "_fresh", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one(x)
    monkeypatch.undo()
    assert one(x)[-1] == LARGE


def test_threads_have_outputs_of_their_own() -> None:
    one = door(kernels.add_one, (F32, 1))
    inputs = [np.full(LARGE, k, np.float32) for k in range(6)]

    def work(number: int) -> bool:
        one(object())
        return all((one(inputs[number]) == number + 1).all() for _ in range(15))

    with ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(6)))


# *** arenas ***


def twice(x: Any, w: Any) -> Any:
    return ops.matmul(ops.relu(ops.matmul(x, w)) * 2.0, w)


def model_of(forward: Any, *shapes: Any) -> Any:
    types = [TensorType(DType.float32, shape, DeviceRef.CPU()) for shape in shapes]
    return InferenceSession().load(Graph("graph", forward, input_types=types))


def opened(model: Any, *inputs: Any) -> Any:
    """The door of a model, which says when it hands a call on."""
    for _ in range(4):
        model(*inputs)
    BACKGROUND.wait()
    model(*inputs)
    assert model.first_caller.code.plan.temps and len(model._doors) == 1
    return model


def rows(count: int, start: int = 0) -> Any:
    return (np.arange(start, start + 8 * count, dtype=np.float32).reshape(count, 8) % 13) - 6


W = np.eye(8, dtype=np.float32)[::-1].copy() * 2


def wanted(x: Any) -> Any:
    return np.maximum(x @ W, 0) * 2 @ W


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The counts of each arena that was fitted."""
    collected: list[int] = []
    fit = Arenas.fit

    def noted(self: Arenas, address: int, *counts: int) -> int:
        collected.append(address)
        return fit(self, address, *counts)

    monkeypatch.setattr(Arenas, "fit", noted)
    return collected


def test_models_with_temporaries_have_doors(counted: list[int]) -> None:
    model = opened(model_of(twice, ["n", 8], [8, 8]), rows(4), W)
    for count in (4, 1, 4, 9, 0, 1, 300, 9, 4):
        np.testing.assert_array_equal(model(rows(count), W)[0].to_numpy(), wanted(rows(count)))
    assert len(counted) == 5 and not any(counted)  # once for each size
    for count in range(10, 20):
        np.testing.assert_array_equal(model(rows(count), W)[0].to_numpy(), wanted(rows(count)))
    assert len(counted) == 15 and all(counted[9:])  # eight are kept


def test_large_arenas_are_changed_for_other_sizes(counted: list[int]) -> None:
    model = opened(model_of(twice, ["n", 8], [8, 8]), rows(4), W)
    for count in (1 << 15, 1 << 14, 1 << 15, 1 << 16):
        np.testing.assert_array_equal(model(rows(count), W)[0].to_numpy(), wanted(rows(count)))
    assert [address != 0 for address in counted] == [False, False, True, True]  # an equal size fits


def test_threads_have_arenas_of_their_own() -> None:
    model = opened(model_of(twice, ["n", 8], [8, 8]), rows(4), W)
    barrier = threading.Barrier(6)

    def work(number: int) -> bool:
        barrier.wait()
        x = rows(2000 + number, number)
        expected = wanted(x)
        return all(np.array_equal(model(x, W)[0].to_numpy(), expected) for _ in range(30))

    with ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(6)))


def test_a_kernel_that_fails_gives_its_arena_back(counted: list[int]) -> None:
    def forward(x: Any, w: Any) -> Any:
        y = ops.matmul(x, w)
        checked = ops.custom(kernels.positive, DeviceRef.CPU(), [ops.reshape(y, [-1])])[0]
        return ops.matmul(ops.reshape(checked, y.shape), w)

    model = opened(model_of(forward, ["n", 8], [8, 8]), np.ones((4, 8), np.float32), W)
    for _ in range(3):
        with pytest.raises(KernelError, match="assertion failed"):
            model(-np.ones((4, 8), np.float32), W)
        np.testing.assert_array_equal(model(np.ones((4, 8), np.float32), W)[0].to_numpy(), np.full((4, 8), 4.0))
    assert len(counted) == 1


def test_without_memory_for_an_arena_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(model_of(twice, ["n", 8], [8, 8]), rows(4), W)

    def none(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(model.first_caller.plan.driver, "allocate", none, raising=False)
    with pytest.raises(DeviceError, match="intermediate results"):
        model(rows(77), W)
    monkeypatch.undo()
    np.testing.assert_array_equal(model(rows(77), W)[0].to_numpy(), wanted(rows(77)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_after_a_fork() -> None:
    model = opened(model_of(twice, ["n", 8], [8, 8]), rows(4), W)
    child = os.fork()
    if child == 0:
        right = all(np.array_equal(model(rows(n), W)[0].to_numpy(), wanted(rows(n))) for n in (4, 5, 4))
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model(rows(4), W)[0].to_numpy(), wanted(rows(4)))
