"""Ops of shape and indexing: what they refuse, what stops a call, buffers whose parts are given by tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import BufferType, DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

F32, I64, BOOL = DType.float32, DType.int64, DType.bool
HOST = DeviceRef.CPU()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def T(dtype: DType, *shape: Any) -> TensorType:
    return TensorType(dtype, list(shape), HOST)


def load(forward: Callable[..., Any], *types: Any) -> Model:
    return InferenceSession().load(Graph("test", forward, types))


X, I = T(F32, 3, 4), T(I64, 2)  # noqa: E741
REFUSED: list[tuple[str, str, Callable[..., Any], list[TensorType]]] = [
    ("EK0480", "tile", lambda x: ops.tile(x, [2]), [X]),
    ("EK0480", "tile", lambda x: ops.tile(x, [2, 0]), [X]),
    ("EK0480", "tile", lambda x: ops.tile(x, 2), [X]),
    ("EK0480", "repeat_interleave", lambda x: ops.repeat_interleave(x, 0), [X]),
    ("EK0422", "repeat_interleave", lambda x: ops.repeat_interleave(x, 2, axis=2), [X]),
    ("EK0482", "repeat_interleave", lambda x, n: ops.repeat_interleave(x, n, 0), [X, T(I64, 3)]),
    ("EK0481", "repeat_interleave", lambda x, n: ops.repeat_interleave(x, n, 0, "k"), [X, T(I64, 2)]),
    ("EK0413", "repeat_interleave", lambda x, n: ops.repeat_interleave(x, n, 0, "k"), [X, T(F32, 3)]),
    ("EK0480", "pad", lambda x: ops.pad(x, [1, 1]), [X]),
    ("EK0480", "pad", lambda x: ops.pad(x, [-2, -2, 0, 0]), [X]),
    ("EK0480", "pad", lambda x: ops.pad(x, [0, 0, 1, 1], "around"), [X]),
    ("EK0480", "pad", lambda x: ops.pad(x, [0, 0, 1, 1], "edge"), [T(F32, 3, 0)]),
    ("EK0421", "pad", lambda x: ops.pad(x, [0, 0, 1, 1], value=x), [X]),
    ("EK0413", "pad", lambda x, v: ops.pad(x, [0, 0, 1, 1], value=v), [X, T(I64)]),
    ("EK0412", "pad", lambda x: ops.pad(x, [1, 1], value=0.5), [I]),
    ("EK0422", "flip", lambda x: ops.flip(x, 2), [X]),
    ("EK0480", "roll", lambda x: ops.roll(x, [1], [0, 1]), [X]),
    ("EK0480", "roll", lambda x: ops.roll(x, 1.5, 0), [X]),
    ("EK0422", "gather", lambda x, i: ops.gather(x, i, 2), [X, I]),
    ("EK0413", "gather", lambda x, i: ops.gather(x, i, 0), [X, X]),
    ("EK0413", "gather", lambda x: ops.gather(x, 0.5, 0), [X]),
    ("EK0421", "take_along_axis", lambda x, i: ops.take_along_axis(x, i), [X, I]),
    ("EK0481", "take_along_axis", lambda x, i: ops.take_along_axis(x, i, 1), [X, T(I64, 5, 1)]),
    ("EK0481", "gather_nd", lambda x, i: ops.gather_nd(x, i), [X, T(I64, "k")]),
    ("EK0421", "gather_nd", lambda x, i: ops.gather_nd(x, i), [X, T(I64, 5, 3)]),
    ("EK0422", "gather_nd", lambda x, i: ops.gather_nd(x, i, 2), [X, T(I64, 5, 1)]),
    ("EK0481", "gather_nd", lambda x, i: ops.gather_nd(x, i, 1), [X, T(I64, 5, 1)]),
    ("EK0421", "scatter", lambda x, i: ops.scatter(x, i, i), [T(I64, 3, 4), I]),
    ("EK0481", "scatter", lambda x, u, i: ops.scatter(x, u, i, 0), [X, T(F32, 2, 4), T(I64, 2, 5)]),
    ("EK0481", "scatter_add", lambda x, u, i: ops.scatter_add(x, u, i, 0), [X, T(F32, 2, 3), T(I64, 2, 4)]),
    ("EK0413", "scatter_max", lambda x, u, i: ops.scatter_max(x, u, i, 0), [X, T(I64, 2, 4), T(I64, 2, 4)]),
    ("EK0422", "scatter_mul", lambda x, u, i: ops.scatter_mul(x, u, i, 5), [X, T(F32, 2, 4), T(I64, 2, 4)]),
    ("EK0421", "scatter_nd", lambda x, u, i: ops.scatter_nd(x, u, i), [X, T(F32, 2), T(I64, 2, 1)]),
    ("EK0421", "scatter_nd_min", lambda x, u, i: ops.scatter_nd_min(x, u, i), [X, T(F32, 2), T(I64, 2, 3)]),
    ("EK0481", "scatter_nd_add", lambda x, u, i: ops.scatter_nd_add(x, u, i), [X, T(F32, 2, 3), T(I64, 2, 1)]),
    ("EK0420", "masked_scatter", lambda x, m: ops.masked_scatter(x, m, x, "k"), [X, T(BOOL, 2, 4)]),
    ("EK0413", "masked_scatter", lambda x, m, u: ops.masked_scatter(x, m, u, "k"), [X, T(BOOL, 3, 4), I]),
    ("EK0330", "nonzero", lambda x: ops.nonzero(x, 1.5), [X]),
    ("EK0480", "range", lambda x: ops.range(0, 10, 0), [X]),
    ("EK0480", "range", lambda x: ops.range(0, 10, -1), [X]),
    ("EK0480", "arange", lambda x: ops.arange(10, 0.5), [X]),
    ("EK0480", "range", lambda x: ops.range(0, float("nan")), [X]),
    ("EK0482", "range", lambda n: ops.range(0, n), [T(I64)]),
    ("EK0421", "range", lambda n: ops.range(0, n, out_dim="k"), [I]),
    ("EK0413", "range", lambda x: ops.range(0, 3, dtype=BOOL), [X]),
    ("EK0423", "range", lambda x: ops.range(0, 3, out_dim=4), [X]),
    ("EK0480", "range", lambda x: ops.range(0.5, 3, dtype=I64), [X]),
    ("EK0480", "one_hot", lambda i: ops.one_hot(i, -1), [I]),
    ("EK0422", "one_hot", lambda i: ops.one_hot(i, 3, axis=2), [I]),
    ("EK0413", "one_hot", lambda i: ops.one_hot(i, 3, dtype=DType.int4), [I]),
    ("EK0421", "full", lambda x: ops.full([2], x), [X]),
    ("EK0431", "full", lambda x: ops.full(["n"], 1), [X]),
    ("EK0421", "band_part", lambda i: ops.band_part(i), [I]),
    ("EK0480", "band_part", lambda x: ops.band_part(x, -2), [X]),
    ("EK0480", "band_part", lambda x: ops.band_part(x, 4), [X]),
    ("EK0421", "tril", lambda i: ops.tril(i), [I]),
    ("EK0480", "triu", lambda x: ops.triu(x, 0.5), [X]),
    ("EK0411", "outer", lambda x: ops.outer(2, 3), [X]),
    ("EK0482", "broadcast_to", lambda x, s: ops.broadcast_to(x, s), [X, I]),
    ("EK0420", "broadcast_to", lambda x, s: ops.broadcast_to(x, s, out_dims=[3, 4, 5]), [X, I]),
    ("EK0420", "broadcast_to", lambda x, s: ops.broadcast_to(x, s, out_dims=[3, 5]), [X, I]),
    ("EK0420", "broadcast_to", lambda x: ops.broadcast_to(x, [3, 4], out_dims=[3, 4]), [X]),
    ("EK0425", "split", lambda x: ops.split(x, 0), [X]),
    ("EK0425", "split", lambda x: ops.split(x, 2), [T(F32, "n")]),
    ("EK0413", "bitcast", lambda x: ops.bitcast(x, DType.float64), [X]),
    ("EK0413", "bitcast", lambda x: ops.bitcast(x, BOOL), [T(DType.int8, 3)]),
    ("EK0431", "shape_to_tensor", lambda x: ops.shape_to_tensor(["k"]), [X]),
]


@pytest.mark.parametrize(("code", "op", "forward", "types"), REFUSED)
def test_what_is_refused(code: str, op: str, forward: Callable[..., Any], types: list[TensorType]) -> None:
    with pytest.raises(EinkornError) as caught:
        Graph("test", forward, types)
    error = caught.value
    assert (error.code, error.op) == (code, op), error
    assert error.place is not None and error.place.file == __file__
    assert error.message.startswith(f"{op}: ") and error.argument is not None, error


def test_what_a_call_refuses() -> None:
    """Sizes that only the call has; the same graph goes on with others."""
    cases: list[tuple[Callable[..., Any], list[Any], list[Any], list[Any]]] = [
        (lambda x: ops.pad(x, [-2, 0]), [T(F32, "n")], [np.zeros(1, np.float32)], [np.zeros(2, np.float32)]),
        (lambda x: ops.pad(x, [1, 0], "reflect"), [T(F32, "n")], [np.zeros(0, np.float32)], [np.ones(1, np.float32)]),
        (lambda x: x[x.shape[0] - 3 :], [T(F32, "n")], [np.zeros(2, np.float32)], [np.zeros(3, np.float32)]),
        (lambda x: ops.range(0, x.shape[0] - 4), [T(F32, "n")], [np.zeros(3, np.float32)], [np.zeros(4, np.float32)]),
        (lambda x: ops.nonzero(x, 2), [T(F32, "n")], [np.ones(3, np.float32)], [np.ones(2, np.float32)]),
        (lambda n: ops.range(0, n, out_dim=2), [T(I64)], [np.array(3)], [np.array(2)]),
        (
            lambda x, s: ops.broadcast_to(x, s, ["m", "n"]),
            [T(F32, "n"), I],
            [np.ones(3, np.float32), np.array([2, 4])],
            [np.ones(3, np.float32), np.array([2, 3])],
        ),
        (
            lambda x, i: ops.take_along_axis(x, i, 0),
            [T(F32, "n", "m"), T(I64, "k", "l")],
            [np.ones((2, 2), np.float32), np.zeros((1, 3), np.int64)],
            [np.ones((2, 3), np.float32), np.zeros((1, 3), np.int64)],
        ),
    ]
    for forward, types, wrong, right in cases:
        model = load(forward, *types)
        with pytest.raises(EinkornError) as caught:
            model(*wrong)
        assert caught.value.code in ("EK0454", "EK0475"), caught.value
        assert caught.value.place is not None and caught.value.place.file == __file__
        graphs.results(model, *right)


OUTSIDE: list[tuple[str, Callable[..., Any], list[TensorType], list[Any], str]] = [
    ("gather", lambda x, i: ops.gather(x, i, 1), [T(F32, "m", "n"), T(I64, "k")], [[5], [-5]], "size 4"),
    (
        "take_along_axis",
        lambda x, i: ops.take_along_axis(x, i, 0),
        [T(F32, "m", "n"), T(I64, 1, 4)],
        [[[0, 0, 0, 3]]],
        "size 3",
    ),
    ("gather_nd", lambda x, i: ops.gather_nd(x, i), [T(F32, "m", "n"), T(I64, 1, 2)], [[[0, 4]], [[-4, 0]]], "size"),
    ("scatter", lambda x, i: ops.scatter(x, 1.0, i), [T(F32, "m", "n"), T(I64, 1, 1)], [[[4]], [[-5]]], "size 4"),
    (
        "scatter_nd",
        lambda x, i: ops.scatter_nd_add(x, 1.0, i),
        [T(F32, "m", "n"), T(I64, 1, 1)],
        [[[3]], [[-4]]],
        "size 3",
    ),
    ("slice_range", lambda x, i: x[(slice(i[0], None), "k")], [T(F32, "m", "n"), T(I64, 1)], [[4], [-4]], "size 3"),
    ("slice_from", lambda x, i: x[i[0]], [T(F32, "m", "n"), T(I64, 1)], [[3], [-4]], "3"),
    (
        "repeat_total",
        lambda x, i: ops.repeat_interleave(x, i, 0, "k"),
        [T(F32, "m", "n"), T(I64, 1)],
        [[-1]],
        "-1 times",
    ),
]


@pytest.mark.parametrize(("op", "forward", "types", "wrong", "text"), OUTSIDE)
def test_an_index_outside_ends_the_call(op: str, forward: Any, types: Any, wrong: Any, text: str) -> None:
    model, x = load(forward, *types), np.zeros((3, 4), np.float32)
    for indices in wrong:
        with pytest.raises(KernelError) as caught:
            model(x, np.array(indices))
        assert text in str(caught.value) and caught.value.op == op
        assert caught.value.place is not None and caught.value.place.file == __file__
    assert graphs.results(model, x, np.zeros_like(np.array(wrong[0])))


def test_run_time_ranges_and_masks() -> None:
    model = load(lambda a, b: ops.range(0, a, b, out_dim="k"), T(I64), T(I64))
    for a, b in ((-3, 1), (3, -1), (3, 0)):
        with pytest.raises(KernelError, match="step"):
            model(np.array(a), np.array(b))
    low = np.iinfo(np.int64).min
    assert graphs.results(model, np.array(low), np.array(low))[0].tolist() == [0]
    assert graphs.results(model, np.array(7), np.array(3))[0].tolist() == [0, 3, 6]
    model = load(lambda x, m: ops.masked_scatter(x, m, x[:1], "k"), T(F32, "n"), T(BOOL, "n"))
    with pytest.raises(KernelError, match="more places than there are updates: 1"):
        model(np.zeros(3, np.float32), np.array([True, True, False]))
    x = np.float32([1, 2, 3])
    assert graphs.results(model, x, np.array([False, True, False]))[0].tolist() == [1, 1, 3]


def test_scatters_keep_the_order_of_updates() -> None:
    """Many updates share few places, in parallel parts: the last one stays, and sums are the same in every run."""
    generator = np.random.default_rng(0)
    rows, places = generator.standard_normal((4000, 64)).astype(np.float32), generator.integers(-3, 3, 4000)
    start = np.zeros((3, 64), np.float32)
    model = load(
        lambda x, u, i: [ops.scatter_nd(x, u, i), ops.scatter_nd_add(x, u, i)],
        T(F32, 3, "m"),
        T(F32, "n", "m"),
        T(I64, "n", 1),
    )
    last, added = graphs.results(model, start, rows, places[:, None])
    expected = start.copy()
    np.add.at(expected, places, rows)
    assert added.tobytes() == expected.tobytes()
    assert [rows[places % 3 == k][-1].tolist() for k in range(3)] == last.tolist()


def test_elements_repeated_often_and_seldom() -> None:
    """Places are stored in whole vectors, but for many repeats at once and at the end."""
    model = load(lambda x, i: ops.repeat_interleave(x, i, 0, "k"), T(I64, "n"), T(I64, "n"))
    for seed, most in enumerate((1, 2, 9, 30)):
        counts = np.random.default_rng(seed).integers(0, most + 1, 40)
        for given in (counts, counts[::-1].copy(), np.append(counts, 8), np.append(counts, [0, 20]), counts[:1]):
            x = np.arange(len(given)) * 3
            (got,) = graphs.results(model, x, given)
            np.testing.assert_array_equal(got, np.repeat(x, given))


def test_sizes_from_tensors_feed_what_follows() -> None:
    def forward(x: Any) -> list[Any]:
        actual = ops.nonzero(x, "k")
        picked = ops.gather_nd(x, actual)
        return [picked * 2, ops.shape_to_tensor([Dim("k") * 2, 5]), ops.range(0, Dim("k"), dtype=I64)]

    model = load(forward, T(F32, "m", "n"))
    x = np.float32([[0, 1.5, 0], [2, 0, -3]])
    picked, sizes, numbers = graphs.results(model, x)
    assert picked.tolist() == [3, 4, -6] and sizes.tolist() == [6, 5] and numbers.tolist() == [0, 1, 2]


def test_parts_of_buffers_given_by_tensors() -> None:
    def forward(cache: Any, rows: Any, at: Any) -> Any:
        cache[2, 2] = 2
        cache[at] = 7.0
        cache[at + 1 : at + 3] = rows
        cache[(slice(at + 3, None), "rest"), 0] = -1.0
        return cache[at], cache[(slice(None, at), "before")]

    model = load(forward, BufferType(F32, ["n", 3], HOST), T(F32, 2, 3), T(I64))
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    for n, at in ((6, 1), (9, 4), (5, 2)):
        cache, expected = np.zeros((n, 3), np.float32), np.zeros((n, 3), np.float32)
        expected[2, 2] = 2
        expected[at], expected[at + 1 : at + 3], expected[at + 3 :, 0] = 7, rows, -1
        row, before = graphs.results(model, cache, rows, np.array(at))
        assert cache.tolist() == expected.tolist()
        assert row.tolist() == expected[at].tolist() and before.tolist() == expected[:at].tolist()
    with pytest.raises(EinkornError, match="out of range"):
        model(np.zeros((4, 3), np.float32), rows, np.array(2))


def test_indices_of_uint64() -> None:
    """They are what the same numbers of int64 are; what int64 does not hold is out of range, and not below 0."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    def forward(x: Any, i: Any) -> list[Any]:
        return [
            ops.gather(x, i, 0),
            ops.take_along_axis(x, ops.reshape(i, [2, 1]), 0),
            ops.gather_nd(x, ops.reshape(i, [1, 2])),
            ops.scatter(x, x[:2], ops.broadcast_to(ops.reshape(i, [2, 1]), [2, 4]), 0),
            ops.scatter_nd(x, x[:2], ops.reshape(i, [2, 1])),
            ops.one_hot(i, 4),
            ops.repeat_interleave(x[:2], i, 0, "total"),
            ops.broadcast_to(x[0, :1], i, out_dims=["a", "b"]),
            x[i[0]],
            ops.gather(x, np.array([2], np.uint64), 0),
        ]

    models = [graphs.load(forward, (np.float32, [3, 4]), (dtype, [2])) for dtype in (np.uint64, np.int64)]
    for given in ([2, 1], [1, 2]):
        actual = [graphs.results(m, x, np.array(given, t)) for m, t in zip(models, (np.uint64, np.int64), strict=True)]
        for mine, wanted in zip(*actual, strict=True):
            assert np.array_equal(mine, wanted)
    taken = graphs.load(lambda x, i: ops.gather(x, i, 0), (np.float32, [3, 4]), (np.uint64, [2]))
    for far in (3, 2**63 - 1, 2**63, 2**64 - 1):
        with pytest.raises(EinkornError, match="is out of range for an axis of size 3"):
            taken(x, np.array([0, far], np.uint64))
