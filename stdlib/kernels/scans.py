"""Scans along one axis: of each element with those before it, the sum or the product."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ...dsl import DeviceContext, Element, InputTensor, Numeric, OutputTensor, register
from ..algorithms.monoids import Product, Sum
from ..algorithms.references import Array, Function, in_sums
from ..algorithms.scans import scan

E = TypeVar("E", bound=Element)
S = TypeVar("S", bound=Numeric)  # the dtype of sums


@register("cumsum", writes_once=True, reads={"x": 2})
def cumsum(
    out: OutputTensor[S, "*a{axis} n *b"],
    x: InputTensor[E, "*a{axis} n *b"],
    ctx: DeviceContext,
    *,
    axis: int,
    exclusive: bool = False,
    reverse: bool = False,
) -> None:
    """The sum of each element and those before it along `axis`; without the element itself if `exclusive`, of those
    after it if `reverse`. Integers and bools in 64 bits.
    """
    scan(out, x, Sum, axis=axis, exclusive=exclusive, reverse=reverse)


@register("cumprod", writes_once=True, reads={"x": 2})
def cumprod(
    out: OutputTensor[S, "*a{axis} n *b"],
    x: InputTensor[E, "*a{axis} n *b"],
    ctx: DeviceContext,
    *,
    axis: int,
    exclusive: bool = False,
    reverse: bool = False,
) -> None:
    """The product of each element and those before it along `axis`; otherwise as `cumsum`."""
    scan(out, x, Product, axis=axis, exclusive=exclusive, reverse=reverse)


def _scanned(function: Function, nothing: float):
    def reference(x: Array, axis: int, exclusive: bool, reverse: bool):
        turned = np.flip(x, axis) if reverse else x
        if exclusive:
            first = np.full_like(np.take(turned, [], axis), nothing, shape=_with(turned.shape, axis, 1))
            turned = np.concatenate([first, turned], axis)
        result = function(turned, axis, dtype=x.dtype)
        if exclusive:
            result = np.delete(result, -1, axis)
        return np.flip(result, axis) if reverse else result

    return reference


def _with(shape: tuple[int, ...], axis: int, size: int):
    return tuple(size if k == axis else n for k, n in enumerate(shape))


cumsum.reference(in_sums(_scanned(np.cumsum, 0)))
cumprod.reference(in_sums(_scanned(np.cumprod, 1)))
