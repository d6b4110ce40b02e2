"""Direct calls of elementwise kernels broadcast as NumPy does; other calls say why they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import Accelerator, Buffer, DType, Graph, InferenceSession, TensorType
from einkorn.graph.interop.specialise import prepared
from einkorn.graph.interop.spread import common_shape, joint_inputs, spread_of
from einkorn.graph.loading.background import BACKGROUND

from . import elementwise_kernels as k

M = np.arange(12, dtype=np.float32).reshape(3, 4)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def broadcast_shapes(draw: Any, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast: of a common one, with axes left out or of size 1."""
    common = draw(SHAPES)
    collected = []
    for _ in range(count):
        kept = common[draw(st.integers(0, len(common))) :]
        collected.append(tuple(draw(st.sampled_from([1, size])) for size in kept))
    return collected


@st.composite
def arrays(draw: Any, count: int, dtype: Any) -> list[Any]:
    """Arrays of such shapes, as views with steps, backwards and transposed; numbers among them."""
    collected: list[Any] = []
    for shape in draw(broadcast_shapes(count)):
        if not shape and draw(st.booleans()):
            collected.append(draw(st.integers(-3, 3)))
            continue
        steps = [draw(st.sampled_from([1, 2, -1, -2])) for _ in shape]
        order = draw(st.permutations(range(len(shape))))
        base = np.zeros([shape[axis] * abs(steps[axis]) for axis in order], dtype)
        base[...] = np.arange(base.size).reshape(base.shape) % 7
        view = base.transpose(np.argsort(order)) if shape else base
        collected.append(view[tuple(slice(None, None, step) for step in steps)])
    return collected


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
def test_random_calls_give_what_numpy_gives(dtype: Any) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(arrays(2, dtype))
    def plus(values: list[Any]) -> None:
        typed = [dtype(value) if isinstance(value, int) else value for value in values]
        wanted = np.add(*typed)
        if all(isinstance(value, int) for value in values):
            return
        for _ in range(2):
            actual = k.plus(*values)
            assert actual.shape == wanted.shape and actual.dtype == dtype and np.array_equal(actual, wanted)

    plus()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(arrays(3, np.float64))
def test_three_inputs_and_two_outputs(values: list[Any]) -> None:
    if all(isinstance(value, int) for value in values):
        return
    x, y, z = values
    low, high = k.both(x, y, z)
    shape = np.broadcast_shapes(*(np.shape(value) for value in values))
    assert low.shape == high.shape == shape
    assert np.array_equal(low, np.broadcast_to(np.add(x, y), shape))
    assert np.array_equal(high, np.broadcast_to(np.subtract(x, z), shape))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(SHAPES, min_size=1, max_size=4))
def test_shapes_broadcast_as_in_numpy(shapes: list[tuple[int, ...]]) -> None:
    try:
        wanted = np.broadcast_shapes(*shapes)
    except ValueError:
        wanted = None
    assert common_shape(shapes) == wanted
    assert (spread_of(shapes) is None) == (wanted is None or len(set(shapes)) == 1)


def test_repeated_calls_of_each_form() -> None:
    column, row = M[:, :1], M[0]
    pairs: list[tuple[Any, Any]] = [
        (M, M),
        (M, row),
        (row, M),
        (M, M[:1]),
        (column, row),
        (M, 2.0),
        (2, M),
        (M, column),
    ]
    for _ in range(5):  # doors open at the second call of a form
        for x, y in pairs:
            assert np.array_equal(k.minus(x, y), np.subtract(x, y)), (np.shape(x), np.shape(y))
    for size in (1, 2, 3, 1):  # axes of size 1 in calls of equal shapes
        x = np.ones((size, 4), np.float32)
        assert np.array_equal(k.minus(x, M[:1]), x - M[:1]) and k.minus(x, x).shape == (size, 4)


def test_a_door_takes_broadcast_calls() -> None:
    kernel = k.weighted
    x, row = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    for _ in range(4):
        assert np.array_equal(kernel(2.0, x, row), 2 * x - row)
        assert np.array_equal(kernel(2.0, x, 1.0), 2 * x - 1)
        BACKGROUND.wait()
    assert prepared(kernel).fast_path.counter.doors == 2
    with pytest.raises(EinkornError, match="do not broadcast"):
        kernel(2.0, x, row[:2])


def test_out_is_filled() -> None:
    out = np.empty((3, 4), np.float32)
    for _ in range(3):
        assert k.minus(M, M[0], out=out) is out and np.array_equal(out, M - M[0])
        k.minus(M[0], 1.0, out=out)  # memory for more than the inputs
        assert np.array_equal(out, np.broadcast_to(M[0] - 1, (3, 4)))
        k.minus(M[0], M[1], out=out.T[::-1].T)
        assert np.array_equal(out[:, ::-1], np.broadcast_to(M[0] - M[1], (3, 4)))
    with pytest.raises(EinkornError, match="shares memory") as caught:
        k.minus(out, out[0], out=out)
    assert caught.value.code == "EK0462"
    with pytest.raises(EinkornError, match=r"gives shape \(3, 4\)"):
        k.minus(M, M[0], out=np.empty((4, 4), np.float32))


def test_buffers_and_devices() -> None:
    row = Buffer.from_numpy(M[0])
    actual = k.minus(M, row)
    assert isinstance(actual, Buffer) and np.array_equal(actual.to_numpy(), M - M[0])
    there = Accelerator("sim")
    on_gpu = k.minus(Buffer.from_numpy(M).to(there), Buffer.from_numpy(M[:, :1].copy()).to(there))
    assert on_gpu.device == there and np.array_equal(on_gpu.to_numpy(), M - M[:, :1])


def test_one_axis_and_numbers_alone() -> None:
    assert np.array_equal(k.scaled(M[0]), M[0] * 2)
    assert k.minus(3.0, 1.0) == 2.0
    assert np.array_equal(k.minus(np.float32(3), M), 3 - M)
    assert np.array_equal(k.minus(np.array(3, np.float32), M), 3 - M)


def test_compiled_and_tuned_kernels() -> None:
    compiled = k.minus.compile(M, M[0])
    assert np.array_equal(compiled(M, M[1]), M - M[1])
    with pytest.raises(EinkornError, match="is compiled for") as caught:
        compiled(M, M)
    assert caught.value.code == "EK0854"
    assert np.array_equal(k.tuned_plus(M, M[0]), M + M[0])


def test_kernels_report_what_they_broadcast() -> None:
    with pytest.raises(KernelError, match="no quotient"):
        k.raised(M, M[0])
    with pytest.raises(KernelError, match="no quotient"):
        k.raised(M, 0.0)


REFUSED: dict[str, tuple[Callable[[], Any], str, str, str | None]] = {
    "shapes": (lambda: k.minus(M, M[0, :3]), "EK0311", "shapes (3, 4) and (3,) do not broadcast", None),
    "sizes": (lambda: k.minus(M, M[:2]), "EK0312", "shapes (3, 4) and (2, 4) do not broadcast", None),
    "the index": (lambda: k.row_sums(M, M[0]), "EK0311", "computes with the index", "pass np.broadcast_to(y, (3, 4))"),
    "an index of equal rank": (
        lambda: k.row_sums(M[:1], M), "EK0312", "computes with the index", "pass np.broadcast_to(x, (3, 4))"
    ),
    "a number": (lambda: k.row_sums(M, 1.0), "EK0311", "computes with the index", "pass np.broadcast_to(y, (3, 4))"),
    "two axes": (
        lambda: k.matrix_plus(M, M[0]), "EK0311", 'only "*s" and "n" broadcast', "pass np.broadcast_to(y, (3, 4))"
    ),
    "two axes of equal rank": (
        lambda: k.matrix_plus(M, M[:1]), "EK0312", 'only "*s" and "n" broadcast', "pass np.broadcast_to(y, (3, 4))"
    ),
    "one axis": (
        lambda: k.one_axis(M, M[0]), "EK0311", '"n" is one axis',
        'call one_axis.ufunc(x, y), or declare all tensors with the dims "*s"',
    ),
    "one axis, equal shapes": (
        lambda: k.one_axis(M, M), "EK0311", '"n" is one axis',
        'call one_axis.ufunc(x, y), or declare all tensors with the dims "*s"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_do_not_broadcast_say_why(name: str) -> None:
    call, code, note, hint = REFUSED[name]
    for _ in range(3):
        with pytest.raises(EinkornError) as caught:
            call()
        error = getattr(caught.value, "errors", [caught.value])[0]
        assert error.code == code and any(note in text for text in error.notes), error.notes
        assert error.hint == hint and error.place is not None and error.place.file == __file__


def test_a_wrong_dtype_is_the_only_error_of_a_call_that_broadcasts() -> None:
    with pytest.raises(EinkornError, match="'T' is float32 in argument 'x' but int64") as caught:
        k.plus(M, np.arange(4))
    assert caught.value.code == "EK0317" and not hasattr(caught.value, "errors")


def test_a_kernel_of_one_axis_that_is_not_elementwise_has_no_hint() -> None:
    with pytest.raises(EinkornError) as caught:
        k.running(M, M)
    errors = getattr(caught.value, "errors", [caught.value])
    assert all(error.hint is None and "one axis" not in str(error.notes) for error in errors)


def test_which_inputs_broadcast() -> None:
    joint = {
        name: joint_inputs(getattr(k, name).schema) for name in ("plus", "scaled", "weighted", "matrix", "changed")
    }
    assert joint == {"plus": (0, 1), "scaled": (0,), "weighted": (1, 2), "matrix": (), "changed": ()}


def test_values_of_graphs_broadcast() -> None:
    def forward(x: Any, row: Any) -> list[Any]:
        return [k.minus(x, row), k.minus(x, 2.0), k.minus(row, x), k.weighted(3.0, x, row)]

    types = [TensorType(DType.float32, ["m", "n"]), TensorType(DType.float32, ["n"])]
    model = InferenceSession().load(Graph("broadcast", forward=forward, input_types=types))
    actual = [buffer.to_numpy() for buffer in model(M, M[0])]
    for one, other in zip(actual, (M - M[0], M - 2, M[0] - M, 3 * M - M[0]), strict=True):
        assert np.array_equal(one, other)
    with pytest.raises(EinkornError) as caught:
        Graph("ramp", forward=lambda x, row: k.row_sums(x, row), input_types=types)
    assert caught.value.code == "EK0311"
    with pytest.raises(EinkornError) as caught:
        Graph("sizes", forward=lambda x, y: k.minus(x, y), input_types=[types[0], TensorType(DType.float32, ["k"])])
    assert caught.value.code == "EK0420"


def test_tensors_of_einkorn_broadcast() -> None:
    x, row = Tensor.from_dlpack(M), Tensor.from_dlpack(M[0])
    for each, wanted in ((k.minus(x, row), M - M[0]), (k.minus(row, x), M[0] - M), (k.minus(x, 2.0), M - 2)):
        assert isinstance(each, Tensor) and np.array_equal(np.from_dlpack(each), wanted)
