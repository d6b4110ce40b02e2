"""A program of `torch.distributed` on two processes, for `test_torch_processes`: prints what holds, a line each.

    python torch_on_ranks.py RANK FILE

FILE is where the processes find each other.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import einkorn.torch as ek
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from einkorn.dsl import InputTensor, OutputTensor, exp, float32, foreach, register

RANKS = 2


@register("ranks::swish")
def swish(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


@register("ranks::swish_slope")
def swish_slope(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], g: InputTensor[float32, "*s"]) -> None:
    def element(i):  # type: ignore[no-untyped-def]
        s = 1 / (1 + exp(-x[i]))
        return g[i] * s * (1 + x[i] * (1 - s))

    foreach(out, element)


@swish.backward
def swish_backward(context: Any, gradient: Any) -> Any:
    return swish_slope(context.inputs[0], gradient)


class Net(torch.nn.Module):
    """Two layers with a function between them: `torch`'s, or a kernel."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.function = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.function(self.first(x)))  # type: ignore[no-any-return]


def say(what: str, holds: bool) -> None:
    print("holds" if holds else "FAILS", what, flush=True)


def gradients(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in net.parameters()]  # type: ignore[misc]


def alike(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


def data_parallel(rank: int, x: torch.Tensor, op: Any) -> None:
    """Gradients of each rank's rows are averaged over both, by DDP."""
    whole = Net(torch.nn.functional.silu)
    (whole(x) ** 2).mean().backward()
    for name, function in (("DDP", op), ("compiled DDP", torch.compile(op, backend="aot_eager"))):
        net = DistributedDataParallel(Net(function))
        rows = x.chunk(RANKS)[rank]
        for _ in range(2):
            net.zero_grad()
            (net(rows) ** 2).mean().backward()
        say(name, alike(gradients(net), gradients(whole)))


def tensor_parallel(x: torch.Tensor, op: Any) -> None:
    """The first layer by columns, the second by rows: the kernel computes each rank's part."""
    whole, mesh = Net(torch.nn.functional.silu), init_device_mesh("cpu", (RANKS,))
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    net = parallelize_module(Net(op), mesh, plan)
    actual, wanted = net(x), whole(x)
    say("tensor parallel", torch.allclose(actual, wanted, rtol=1e-4, atol=1e-6))
    (actual**2).mean().backward()
    (wanted**2).mean().backward()
    say("gradients of tensor parallel", alike(gradients(net), gradients(whole)))
    sharded = op(distribute_tensor(x, mesh, [Shard(0)]))
    say("a distributed tensor stays in shards", sharded.placements == (Shard(0),))
    say("its elements", torch.allclose(sharded.full_tensor(), torch.nn.functional.silu(x), rtol=1e-5))


def main() -> None:
    rank, file = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=100)
    )
    x, op = torch.linspace(-2, 2, 48).reshape(6, 8), ek.op(swish)
    data_parallel(rank, x, op)
    tensor_parallel(x, op)
    total = op(x * (rank + 1))
    dist.all_reduce(total)
    wanted = torch.nn.functional.silu(x) + torch.nn.functional.silu(2 * x)
    say("allreduce of a result", torch.allclose(total, wanted, rtol=1e-5))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
