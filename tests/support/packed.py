"""Elements of 4 bits, two to a byte, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def packed(array: Array) -> Array:
    """The bytes of an array: element 2 k in the low half of byte k, 2 k + 1 in the high one."""
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 15
    codes = np.append(codes, np.zeros(codes.size % 2, np.uint8))
    result: Array = codes[0::2] | codes[1::2] << 4
    return result


def unpacked(data: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The elements of packed bytes."""
    codes = np.stack([data & 15, data >> 4], axis=1).reshape(-1)[: int(np.prod(shape))]
    if dtype.name == "int4":  # ml_dtypes ignores the upper bits of a byte, but keeps them
        codes = (codes.astype(np.int8) << 4 >> 4).view(np.uint8)
    return codes.view(dtype).reshape(shape)
