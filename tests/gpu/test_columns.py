"""Reductions of columns and products of one row on GPUs, cut along the axis that goes: the same bits in any order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.launching_device import launching_kind
from support.ptx_device import run_ptx

from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph
from einkorn.graph.driver import devices
from einkorn.graph.engine.model import Model

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def reductions(x: Any) -> list[Any]:
    return [ops.sum(x, axis=0), ops.max(x, axis=0), ops.argmax(x, axis=0), ops.mean(x, axis=0)]


def loaded(device: Any, shape: Sequence[int | str]) -> Model:
    ref = DeviceRef.CPU() if isinstance(device, CPU) else DeviceRef.GPU()
    graph = Graph("columns", reductions, [TensorType(DType.float32, list(shape), ref)])
    return InferenceSession(devices=[device]).load(graph)


def results(model: Model, device: Any, x: Array) -> list[Array]:
    return [each.to_numpy() for each in model(Buffer.from_numpy(x).to(device))]


def numbers(*shape: int) -> Array:
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    x[-1, :1] = x[0, :1] = 9.0  # the first of them is the place of the maximum
    return x


def check(model: Model, device: Any, shape: Sequence[int]) -> list[Array]:
    x = numbers(*shape)
    found = results(model, device, x)
    for given, wanted in zip(found, results(loaded(CPU(), ("m", *shape[1:])), CPU(), x), strict=True):
        np.testing.assert_allclose(given, wanted, 1e-5, 1e-4)
    return found


def test_pieces_of_columns_in_any_order_of_threads() -> None:
    """Pieces that are not full, more columns than a block has, and columns of one piece, by one model."""
    known: dict[int, list[Array]] = {}
    for seed in range(4):
        device = Accelerator("sim", seed=seed, checks="all" if seed == 0 else "races")
        model = loaded(device, ("m", 33))
        for m in (515, 130, 1):
            found = check(model, device, (m, 33))
            for given, wanted in zip(found, known.setdefault(m, found), strict=True):
                assert given.tobytes() == wanted.tobytes()


def test_an_axis_in_the_middle() -> None:
    device = Accelerator("sim", like="gfx942")
    x = numbers(2, 515, 7)
    with Graph("middle", input_types=[TensorType(DType.float32, x.shape, DeviceRef.GPU())]) as graph:
        graph.output(ops.sum(graph.inputs[0], axis=1))
    (found,) = results(InferenceSession(devices=[device]).load(graph), device, x)
    np.testing.assert_allclose(found, x.sum(1, keepdims=True, dtype=np.float64), 1e-5, 1e-4)


def test_as_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, "sm_80")])
    check(loaded(Accelerator(0), (300, 5)), Accelerator(0), (300, 5))


@pytest.mark.parametrize("shape", ["4096, 1024", "100000, 32", "16384, 256"])
def test_a_gpu_is_full(shape: str) -> None:
    typed = op_graph("sum", [f"float32[{shape}]"], {"axis": 0}, "sm_90a").code("typed", "sm_90a")
    blocks = [int(each) for each in re.findall(r"^\s*launch (\d+), 1, 1", typed, re.M)]
    assert max(blocks) >= 2 * 132


def product_of_one_row(device: Any, sizes: Sequence[int | str], dtype: DType = DType.float32) -> Model:
    types = [TensorType(dtype, each, DeviceRef.GPU()) for each in ([1, sizes[0]], list(sizes))]
    return InferenceSession(devices=[device]).load(Graph("product", lambda a, b: a @ b, types))


@pytest.mark.parametrize("k", [700, 300, 63])
def test_products_of_one_row(k: int) -> None:
    """Of lengths that are known at the call; with the bits of those that are known before."""
    random = np.random.default_rng(k)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((1, k), (k, 37)))
    found = []
    shapes: list[tuple[int | str, int | str]] = [("k", 37), (k, 37), (k, "n")]
    for seed, sizes in enumerate(shapes):
        device = Accelerator("sim", seed=seed, checks="all" if seed == 0 else "races")
        given = [Buffer.from_numpy(each).to(device) for each in (a, b)]
        found.append(product_of_one_row(device, sizes)(*given)[0].to_numpy())
    np.testing.assert_allclose(found[0], a.astype(np.float64) @ b, 1e-5, 1e-4)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_a_gpu_is_full_of_products_of_one_row() -> None:
    typed = op_graph("matmul", ["bfloat16[1, 4096]", "bfloat16[4096, 4096]"], {}, "sm_90a").code("typed", "sm_90a")
    assert max(int(each) for each in re.findall(r"^\s*launch (\d+), 1, 1", typed, re.M)) >= 2 * 132


def test_sectors() -> None:
    device = Accelerator("sim", checks="all")
    x = numbers(1024, 64)
    with Graph("sums", input_types=[TensorType(DType.float32, x.shape, DeviceRef.GPU())]) as graph:
        graph.output(ops.sum(graph.inputs[0], axis=0))
    lines = InferenceSession(devices=[device]).load(graph).count_memory(Buffer.from_numpy(x).to(device)).lines
    read = [line for line in lines if line.bytes == x.nbytes]
    assert [(line.sectors, line.least) for line in read] == [(x.nbytes // 32, x.nbytes // 32)]
    assert sum(line.sectors for line in lines) <= 1.1 * x.nbytes // 32
    assert sum(line.conflicts for line in lines) == 0
