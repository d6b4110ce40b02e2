"""Elements that a GPU reads across memory: by tiles in shared memory, for all sizes, without conflicts of banks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.launching_device import launching_kind
from support.ptx_device import run_ptx

from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.engine.model import Model

Array = np.ndarray[Any, Any]
GPU = DeviceRef.GPU()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def loaded(device: Any, dtype: Any, shape: Sequence[int | str], forward: Callable[..., Any]) -> Model:
    type = TensorType(DType.from_numpy(np.dtype(dtype)), list(shape), GPU)
    return InferenceSession(devices=[device]).load(Graph("turned", forward, [type]))


def numbers(shape: Sequence[int], dtype: Any) -> Array:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 50).astype(dtype)


def permuted(order: Sequence[int]) -> Callable[..., Any]:
    return lambda x: ops.permute(x, list(order))


def check(model: Model, device: Any, x: Array, wanted: Array) -> None:
    assert np.array_equal(model(Buffer.from_numpy(x).to(device))[0].to_numpy(), wanted)


@pytest.mark.parametrize("like", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_, np.float64])
def test_every_size_of_elements(dtype: Any, like: str) -> None:
    """The fewest sectors, and no turn of shared memory too many."""
    device, x = Accelerator("sim", like=like, checks="all"), numbers((128, 128), dtype)
    model = loaded(device, dtype, ("m", "n"), permuted((1, 0)))
    check(model, device, x, x.T)
    counted = model.count_memory(Buffer.from_numpy(x).to(device)).lines
    assert any(line.space == "shared" for line in counted)
    assert sum(line.sectors for line in counted) == sum(line.least for line in counted) == 2 * x.nbytes // 32
    assert sum(line.conflicts for line in counted) == 0


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_of_threads(seed: int) -> None:
    """Sizes that tiles do not divide, in two shapes of one model; short axes, and none."""
    device = Accelerator("sim", seed=seed, checks="all")
    model = loaded(device, np.float32, ("m", "n"), permuted((1, 0)))
    for shape in ((65, 131), (200, 33), (1, 70), (3, 500), (0, 4), (4, 0)):
        x = numbers(shape, np.float32)
        check(model, device, x, x.T)


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
def test_three_axes(order: tuple[int, ...]) -> None:
    device, x = Accelerator("sim"), numbers((40, 17, 50), np.int32)
    for shape in (("a", "b", "c"), x.shape):
        check(loaded(device, np.int32, shape, permuted(order)), device, x, x.transpose(order))


def test_what_is_computed_from_both() -> None:
    """A sum of a matrix and its transpose reads one through a tile."""
    device, x = Accelerator("sim", checks="all"), numbers((160, 160), np.float32)
    model = loaded(device, np.float32, x.shape, lambda x: ops.permute(x, [1, 0]) * 2.0 + x)
    check(model, device, x, x.T * np.float32(2) + x)
    counted = model.count_memory(Buffer.from_numpy(x).to(device)).lines
    assert sum(line.sectors for line in counted) == 3 * x.nbytes // 32


@pytest.mark.parametrize("shape", [(130, 127), (3, 64, 90)])
def test_as_ptx(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, "sm_80")])
    device, x = Accelerator(0), numbers(shape, np.float32)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    for sizes in ([*"abc"[: len(shape)]], shape):
        check(loaded(device, np.float32, sizes, permuted(order)), device, x, x.transpose(order))
