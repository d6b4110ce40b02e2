"""Arranges calls of elementwise kernels in the order in which their arrays lie in memory.

An elementwise kernel computes the same whatever the order of the axes. If the strides of all arrays of a call have an
order other than row-major, as in `add(x.T, y.T)`, the call is made with the axes in that order, and the axes of its
results are put back. Loops go through memory in its order, code for contiguous arrays serves transposed ones, and
outputs have the layout of the inputs. If the orders of two arrays differ, the call is not changed. These are NumPy's
rules.

See also `compiler.passes` (code for arrays whose orders differ).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from .spread import common_shape

Order = tuple[int, ...]  # of an axis: which axis of the call's arrays it is


@dataclass(frozen=True)
class Arranged:
    """A call with its axes in another order.

    Attributes:
        order: which axis of the call's arrays each axis is.
        args, kwargs: the arguments.
    """

    order: Order
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def restored(self, result: Any, out: Any) -> Any:
        """The results of the call with their axes as the caller has them."""
        if out is not None:
            return out
        back = tuple(map(self.order.index, range(len(self.order))))
        if isinstance(result, tuple):
            return tuple(each.transpose(back) for each in result)
        return result.transpose(back)


def arranged(joint: Sequence[int], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arranged | None:
    """The call in the order of its arrays; None where that is its own, or where an argument is not an array of NumPy.

    `joint` are the positions of the arguments that broadcast together.
    """
    arrays = [args[k] for k in joint if type(args[k]) is np.ndarray] if len(args) > joint[-1] else []
    if all(array.flags.c_contiguous for array in arrays):
        return None
    out = kwargs.get("out")
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    shape = common_shape([getattr(args[k], "shape", ()) for k in joint])
    plain = all(type(value) in (np.ndarray, bool, int, float) for value in args)
    if shape is None or 0 in shape or not plain:
        return None
    if any(type(each) is not np.ndarray or each.shape != shape for each in outs):
        return None
    order = _known_order(tuple((array.shape, array.strides) for array in (*arrays, *outs)), len(shape))
    if not order:
        return None
    values = [_in_order(value, order) if k in joint else value for k, value in enumerate(args)]
    named = dict(kwargs)
    if out is not None:
        written = tuple(each.transpose(order) for each in outs)
        named["out"] = written if isinstance(out, tuple) else written[0]
    return Arranged(order, tuple(values), named)


def _in_order(value: object, order: Order) -> Any:
    if type(value) is not np.ndarray or value.ndim == 0:
        return value
    return value[(None,) * (len(order) - value.ndim)].transpose(order)


def order_of(layouts: Sequence[tuple[Sequence[int], Sequence[int]]], rank: int, first: bool = False) -> Order:
    """The axes from the largest stride to the smallest; () where that is their own order.

    Axes of size 1, and axes that an array does not have, say nothing. Where arrays contradict each other, two axes keep
    their places, as in NumPy; or the first array decides, as in PyTorch.

    Args:
        layouts: shape and strides of each array.
        rank: the number of axes; arrays that have fewer lack the leading ones.
        first: whether the first array decides.
    """
    if rank < 2:
        return ()
    rows = []
    for shape, strides in layouts:
        sizes = zip(shape, strides, strict=True)
        rows.append([0] * (rank - len(shape)) + [0 if size == 1 else abs(stride) for size, stride in sizes])
    inner: list[int] = []  # from the smallest stride on: the last axes are placed first, as NumPy does
    for axis in reversed(range(rank)):
        place = len(inner)
        for behind in reversed(range(len(inner))):
            pairs = [(row[axis], row[inner[behind]]) for row in rows]
            known = [one < other for one, other in pairs if one and other and (not first or one != other)]
            known = known[:1] if first else known
            if known and not all(known):
                break
            if known:
                place = behind
        inner.insert(place, axis)
    order = inner[::-1]
    return () if order == sorted(order) else tuple(order)


_known_order = functools.lru_cache(maxsize=256)(order_of)
