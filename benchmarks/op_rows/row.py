"""What a row says: an op at one size, and what else computes it. Arrays for rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]
MAKE = np.random.default_rng(0)


@dataclass(frozen=True)
class Row:
    """An op at one size.

    Attributes:
        op: its name.
        size: what the table says of the size.
        arrays: the inputs.
        ours: of values of a graph.
        numpy, torch, jax: of arrays and tensors; None where there is no such function.
        onnx: an op type and its attributes; `onnx_inputs` are inputs that only it has, behind the others.
        tolerance: by how much results may differ, relative to the largest; None where they are random.
        onnx_given: what ONNX Runtime is given for the arrays, where it wants them otherwise.
        prepare: what becomes of PyTorch's tensors before they are timed: another order of axes in memory.
    """

    op: str
    size: str
    arrays: Callable[[], list[Array]]
    ours: Call
    numpy: Call | None = None
    torch: Call | None = None
    onnx: tuple[str, Mapping[str, Any]] | None = None
    onnx_inputs: tuple[Array, ...] = ()
    tolerance: float | None = 0.0
    jax: Call | None = None
    onnx_given: Callable[[list[Array]], list[Array]] | None = None
    prepare: Call | None = None


def floats(*shape: int) -> Array:
    return MAKE.standard_normal(shape).astype(np.float32)


def places(below: int, *shape: int) -> Array:
    return MAKE.integers(0, below, shape)


def int64s(*values: int) -> Array:
    return np.array(values, np.int64)


def torch_module() -> Any:
    """PyTorch, where a call is made; contenders that are not installed are left out."""
    import torch

    return torch


def functional() -> Any:
    """torch.nn.functional."""
    return torch_module().nn.functional


def jax_module() -> Any:
    """JAX."""
    import jax

    return jax
