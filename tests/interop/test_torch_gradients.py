"""Gradients of kernels in PyTorch, and graphs as ops."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typing import TypeVar

import einkorn.torch as ek
from torch.autograd import gradcheck
from torch.library import opcheck
from torch.testing import assert_close

from einkorn.dsl import DType, Floating, InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.diagnostics.errors import CompileError, GraphError
from einkorn.graph import DeviceRef, TensorType, ops

from . import direct_kernels as k

T = TypeVar("T", bound=Floating)


def f64(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@register("product")
def product(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"], *, factor: float = 1.0):
    foreach(out, lambda i: x[i] * y[i] * factor)


@product.backward
def product_backward(context, grad):
    x, y = context.inputs
    factor = context.parameters["factor"]
    return grad * y * factor, grad * x * factor


@register("cube")
def cube(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@register("cube_backward")
def cube_backward(grad_x: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], grad_out: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: grad_out[i] * 3 * x[i] * x[i])


cube.backward(cube_backward)


@register("split_sum")
def split_sum(
    total: OutputTensor[T, "n"],
    half: OutputTensor[T, "(n//2)"],
    x: InputTensor[T, "n"],
    place: InputTensor[float32, ""],
):
    foreach(total, lambda i: x[i] * 2 + place[()].cast(T))
    foreach(half, lambda i: x[i] * x[i])


@split_sum.backward(graph=True)
def split_sum_backward(context, total, half):
    x, _ = context.inputs
    n = x.shape[0]
    doubled = ops.concat([half * 2.0, ops.broadcast_to(ops.constant(0.0, x.dtype, x.device), [n - n // 2])])
    return total * 2.0 + doubled * x, None


def test_backward_of_a_function():
    op = ek.op(product)
    assert gradcheck(lambda x, y: op(x, y, factor=2.0), (f64(2, 3), f64(2, 3)))
    assert gradcheck(op, (f64(3), f64(3).detach()))
    assert set(opcheck(op.torch, (f64(3), f64(3)), {"factor": 2.0}).values()) == {"SUCCESS"}
    x = torch.ones(3, requires_grad=True)
    op(x, x).sum().backward()  # of the same tensor twice
    assert x.grad.tolist() == [2.0] * 3


def test_backward_of_a_kernel():
    op = ek.op(cube)
    assert gradcheck(op, (f64(5),))
    assert set(opcheck(op.torch, (f64(5),)).values()) == {"SUCCESS"}
    x = f64(2)
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    assert_close(first, 3 * x * x)
    with pytest.raises(GraphError, match="a gradient of 'cube_backward' is requested") as caught:
        torch.autograd.grad(first.sum(), x)
    assert caught.value.code == "EK0881" and caught.value.place.file == __file__


def test_backward_of_a_graph():
    op = ek.op(split_sum)
    place = torch.tensor(1.5)
    assert gradcheck(lambda x: op(x, place), (f64(5),))
    assert gradcheck(lambda x: op(x, place)[1], (f64(6),))  # nothing is done with the other output
    assert set(opcheck(op.torch, (f64(4), place)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_backward_in_compiled_programs(dynamic):
    ops_ = ek.op(product), ek.op(cube), ek.op(split_sum)
    place = torch.tensor(1.5)

    def loss(x, y):
        total, half = ops_[2](ops_[1](ops_[0](x, y)), place)
        return total.sum() + half.sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (4, 6):
        x, y = f64(n), f64(n)
        wanted = torch.autograd.grad(loss(x, y), (x, y))
        assert_close(torch.autograd.grad(compiled(x, y), (x, y)), wanted)


def test_backwards_of_ops_that_are_there_already():
    @register("late_backward")
    def late_backward(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i] * 3)

    op = ek.op(late_backward)
    with pytest.raises(GraphError, match="requires a gradient"):
        op(f64(2))

    @op.backward
    def times_three(context, grad):
        return grad * 3

    assert gradcheck(op, (f64(2),)) and late_backward.gradient.compute is times_three
    with pytest.raises(CompileError, match="is a function or a kernel, not 3"):
        op.backward(3)


def test_wrong_backwards():
    @register("wrong_backward")
    def wrong_backward(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i] + y[i])

    op = ek.op(wrong_backward)
    x = f64(2)
    op.backward(lambda context, grad: grad)
    with pytest.raises(GraphError, match=r"gives 1 gradients, and the op has 2 inputs \(x, y\)") as caught:
        op(x, x).sum().backward()
    assert caught.value.code == "EK0882" and caught.value.place.file == __file__
    op.backward(k.add)
    with pytest.raises(GraphError, match="is kernel 'add', whose output 'out' is none of grad_x, grad_y") as caught:
        op(x, x).sum().backward()
    assert caught.value.code == "EK0882" and "named grad_x" in str(caught.value.hint)
    follow = ek.op(k.follow_and_return)
    with pytest.raises(GraphError, match="changes 'mean' in place") as caught:
        follow.backward(lambda context, grad: (None, grad))
    assert caught.value.code == "EK0884"
    k.follow_and_return.gradient = None


# *** graphs ***


def test_graphs_are_ops():
    @ek.graph_op
    def grayscale(picture):
        scaled = ops.cast(picture, DType.float32) * np.array([0.21, 0.71, 0.07], np.float32)
        return ops.cast(ops.squeeze(ops.sum(scaled, axis=-1), -1), DType.uint8)

    picture = (torch.rand(4, 5, 3) * 255).to(torch.uint8)

    def gray(picture):
        result = picture.new_empty(picture.shape[:-1])
        grayscale(result, picture)
        return result

    wanted = (picture.float() * torch.tensor([0.21, 0.71, 0.07])).sum(-1).to(torch.uint8)
    assert (gray(picture).int() - wanted.int()).abs().max() <= 1
    compiled = torch.compile(gray, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(picture), gray(picture))
    assert torch.equal(gray(picture[:, ::2]), gray(picture)[:, ::2])
    assert set(opcheck(grayscale.torch, ([gray(picture)], [picture])).values()) == {"SUCCESS"}


def test_one_graph_serves_all_sizes_that_are_named():
    calls = []
    cpu = DeviceRef.CPU()
    of_n = TensorType(DType.float32, ["n"], cpu)

    @ek.graph_op(name="both", input_types=[of_n, of_n], output_types=[of_n, of_n])
    def both(x, y):
        calls.append(x)
        return x + y, x - y

    for n in (1, 3, 0):
        x, y = torch.rand(n), torch.rand(n)
        low, high = torch.empty(n), torch.empty(n)
        both(low, high, x, y)
        assert_close((low, high), (x + y, x - y))
    assert len(calls) == 1 and "both" in both.torch.name() and both.__name__ == "both"


def test_wrong_graphs():
    @ek.graph_op
    def pair(x):
        return x, x + 1

    x = torch.ones(3)
    with pytest.raises(GraphError, match="has 2 outputs, not 1") as caught:
        pair(torch.empty(3), x)
    assert caught.value.code == "EK0883" and "num_outputs=2" in caught.value.hint
    with pytest.raises(GraphError, match="takes 1 output and then 1 input, but got 1 tensor"):
        pair(x)
    with pytest.raises(GraphError, match="argument 1 is not a tensor"):
        pair(x, 3.0)
    with pytest.raises(GraphError, match="takes a function"):
        ek.graph_op(3)
    with pytest.raises(GraphError, match="num_outputs=2"):
        ek.graph_op(pair, output_types=[TensorType(DType.float32, [3], DeviceRef.CPU())], num_outputs=2)
    with pytest.raises(GraphError, match=r"out\[0\] has the shape \(4,\)"):
        ek.graph_op(lambda x: x + 1, name="plus")(torch.empty(4), x)


def test_transforms_of_torch_func():
    op, kernel = ek.op(product), ek.op(cube)
    x, y = torch.arange(4.0), torch.full((4,), 3.0)

    def loss(x):
        return op(x, y, factor=2.0).sum()

    assert torch.func.grad(loss)(x).tolist() == [6.0] * 4
    assert torch.func.grad(lambda x: kernel(x).sum())(x).tolist() == [0.0, 3.0, 12.0, 27.0]
    assert torch.func.grad(lambda x: product(x, y).sum())(x).tolist() == [3.0] * 4
    assert_close(torch.func.vjp(op, x, y)[1](torch.ones(4)), (y, x))
    assert_close(torch.func.jacrev(lambda x: op(x, x))(x), torch.diag(2 * x))
    second = torch.func.grad(lambda v: torch.func.grad(lambda x: op(x, x).sum())(v).sum())
    assert second(x).tolist() == [2.0] * 4
    rows = torch.vmap(torch.func.grad(lambda w, v: op(w, v).sum()), in_dims=(None, 0))
    assert rows(y, torch.stack([x, y])).tolist() == [x.tolist(), y.tolist()]
    assert torch.compile(torch.func.grad(loss), fullgraph=True, backend="aot_eager")(x).tolist() == [6.0] * 4


def test_derivatives_are_not_lost():
    x = torch.arange(4.0)
    plain = ek.op(k.add_one)
    lost = {
        "grad": lambda: torch.func.grad(lambda x: plain(x).sum())(x),
        "jvp": lambda: torch.func.jvp(plain, (x,), (x,)),
        "jvp of an op whose backward is a kernel": lambda: torch.func.jvp(ek.op(cube), (x,), (x,)),
        "an op that is given its output": lambda: product(x.clone().requires_grad_(), x, out=torch.empty(4)),
        "an output that is a parameter": lambda: k.add_one(x, out=torch.empty(4, requires_grad=True)),
    }
    codes = {"jvp": "EK0870", "jvp of an op whose backward is a kernel": "EK0870"}
    for name, call in lost.items():
        with pytest.raises(GraphError, match=r"op '\w+': argument '\w+' (requires a gradient|has a tangent)") as caught:
            call()
        assert caught.value.code == codes.get(name, "EK0881"), name
        assert caught.value.place is not None and caught.value.place.file == __file__
    with torch.no_grad():
        assert k.add_one(x.clone().requires_grad_(), out=torch.empty(4)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.func.grad(lambda v: (v * plain(x)).sum())(x).tolist() == [1.0, 2.0, 3.0, 4.0]

    @ek.graph_op
    def doubled(x):
        return x * 2

    with pytest.raises(GraphError, match=r"inputs\[0\] requires a gradient") as caught:
        doubled(torch.empty(4), x.clone().requires_grad_())
    assert caught.value.code == "EK0881"
