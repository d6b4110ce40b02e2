"""Elementwise kernels go through arrays in the order in which they lie, and outputs lie as inputs do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph.interop.arranged import arranged, order_of
from einkorn.graph.interop.specialise import prepared
from einkorn.graph.loading.background import BACKGROUND

from . import elementwise_kernels as k

IMAGES = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5).transpose(0, 3, 1, 2)  # channels last
BIAS = np.arange(5, dtype=np.float32).reshape(5, 1, 1)


@st.composite
def layouts(draw: Any, count: int) -> list[Any]:
    """Arrays of shapes that broadcast, each with its axes in an order of its own, some with steps."""
    common = draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    first = draw(st.permutations(range(len(common))))
    collected = []
    for number in range(count):
        order = first if draw(st.booleans()) else draw(st.permutations(range(len(common))))
        steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in common]
        base = np.zeros([common[axis] * abs(steps[axis]) for axis in order], np.float32)
        base[...] = np.arange(base.size).reshape(base.shape) + number
        view = base.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
        repeated = [draw(st.integers(0, 5)) == 0 for _ in common]
        view = view[tuple(slice(0, 1) if each else slice(None) for each in repeated)]
        collected.append(view[(0,) * draw(st.integers(0, len(common) - 1))] if draw(st.integers(0, 3)) == 0 else view)
    return collected


@settings(max_examples=40, deadline=None, derandomize=True)
@given(layouts(2), st.booleans())
def test_values_and_strides_are_numpys(values: list[Any], into: bool) -> None:
    wanted = np.subtract(*values)
    for _ in range(3):
        if into:
            out = np.zeros_like(wanted)
            assert k.minus(*values, out=out) is out
            assert np.array_equal(out, wanted)
        actual = k.minus(*values)
        assert np.array_equal(actual, wanted) and actual.flags.writeable
        if min(wanted.shape) > 1:
            assert actual.strides == wanted.strides, [value.strides for value in values]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(layouts(3))
def test_the_order_is_that_of_numpys_outputs(values: list[Any]) -> None:
    shape = np.broadcast_shapes(*(value.shape for value in values))
    wanted = np.nditer([*values, None], order="K", flags=["external_loop", "zerosize_ok"],
                       op_flags=[["readonly"]] * 3 + [["writeonly", "allocate"]]).operands[-1]  # fmt: skip
    order = order_of([(value.shape, value.strides) for value in values], len(shape)) or tuple(range(len(shape)))
    if min(shape) > 1:
        strides = [wanted.strides[axis] for axis in order]
        assert strides == sorted(strides, reverse=True)


def test_calls_that_keep_their_order() -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert arranged((0, 1), (x, x), {}) is None
    assert arranged((0, 1), (x.T, x.reshape(4, 3)), {}) is None  # their orders differ
    assert arranged((0, 1), (x.T, x[0]), {}) is None  # shapes that do not broadcast
    assert arranged((0, 1), (x.T[:0], x.T[:0]), {}) is None
    assert arranged((0, 1), (x.T, x.T), {"out": np.empty((4, 3))}) is None
    actual = arranged((0, 1), (x.T, 2.0), {"out": np.empty((3, 4)).T})
    assert actual is not None and actual.order == (1, 0) and actual.args[0].flags.c_contiguous


def test_channels_last_stays_channels_last() -> None:
    for _ in range(4):
        for x, y in ((IMAGES, IMAGES), (IMAGES, BIAS), (BIAS, IMAGES), (IMAGES, 2.0)):
            actual = k.plus(x, y)
            assert actual.strides == IMAGES.strides and np.array_equal(actual, np.add(x, y))
        low, high = k.both(IMAGES, IMAGES, BIAS)
        assert low.strides == high.strides == IMAGES.strides
        assert np.array_equal(low, IMAGES * 2) and np.array_equal(high, IMAGES - BIAS)
        out = np.empty_like(IMAGES)
        assert k.plus(IMAGES, BIAS, out=out) is out and np.array_equal(out, IMAGES + BIAS)
        parts = np.empty_like(IMAGES), np.empty_like(IMAGES)
        assert k.both(IMAGES, BIAS, IMAGES, out=parts) is parts and np.array_equal(parts[0], IMAGES + BIAS)


def test_a_door_serves_transposed_arrays() -> None:
    kernel, x = k.raised, np.arange(1.0, 13).reshape(3, 4)
    for size in (3, 2):
        for _ in range(3):
            actual = kernel(x[:size].T, x[:size].T)
            assert actual.flags.f_contiguous and actual.shape == (4, size)
        BACKGROUND.wait()
    assert actual.base is None and kernel(x[:1].T, x[:1].T).shape == (4, 1)
    assert prepared(kernel).fast_path.counter.doors == 1
    for other in (x.T, x.reshape(4, 3)[:, ::-1], x.reshape(4, 3)):  # what the door does not serve
        assert np.array_equal(kernel(x.T, other), x.T / other)
    with pytest.raises(EinkornError, match="assertion failed"):
        kernel(x.T, np.zeros((3, 4)).T)


def test_out_of_an_arranged_call_shares_nothing() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for _ in range(4):
        with pytest.raises(EinkornError, match="shares memory") as caught:
            k.minus(x.T, x.T, out=x.T)
        assert caught.value.code == "EK0462"
    assert np.array_equal(x.ravel(), np.arange(12))


def test_kernels_that_compute_with_the_index_keep_the_order() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    wanted = x.T + x.T * np.arange(4, dtype=np.float32)[:, None]
    for _ in range(3):
        actual = k.row_sums(x.T, x.T)
        assert np.array_equal(actual, wanted) and actual.flags.c_contiguous


def test_errors_show_the_shapes_of_the_call() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.raises(EinkornError, match="'T' is float32 in argument 'x' but int64"):
        k.plus(x.T, np.arange(12).reshape(3, 4).T)
    with pytest.raises(EinkornError, match=r"dims '\*s' are \[4, 3\] in argument 'x' but \[4, 2\]"):
        k.plus(x.T, x[:2].T)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.int32, np.float64])
@pytest.mark.parametrize("shape", [(64, 64), (70, 133), (3, 65, 18), (2, 5, 9, 40)])
def test_arrays_whose_orders_differ(dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """Whole tiles and what is left over at their edges, with steps, backwards, and from arrays that begin anywhere."""
    x = (np.arange(np.prod(shape)) % 97).reshape(shape).astype(dtype)
    base = (np.arange(np.prod(shape) + 3) % 89).astype(dtype)[3:]
    turned = base.reshape(shape[::-1]).transpose()
    stepped = np.repeat(turned.copy(order="F"), 2, 0)[::2]
    for y in (turned, turned[..., ::-1], turned[::-1], stepped, np.moveaxis(base.reshape(*shape[1:], shape[0]), -1, 0)):
        wanted = np.add(x, y)
        out = np.zeros_like(wanted)
        assert np.array_equal(k.plus(x, y), wanted)
        assert np.array_equal(k.plus(y, x, out=out), wanted) and np.array_equal(out, wanted)
