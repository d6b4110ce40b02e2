"""A kernel reads what another one stored as numbers of the tensor's dtype, whether or not the two are fused."""

from __future__ import annotations

from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import InputTensor, Numeric, OutputTensor, foreach, int64, parallel_for, register, store
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.stdlib import Sum, reduce, rowwise

T = TypeVar("T", bound=Numeric)
W = TypeVar("W", bound=Numeric)


@register("elements::product")
def product(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], y: InputTensor[T, "m n"]):
    foreach(out, lambda i: x[i] * y[i] + x[i])


@register("elements::product_apart", fuse=False)
def product_apart(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], y: InputTensor[T, "m n"]):
    foreach(out, lambda i: x[i] * y[i] + x[i])


@register("elements::literal_sums", reads={"x": 1})
def literal_sums(out: OutputTensor[W, "m"], x: InputTensor[T, "m n"]):
    def row(i):
        total = 0
        for k in range(x.dim(1)):
            total += x[i[0], k] * 2
        return total

    foreach(out, row)


@register("elements::positive_sums", reads={"x": 1})
def positive_sums(out: OutputTensor[W, "m"], x: InputTensor[T, "m n"]):
    def row(i):
        total = 0
        for k in range(x.dim(1)):
            p = x[i[0], k]
            if p > 0:
                total += p
        return total

    foreach(out, row)


@register("elements::row_sums", writes_once=True, reads={"x": 1})
def row_sums(out: OutputTensor[W, "m"], x: InputTensor[T, "m n"]):
    rowwise(x, Sum, lambda row, value: store(out, row, value))


@register("elements::widened", reads={"x": 1})
def widened(out: OutputTensor[int64, "m n"], x: InputTensor[T, "m n"]):
    foreach(out, lambda i: x[i])


@register("elements::last_products", writes_once=True)
def last_products(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    """Its stores are where a kernel that follows may be done."""

    def row(k):
        for j in range(x.dim(1)):
            out[k, j] = x[k, j] * x[k, 0]

    parallel_for(x.dim(0), row)


def results(dtype: DType, producer: str, consumer: str, x: np.ndarray, wide: DType) -> tuple[np.ndarray, int]:
    """What the graph gives, and how many kernels it has."""
    host = DeviceRef.CPU()
    type = TensorType(dtype, x.shape, host)
    shape = x.shape if consumer == "widened" else x.shape[:1]
    out = [TensorType(wide, shape, host)]
    operands = 1 if producer == "last_products" else 2

    def forward(a, b):
        (made,) = ops.custom(f"elements::{producer}", host, [a, b][:operands])
        return ops.custom(f"elements::{consumer}", host, [made], out)

    kernels: Any = [product, product_apart, literal_sums, positive_sums, row_sums, widened, last_products]
    model = InferenceSession().load(Graph("elements", forward, [type, type], custom_extensions=kernels))
    return model(x, x)[0].to_numpy(), len(model.kernel_summaries)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("consumer", ["literal_sums", "positive_sums", "row_sums", "widened"])
def test_products_that_wrap_are_read_as_they_were_stored(consumer: str, dtype: type) -> None:
    if consumer == "widened" and dtype is np.uint8:
        dtype = np.int8
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.max // 2, limits.max, (3, 7), dtype=dtype, endpoint=True)
    kind = DType.from_numpy(np.dtype(dtype))
    wide = DType.int64 if consumer == "widened" else kind.sum_dtype()
    stored = (x * x + x).astype(wide.to_numpy())
    wanted = {
        "literal_sums": (stored * 2).sum(1),
        "positive_sums": np.where(stored > 0, stored, 0).sum(1),
        "row_sums": stored.sum(1),
        "widened": stored,
    }[consumer]
    fused, count = results(kind, "product", consumer, x, wide)
    apart, several = results(kind, "product_apart", consumer, x, wide)
    assert (count, several) == (1, 2)
    assert fused.tolist() == apart.tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_half_floats_are_read_as_they_were_stored(dtype: DType) -> None:
    kind = np.float16 if dtype is DType.float16 else ml_dtypes.bfloat16
    x = np.random.default_rng(2).uniform(0.1, 3, (5, 40)).astype(kind)
    for consumer in ("literal_sums", "row_sums"):
        fused, count = results(dtype, "product", consumer, x, dtype)
        apart, several = results(dtype, "product_apart", consumer, x, dtype)
        assert (count, several) == (1, 2)
        assert fused.tobytes() == apart.tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.uint16])
def test_what_is_done_in_the_stores_of_a_kernel_reads_the_stored_number(dtype: type) -> None:
    x: Any = np.full((3, 5), np.iinfo(dtype).max - 3, dtype)
    actual, count = results(DType.from_numpy(np.dtype(dtype)), "last_products", "widened", x, DType.int64)
    assert count == 1 and actual.tolist() == (x * x[:, :1]).astype(np.int64).tolist()


def test_a_mistake_of_a_kernel_does_not_depend_on_what_it_is_fused_with() -> None:
    """The producer compares the product that the consumer adds up: neither kernel alone does both."""

    @register("elements::clipped")
    def clipped(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i] * x[i] if x[i] * x[i] > 0 else x[i])

    @register("elements::total", reads={"x": 1})
    def total(out: OutputTensor[int64, ""], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
        out[()] = reduce((x, y), Sum, of=lambda v, w: v * w)

    host, x = DeviceRef.CPU(), np.array([100, 3, -20], np.int8)
    type = TensorType(DType.int8, [3], host)
    graph = Graph(
        "both",
        lambda a: ops.custom("elements::total", host, [ops.custom("elements::clipped", host, [a])[0], a]),
        [type],
        custom_extensions=[clipped, total],
    )
    stored = np.where(x * x > 0, x * x, x).astype(np.int64)
    assert InferenceSession().load(graph)(x)[0].to_numpy() == (stored * x).sum()
