"""Large elementwise work on a GPU: threads take two groups of elements, a block apart, and single ones at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.passes.widen_threads import MANY_BLOCKS
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops
from einkorn.graph.drawing.inspected import op_graph

GPU = DeviceRef.GPU()
LEAST = MANY_BLOCKS * 1024  # elements of float32, from which on there are groups


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("shape", [(LEAST + 517,), (LEAST // 512, 513), (3, LEAST // 3 + 4)])
def test_every_element_once(shape: tuple[int, ...]) -> None:
    """Whole blocks and the rest; a row that is repeated has places of its own in each group."""
    device: Any = Accelerator("sim", like="sm_90a")
    x, row = (np.random.default_rng(0).standard_normal(size).astype(np.float32) for size in (shape, shape[-1:]))

    def forward(x: TensorValue, row: TensorValue) -> TensorValue:
        return ops.add(ops.mul(x, x), row)

    types = [TensorType(DType.float32, each.shape, GPU) for each in (x, row)]
    model = InferenceSession(devices=[device]).load(Graph("groups", forward, types))
    (found,) = model(*(Buffer.from_numpy(each).to(device) for each in (x, row)))
    assert np.allclose(found.to_numpy(), x * x + row, rtol=1e-6, atol=1e-6)


@pytest.mark.as_shipped
@pytest.mark.parametrize(("size", "count"), [(LEAST, 4), (LEAST - 1024, 2)])
def test_accesses_of_a_thread(size: int, count: int) -> None:
    """Two loads of 16 bytes for each of two inputs, or one where there are fewer elements."""
    ptx = op_graph("add", [f"float32[{size}]"] * 2, {}, "sm_90a").code("asm", "sm_90a")
    assert ptx.count("ld.global.v4") + ptx.count("ld.global.nc.v4") == count, ptx
