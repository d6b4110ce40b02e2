"""Moves elements of tensors of the host by NumPy, where an op alone does nothing else: reshapes, slices, joins.

Code of Einkorn does the same to the bit when such an op stands among others; alone there is nothing to compile for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import axis_of
from .kinds import TensorKind
from .patterns import OpCall

Move = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array in row-major order; itself where it is."""
    return array if array.flags.c_contiguous else array.copy()


def reshaped(call: OpCall, *_: object, **__: object) -> Move:
    """The same elements under the shape of the result."""
    assert call.results is not None
    sizes = call.results[0].sizes
    return lambda values, numbers: [values[0].reshape(sizes)]


def permuted(call: OpCall, x: TensorKind, dims: Sequence[int]) -> Move:
    """The axes in another order."""
    order = [axis_of(each, len(x.sizes)) for each in dims]
    return lambda values, numbers: [contiguous(values[0].transpose(order))]


def transposed(call: OpCall, x: TensorKind, axis_1: int, axis_2: int) -> Move:
    """Two axes swapped."""
    return lambda values, numbers: [contiguous(values[0].swapaxes(axis_1, axis_2))]


def broadcast(call: OpCall, *_: object, **__: object) -> Move:
    """One element in many places."""
    assert call.results is not None
    sizes = call.results[0].sizes
    return lambda values, numbers: [contiguous(np.broadcast_to(values[0], sizes))]


def joined(call: OpCall, values: Sequence[TensorKind], axis: int = 0) -> Move | None:
    """Tensors of one dtype one behind the other."""
    if len({kind.dtype for kind in values}) > 1:
        return None
    return lambda values, numbers: [np.concatenate(values, axis)]


def stacked(call: OpCall, values: Sequence[TensorKind], axis: int = 0) -> Move | None:
    """Tensors of one dtype along a new axis."""
    if len({kind.dtype for kind in values}) > 1:
        return None
    return lambda values, numbers: [np.stack(values, axis)]


def cut(call: OpCall, x: TensorKind, sizes: Sequence[int], axis: int = 0) -> Move:
    """Pieces along an axis."""
    places = np.cumsum(np.array(sizes, np.int64))[:-1]
    return lambda values, numbers: [contiguous(piece) for piece in np.split(values[0], places, axis)]


def sliced(call: OpCall, x: TensorKind, starts: Sequence[int], sizes: Sequence[int], steps: Any, shape: Any) -> Move:
    """Elements of each axis from a start on."""
    pairs = list(zip(steps, sizes, strict=True))
    shape = tuple(shape)

    def move(values: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        items = [_slice(start, step, size) for start, (step, size) in zip(numbers, pairs, strict=True)]
        return [contiguous(values[0][(*items, ...)]).reshape(shape)]

    return move


def _slice(start: int, step: int, size: int) -> slice:
    stop = start + step * size
    return slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0)
