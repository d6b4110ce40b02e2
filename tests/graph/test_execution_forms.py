"""The forms of a call: into given memory, bound, captured, padded, as bytes, cancelled, in several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.graphs import Array

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, KernelError, ReplayError
from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

CPU = DeviceRef.CPU()
BUFFERS = Path(__file__).parent / "buffer_kernels.py"
SHAPES = Path(__file__).parent / "shape_kernels.py"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    """x + y, and its sum over the last axis; x given back, too."""
    return graphs.load(lambda x, y: [x + y, ops.sum(x + y, axis=-1), x], *[(np.float32, ["n", "m"])] * 2)


def pair(n: int, m: int) -> tuple[Array, Array]:
    return graphs.numbers((n, m), np.float32, 1), graphs.numbers((n, m), np.float32, 2)


def same(result: Buffer, array: Array) -> bool:
    """Whether a result lies in this array."""
    return result.to_numpy().ctypes.data == array.ctypes.data


def counter() -> Model:
    """A graph that adds to a buffer, and gives what it holds then."""

    def forward(total: Any, x: Any) -> Any:
        ops.buffer_store(total, ops.buffer_load(total) + x)
        return ops.buffer_load(total) * 2.0

    types = [BufferType(DType.float32, ["n"], CPU), TensorType(DType.float32, ["n"], CPU)]
    return InferenceSession().load(Graph("counter", forward=forward, input_types=types))


# *** out ***


def test_outputs_go_where_they_are_wanted(model: Model) -> None:
    x, y = pair(3, 5)
    total, copy = np.empty((3, 5), np.float32), Buffer(DType.float32, (3, 5))
    results = model.execute(x, y, out=[total, None, copy])
    assert same(results[0], total) and results[2] is copy
    assert np.array_equal(total, x + y) and np.array_equal(copy.to_numpy(), x)
    assert np.array_equal(model.execute(x.T.copy().T, y, out=[total, None, None])[0].to_numpy(), x + y)
    fresh = model(x, y)
    assert not same(fresh[0], total)


def test_outputs_of_computed_size() -> None:
    kept = graphs.load(lambda x: ops.custom("kept", CPU, [x, 0.0]), (np.float32, ["n"]), extensions=[SHAPES])
    x = np.float32([1, -2, 3])
    out = np.empty(2, np.float32)
    assert same(kept.execute(x, out=[out])[0], out) and out.tolist() == [1, 3]
    with pytest.raises(GraphError, match=r"out\[0\] has the shape"):
        kept.execute(x, out=[np.empty(3, np.float32)])


@pytest.mark.parametrize(
    ("code", "out"),
    [
        ("EK0451", lambda x: [None]),
        ("EK0451", lambda x: None if x is None else 7),
        ("EK0452", lambda x: [np.empty((3, 5)), None, None]),
        ("EK0452", lambda x: [[1.0], None, None]),
        ("EK0454", lambda x: [np.empty((5, 3), np.float32), None, None]),
        ("EK0453", lambda x: [np.empty((5, 3), np.float32).T, None, None]),
        ("EK0462", lambda x: [x, None, None]),
        ("EK0462", lambda x: [(a := np.empty((3, 5), np.float32)), None, a]),
        ("EK0461", lambda x: [np.broadcast_to(np.float32(0), (3, 5)).copy().view(_Frozen), None, None]),
    ],
)
def test_memory_that_cannot_take_an_output(model: Model, code: str, out: Any) -> None:
    x, y = pair(3, 5)
    before = x.copy()
    with pytest.raises(EinkornError) as caught:
        model.execute(x, y, out=out(x))
    assert caught.value.code == code and "out" in str(caught.value)
    assert np.array_equal(x, before) and np.array_equal(model(x, y)[0].to_numpy(), x + y)


class _Frozen(np.ndarray[Any, Any]):
    def __array_finalize__(self, other: Any) -> None:
        self.flags.writeable = False


# *** bind ***


def test_bound_inputs_are_not_given_again(model: Model) -> None:
    x, y = pair(3, 5)
    for bound in (model.bind(x), model.bind(input0=x)):
        assert bound.free == ["input1"] and np.array_equal(bound(y)[0].to_numpy(), x + y)
        x[0, 0] += 1  # it is the same memory
        assert np.array_equal(bound(y)[0].to_numpy(), x + y)
        bound["input0"] = y
        assert np.array_equal(bound(y)[0].to_numpy(), y + y)
    with pytest.raises(GraphError, match="inputs that are not bound"):
        bound(x, y)


def test_what_is_bound_is_called_by_the_author_s_names_too() -> None:
    """Bound inputs, those of a call and those bound later have the names of `forward`, and each is given once."""
    types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())] * 3
    model = InferenceSession().load(Graph("test", lambda x, y, z: x + 10 * y + 100 * z, types))
    x, y, z = (np.float32([k]) for k in (1, 2, 3))
    bound = model.bind(y=y)
    for results in (
        bound(x, z),
        bound(x, z=z),
        bound(z=z, x=x),
        bound(input0=x, z=z),
        bound.bind(z=z)(x),
        bound.bind(x, z)(),
    ):
        assert results[0].to_numpy() == 321
    bound["y"] = x
    assert bound["y"].to_numpy() == bound["input1"].to_numpy() == 1 and bound.bind(x=x)(z=z)[0].to_numpy() == 311
    wrong = [
        (lambda: bound(x, y=y, z=z), "gets input 'y' twice"),
        (lambda: bound(x, x=x), "gets input 'x' twice"),
        (lambda: bound(x, zz=z), "has no input 'zz'"),
        (lambda: bound(z=z), "takes 2 inputs that are not bound, 1 are given"),
        (lambda: bound.bind(x, y, z), "has no input for 3 inputs"),
        (lambda: bound["x"], "no input of the name 'x' is bound"),
    ]
    for call, text in wrong:
        with pytest.raises(GraphError, match=text):
            call()


def test_a_bound_buffer_keeps_its_state() -> None:
    bound = counter().bind(np.zeros(3, np.float32))
    for _ in range(3):
        (result,) = bound(np.float32([1, 2, 3]))
    assert bound["input0"].to_numpy().tolist() == [3, 6, 9] and result.to_numpy().tolist() == [6, 12, 18]


def test_an_output_is_fed_to_a_bound_input(model: Model) -> None:
    x, y = pair(2, 2)
    bound = model.bind(x)
    bound.feed("input0", 0)
    for _ in range(3):
        bound(y)
    assert np.array_equal(bound["input0"].to_numpy(), ((x + y) + y) + y)
    for name, output in (("input1", 0), ("input0", 7), ("input0", -1)):
        with pytest.raises(GraphError) as caught:
            bound.feed(name, output)
        assert caught.value.code == "EK0469"


def test_what_cannot_be_bound(model: Model) -> None:
    x, y = pair(2, 2)
    for arguments, named in (((x,), {"input0": y}), ((), {"inptu1": y}), ((x, y, x), {})):
        with pytest.raises(GraphError) as caught:
            model.bind(*arguments, **named)
        assert caught.value.code == "EK0469"
    with pytest.raises(DTypeError):
        model.bind(x.astype(np.float64))
    with pytest.raises(GraphError):
        model.bind(x)["input1"]


# *** run_slots, run_pipelined, run_typed, clone ***


def test_slots_keep_their_memory(model: Model) -> None:
    x, y = pair(3, 5)
    first = model.run_slots(x, y)
    second = model.run_slots(y, y)
    assert all(a is b for a, b in zip(first, second, strict=True))
    assert np.array_equal(first[0].to_numpy(), y + y)
    other = model.run_slots(*pair(4, 2))
    assert tuple(other[0].shape) == (4, 2) and np.array_equal(first[0].to_numpy(), y + y)
    with pytest.raises(GraphError):
        model.run_slots(x)


def test_pipelined_runs(model: Model) -> None:
    sets = [pair(n, 3) for n in (2, 5, 2)]
    for (x, y), results in zip(sets, model.run_pipelined(sets), strict=True):
        assert np.array_equal(results[0].to_numpy(), x + y)


def test_tensors_as_bytes() -> None:
    twice = graphs.load(lambda x: x * 2.0, (np.float32, ["n", 2]))
    x = np.float32([[1, 2], [3, 4]])
    assert twice.run_typed([(x.tobytes(), DType.float32)]) == [((x * 2).tobytes(), DType.float32)]
    half = x.astype(ml_dtypes.bfloat16)
    assert twice.run_typed([(half.tobytes(), DType.bfloat16, (2, 2))]) == [((x * 2).tobytes(), DType.float32)]
    wrong = [(x.tobytes(), DType.int32), (x.tobytes()[:-1], DType.float32), (x.tobytes()[:-4], DType.float32)]
    wrong.append((x.tobytes(), DType.float64))
    for given in wrong:
        with pytest.raises(EinkornError, match="'x'"):
            twice.run_typed([given])
    with pytest.raises(GraphError):
        twice.run_typed([])


def test_clones_share_code_alone(model: Model) -> None:
    x, y = pair(3, 5)
    other = model.clone()
    assert other.code is model.code
    kept = model.run_slots(x, y)
    other.run_slots(y, y)
    assert np.array_equal(kept[0].to_numpy(), x + y)


# *** captures ***


def test_a_capture_is_replayed(model: Model) -> None:
    x, y = pair(3, 5)
    outputs = model.capture(4, x, y)
    x *= 2
    model.replay(4, x, y)
    assert np.array_equal(outputs[0].to_numpy(), x + y) and np.array_equal(outputs[2].to_numpy(), x)
    model.debug_verify_replay(4, x, y)
    keyless = model.capture(y, x)
    y += 1
    model.replay(y, x)
    assert np.array_equal(keyless[0].to_numpy(), x + y)


def test_captures_of_views_numbers_and_buffers() -> None:
    model = graphs.load(lambda x, k: x * k, (np.float32, ["n", "m"]), (np.float32, []))
    x = graphs.numbers((4, 6), np.float32)
    view = x.T
    outputs = model.capture(1, view, 3.0)
    x += 1
    model.replay(1, view, 3.0)
    assert np.array_equal(outputs[0].to_numpy(), view * np.float32(3))
    with pytest.raises(ReplayError):
        model.replay(1, view, 4.0)
    total = np.zeros(2, np.float32)
    adding = counter()
    (result,) = adding.capture(9, total, np.ones(2, np.float32))
    one = adding._captures.known[9].inputs[1]
    adding.replay(9, total, one)
    assert total.tolist() == [2, 2] and result.to_numpy().tolist() == [4, 4]
    adding.debug_verify_replay(9, total, one)
    assert total.tolist() == [3, 3]


def test_what_cannot_be_replayed(model: Model) -> None:
    x, y = pair(3, 5)
    model.capture(1, x, y)
    for inputs in ((2, x, y), (1, y, x), (1, x.copy(), y), (x.astype(np.float64), y)):
        with pytest.raises(RuntimeError) as caught:
            model.replay(*inputs)
        assert isinstance(caught.value, ReplayError) and caught.value.code == "EK0466"
    for key, kind in (("a", TypeError), (-1, ValueError), (1 << 64, ValueError), (True, TypeError)):
        with pytest.raises(kind):
            model.debug_verify_replay(key, x, y)
        with pytest.raises(kind):
            model.capture(key, x, y)
    with pytest.raises(ValueError, match="needs the inputs"):
        model.debug_verify_replay(1)
    kept = graphs.load(lambda x: ops.custom("kept", CPU, [x, 0.0]), (np.float32, ["n"]), extensions=[SHAPES])
    with pytest.raises(ReplayError, match="computes sizes"):
        kept.capture(np.float32([1]))


def test_a_replay_that_differs_is_reported(model: Model) -> None:
    x, y = pair(3, 5)
    model.capture(7, x, y)
    model._captures.known[7].caller.enqueue = lambda arrays: None  # type: ignore[method-assign]
    x += 1
    with pytest.raises(ReplayError) as caught:
        model.debug_verify_replay(7, x, y)
    assert caught.value.code == "EK0468" and "output 0" in str(caught.value)


# *** padded batches ***


def test_only_the_active_rows_are_computed() -> None:
    model = graphs.load(lambda x: [ops.exp(x), ops.sum(x, axis=0)], (np.float32, ["batch", "k"]))
    x = graphs.numbers((6, 4), np.float32)
    x[2:] = np.nan
    model.set_active_extent(batch=2)
    grown, total = graphs.results(model, x)
    assert grown.shape == (6, 4) and not grown[2:].any() and np.isfinite(grown).all()
    assert np.array_equal(total, x[:2].sum(0, keepdims=True))
    out = np.full((6, 4), 7, np.float32)
    assert same(model.execute(x, out=[out, None])[0], out) and np.array_equal(out, grown)
    with pytest.raises(GraphError, match="to be active"):
        model(x[:1])
    model.set_active_extent(k=1)
    assert graphs.results(model, x[:2])[0][:, 1:].tolist() == [[0, 0, 0]] * 2
    model.set_active_extent(None)
    assert np.isnan(graphs.results(model, x)[0][2:]).all()
    for extent in ({"rows": 2}, {"batch": -1}, {"batch": 1.5}):
        with pytest.raises(GraphError):
            model.set_active_extent(**extent)  # type: ignore[arg-type]


# *** threads ***


def test_a_call_is_cancelled_by_another_thread(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "from einkorn.dsl import *\n"
        "@register('spin')\n"
        "def spin(out: OutputTensor[float32, 'n'], x: InputTensor[float32, 'n']) -> None:\n"
        "    total = float32(0)\n"
        "    while total >= float32(0):\n"
        "        total = total + x[0]\n"
        "    out[0] = total\n"
    )
    model = graphs.load(lambda x: ops.custom("spin", CPU, [x]), (np.float32, ["n"]), extensions=[tmp_path])
    collected: list[BaseException] = []

    def work() -> None:
        try:
            model(np.zeros(1, np.float32))
        except KernelError as error:
            collected.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        time.sleep(0.01)
        model.cancel()
    thread.join()
    assert isinstance(collected[0], KernelError) and collected[0].code == "EK0707"
    assert model(np.float32([-1]))[0].to_numpy().tolist() == [-1]


def test_calls_of_several_threads_do_not_wait(model: Model) -> None:
    """Each has memory of its own, which later calls take again."""
    inputs = [pair(n, 40) for n in (3, 50, 7, 64)]
    gate = threading.Barrier(4)

    def work(number: int) -> bool:
        gate.wait()
        x, y = inputs[number]
        return all(np.array_equal(model(x, y)[0].to_numpy(), x + y) for _ in range(50))

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(4)))
    assert 1 <= len(model._idle) <= model.IDLE and model.memory["constants"] == 0
