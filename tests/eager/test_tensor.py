"""`Tensor`: making, looking, converting, printing, writing."""

from __future__ import annotations

import asyncio
import copy
import pickle

import numpy as np
import pytest
from einkorn.tensor import (
    GraphRealizationContext,
    RealizationContext,
    Tensor,
    current_realization_context,
    default_device,
    default_dtype,
    defaults,
    defaults_like,
    realization_context,
)

from einkorn import functional as F
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import CPU, Accelerator, Buffer, BufferType, DeviceRef, Dim, DType, Graph, TensorType, ops


def test_making() -> None:
    assert Tensor.constant([1, 2, 3]).dtype is DType.float32
    assert Tensor.constant(np.array([1, 2])).dtype is DType.int64
    assert Tensor.constant(42, dtype=DType.int32).item() == 42
    assert Tensor.constant([True, False]).dtype is DType.bool
    x = Tensor.constant([[1, 2, 3], [4, 5, 6]])
    assert list(x.shape) == [Dim(2), Dim(3)]
    assert (x.rank, x.num_elements(), x.device, x.dtype) == (2, 6, CPU(), DType.float32)
    assert x.type == TensorType(DType.float32, [2, 3], DeviceRef.CPU())
    assert Tensor.zeros([2, 0]).numpy().shape == (2, 0)
    np.testing.assert_array_equal(Tensor.full((2, 2), 7, dtype=DType.int8).numpy(), np.full((2, 2), 7, np.int8))
    for like in (x, x.type):
        np.testing.assert_array_equal(Tensor.ones_like(like).numpy(), np.ones((2, 3)))
        np.testing.assert_array_equal(Tensor.zeros_like(like).numpy(), np.zeros((2, 3)))
        np.testing.assert_array_equal(Tensor.full_like(like, 5.0).numpy(), np.full((2, 3), 5.0))
        np.testing.assert_array_equal(Tensor.range_like(like).numpy(), [[0, 1, 2]] * 2)
    assert Tensor.constant([1, -2], dtype=DType.bfloat16).tolist() == [1.0, -2.0]
    assert Tensor.constant([1, -2], dtype=DType.int4).numpy().astype(int).tolist() == [1, -2]


def test_ranges() -> None:
    assert Tensor.arange(10).tolist() == list(range(10))
    assert Tensor.arange(5, 15, 2, dtype=DType.int32).tolist() == [5, 7, 9, 11, 13]
    assert Tensor.arange(5, 0, -1, dtype=DType.float32).tolist() == [5, 4, 3, 2, 1]
    steps = Tensor.arange(0.0, 1.0, 0.2).numpy()
    np.testing.assert_array_equal(steps, np.arange(0.0, 1.0, 0.2).astype(np.float32))
    with pytest.raises(EinkornError, match="EK0480"):
        Tensor.arange(0, 3, 0)


def test_defaults() -> None:
    assert defaults() == (DType.float32, CPU())
    with default_dtype(DType.int32):
        assert Tensor.ones([2]).dtype is DType.int32
    sim = Accelerator("sim")
    with default_device(sim):
        assert defaults() == (DType.bfloat16, sim)
        made = Tensor.ones([2, 3], dtype=DType.float32)
        assert made.device == sim and made.numpy().sum() == 6
    with defaults_like(Tensor.zeros([1], dtype=DType.int32)):
        assert Tensor.zeros([2]).dtype is DType.int32
        assert Tensor.zeros([2], dtype=DType.float64).dtype is DType.float64


def test_devices() -> None:
    sim = Accelerator("sim")
    x = Tensor.constant([[1.0, 2.0], [3.0, 4.0]])
    assert x.to(CPU()) is x
    y = x.to(sim)
    z = (y * 2.5 + y)[1]
    assert z.device == sim and z.to(CPU()).tolist() == [10.5, 14.0] == z.tolist()
    y[0, 0] = 9
    assert y.tolist() == [[9, 2], [3, 4]] and x.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(EinkornError, match="EK0430"):
        x + y


def test_numbers_and_sequences() -> None:
    x = Tensor.constant([[1.5, 2.5], [3.5, 4.5]])
    assert float(x[0, 0]) == 1.5 and int(x[0, 1]) == 2 and bool(x[1, 1])
    assert len(x) == 2 and [row.tolist() for row in x] == [[1.5, 2.5], [3.5, 4.5]]
    assert 2.5 in x and f"{x[0, 0]:.3f}" == "1.500" and ["a", "b"][Tensor.constant(1, dtype=DType.int64)] == "b"
    assert divmod(x, 2)[1].tolist() == [[1.5, 0.5], [1.5, 0.5]] and (+x) is x
    with pytest.raises(TypeError, match="one element"):
        x.item()
    with pytest.raises(TypeError, match="rank 0"):
        len(x[0, 0])
    assert {x: 1}[x] == 1


def test_indices_pick_elements_as_those_of_numpy() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x, rows = Tensor.constant(array), Tensor.constant([2, 0], dtype=DType.int64)
    pairs: list[tuple[Any, Any]] = [
        ([0, 1], [0, 1]),
        ((slice(None), [0, 2]), (slice(None), [0, 2])),
        (rows, np.array([2, 0])),
        ((rows, [1, 3]), ([2, 0], [1, 3])),
        (x > 4, array > 4),
        (array > 4, array > 4),
        ((..., [True, False, True, False]), (..., [True, False, True, False])),
        ((0, [3, 3, 1]), (0, [3, 3, 1])),
        ((None, rows), (None, [2, 0])),
        ([], np.array([], int)),
    ]
    for ours, numpys in pairs:
        for made in (x, _lazily(x) / 3):
            np.testing.assert_array_equal(made[ours], array[numpys])
    y = x * 1
    y[y > 4] = 0
    assert y.sum(axis=None).item() == 10 and x[[0, 1]].device == x.device
    bits = Tensor.constant([1, 2, 3], dtype=DType.int4)
    assert bits[[2, 0]].dtype is DType.int4 and bits[[2, 0]].numpy().tolist() == [3, 1]
    wrong: list[Any] = [[0, 5], (rows, rows, rows), array[0] > 4, [0.5], (slice(None), [4])]
    for item in wrong:
        with pytest.raises(EinkornError, match="EK0425") as caught:
            x[item]
        assert caught.value.place is not None and caught.value.place.file == __file__, item
    with Graph("g", input_types=[TensorType(DType.float32, [3, 4], DeviceRef.CPU())]) as graph:
        value = Tensor.from_graph_value(graph.inputs[0])
        with pytest.raises(EinkornError, match="EK0425"):  # it would mean one element there
            value[[0, 1]]


def test_what_numpy_has_and_tensors_say_otherwise() -> None:
    x = Tensor.constant([[1, 2], [3, 4]])
    array = np.ones((2, 2), np.float32)
    assert isinstance(array + x, Tensor) and isinstance(x - array, Tensor) and isinstance(array < x, Tensor)
    for each, wanted in (
        (np.exp(x), np.exp(x.numpy())),
        (np.sum(x), 10),
        (np.mean(x, axis=0), [2, 3]),
        (np.concatenate([x, array]), [[1, 2], [3, 4], [1, 1], [1, 1]]),
        (np.where(x > 2, x, 0), [[0, 0], [3, 4]]),
    ):
        np.testing.assert_array_equal(each, wanted)
        assert not isinstance(each, Tensor)
    for name, way in {"dim": "x.rank", "astype": r"x.cast\(dtype\)", "exp": r"F.exp\(x\)"}.items():
        with pytest.raises(AttributeError, match=f"'Tensor' object has no attribute '{name}'; write {way}"):
            getattr(x, name)
    assert not hasattr(x, "unknown")
    for call in (lambda: x.reshape(2, 2), lambda: x.transpose(0, 1, 2)):  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"(reshape|transpose)\(\): "):
            call()
    with pytest.raises(TypeError, match=r"Tensor\.__round__"):
        round(x, 2)
    assert x.transpose(dim1=0, dim2=1).tolist() == [[1, 3], [2, 4]]  # type: ignore[call-arg]
    with pytest.raises(EinkornError, match=r"F.any\(x, axis=None\)"):
        bool(x > 2)
    with pytest.raises(EinkornError, match="EK0478"):
        Tensor.zeros([-1, 2])


def test_printing() -> None:
    x = Tensor.constant([[1, 2], [3, 4]])
    assert str(x) == "[[1. 2.]\n [3. 4.]]"
    assert repr(x) == "Tensor([[1., 2.],\n        [3., 4.]], float32)"
    assert "not computed yet" in repr(_lazily(x)) and "…" not in str(x)
    assert str(Tensor.constant([1.5], dtype=DType.bfloat16)) == "[1.5]"
    assert "..." in str(Tensor.zeros([10000]))
    assert repr(Tensor.zeros([0, 3])) == "Tensor([], shape=(0, 3), float32)" and repr(x[0, :0]) == "Tensor([], float32)"


def _lazily(x: Tensor) -> Tensor:
    with F.lazy():
        return x * 3


def test_conversions() -> None:
    x = Tensor.constant([[1.0, 2.0], [3.0, 4.0]])
    array = x.numpy()
    assert not array.flags.writeable and np.asarray(x).sum() == 10
    np.testing.assert_array_equal(np.from_dlpack(x), array)  # type: ignore[arg-type]
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        other[0, 0] = 7
        assert other.tolist() == [[7, 2], [3, 4]] and x.tolist() == [[1, 2], [3, 4]]
    assert isinstance(x.storage, Buffer) and x.driver_tensor.shape == (2, 2)
    stored = Tensor(storage=Buffer.from_numpy(np.ones(3, np.float32)))
    assert stored.real and stored.sum().item() == 3
    with pytest.raises(EinkornError, match="EK0841"):
        Tensor([1])
    with pytest.raises(EinkornError, match="EK0840"):
        _ = _lazily(Tensor.ones([2])).driver_tensor


def test_writing_leaves_alone_what_was_computed() -> None:
    x = Tensor.constant([1.0, 2.0, 3.0])
    seen, part, y = x.numpy(), x[1:], x * 2
    later = _lazily(x)
    x[0] = 10
    x[1:] = np.array([20, 30])
    x[..., 2] = Tensor.constant(40.0)
    assert x.tolist() == [10, 20, 40]
    assert seen.tolist() == [1, 2, 3] and part.tolist() == [2, 3] and y.tolist() == [2, 4, 6]
    assert later.tolist() == [3, 6, 9]
    waiting = _lazily(x)
    further = _lazily(waiting)
    waiting[0] = 0
    assert waiting.tolist() == [0, 60, 120] and further.tolist() == [90, 180, 360]
    for index, value, code in ((slice(0, 2), [1.0, 2.0, 3.0], "EK0843"), (7, 1.0, "EK0843")):
        with pytest.raises(EinkornError, match=code):
            x[index] = value
    with pytest.raises(EinkornError, match="EK0803"):
        Tensor.zeros([2], dtype=DType.int32)[0] = 1.5
    rows = Tensor.zeros([2, 2])
    rows[0] = rows[1] = Tensor.constant([1.0, 2.0])
    rows[:, 0] = rows[::-1, 1]
    assert rows.tolist() == [[2, 2], [2, 2]]


def test_memory_of_others_is_read_when_an_op_is_called() -> None:
    source = np.array([1.0, 2.0, 3.0], np.float32)
    x = Tensor.from_dlpack(source)
    with F.lazy():
        y, row, again = x * 2, x[1:], F.reshape(x, [1, 3])
    source[:] = 100
    assert y.tolist() == [2, 4, 6] and row.tolist() == [2, 3] and again.tolist() == [[1, 2, 3]]
    assert x.tolist() == [100, 100, 100]
    x[0] = 5
    assert source[0] == 5
    turned = Tensor.from_dlpack(np.arange(6, dtype=np.float32).reshape(2, 3).T)
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_memory_that_is_given_away() -> None:
    x = Tensor.constant([1.0, 2.0, 3.0])
    later = _lazily(x)
    theirs = np.from_dlpack(x)  # type: ignore[arg-type]
    if theirs.flags.writeable:
        theirs[:] = 7
        assert x.tolist() == [7, 7, 7]
    assert later.tolist() == [3, 6, 9]


def test_realization() -> None:
    x = Tensor.constant([1.0, 2.0])

    async def run() -> None:
        y, z = _lazily(x), _lazily(x)
        assert not y.real
        assert await y.realize is y and y.real
        assert (await z).tolist() == [3, 6]

    asyncio.run(run())
    context = RealizationContext()
    with realization_context(context):
        assert current_realization_context() is context
    state = context.add_source(x)
    with context.graph:
        value = ops.exp(state.value.tensor)
    made = context.create_unrealized(value)
    assert isinstance(made, Tensor) and not made.real and made.state is not None
    further = made * 2 + 1
    assert isinstance(further, Tensor) and further.shape == [2]
    np.testing.assert_allclose(further.numpy(), np.exp([1, 2]) * 2 + 1, rtol=1e-6)
    assert made.real and asyncio.run(context.realize_all()) == []


def test_values_of_graphs() -> None:
    captured = Tensor.constant([1.0, 2.0])
    with Graph("of_tensors", input_types=[TensorType(DType.float32, [2]), BufferType(DType.float32, [2])]) as graph:
        assert F.in_graph_context()
        x, memory = map(Tensor.from_graph_value, graph.inputs)
        y = (x * 2 + captured).sum()
        memory[0:1] = x[1:]
        assert (
            isinstance(y, Tensor)
            and y.dtype is DType.float32
            and isinstance(F.exp(graph.inputs[0]), type(graph.inputs[0]))
        )
        for request in (y.item, lambda: bool(y), y.numpy):
            with pytest.raises(EinkornError, match="EK0840"):
                request()
        with realization_context(GraphRealizationContext(graph)):
            assert "%" in repr(Tensor.from_graph_value(graph.inputs[0]))
        graph.output(y.state.value)  # type: ignore[union-attr]
    written = np.zeros(2, np.float32)
    [result] = F.call(graph, Tensor.constant([3.0, 4.0]), Tensor.from_dlpack(written))
    assert result.tolist() == [17.0] and written.tolist() == [4.0, 0.0]
    assert not F.in_graph_context()
