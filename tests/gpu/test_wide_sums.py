"""Sums, products and scans of narrow integers on a simulated GPU: as wide as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, gpu, int8, int64, register
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.stdlib import Max, Sum

THREADS = 64


def products_thread(out, largest, x, y):
    t = gpu.thread_idx.x
    total, best = gpu.block.reduce(x[t] * y[t], Sum), gpu.block.reduce(x[t] * y[t], Max)
    before = gpu.block.scan(x[t] * y[t], Sum, exclusive=True)
    warp, up_to = gpu.warp.reduce(x[t] * y[t], Sum), gpu.warp.scan(x[t] * y[t], Sum)
    own = 0
    for k in range(t + 1):
        own += x[k] * y[k]
    out[0, t] = total
    out[1, t] = before
    out[2, t] = warp
    out[3, t] = up_to
    out[4, t] = own
    largest[t] = best


@register("wide::products")
def products(
    out: OutputTensor[int64, "5 n"],
    largest: OutputTensor[int8, "n"],
    x: InputTensor[int8, "n"],
    y: InputTensor[int8, "n"],
    ctx: DeviceContext,
) -> None:
    ctx.launch(products_thread, out, largest, x, y, grid=1, block=THREADS)


def test_products_of_threads_do_not_wrap_in_sums() -> None:
    """In the largest they do, which has the dtype of the elements."""
    x, y = np.random.default_rng(0).integers(-128, 128, (2, THREADS)).astype(np.int8)
    device, there = Accelerator("sim"), DeviceRef.GPU()
    type = TensorType(DType.int8, [THREADS], there)
    graph = Graph(
        "products", lambda x, y: ops.custom("wide::products", there, [x, y]), [type, type], custom_extensions=[products]
    )
    model = InferenceSession(devices=[device]).load(graph)
    out, largest = (
        each.to(CPU()).to_numpy() for each in model(*(Buffer.from_numpy(each).to(device) for each in (x, y)))
    )
    terms = x.astype(np.int64) * y
    warps = terms.reshape(-1, 32)
    wanted = (terms.sum().repeat(THREADS), terms.cumsum() - terms, warps.sum(1).repeat(32), warps.cumsum(1).reshape(-1))
    np.testing.assert_array_equal(out, [*wanted, terms.cumsum()])
    np.testing.assert_array_equal(largest, (x * y).max().repeat(THREADS))


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
