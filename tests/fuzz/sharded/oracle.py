"""What a network over several ranks gives on each of them: computed by NumPy for all ranks at once.

A value is a list with an array for each rank. Local steps are computed in 64 bits and rounded to the dtype, which
changes nothing: numbers are whole and small, or fractions of few bits (see `ways`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from einkorn.graph import DType

from .network import LIMIT, Parameters, ShardedNetwork, arrays_of

Array = np.ndarray[Any, Any]
ByRank = list[Array]
Axes = Mapping[str, int]
Rule = Callable[[Axes, list[ByRank], Parameters], ByRank]

REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


def groups(mesh: Axes, name: str) -> list[list[int]]:
    """The ranks of each group along an axis; of "*", one group of all."""
    grid = np.arange(int(np.prod(list(mesh.values())))).reshape(list(mesh.values()))
    if name == "*":
        return [grid.ravel().tolist()]
    at = list(mesh).index(name)
    return [list(map(int, row)) for row in np.moveaxis(grid, at, -1).reshape(-1, mesh[name])]


def wide(array: Array) -> Array:
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def _local(function: Callable[..., Any]) -> Rule:
    def rule(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
        made = []
        for arrays in zip(*values, strict=True):
            made.append(np.asarray(function(p, *map(wide, arrays))).astype(arrays[0].dtype))
        return made

    return rule


def _of_group(function: Callable[[Parameters, list[Array]], Sequence[Array]]) -> Rule:
    """A rule for a function of the tensors of a group that gives one for each of its ranks."""

    def rule(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
        made = list(values[0])
        for ranks in groups(mesh, p["group"]):
            for rank, array in zip(ranks, function(p, [values[0][r] for r in ranks]), strict=True):
                made[rank] = array
        return made

    return rule


def _reduced(p: Parameters, arrays: list[Array]) -> Array:
    total = np.asarray(reduce(REDUCTIONS[p["how"]], map(wide, arrays)))
    return (total / len(arrays) if p["how"] == "mean" else total).astype(arrays[0].dtype)


def _exchanged(p: Parameters, arrays: list[Array]) -> list[Array]:
    pieces = [np.split(array, len(arrays), p["axis"]) for array in arrays]
    return [np.concatenate([each[rank] for each in pieces], p["axis"]) for rank in range(len(arrays))]


def _moved(p: Parameters, arrays: list[Array]) -> list[Array]:
    sources = {to: source for source, to in p["pairs"]}
    return [arrays[sources[k]] if k in sources else np.zeros_like(array) for k, array in enumerate(arrays)]


def _clamped(array: Array) -> Array:
    return np.round(np.clip(array, -LIMIT, LIMIT))


def _summed(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
    """Sums of whole numbers have 64 bits, as in NumPy."""
    totals = [(array, wide(array).sum(p["axis"], keepdims=True)) for array in values[0]]
    return [total if array.dtype.kind in "iu" else total.astype(array.dtype) for array, total in totals]


def _sharded(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
    made = []
    for rank, array in enumerate(values[0]):
        for name, axis in p["axes"].items():
            place = next(ranks.index(rank) for ranks in groups(mesh, name) if rank in ranks)
            array = np.split(array, mesh[name], axis)[place]
        made.append(array)
    return made


def _chain(mesh: Axes, value: ByRank, steps: Sequence[Any]) -> ByRank:
    for name, parameters in steps:
        value = RULES["clamp"](mesh, [RULES[name](mesh, [value], parameters)], {})
    return value


def _loop(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
    value = values[0]
    for _ in range(p["count"]):
        value = _chain(mesh, value, p["steps"])
    return value


def _branch(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
    return _chain(mesh, values[0], p["then"] if values[1][0][0] > 0 else p["other"])


def _product_sum(mesh: Axes, values: list[ByRank], p: Parameters) -> ByRank:
    return RULES["allreduce"](mesh, [RULES["matmul"](mesh, values, p)], p)


RULES: dict[str, Rule] = {
    "negate": _local(lambda p, x: -x),
    "abs": _local(lambda p, x: np.abs(x)),
    "relu": _local(lambda p, x: np.maximum(x, 0)),
    "add": _local(lambda p, x, y: x + y),
    "sub": _local(lambda p, x, y: x - y),
    "mul": _local(lambda p, x, y: x * y),
    "maximum": _local(lambda p, x, y: np.maximum(x, y)),
    "minimum": _local(lambda p, x, y: np.minimum(x, y)),
    "matmul": _local(lambda p, x, y: x @ y),
    "sum": _summed,
    "max": _local(lambda p, x: x.max(p["axis"], keepdims=True)),
    "min": _local(lambda p, x: x.min(p["axis"], keepdims=True)),
    "clamp": _local(lambda p, x: _clamped(x)),
    "where": _local(lambda p, x, y: np.where(x > y, x, y - x)),
    "cast": lambda mesh, values, p: [array.astype(DType[p["dtype"]].to_numpy()) for array in values[0]],
    "turn": _local(lambda p, x: x.T),
    "flip": _local(lambda p, x: np.flip(x, p["axis"])),
    "slice": _local(lambda p, x: x[(slice(None),) * p["axis"] + (slice(p["start"], None, p["step"]),)]),
    "concat": _local(lambda p, *xs: np.concatenate(xs, p["axis"])),
    "shard": _sharded,
    "tensor_parallel": _local(lambda p, x, first, second: _clamped(x @ first) @ second),
    "product_sum": _product_sum,
    "allreduce": _of_group(lambda p, arrays: [_reduced(p, arrays)] * len(arrays)),
    "reducescatter": _of_group(lambda p, arrays: np.split(_reduced(p, arrays), len(arrays), p["axis"])),
    "allgather": _of_group(lambda p, arrays: [np.concatenate(arrays, p["axis"])] * len(arrays)),
    "alltoall": _of_group(_exchanged),
    "broadcast": _of_group(lambda p, arrays: [arrays[p["root"]]] * len(arrays)),
    "permute": _of_group(_moved),
    "barrier": lambda mesh, values, p: values[0],
    "loop": _loop,
    "branch": _branch,
}


def values_of(network: ShardedNetwork, call: int) -> list[ByRank]:
    """All values of a call."""
    by_rank = [arrays_of(network, call, rank) for rank in range(network.ranks)]
    values: list[ByRank] = [list(each) for each in zip(*by_rank, strict=True)]
    for name, operands, parameters in network.steps:
        values.append(RULES[name](network.mesh, [values[k] for k in operands], parameters))
    return values


def results_of(network: ShardedNetwork, call: int) -> list[ByRank]:
    """The outputs of a call."""
    values = values_of(network, call)
    return [values[k] for k in network.outputs]
