"""Rows of products, attention, reductions along axes, buffers and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import BufferType, DeviceRef, DType, TensorType, ops

from .row import Array, Call, Row, floats, functional, jax_module, torch_module


def _product(size: str, left: tuple[int, ...], right: tuple[int, ...]) -> Row:
    return Row("matmul", size, lambda: [floats(*left), floats(*right)], ops.matmul, np.matmul,
               lambda x, y: x @ y, ("MatMul", {}), tolerance=1e-4)  # fmt: skip


def _heads(queries: int, keys: int, heads: int = 8, shared: int = 8, batch: int = 1) -> Call:
    return lambda: [floats(batch, heads, queries, 64), *(floats(batch, shared, keys, 64) for _ in range(2))]


def _seen(length: int, window: int) -> Any:
    torch = torch_module()
    return torch.ones(length, length, dtype=torch.bool).tril().triu(1 - window)


def _attention(size: str, make: Call, ours: dict[str, Any], torch: dict[str, Any], mask: Call | None = None) -> Row:
    seen: list[Any] = []  # made once, outside what is timed

    def peer(q: Any, k: Any, v: Any) -> Any:
        if mask is not None and not seen:
            seen.append(mask())
        return functional().scaled_dot_product_attention(q, k, v, *seen, **torch)

    return Row("attention", size, make, lambda q, k, v: ops.attention(q, k, v, **ours), None, peer, tolerance=1e-4)


def _in_jax(q: Any, k: Any, v: Any) -> Any:
    attended = jax_module().nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)))
    return attended.swapaxes(1, 2)


PRODUCTS = [
    _product("512 x 512 by 512 x 512", (512, 512), (512, 512)),
    _product("20 x 14 x 384 by 384 x 1536", (20, 14, 384), (384, 1536)),
    _product("32 of 128 x 64 by 64 x 128", (32, 128, 64), (32, 64, 128)),
    _product("1 x 1024 by 1024 x 1024", (1, 1024), (1024, 1024)),
    Row("attention", "4 x 8 heads, 128 x 128", _heads(128, 128, batch=4), ops.attention, None,
        lambda q, k, v: functional().scaled_dot_product_attention(q, k, v), tolerance=1e-4, jax=_in_jax),
    _attention("8 heads, 1024 x 1024", _heads(1024, 1024), {}, {}),
    _attention("8 heads, 1024 x 1024, causal", _heads(1024, 1024), {"causal": True}, {"is_causal": True}),
    _attention("8 heads, 1024 x 1024, last 128", _heads(1024, 1024), {"causal": True, "window": 128}, {},
               lambda: _seen(1024, 128)),
    _attention("8 heads on 2, 512 x 512", _heads(512, 512, 8, 2), {}, {"enable_gqa": True}),
    _attention("8 heads, 1 query, 1024 keys", _heads(1, 1024), {}, {}),
    Row("attention", "8 heads, 512 x 512, numbers added", lambda: [*_heads(512, 512)(), floats(512, 512)],
        lambda q, k, v, m: ops.attention(q, k, v, mask=m), None,
        lambda q, k, v, m: functional().scaled_dot_product_attention(q, k, v, m), tolerance=1e-4),
]  # fmt: skip


def _along(op: str, numpy: Call | None, torch: Call, onnx: tuple[str, dict[str, Any]] | None = None) -> Row:
    return Row(op, "256 x 768", lambda: [floats(256, 768)], getattr(ops, op), numpy, torch, onnx, tolerance=1e-4)


AXES = [
    _along("sum", lambda x: x.sum(-1, keepdims=True), lambda x: x.sum(-1, keepdim=True)),
    Row("sum", "1024 x 1024, first axis", lambda: [floats(1024, 1024)], lambda x: ops.sum(x, 0),
        lambda x: x.sum(0, keepdims=True), lambda x: x.sum(0, keepdim=True), tolerance=1e-4),
    _along("mean", lambda x: x.mean(-1, keepdims=True), lambda x: x.mean(-1, keepdim=True)),
    _along("max", lambda x: x.max(-1, keepdims=True), lambda x: x.amax(-1, keepdim=True)),
    _along("min", lambda x: x.min(-1, keepdims=True), lambda x: x.amin(-1, keepdim=True)),
    _along("argmax", lambda x: x.argmax(-1, keepdims=True), lambda x: x.argmax(-1, keepdim=True),
           ("ArgMax", {"axis": -1})),
    _along("argmin", lambda x: x.argmin(-1, keepdims=True), lambda x: x.argmin(-1, keepdim=True),
           ("ArgMin", {"axis": -1})),
    _along("softmax", None, lambda x: x.softmax(-1), ("Softmax", {})),
    Row("softmax", "32 x 128 x 128", lambda: [floats(32, 128, 128)], ops.softmax, None, lambda x: x.softmax(-1),
        ("Softmax", {}), tolerance=1e-4),
    _along("logsoftmax", None, lambda x: x.log_softmax(-1), ("LogSoftmax", {})),
]  # fmt: skip

KEPT = BufferType(DType.float32, [1024, 1024], DeviceRef.CPU())


def _stored(x: Any, y: Any | None = None) -> Any:
    kept = ops.buffer_create(KEPT)
    ops.buffer_store(kept, x)
    if y is not None:
        ops.buffer_store_slice(kept, y, [slice(256, 512), slice(None)])
    return ops.buffer_load(kept)


def _copied(x: Array, y: Array | None = None) -> Array:
    kept = x.copy()
    if y is not None:
        kept[256:512] = y
    return kept.copy()


def _cloned(x: Any, y: Any | None = None) -> Any:
    kept = x.clone()
    if y is not None:
        kept[256:512] = y
    return kept.clone()


def _rounds(x: Any) -> Any:
    return ops.while_loop([0, x], lambda k, x: k < 100, lambda k, x: [k + 1, x * 0.5 + 1.0])[1]


def _rounds_by_hand(x: Any) -> Any:
    k = 0
    while k < 100:
        k, x = k + 1, x * 0.5 + 1.0
    return x


def _rounds_in_jax(x: Any) -> Any:
    lax = jax_module().lax
    return lax.while_loop(lambda s: s[0] < 100, lambda s: (s[0] + 1, s[1] * 0.5 + 1.0), (0, x))[1]


def _chosen(x: Any) -> Any:
    total = ops.reshape(ops.sum(x, 0), [])
    taken = TensorType(DType.float32, x.shape, DeviceRef.CPU())
    return ops.cond(total > 0, [taken], lambda: x * 2.0, lambda: x * -1.0)[0]


def _chosen_by_hand(x: Any) -> Any:
    return x * 2.0 if x.sum() > 0 else x * -1.0


FLOW = [
    Row("buffer_store", "1024 x 1024, and loaded", lambda: [floats(1024, 1024)], _stored, _copied, _cloned),
    Row("buffer_store_slice", "a quarter of 1024 x 1024, stored and loaded whole",
        lambda: [floats(1024, 1024), floats(256, 1024)], _stored, _copied, _cloned),
    Row("while_loop", "100 rounds of 1024", lambda: [floats(1024)], _rounds, _rounds_by_hand, _rounds_by_hand,
        tolerance=1e-5, jax=_rounds_in_jax),
    Row("cond", "65536, by their sum", lambda: [floats(65536)], _chosen, _chosen_by_hand, _chosen_by_hand,
        tolerance=1e-5),
]  # fmt: skip

NETWORKS = [*PRODUCTS, *AXES, *FLOW]
