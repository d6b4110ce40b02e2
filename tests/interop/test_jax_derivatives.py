"""Derivatives of ops in JAX: transformations of transformations, compared with the same functions in JAX alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError

jax = pytest.importorskip("jax")
pytest.importorskip("einkorn.jax")

from . import direct_kernels, elementwise_kernels
from .jax_ops import FUNCTIONS, NATIVE, OPS, cube_of_graph, swish

ej = pytest.importorskip("einkorn.jax")
jnp = jax.numpy
X = (0.3, -0.7, 1.1)
Function = Callable[[Any], Any]


def squares(f: Function) -> Function:
    return lambda x: jnp.sum(jnp.stack([jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(f(x))]))


def pulled(f: Function) -> Function:
    def result(x: Any) -> Any:
        outputs, pull = jax.vjp(f, x)
        return pull(jax.tree.map(jnp.cos, outputs))[0]

    return result


TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: jax.grad(squares(f)),
    "vjp": pulled,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x * x,))[1],
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "hessian": jax.hessian,
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])).sum(0),
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x * x),
    "transposed": lambda f: lambda x: jax.linear_transpose(jax.linearize(f, x)[1], x)(f(x))[0],
}
PAIRS = [
    "grad grad",
    "jacrev grad",
    "jvp grad",
    "jacfwd grad",
    "jacfwd jacrev",
    "jacrev jacfwd",
    "jvp jvp",
    "vmap hessian",
]
PAIRS += [
    "hessian vmap",
    "grad vmap",
    "grad jvp",
    "vmap jvp",
    "jit hessian",
    "hessian jit",
    "grad remat",
    "vjp linearize",
]
PAIRS += ["grad transposed", "vmap jacfwd", "jacrev vmap"]
TRIPLES = ["vmap grad grad", "grad vmap grad", "jvp vmap jacrev", "jit vmap hessian", "jacrev jvp vmap"]


def check(name: str, composition: tuple[str, ...]) -> None:
    """The composition of the op's function gives what that of JAX's gives."""
    ours: Function = lambda x: FUNCTIONS[name](OPS, x)  # noqa: E731
    theirs: Function = lambda x: FUNCTIONS[name](NATIVE, x)  # noqa: E731
    for each in reversed(composition):
        ours, theirs = TRANSFORMATIONS[each](ours), TRANSFORMATIONS[each](theirs)
    with jax.enable_x64(True):
        x = jnp.array(X)
        assert np.allclose(ours(x), theirs(x), rtol=1e-6, atol=1e-8), (name, composition)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_transformation(name: str) -> None:
    for each in ("hessian", "vmap") if name == "scan" else TRANSFORMATIONS:
        check(name, (each,))


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs(pair: str) -> None:
    for name in ("quadratic",) if "hessian" in pair else ("swish", "product"):
        check(name, tuple(pair.split()))


@pytest.mark.parametrize("triple", TRIPLES)
def test_triples(triple: str) -> None:
    check("product", tuple(triple.split()))


def test_what_has_no_second_derivative_is_refused_by_name() -> None:
    x = jnp.array(X)
    squared = ej.op(elementwise_kernels.squared)  # its backward is a kernel without a backward
    for derivative, op, code, name in (
        (jax.hessian, squared, "EK0881", "squared_backward"),
        (lambda f: jax.grad(lambda v: jax.grad(f)(v).sum()), squared, "EK0881", "squared_backward"),
        (jax.hessian, cube_of_graph, "EK0888", "cube_of_graph"),
        (lambda f: jax.jit(jax.jacrev(jax.grad(f))), cube_of_graph, "EK0888", "cube_of_graph"),
        (jax.jacfwd, ej.op(direct_kernels.add_one), "EK0881", "add_one"),
    ):
        with pytest.raises(EinkornError, match=f"op '{name}'") as caught:
            derivative(lambda v, op=op: (op(v) ** 2).sum())(x)
        assert caught.value.code == code and caught.value.place is not None and caught.value.place.file == __file__
    tangent = jax.jvp(cube_of_graph, (x,), (x,))[1]  # forward mode of an elementwise kernel takes its backward alone
    assert np.allclose(tangent, 3 * x**3)
    assert np.allclose(jax.jacfwd(squared)(x), np.diag(2 * x))


def test_gradients_of_another_shape_are_refused_and_of_another_dtype_converted() -> None:
    op = ej.op(elementwise_kernels.plus)

    @op.backward
    def whole(context: Any, gradient: Any) -> Any:
        return gradient.sum(), gradient

    with pytest.raises(
        EinkornError, match=r"gives float32\[\] as gradient of input 0, which is float32\[3\]"
    ) as caught:
        jax.grad(lambda v: op(v, v).sum())(jnp.array(X))
    assert caught.value.code == "EK0882"

    @op.backward
    def wide(context: Any, gradient: Any) -> Any:
        return gradient.astype(jnp.float32) * 2, None

    actual = jax.grad(lambda v: op(v, v).sum())(jnp.ones(3, jnp.bfloat16))
    assert actual.dtype == jnp.bfloat16 and np.array_equal(actual, [2, 2, 2])


def test_parameters_and_integers_in_derivatives() -> None:
    parts = ej.op(elementwise_kernels.parts)

    @parts.backward
    def backward(context: Any, whole: Any, rest: Any) -> Any:
        return rest

    x = jnp.array([0.5, 1.25, 2.75])
    assert np.allclose(jax.grad(lambda v: (parts(v)[1] ** 2).sum())(x), 2 * (x % 1))
    assert np.allclose(jax.jvp(lambda v: parts(v)[1], (x,), (x,))[1], x)
    second = jax.grad(lambda v: jax.grad(lambda u: (swish(u, beta=0.5) ** 2).sum())(v).sum())(x)
    same = jax.grad(lambda v: jax.grad(lambda u: ((u * jax.nn.sigmoid(0.5 * u)) ** 2).sum())(v).sum())(x)
    assert np.allclose(second, same, rtol=1e-4)
