"""Declares the kinds of values that annotations of helpers name: they say what an argument is, and convert nothing.

See also `annotations` (the bounds of type variables, which are kinds, too).
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..types.dtype import DType
from .annotations import BOUNDS

__all__ = ["AnyDType", "AnyTensor", "Index", "Parts"]

if TYPE_CHECKING:
    from .dtypes import Int
    from .members import AnyDType, AnyTensor

    Index = int | Int
    Parts = Any  # checkers have no type for either a number or a tuple
else:

    class Index:
        """An annotation of helpers: a size or a position, an integer known at compile time or a run-time one."""

    class AnyDType:
        """An annotation of helpers: a dtype, `float32` or `x.dtype`."""

    class AnyTensor:
        """An annotation of helpers: a tensor of any dtype and rank, or memory of `stack` or `scratch`."""

    class Parts:
        """An annotation of helpers: a number, a vector, or a tuple or struct of these."""


KINDS: dict[Any, str] = {
    **{bound: bound.__name__ for bound in BOUNDS},
    Index: "Index",
    AnyDType: "AnyDType",
    DType: "AnyDType",
    AnyTensor: "AnyTensor",
    Parts: "Parts",
    Callable: "Callable",
    typing.Callable: "Callable",
}
