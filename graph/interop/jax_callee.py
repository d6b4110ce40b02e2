"""What the primitives of JAX call, and how values vary over the devices of `jax.shard_map`.

A value within `jax.shard_map` has a set of mesh axes over which it may differ ("varying manual axes"). The operands of
one primitive have to agree on them, and its results vary as they do. A cast to "varying" is the identity on values; its
transpose is a sum over the axes, which is why gradients need it.

See also `jax_primitives` and `jax_gradients` (the primitives themselves).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

Batching = Callable[..., Any]  # as `jax.custom_batching.custom_vmap` takes it
Shape = tuple[Any, ...]
Levels = tuple[tuple[bool, ...], ...]  # of batching, outermost first: which operands have an axis for it


class Callee(Protocol):
    """What a call in a trace runs: a kernel with its parameters, or the graph of a backward. Compared by identity.

    Attributes:
        name: the name of the op, for messages.
    """

    name: str

    @property
    def batching(self) -> Batching | None:
        """The user's rule for `jax.vmap`; None for the one of the primitive."""

    def results(self, avals: Sequence[object]) -> list[tuple[Shape, Any]]:
        """Shape and dtype of each result for operands of these shapes and dtypes."""

    def run(self, args: Sequence[object], levels: Levels, split: int) -> tuple[Any, ...]:
        """The operations of one call in a trace, for all members of a batch; XLA may split it along so many axes."""

    def adds_axis(self, avals: Sequence[object]) -> bool:
        """Whether all tensors may get one axis more in front, and elements are computed as before."""

    def batch(self, avals: Sequence[object]) -> tuple[int, ...] | None:
        """How many axes of a batch of independent members each operand begins with; None where there is no batch."""

    def numbers(self) -> Sequence[bool]:
        """For each operand whether it is one number for all elements, and gets no axis."""

    def changed(self, avals: Sequence[object]) -> Sequence[int]:
        """The positions of the operands that are changed in place."""

    def check_differentiable(self) -> None:
        """Raises a GraphError, EK0881 or EK0888, where there is no backward."""

    def gradients(self, inputs: Sequence[object], results: Sequence[object], grads: Sequence[object]) -> list[Any]:
        """A gradient for each operand, or None."""


def varying_axes(value: object) -> frozenset[Any]:
    """The mesh axes over which an array or an abstract value may differ between devices."""
    aval = value if isinstance(value, jax.core.ShapedArray) else jax.typeof(value)
    axes: frozenset[object] = aval.manual_axis_type.varying
    return axes


def varying_alike(values: Sequence[object], axes: frozenset[Any] = frozenset()) -> list[Any]:
    """The values, all varying over the same axes: those over which one of them varies, and `axes`."""
    own = [varying_axes(value) for value in values]
    wanted = axes.union(*own)
    return [
        jax.lax.pcast(value, tuple(sorted(wanted - have)), to="varying") if wanted - have else value
        for value, have in zip(values, own, strict=True)
    ]


def at_front(size: int, value: Any, axis: int | None, batched: bool) -> Any:
    """A value with the axis of a batch in front: moved there, or, where it is batched without having one, repeated."""
    if axis is not None:
        return jax.numpy.moveaxis(value, axis, 0)
    return jax.numpy.broadcast_to(value, (size, *value.shape)) if batched else value


def batch_sizes(shapes: Sequence[Shape], levels: Levels) -> Shape:
    """The sizes of a batch, one for each level."""
    return tuple(
        next(shape[sum(above[k] for above in levels[:depth])] for k, shape in enumerate(shapes) if level[k])
        for depth, level in enumerate(levels)
    )


def members(values: Sequence[Any], levels: Levels) -> list[Any]:
    """The abstract values of one member of a batch."""
    return [
        jax.ShapeDtypeStruct(value.shape[sum(level[k] for level in levels) :], value.dtype)
        for k, value in enumerate(values)
    ]


def is_inexact(value: Any) -> bool:
    """Whether an array or an abstract value has a dtype that is differentiated."""
    return bool(jax.numpy.issubdtype(value.dtype, np.inexact))
