"""Attention refuses what does not fit, and takes shapes that fit only half-way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.stdlib.kernels.attention import _reference, attention_reference

pytestmark = pytest.mark.as_shipped


def staged(call: Any, *shapes: Any, dtype: DType = DType.float32) -> Any:
    """What an op gives for inputs of these shapes, and the graph."""
    types = [TensorType(dtype, shape, DeviceRef.CPU()) for shape in shapes]
    return Graph("test", forward=call, input_types=types)


REFUSED = {
    "rank": (lambda q, k: ops.attention(q, k, k), [[8], [4, 8]], "EK0421", "query"),
    "heads or none": (lambda q, k: ops.attention(q, k, k), [[4, 8], [2, 4, 8]], "EK0421", "key"),
    "inner size": (lambda q, k: ops.attention(q, k, k), [[2, 4, 8], [2, 4, 6]], "EK0427", "key"),
    "keys and values": (lambda q, v: ops.attention(q, q, v), [[2, 4, 8], [2, 5, 8]], "EK0427", "value"),
    "heads of values": (lambda q, v: ops.attention(q, q, v), [[2, 4, 8], [1, 4, 8]], "EK0427", "value"),
    "shared heads": (lambda q, k: ops.attention(q, k, k), [[6, 4, 8], [4, 4, 8]], "EK0495", "key"),
    "no heads": (lambda q, k: ops.attention(q, k, k), [[6, 4, 8], [0, 4, 8]], "EK0495", "key"),
    "heads of a call": (lambda q, k: ops.attention(q, k, k), [["h", 4, 8], [2, 4, 8]], "EK0495", "key"),
    "outer axes": (lambda q, k: ops.attention(q, k, k), [[2, 1, 4, 8], [3, 1, 4, 8]], "EK0420", "key"),
    "mask": (lambda q, m: ops.attention(q, q, q, mask=m), [[2, 4, 8], [4, 3]], "EK0420", "mask"),
    "larger mask": (lambda q, m: ops.attention(q, q, q, mask=m), [[1, 4, 8], [2, 4, 4]], "EK0420", "mask"),
    "rank of a mask": (lambda q, m: ops.attention(q, q, q, mask=m), [[2, 4, 8], [1, 2, 4, 4]], "EK0420", "mask"),
    "whole mask": (
        lambda q, m: ops.attention(q, q, q, mask=m.cast(DType.int32)), [[2, 4, 8], [4, 4]], "EK0413", "mask",
    ),
    "window": (lambda q: ops.attention(q, q, q, window=0), [[2, 4, 8]], "EK0414", "window"),
    "half a window": (lambda q: ops.attention(q, q, q, window=1.5), [[2, 4, 8]], "EK0414", "window"),
    "scale": (lambda q: ops.attention(q, q, q, scale=float("nan")), [[2, 4, 8]], "EK0414", "scale"),
    "unknown scale": (lambda q: ops.attention(q, q, q), [[2, 4, "d"]], "EK0427", "scale"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    call, shapes, code, argument = REFUSED[name]
    with pytest.raises(EinkornError) as raised:
        staged(call, *shapes)
    assert raised.value.code == code
    assert raised.value.argument == argument
    assert raised.value.op == "attention"
    assert raised.value.place is not None and raised.value.place.file == __file__


def test_axes_before_the_heads_broadcast(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in [(2, 1, 4, 5, 8), (3, 2, 6, 8), (1, 2, 6, 7)])
    with graphs.cache_in(tmp_path):
        graph = staged(lambda q, k, v: ops.attention(q, k, v, scale=2), q.shape, k.shape, v.shape)
        (result,) = graphs.results(InferenceSession().load(graph), q, k, v)
    q = np.broadcast_to(q, (2, 3, 4, 5, 8))
    k, v = np.broadcast_to(k, (2, 3, 2, 6, 8)), np.broadcast_to(v, (2, 3, 2, 6, 7))
    wanted = attention_reference(q, k, v, causal=False, window=0, scale=2.0)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_large_scores_and_nan(tmp_path: Any) -> None:
    """Powers do not overflow; a NaN reaches the queries that see it, and no other."""
    q = np.array([[[3e4, 0], [0, -3e4], [1, 1]]], np.float32)
    k = np.array([[[1, 0], [0, 1], [np.nan, 1]]], np.float32)
    v = np.array([[[1.0], [2], [3]]], np.float32)
    with graphs.cache_in(tmp_path):
        graph = staged(lambda q, k, v: ops.attention(q, k, v, causal=True), q.shape, k.shape, v.shape)
        (result,) = graphs.results(InferenceSession().load(graph), q, k, v)
    np.testing.assert_array_equal(result, [[[1], [1], [np.nan]]])


# *** caches that are filled in part ***


@pytest.mark.parametrize("queries", [1, 2, 5, 40])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (True, 7)])
def test_keys_that_count_in_all_forms(
    queries: int, masked: bool, causal: bool, window: int | None, tmp_path: Any
) -> None:
    check_keys_that_count(queries, masked, causal, window, tmp_path)


@pytest.mark.parametrize("queries, masked, causal, window", [(1, False, True, None), (5, True, True, 7)])
def test_keys_that_count(queries: int, masked: bool, causal: bool, window: int | None, tmp_path: Any) -> None:
    check_keys_that_count(queries, masked, causal, window, tmp_path)


def check_keys_that_count(queries: int, masked: bool, causal: bool, window: int | None, tmp_path: Any) -> None:
    """What lies behind the keys that count is never read: it is NaN here."""
    rng = np.random.default_rng(queries)
    batch, heads, shared, room, size = 3, 4, 2, 150, 19
    q, k, v = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((batch, heads, queries, size), (batch, shared, room, size), (batch, shared, room, 23))
    )
    mask = rng.standard_normal((queries, room)).astype(np.float32)
    lengths = np.array([room, max(queries, 70), 0])
    offsets = np.array([room - queries, 3, 5])
    for row, length in enumerate(lengths):
        k[row, :, length:] = v[row, :, length:] = np.nan

    def forward(q: Any, k: Any, v: Any, mask: Any, lengths: Any, offsets: Any) -> Any:
        added = mask if masked else None
        rows: Any = {"mask": added, "causal": causal, "window": window}
        one = ops.attention(q[1:2], k[1:2], v[1:2], valid_length=lengths[1], offset=3, **rows)
        return ops.attention(q, k, v, valid_length=lengths, offset=offsets, **rows), one

    types = [TensorType(DType.float32, x.shape, DeviceRef.CPU()) for x in (q, k, v, mask)]
    types += [TensorType(DType.int32, [batch], DeviceRef.CPU()), TensorType(DType.int64, [batch], DeviceRef.CPU())]
    with graphs.cache_in(tmp_path):
        model = InferenceSession().load(Graph("test", forward=forward, input_types=types))
        result, one = graphs.results(model, q, k, v, mask, lengths.astype(np.int32), offsets)
        with pytest.raises(KernelError, match="valid_length 151 is out of range for 150 keys"):
            model(q, k, v, mask, np.array([151, 0, 0], np.int32), offsets)
    k, v = np.nan_to_num(k), np.nan_to_num(v)
    wanted = _reference(q, k, v, mask if masked else 0.0, (causal, window or 0, size**-0.5), lengths, offsets)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one, wanted[1:2], rtol=1e-4, atol=1e-5)


def test_lengths_of_other_shapes_are_refused() -> None:
    for lengths, code in (([2, 1], "EK0421"), ([3], "EK0421")):
        with pytest.raises(EinkornError) as raised:
            staged(lambda q, n: ops.attention(q, q, q, valid_length=n.cast(DType.int64)), [2, 3, 4, 8], lengths)
        assert raised.value.code == code and raised.value.argument == "valid_length"
    with pytest.raises(EinkornError) as raised:
        staged(lambda q, n: ops.attention(q, q, q, offset=n), [2, 3, 4, 8], [])
    assert raised.value.code == "EK0413" and raised.value.argument == "offset"
