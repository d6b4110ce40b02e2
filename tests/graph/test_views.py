"""Inputs that are not contiguous: read, and changed, where they lie, by code for their kind of view."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs

from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl.contract.unit import Slot, op_entry
from einkorn.dsl.diagnostics.errors import EinkornError, GraphError, PackageError
from einkorn.dsl.package.library import load_library
from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

pytestmark = pytest.mark.as_shipped

HOST = DeviceRef.CPU()
KERNELS = str(Path(__file__).parent / "view_kernels.py")
VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "rows": lambda x: x[::2],
    "columns": lambda x: x[:, 1:5],
    "backwards": lambda x: x[::-1, ::-1],
    "steps": lambda x: x[5:0:-2, ::3],
    "transposed": lambda x: x.T,
    "fortran": np.asfortranarray,
    "broadcast row": lambda x: np.broadcast_to(x[1], (4, x.shape[1])),
    "broadcast element": lambda x: np.broadcast_to(x[2, 3], (5, 3)),
    "one row": lambda x: x[3:4, ::2],
    "empty": lambda x: x[:, 3:3][::-1],
}


def custom(op: str, *values: Any, **more: Any) -> list[Any]:
    return ops.custom(op, device=HOST, values=list(values), **more)


def compare(model: Model, reference: Callable[..., Any], *arrays: Any, sums: tuple[int, ...] = ()) -> None:
    """A call with views, against the reference and against the same call with contiguous copies.

    Kernels that may add in any order (outputs `sums`) do so as the memory suggests; all else is the same to the bit.
    """
    copies = [np.array(a) for a in arrays]
    results = graphs.results(model, *arrays)
    again = graphs.results(model, *(np.ascontiguousarray(a).reshape(a.shape) for a in arrays))
    expected = reference(*copies)
    for number, (actual, same, wanted) in enumerate(zip(results, again, expected, strict=True)):
        assert number in sums or actual.tobytes() == same.tobytes()
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    for before, array in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal(before, array)


@pytest.mark.parametrize("interpret", [False, True])
def test_views_are_read_where_they_lie(interpret: bool) -> None:
    def forward(x: Any, y: Any) -> list[Any]:
        return [x * 2 + y, ops.sum(x, 1), x @ ops.transpose(y, 0, 1), ops.reshape(x, [-1]) + 1, x[:, ::-1], x]

    def reference(x: Any, y: Any) -> list[Any]:
        return [x * 2 + y, x.sum(1, keepdims=True), x @ y.T, x.reshape(-1) + 1, x[:, ::-1], x]

    types = [TensorType(DType.float32, ["m", "n"], HOST)] * 2
    model = InferenceSession(interpret=interpret).load(Graph("views", forward, types))
    x, y = graphs.numbers((6, 8), np.float32), graphs.numbers((6, 8), np.float32, 1)
    views = (
        {name: VIEWS[name] for name in ("backwards", "transposed", "broadcast row", "empty")} if interpret else VIEWS
    )
    for view in views.values():
        compare(model, reference, view(x), view(y), sums=(1, 2))
    compare(model, reference, x.T, np.ascontiguousarray(y.T), sums=(1, 2))
    compare(model, reference, np.ascontiguousarray(x), y[::-1], sums=(1, 2))
    kinds = len(model.first_caller.variants)
    compare(model, reference, x[::3, ::-2], y[::3, ::-2], sums=(1, 2))  # a kind of view that is known by now
    assert len(model.first_caller.variants) == kinds


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float16, ml_dtypes.bfloat16, np.float64])
def test_every_dtype_and_rank_has_views(dtype: Any) -> None:
    for rank in (1, 3, 8):
        shape = (3, 2, 2, 1, 2, 1, 2, 3)[:rank]
        model = graphs.load(lambda x: [x, ops.where(x == x, x, x)], (dtype, shape[::-1]))
        x = graphs.numbers(shape, dtype)
        for array in (x.T, x.T[..., ::-1], np.broadcast_to(x[(0,) * rank], shape[::-1])):
            kept = array.copy()
            for result in graphs.results(model, array):
                assert result.tobytes() == kept.tobytes()


def test_kernels_see_strides_in_elements() -> None:
    x = graphs.numbers((6, 8), np.float32)
    model = graphs.load(
        lambda x: [*custom("strides_of", x, parameters={"r": 2}), *custom("strides_of_views", x)],
        (np.float32, ["m", "n"]),
        extensions=[KERNELS],
    )
    for view in VIEWS.values():
        array = view(x)
        if array.size == 0:
            continue
        own, derived = graphs.results(model, array)
        strides = [s // 4 for s in array.strides]
        if array.flags.c_contiguous:
            strides = [array.shape[1], 1]
        assert own.tolist() == strides
        a, b = strides
        assert derived.tolist() == [2 * a, -3 * b, -3 * b, a, 3 * b, 1]
    x = graphs.numbers((2, 3, 4), np.int8)
    (scaled,) = graphs.run(lambda x: custom("strides_of", x + x, parameters={"r": 3}), x, extensions=[KERNELS])
    assert scaled.tolist() == [12, 4, 1]  # what nothing stores is row-major


def test_vectors_are_gathered_where_elements_are_apart() -> None:
    model = graphs.load(lambda x: custom("by_vectors", x), (np.float32, ["m", "n"]), extensions=[KERNELS])
    x = graphs.numbers((9, 11), np.float32)
    for view in VIEWS.values():
        compare(model, lambda x: [x + x], view(x))
    compare(model, lambda x: [x + x], x[:, 2:])


def test_views_with_negative_steps_inside_kernels() -> None:
    x = graphs.numbers((7, 9), np.int16)
    types = [TensorType(DType.int16, [3, 3], HOST)]
    forward = lambda x: [*custom("reversed_steps", x, out_types=types), *custom("flipped", x)]  # noqa: E731
    first, second = graphs.run(forward, x, extensions=[KERNELS])
    np.testing.assert_array_equal(first, x[5::-2, 5:0:-2])
    np.testing.assert_array_equal(second, x[::-1, ::-1])
    again = graphs.results(graphs.load(forward, (np.int16, (9, 7)), extensions=[KERNELS]), x.T)
    np.testing.assert_array_equal(again[0], x.T[7::-2, 5:0:-2][:3])
    np.testing.assert_array_equal(again[1], x.T[::-1, ::-1])


def test_views_are_changed_in_place() -> None:
    graph = Graph(
        "double",
        lambda y: ops.inplace_custom("double_in_place", HOST, [y]) and None,
        [BufferType(DType.float32, ["m", "n"], HOST)],
        custom_extensions=[KERNELS],
    )
    model = InferenceSession().load(graph)
    for name, view in VIEWS.items():
        base = graphs.numbers((8, 9), np.float32)
        expected = base.copy()
        target, wanted = view(base), view(expected)
        if name == "fortran":
            base, expected = target, wanted
        if not target.flags.writeable:
            continue
        wanted += wanted
        model(target)
        np.testing.assert_array_equal(base, expected)
    overlapping = np.lib.stride_tricks.as_strided(np.ones(12, np.float32), (4, 5), (4, 4))
    with pytest.raises(GraphError, match="its elements share memory") as caught:
        model(overlapping)
    assert caught.value.code == "EK0462"


def test_odd_memory_is_refused_with_its_reason() -> None:
    model = graphs.load(lambda x: x + 1, (np.float32, ["n"]))
    record = np.zeros(4, np.dtype([("a", np.float32), ("b", np.int8)]))
    raw = np.zeros(33, np.uint8)

    for array, code, message in (
        (record["a"], "EK0453", "strides of \\(5,\\) bytes, and its elements take 4"),
        (raw[1:].view(np.float32), "EK0464", "lies at 0x.*, and elements of float32 need a multiple of 4"),
    ):
        with pytest.raises(EinkornError, match=message) as caught:
            model(array)
        assert caught.value.code == code and caught.value.place is not None
    assert graphs.results(model, raw[1:1].view(np.float32))[0].shape == (0,)
    assert graphs.results(model, Buffer.from_dlpack(np.arange(6, dtype=np.float32)[::2]))[0].tolist() == [1, 3, 5]


def test_views_need_the_compiler_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = graphs.numbers((4, 6), np.float32)
    with graphs.cache_in(tmp_path / "cache"):
        load = lambda: graphs.load(lambda x: ops.exp(x), (np.float32, ["m", "n"]))  # noqa: E731
        (expected,) = graphs.results(load(), x.T)
        monkeypatch.setenv("EINKORN_NO_JIT", "1")
        model = load()
        assert graphs.results(model, x.T)[0].tobytes() == expected.tobytes()  # both from the cache
        with pytest.raises(PackageError, match="ascontiguousarray") as caught:
            model(x[::-1])
        assert caught.value.code == "EK0512"
        assert graphs.results(model, x)[0].tobytes() == expected.T.tobytes()


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "sm_80", "gfx942"])
def test_every_target_compiles_strides(target: str) -> None:
    library = load_library(KERNELS)
    for op, dtype in (("by_vectors", DType.bfloat16), ("flipped", DType.int8), ("by_vectors", DType.float64)):
        kernel = library.kernels[op].portable
        spec = op_entry(kernel, {v: dtype for v, _ in kernel.schema.typevars}, {}, {})
        strides = tuple(Slot(spec.slots + axis) for axis in range(2))
        buffers = tuple(dataclasses.replace(b, strides=strides) if b.role == "input" else b for b in spec.buffers)
        assert compile_entry(dataclasses.replace(spec, slots=spec.slots + 2, buffers=buffers), lookup(target)).asm


def test_no_kind_of_view_is_taken_for_another() -> None:
    """Sizes of one, and strides that happen to be equal, in every order of calls."""
    model = graphs.load(lambda x, y: x - y, (np.int64, ["m", "n"]), (np.int64, ["m", "n"]))
    base = np.arange(48).reshape(6, 8)
    views = [base[:3, :3], base.T[:3, :3], base[::2, 5:2:-1], base[:1, :1], base[::2, ::2][:3, :3], base[:3, ::3]]
    for x, y in itertools.permutations(views, 2):
        if x.shape == y.shape:
            np.testing.assert_array_equal(graphs.results(model, x, y)[0], x - y)
