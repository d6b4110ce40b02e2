"""Sums, products and scans of narrow integers on a simulated GPU: as wide as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


@pytest.mark.parametrize("name", ["uint8", "int32"])
def test_sums_of_narrow_integers(name: str) -> None:
    x = np.random.default_rng(0).integers(1, 127, (4, 2000)).astype(name)
    x *= x.dtype.type(2**24 if name == "int32" else 1)
    device = Accelerator("sim")
    type = TensorType(getattr(DType, name), [4, 2000], DeviceRef.GPU())
    graph = Graph("sums", lambda x: (ops.sum(x, 1), ops.sum(x, 0), ops.prod(x, 1), ops.cumsum(x, 1)), [type])
    model = InferenceSession(devices=[device]).load(graph)
    got = [result.to(CPU()).to_numpy() for result in model(Buffer.from_numpy(x).to(device))]
    wanted = [x.sum(1, keepdims=True), x.sum(0, keepdims=True), x.prod(1, keepdims=True), x.cumsum(1)]
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)
