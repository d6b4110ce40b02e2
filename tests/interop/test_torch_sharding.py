"""Ops on distributed tensors: elementwise ones run on shards, and nothing is sent; others gather."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek
import numpy as np
import torch.distributed as dist
from torch.testing import assert_close

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register, store
from einkorn.stdlib import Sum, rowwise

from . import batch_kernels

X = torch.arange(32.0).reshape(8, 4)


@register("sharded::shifted")
def shifted(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], by: float32, *, factor: float = 1.0):
    foreach(out, lambda i: x[i] * factor + by)


@register("sharded::product")
def product(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], y: InputTensor[float32, "m n"]):
    foreach(out, lambda i: x[i] * y[i])


@product.backward
def product_backward(context, grad):
    x, y = context.inputs
    return product(grad, y), product(grad, x)


@register("sharded::reversed")
def reversed_rows(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    foreach(out, lambda i: x[x.dim(0) - 1 - i[0], i[1]])


@register("sharded::row_sums", batch="b")
def row_sums(
    out: OutputTensor[float32, "*b"], x: InputTensor[float32, "*b n"], weight: InputTensor[float32, "n"], by: float32
):
    rowwise((x, weight), Sum, lambda row, value: store(out, row, value + by), of=lambda a, b: a * b)


OPS = [
    ek.op(kernel) for kernel in (shifted, product, reversed_rows, row_sums)
]  # before the module of distributed tensors is there


@pytest.fixture(scope="module")
def mesh():
    """Four processes, of which only the first runs: what is sent to the others is lost."""
    from torch.distributed.tensor import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def counted(function):
    """What a function gives, and how often it sends something."""
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode() as mode:
        actual = function()
    return actual, mode.get_total_counts()


@pytest.mark.parametrize("axis", [0, 1])
def test_elementwise_ops_run_on_shards(mesh, axis):
    from torch.distributed.tensor import Shard, distribute_tensor

    x = distribute_tensor(X, mesh, [Shard(axis)])
    for call in (ek.op(shifted), shifted):
        y, sent = counted(lambda call=call: call(x, 3.0, factor=2.0))
        assert sent == 0 and y.placements == (Shard(axis),) and y.shape == X.shape
        assert_close(y.to_local(), X.chunk(4, axis)[0] * 2 + 3)
    z, sent = counted(lambda: torch.vmap(lambda row: ek.op(shifted)(row, 1.0), in_dims=1 - axis)(x))
    assert sent == 0 and z.to_local().numel() == 8


def test_a_promised_batch_runs_on_shards(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    weight = distribute_tensor(torch.arange(4.0), mesh, [Replicate()])
    x = distribute_tensor(X, mesh, [Shard(0)])
    y, sent = counted(lambda: ek.op(row_sums)(x, weight, 1.0))
    assert sent == 0 and y.placements == (Shard(0),)
    assert_close(y.to_local(), X[:2] @ torch.arange(4.0) + 1)
    three = distribute_tensor(X.reshape(2, 4, 4), mesh, [Shard(1)])
    y, sent = counted(lambda: ek.op(row_sums)(three, weight, 1.0))
    assert sent == 0 and y.placements == (Shard(1),)
    y, sent = counted(lambda: ek.op(row_sums)(distribute_tensor(X, mesh, [Shard(1)]), weight, 1.0))
    assert sent > 0 and y.placements == (Replicate(),)


@pytest.mark.parametrize("name", batch_kernels.INDEPENDENT)
def test_a_batch_runs_on_shards(mesh, name):
    """Where the members are found to be independent, nothing is promised and nothing is sent."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    kernel, sizes, oracle = batch_kernels.INDEPENDENT[name]
    for batch, axis in (((8,), 0), ((3, 8), 1)):
        arrays = [a if a.ndim else float(a) for a in batch_kernels.arguments(sizes, *batch)]
        split = [not isinstance(a, float) and a.shape[: len(batch)] == batch for a in arrays]
        args = [
            a
            if isinstance(a, float)
            else distribute_tensor(torch.from_numpy(a), mesh, [Shard(axis) if cut else Replicate()])
            for a, cut in zip(arrays, split, strict=True)
        ]
        actual, sent = counted(lambda args=args: ek.op(kernel)(*args))
        local = [np.split(a, 4, axis)[0] if cut else a for a, cut in zip(arrays, split, strict=True)]
        expected = oracle(*local)
        assert sent == 0
        pairs = zip(*(each if isinstance(each, tuple | list) else (each,) for each in (actual, expected)), strict=True)
        for result, right in pairs:
            assert result.placements == (Shard(axis),)
            assert np.allclose(result.to_local().numpy(), right, rtol=1e-5, atol=1e-6)


def test_dependent_members_gather(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    (rows,) = batch_kernels.arguments("4", 8)
    for kernel in batch_kernels.DEPENDENT:
        x = distribute_tensor(torch.from_numpy(rows), mesh, [Shard(0)])
        y, sent = counted(lambda kernel=kernel, x=x: ek.op(kernel)(x))
        assert sent == 1 and y.placements == (Replicate(),)


def test_gradients_of_shards(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    x, y = (distribute_tensor(t, mesh, [Shard(0)]).requires_grad_() for t in (X, X + 1))

    def step():
        (ek.op(product)(x, y) ** 2).to_local().sum().backward()

    _, sent = counted(step)
    local = X[:2]
    assert sent == 0 and x.grad.placements == (Shard(0),)
    assert_close(x.grad.to_local(), 2 * local * (local + 1) ** 2)
    program = torch.compile(lambda x: ek.op(product)(x, x) * 2, fullgraph=True, backend="aot_eager")
    assert program(x.detach()).placements == (Shard(0),)


def test_other_ops_gather(mesh):
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    x = distribute_tensor(X, mesh, [Shard(0)])
    y, sent = counted(lambda: ek.op(reversed_rows)(x))
    assert sent == 1 and y.placements == (Replicate(),) and y.shape == X.shape
    whole = distribute_tensor(X, mesh, [Replicate()])
    y, sent = counted(lambda: ek.op(reversed_rows)(whole))
    assert sent == 0 and torch.equal(y.to_local(), X.flip(0))
    mixed, sent = counted(lambda: ek.op(product)(x, whole))
    assert sent == 0 and mixed.placements == (Shard(0),) and torch.equal(mixed.to_local(), X[:2] ** 2)
    partial = torch.distributed.tensor.DTensor.from_local(X, mesh, [Partial()])
    assert not ek.op(product)(partial, partial).placements[0].is_partial()  # a product of sums is not a sum of products
