"""Kernels are called like functions: outputs in the caller's kind, whatever dtype, rank, stride and size."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType, kernels_of
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import (
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    Graph,
    InferenceSession,
    KernelLibrary,
    TensorType,
    ops,
)
from einkorn.graph.interop.specialise import prepared

from . import direct_kernels as k

X = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64"])
def test_every_dtype_rank_stride_and_empty_size(dtype: str) -> None:
    whole = np.arange(48).astype(DType[dtype].to_numpy()).reshape(2, 4, 6)
    for x in (whole, whole[0], whole[0, 0], whole[0, 0, 0:0], whole[:, ::2, ::-1], whole.T, whole[0, :, 1], whole[1:1]):
        y = k.add_one(x)
        assert type(y) is np.ndarray and y.dtype == x.dtype and y.shape == x.shape
        np.testing.assert_array_equal(y, x + np.ones((), x.dtype))
    point = k.add_one(whole[1, 1, 1:2].reshape(()))
    assert point.shape == () and point == whole[1, 1, 1] + 1


def test_a_size_compiles_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    k.add(X, X)
    state = prepared(k.add)
    made = dict(state.known)
    models = [each.model.first_caller.variants for each in made.values()]
    for n in (0, 1, 2, 63, 64, 1000, 50_000):
        x = np.ones(n, np.float32)
        np.testing.assert_array_equal(k.add(x, x), x + x)
    assert prepared(k.add) is state and state.known == made
    assert [each.model.first_caller.variants for each in made.values()] == models


def test_numbers_are_weak() -> None:
    assert k.axpy(2, X, X).tolist() == (2 * X + X).tolist()
    assert k.axpy(2, X.astype(np.int16), X.astype(np.int16)).dtype == np.int16
    assert k.axpy(np.float64(2.5), X, X).dtype == np.float32
    assert k.add_one(3).dtype == np.int64 and k.add_one(3.5).dtype == np.float32
    assert k.add_one(np.float64(2)).dtype == np.float64 and k.add_one(np.float32(2)) == 3
    with pytest.raises(EinkornError, match="is a float and cannot become int16"):
        k.axpy(2.5, X.astype(np.int16), X.astype(np.int16))


def test_parameters_are_keywords() -> None:
    np.testing.assert_array_equal(k.scale_and_shift(X, scale=2.0, shift=1), X * 2 + 1)
    np.testing.assert_array_equal(k.scale_and_shift(X), X)
    assert k.tile_twice(X, k=3).shape == (5, 3)


def test_outputs_go_where_the_caller_says() -> None:
    y = np.empty(5, np.float32)
    assert k.add_one(X, out=y) is y and y.tolist() == [1, 2, 3, 4, 5]
    wide = np.zeros((5, 2), np.float32)
    k.add_one(X, out=wide[:, 1])
    assert wide.tolist() == [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5]]
    low, high = np.empty(2, np.float32), np.empty(3, np.float32)
    places = (low, high)
    assert k.halves(X, out=places) is places and high.tolist() == [2, 3, 4]
    first, second = k.halves(X, out=(None, high))
    assert second is high and first.tolist() == [0, 1]
    assert k.converted(X, out=np.empty(5, np.int64)).tolist() == [0, 1, 2, 3, 4]
    assert k.kept(X - 2, out=np.empty(2, np.float32)).tolist() == [1, 2]
    buffer = Buffer(DType.float32, (5,))
    assert k.add_one(X, out=buffer) is buffer and buffer.to_numpy().tolist() == [1, 2, 3, 4, 5]


def test_arguments_are_changed_in_place() -> None:
    mean = np.zeros(5, np.float32)
    assert k.follow(mean, X, 0.5) is None
    assert mean.tolist() == (X / 2).tolist()
    change = k.follow_and_return(mean, X, rate=1)
    np.testing.assert_array_equal(change, X / 2)
    np.testing.assert_array_equal(mean, X)
    wide = np.zeros((5, 2), np.float32)
    k.follow(wide[:, 0], X, 1.0)
    np.testing.assert_array_equal(wide[:, 0], X)
    assert not wide[:, 1].any()


def test_several_outputs_variadic_ones_and_late_sizes() -> None:
    assert [part.tolist() for part in k.halves(X)] == [[0, 1], [2, 3, 4]]
    np.testing.assert_array_equal(k.total_of(X, X, X), 3 * X)
    np.testing.assert_array_equal(k.total_of([X, X]), 2 * X)
    parts = k.spread(X, count=2)
    assert isinstance(parts, list) and [part[0] for part in parts] == [0, 1]
    assert k.kept(X - 2).tolist() == [1, 2] and k.kept(X[:0]).tolist() == []


def test_buffers_come_back_for_buffers() -> None:
    y = k.add_one(Buffer.from_numpy(X))
    assert isinstance(y, Buffer) and y.to_numpy().tolist() == [1, 2, 3, 4, 5]
    assert isinstance(k.add(X, Buffer.from_numpy(X)), Buffer)
    device = Accelerator("sim")
    there = Buffer.from_numpy(X).to(device)
    z = k.axpy(2.0, there, there)
    assert isinstance(z, Buffer) and z.device == device and z.to_numpy().tolist() == (3 * X).tolist()
    fresh = Buffer(DType.float32, (5,), device)
    assert k.add_one(there, out=fresh) is fresh and fresh.to_numpy().tolist() == [1, 2, 3, 4, 5]


def test_other_libraries_by_dlpack() -> None:
    class Tensor:
        """One of a library that has nothing but DLPack."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    assert k.add_one(Tensor(X)).to_numpy().tolist() == [1, 2, 3, 4, 5]

    class Own(np.ndarray): ...

    assert k.add_one(X.view(Own)).tolist() == [1, 2, 3, 4, 5]


def test_packed_dtypes() -> None:
    text = "from typing import TypeVar\nfrom einkorn.dsl import *\nS = TypeVar('S', bound=Storable)\n" + (
        '@register("same")\ndef same(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"]):\n'
        "    foreach(out, lambda i: x[i])\n"
    )
    same = kernels_of(text, name="<packed>")["same"]
    x = np.arange(7).astype(ml_dtypes.int4)
    assert same(x).dtype == x.dtype and same(x).tolist() == x.tolist()
    y = np.zeros(7, ml_dtypes.int4)
    assert same(x, out=y) is y and y.tolist() == x.tolist()


def test_computed_sizes_of_inputs() -> None:
    assert k.pairs(X[:2], X[:4]).tolist() == [0, 3]
    twice = np.arange(4, dtype=np.float32)
    assert k.swap_pairs(X[:2], twice).tolist() == [1, 3] and twice.tolist() == [0, 1, 1, 3]


def test_threads_call_one_kernel_at_once() -> None:
    wrong = []

    def work(number: int) -> None:
        for n in (10, 1000, 100_000):
            x = np.full(n, number, np.float32)
            if not (k.add(x, x) == 2 * number).all():
                wrong.append((number, n))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# *** graphs, and kernels in kernels ***

F32 = DType.float32


def test_values_of_graphs_are_staged() -> None:
    graph = Graph(
        "g", forward=lambda v: k.halves(k.scale_and_shift(v, scale=2.0)), input_types=[TensorType(F32, ["n"])]
    )
    assert [part.to_numpy().tolist() for part in InferenceSession().load(graph)(X)] == [[0, 2], [4, 6, 8]]
    both = [BufferType(F32, ["n"]), TensorType(F32, ["n"])]
    changing = Graph("g", forward=lambda b, v: k.follow(b, v, 0.5), input_types=both)
    mean = np.zeros(5, np.float32)
    InferenceSession().load(changing)(mean, X)
    np.testing.assert_array_equal(mean, X / 2)
    several = Graph("g", forward=lambda v: k.spread(v, count=3), input_types=[TensorType(F32, ["n"])])
    assert len(several.output_types) == 3
    with pytest.raises(EinkornError, match="nothing is written in place"):
        Graph("g", forward=lambda v: k.add_one(v, out=X), input_types=[TensorType(F32, ["n"])])


def test_kernels_are_extensions() -> None:
    types = [TensorType(F32, ["n"])]
    cpu = DeviceRef.CPU()
    library = KernelLibrary([k.add])

    def forward(v: Any) -> Any:
        return ops.custom("add", cpu, [ops.custom("add_one", cpu, [v])[0], ops.custom(k.add_one, cpu, [v])[0]])

    for extensions in ([k.add_one, k.add], [k.add_one, library], [str(k.__file__)]):
        graph = Graph("g", forward=forward, input_types=types, custom_extensions=extensions)
        assert InferenceSession().load(graph)(X)[0].to_numpy().tolist() == [2, 4, 6, 8, 10]
    graph = Graph(
        "g", forward=lambda v: ops.custom("add_one", cpu, [v]), input_types=types, custom_extensions=k.add_one
    )
    assert InferenceSession(custom_extensions=[k.add_one]).load(graph)(X)[0].to_numpy()[0] == 1
    for wrong in (3, lambda v: v):
        with pytest.raises(EinkornError, match="a path, a kernel or a KernelLibrary"):
            Graph("g", custom_extensions=[wrong])  # type: ignore[list-item]


CHANGING = """
from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Numeric)
K = 2.0


class Constants:
    bias = 1.0

    @staticmethod
    def more(v):
        return v + Constants.bias


def helper(v):
    return v * K


def make(factor):
    @register("closed")
    def closed(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
        foreach(out, lambda i: x[i] * factor)

    def change(value):
        nonlocal factor
        factor = value

    return closed, change


closed, change = make(2.0)


@register("scaled")
def scaled(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: Constants.more(helper(x[i])))


@register("inner")
def inner(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 1.0):
    foreach(out, lambda i: x[i] * by)


@register("outer")
def outer(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    inner(out, x, by=3.0)
    inner(out, out)
"""


def test_what_a_kernel_read_is_seen_when_it_changes() -> None:
    names: dict[str, Any] = {}
    kernels_of(CHANGING, name="<changing>", names=names)
    scaled, one = names["scaled"], np.ones(2, np.float32)
    assert scaled(one).tolist() == [3, 3]
    first = prepared(scaled)
    names["K"] = 4.0
    assert scaled(one).tolist() == [5, 5] and prepared(scaled) is not first
    names["K"] = 2.0
    assert scaled(one).tolist() == [3, 3] and prepared(scaled) is first, "what was compiled is found again"
    names["Constants"].bias = 2.0
    assert scaled(one).tolist() == [4, 4]
    exec("def helper(v):\n    return v * 10\n", names)
    with pytest.raises(EinkornError, match="source of 'helper'"):
        scaled(one)
    names["helper"] = kernels_of.__class__  # a class without a meaning
    with pytest.raises(EinkornError):
        scaled(one)
    names["closed"](one)
    names["change"](7.0)
    assert names["closed"](one).tolist() == [7, 7]
    read = {name for _, name, _ in prepared(names["closed"]).reads.globals}
    assert "foreach" in read and not {"T", "OutputTensor"} & read


def test_a_helper_whose_code_is_replaced_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As IPython's autoreload does with the functions of a module that was written anew."""
    (tmp_path / "replaced_helpers.py").write_text("def twice(v):\n    return v * 2\n")
    (tmp_path / "replaced_kernels.py").write_text(CALLS_HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kernels = importlib.import_module("replaced_kernels")
    try:
        helper, module = kernels.twice, sys.modules["replaced_helpers"]
        for _ in range(4):  # the last ones go through a door
            assert kernels.doubled(X).tolist() == (2 * X).tolist()
        (tmp_path / "replaced_helpers.py").write_text("\ndef twice(v):\n    return v * 7\n")
        importlib.invalidate_caches()
        importlib.reload(module)
        helper.__code__ = module.twice.__code__
        for _ in range(4):
            assert kernels.twice is helper and kernels.doubled(X).tolist() == (7 * X).tolist()
    finally:
        del sys.modules["replaced_kernels"], sys.modules["replaced_helpers"]


CALLS_HELPER = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from replaced_helpers import twice


@register("doubled")
def doubled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: twice(x[i]))
"""


def test_kernels_call_kernels() -> None:
    names: dict[str, Any] = {}
    kernels_of(CHANGING, name="<changing>", names=names)
    assert names["outer"](X).tolist() == (3 * X).tolist()


# *** what stops in the middle ***


def test_a_failing_assert_says_where_and_nothing_is_left() -> None:
    for kernel in (k.positive, k.in_parallel):
        for n in (4, 200_000):
            x = np.ones(n, np.float32)
            x[n // 2] = -1
            with pytest.raises(KernelError, match="elements have to be positive") as caught:
                kernel(x)
            assert caught.value.place is not None and caught.value.place.file.endswith("direct_kernels.py")
            assert any("was called at" in note and "test_direct.py" in note for note in caught.value.notes)
            assert not any("graph" in note for note in caught.value.notes)
            assert kernel(np.ones(n, np.float32)).all()


def test_ten_threads_fail_each_with_its_own_error() -> None:
    collected: list[bool] = []

    def work(number: int) -> None:
        x = np.ones(50_000, np.float32)
        x[number] = -1
        try:
            k.in_parallel(x if number % 2 else np.ones(10, np.float32))
            collected.append(number % 2 == 0)
        except KernelError:
            collected.append(number % 2 == 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected == [True] * 10
