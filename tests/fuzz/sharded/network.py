"""Networks over several ranks as data, and how they are staged on one of the ranks.

    ShardedNetwork(
        mesh={"data": 2, "model": 2},
        inputs=(("float32", ("m", 4), "own"), ("int32", (1,), "same")),
        steps=(("allreduce", (0,), {"how": "sum", "group": "model"}), ...),
        outputs=(2,),
        sizes=({"m": 3}, {"m": 0}),                   # one call for each
        seed=7,
    )

Values are numbered: the inputs, then the result of each step. All ranks have the same graph. An input is the "same" on
all ranks, or each has its "own". The mesh is a dict in the order of its axes.

See also `oracle` (what comes out of it), `networks.network` (networks of one rank).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from einkorn.distributed import Mesh

from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops

HOST = DeviceRef.CPU()
LIMIT = 2  # elements of inputs, and of what a step `clamp` gives, are at most this

Parameters = dict[str, Any]
Step = tuple[str, tuple[int, ...], Parameters]
Input = tuple[str, tuple[int | str, ...], str]


@dataclass(frozen=True)
class ShardedNetwork:
    """A graph of all ranks of a mesh, the sizes of its calls, and the seed of its numbers."""

    mesh: dict[str, int]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    sizes: tuple[dict[str, int], ...]
    seed: int = 0

    @property
    def ranks(self) -> int:
        """How many there are."""
        return int(np.prod(list(self.mesh.values())))

    def to_json(self) -> str:
        return json.dumps([self.mesh, self.inputs, self.steps, self.outputs, self.sizes, self.seed])

    @staticmethod
    def from_json(text: str) -> ShardedNetwork:
        mesh, inputs, steps, outputs, sizes, seed = json.loads(text)
        return ShardedNetwork(
            mesh,
            tuple((dtype, tuple(shape), kind) for dtype, shape, kind in inputs),
            tuple((name, tuple(operands), parameters) for name, operands, parameters in steps),
            tuple(outputs),
            tuple(sizes),
            seed,
        )

    def source(self) -> str:
        """The network as Python text, one step a line."""
        steps = "".join(f"        {step!r},\n" for step in self.steps)
        head = f"    mesh={self.mesh!r},\n    inputs={self.inputs!r},\n    steps=(\n{steps}    ),\n"
        rest = f"    outputs={self.outputs!r},\n    sizes={self.sizes!r},\n    seed={self.seed!r},\n"
        return f"NETWORK = ShardedNetwork(\n{head}{rest})\n"


def arrays_of(network: ShardedNetwork, call: int, rank: int) -> list[Any]:
    """The inputs of a rank: small whole numbers, so that no sum is rounded, in whatever order it is taken."""
    arrays = []
    for number, (dtype, shape, kind) in enumerate(network.inputs):
        whole = [network.sizes[call][dim] if isinstance(dim, str) else dim for dim in shape]
        rng = np.random.default_rng([network.seed, call, number, rank if kind == "own" else 0])
        arrays.append(rng.integers(-LIMIT, LIMIT, whole, endpoint=True).astype(DType[dtype].to_numpy()))
    return arrays


# *** staging ***

Stage = Callable[[Mesh, list[Any], Parameters], Any]


def _local(function: Callable[..., Any]) -> Stage:
    return lambda mesh, values, p: function(*values)


def _reduction(function: Callable[..., Any]) -> Stage:
    return lambda mesh, values, p: function(values[0], axis=p["axis"], keepdims=True)


def clamped(value: Any) -> Any:
    """Whole numbers of small size."""
    limited = ops.clamp(value, -LIMIT, LIMIT)
    return ops.round(limited) if value.dtype.is_float() else limited


def _chain(mesh: Mesh, value: Any, steps: Sequence[Any]) -> Any:
    for name, parameters in steps:
        value = clamped(STEPS[name](mesh, [value], parameters))
    return value


def _loop(mesh: Mesh, values: list[Any], p: Parameters) -> Any:
    def body(x: Any, n: Any) -> Any:
        return _chain(mesh, x, p["steps"]), n + 1

    return ops.while_loop((values[0], 0), lambda x, n: n < p["count"], body)[0]


def _branch(mesh: Mesh, values: list[Any], p: Parameters) -> Any:
    x, flag = values
    then, other = (lambda name=name: _chain(mesh, x, p[name]) for name in ("then", "other"))
    return ops.cond(flag[0] > 0, [x.type], then, other)[0]


def _tensor_parallel(mesh: Mesh, values: list[Any], p: Parameters) -> Any:
    """Two products with weights that ranks share: the first by columns, the second by rows."""
    x, first, second = values
    columns, rows = ops.shard(first, mesh, {p["group"]: 1}), ops.shard(second, mesh, {p["group"]: 0})
    return ops.allreduce.sum(clamped(x @ columns) @ rows, mesh[p["group"]])


def _product_sum(mesh: Mesh, values: list[Any], p: Parameters) -> Any:
    return getattr(ops.allreduce, p["how"])(values[0] @ values[1], mesh[p["group"]])


def _barrier(mesh: Mesh, values: list[Any], p: Parameters) -> Any:
    ops.barrier(mesh[p["group"]])
    return values[0]


STEPS: dict[str, Stage] = {
    **{name: _local(getattr(ops, name)) for name in ("negate", "abs", "relu", "add", "sub", "mul", "matmul")},
    **{name: _local(getattr(ops, name)) for name in ("maximum", "minimum")},
    **{name: _reduction(getattr(ops, name)) for name in ("sum", "max", "min")},
    "clamp": _local(clamped),
    "where": _local(lambda x, y: ops.where(x > y, x, y - x)),
    "cast": lambda mesh, v, p: ops.cast(v[0], DType[p["dtype"]]),
    "turn": lambda mesh, v, p: ops.permute(v[0], list(range(v[0].rank))[::-1]),
    "flip": lambda mesh, v, p: ops.flip(v[0], p["axis"]),
    "slice": lambda mesh, v, p: v[0][(slice(None),) * p["axis"] + (slice(p["start"], None, p["step"]),)],
    "concat": lambda mesh, v, p: ops.concat(v, p["axis"]),
    "shard": lambda mesh, v, p: ops.shard(v[0], mesh, p["axes"]),
    "tensor_parallel": _tensor_parallel,
    "product_sum": _product_sum,
    "allreduce": lambda mesh, v, p: getattr(ops.allreduce, p["how"])(v[0], mesh[p["group"]]),
    "reducescatter": lambda mesh, v, p: getattr(ops.reducescatter, p["how"])(v[0], mesh[p["group"]], p["axis"]),
    "allgather": lambda mesh, v, p: ops.allgather(v[0], mesh[p["group"]], p["axis"]),
    "alltoall": lambda mesh, v, p: ops.alltoall(v[0], mesh[p["group"]], p["axis"]),
    "broadcast": lambda mesh, v, p: ops.distributed_broadcast(v[0], mesh[p["group"]], p["root"]),
    "permute": lambda mesh, v, p: ops.collective_permute(v[0], mesh[p["group"]], [tuple(pair) for pair in p["pairs"]]),
    "barrier": _barrier,
    "loop": _loop,
    "branch": _branch,
}


def staged(network: ShardedNetwork, mesh: Mesh) -> Graph:
    """The graph of a network, on a rank of a mesh."""
    types = [TensorType(DType[dtype], shape, HOST) for dtype, shape, _ in network.inputs]
    with Graph("sharded", input_types=types) as graph:
        values: list[Any] = list(graph.inputs)
        for name, operands, parameters in network.steps:
            values.append(STEPS[name](mesh, [values[k] for k in operands], parameters))
        graph.output(*(values[k] for k in network.outputs))
    return graph
