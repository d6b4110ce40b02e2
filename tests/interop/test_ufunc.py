"""Elementwise kernels are ufuncs of NumPy; other kernels say why they are none."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import CompileError, EinkornError, KernelError
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.graph.interop.python_ufunc import PythonUfunc
from einkorn.graph.interop.ufunc import ufunc_of

from . import elementwise_kernels as k

pytestmark = pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="loops cannot raise before NumPy 2.0")


def test_a_ufunc_has_a_loop_for_each_dtype() -> None:
    plus = ufunc_of(k.plus)
    assert isinstance(plus, np.ufunc) and plus is k.plus.ufunc
    assert (plus.nin, plus.nout, plus.identity, plus.__name__) == (2, 1, 0, "plus")
    assert "Adds two tensors." in (plus.__doc__ or "")
    assert plus.types == [f"{c}{c}->{c}" for c in "BHILbhilefd"]
    for dtype in (np.int8, np.uint8, np.int16, np.uint64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        x = np.arange(5).astype(dtype)
        actual = plus(x, x)
        assert actual.dtype == dtype and np.array_equal(actual, x + x)


def test_numpy_converts_broadcasts_and_strides() -> None:
    minus = ufunc_of(k.minus)
    x = np.random.default_rng(1).standard_normal((6, 1030)).astype(np.float32)
    y = np.asfortranarray(x[::-1] * 2)
    cases: list[tuple[Any, Any]] = [
        (x, y),
        (x[::2], y[:3]),
        (x[:, ::-1], 1.0),
        (x[:, :1], y[0]),
        (x.T, y.T),
        (x[1], y[1][::-1]),
        (x[:0], y[:0]),
        (np.float32(3), np.float32(4)),
        (x, np.int8(3)),
        (np.arange(7), np.arange(7)[::-1]),
        (x.astype(">f4"), y),
        (np.frombuffer(b"\0" + x[0].tobytes(), dtype=np.float32, offset=0, count=3), 2.0),
    ]
    for a, b in cases:
        wanted = np.subtract(a, b, dtype=minus(a, b).dtype)
        assert np.array_equal(minus(a, b), wanted) and minus(a, b).shape == wanted.shape
    assert minus(np.arange(3), 1).dtype == np.float64


def test_out_where_and_overlaps() -> None:
    minus = ufunc_of(k.minus)
    x = np.arange(2000, dtype=np.float64)
    out = np.full_like(x, -1)
    assert minus(x, 1.0, out=out, where=x > 5) is out
    assert np.array_equal(out, np.where(x > 5, x - 1, -1))
    for make in (lambda v: v, lambda v: v[::-1], lambda v: v[::2]):
        ours, theirs = x.copy(), x.copy()
        minus(make(ours), 3.0, out=make(ours))
        np.subtract(make(theirs), 3.0, out=make(theirs))
        assert np.array_equal(ours, theirs)
    ours, theirs = x.copy(), x.copy()
    minus(ours[1:], ours[:-1], out=ours[:-1])
    np.subtract(theirs[1:], theirs[:-1], out=theirs[:-1])
    assert np.array_equal(ours, theirs)
    strided = np.zeros((3, 50))
    minus(x[:50], 1.0, out=strided.T[:, 1])
    assert np.array_equal(strided[1], x[:50] - 1) and not strided[[0, 2]].any()


def test_reductions_are_in_order() -> None:
    minus = ufunc_of(k.minus)
    x = np.random.default_rng(2).standard_normal((40, 33))
    for axis in (0, 1, None):
        if axis is not None:
            assert np.array_equal(minus.reduce(x, axis=axis), np.subtract.reduce(x, axis=axis))
            assert np.array_equal(minus.accumulate(x, axis=axis), np.subtract.accumulate(x, axis=axis))
    assert np.array_equal(minus.reduceat(x[0], [0, 5, 9]), np.subtract.reduceat(x[0], [0, 5, 9]))
    assert np.array_equal(minus.outer(x[0], x[1]), np.subtract.outer(x[0], x[1]))
    at = x[0].copy()
    minus.at(at, [1, 1, 3], 2.0)
    assert at[1] == x[0, 1] - 4 and at[3] == x[0, 3] - 2


def test_several_outputs_and_parameters() -> None:
    whole, rest = ufunc_of(k.parts)(np.array([1.5, -2.25], np.float32))
    assert whole.dtype == np.int32 and whole.tolist() == [1, -2] and rest.tolist() == [0.5, -0.25]
    assert ufunc_of(k.scaled)(np.ones((2, 2))).tolist() == [[2, 2], [2, 2]]  # the signature's "n" is any row


def test_a_kernel_that_stops_itself_raises() -> None:
    root = ufunc_of(k.root)
    for x in (np.array([1, -1], np.float32), np.full((70, 1000), -1, np.float32)[:, ::3]):
        with pytest.raises(KernelError, match=r"no root of"):
            root(x)
    errors = []

    def call() -> None:
        try:
            root(np.full(10_000, -1, np.float32))
        except KernelError as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 10 and root(np.float32(4)) == 4


@pytest.mark.parametrize(
    "kernel, why",
    [
        (k.next_one, "it reads other elements of 'x'"),
        (k.ramp, "it computes with the index"),
        (k.share, "it computes with sizes"),
        (k.matrix, 'its tensors have the dims "m n"'),
        (k.changed, "it changes 'x' in place"),
        (k.with_number, "'a' is one number for all elements"),
    ],
)
def test_other_kernels_are_refused(kernel: Any, why: str) -> None:
    with pytest.raises(EinkornError, match=why) as caught:
        ufunc_of(kernel)
    assert caught.value.code == "EK0898" and caught.value.place is not None
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("variable", [("EINKORN_DOORS", "0"), ("EINKORN_CHECKS", "all")])
def test_without_loops_python_gives_the_same(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    native: list[Any] = [ufunc_of(kernel) for kernel in (k.plus, k.minus, k.parts, k.root)]
    x = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    whole, out = np.arange(6, dtype=np.int8), np.zeros((4, 6))

    def results(plus: Any, minus: Any, parts: Any, root: Any) -> Iterator[Any]:
        yield from (plus(x, 1), plus(x[:, ::2], x[:1, 1::2]), plus(whole, 1.5), plus(whole, whole), minus(1, 2.5))
        yield from (
            plus(True, 2),
            minus(x.astype(np.float16), x),
            plus(x[:, None], whole),
            *parts(x.T),
            root(np.float32(4)),
        )
        yield from (plus(x, x, where=x > 0, out=np.ones((4, 6), np.float32)), minus(x, 1, out=out), plus(x[:0], 1))
        yield root(np.array([4.0, -1.0], np.float32), where=np.array([True, False]), out=np.zeros(2, np.float32))
        yield from (plus.reduce(x), plus.reduce(x, axis=1, keepdims=True), plus.accumulate(x, axis=1), plus.outer(x, x))
        yield from (plus.reduceat(x, [0, 2]), plus(x, x, dtype=np.float64))
        counted = np.zeros(6, np.int64)
        plus.at(counted, [1, 1, 3], 2)
        yield counted

    wanted = list(results(*native))
    monkeypatch.setenv(*variable)
    python: list[Any] = [ufunc_of(kernel) for kernel in (k.plus, k.minus, k.parts, k.root)]
    assert all(type(each) is PythonUfunc for each in python) and python[0] is k.plus.ufunc
    for got, expected in zip(results(*python), wanted, strict=True):
        assert type(got) is type(expected) and got.dtype == expected.dtype and np.array_equal(got, expected)
    for one, other in zip(python, native, strict=True):
        assert (one.nin, one.nout, one.nargs, one.types, one.__name__, one.__doc__) == (
            *(other.nin, other.nout, other.nargs, other.types, other.__name__),
            k.plus.schema.doc if other is native[0] else one.__doc__,
        )
    for error, call in (
        (KernelError, lambda: python[3](-x * x)),
        (TypeError, lambda: python[0](x, None)),
        (TypeError, lambda: python[0](x)),
        (TypeError, lambda: python[0](x, x, out=np.zeros((4, 6), np.int8))),
        (ValueError, lambda: python[0](x, x[:3])),
        (ValueError, lambda: python[0](x, x, out=np.zeros(6))),
        (ValueError, lambda: python[3].reduce(x)),
    ):
        with pytest.raises(error):
            call()
    monkeypatch.undo()
    assert k.plus.ufunc is native[0]


def test_a_mistake_in_the_kernel_is_shown() -> None:
    with pytest.raises(CompileError, match="nothing") as caught:
        ufunc_of(k.mistaken)
    assert caught.value.place is not None and caught.value.place.file == k.__file__


def test_operations_of_known_monoids_have_identities_and_reduce_along_several_axes() -> None:
    x = np.random.default_rng(3).standard_normal((3, 4, 5))
    pairs: list[tuple[Any, np.ufunc]] = [(k.plus, np.add), (k.times, np.multiply), (k.larger, np.maximum)]
    for kernel, theirs in pairs:
        ours = kernel.ufunc
        assert ours.identity == theirs.identity
        axes: list[Any] = [(0, 1), (0, 2), (1, 2), None, 1]
        for axis in axes:
            np.testing.assert_allclose(ours.reduce(x, axis=axis), theirs.reduce(x, axis=axis))
    assert k.plus.ufunc.reduce(x[:0], axis=0).tolist() == np.zeros((4, 5)).tolist()
    assert k.times.ufunc.reduce(np.zeros((2, 0)), axis=(0, 1)) == 1
    assert np.signbit(k.plus.ufunc.reduce(np.full((2, 3), -0.0), axis=(0, 1)))
    masked = {"axis": (0, 2), "where": x > 0}
    np.testing.assert_allclose(k.plus.ufunc.reduce(x, **masked), np.add.reduce(x, **masked))
    masks = np.array([[6, 3], [2, 7]], np.uint8)
    for kernel, theirs in ((k.common_bits, np.bitwise_and), (k.all_bits, np.bitwise_or)):
        assert kernel.ufunc.reduce(masks, axis=None) == theirs.reduce(masks, axis=None)
        assert kernel.ufunc.reduce(masks[:0]).tolist() == theirs.reduce(masks[:0]).tolist()
    with pytest.raises(ValueError, match="no identity"):
        k.larger.ufunc.reduce(x[:0])
    for kernel in (k.minus, k.first_twice, k.mean):  # another operation, one input twice, two operations
        assert kernel.ufunc.identity is None
        with pytest.raises(ValueError, match="reorderable"):
            kernel.ufunc.reduce(x, axis=(0, 1))


def test_identities_are_the_same_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_DOORS", "0")
    test_operations_of_known_monoids_have_identities_and_reduce_along_several_axes()


def test_the_attribute_is_read_without_python_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(3, np.float32)
    native = k.shifted.ufunc
    assert native(x).tolist() == [3, 3, 3]
    entered: list[str] = []

    def entries() -> Any:
        entered.clear()
        sys.setprofile(lambda frame, event, argument: entered.append(event) if event == "call" else None)
        try:
            return k.shifted.ufunc
        finally:
            sys.setprofile(None)

    assert entries() is native and not entered
    monkeypatch.setattr(k, "SHIFT", 5.0)
    assert entries() is not native and entered
    assert k.shifted.ufunc(x).tolist() == [6, 6, 6] and entries() is not native and not entered
    monkeypatch.undo()
    assert k.shifted.ufunc is native and entries() is native and not entered
    assert (k.shifted(x) == 3).all() and type(k.shifted).ufunc.__doc__ == Kernel.ufunc.__doc__
