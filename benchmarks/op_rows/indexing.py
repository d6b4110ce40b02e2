"""Rows of ops that move elements: by shape, by index, by mask."""

from __future__ import annotations

import numpy as np

from einkorn.graph import DType, ops

from .row import MAKE, Array, Row, floats, int64s, places, torch_module


def _scattered(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    np.put_along_axis(out, i, u, 1)
    return out


def _added(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    np.add.at(out, i[:, 0], u)
    return out


def _rows_set(x: Array, u: Array, i: Array) -> Array:
    out = x.copy()
    out[i[:, 0]] = u
    return out


def _masked(x: Array, mask: Array, u: Array) -> Array:
    out = x.copy()
    out[mask] = u[: mask.sum()]
    return out


def _permutation(rows: int, columns: int) -> Array:
    return np.argsort(MAKE.random((rows, columns)), axis=1)


INDEXING = [
    Row(
        "tile",
        "256 x 256, (4, 4)",
        lambda: [floats(256, 256)],
        lambda x: ops.tile(x, [4, 4]),
        lambda x: np.tile(x, (4, 4)),
        lambda x: x.tile((4, 4)),
        ("Tile", {}),
        (int64s(4, 4),),
    ),
    Row(
        "pad",
        "64 x 112 x 112, by 1",
        lambda: [floats(64, 112, 112)],
        lambda x: ops.pad(x, [0, 0, 1, 1, 1, 1]),
        lambda x: np.pad(x, ((0, 0), (1, 1), (1, 1))),
        lambda x: torch_module().nn.functional.pad(x, (1, 1, 1, 1)),
        ("Pad", {}),
        (int64s(0, 1, 1, 0, 1, 1),),
    ),
    Row(
        "pad",
        "64 x 112 x 112, by 3, reflect",
        lambda: [floats(64, 112, 112)],
        lambda x: ops.pad(x, [0, 0, 3, 3, 3, 3], "reflect"),
        lambda x: np.pad(x, ((0, 0), (3, 3), (3, 3)), mode="reflect"),
        lambda x: torch_module().nn.functional.pad(x, (3, 3, 3, 3), mode="reflect"),
        ("Pad", {"mode": "reflect"}),
        (int64s(0, 3, 3, 0, 3, 3),),
    ),
    Row(
        "repeat_interleave",
        "8 x 32 x 1024, 4 along axis 1",
        lambda: [floats(8, 32, 1024)],
        lambda x: ops.repeat_interleave(x, 4, 1),
        lambda x: np.repeat(x, 4, 1),
        lambda x: x.repeat_interleave(4, 1),
    ),
    Row(
        "repeat_interleave",
        "1000 x 64, by a tensor",
        lambda: [floats(1000, 64), places(5, 1000)],
        lambda x, n: ops.repeat_interleave(x, n, 0, out_dim="k"),
        lambda x, n: np.repeat(x, n, 0),
        lambda x, n: x.repeat_interleave(n, 0),
    ),
    Row(
        "flip",
        "1024 x 1024, last axis",
        lambda: [floats(1024, 1024)],
        lambda x: ops.flip(x, 1),
        lambda x: np.ascontiguousarray(x[:, ::-1]),
        lambda x: x.flip(1),
    ),
    Row(
        "roll",
        "1024 x 1024, last axis",
        lambda: [floats(1024, 1024)],
        lambda x: ops.roll(x, 5, 1),
        lambda x: np.roll(x, 5, 1),
        lambda x: x.roll(5, 1),
    ),
    Row(
        "gather",
        "30000 x 384, 4096 rows",
        lambda: [floats(30000, 384), places(30000, 4096)],
        lambda x, i: ops.gather(x, i, 0),
        lambda x, i: np.take(x, i, 0),
        lambda x, i: x.index_select(0, i),
        ("Gather", {"axis": 0}),
    ),
    Row(
        "gather",
        "1024 x 1024, 1024 columns",
        lambda: [floats(1024, 1024), places(1024, 1024)],
        lambda x, i: ops.gather(x, i, 1),
        lambda x, i: np.take(x, i, 1),
        lambda x, i: x.index_select(1, i),
        ("Gather", {"axis": 1}),
    ),
    Row(
        "take_along_axis",
        "1024 x 1024",
        lambda: [floats(1024, 1024), places(1024, 1024, 1024)],
        lambda x, i: ops.take_along_axis(x, i, 1),
        lambda x, i: np.take_along_axis(x, i, 1),
        lambda x, i: x.gather(1, i),
        ("GatherElements", {"axis": 1}),
    ),
    Row(
        "gather_nd",
        "256 x 256 x 64, 4096 pairs",
        lambda: [floats(256, 256, 64), places(256, 4096, 2)],
        ops.gather_nd,
        lambda x, i: x[i[:, 0], i[:, 1]],
        lambda x, i: x[i[:, 0], i[:, 1]],
        ("GatherND", {}),
    ),
    Row(
        "scatter",
        "1024 x 1024",
        lambda: [floats(1024, 1024), floats(1024, 1024), _permutation(1024, 1024)],
        ops.scatter,
        _scattered,
        lambda x, u, i: x.scatter(1, i, u),
    ),
    Row(
        "scatter_add",
        "1024 x 1024",
        lambda: [floats(1024, 1024), floats(1024, 1024), _permutation(1024, 1024)],
        ops.scatter_add,
        None,
        lambda x, u, i: x.scatter_add(1, i, u),
    ),
    Row(
        "scatter_nd",
        "10000 x 64, 4096 rows",
        lambda: [floats(10000, 64), floats(4096, 64), MAKE.permutation(10000)[:4096, None]],
        ops.scatter_nd,
        _rows_set,
        lambda x, u, i: x.index_copy(0, i[:, 0], u),
    ),
    Row(
        "scatter_nd_add",
        "10000 x 64, 4096 rows",
        lambda: [floats(10000, 64), floats(4096, 64), places(10000, 4096, 1)],
        ops.scatter_nd_add,
        _added,
        lambda x, u, i: x.index_add(0, i[:, 0], u),
        tolerance=1e-5,
    ),
    Row(
        "masked_scatter",
        "1024 x 1024, half",
        lambda: [floats(1024, 1024), places(2, 1024, 1024) == 1, floats(1 << 20)],
        lambda x, m, u: ops.masked_scatter(x, m, u, "k"),
        _masked,
        lambda x, m, u: x.masked_scatter(m, u),
    ),
    Row(
        "nonzero",
        "1024 x 1024, half",
        lambda: [places(2, 1024, 1024).astype(np.float32)],
        lambda x: ops.nonzero(x, "k"),
        np.argwhere,
        lambda x: x.nonzero(),
    ),
    Row(
        "range",
        "1000000 of float32",
        lambda: [],
        lambda: ops.range(0, 1000000),
        lambda: np.arange(0, 1000000, 1, np.float32),
        lambda: torch_module().arange(0, 1000000, 1, dtype=torch_module().float32),
    ),
    Row(
        "one_hot",
        "4096, 512 classes",
        lambda: [places(512, 4096)],
        lambda i: ops.one_hot(i, 512, dtype=DType.int64),
        None,
        lambda i: torch_module().nn.functional.one_hot(i, 512),
    ),
    Row(
        "tril",
        "16 x 512 x 512",
        lambda: [floats(16, 512, 512)],
        ops.tril,
        np.tril,
        lambda x: x.tril(),
        ("Trilu", {"upper": 0}),
    ),
    Row(
        "band_part",
        "16 x 512 x 512",
        lambda: [floats(16, 512, 512)],
        lambda x: ops.band_part(x, 8, 8),
        lambda x: np.tril(np.triu(x, -8), 8),
        lambda x: x.triu(-8).tril(8),
    ),
    Row("outer", "1000 by 1000", lambda: [floats(1000), floats(1000)], ops.outer, np.outer, lambda x, y: x.outer(y)),
    Row(
        "broadcast_to",
        "1024 x 1 to 1024 x 1024",
        lambda: [floats(1024, 1)],
        lambda x: ops.broadcast_to(x, [1024, 1024]),
        lambda x: np.ascontiguousarray(np.broadcast_to(x, (1024, 1024))),
        lambda x: x.expand(1024, 1024).contiguous(),
        ("Expand", {}),
        (int64s(1024, 1024),),
    ),
    Row(
        "slice_tensor",
        "1024 x 1024, by a tensor",
        lambda: [floats(1024, 1024), np.array(512)],
        lambda x, k: x[(slice(k, None), "rest")],
        lambda x, k: x[int(k) :].copy(),
        lambda x, k: x[int(k) :].clone(),
    ),
]


def _reduced(op: str, peer: str) -> Row:
    return Row(
        op,
        "1024 x 1024",
        lambda: [floats(1024, 1024), floats(1024, 1024), _permutation(1024, 1024)],
        getattr(ops, op),
        None,
        lambda x, u, i: x.scatter_reduce(1, i, u, peer),
        ("ScatterElements", {"axis": 1, "reduction": op.rpartition("_")[2]}),
        onnx_given=lambda given: [given[0], given[2], given[1]],
        tolerance=1e-5,
    )


def _reduced_rows(op: str, numpy: np.ufunc, peer: str) -> Row:
    def by_hand(x: Array, u: Array, i: Array) -> Array:
        out = x.copy()
        numpy.at(out, i[:, 0], u)
        return out

    return Row(
        op,
        "10000 x 64, 4096 rows",
        lambda: [floats(10000, 64), floats(4096, 64), places(10000, 4096, 1)],
        getattr(ops, op),
        by_hand,
        lambda x, u, i: x.index_reduce(0, i[:, 0], u, peer),
        ("ScatterND", {"reduction": op.rpartition("_")[2]}),
        onnx_given=lambda given: [given[0], given[2], given[1]],
        tolerance=1e-5,
    )


INDEXING += [
    *(_reduced(f"scatter_{op}", peer) for op, peer in (("max", "amax"), ("min", "amin"), ("mul", "prod"))),
    _reduced_rows("scatter_nd_max", np.maximum, "amax"),
    _reduced_rows("scatter_nd_min", np.minimum, "amin"),
    _reduced_rows("scatter_nd_mul", np.multiply, "prod"),
    Row(
        "triu",
        "16 x 512 x 512",
        lambda: [floats(16, 512, 512)],
        ops.triu,
        np.triu,
        lambda x: x.triu(),
        ("Trilu", {"upper": 1}),
    ),
]
