"""Holds indices of tensors: one Int per axis, or one position over all of them.

See also `inference.runtime_checks` (whether an index lies inside).
"""

from __future__ import annotations

import itertools
from typing import Any

from ...ir.builder import Builder
from ...ir.program import Value


class NeedPairs(Exception):
    """Half a byte is read at the position of a flat loop: two elements per iteration are better."""


class NeedComponents(Exception):
    """The components of a linear index are used: the loop has to be a nest after all."""


_serials = itertools.count()


class BodyIndex:
    """The index that a `foreach` body gets: one Int per axis, or one linear position over the same dims.

    A contiguous tensor of these dims is addressed by the position alone, so that elementwise work over any rank is
    one flat loop. Code that requests the components of a position that stands for several axes gets `NeedComponents`,
    unless the position may be taken apart (`divisible`).
    """

    def __init__(
        self,
        dims: tuple[Value, ...],
        *,
        linear: Value | None = None,
        components: tuple[Value, ...] | None = None,
        divisible: bool = False,
        unchecked: bool = False,
        flat: bool = False,
    ) -> None:
        self.serial = next(_serials)
        self.dims = dims
        self.flat = flat  # the position of a flat loop, which could as well take two elements a round
        self.linear = linear
        self.divisible = divisible
        self.unchecked = unchecked  # made of an author's numbers, which may lie outside the dims
        if components is None and len(dims) == 1 and linear is not None:
            components = (linear,)
        if components is None and not dims:
            components = ()
        self._components = components

    def number(self, builder: Builder) -> Value | None:
        """The only component of an index of one axis; None for other indices."""
        return self.components(builder)[0] if len(self.dims) == 1 else None

    @property
    def is_position(self) -> bool:
        """Whether it is a position over all axes that may be taken apart, and has not been made of components."""
        return self._components is None and self.divisible

    def components(self, builder: Builder) -> tuple[Value, ...]:
        """One Int per axis."""
        if self._components is not None:
            return self._components
        assert self.linear is not None
        if not self.divisible or builder.remembered(("flat", self.linear.serial)):
            raise NeedComponents
        key = ("components", self.serial)
        result = builder.remembered(key)
        if result is None:
            parts, dims = builder.remembered(("made of", self.linear.serial)) or ((self.linear,), None)
            result = regroup(builder, parts, dims, self.dims) if dims else unravel(builder, self.linear, self.dims)
            builder.remember(key, result)
        return result  # type: ignore[no-any-return]

    def position(self, builder: Builder) -> Value:
        """The row-major position over the dims.

        Taking it apart again yields what it was made of; of that of a flat loop over several axes, the loop becomes a
        nest instead.
        """
        if self.linear is not None:
            if self.flat and len(self.dims) > 1:
                builder.remember(("flat", self.linear.serial), True)
            return self.linear
        assert self._components is not None
        key = ("position", self.serial)
        result = builder.remembered(key)
        if result is None:
            result = ravel(builder, self._components, self.dims)
            builder.remember(key, result)
            if result.const is None:
                builder.remember(("made of", result.serial), (self._components, self.dims))
        return result  # type: ignore[no-any-return]

    def ahead(self, builder: Builder, count: Value) -> BodyIndex:
        """The index of the element that lies `count` elements further on, in a row or in row-major order."""
        if self._components is None:
            assert self.linear is not None
            return BodyIndex(self.dims, linear=builder.iadd(self.linear, count), divisible=self.divisible)
        *outer, inner = self._components
        return BodyIndex(self.dims, components=(*outer, builder.iadd(inner, count)))

    def key(self) -> tuple[Any, ...]:
        """Equal for indices that are made of the same values."""
        if self._components is not None:
            return ("components", *(value_key(c) for c in self._components))
        return ("linear", self.linear and self.linear.serial, *(value_key(d) for d in self.dims))


def value_key(value: Value) -> Any:
    """Constants by their number, everything else by identity."""
    return ("const", value.const) if value.const is not None else value.serial


def same_dims(a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(value_key(x) == value_key(y) for x, y in zip(a, b, strict=True))


def unravel(builder: Builder, position: Value, dims: tuple[Value, ...]) -> tuple[Value, ...]:
    """The components of a row-major position that lies within the dims."""
    out: list[Value] = []
    rest = position
    for axis in range(len(dims) - 1, 0, -1):
        out.append(builder.irem(rest, dims[axis]))
        rest = builder.idiv(rest, dims[axis])
    if dims:
        out.append(rest)
    for component, dim in zip(reversed(out), dims, strict=True):
        if component.const is None:
            builder.live(builder.counter(component, None, dim))
    return tuple(reversed(out))


def regroup(
    builder: Builder, components: tuple[Value, ...], dims: tuple[Value, ...], target: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The components, over the target's dims, of the element that has these components over other dims.

    From the last axis on, axes of one size are the same axis, and axes with as many elements are taken apart among
    themselves, by numbers known now. Only what is left is raveled and taken apart as a whole.
    """
    out: list[Value] = []
    i, j = len(dims), len(target)
    while j > 0:
        if target[j - 1].const == 1:
            out.append(builder.int_(0))
            j -= 1
        elif i > 0 and dims[i - 1].const == 1:
            i -= 1
        elif i > 0 and value_key(dims[i - 1]) == value_key(target[j - 1]):
            out.append(components[i - 1])
            i, j = i - 1, j - 1
        else:
            first, start = _as_many(dims[:i], target[:j])
            position = ravel(builder, components[first:i], dims[first:i])
            out.extend(reversed(unravel(builder, position, target[start:j])))
            i, j = first, start
    return tuple(reversed(out))


def _as_many(dims: tuple[Value, ...], target: tuple[Value, ...]) -> tuple[int, int]:
    """From which axes on both have as many elements, as few axes as can be seen; (0, 0) for all of them."""
    i, j = len(dims), len(target)
    left = right = 1
    while True:
        if left <= right and i > 0 and dims[i - 1].const:
            left *= dims[i - 1].const
            i -= 1
        elif right <= left and j > 0 and target[j - 1].const:
            right *= target[j - 1].const
            j -= 1
        else:
            return 0, 0
        if left == right and i < len(dims) and j < len(target):
            return i, j


def ravel(builder: Builder, components: tuple[Value, ...], dims: tuple[Value, ...]) -> Value:
    """The row-major position of components."""
    position = builder.int_(0)
    for component, dim in zip(components, dims, strict=True):
        position = builder.iadd(builder.imul(position, dim), component)
    return position
