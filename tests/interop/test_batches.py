"""Kernels that compute the members of a batch independently are found, whatever the rank; others never are."""

from __future__ import annotations

import numpy as np
import pytest

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.graph import DType
from einkorn.graph.interop.elementwise import batch_axes, same_member
from einkorn.graph.interop.specialise import specialise

from .batch_kernels import DEPENDENT, INDEPENDENT, across, along, arguments


def made_for(kernel, arrays):
    return specialise(kernel, [(DType.from_numpy(np.asarray(a).dtype), np.ndim(a)) for a in arrays])


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_members(name):
    """One member is computed alike in batches of one to three axes, and by a call of its own."""
    kernel, sizes, oracle = INDEPENDENT[name]
    collected = []
    for batch in ((3,), (2, 3), (2, 1, 3)):
        arrays = arguments(sizes, *batch)
        made = made_for(kernel, arrays)
        axes = batch_axes(made, [np.ndim(a) for a in arrays])
        assert axes is not None and max(axes) == len(batch)
        collected.append((made, axes))
    assert all(same_member(collected[0][0], made, collected[0][1], max(axes) - 1) for made, axes in collected)
    arrays = arguments(sizes, 6)
    results = as_tuple(kernel(*arrays))
    for result, expected in zip(results, as_tuple(oracle(*arrays)), strict=True):
        assert np.allclose(result, expected, rtol=1e-5, atol=1e-6)
    axes = batch_axes(made_for(kernel, arrays), [np.ndim(a) for a in arrays])
    assert axes is not None
    for part in (slice(0, 2), slice(2, 6)):
        own = as_tuple(kernel(*(a[part] if count else a for a, count in zip(arrays, axes, strict=True))))
        assert all(np.allclose(one, whole[part], rtol=1e-6) for one, whole in zip(own, results, strict=True))


@pytest.mark.parametrize("kernel", DEPENDENT, ids=lambda kernel: kernel.schema.name)
def test_members_that_depend_on_others(kernel):
    for batch in ((3,), (2, 3)):
        arrays = arguments("4", *batch)
        assert batch_axes(made_for(kernel, arrays), [np.ndim(a) for a in arrays]) is None
    x = arguments("4", 6)[0]
    whole = kernel(x)
    apart = np.concatenate([kernel(x[:2]), kernel(x[2:])])
    assert not np.allclose(whole, apart)  # a split would change what is computed


@pytest.mark.parametrize("kernel", [across, along], ids=["a view", "a tensor"])
def test_rows_with_a_tensor_of_the_batch_along_them(kernel):
    """With as many rows as each has elements, numbers of other rows are read."""
    arrays = arguments("5", 5) + ([] if kernel is across else arguments("w5"))
    assert batch_axes(made_for(kernel, arrays), [np.ndim(a) for a in arrays]) is None
    x, y = arrays[0], arrays[-1] if kernel is along else arrays[0][:, 0]
    assert np.allclose(kernel(*arrays), x @ y, rtol=1e-5)


def test_signatures_without_a_batch():
    @register("batches::of_two_axes")
    def of_two_axes(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
        foreach(out, lambda i: x[i])

    @register("batches::after")
    def after(out: OutputTensor[float32, "n *b"], x: InputTensor[float32, "n *b"]):
        foreach(out, lambda i: x[i])

    x = np.ones((2, 3), np.float32)
    assert batch_axes(made_for(of_two_axes, [x]), [2]) is None
    assert batch_axes(made_for(after, [x]), [2]) is None


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)
