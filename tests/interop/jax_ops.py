"""Ops of JAX with backwards of every kind, and the same functions in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import einkorn.jax
import jax
import jax.numpy as jnp

from . import derivative_kernels as k

swish, product, cube, quadratic, rotated = map(einkorn.jax.op, (k.swish, k.product, k.cube, k.quadratic, k.rotated))
cube_of_graph = einkorn.jax.op(k.cube_of_graph)


@swish.backward
def swish_backward(context: Any, gradient: Any) -> Any:
    (x,), (out,) = context.inputs, context.outputs
    beta = context.parameters["beta"]
    gate = jax.nn.sigmoid(beta * x)
    return gradient * (gate + beta * out * (1 - gate))  # an output is a function of the inputs, too


@product.backward
def product_backward(context: Any, gradient: Any) -> Any:
    x, y = context.inputs
    return product(gradient, y), product(x, gradient)


@quadratic.backward
def quadratic_backward(context: Any, gradient: Any) -> Any:
    a, x, _ = context.inputs
    return (gradient * x * x).sum(), 2 * a * x * gradient, gradient


@rotated.backward
def rotated_backward(context: Any, gradient: Any) -> Any:
    return jnp.roll(gradient, 1)


NATIVE: dict[str, Callable[..., Any]] = {
    "swish": lambda x: x * jax.nn.sigmoid(x),
    "product": lambda x, y: x * y,
    "cube": lambda x: x**3,
    "quadratic": lambda a, x, y: a * x * x + y,
    "rotated": lambda x: jnp.roll(x, -1),
}
OPS: dict[str, Callable[..., Any]] = {
    "swish": swish,
    "product": product,
    "cube": cube,
    "quadratic": quadratic,
    "rotated": rotated,
}

# Functions of vectors, made of ops that are used in ways that are not linear.
FUNCTIONS: dict[str, Callable[[dict[str, Callable[..., Any]], Any], Any]] = {
    "swish": lambda ops, x: (ops["swish"](x) ** 3).sum(),
    "cube": lambda ops, x: (ops["cube"](x) ** 2).sum(),
    "product": lambda ops, x: (ops["product"](ops["product"](x, x), jnp.sin(x)) ** 2).sum(),
    "quadratic": lambda ops, x: (ops["quadratic"](x[0], x, x) ** 2).sum(),
    "rotated": lambda ops, x: (ops["rotated"](x * x) * x**2).sum(),
    "scan": lambda ops, x: jax.lax.scan(lambda c, v: (ops["swish"](c) * v, ops["cube"](c)), x, x)[1].sum(),
}
