"""A program of JAX on two processes with two devices each, for `test_jax_processes`: prints what holds, a line each.

python jax_on_ranks.py RANK PORT
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import einkorn.jax
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from einkorn.dsl import InputTensor, OutputTensor, exp, float32, foreach, register

P = PartitionSpec


@register("ranks::swish")
def swish(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


def say(what: str, holds: bool) -> None:
    print("holds" if holds else "FAILS", what, flush=True)


def parts(array: Any) -> list[tuple[Any, Any]]:
    """The shards of this process: where they are, and their elements."""
    return [(shard.index, np.asarray(shard.data)) for shard in array.addressable_shards]


def agrees(array: Any, wanted: Any) -> bool:
    return all(np.allclose(data, wanted[index], rtol=1e-5, atol=1e-6) for index, data in parts(array))


def main() -> None:
    rank, port = int(sys.argv[1]), sys.argv[2]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    say("two processes, four devices", len(jax.devices()) == 4 and len(jax.local_devices()) == 2)
    mesh = jax.make_mesh((4,), ("d",))
    numbers = np.linspace(-2, 2, 32, dtype=np.float32).reshape(8, 4)
    rows = jax.make_array_from_callback(numbers.shape, NamedSharding(mesh, P("d")), lambda index: numbers[index])
    op, wanted = einkorn.jax.op(swish), numbers / (1 + np.exp(-numbers))
    say("sharded arrays under jit", agrees(jax.jit(op)(rows), wanted))
    mapped: Callable[..., Any] = jax.shard_map(lambda x: op(x), mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    say("shard_map", agrees(jax.jit(mapped)(rows), wanted))
    total = jax.shard_map(lambda x: jax.lax.psum(op(x), "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    say("psum of results", agrees(jax.jit(total)(rows), wanted.reshape(4, 2, 4).sum(0)))


if __name__ == "__main__":
    main()
