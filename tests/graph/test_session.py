"""Sessions and models: metadata, what calls take and refuse, failures of kernels, and lifetimes."""

from __future__ import annotations

import gc
import logging
import math
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.graphs import Array

from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, GraphError, KernelError
from einkorn.graph import CPU, Buffer, DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

KERNELS = Path(__file__).parent / "session_kernels.py"
HOST = DeviceRef.CPU()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def affine() -> Model:
    """(m, n) float32 and (n) float32 -> (m, n) and (n)."""
    return graphs.load(lambda x, b: [x * 2.0 + b, b - 1.0], (np.float32, ["m", "n"]), (np.float32, ["n"]))


def affine_is_right(model: Model, m: int = 3, n: int = 4) -> None:
    x, b = graphs.numbers((m, n), np.float32, 1), graphs.numbers((n,), np.float32, 2)
    first, second = graphs.results(model, x, b)
    np.testing.assert_array_equal(first, x * np.float32(2) + b)
    np.testing.assert_array_equal(second, b - np.float32(1))


# *** metadata ***


def test_metadata() -> None:
    model = graphs.load(
        lambda x, y: [ops.concat([x, x], 0), ops.cast(y, DType.bool), ops.flatten(x)],
        (np.float32, ["rows", 10]),
        (np.int8, []),
    )
    assert [(s.name, s.dtype, s.dims, s.device) for s in model.input_metadata] == [
        ("input0", DType.float32, ("rows", 10), HOST),
        ("input1", DType.int8, (), HOST),
    ]
    assert [(s.name, s.dtype, s.dims) for s in model.output_metadata] == [
        ("output0", DType.float32, (str(Dim("rows") * 2), 10)),
        ("output1", DType.bool, ()),
        ("output2", DType.float32, (str(Dim("rows") * 10),)),
    ]
    assert "rows" in repr(model)


def test_both_forms_of_a_graph() -> None:
    kind = TensorType(DType.float32, ["n"], HOST)
    with Graph("manager", input_types=[kind, kind]) as graph:
        x, y = (value.tensor for value in graph.inputs)
        graph.output(x - y)
    model = InferenceSession(devices=[CPU()]).load(graph)
    a, b = np.float32([5, 6]), np.float32([1, 2])
    np.testing.assert_array_equal(model.execute(a, b)[0].to_numpy(), [4, 4])
    np.testing.assert_array_equal(model(b, a)[0].to_numpy(), [-4, -4])


def test_a_session_refuses_what_it_cannot_load() -> None:
    with pytest.raises(GraphError):
        InferenceSession().load(3)  # type: ignore[arg-type]
    with pytest.raises(GraphError), Graph("open", input_types=[]) as graph:
        InferenceSession().load(graph)
    with pytest.raises(DeviceError):
        InferenceSession(devices=["cpu"])  # type: ignore[list-item]


# *** inputs ***


def _good() -> tuple[Array, Array]:
    return np.ones((3, 4), np.float32), np.ones(4, np.float32)


WRONG: dict[str, tuple[Any, type[EinkornError]]] = {
    "too few": (lambda x, b: (x,), GraphError),
    "too many": (lambda x, b: (x, b, b), GraphError),
    "none": (lambda x, b: (), GraphError),
    "a wider float": (lambda x, b: (x.astype(np.float64), b), DTypeError),
    "an integer": (lambda x, b: (x, b.astype(np.int32)), DTypeError),
    "a bfloat16": (lambda x, b: (x, b.astype(ml_dtypes.bfloat16)), DTypeError),
    "the other byte order": (lambda x, b: (x.astype(">f4"), b), DTypeError),
    "complex": (lambda x, b: (x.astype(np.complex64), b), DTypeError),
    "text": (lambda x, b: (x, np.array(["a"] * 4)), DTypeError),
    "objects": (lambda x, b: (x, np.array([None] * 4)), DTypeError),
    "a list": (lambda x, b: (x.tolist(), b), DTypeError),
    "a number": (lambda x, b: (x, 1.0), DTypeError),
    "nothing": (lambda x, b: (x, None), DTypeError),
    "lower rank": (lambda x, b: (b, b), GraphError),
    "higher rank": (lambda x, b: (x, b[None]), GraphError),
    "sizes that differ": (lambda x, b: (x, np.ones(5, np.float32)), GraphError),
    "a field of records": (lambda x, b: (x, np.zeros(4, "f4,i1")["f0"]), GraphError),
    "unaligned": (lambda x, b: (x, np.zeros(17, np.uint8)[1:].view(np.float32)), GraphError),
    "a buffer of another dtype": (lambda x, b: (x, Buffer.zeros((4,), DType.float64)), DTypeError),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_leaves_the_model_usable(affine: Model, name: str) -> None:
    make, kind = WRONG[name]
    affine_is_right(affine)
    with pytest.raises(kind) as caught:
        affine(*make(*_good()))
    assert caught.value.code.startswith("EK")
    assert caught.value.place is not None and Path(caught.value.place.file).name == Path(__file__).name
    affine_is_right(affine)
    affine_is_right(affine, 5, 2)


def test_what_an_input_may_be(affine: Model) -> None:
    x, b = _good()
    expected = x * 2 + b

    class Array2(np.ndarray):  # type: ignore[type-arg]
        pass

    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.zeros((6, 8), np.float32)
    wide[::2, ::-2] = x
    fortran_column = np.asfortranarray(np.ones((3, 1), np.float32))
    for given in (x, Buffer.from_numpy(x), Buffer.from_dlpack(x), x.view(Array2), read_only, np.asfortranarray(x)):
        np.testing.assert_array_equal(affine(given, b)[0].to_numpy(), expected)
    for given in (wide[::2, ::-2], Buffer.from_dlpack(wide)[::2, ::-2]):
        np.testing.assert_array_equal(affine(given, b)[0].to_numpy(), expected)
    assert affine(fortran_column, b[:1])[0].shape == (3, 1)


def test_views_that_are_contiguous_are_taken_where_they_lie(affine: Model) -> None:
    x = graphs.numbers((9, 4), np.float32, 1)
    b = graphs.numbers((40,), np.float32, 2)
    result = affine(x[3:6], b[17:21])[0].to_numpy()
    np.testing.assert_array_equal(result, x[3:6] * np.float32(2) + b[17:21])
    result = affine(Buffer.from_numpy(x)[2:5], Buffer.from_numpy(b)[1:5])[0].to_numpy()
    np.testing.assert_array_equal(result, x[2:5] * np.float32(2) + b[1:5])


def test_scalars_serve_inputs_of_rank_0() -> None:
    model = graphs.load(lambda x, s, n: [x * s, n + 1], (np.float32, ["n"]), (np.float32, []), (np.int64, []))
    x = np.float32([1, 2])
    for scale, count in ((3.0, 4), (np.float32(3), np.int64(4)), (np.array(3, np.float32), np.array(4))):
        product, following = model(x, scale, count)
        np.testing.assert_array_equal(product.to_numpy(), [3, 6])
        assert following.item() == 5
        assert following.shape == ()
    with pytest.raises(DTypeError):
        model(x, np.float64(3), 4)
    with pytest.raises(EinkornError):
        model(x, 3.0, 4.5)
    with pytest.raises(EinkornError):
        model(x, 3.0, 2**70)


def test_conditions_on_sizes_are_checked_at_the_call() -> None:
    model = graphs.load(lambda x, y: [x[:5] + 1, ops.rebind(y, ["n"]) + x], (np.int64, ["n"]), (np.int64, ["m"]))
    x = np.arange(7)
    np.testing.assert_array_equal(model(x, x)[1].to_numpy(), 2 * x)
    for a, b in ((4, 4), (7, 6)):
        with pytest.raises(GraphError) as caught:
            model(np.arange(a), np.arange(b))
        assert caught.value.code == "EK0454"
        np.testing.assert_array_equal(model(x, x)[0].to_numpy(), x[:5] + 1)


def test_sizes_that_need_too_much_memory_leave_the_model_usable() -> None:
    """The outer product is needed twice, so it lies in the model's arena."""
    model = graphs.load(
        lambda x, y: (lambda z: [ops.sum(z, axis=0), ops.sum(z, axis=1)])(ops.exp(x @ y)),
        (np.float32, ["m", 1]),
        (np.float32, [1, "n"]),
    )

    def right(m: int, n: int) -> None:
        columns, rows = graphs.results(model, np.zeros((m, 1), np.float32), np.zeros((1, n), np.float32))
        np.testing.assert_array_equal(columns, np.full((1, n), m, np.float32))
        np.testing.assert_array_equal(rows, np.full((m, 1), n, np.float32))

    right(3, 4)
    huge = np.zeros(1 << 25, np.float32)
    with pytest.raises((MemoryError, EinkornError)):
        model(huge[:, None], huge[None, :])
    right(3, 4)
    right(2, 7)


def test_an_output_that_cannot_be_allocated_leaves_the_model_usable() -> None:
    model = graphs.load(lambda x, y: x @ y, (np.float32, ["m", 1]), (np.float32, [1, "n"]))
    one = np.ones((1, 1), np.float32)
    assert model(one, one)[0].item() == 1
    huge = np.zeros(1 << 25, np.float32)
    for _ in range(2):
        with pytest.raises((MemoryError, EinkornError)):
            model(huge[:, None], huge[None, :])
        assert model(one, one)[0].item() == 1


def test_empty_inputs_do_not_disturb_later_calls(affine: Model) -> None:
    for m, n in ((0, 4), (3, 0), (0, 0), (1, 1), (3, 4)):
        affine_is_right(affine, m, n)


def test_one_model_for_many_sizes(affine: Model) -> None:
    for m, n in ((1, 1), (2, 1000), (1000, 2), (257, 129), (1, 1), (640, 480), (3, 4)):
        affine_is_right(affine, m, n)


# *** constants and inputs that are outputs ***


def test_constants_are_copied_when_the_graph_is_built() -> None:
    weights = np.arange(4, dtype=np.float32)
    model = graphs.load(lambda x: [x + ops.constant(weights), ops.constant(weights)], (np.float32, [4]))
    weights[:] = 99
    total, plain = model(np.zeros(4, np.float32))
    np.testing.assert_array_equal(total.to_numpy(), [0, 1, 2, 3])
    np.testing.assert_array_equal(plain.to_numpy(), [0, 1, 2, 3])
    if not plain.is_read_only:
        plain.to_numpy()[:] = -1
    np.testing.assert_array_equal(model(np.zeros(4, np.float32))[1].to_numpy(), [0, 1, 2, 3])


def test_an_input_given_back_is_a_copy() -> None:
    model = graphs.load(lambda x: [x, ops.reshape(x, [-1]), x], (np.float32, ["m", "n"]))
    x = graphs.numbers((2, 3), np.float32)
    before = x.copy()
    outputs = model(x)
    for output in outputs:
        output.to_numpy()[...] = -7
    np.testing.assert_array_equal(x, before)
    again = model(x)
    for output in again:
        np.testing.assert_array_equal(output.to_numpy().reshape(2, 3), x)
    again[0].to_numpy()[...] = 0
    np.testing.assert_array_equal(again[2].to_numpy(), x)


# *** failures in kernels, prints ***


def test_a_failed_assertion_raises_and_the_next_call_works() -> None:
    model = graphs.load(
        lambda x: ops.custom("positive", device=HOST, values=[x])[0] * 2.0, (np.float32, ["n"]), extensions=[KERNELS]
    )
    x = np.arange(1, 200_001, dtype=np.float32)
    for bad in (0, 77_777, 199_999):
        wrong = x.copy()
        wrong[bad] = -2.5
        for _ in range(2):
            with pytest.raises(KernelError) as caught:
                model(wrong)
            assert "found -2.5" in str(caught.value)
            assert caught.value.place is not None and caught.value.place.file.endswith("session_kernels.py")
        np.testing.assert_array_equal(model(x)[0].to_numpy(), x * 2)


def test_a_raise_in_threads_and_then_a_good_call() -> None:
    model = graphs.load(
        lambda x: ops.custom("positive_rows", device=HOST, values=[x]), (np.float64, ["m", "n"]), extensions=[KERNELS]
    )
    x = np.abs(graphs.numbers((500, 300), np.float64, 1)) + 1
    for bad in ([3], [499], range(0, 500, 7), range(500)):
        wrong = x.copy()
        wrong[list(bad), 0] = 0
        with pytest.raises(KernelError) as caught:
            model(wrong)
        assert "starts at 0" in str(caught.value)
        assert int(str(caught.value).split("row ")[1].split()[0]) in bad
        np.testing.assert_array_equal(model(x)[0].to_numpy(), x)


def test_an_assertion_about_nan() -> None:
    model = graphs.load(
        lambda x: ops.custom("positive", device=HOST, values=[x]), (np.float64, ["n"]), extensions=[KERNELS]
    )
    with pytest.raises(KernelError, match="found nan"):
        model(np.array([1, math.nan]))
    np.testing.assert_array_equal(model(np.ones(3))[0].to_numpy(), np.ones(3))


def test_prints_of_a_kernel_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    model = graphs.load(
        lambda x: ops.custom("print_each", device=HOST, values=[x]), (np.int64, ["n"]), extensions=[KERNELS]
    )
    result = model(np.array([5, -6]))[0].to_numpy()
    assert capsys.readouterr().out == "element 0 is 5\nelement 1 is -6\n"
    np.testing.assert_array_equal(result, [10, -12])
    model(np.zeros(0, np.int64))
    assert capsys.readouterr().out == ""


# *** lifetimes ***


def test_a_model_outlives_graph_and_session() -> None:
    def make() -> tuple[Model, weakref.ref[Any]]:
        graph = graphs.build(lambda x: x + ops.constant(np.arange(5.0)), (np.float64, [5]))
        session = InferenceSession()
        return session.load(graph), weakref.ref(session)

    model, session = make()
    gc.collect()
    assert session() is None
    for _ in range(3):
        gc.collect()
        np.testing.assert_array_equal(model(np.zeros(5))[0].to_numpy(), np.arange(5.0))


def test_results_outlive_the_model() -> None:
    model = graphs.load(lambda x: [x + 1.0, x], (np.float64, ["n"]))
    results = model(np.zeros(300_000)) + model(np.ones(2))
    del model
    gc.collect()
    assert [float(r.to_numpy()[-1]) for r in results] == [1, 0, 2, 1]


def test_one_graph_loaded_twice_gives_models_of_their_own() -> None:
    graph = graphs.build(lambda x: ops.sum(ops.exp(x), axis=0), (np.float64, ["n"]))
    session = InferenceSession()
    first, second = session.load(graph), session.load(graph)
    a, b = first(np.zeros(3))[0], second(np.zeros(5))[0]
    assert (a.item(), b.item(), first(np.zeros(7))[0].item()) == (3, 5, 7)


def test_many_graphs_come_and_go() -> None:
    """Distinct graphs: what stays of each is its small piece of mapped code."""

    def resident() -> int:
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc here")

    def use(number: int) -> None:
        model = graphs.load(lambda x: x * float(number) + 1.0, (np.float32, ["n"]))
        assert model(np.ones(1 << 20, np.float32))[0].to_numpy()[-1] == number + 1

    for number in range(20):
        use(number)
    gc.collect()
    before = resident()
    for number in range(20, 90):
        use(number)
    gc.collect()
    grown = resident() - before
    assert grown < 70 * 256 * 1024, f"{grown / 70 / 1024:.0f} KiB a graph"


def test_levels_of_the_log_and_of_asserts() -> None:
    log, session = logging.getLogger("einkorn"), InferenceSession()
    before = log.level
    try:
        for level, number in (("trace", 5), ("debug", logging.DEBUG), ("critical", logging.CRITICAL), ("notset", 0)):
            session.set_log_level(level)
            assert log.level == number
        session.set_mojo_log_level("warning")
        assert log.level == logging.WARNING
    finally:
        log.setLevel(before)
    session.set_assert_level("none")
    assert session.checks is not None and not session.checks.asserts
    session.set_assert_level("all")
    assert str(session.checks) == "all"
    for wrong in ("loud", 3, None):
        with pytest.raises(GraphError, match="level"):
            session.set_log_level(wrong)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="level"):
            session.set_assert_level(wrong)  # type: ignore[arg-type]
