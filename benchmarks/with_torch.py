"""The workloads in PyTorch, eagerly, over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import twenty_torch
from mathematics import with_torch
from workloads import Array, Workload

Run = Callable[[], Any]


def use_threads(count: int) -> None:
    torch.set_num_threads(count)


def _chain(x: Any, out: Any) -> Any:
    y = torch.mul(x, 2.0, out=out)
    return y.add_(1.0).relu_().mul_(0.5).sub_(3.0)


def _multiply_add(tensors: list[Any], out: Any) -> Any:
    x, y, z = tensors
    return torch.addcmul(z, x, y, out=out)


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Run]:
    """What to call; "new" makes the output's memory, "given" writes into the same memory each time."""
    if workload.section == "twenty":
        return twenty_torch.prepare(workload, arrays)
    tensors: list[Any] = [torch.from_numpy(array) for array in arrays]
    if workload.section == "math":
        into = with_torch(workload.key)
        if into is None:
            return {}
        return {
            "new": lambda: into(torch.empty_like(tensors[0]), *tensors),
            "given": partial(into, torch.from_numpy(workload.empty()), *tensors),
        }
    axis: Any = workload.axis if workload.axis is not None else (0, 1)
    run: Callable[..., Any] = {
        "add_one": lambda out: torch.add(tensors[0], 1.0, out=out),
        "multiply_add": lambda out: _multiply_add(tensors, out),
        "relu": lambda out: torch.clamp_min(tensors[0], 0.0, out=out),
        "exp": lambda out: torch.exp(tensors[0], out=out),
        "chain": lambda out: _chain(tensors[0], out),
        "sum": lambda out: torch.sum(tensors[0], axis, keepdim=True, out=out),
        "mean": lambda out: torch.mean(tensors[0], axis, keepdim=True, out=out),
        "max": lambda out: torch.amax(tensors[0], axis, keepdim=True, out=out),
        "argmax": lambda out: torch.argmax(tensors[0], axis, keepdim=True, out=out),
        "softmax": lambda out: torch.softmax(tensors[0], axis, out=out),
        "matmul": lambda out: torch.matmul(tensors[0], tensors[1], out=out),
    }[workload.key]
    return {"new": partial(run, None), "given": partial(run, torch.from_numpy(workload.empty()))}
