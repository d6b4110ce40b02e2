"""Packs arrays of 4-bit elements into bytes, and unpacks them.

In memory two elements share a byte: element 2 k is its low half, element 2 k + 1 its high half, in row-major order over
the whole tensor, without gaps between rows. The high half behind an odd number of elements is 0. NumPy has no such
arrays: those of ml_dtypes spend a byte on each element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .dtype import DType

Array = np.ndarray[Any, Any]


def pack(array: Array) -> Array:
    """The bytes of an array of any shape, as one axis of uint8."""
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    out = np.empty((codes.size + 1) // 2, np.uint8)
    np.bitwise_and(codes[0::2], 15, out=out)
    out[: codes.size // 2] |= codes[1::2] << 4
    return out


def unpack(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The elements of packed bytes as an array of this shape."""
    codes = np.empty((data.size, 2), np.int8)
    if dtype.kind == "int":  # the byte of a number below zero is filled with its sign, as a cast of ml_dtypes fills it
        signed = data.view(np.int8)
        codes[:, 0] = signed << 4 >> 4
        codes[:, 1] = signed >> 4
    else:
        codes[:, 0] = data & 15
        codes[:, 1] = data >> 4
    return codes.reshape(-1)[: math.prod(shape)].view(dtype.to_numpy()).reshape(shape)
