"""Computes operations on the lanes of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.types.dtype import DType
from ..ir.program import Op
from .machine import Evaluate, Machine, evaluates
from .rows import evaluate_row


@evaluates("lanes")
def _lanes(op: Op, machine: Machine) -> Evaluate:
    dtype = op.results[0].dtype.to_numpy()
    return lambda *scalars: np.array(scalars, dtype)


@evaluates("extract")
def _extract(op: Op, machine: Machine) -> Evaluate:
    lane = op.attrs["lane"]
    return lambda vector: vector[lane]


@evaluates("insert")
def _insert(op: Op, machine: Machine) -> Evaluate:
    lane = op.attrs["lane"]
    return lambda vector, scalar: _with_lane(vector, scalar, lane)


def _with_lane(vector: Any, scalar: Any, lane: object) -> Any:
    changed = vector.copy()
    changed[lane] = scalar
    return changed


@evaluates("shuffle")
def _shuffle(op: Op, machine: Machine) -> Evaluate:
    mask = np.array(op.attrs["mask"])
    return lambda a, b: np.concatenate([a, b])[mask]


@evaluates("reduce")
def _reduce(op: Op, machine: Machine) -> Evaluate:
    combine = evaluate_row(op.attrs["row"], op.operands[0].dtype)

    def reduce(vector: Any) -> Any:
        while len(vector) > 1:
            half = len(vector) // 2
            vector = combine(vector[:half], vector[half:])
        return vector[0]

    return reduce


@evaluates("dot2")
def _dot2(op: Op, machine: Machine) -> Evaluate:
    width = op.results[0].simd.width
    multiply_add = evaluate_row("fma", DType.float32)

    def dot2(acc: Any, a: Any, b: Any) -> Any:
        total = _without_subnormals(np.broadcast_to(acc, width))
        factors = [_without_subnormals(v.astype(np.float32)).reshape(width, 2) for v in (a, b)]
        for lane in (1, 0):
            total = _without_subnormals(multiply_add(factors[0][:, lane], factors[1][:, lane], total))
        return total if width > 1 else total[0]

    return dot2


def _without_subnormals(value: Any) -> Any:
    """Numbers of which those below the normal ones are zeros of their sign."""
    return np.where(np.abs(value) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), value), value)


@evaluates("dot4")
def _dot4(op: Op, machine: Machine) -> Evaluate:
    width = op.results[0].simd.width

    def dot4(acc: Any, a: Any, b: Any) -> Any:
        sums = (a.astype(np.int64) * b.astype(np.int64)).reshape(width, 4).sum(axis=1) + acc
        wrapped = sums.astype(np.int32)
        return wrapped if width > 1 else wrapped[0]

    return dot4


@evaluates("splat")
def _splat(op: Op, machine: Machine) -> Evaluate:
    width = op.results[0].simd.width
    return lambda value: np.full(width, value)


@evaluates("extract_at", "take")
def _extract_at(op: Op, machine: Machine) -> Evaluate:
    return lambda vector, lanes: vector[lanes]


@evaluates("insert_at")
def _insert_at(op: Op, machine: Machine) -> Evaluate:
    return _with_lane
