"""Declares the operations on bits of integers of any width, and vectors of numbers in a row."""

from __future__ import annotations

from typing import Any

from .stubs import stub

__all__ = [
    "bit_and_not",
    "bit_reverse",
    "bit_width",
    "byte_swap",
    "clz",
    "ctz",
    "iota",
    "popcount",
    "rotl",
    "rotr",
]


@stub("row")
def popcount(x: Any) -> Any:
    """How many bits of an integer are set, in its own type."""


@stub("row")
def clz(x: Any) -> Any:
    """How many zeros an integer has above its highest set bit; of 0, its width."""


@stub("row")
def ctz(x: Any) -> Any:
    """How many zeros an integer has below its lowest set bit; of 0, its width."""


@stub("row")
def bit_width(x: Any) -> Any:
    """How many digits the magnitude of an integer has in binary, as `int.bit_length` of Python; of 0, none."""


@stub("row")
def bit_reverse(x: Any) -> Any:
    """An integer with its bits in the opposite order."""


@stub("row")
def byte_swap(x: Any) -> Any:
    """An integer with its bytes in the opposite order."""


@stub("row")
def rotl(x: Any, count: Any) -> Any:
    """The bits of an integer moved up by `count` modulo its width; what leaves at the top enters below."""


@stub("row")
def rotr(x: Any, count: Any) -> Any:
    """The bits of an integer moved down by `count` modulo its width; what leaves below enters at the top."""


def bit_and_not(x: Any, y: Any) -> Any:
    """The bits of `x` that are not set in `y`: `x & ~y`."""
    return x & ~y


@stub("rule")
def iota(dtype: Any, width: int, start: Any = 0, step: Any = 1) -> Any:
    """The vector `start, start + step, start + 2 * step, …` of `width` lanes; `step` is known at compile time."""
