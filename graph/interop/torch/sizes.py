"""Lets signatures compute with PyTorch's symbolic sizes, as they stand in fake tensors.

Sizes of a traced program are ints or `torch.SymInt`s. `bind` compares them; a `SymInt` that has a
hint answers, and PyTorch notes what it relied on; of one that nothing is known of, equality is required from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols as is_unknown


class SymbolicSize:
    """A `SymInt` with the arithmetic that dims of signatures are computed by."""

    __slots__ = ("size",)

    def __init__(self, size: Any) -> None:
        self.size = size

    def __add__(self, other: object) -> Any:
        return sized(self.size + plain(other))

    def __sub__(self, other: object) -> Any:
        return sized(self.size - plain(other))

    def __rsub__(self, other: object) -> Any:
        return sized(plain(other) - self.size)

    def __mul__(self, other: object) -> Any:
        return sized(self.size * plain(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return sized(-self.size)

    def __floordiv__(self, other: object) -> Any:
        return sized(self.size // plain(other))

    def __rfloordiv__(self, other: object) -> Any:
        return sized(plain(other) // self.size)

    def __mod__(self, other: object) -> Any:
        return sized(self.size % plain(other))

    def __rmod__(self, other: object) -> Any:
        return sized(plain(other) % self.size)

    def minimum(self, other: object) -> Any:
        """The smaller of the two sizes."""
        return sized(torch.sym_min(self.size, plain(other)))

    def maximum(self, other: object) -> Any:
        """The larger of the two sizes."""
        return sized(torch.sym_max(self.size, plain(other)))

    def __eq__(self, other: object) -> bool:
        theirs = plain(other)
        if not isinstance(theirs, int | torch.SymInt):
            return NotImplemented
        equal = self.size == theirs
        if isinstance(equal, bool) or not is_unknown(equal):
            return bool(equal)
        if type(theirs) is int and theirs == 0:  # only a division requests it
            torch._check(self.size != 0)
            return False
        torch._check(equal)
        return True

    def __hash__(self) -> int:
        return hash(str(self.size))

    def __str__(self) -> str:
        return str(self.size)


def sized(size: object) -> Any:
    """A size for signatures."""
    return SymbolicSize(size) if isinstance(size, torch.SymInt) else size


def plain(size: object) -> Any:
    """A size for PyTorch."""
    return size.size if isinstance(size, SymbolicSize) else size


def sized_shape(shape: Sequence[object]) -> tuple[Any, ...]:
    """A shape for signatures."""
    return tuple(sized(size) for size in shape)


def plain_shape(shape: Sequence[object]) -> tuple[Any, ...]:
    """A shape for PyTorch."""
    return tuple(plain(size) for size in shape)
