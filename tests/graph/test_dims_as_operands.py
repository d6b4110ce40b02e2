"""Sizes as values: dims and shapes are operands and outputs, whatever a call brings; names that are new at a rebind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.graphs import HOST, load

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Dim, DType, Graph, InferenceSession, Shape, TensorType, ops

F32 = np.float32
X = np.arange(12, dtype=F32).reshape(4, 3)


def values(forward: Any, *inputs: Any, x: Any = X, interpret: bool = False) -> list[Any]:
    graph = Graph("g", forward, inputs or [TensorType(DType.float32, ["n", "m"], HOST)])
    return [b.to_numpy() for b in InferenceSession(interpret=interpret).load(graph)(x)]


@pytest.mark.parametrize("interpret", [False, True])
def test_dims_are_numbers_of_the_call(interpret: bool) -> None:
    def forward(x: Any) -> Any:
        n, m = x.shape
        i = ops.cast(x, DType.int32)
        return [
            ops.sum(x, 0) / n,
            x * n - m,
            n + x,
            x**m,
            i * n,
            i // (n - m),
            ops.where(x > m, x, n * m),
            ops.max(x, n),
            ops.cast(n, DType.float32),
            ops.sqrt(ops.cast(x.shape, DType.float64)),
            n,
            x.shape,
            n - 2 * m,
            -n,
            x / Dim(2),
            ops.equal(n, m),
        ]

    got = values(forward, interpret=interpret)
    i = X.astype(np.int32)
    wanted = [
        X.sum(0, keepdims=True) / 4,
        X * 4 - 3,
        X + 4,
        X**3,
        i * 4,
        i // 1,
        np.where(X > 3, X, 12),
        np.maximum(X, 4),
        F32(4),
        np.sqrt([4.0, 3.0]),
        4,
        [4, 3],
        -2,
        -4,
        X / 2,
        False,
    ]
    for entry, exact in zip(got, wanted, strict=True):
        np.testing.assert_allclose(entry, exact, rtol=1e-6)
    assert [a.dtype for a in got[:2] + got[4:5]] == [F32, F32, np.int32]
    assert {a.dtype for a in got[10:14]} == {np.dtype(np.int64)}


def test_one_shape_after_the_other() -> None:
    model = load(lambda x: ops.mean(x, 0) * x.shape[0] + 0 * x.shape[0], (F32, ["n", 3]))
    for n in (4, 2, 1):
        np.testing.assert_allclose(model(X[:n])[0].to_numpy(), X[:n].sum(0, keepdims=True), rtol=1e-6)
    assert np.isnan(model(X[:0])[0].to_numpy()).all()


def test_a_dim_is_a_number_and_no_buffer() -> None:
    model = load(lambda x: x / x.shape[0] + x.shape[1], (F32, ["n", "m"]))
    plan = model.code.plan
    assert [b.source[0] for b in plan.buffers if b.source[0] != "constant"] == ["input", "output"]
    assert not plan.steps and not any(b.source[0] == "temp" for b in plan.buffers)


def test_shapes_without_axes_and_what_is_refused() -> None:
    one = TensorType(DType.float32, [], HOST)
    assert values(lambda x: Shape([]), one, x=F32(1))[0].shape == (0,)
    np.testing.assert_array_equal(values(lambda x: x.shape, TensorType(DType.float32, [3], HOST), x=X[0])[0], [3])
    for forward in (lambda x: ops.sqrt(x.shape[0]), lambda x: ops.logical_not(x.shape[0])):
        with pytest.raises(EinkornError) as caught:
            Graph("g", forward, [TensorType(DType.float32, ["n"], HOST)])
        assert caught.value.code == "EK0413"


# *** new names ***


@pytest.mark.parametrize("interpret", [False, True])
def test_rebind_gives_a_size_a_new_name(interpret: bool) -> None:
    def forward(x: Any) -> Any:
        y = ops.rebind(ops.concat([x, x]), ["rows", "m"], "twice")
        assert y.shape == ["rows", "m"]
        z = ops.rebind(ops.concat([x, -x]), ["rows", "m"])
        return y + z, y.shape[0], ops.reshape(y, [Dim("rows") * Dim("m")])

    got = values(forward, interpret=interpret)
    np.testing.assert_array_equal(got[0], np.concatenate([2 * X, 0 * X]))
    assert got[1] == 8
    np.testing.assert_array_equal(got[2], np.concatenate([X, X]).reshape(-1))


def test_a_new_name_is_one_size() -> None:
    square = Graph("g", lambda x: ops.rebind(x, ["k", "k"], layout=None), [TensorType(DType.float32, ["n", "m"], HOST)])
    model = InferenceSession(interpret=True).load(square)
    np.testing.assert_array_equal(model(X[:3])[0].to_numpy(), X[:3])
    with pytest.raises(EinkornError) as caught:
        model(X)
    assert caught.value.code == "EK0454"
    known = Graph("g", lambda x: ops.rebind(x, ["k"]) * Dim("k"), [TensorType(DType.float32, [3], HOST)])
    np.testing.assert_array_equal(InferenceSession().load(known)(X[0])[0].to_numpy(), X[0] * 3)


@pytest.mark.parametrize(
    ("wanted", "sizes", "k"),
    [
        ([4 * Dim("k")], (12,), 3),
        ([4 * Dim("k")], (0,), 0),
        ([4 * Dim("k") + 1], (9,), 2),
        ([9 - 2 * Dim("k")], (5,), 2),
        ([4 * Dim("k"), "k"], (12, 3), 3),
        ([4 * Dim("k"), Dim("k") + 3], (8, 5), 2),
        ([Dim("n0") + 2 * Dim("k"), 5], (7, 5), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("static", [False, True])
def test_rebind_solves_for_a_new_name(wanted: list[Any], sizes: tuple[int, ...], k: int, static: bool) -> None:
    if static and "n0" in Dim(wanted[0]).parameters:
        return
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    type = TensorType(DType.float32, sizes if static else [f"n{axis}" for axis in range(len(sizes))], HOST)
    graph = Graph("g", lambda x: (ops.rebind(x, wanted) + 1, ops.full(["k"], 2.0), Dim("k")), [type])
    collected = [each.to_numpy() for each in InferenceSession().load(graph)(x)]
    np.testing.assert_array_equal(collected[0], x + 1)
    assert collected[1].shape == (k,) and collected[2] == k


def test_rebind_refuses_what_no_new_name_makes_right() -> None:
    def graph(wanted: list[Any], *sizes: Any) -> Graph:
        return Graph("g", lambda x: ops.rebind(x, wanted), [TensorType(DType.float32, sizes, HOST)])

    for wanted, size in ((4 * Dim("k"), 9), (4 * Dim("k") + 11, 7)):
        with pytest.raises(EinkornError, match=r"never 4\*k") as caught:
            graph([wanted], size)
        assert caught.value.code == "EK0423", caught.value
    for wanted in (Dim("k") * Dim("m"), Dim("k") * Dim("k"), Dim("k") // 2, Dim("k") * Dim("n")):
        with pytest.raises(EinkornError) as caught:
            graph([wanted], "n")
        assert caught.value.code == "EK0431", caught.value
    for wanted, n, code in ((4 * Dim("k"), 9, "EK0454"), (4 * Dim("k") + 11, 7, "EK0475")):
        with pytest.raises(EinkornError) as caught:
            InferenceSession().load(graph([wanted], "n"))(np.zeros(n, np.float32))
        assert caught.value.code == code, caught.value


def test_integers_take_the_dtype_of_floats() -> None:
    types = [TensorType(dtype, [2]) for dtype in (DType.float32, DType.int32, DType.float16, DType.uint64, DType.bool)]
    graph = Graph("g", lambda f, i, h, u, b: (f * i, i + f, h - u, ops.where(b, f, i), f / i, f < i), types)
    assert [t.dtype for t in graph.output_types] == [
        *(DType.float32, DType.float32, DType.float16, DType.float32, DType.float32, DType.bool)
    ]
    given = F32([0.5, 1]), np.int32([2**24 + 1, 3]), np.float16([1, 2]), np.uint64([1, 2]), np.array([True, False])
    got = [b.to_numpy() for b in InferenceSession(interpret=True).load(graph)(*given)]
    np.testing.assert_array_equal(got[0], F32([2**23, 3]))
    np.testing.assert_array_equal(got[2], np.float16([0, 0]))
