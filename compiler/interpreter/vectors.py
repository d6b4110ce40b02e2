"""What operations on the lanes of vectors compute.

Input: operations, as in `interpret_ops`. Output: functions on NumPy scalars and vectors. Non-goals: memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.program import Op
from .rows import evaluate_row

Evaluate = Callable[..., Any]


def _lanes(op: Op, machine: Any) -> Evaluate:
    dtype = op.results[0].dtype.to_numpy()
    return lambda *scalars: np.array(scalars, dtype)


def _extract(op: Op, machine: Any) -> Evaluate:
    lane = op.attrs["lane"]
    return lambda vector: vector[lane]


def _insert(op: Op, machine: Any) -> Evaluate:
    lane = op.attrs["lane"]
    return lambda vector, scalar: _insert_at(vector, scalar, lane)


def _insert_at(vector: Any, scalar: Any, lane: Any) -> Any:
    changed = vector.copy()
    changed[lane] = scalar
    return changed


def _shuffle(op: Op, machine: Any) -> Evaluate:
    mask = np.array(op.attrs["mask"])
    return lambda a, b: np.concatenate([a, b])[mask]


def _reduce(op: Op, machine: Any) -> Evaluate:
    combine = evaluate_row(op.attrs["row"], op.operands[0].dtype)

    def reduce(vector: Any) -> Any:
        while len(vector) > 1:
            half = len(vector) // 2
            vector = combine(vector[:half], vector[half:])
        return vector[0]

    return reduce


EVALUATORS: dict[str, Callable[[Op, Any], Evaluate]] = {
    "lanes": _lanes,
    "extract": _extract,
    "insert": _insert,
    "extract_at": lambda op, machine: lambda vector, lane: vector[lane],
    "insert_at": lambda op, machine: _insert_at,
    "shuffle": _shuffle,
    "take": lambda op, machine: lambda table, indices: table[indices],
    "reduce": _reduce,
}
