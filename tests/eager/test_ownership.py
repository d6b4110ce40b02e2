"""What is written to a tensor reaches no other tensor, array, buffer or recorded call, in any version of Python.

Each test writes where something else may use the memory, and compares with values that were copied before.
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor
from support import graphs, op_cases

from einkorn import functional as F
from einkorn.dsl import DType
from einkorn.graph.driver.lending import Lender
from einkorn.graph.eager import realize
from einkorn.graph.eager.memory import writable

from .test_tables import cases_of

SOURCES = Path(__file__).parents[2]
ROW = [1.0, 2.0, 3.0, 4.0]


def fresh() -> Tensor:
    return Tensor.constant(ROW)


def computed() -> Tensor:
    return Tensor.constant(ROW) * 1.0


def written() -> Tensor:
    x = Tensor.constant([0.0, 2.0, 3.0, 4.0])
    x.numpy()
    x[0] = 1.0
    return x


def recorded() -> Tensor:
    with F.lazy():
        x = Tensor.constant(ROW) * 1.0
    return x


def recorded_and_written() -> Tensor:
    x = recorded()
    x[0] = 0.0
    x[0] = 1.0
    return x


def of_a_part() -> Tensor:
    return Tensor.constant([0.0, *ROW, 9.0])[1:5]


def large() -> Tensor:
    """Memory of its size is used again by the runtime once it is free."""
    return (Tensor.zeros([1 << 19]) + 1)[:4] * np.array(ROW, np.float32)


MAKERS = (fresh, computed, written, recorded, recorded_and_written, of_a_part, large)


def lazily(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        with F.lazy():
            return function(x)

    return call


# What holds the elements of a tensor `x` when it has been called, and how to read them later.
HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "a view of numpy": lambda x: x.numpy()[::-1].reshape(2, 2).T,
    "asarray": np.asarray,
    "memoryview": lambda x: memoryview(x.numpy()),
    "storage": lambda x: x.storage if x.real else x.realize.storage,
    "a view of storage": lambda x: x.realize.driver_tensor[1:],
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reshape": lambda x: x.reshape([2, 2]),
    "permute": lambda x: x.reshape([2, 2]).permute([1, 0]),
    "part": lambda x: x[1:],
    "split": lambda x: F.split(x, [4], 0)[0],
    "broadcast": lambda x: x.broadcast_to([4]),
    "rebind": lambda x: F.rebind(x, [4]),
    "recorded x + x": lazily(lambda x: x + x),
    "recorded x * 2": lazily(lambda x: x * 2),
    "recorded 2 - x": lazily(lambda x: 2 - x),
    "recorded -x": lazily(lambda x: -x),
    "recorded y + x": lazily(lambda x: Tensor.ones([4]) + x),
    "recorded reshape": lazily(lambda x: x.reshape([2, 2])),
    "recorded sum": lazily(lambda x: F.sum(x, 0)),
    "recorded chain": lazily(lambda x: (x + 1) * x - x),
    "pickle, buffers apart": lambda x: apart(x),
}


def apart(x: Tensor) -> Any:
    buffers: list[Any] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return lambda: pickle.loads(data, buffers=buffers)


def elements(holder: Any) -> Any:
    if callable(holder) and not isinstance(holder, Tensor):
        holder = holder()
    return np.array(holder.to_numpy() if hasattr(holder, "to_numpy") else holder)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("name", HOLDERS)
def test_writes_reach_no_holder(name: str, maker: Callable[[], Tensor]) -> None:
    hold = HOLDERS[name]
    wanted = elements(hold(maker()))
    x = maker()
    first = hold(x)
    x[0] = 50.0
    second = hold(x)
    x[:] = 60.0
    np.testing.assert_array_equal(elements(first), wanted)
    changed = Tensor.constant([50.0, *ROW[1:]])
    np.testing.assert_array_equal(elements(second), elements(hold(changed)))
    assert x.tolist() == [60.0] * 4
    del first
    x[1] = 70.0
    np.testing.assert_array_equal(elements(second), elements(hold(changed)))


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_writes_to_what_an_op_gave_reach_no_operand(maker: Callable[[], Tensor]) -> None:
    for hold in HOLDERS.values():
        x = maker()
        y = hold(x)
        if isinstance(y, Tensor):
            y[...] = 99.0
            assert x.tolist() == ROW


@pytest.mark.parametrize("family", ["movement", "rearranging"])
def test_no_result_of_an_op_is_memory_of_an_operand(family: str) -> None:
    """What is written to an operand of an op that may run without code, or to one result, reaches no other tensor."""
    for case, arrays, wanted in cases_of(family, 0):
        operands = [Tensor.constant(each) for each in arrays]
        results = op_cases.listed(case.call(*operands))
        if any(result is each for result in results for each in operands):  # `transfer_to` where it lies there
            continue
        for each in operands:
            each[...] = 1
        for k, result in enumerate(results):
            for other, expected in list(zip(results, wanted, strict=True))[k:]:
                assert not graphs.difference(elements(other), expected, case.ulps), case.op
            result[...] = 0


def test_a_tensor_that_nothing_else_uses_is_written_in_place() -> None:
    for maker in (fresh, computed, written, recorded_and_written):
        x = maker()
        first = writable(x)
        x[1] = 7.0
        assert np.may_share_memory(first, writable(x)), maker
    x = written()
    memory = writable(x)
    for hold in HOLDERS.values():  # what has been dropped holds nothing
        held = hold(x)
        elements(held)
        del held
    gc.collect()
    x[0] = 8.0
    kept = writable(x)
    assert np.may_share_memory(memory, kept)


def test_an_export_shares_memory_with_the_tensor_alone() -> None:
    x = recorded()
    with F.lazy():
        later = x * 2
    assert x.tolist() == ROW
    theirs = np.from_dlpack(x)  # type: ignore[arg-type]
    if theirs.flags.writeable:
        theirs[:] = 7
        assert x.tolist() == [7.0] * 4
    x[:] = 8.0
    assert later.tolist() == [2.0, 4.0, 6.0, 8.0]
    y = computed()
    seen = y.numpy()
    np.asarray(y.storage)
    exported = np.from_dlpack(y)  # type: ignore[arg-type]
    y[:] = 5.0
    assert seen.tolist() == ROW and exported.tolist() == [5.0] * 4


def test_counts_of_references_only_save_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of Python in which they are others computes the same: twice, or more than is wanted."""

    def run() -> list[Any]:
        x = Tensor.constant(ROW)
        with F.lazy():
            a = x + 1
            b = a * a
            c = b - x
            held = [a]
            d = F.split(c * 3, [2, 2], 0)
        first = c.tolist()
        x[:] = 100.0
        a[0] = 9.0
        return [first, held[0].tolist(), b.tolist(), c.tolist(), *(each.tolist() for each in d)]

    wanted = run()
    unseen = realize._UNSEEN
    for shift in (-3, -2, -1, 1, 2, 3, 1 << 30):
        monkeypatch.setattr(realize, "_UNSEEN", unseen + shift)
        for _ in range(4):
            assert run() == wanted


def test_no_other_code_counts_references() -> None:
    counting = [
        str(path.relative_to(SOURCES))
        for room in ("dsl", "compiler", "graph", "stdlib")
        for path in (SOURCES / room).rglob("*.py")
        if "getrefcount" in path.read_text()
    ]
    assert counting == ["graph/eager/realize.py"]  # where they save work


def test_lent_memory() -> None:
    lender = Lender((4, 5), np.dtype(DType.bfloat16.to_numpy()))
    assert not lender.in_use
    array = lender.lend()
    assert type(array) is np.ndarray and array.shape == (4, 5) and lender.lend() is array
    views = [array.view(np.uint16)[1:, ::2].T[2:4], memoryview(array.view(np.uint8)), array.flat]
    del array
    while views:
        assert lender.in_use
        views.pop()
    gc.collect()
    assert not lender.in_use
    own = lender.own
    assert not lender.in_use and np.may_share_memory(own, lender.lend())


def test_threads_write_tensors_of_their_own() -> None:
    x = computed()
    wrong: list[Any] = []

    def work(number: int) -> None:
        y = copy.copy(x)
        for k in range(200):
            y[k % 4] = number
            if y.numpy()[k % 4] != number:
                wrong.append((number, k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and x.tolist() == ROW
