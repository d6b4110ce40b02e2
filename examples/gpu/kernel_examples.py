"""What the kernels of this folder are given, and what NumPy says that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).resolve().parent / "kernels"


@dataclass(frozen=True)
class Example:
    """A kernel with inputs.

    Attributes:
        file: the name of the file in kernels/, without its suffix, and of the op, behind `gpu::`.
        inputs: makes the inputs; the same ones each time.
        reference: gives the output or outputs by NumPy.
        parameters: compile-time parameters of the op.
        bound: the largest difference to the reference, relative to the largest number; 0 where all bits are the same.
    """

    file: str
    inputs: Callable[[], tuple[Array, ...]]
    reference: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bound: float = 0.0

    @property
    def name(self) -> str:
        """The op, with the algorithm that is chosen."""
        return " ".join([self.file, *(value for value in self.parameters.values() if isinstance(value, str))])

    @property
    def path(self) -> Path:
        return KERNELS / f"{self.file}.py"

    @property
    def op(self) -> str:
        return f"gpu::{self.file}"

    def expected(self) -> list[Array]:
        outputs = self.reference(*self.inputs())
        return list(outputs) if isinstance(outputs, tuple) else [outputs]


def whole(*shape: int, seed: int = 0) -> Array:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float32)


def normal(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    random = np.random.default_rng(len(shapes))
    return tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)


def largest(x: Array) -> tuple[Array, Array]:
    order = np.argsort(-x, axis=1, kind="stable")[:, :8]
    return np.take_along_axis(x, order, 1), order.astype(np.int64)


def convolved(image: Array, filter: Array) -> Array:
    rim = filter.shape[0] // 2
    padded = np.pad(image, rim).astype(np.float64)
    sums = np.zeros(image.shape)
    for i, j in np.ndindex(*filter.shape):
        sums += padded[i : i + image.shape[0], j : j + image.shape[1]] * filter[i, j]
    return sums.astype(np.float32)


def attended(q: Array, k: Array, v: Array) -> Array:
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).astype(np.float32)


EXAMPLES = (
    Example("vector_addition", lambda: (whole(1000), whole(1000, seed=1)), np.add),
    Example("reduction", lambda: (whole(5000),), lambda x: x.sum(keepdims=True), {"blocks": 5}),
    *(
        Example("transpose", lambda: (whole(45, 70),), lambda x: x.T.copy(), {"algorithm": a})
        for a in ("naive", "tiled")
    ),
    Example("prefix_sum", lambda: (whole(1300).astype(np.int64),), np.cumsum),
    Example(
        "histogram",
        lambda: (np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8),),
        lambda x: np.bincount(x, minlength=256).astype(np.int32),
    ),
    Example("top_k", lambda: (whole(3, 50),), largest, {"k": 8, "size": 64}),
    Example("convolution", lambda: normal((21, 34), (5, 5)), convolved, {"size": 5}, 1e-6),
    *(
        Example("matrix_multiplication", lambda: (whole(21, 20), whole(20, 24, seed=1)), np.matmul, {"algorithm": a})
        for a in ("naive", "coalesced", "shared", "registers", "vectorized")
    ),
    Example("attention", lambda: normal((2, 5, 40), (2, 70, 40), (2, 70, 40)), attended, {"width": 40}, 1e-5),
)
