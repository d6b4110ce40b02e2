"""The memory of results: distinct between calls, and never written again while anything can see it.

The runtime takes the memory of large results again once nothing sees it (`graph/calling/call.py`), so every way to hold
on to a result is tried here.
"""

from __future__ import annotations

import gc
import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.graphs import Array

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Buffer, DeviceRef, DType, ops
from einkorn.graph.engine.model import Model

KERNELS = Path(__file__).parent / "session_kernels.py"
LARGE = 1 << 19  # elements of 4 bytes: above the size from which memory is taken again


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def shifted() -> Model:
    """x + 1 and x - 1."""
    return graphs.load(lambda x: [x + 1.0, x - 1.0], (np.float32, ["n"]))


def full(value: float, size: int = LARGE) -> Array:
    return np.full(size, value, np.float32)


def _through_capsule(result: Buffer) -> Any:
    class Producer:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __dlpack__(self, **_: Any) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> Any:
            return (1, 0)

    return Producer(result.__dlpack__())


HOLDERS: dict[str, tuple[Callable[[Buffer], Any], Callable[[Any], Any]]] = {
    "the buffer": (lambda r: r, lambda h: h.to_numpy()),
    "an array": (lambda r: r.to_numpy(), lambda h: h),
    "a view of a view": (lambda r: r.to_numpy()[1:][::2].reshape(-1, 1)[3:], lambda h: h),
    "the base of a view": (lambda r: r.to_numpy()[5:].base, lambda h: h),
    "numpy.asarray": (np.asarray, lambda h: h),
    "a memoryview": (lambda r: memoryview(r.to_numpy()), np.asarray),
    "a cast memoryview": (lambda r: memoryview(r.to_numpy()).cast("B")[8:], lambda h: np.frombuffer(h, np.float32)),
    "frombuffer": (lambda r: np.frombuffer(r.to_numpy(), np.float32, offset=8), lambda h: h),
    "numpy.from_dlpack": (np.from_dlpack, lambda h: h),
    "a buffer of a buffer": (Buffer.from_dlpack, lambda h: h.to_numpy()),
    "a slice": (lambda r: r[7:9], lambda h: h.to_numpy()),
    "one element": (lambda r: r[LARGE - 1], lambda h: h.to_numpy()),
    "other bytes": (lambda r: r.view(DType.uint8)[4:], lambda h: h.to_numpy().view(np.float32)),
    "a capsule": (_through_capsule, np.from_dlpack),
    "an iterator": (lambda r: iter(r.to_numpy()), lambda h: np.array([next(h)])),
    "a flat iterator": (lambda r: r.to_numpy().flat, lambda h: h[:4]),
    "ctypes": (lambda r: r.to_numpy().ctypes, lambda h: h._arr),
    "a closure": (lambda r: lambda: r, lambda h: h().to_numpy()),
    "a bound method": (lambda r: r.to_numpy, lambda h: h()),
    "a structured view": (lambda r: r.to_numpy().view([("a", "f4"), ("b", "f4")])["b"], lambda h: h),
    "a masked array": (lambda r: np.ma.masked_array(r.to_numpy(), copy=False), lambda h: np.asarray(h)),
}


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize("size", (LARGE, 16))
def test_what_something_holds_is_never_written(shifted: Model, name: str, size: int) -> None:
    hold, look = HOLDERS[name]
    if size == 16 and name == "one element":
        return
    x = full(41, size)
    held = hold(shifted(x)[0])
    gc.collect(1)  # what is new is young
    for value in range(6):
        shifted(full(value, size))
    seen = np.asarray(look(held))
    assert seen.size and (seen == 42).all()


def test_torch_shares_memory_both_ways(shifted: Model) -> None:
    torch = pytest.importorskip("torch")
    x = torch.full((LARGE,), 5.0)
    first, second = shifted(x)
    tensor = torch.from_dlpack(first)
    assert tensor.data_ptr() == first.address
    del first
    for value in range(4):
        shifted(full(value))
    assert tensor[0] == 6 and tensor[-1] == 6
    assert second.to_numpy()[3] == 4
    x[0] = 100  # taken where it lies: the next call sees it
    assert shifted(x)[0].to_numpy()[0] == 101
    assert Buffer.from_dlpack(x).address == x.data_ptr()
    half = torch.ones(3, dtype=torch.bfloat16)
    doubled = graphs.load(lambda x: x + x, (ml_dtypes.bfloat16, ["n"]))(half)[0]
    back = torch.from_dlpack(doubled)
    assert back.dtype == torch.bfloat16 and back.tolist() == [2, 2, 2] and back.data_ptr() == doubled.address
    grid = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
    assert shifted(grid[0])[0].to_numpy().tolist() == [1, 4]
    assert x[1] == 5


def test_numpy_inputs_are_read_where_they_lie(shifted: Model) -> None:
    x = full(1)
    buffer = Buffer.from_numpy(x)
    assert buffer.address == x.ctypes.data
    x[5] = 10
    assert shifted(buffer)[0].to_numpy()[5] == 11
    result = shifted(buffer)[0]
    assert result.to_numpy().ctypes.data == result.address == np.from_dlpack(result).ctypes.data


def test_results_of_calls_are_distinct(shifted: Model) -> None:
    for size in (3, LARGE):
        kept = [shifted(full(value, size)) for value in range(12)]
        spans = sorted((b.address, b.address + b.num_elements * 4) for pair in kept for b in pair)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        for value, (up, down) in enumerate(kept):
            assert (up.to_numpy() == value + 1).all() and (down.to_numpy() == value - 1).all()
        for value, (up, down) in enumerate(kept):
            up.to_numpy()[:] = -value
            assert (down.to_numpy() == value - 1).all()


def test_a_result_may_be_the_next_input(shifted: Model) -> None:
    value: Any = Buffer.from_numpy(full(0))
    for _ in range(20):
        value = shifted(value)[0]
    assert (value.to_numpy() == 20).all()
    array = full(0)
    for _ in range(20):
        array = shifted(array)[0].to_numpy()
    assert (array == 20).all()
    nested = shifted(shifted(shifted(full(7))[0])[0].to_numpy()[:])[0]
    assert (nested.to_numpy() == 10).all()


def test_memory_that_nothing_sees_is_taken_again(shifted: Model) -> None:
    """The reason for all of this: a loop over large results uses few pages."""
    addresses = set()
    for value in range(30):
        up, down = shifted(full(value))
        addresses.add(up.address)
        assert up.to_numpy()[-1] == value + 1 and down.to_numpy()[-1] == value - 1
    assert len(addresses) < 30


def test_weak_references_die_with_the_result(shifted: Model) -> None:
    result = shifted(full(1))[0]
    weak = weakref.ref(result)
    view = result.to_numpy()
    weak_view = weakref.ref(view)
    del result, view
    gc.collect()
    assert weak() is None and weak_view() is None


def test_changing_sizes_keep_old_results(shifted: Model) -> None:
    kept = []
    for value, size in enumerate((LARGE, LARGE * 2, LARGE, 5, LARGE, LARGE * 2, 0, LARGE)):
        kept.append((value, size, shifted(full(value, size))[0].to_numpy()))
    for value, size, array in kept:
        assert array.shape == (size,) and (array == value + 1).all()


def test_results_held_by_an_exception(shifted: Model) -> None:
    def fail() -> None:
        result = shifted(full(8))[0]
        raise RuntimeError("with a traceback that holds", result.shape)

    try:
        fail()
    except RuntimeError as error:
        for value in range(5):
            shifted(full(value))
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        held = error.__traceback__.tb_next.tb_frame.f_locals["result"]
        assert (held.to_numpy() == 9).all()


def test_a_failed_call_gives_nothing_away() -> None:
    model = graphs.load(
        lambda x: ops.custom("positive", device=DeviceRef.CPU(), values=[x]),
        (np.float32, ["n"]),
        extensions=[KERNELS],
    )
    good = model(full(5))[0]
    errors = []
    for _ in range(6):
        wrong = full(6)
        wrong[-1] = -1
        with pytest.raises(KernelError) as caught:
            model(wrong)
        errors.append(caught.value)
    other = model(full(7))[0]
    again = model(full(8))[0]
    assert [float(b.to_numpy()[k]) for b in (good, other, again) for k in (0, -1)] == [5, 5, 7, 7, 8, 8]
    assert len(errors) == 6


def test_threads_that_hold_and_let_go(shifted: Model) -> None:
    """Each thread checks a few results that it holds while others call the same model and drop theirs."""
    trouble: list[str] = []

    def work(number: int) -> None:
        held: list[tuple[float, Any]] = []
        for turn in range(30):
            value = float(1000 * number + turn)
            up, down = shifted(full(value))
            held.append((value + 1, up.to_numpy()[10:] if turn % 2 else up))
            held.append((value - 1, memoryview(down.to_numpy())))
            del up, down
            if len(held) > 4:
                wanted, result = held.pop(turn % 3)
                array = result.to_numpy() if isinstance(result, Buffer) else np.asarray(result)
                if not (array[::997] == wanted).all():
                    trouble.append(f"thread {number}, turn {turn}: {array[0]} instead of {wanted}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble


def test_a_result_passed_between_threads(shifted: Model) -> None:
    """A result lives only in a queue while its maker calls on."""
    passed: queue.Queue[tuple[float, Any] | None] = queue.Queue(3)
    wrong = []

    def consume() -> None:
        while (item := passed.get()) is not None:
            value, view = item
            if not (np.asarray(view)[::499] == value + 1).all():
                wrong.append(value)

    thread = threading.Thread(target=consume)
    thread.start()
    for value in range(60):
        passed.put((float(value), shifted(full(value))[0].to_numpy()[3:]))
    passed.put(None)
    thread.join()
    assert not wrong
