"""Rows that a GPU takes by indices: 16 bytes at a time, with each index read once, and with mistakes found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("width", [384, 386])
@pytest.mark.parametrize("like", ["sm_90a", "gfx942"])
def test_rows(width: int, like: str) -> None:
    device: Any = Accelerator("sim", like=like, checks="all")
    x = np.random.default_rng(0).standard_normal((50, width)).astype(np.float32)
    where = np.array([*range(-50, 50), 0, 49] * 2, np.int64)[:150]
    types = [TensorType(DType.from_numpy(each.dtype), each.shape, DeviceRef.GPU()) for each in (x, where)]
    model = InferenceSession(devices=[device]).load(Graph("rows", lambda x, i: ops.gather(x, i, axis=0), types))
    table = Buffer.from_numpy(x).to(device)
    assert np.array_equal(model(table, Buffer.from_numpy(where).to(device))[0].to_numpy(), x[where])
    where[140] = 50
    with pytest.raises(EinkornError, match="index 50 is out of range"):
        model(table, Buffer.from_numpy(where).to(device))


def test_rows_are_read_16_bytes_at_a_time() -> None:
    graph = op_graph("gather", ["bfloat16[30000, 384]", "int64[4096]"], {"axis": 0}, "sm_90a")
    assert "ld.global.nc.v4.b32" in graph.code("asm", "sm_90a")
