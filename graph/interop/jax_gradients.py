"""Derivatives of calls in JAX: of any order, forward and reverse, from one recorded backward.

The primitive `einkorn_tangent` is the linear part of a call: it takes the operands and results of the call and tangents
of operands, and gives tangents of results. Its transpose is the recorded backward `g -> J^T g`. Forward mode computes
`J t` by the same function: as `g -> J^T g` is linear, its own transpose at any point, here 0, is `t -> J t`, and JAX
makes it of the operations of the backward. Of an elementwise kernel `J` is diagonal, and its own transpose. Second
derivatives differentiate the operations of the backward: operations of JAX, or ops with a backward of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from .jax_callee import Callee, Levels, at_front, is_inexact, members, varying_alike, varying_axes

tangent_p = Primitive("einkorn_tangent")
tangent_p.multiple_results = True


class LinearMap(Protocol):
    """A linear function and its transpose; both depend on residuals. Equal ones are the same function."""

    def outputs(self, residuals: Sequence[object]) -> list[int]:
        """The positions of those residuals whose types are the types of the results."""

    def forward(self, residuals: Sequence[object], tangents: Sequence[object]) -> list[Any]:
        """Tangents of results for tangents of operands."""

    def transposed(self, residuals: Sequence[object], grads: Sequence[object]) -> list[Any]:
        """Gradients of those operands that have tangents, for gradients of results."""


@dataclass(frozen=True)
class OfCall:
    """The linear part of one call.

    Attributes:
        callee: what was called.
        count: how many operands it has; they are the first residuals, and its results the others.
        moving: the positions of the operands that have tangents.
        diagonal: whether an element of a result depends on the element of each of these operands at its place alone.
    """

    callee: Callee
    count: int
    moving: tuple[int, ...]
    diagonal: bool

    def outputs(self, residuals: Sequence[object]) -> list[int]:
        """The results that have a floating dtype."""
        return [k for k in range(self.count, len(residuals)) if is_inexact(residuals[k])]

    def transposed(self, residuals: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
        """By the backward of the op, whose complex gradients are the conjugates of JAX's."""
        inputs, results = residuals[: self.count], residuals[self.count :]
        rest = iter(grads)
        spread = [_conj(next(rest)) if is_inexact(r) else np.zeros(r.shape, jax.dtypes.float0) for r in results]
        gradients = self.callee.gradients(inputs, results, spread)
        return [self._fitting(position, inputs[position], gradients[position]) for position in self.moving]

    def forward(self, residuals: Sequence[object], tangents: Sequence[object]) -> list[Any]:
        """By the transpose of the backward; where that is diagonal, by the backward itself."""
        if self.diagonal:
            return self._diagonal(residuals, tangents)

        def backward(*grads: object) -> list[Any]:
            return self.transposed(residuals, grads)

        zeros = [jax.numpy.zeros_like(residuals[k]) for k in self.outputs(residuals)]
        _, transpose = jax.vjp(backward, *varying_alike(zeros, _axes(residuals)))
        return list(transpose(list(tangents)))

    def _diagonal(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The sum over the operands of the derivative by each, times its tangent."""
        outputs = [residuals[k] for k in self.outputs(residuals)]
        sums = [jax.numpy.zeros_like(output) for output in outputs]
        for place, output in enumerate(outputs):
            for number, tangent in enumerate(tangents):

                def backward(grad: Any, place: int = place, number: int = number) -> Any:
                    grads = [jax.numpy.zeros_like(each) for each in outputs]
                    grads[place] = jax.lax.convert_element_type(grad, outputs[place].dtype)
                    return self.transposed(residuals, varying_alike(grads, _axes(residuals)))[number]

                product = _by_parts(backward, output, tangent)
                sums[place] = sums[place] + jax.lax.convert_element_type(product, output.dtype)
        return varying_alike(sums, _axes(residuals))

    def _fitting(self, position: int, value: Any, gradient: Any) -> Any:
        """A gradient with the type of its operand: dtypes are converted, other shapes are refused."""
        if gradient is None:
            return varying_alike([jax.numpy.zeros_like(value)], varying_axes(value))[0]
        gradient = jax.numpy.asarray(gradient)
        if gradient.shape != value.shape or (_is_complex(gradient) and not _is_complex(value)):
            name = self.callee.name
            raise GraphError(
                f"the backward of op {name!r} gives {gradient.dtype}{list(gradient.shape)} as gradient of input "
                f"{position}, which is {value.dtype}{list(value.shape)}",
                code="EK0882",
                place=user_place(),
                op=name,
                expected=f"{value.dtype}{list(value.shape)}",
                got=f"{gradient.dtype}{list(gradient.shape)}",
                hint="return a gradient of the input's shape: sum over the axes along which it was broadcast",
            )
        gradient = _conj(jax.lax.convert_element_type(gradient, value.dtype))
        return varying_alike([gradient], varying_axes(value))[0]


def _by_parts(backward: Callable[[Any], Any], output: object, tangent: object) -> Any:
    """The derivative of a result by one operand, both elementwise, times a tangent. A complex derivative is a real
    matrix of 2 by 2, which need not be its own transpose: the backward gives its rows."""
    if not _is_complex(output) and not _is_complex(tangent):
        return backward(tangent)
    one = jax.numpy.ones_like(output)
    real = jax.numpy.real(backward(one) * tangent)
    return jax.lax.complex(real, jax.numpy.real(backward(-1j * one) * tangent)) if _is_complex(output) else real


def _is_complex(value: Any) -> bool:
    return bool(jax.numpy.issubdtype(value.dtype, np.complexfloating))


def _conj(gradient: object) -> Any:
    """What a gradient is in the other convention: JAX's `jax.grad` gives the conjugate of what PyTorch gives."""
    return jax.numpy.conj(gradient) if _is_complex(gradient) else gradient


@dataclass(frozen=True)
class Batched:
    """A linear function for all members of a batch, along the first axes of tangents and gradients.

    Attributes:
        one: the function of one member.
        batched: for each residual whether it has the axis.
        axis: the name of the axis, for collectives in a backward.
    """

    one: LinearMap
    batched: tuple[bool, ...]
    axis: Any

    def outputs(self, residuals: Sequence[object]) -> list[int]:
        """As of one member; they have the axis, all of them."""
        return self.one.outputs(residuals)

    def forward(self, residuals: Sequence[object], tangents: Sequence[object]) -> list[Any]:
        """Each member's."""
        return list(self._mapped(self.one.forward)(list(residuals), list(tangents)))

    def transposed(self, residuals: Sequence[object], grads: Sequence[object]) -> list[Any]:
        """Each member's."""
        return list(self._mapped(self.one.transposed)(list(residuals), list(grads)))

    def _mapped(self, function: object) -> Any:
        axes = [0 if is_batched else None for is_batched in self.batched]
        name = {"axis_name": self.axis} if isinstance(self.axis, str) else {}
        return jax.vmap(function, in_axes=(axes, 0), **name)


def differentiate(
    callee: Callee, levels: Levels, primals: Sequence[object], tangents: Sequence[object], results: Sequence[Any]
) -> list[Any]:
    """The tangents of the results of a call for tangents of its operands: the rule of forward mode.

    Raises:
        GraphError: EK0881 or EK0888, there is no backward.
    """
    moving = tuple(k for k, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)
    floating = [is_inexact(result) for result in results]
    nothing = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if not moving or not any(floating):
        return nothing
    callee.check_differentiable()
    residuals = [*primals, *results]
    numbers = callee.numbers()
    diagonal = not any(numbers[k] for k in moving) and callee.adds_axis(members(primals, levels))
    linear: LinearMap = OfCall(callee, len(primals), moving, diagonal)
    given = [tangents[k] for k in moving]
    for level in reversed(levels):
        linear = Batched(linear, (*level, *(True for _ in results)), None)
    for depth, level in enumerate(levels):
        for number, k in enumerate(moving):
            if not level[k]:
                size = results[0].shape[depth]
                wider = jax.numpy.expand_dims(given[number], depth)
                given[number] = jax.numpy.broadcast_to(wider, (*wider.shape[:depth], size, *wider.shape[depth + 1 :]))
    moved = varying_alike(given, _axes(residuals))
    bound = iter(tangent_p.bind(*residuals, *moved, linear=linear, count=len(residuals)))
    return [next(bound) if has else none for has, none in zip(floating, nothing, strict=True)]


def _axes(values: Sequence[object]) -> frozenset[Any]:
    return frozenset[Any]().union(*map(varying_axes, values))


# *** the primitive ***


def _forward(*args: Any, linear: LinearMap, count: int) -> list[Any]:
    return linear.forward(args[:count], args[count:])


def _abstract(*avals: Any, linear: LinearMap, count: int) -> list[Any]:
    return [avals[k].update(weak_type=False) for k in linear.outputs(avals[:count])]


def _differentiated(primals: Sequence[object], tangents: Sequence[object], *, linear: LinearMap, count: int) -> Any:
    results = tangent_p.bind(*primals, linear=linear, count=count)
    if all(type(tangent) is ad.Zero for tangent in tangents[:count]):
        moved = varying_alike([ad.instantiate_zeros(t) for t in tangents[count:]], _axes(primals))
        return results, tangent_p.bind(*primals[:count], *moved, linear=linear, count=count)
    fixed = [type(tangent) is ad.Zero for tangent in tangents]

    def function(*moving: Any) -> list[Any]:
        rest = iter(moving)
        return _forward(
            *(p if is_fixed else next(rest) for p, is_fixed in zip(primals, fixed, strict=True)),
            linear=linear,
            count=count,
        )

    chosen = [k for k, is_fixed in enumerate(fixed) if not is_fixed]
    _, derivatives = jax.jvp(function, [primals[k] for k in chosen], [tangents[k] for k in chosen])
    return results, derivatives


def _transposed(grads: Sequence[object], *args: object, linear: LinearMap, count: int) -> list[Any]:
    residuals = args[:count]
    if any(map(ad.is_undefined_primal, residuals)):
        raise NotImplementedError("einkorn_tangent is linear in its tangents alone")
    whole = varying_alike([ad.instantiate_zeros(grad) for grad in grads], _axes(residuals))
    transposed = linear.transposed(residuals, whole)
    missing = [ad.is_undefined_primal(tangent) for tangent in args[count:]]
    return [None] * count + [g if is_missing else None for g, is_missing in zip(transposed, missing, strict=True)]


def _batched(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, linear: LinearMap, count: int) -> Any:
    if all(dim is None for dim in dims):
        results = tangent_p.bind(*args, linear=linear, count=count)
        return results, [None] * len(results)
    spread = {*linear.outputs(args[:count]), *range(count, len(args))}  # these have the axis, whether they vary or not
    batched = tuple(dim is not None or k in spread for k, dim in enumerate(dims))
    moved = [at_front(axis_data.size, *each) for each in zip(args, dims, batched, strict=True)]
    many = Batched(linear, batched[:count], axis_data.name)
    outputs = tangent_p.bind(*moved, linear=many, count=count)
    return outputs, [0] * len(outputs)


def _evaluated(*args: Any, **settings: Any) -> Any:
    return jax.jit(lambda *values: _forward(*values, **settings))(*args)


tangent_p.def_impl(_evaluated)
tangent_p.def_abstract_eval(_abstract)
ad.primitive_jvps[tangent_p] = _differentiated
ad.primitive_transposes[tangent_p] = _transposed
batching.fancy_primitive_batchers[tangent_p] = _batched
mlir.register_lowering(tangent_p, mlir.lower_fun(_forward, multiple_results=True))
