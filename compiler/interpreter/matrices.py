"""Computes matrix instructions of a warp: the lanes bring their fragments, which become matrices and are multiplied.

Which elements of a matrix a lane has is written from NVIDIA's PTX ISA manual ("Matrix Fragments for mma.m16n8k16" and
its neighbours), apart from the code that reads fragments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.program import Op
from ..targets.products import BY_NAME, MatrixProduct
from .machine import Evaluate, Machine, Meeting, evaluates
from .pointers import load

Array = np.ndarray[Any, Any]
LANES = np.arange(32)
GROUP, IN_GROUP = LANES >> 2, LANES & 3


@evaluates("together")
def _together(op: Op, machine: Machine) -> Evaluate:
    return lambda: None


def _places(kind: str, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """Of each lane and each of its elements the row and the column in the matrix `a`, `b` or `c`."""
    m, _, k = shape
    half = k // 2  # of the inner axis, where a lane has elements of both
    if kind == "c":
        count = m // 4
        row = [GROUP + 8 * (i >> 1) for i in range(count)]
        return np.stack(row, 1), np.stack([2 * IN_GROUP + (i & 1) for i in range(count)], 1)
    if k == 4:  # m8n8k4: an element each
        own, other = GROUP[:, None], IN_GROUP[:, None]
        return (own, other) if kind == "a" else (other, own)
    each = k // 8  # neighbours of a lane along the inner axis
    if kind == "b":
        rows = [each * IN_GROUP + i % each + half * (i // each) for i in range(2 * each)]
        return np.stack(rows, 1), np.stack([GROUP] * (2 * each), 1)
    rows = [GROUP + 8 * (i // each % 2) for i in range(4 * each)]
    columns = [each * IN_GROUP + i % each + half * (i // (2 * each)) for i in range(4 * each)]
    return np.stack(rows, 1), np.stack(columns, 1)


def _places_of_waves(row: MatrixProduct) -> dict[str, tuple[Array, Array]]:
    """The same for AMD's instructions, which are given b as their first operand and so compute the result's columns."""
    lanes = np.arange(row.form.rows * row.form.across)
    own, group, depth = (lanes % 16)[:, None], (lanes // 16)[:, None], row.shape[2]
    inner = np.broadcast_to(np.arange(depth), (len(lanes), depth))  # RDNA 3: lanes 16 to 31 have what 0 to 15 have
    if row.scale is not None and row.neighbours == 32:  # V_MFMA_SCALE deals 16 bytes at a time
        half = np.arange(16)
        inner = 16 * group + np.concatenate([half, depth // 2 + half])
    elif not row.has_whole_rows:
        each = depth // row.form.across
        inner = each * group + np.arange(each)
    each = 16 // row.form.across
    # V_MFMA_F64 and RDNA 3 deal rows of the result to the groups in turn; the others give each group neighbours.
    result = row.form.across * np.arange(each) + group if row.scattered else each * group + np.arange(each)
    rows = np.broadcast_to(own, inner.shape)
    return {"a": (rows, inner), "b": (inner, rows), "c": (np.broadcast_to(own, result.shape), result)}


def _factors(row: MatrixProduct, brought: dict[int, tuple[Array, ...]], first: int) -> tuple[Array, Array]:
    """The factor of each element of `a` and of `b`, of the scales that lanes bring."""
    (m, n, k), count = row.shape, row.scales
    of_a, of_b = np.zeros((m, count)), np.zeros((count, n))
    for lane, operands in brought.items():
        a, b = (np.atleast_1d(each).astype(np.float64)[first:] for each in operands[3:])
        if row.form.rows_first:
            of_a[lane % 16, lane // 16], of_b[lane // 16, lane % 16] = a[0], b[0]
            continue
        quad, place = lane >> 2, lane & 3
        if place < 2:
            of_a[quad + 8 * place] = a[:count]
        if place == 0:
            of_b[:, quad] = b[:count]
    return of_a.repeat(k // count, 1), of_b.repeat(k // count, 0)


def of_halves(bytes: Array, axis: int, row: MatrixProduct) -> Array:
    """The elements of bytes that have two each, along an axis, the lower half first."""
    whole = bytes.astype(np.uint8)
    halves = np.stack([whole & 15, whole >> 4], axis + 1).astype(np.uint8)
    sizes = [size * (2 if k == axis else 1) for k, size in enumerate(bytes.shape)]
    result: Array = halves.reshape(sizes).view(row.a.to_numpy()).astype(np.float64)
    return result


@evaluates("multiply_matrices")
def _multiply(op: Op, machine: Machine) -> Evaluate:
    row = BY_NAME[op.attrs["row"]]
    stored = row.of_bytes
    m, n, k = stored.shape
    sizes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    places = _places_of_waves(stored) if row.form.rows_first else {kind: _places(kind, stored.shape) for kind in sizes}
    lanes = len(places["a"][0])
    wide = np.float64 if row.acc.is_float() else np.int64

    def combine(brought: dict[int, Any]) -> dict[int, Any]:
        matrices = {}
        for number, (kind, size) in enumerate(sizes.items()):
            fragments = np.stack([np.atleast_1d(brought[lane][number]) for lane in range(lanes)])
            matrices[kind] = np.zeros(size, wide)
            matrices[kind][places[kind]] = fragments.astype(wide)
        if row.precision == "tf32":
            matrices |= {kind: as_tf32(matrices[kind]) for kind in ("a", "b")}
        if stored is not row:
            matrices |= {kind: of_halves(matrices[kind], "ab".index(kind) ^ 1, row) for kind in "ab"}
        if row.scale is not None:
            of_a, of_b = _factors(row, brought, op.attrs["first"])
            matrices |= {"a": matrices["a"] * of_a, "b": matrices["b"] * of_b}
        result = (matrices["c"] + matrices["a"] @ matrices["b"]).astype(row.acc.to_numpy())
        return {lane: result[places["c"][0][lane], places["c"][1][lane]] for lane in brought}

    return lambda *operands: Meeting(op, operands, combine)


def as_tf32(values: Array) -> Array:
    """The operands as the instruction takes them: the lower 13 bits of float32 do not count."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


@evaluates("load_matrices")
def _load_matrices(op: Op, machine: Machine) -> Evaluate:
    location, transposed, name = op.location, op.attrs["transposed"], machine.op
    size = op.results[0].dtype.bits // 8
    each = 4 // size  # elements of a lane in a block

    def combine(brought: dict[int, Any]) -> dict[int, Any]:
        rows = [load(brought[k][0], brought[k][1], 16 // size, name, location) for k in range(32)]
        blocks = [np.stack(rows[8 * k : 8 * k + 8]) for k in range(4)]
        if transposed:
            blocks = [block.T for block in blocks]
        return {
            lane: np.concatenate([block[lane >> 2, each * (lane & 3) : each * (lane & 3) + each] for block in blocks])
            for lane in brought
        }

    return lambda pointer, offset: Meeting(op, (pointer, offset), combine)
