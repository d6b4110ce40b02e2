"""Defines what a monoid is: the functions that `rowwise`, `reduce` and the scans call. `monoids` has the classes."""

from __future__ import annotations

from collections.abc import Callable

from ...dsl import AnyDType, Element, Index, Integral, Parts, map_parts
from .algorithm import sum_dtype, wide_dtype

Elements = Callable[[Index, int], Parts]  # so many elements from an index on
DTypes = AnyDType | tuple[AnyDType, ...]  # the dtype of an element, or those of its parts


class Monoid:
    """The parts of a monoid, with what they are unless a class says otherwise.

    `lanes` elements are taken side by side, each into a state of its own; with 1 lane the order is that of the
    elements. States of a block of at most 4096 elements are settled before they are joined to those of other blocks:
    that is where they become more precise, and where places in a block become places in a row.

    A monoid whose states do not depend on the order may have a class method `fold(elements, low, high, dtype)`, if it
    has a faster way than step by step: the state of elements low..high-1, of which there are 32 at least.
    `elements(k, width)` are so many from k on.
    """

    lanes = 16
    takes_numbers = False  # whether elements may not be tuples or structs
    adds = False  # whether elements are added up or multiplied: what `of` computes of narrow integers does not wrap
    fold: Callable[[Elements, Index, Index, AnyDType], Parts] | None = None

    def __init_subclass__(cls) -> None:
        """A class does not inherit `fold`: it need not be right for what the class changes."""
        if "fold" not in vars(cls):
            cls.fold = None

    @staticmethod
    def identity(dtype: DTypes):
        """The state of no elements of `dtype`: joined with any other state it changes nothing.

        Zeros, of the dtypes that sums have: int64, uint64, or float32 for half types.
        """
        if isinstance(dtype, tuple):
            return tuple(sum_dtype(wide_dtype(part))(0) for part in dtype)
        return sum_dtype(wide_dtype(dtype))(0)

    @classmethod
    def lift(cls, value: Parts, place: Integral):
        """The state of one element; `place` says where it is in its block, as an Int32 from 0 on.

        The element, in the dtypes of `identity`.
        """
        nothing = cls.identity(map_parts(lambda part: part.dtype, value))
        return map_parts(lambda part, none: part.cast(none.dtype), value, nothing)

    @staticmethod
    def combine(a: Parts, b: Parts):
        """The state of the elements of `a` and those of `b`, which come after them or were taken next to them."""
        return a + b

    @classmethod
    def step(cls, state: Parts, value: Parts, place: Integral):
        """The state of the elements of `state` and one that comes after all of them; a monoid may know a faster way."""
        return cls.combine(state, cls.lift(value, place))

    @staticmethod
    def settle(state: Parts, first: Index):
        """The state of a block as one of a row; `first` is the index along the axis at which the block begins."""
        return state

    @staticmethod
    def finish(state: Parts, dtype: DTypes):
        """The value of a settled state; `dtype` is that of the elements. Floats are rounded to it."""
        if isinstance(dtype, tuple):
            return tuple(_finished(part, each) for part, each in zip(state, dtype, strict=True))
        return _finished(state, dtype)


def _finished(state: Element, dtype: AnyDType):
    """The value of a number; whole numbers stay as wide as they are."""
    return state.cast(dtype) if dtype.is_float() or state.dtype.is_float() else state


Monoids = tuple[type[Monoid], ...]
Terms = tuple[Callable[..., Parts] | None, Monoids]  # what elements become, for which monoids
