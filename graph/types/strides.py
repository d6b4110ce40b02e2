"""Describes inputs that are not contiguous: views with steps, transposed arrays, broadcast ones, read where they lie.

Code is made for row-major inputs. When a call brings another layout, a variant of the graph is compiled, once for each
*pattern*: for each axis of such an input whether its stride is known (0 for a broadcast axis, 1 for the last axis whose
elements are neighbours) or a number that comes with the call, as a size does.

    x[::2, :3]   of a (8, 6) array of floats: strides (12, 1) in elements, pattern ("?", "1")
    x.T          strides (1, 6), pattern ("1", "?")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..driver.device import Array
from .dims import Dim, private_dim

Pattern = tuple[str, ...] | None  # None: row-major and without gaps


def pattern_of(array: Array) -> Pattern:
    """How the axes of an array lie in memory."""
    if array.flags.c_contiguous:
        return None
    return pattern_of_strides(array.strides, array.itemsize)


def pattern_of_strides(strides: Sequence[int], unit: int) -> tuple[str, ...]:
    """The pattern of strides that count so many units in an element."""
    kinds = ["0" if stride == 0 else "?" for stride in strides]
    for axis in reversed(range(len(kinds))):
        if strides[axis] == unit:
            kinds[axis] = "1"
            break
    return tuple(kinds)


def stride_dims(position: int, pattern: tuple[str, ...]) -> tuple[Dim, ...]:
    """The strides of an input in elements: numbers where the pattern has them, else names that no graph has."""
    return tuple(Dim(int(kind)) if kind != "?" else _name(position, axis) for axis, kind in enumerate(pattern))


def stride_sizes(arrays: list[Array], patterns: tuple[Pattern, ...]) -> Iterator[tuple[str, int]]:
    """The values of these names in a call."""
    for position, (array, pattern) in enumerate(zip(arrays, patterns, strict=False)):
        for axis, kind in enumerate(pattern or ()):
            if kind == "?":
                yield _name(position, axis).parameters[0], array.strides[axis] // array.itemsize


def whole(array: Array) -> bool:
    """Whether strides count whole elements (they need not in a field of a structured array)."""
    return all(stride % array.itemsize == 0 for stride in array.strides)


def _name(position: int, axis: int) -> Dim:
    return private_dim(f"stride {axis} of input{position}")
