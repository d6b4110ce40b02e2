"""The generated kernels of ops: what they serve, what they hand on to Python, what they leave behind."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from typing import TypeVar

import einkorn.torch as ek

from einkorn.dsl import DType, Floating, InputTensor, OutputTensor, foreach, register
from einkorn.dsl.diagnostics.errors import GraphError, KernelError
from einkorn.graph.interop.torch import libtorch
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as k

T = TypeVar("T", bound=Floating)


class PythonTookPart(Exception):
    pass


@pytest.fixture
def native(monkeypatch):
    """Makes an op whose calls must not go by Python from now on."""

    def op_of(kernel, *args, **parameters):
        op = ek.op(kernel)
        for _ in range(2):  # after the first a door is made; the second says that this thread has enough of a stack
            op(*args, **parameters)
            BACKGROUND.wait()

        def run(call):
            raise PythonTookPart

        monkeypatch.setattr(op._registered.fallback, "run", run)
        return op

    assert libtorch.libtorch() is not None
    return op_of


@register("doubled")
def doubled(
    out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, n: int = 2, to: DType = DType.float32, up: bool = True
):
    foreach(out, lambda i: x[i] * n + (1 if up else 0))


@register("plus_one")
def plus_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 1)


@register("scaled_by")
def scaled_by(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, scale: float = 1.0):
    foreach(out, lambda i: x[i] * scale)


@register("rows_of")
def rows_of(
    out: OutputTensor[T, "(a - b)"], half: OutputTensor[T, "(a//2)"], x: InputTensor[T, "a"], y: InputTensor[T, "b"]
):
    foreach(out, lambda i: x[i])
    foreach(half, lambda i: x[i])


def test_sizes(native):
    add_one = native(plus_one, torch.ones(3, 4))  # which no other test calls: an op is shared by all
    for shape in ((3, 4), (1, 1), (0, 7), (5, 0), (300, 500)):  # the last one by the pool
        x = torch.rand(shape)
        actual = add_one(x)
        assert torch.equal(actual, x + 1) and actual.is_contiguous() and actual.dtype == x.dtype
    for x in (torch.ones(4), torch.ones(3, 4).T, torch.ones(3, 4, dtype=torch.float64), torch.zeros(3, 8)[:, ::2]):
        with pytest.raises(PythonTookPart):
            add_one(x)
    odd = torch.zeros(20, dtype=torch.uint8)[1:17].view(2, 8)  # of this dtype and rank there is no door
    with pytest.raises(PythonTookPart):
        add_one(odd)


def test_sizes_that_belong_together(native):
    add = native(k.add, torch.ones(3), torch.ones(3))
    assert add(torch.ones(5), torch.ones(5)).tolist() == [2.0] * 5
    with pytest.raises(PythonTookPart):
        add(torch.ones(3), torch.ones(4))
    rows = native(rows_of, torch.ones(3), torch.ones(1))
    assert [t.shape for t in rows(torch.ones(5), torch.ones(3))] == [(2,), (2,)]
    with pytest.raises(PythonTookPart):
        rows(torch.ones(2), torch.ones(3))  # of -1 elements


def test_parameters(native):
    op = native(doubled, torch.ones(3), n=-3, to=torch.float64)
    assert op(torch.ones(4), n=-3, to=torch.float64).tolist() == [-2.0] * 4
    for parameters in ({}, {"n": -3}, {"n": -3, "to": torch.float64, "up": False}):
        with pytest.raises(PythonTookPart):
            op(torch.ones(4), **parameters)
    scaled = native(scaled_by, torch.ones(3), scale=0.1)
    assert torch.equal(scaled(torch.ones(2), scale=0.1), torch.full((2,), 0.1))
    with pytest.raises(PythonTookPart):
        scaled(torch.ones(2), scale=0.2)


def test_each_kind_has_a_door():
    op = ek.op(k.halves)
    dtypes = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.int16, torch.bfloat16)
    for _ in range(3):
        for dtype in dtypes:
            low, high = op(torch.arange(5, dtype=dtype))
            assert (low.dtype, low.tolist(), high.tolist()) == (dtype, [0, 1], [2, 3, 4])
        BACKGROUND.wait()
    assert len(op._registered.doors._entered) >= len(dtypes)  # other tests call the op, too


def test_failures(native):
    op = native(k.in_parallel, torch.ones(3))
    for n in (10, 100_000):
        bad = torch.ones(n)
        bad[n // 2] = -1
        with pytest.raises(KernelError, match="elements have to be positive") as caught:
            op(bad)
        assert caught.value.code == "EK0701"
        with pytest.raises(KernelError, match="elements have to be positive"):
            op.torch(bad)
        uses = bad._use_count()
        for _ in range(20):
            with pytest.raises(KernelError):
                op(bad)
        assert bad._use_count() == uses
    assert op(torch.ones(2)).tolist() == [1.0, 1.0]


def test_errors_are_freed():
    op = ek.op(k.in_parallel)
    op(torch.ones(2)), op(torch.ones(2))
    known = []
    for _ in range(5):
        with pytest.raises(KernelError) as caught:
            op(-torch.ones(2))
        known.append(weakref.ref(caught.value))
    del caught
    gc.collect()
    assert sum(error() is not None for error in known) <= 1  # the last one, until this thread fails again


def test_gradients_are_not_lost():
    op = ek.op(k.scale_and_shift)
    x = torch.ones(3)
    op(x), op(x)
    x.requires_grad_()
    with pytest.raises(GraphError, match="requires a gradient"):
        op(x)
    with pytest.raises(GraphError, match="EK0881"):
        op.torch(x)
    with torch.no_grad():
        assert op(x).tolist() == [1.0] * 3
    with torch.inference_mode():
        assert op(x).is_inference()


def test_threads_run_side_by_side(native):
    op = ek.op(k.add)
    collected = []

    def work(number):
        x = torch.full((1000 + number,), float(number))
        collected.append(all(torch.equal(op(x, x), 2 * x) for _ in range(200)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected == [True] * 4


def test_without_what_is_needed_python_serves(monkeypatch):
    @register("plain_copy")
    def plain_copy(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i])

    monkeypatch.setitem(libtorch._SHIM, "data", "no_such_function")
    libtorch.libtorch.cache_clear()
    try:
        op = ek.op(plain_copy)
        for _ in range(3):
            assert op(torch.ones(3)).tolist() == [1.0] * 3
        assert not op._registered.doors._entered
    finally:
        monkeypatch.undo()
        libtorch.libtorch.cache_clear()
    monkeypatch.setenv("EINKORN_DOORS", "0")
    for _ in range(3):
        assert op(torch.ones(3, 3)[0]).tolist() == [1.0] * 3
