"""Reductions, softmax, matrix products and movement of the graph against NumPy, over ranks, axes and symbolic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.graphs import FLOATS, HALVES, Array, Case, numbers

from einkorn.graph import Dim, DType, ops


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


# *** reductions ***


def _rounded_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference in float64, rounded to the dtype once; integers as they are."""

    def wide(x: Array, **keywords: Any) -> Any:
        if x.dtype.kind in "iu":
            return np.asarray(function(x, **keywords)).astype(x.dtype)
        return np.asarray(function(x.astype(np.float64), **keywords)).astype(x.dtype)

    return wide


def _sum(axis: Any, keepdims: bool = True) -> Case:
    keywords = {"axis": axis, "keepdims": keepdims}
    return (lambda x: ops.sum(x, **keywords)), (lambda x: _rounded_once(np.sum)(x, **keywords))


def _mean(axis: Any, keepdims: bool = True) -> Case:
    keywords = {"axis": axis, "keepdims": keepdims}

    def reference(x: Array) -> Any:
        return np.mean(x, **keywords) if x.dtype.kind in "iu" else _rounded_once(np.mean)(x, **keywords)

    return (lambda x: ops.mean(x, **keywords)), reference


def _plain(name: str, axis: Any, keepdims: bool = True) -> Case:
    """max, min, argmax, argmin"""
    keywords = {"axis": axis, "keepdims": keepdims}
    return (lambda x: getattr(ops, name)(x, **keywords)), (lambda x: getattr(np, name)(x, **keywords))


def test_reductions_of_other_ranks() -> None:
    flat: dict[str, Case] = {
        "sum": _sum(0),
        "mean": _mean(None, False),
        "argmin": _plain("argmin", -1),
        "min": _plain("min", None),
    }
    graphs.check(flat, np.abs(numbers((6,), np.float32, 1)), ulps=4)
    deep: dict[str, Case] = {"sum": _sum((1, 3), False), "mean": _mean((0, -2)), "max": _plain("max", (3, 1))}
    graphs.check(deep, np.abs(numbers((2, 3, 4, 5), np.float32, 1)), ulps=4)
    x = np.float32(3.5).reshape(())
    outputs = graphs.run(lambda x: [ops.sum(x, axis=None), ops.mean(x, axis=()), ops.max(x, axis=None)], x)
    assert [float(o) for o in outputs] == [3.5] * 3


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_reductions_over_nothing() -> None:
    x = np.zeros((3, 0, 2), np.float32)
    cases = {"sum": _sum(1), "all": _sum(None), "mean": _mean((0, 1)), "last": _mean(-1, False)}
    model = graphs.check(cases, x, shapes=[["a", "b", "c"]])
    graphs.compare(model, cases, np.zeros((0, 4, 2), np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_keep_nan_and_first_places(dtype: Any) -> None:
    x = numbers((6, 300), dtype, 2)
    x[1, 217] = math.nan
    x[2, 3] = x[2, 250] = math.inf
    x[3, 5] = x[3, 299] = -math.inf
    x[4, :] = 2
    x[5, :] = -math.inf
    names = ("max", "min", "argmax", "argmin")
    cases = {f"{name} {axis}": _plain(name, axis) for name in names for axis in (-1, 0)}
    graphs.check(cases, x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype: Any) -> None:
    def softmax(x: Array, axis: int) -> Array:
        wide = x.astype(np.float64)
        shifted = np.exp(wide - wide.max(axis, keepdims=True))
        return np.asarray((shifted / shifted.sum(axis, keepdims=True)).astype(x.dtype))

    def logsoftmax(x: Array, axis: int) -> Array:
        wide = x.astype(np.float64)
        shifted = wide - wide.max(axis, keepdims=True)
        return np.asarray((shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))).astype(x.dtype))

    model = graphs.load(
        lambda x: [op(x, axis) for axis in (-1, 0) for op in (ops.softmax, ops.logsoftmax)], (dtype, ["a", "b", "c"])
    )
    unit = float(ml_dtypes.finfo(dtype).eps)
    inputs = [numbers((3, 5, 7), dtype, 1), numbers((2, 4, 130), dtype, 1) * np.array(20, dtype)]
    for x in (*inputs, numbers((1, 1, 1), dtype, 1), np.full((2, 3, 5), 1e4, dtype)):
        expected = [f(x, axis) for axis in (-1, 0) for f in (softmax, logsoftmax)]
        for got, wanted in zip(graphs.results(model, x), expected, strict=True):
            assert got.dtype == x.dtype
            # A logarithm of almost 1 is a difference of numbers of size 1, in float32 at least.
            np.testing.assert_allclose(
                got.astype(np.float64), wanted.astype(np.float64), rtol=16 * unit, atol=8 * min(unit, 1.2e-7)
            )


# *** matrix products ***

PRODUCTS = (
    ((3, 4), (4, 5)),
    ((1, 1), (1, 1)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 1, 3, 4), (1, 6, 4, 5)),
    ((2, 3, 0), (2, 0, 5)),
    ((0, 4), (4, 5)),
    ((3, 4), (4, 0)),
    ((0, 3, 4), (4, 5)),
)


@pytest.mark.parametrize("dtype", (np.float32, np.int32, ml_dtypes.bfloat16))
def test_products_of_all_ranks(dtype: Any) -> None:
    """One graph of many inputs: small whole numbers, so every result is exact."""
    arrays = []
    for left, right in PRODUCTS:
        for seed, shape in enumerate((left, right)):
            arrays.append(np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(dtype))
    outputs = graphs.run(lambda *v: [a @ b for a, b in zip(v[::2], v[1::2], strict=True)], *arrays)
    for (left, right), output, a, b in zip(PRODUCTS, outputs, arrays[::2], arrays[1::2], strict=True):
        wanted = (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype)
        trouble = graphs.difference(output, np.asarray(wanted))
        assert trouble is None, f"{left} @ {right}: {trouble}"


@pytest.mark.parametrize(
    "dtype", (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.int64)
)
def test_products_of_odd_sizes(dtype: Any) -> None:
    model = graphs.load(lambda a, b: [a @ b, b.T @ a.T], (dtype, ["m", "k"]), (dtype, ["k", "n"]))
    for m, k, n in ((1, 7, 1), (5, 300, 3), (67, 33, 129), (130, 1, 65), (2, 0, 3)):
        a, b = numbers((m, k), dtype, 1), numbers((k, n), dtype, 2)
        product, transposed = graphs.results(model, a, b)
        if np.dtype(dtype).kind in "iu":
            with np.errstate(all="ignore"):
                assert graphs.difference(product, a @ b) is None
                assert graphs.difference(transposed, (a @ b).T) is None
            continue
        exact = a.astype(np.float64) @ b.astype(np.float64)
        scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        eps = float(ml_dtypes.finfo(dtype).eps)
        own = 1.2e-7 if np.dtype(dtype) in HALVES else eps
        for got, wanted, size in ((product, exact, scale), (transposed, exact.T, scale.T)):
            assert got.dtype == dtype and got.shape == wanted.shape
            error = np.abs(got.astype(np.float64) - wanted)
            assert (error <= eps * np.abs(wanted) + own * max(k, 1) * size).all(), (m, k, n)


def test_products_keep_nan_and_inf() -> None:
    a, b = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)
    a[0, 1], a[1, 2], b[3, 2] = math.nan, math.inf, -math.inf
    (product,) = graphs.run(lambda a, b: a @ b, a, b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(product, a @ b)


def test_products_with_plain_operands() -> None:
    x = numbers((4, 4), np.float64, 1)
    eye = np.eye(4, dtype=np.int64)
    left, right = graphs.run(lambda x: [eye @ x, x @ (2 * eye)], x)
    np.testing.assert_array_equal(left, x)
    np.testing.assert_array_equal(right, 2 * x)


# *** movement ***

MOVES: dict[str, Case] = {
    "reshape": (lambda x: ops.reshape(x, [6, 20]), lambda x: x.reshape(6, 20)),
    "reshape -1": (lambda x: ops.reshape(x, [4, -1, 5]), lambda x: x.reshape(4, -1, 5)),
    "reshape flat": (lambda x: x.reshape([-1]), lambda x: x.reshape(-1)),
    "reshape twice": (lambda x: ops.reshape(ops.reshape(x, [-1]), [5, 24]).T, lambda x: x.reshape(5, 24).T),
    "flatten": (ops.flatten, lambda x: x.reshape(-1)),
    "flatten some": (lambda x: ops.flatten(x, 1, 2), lambda x: x.reshape(2, 12, 5)),
    "flatten one": (lambda x: ops.flatten(x, -1, -1), lambda x: x),
    "transpose": (lambda x: ops.transpose(x, 0, -1), lambda x: x.swapaxes(0, -1)),
    "T": (lambda x: x.T, lambda x: x.swapaxes(-1, -2)),
    "permute": (lambda x: ops.permute(x, [2, 0, -1, 1]), lambda x: x.transpose(2, 0, 3, 1)),
    "permute twice": (
        lambda x: ops.permute(ops.permute(x, [3, 2, 1, 0]), [1, 0, 3, 2]),
        lambda x: x.transpose(3, 2, 1, 0).transpose(1, 0, 3, 2),
    ),
    "permute and reshape": (
        lambda x: ops.reshape(ops.permute(x, [1, 3, 0, 2]), [15, 8]),
        lambda x: x.transpose(1, 3, 0, 2).reshape(15, 8),
    ),
    "unsqueeze": (lambda x: ops.unsqueeze(x, 2), lambda x: x[:, :, None]),
    "unsqueeze last": (lambda x: ops.unsqueeze(x, -1), lambda x: x[..., None]),
    "squeeze": (lambda x: ops.squeeze(x[1:2], 0), lambda x: x[1]),
    "broadcast_to": (
        lambda x: ops.broadcast_to(x[:, :1], [3, 2, 7, 4, 5]),
        lambda x: np.broadcast_to(x[:, :1], (3, 2, 7, 4, 5)),
    ),
    "concat": (lambda x: ops.concat([x, x[:1], x], 0), lambda x: np.concatenate([x, x[:1], x], 0)),
    "concat last": (lambda x: ops.concat([x[..., 3:], x], -1), lambda x: np.concatenate([x[..., 3:], x], -1)),
    "concat empty": (lambda x: ops.concat([x[:0], x, x[2:]], 0), lambda x: x),
    "concat one": (lambda x: ops.concat([x], 1), lambda x: x),
    "concat constant": (
        lambda x: ops.concat([x, np.zeros((2, 3, 1, 5), np.int64)], 2),
        lambda x: np.concatenate([x, np.zeros((2, 3, 1, 5), x.dtype)], 2),
    ),
    "stack": (lambda x: ops.stack([x, x]), lambda x: np.stack([x, x])),
    "stack inside": (lambda x: ops.stack([x, x, x], 2), lambda x: np.stack([x, x, x], 2)),
    "stack last": (lambda x: ops.stack([x, x], -1), lambda x: np.stack([x, x], -1)),
    "split": (lambda x: ops.split(x, [1, 2, 1], 2)[1], lambda x: x[:, :, 1:3]),
    "split nothing": (lambda x: ops.split(x, [0, 4], 2)[0], lambda x: x[:, :, :0]),
    "chunk": (lambda x: ops.chunk(x, 2, -2)[1], lambda x: x[:, :, 2:]),
    "chunks swapped": (
        lambda x: ops.concat(ops.chunk(x, 2, 2)[::-1], 2),
        lambda x: np.concatenate([x[:, :, 2:], x[:, :, :2]], 2),
    ),
}
# fmt: off
INDICES: tuple[Any, ...] = (
    0, -1, slice(1, 2), slice(None, None, -1), np.s_[:, 1], np.s_[..., 2], np.s_[..., -1, :], np.s_[:, ::2],
    np.s_[..., ::-1], np.s_[..., ::-2], np.s_[..., 3:1:-1], np.s_[..., 4:0:-3], np.s_[..., -1:-4:-2], np.s_[:, :, 2:2],
    np.s_[..., 1:4:2], np.s_[1, 2, 3, 4], np.s_[None], np.s_[:, None, 1, ..., None], np.s_[::-1, ::-1, ::-1, ::-1],
    np.s_[:, 2::-1], np.s_[..., :2:-1], np.s_[:, -3:], np.s_[:, :-1], np.s_[..., np.int64(2), None], np.s_[...],
    np.s_[:, :, 3:0], np.s_[..., 0:5:7], np.s_[..., 4::-7], np.s_[()],
)
# fmt: on


def moves() -> dict[str, Case]:
    cases = dict(MOVES)
    for index in INDICES:
        cases[f"x[{index}]"] = (lambda x, i=index: x[i], lambda x, i=index: x[i])
    # Joined to work, so that each is also read through another kernel.
    cases["reversed sum"] = (
        lambda x: ops.sum(x[..., ::-1] * 2, axis=1) + x[:, :1, :, ::-1],
        lambda x: (x[..., ::-1] * 2).sum(1, keepdims=True) + x[:, :1, :, ::-1],
    )
    return cases


@pytest.mark.parametrize("dtype", (np.float32, np.int8))
def test_movement(dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 9, (2, 3, 4, 5)).astype(dtype)
    graphs.check(moves(), x)


@pytest.mark.parametrize("dtype", (np.bool_, ml_dtypes.bfloat16, np.int64))
def test_movement_of_other_dtypes(dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 2, (2, 3, 4, 5)).astype(dtype)
    graphs.check({n: c for n, c in moves().items() if n not in ("reversed sum", "concat constant")}, x)


def test_movement_with_symbolic_sizes() -> None:
    cases: dict[str, Case] = {
        "reshape -1": (lambda x: ops.reshape(x, [-1]), lambda x: x.reshape(-1)),
        "split an axis": (lambda x: ops.reshape(x, [Dim("m"), 2, -1]), lambda x: x.reshape(x.shape[0], 2, -1)),
        "merge and part": (
            lambda x: ops.reshape(ops.flatten(x) + 1, ["m", Dim("n") * 4]),
            lambda x: x + 1,
        ),
        "transpose": (lambda x: x.T + 0, lambda x: x.T),
        "reversed": (lambda x: x[::-1, ::-2], lambda x: x[::-1, ::-2]),
        "tail": (lambda x: x[1:, :-1], lambda x: x[1:, :-1]),
        "element": (lambda x: x[0, -2], lambda x: x[0, -2]),
        "negative start": (lambda x: x[-1:, -3:], lambda x: x[-1:, -3:]),
        "every third": (lambda x: x[:, ::3] * 1, lambda x: x[:, ::3]),
        "concat": (
            lambda x: ops.concat([x, x[:, 1:], x[:, :1]], 1),
            lambda x: np.concatenate([x, x[:, 1:], x[:, :1]], 1),
        ),
        "stack": (lambda x: ops.stack([x, -x], 1), lambda x: np.stack([x, -x], 1)),
        "broadcast": (
            lambda x: ops.broadcast_to(x[:1], ["m", Dim("n") * 4]),
            lambda x: np.broadcast_to(x[:1], x.shape),
        ),
        "sum of merged": (lambda x: ops.sum(ops.flatten(x), axis=0), lambda x: x.reshape(-1).sum(keepdims=True)),
        "gram": (lambda x: x @ x.T, lambda x: x @ x.T),
    }
    # An input's dims are names: one of 4 * n elements comes from merging axes.
    model = graphs.load(lambda x: [case[0](ops.flatten(x, 1, 2)) for case in cases.values()], (np.int64, ["m", "n", 4]))
    for m, n in ((3, 2), (1, 1), (33, 5)):
        x = np.random.default_rng(m).integers(-9, 9, (m, n, 4))
        flat = {name: (case[0], lambda x, f=case[1]: f(x.reshape(x.shape[0], -1))) for name, case in cases.items()}
        graphs.compare(model, flat, x)


def test_empty_tensors_move() -> None:
    cases: dict[str, Case] = {
        "transpose": (lambda x: x.T, lambda x: x.T),
        "reshape": (lambda x: ops.reshape(x, [0, 7]), lambda x: x.reshape(0, 7)),
        "concat": (lambda x: ops.concat([x, x], 1), lambda x: np.concatenate([x, x], 1)),
        "reversed": (lambda x: x[:, ::-1], lambda x: x[:, ::-1]),
        "outer": (lambda x: x.T @ x, lambda x: x.T @ x),
        "inner": (lambda x: x @ x.T, lambda x: x @ x.T),
    }
    graphs.check(cases, np.zeros((0, 3), np.float32))


def test_arange_like_index_arithmetic_is_exact() -> None:
    """A sum over many rows and a long flat tensor visit each element once, whatever the number of threads."""
    x = np.arange(1_000_003, dtype=np.int64)
    total, flipped, picked = graphs.run(
        lambda x: [ops.sum(x, axis=None), ops.max(x[::-1] - x, axis=0), x[999_999:0:-111_111]], x
    )
    assert int(total.reshape(())) == int(x.sum())
    assert int(flipped.reshape(())) == 1_000_002
    np.testing.assert_array_equal(picked, x[999_999:0:-111_111])


def test_more_elements_than_32_bits_count() -> None:
    """Pages of zeros that are only read take no memory."""
    size = 2**31 + 9
    x = np.zeros(size, np.int8)
    x[-2] = 5
    place, tail, flipped, rows = graphs.run(
        lambda x: [
            ops.argmax(x, axis=None, keepdims=False),
            x[-3:] + 1,
            x[2::-1],
            ops.reshape(x[1:], [8, -1])[7, -3:],
        ],
        x,
    )
    assert int(place) == size - 2
    assert (tail.tolist(), flipped.tolist(), rows.tolist()) == ([1, 6, 1], [0, 0, 0], [0, 5, 0])


def test_many_outputs_of_one_value() -> None:
    x = numbers((4, 5), np.float32)
    outputs = graphs.run(lambda x: (lambda y: [y, y, x, ops.reshape(y, [20]), y.T, ops.constant(1.0), y])(x + 1), x)
    np.testing.assert_array_equal(outputs[0], x + 1)
    np.testing.assert_array_equal(outputs[1], x + 1)
    np.testing.assert_array_equal(outputs[2], x)
    np.testing.assert_array_equal(outputs[3], (x + 1).reshape(20))
    np.testing.assert_array_equal(outputs[4], (x + 1).T)
    assert outputs[5] == np.float32(1)
    np.testing.assert_array_equal(outputs[6], x + 1)


def test_bools_and_counts() -> None:
    x = numbers((7, 9), np.float32, 4)
    (count,) = graphs.run(lambda x: ops.sum(ops.cast(x > 0, DType.int64), axis=None, keepdims=False), x)
    assert count.shape == () and int(count) == int((x > 0).sum())
