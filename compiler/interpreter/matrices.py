"""Computes matrix instructions of a warp: the lanes bring their fragments, which become matrices and are multiplied.

Which elements of a matrix a lane has is written from NVIDIA's PTX ISA manual ("Matrix Fragments for mma.m16n8k16" and
its neighbours), apart from the code that reads fragments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.program import Op
from ..targets.products import BY_NAME
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


@evaluates("multiply_matrices")
def _multiply(op: Op, machine: Machine) -> Evaluate:
    row = BY_NAME[op.attrs["row"]]
    m, n, k = row.shape
    sizes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    places = {kind: _places(kind, row.shape) for kind in sizes}
    wide = np.float64 if row.acc.is_float() else np.int64

    def combine(brought: dict[int, Any]) -> dict[int, Any]:
        matrices = {}
        for number, (kind, size) in enumerate(sizes.items()):
            fragments = np.stack([np.atleast_1d(brought[lane][number]) for lane in range(32)])
            matrices[kind] = np.zeros(size, wide)
            matrices[kind][places[kind]] = fragments.astype(wide)
        if row.precision == "tf32":
            matrices |= {kind: _tf32(matrices[kind]) for kind in ("a", "b")}
        result = (matrices["c"] + matrices["a"] @ matrices["b"]).astype(row.acc.to_numpy())
        return {lane: result[places["c"][0][lane], places["c"][1][lane]] for lane in brought}

    return lambda a, b, acc: Meeting(op, (a, b, acc), combine)


def _tf32(values: Array) -> Array:
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
