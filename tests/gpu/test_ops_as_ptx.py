"""Ops of graphs whose sizes are known at the call: the host half chooses a kernel and its grid, and PTX is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.launching_device import launching_kind
from support.ptx_device import run_ptx

from einkorn.dsl import DType
from einkorn.graph import Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.driver.devices import CPU, Accelerator

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with a GPU whose kernels run in the interpreter of PTX."""
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, "sm_80")])
    yield


def models(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> tuple[Any, Any]:
    """One graph for the GPU, and for the host."""
    collected = []
    for ref, place in ((DeviceRef.GPU(), Accelerator(0)), (DeviceRef.CPU(), CPU())):
        types = [TensorType(DType.float32, shape, ref) for shape in shapes]
        with Graph("ops", input_types=types) as graph:
            graph.output(*build(*graph.inputs))
        collected.append(InferenceSession(devices=[place]).load(graph))
    return collected[0], collected[1]


def agree(loaded: tuple[Any, Any], *arrays: Array, bound: float = 2e-6) -> None:
    gpu, host = loaded
    outputs = gpu.execute(*(Buffer.from_numpy(array).to(DeviceRef.GPU()) for array in arrays))
    for given, wanted in zip(outputs, host.execute(*arrays), strict=True):
        np.testing.assert_allclose(given.to_numpy(), wanted.to_numpy(), bound, bound)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_rows_of_all_lengths() -> None:
    def build(x: Any) -> Any:
        return ops.sum(x), ops.softmax(x), ops.argmax(x), ops.argsort(x), ops.sum(x, axis=0), ops.cumsum(x, axis=-1)

    loaded = models(build, ("m", "n"))
    for m, n in ((1, 1), (9, 33), (2, 1030)):
        agree(loaded, drawn(m, n), bound=1e-5)


def test_empty_rows() -> None:
    loaded = models(lambda x: (ops.sum(x), ops.softmax(x), ops.sum(x, axis=0), ops.cumsum(x, axis=-1)), ("m", "n"))
    for m, n in ((0, 5), (3, 0), (0, 0)):
        agree(loaded, drawn(m, n))


def test_products_of_all_sizes() -> None:
    def build(a: Any, b: Any) -> Any:
        return a @ b, ops.gelu(a @ ops.transpose(ops.transpose(b, 0, 1), 0, 1))

    loaded = models(build, ("m", "k"), ("k", "n"))
    for m, k, n in ((1, 1, 1), (20, 7, 65), (3, 40, 90), (17, 0, 16)):
        agree(loaded, drawn(m, k), drawn(k, n), bound=1e-5)
