"""Models of one op, and of small graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops

KERNELS = str(Path(__file__).parent / "checked_kernels.py")
Run = Callable[..., Any]


def model_of(
    op: str, *arrays: Any, checks: str | None = None, path: str = KERNELS, static: bool = False, **parameters: Any
) -> Model:
    """A model of one op for inputs like these, of any sizes (or, `static`, of these)."""
    names = iter("abcdefghij")
    known: dict[int, str] = {}

    def dim(size: int) -> int | str:
        return size if static else known.setdefault(size, next(names))

    types = [TensorType(DType.from_numpy(a.dtype), tuple(dim(n) for n in a.shape), DeviceRef.CPU()) for a in arrays]

    def forward(*values: Any) -> Any:
        return ops.custom(op, device=DeviceRef.CPU(), values=values, parameters=parameters)

    graph = Graph("checked", forward=forward, input_types=types, custom_extensions=[path])
    return InferenceSession(checks=checks).load(graph)


@pytest.fixture(scope="session")
def run() -> Run:
    """`run(op, *arrays, checks=..., **parameters)`; models are kept."""
    models: dict[Any, Model] = {}

    def call(op: str, *arrays: Any, checks: str | None = None, **parameters: Any) -> Any:
        key = op, checks, str(parameters), str([(a.dtype, a.shape) for a in arrays])
        if key not in models:
            models[key] = model_of(op, *arrays, checks=checks, **parameters)
        return models[key](*arrays)[0].to_numpy()

    return call
