"""The twenty kernels in PyTorch: one call where it has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nn
from twenty_numpy import COEFFICIENTS
from workloads import Array, Workload


def _polynomial(x: Any) -> Any:
    result = x * COEFFICIENTS[0]
    for c in COEFFICIENTS[1:-1]:
        result.add_(c).mul_(x)
    return result.add_(COEFFICIENTS[-1])


def _moments(x: Any) -> Any:
    variance, mean = torch.var_mean(x, 1, correction=0)
    return torch.stack([mean, variance])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add_one": lambda x: x + 1,
    "multiply_add": lambda x, y, z: torch.addcmul(z, x, y),
    "relu": torch.relu,
    "gelu": nn.gelu,
    "silu": nn.silu,
    "softplus": nn.softplus,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "length": torch.hypot,
    "quantised": lambda x: torch.round(x * 30).clamp_(-128, 127).to(torch.int8),
    "polynomial": _polynomial,
    "row_sum": lambda x: x.sum(1),
    "row_max": lambda x: x.amax(1),
    "row_argmax": lambda x: x.argmax(1),
    "row_moments": _moments,
    "row_dot": torch.mv,
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "rms_norm": lambda x, w: nn.rms_norm(x, w.shape, w, 1e-5),
    "layer_norm": lambda x, w, b: nn.layer_norm(x, w.shape, w, b, 1e-5),
    "softmax": lambda x: torch.softmax(x, 1),
    "row_cumsum": lambda x: torch.cumsum(x, 1),
}


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Callable[[], Any]]:
    """What to call."""
    tensors = [torch.from_numpy(array) for array in arrays]
    return {"new": partial(FUNCTIONS[workload.key.removeprefix("twenty::")], *tensors)}
