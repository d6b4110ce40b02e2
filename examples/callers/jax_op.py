"""Uses a kernel in JAX: under jit, vmap and grad, in a small regression that learns."""

from __future__ import annotations

from typing import TypeVar

import einkorn.jax
import jax
import jax.numpy as jnp
import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)


@register("swish")
def swish(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, beta: float = 1.0) -> None:
    """x / (1 + exp(-beta x)), in one pass over memory."""
    foreach(out, lambda i: x[i] / (1 + exp(-beta * x[i])))


@register("swish_backward")
def swish_backward(
    grad_x: OutputTensor[T, "*s"], grad_out: InputTensor[T, "*s"], x: InputTensor[T, "*s"], *, beta: float = 1.0
) -> None:
    def element(i):
        gate = 1 / (1 + exp(-beta * x[i]))
        return grad_out[i] * gate * (1 + beta * x[i] * (1 - gate))

    foreach(grad_x, element)


swish.backward(swish_backward)  # arguments are named after what they are
activation = einkorn.jax.op(swish)


def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    first, second = weights
    return ((activation(x @ first, beta=1.5) @ second - y) ** 2).mean()


@jax.jit
def trained(weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    def step(_: int, weights: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        slopes = jax.grad(loss)(weights, x, y)
        return tuple(weight - 0.01 * slope for weight, slope in zip(weights, slopes, strict=True))

    return jax.lax.fori_loop(0, 3000, step, weights)


if __name__ == "__main__":
    x = jnp.linspace(-3, 3, 64)
    assert np.allclose(jax.vmap(activation)(x.reshape(8, 8)).ravel(), x * jax.nn.sigmoid(x), atol=1e-6)
    assert np.allclose(
        jax.grad(lambda v: activation(v).sum())(x), jax.grad(lambda v: jax.nn.swish(v).sum())(x), atol=1e-5
    )
    print("matches jax.nn.swish, and so do its gradients")

    keys = jax.random.split(jax.random.key(0), 2)
    inputs = jnp.stack([x, jnp.ones_like(x)], axis=1)
    wanted = jnp.sin(x)[:, None]
    weights = (jax.random.normal(keys[0], (2, 32)), jax.random.normal(keys[1], (32, 1)) * 0.1)
    before = loss(weights, inputs, wanted)
    after = loss(trained(weights, inputs, wanted), inputs, wanted)
    assert after < before / 10
    print(f"a network with it learns the sine: the loss went from {before:.3f} to {after:.4f}")
