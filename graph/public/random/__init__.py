"""`einkorn.random`: tensors of random numbers. See docs/eager.md."""

from einkorn.graph.eager.functional import functional as functional  # with it ops are methods of Tensor
from einkorn.graph.eager.random import (
    bernoulli,
    dropout,
    gaussian,
    kaiming_normal,
    kaiming_uniform,
    normal,
    seed,
    set_seed,
    uniform,
    xavier_normal,
    xavier_uniform,
)

__all__ = [
    "bernoulli",
    "dropout",
    "gaussian",
    "kaiming_normal",
    "kaiming_uniform",
    "normal",
    "seed",
    "set_seed",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
]
