"""Gradients of ops on complex numbers in PyTorch and JAX, against their own operations; bits of PyTorch's views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

pytest.importorskip("einkorn.jax")
pytest.importorskip("einkorn.torch")

import einkorn.jax
import einkorn.torch
import jax
import jax.numpy as jnp
import numpy as np
import torch

from einkorn.dsl import ComplexFloating, InputTensor, MutableInputTensor, OutputTensor, conj, foreach, register
from einkorn.dsl.diagnostics.errors import EinkornError

C = TypeVar("C", bound=ComplexFloating)


@register("complex_gradients::product")
def product(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]) -> None:
    foreach(out, lambda i: x[i] * y[i] + 1j)


@register("complex_gradients::product_backward")
def product_backward(
    grad_x: OutputTensor[C, "*s"],
    grad_y: OutputTensor[C, "*s"],
    grad_out: InputTensor[C, "*s"],
    x: InputTensor[C, "*s"],
    y: InputTensor[C, "*s"],
) -> None:
    foreach(grad_x, lambda i: grad_out[i] * conj(y[i]))
    foreach(grad_y, lambda i: grad_out[i] * conj(x[i]))


product.backward(product_backward)


@register("complex_gradients::mixed")
def mixed(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]) -> None:
    foreach(out, lambda i: 1j * conj(x[i]) * y[i])


@mixed.backward
def _(context: Any, grad: Any) -> Any:
    x, y = context.inputs
    return 1j * grad.conj() * y, grad * -1j * x


@register("complex_gradients::staged")
def staged(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]) -> None:
    foreach(out, lambda i: x[i] * x[i] * y[i])


@staged.backward(graph=True)
def _(context: Any, grad: Any) -> Any:
    from einkorn.graph import ops

    x, y = context.inputs
    return grad * ops.conj(x * y) * 2.0, grad * ops.conj(x * x)


@register("complex_gradients::rigid")
def rigid(out: OutputTensor[C, "n"], a: C, x: InputTensor[C, "n"]) -> None:
    foreach(out, lambda i: a * x[i])


@register("complex_gradients::bumped")
def bumped(x: MutableInputTensor[C, "n"]) -> None:
    for k in range(x.dim(0)):
        x[k] += 1j


SAME: dict[Any, Callable[[Any, Any], Any]] = {
    product: lambda x, y: x * y + 1j,
    mixed: lambda x, y: 1j * x.conj() * y,
    staged: lambda x, y: x * x * y,
}
OPS = pytest.mark.parametrize("kernel", SAME, ids=lambda kernel: kernel.schema.name.partition("::")[2])


def numbers(count: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(count, dtype=torch.complex128, requires_grad=True) for _ in range(2)]


@OPS
def test_torch_gradients(kernel: Any) -> None:
    op = einkorn.torch.op(kernel)
    assert torch.autograd.gradcheck(lambda x, y: op(x.conj(), y).conj().imag * 2, numbers())
    assert torch.autograd.gradcheck(op, numbers(), check_forward_ad=False)


def test_torch_tangents() -> None:
    op = einkorn.torch.op(mixed)
    x, y, s, t = (z.detach() for z in (*numbers(), *numbers()))
    _, wanted = torch.func.jvp(SAME[mixed], (x, y), (s, 2 * t))
    _, got = torch.func.jvp(op, (x, y), (s, 2 * t))
    assert torch.allclose(got, wanted)


def test_torch_loses_no_gradient() -> None:
    x = numbers()[0]
    for call in (lambda: rigid(1j, x), lambda: einkorn.torch.op(rigid)(1j, x), lambda: bumped(x * 1)):
        with pytest.raises(EinkornError, match="requires a gradient") as caught:
            call()
        assert caught.value.code == "EK0881"


def test_torch_numbers() -> None:
    x, op = numbers()[0].detach(), einkorn.torch.op(rigid)
    for number in (2j, 2.5, 2):
        for call in (rigid, op, torch.compile(rigid, backend="aot_eager")):
            assert torch.allclose(call(number, x), number * x)  # type: ignore[operator]
    with pytest.raises(EinkornError, match=r"takes a number, not np\.complex64"):
        op(np.complex64(1j), x)


@pytest.mark.parametrize("form", [lambda z: z.conj(), lambda z: z[::2], lambda z: z.conj()[::2]])
def test_torch_writes_into_views_with_bits(form: Callable[[Any], Any]) -> None:
    x, y = (z.detach() for z in numbers(6))
    wanted = x.clone()
    form(wanted).add_(1j)
    bumped(form(x))
    assert torch.allclose(x, wanted)
    out, wanted = torch.zeros_like(y), torch.zeros_like(y)
    form(wanted).copy_(form(x) * form(y) + 1j)
    product(form(x), form(y), out=form(out))
    assert torch.allclose(out, wanted)


@OPS
def test_jax_gradients(kernel: Any) -> None:
    """The convention of JAX: its gradients are the conjugates of PyTorch's."""
    op, same = einkorn.jax.op(kernel), SAME[kernel]
    x, y = (jnp.asarray(z.detach().numpy().astype(np.complex64)) for z in numbers())

    def gradients(function: Any) -> Any:
        return jax.jit(jax.grad(lambda x, y: jnp.sin(function(x, y)).real.sum(), argnums=(0, 1)))(x, y)

    for got, wanted in zip(gradients(op), gradients(same), strict=True):
        assert jnp.allclose(got, wanted, atol=1e-4)
    if kernel is staged:
        return  # a graph has no forward mode
    for tangents in ((x, 1j * y), (1j * y, y + x)):
        got, wanted = (jax.jvp(function, (x, y), tangents)[1] for function in (op, same))
        assert jnp.allclose(got, wanted, atol=1e-4)


def test_jax_numbers() -> None:
    x = jnp.asarray(numbers()[0].detach().numpy().astype(np.complex64))
    for number in (2j, 2.5, 2):
        assert jnp.allclose(rigid(number, x), number * x)
