"""A layer whose weights ranks share, for tests of ranks that are threads and of ranks that are processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from einkorn.distributed import RankGroup

from einkorn.graph import DeviceRef, DType, TensorType, nn

DIM, HIDDEN, HEADS = 32, 64, 8


def numbers(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float32)


def f32(*shape: Any) -> TensorType:
    return TensorType(DType.float32, shape, DeviceRef.CPU())


class Layer(nn.Module[[Any], Any]):
    """A layer of a transformer with experts behind it."""

    def __init__(self, group: RankGroup | None) -> None:
        self.norm = nn.RMSNorm(DIM)
        self.attention = nn.Attention(DIM, HEADS, 4, bias=True, out_bias=True, split_heads=group)
        self.mlp = nn.MLP(DIM, HIDDEN, bias=True, split_hidden=group)
        self.experts = nn.MoE(DIM, 16, 8, 2, split_experts=group)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        x = x + self.mlp(self.norm(x))
        return x + self.experts(x)
