"""Says along which axes a call may be split over the devices of a mesh, where a program is under plain `jax.jit`.

Without a rule XLA gathers the operands of a call that it does not know. An elementwise call may be split along all
axes, and a batched one along the axes of the batch: each device calls the kernel for its shard, and nothing is sent.
XLA takes this from two attributes of the call: the rule for the propagation of shardings, and the number of axes that
operands and results begin with along which it may split. It replicates an operand with fewer axes than that.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import jax
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place


@dataclass(frozen=True)
class SharedAxes:
    """Axes along which a call may be split.

    Attributes:
        operands: for each operand which of the axes it begins with, in their order.
        count: how many there are; every result begins with all of them.
    """

    operands: tuple[tuple[int, ...], ...]
    count: int


def result_sharding(name: str, avals: Sequence[Any], shared: SharedAxes, rank: int) -> Any:
    """The sharding of a result in the type system of JAX: on meshes with explicit axes as the operands have it.

    Raises:
        GraphError: EK0889, operands are sharded in ways that contradict each other.
    """
    spec: list[Any] = [None] * rank
    for aval, axes in zip(avals, shared.operands, strict=True):
        for axis, along in zip(axes, aval.sharding.spec, strict=False):
            if along is None or spec[axis] == along:
                continue
            if spec[axis] is not None or along in spec:
                shown = ", ".join(str(each.sharding.spec) for each in avals)
                raise GraphError(
                    f"op '{name}': its operands are sharded in ways that contradict each other: {shown}",
                    code="EK0889",
                    place=user_place(),
                    op=name,
                    got=shown,
                    hint="give them one sharding: y = jax.sharding.reshard(y, jax.typeof(x).sharding)",
                )
            spec[axis] = along
    return NamedSharding(avals[0].sharding.mesh, PartitionSpec(*spec))


def is_split(ctx: Any) -> bool:
    """Whether a program that is lowered is for several devices, over which XLA splits it."""
    around = ctx.module_context.axis_context
    return isinstance(around, mlir.ShardingContext) and around.num_devices > 1


def call_attributes(operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]], axes: int) -> dict[str, Any]:
    """The attributes of a call that XLA may split.

    Args:
        operands, results: their shapes.
        axes: how many axes all results, and the operands with more axes than that, begin with and may be split along.
    """
    collected = {"mhlo.frontend_attributes": mlir.ir_attribute({"num_batch_dims": str(axes)})}
    if jax.config.jax_use_shardy_partitioner:
        collected["sdy.sharding_rule"] = mlir.ir.Attribute.parse(_rule(operands, results, axes))
    return collected


def _rule(operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]], axes: int) -> str:
    """The rule for propagation: shared axes are one factor each, and every other axis is whole on each device."""
    sizes: list[int] = list(results[0][:axes])

    def factors(shape: Sequence[int]) -> str:
        shared = axes if len(shape) > axes else 0
        own = range(len(sizes), len(sizes) + len(shape) - shared)
        sizes.extend(shape[shared:])
        return f"[{', '.join(_factor(k) for k in (*range(shared), *own))}]"

    given, made = (f"({', '.join(map(factors, shapes))})" for shapes in (operands, results))
    listed = ", ".join(f"{_factor(k)}={size}" for k, size in enumerate(sizes))
    whole = ", ".join(_factor(k) for k in range(axes, len(sizes)))
    return f"#sdy.op_sharding_rule<{given}->{made} {{{listed}}} need_replication={{{whole}}}, custom>"


def _factor(number: int) -> str:
    """The name of a factor, as the text of a rule has it: i, j, …, z, z_1, z_2, …"""
    names = string.ascii_lowercase[8:]
    return names[number] if number < len(names) else f"z_{number - len(names) + 1}"
