"""What kernels of several families share: types of accumulation, shapes around an axis, and lists in strings.

Input: values and compile-time parameters of a kernel. Output: values. Non-goals: no kernel is registered here.
"""

from __future__ import annotations

from typing import Any

from ..dsl import float32, unroll


def wide_dtype(dtype: Any) -> Any:
    """The dtype in which elements of `dtype` are accumulated: float32 for half types, else `dtype` itself."""
    return float32 if dtype.is_half() else dtype


def widened(x: Any) -> Any:
    """`x` in the dtype of `wide_dtype`."""
    return x.cast(wide_dtype(x.dtype))


def product(sizes: Any) -> Any:
    """The product of a tuple of sizes; 1 of an empty one."""
    total = 1
    for k in unroll(len(sizes)):
        total = total * sizes[k]
    return total


def whole_number(text: Any, position: Any) -> Any:
    """The number at `position` of a comma-separated list of whole numbers: `whole_number("1,-20", 1)` is -20."""
    number = 0
    sign = 1
    field = 0
    for k in unroll(len(text)):
        if text[k] == ",":
            field = field + 1
        elif field == position:
            if text[k] == "-":
                sign = -1
            else:
                number = 10 * number + int(text[k])
    return sign * number
