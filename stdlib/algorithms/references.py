"""Makes references of kernels from NumPy's functions, computed wider and rounded once.

exp.reference(in_float64(np.exp))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Parameter = bool | int | float | str | tuple[int, ...]  # of a kernel


def in_float32(function: Function) -> Function:
    """The function on half types in float32, rounded once; on all others as it is."""

    def reference(*arrays: Array, **parameters: Parameter) -> Array:
        dtype = arrays[0].dtype
        if not _is_half(dtype):
            return np.asarray(function(*arrays, **parameters))
        return np.asarray(function(*(a.astype(np.float32) for a in arrays), **parameters)).astype(dtype)

    return reference


def true_in_float32(function: Function) -> Function:
    """A function that gives bools, on half types in float32; on all others as it is."""

    def reference(*arrays: Array, **parameters: Parameter) -> Array:
        wide = [array.astype(np.float32) if _is_half(array.dtype) else array for array in arrays]
        return np.asarray(function(*wide, **parameters))

    return reference


def in_float64(function: Function) -> Function:
    """The function on floats in float64, rounded once; integers stay what they are and wrap."""

    def reference(*arrays: Array, **parameters: Parameter) -> Array:
        dtype = arrays[0].dtype
        wide = arrays if dtype.kind in "iub" else [a.astype(_wide(dtype)) for a in arrays]
        return np.asarray(function(*wide, **parameters)).astype(dtype)

    return reference


def in_sums(function: Function) -> Function:
    """The function on floats in float64, rounded once; on integers and bools in int64 or uint64, which it gives."""

    def reference(array: Array, **parameters: Parameter) -> Array:
        if array.dtype.kind not in "iub":
            return np.asarray(function(array.astype(_wide(array.dtype)), **parameters)).astype(array.dtype)
        wide = np.uint64 if array.dtype.kind == "u" else np.int64
        return np.asarray(function(array.astype(wide), **parameters))

    return reference


def _wide(dtype: np.dtype[np.generic]) -> type[np.generic]:
    """The widest type of the kind of an inexact one that references compute in."""
    return np.complex128 if dtype.kind == "c" else np.float64


def plain(function: Function) -> Function:
    """A function of NumPy's as it is."""

    def reference(*arrays: Array, **parameters: Parameter) -> Array:
        return np.asarray(function(*arrays, **parameters))

    return reference


def place(function: Function) -> Function:
    """`np.argmax` or `np.argmin` along an axis, which stays; 0 over no elements."""

    def reference(array: Array, *, axis: int) -> Array:
        if array.shape[axis]:
            return np.asarray(function(array, axis, keepdims=True))
        return np.zeros([1 if k == axis else size for k, size in enumerate(array.shape)], np.int64)

    return reference


def ends(dtype: np.dtype[np.generic]) -> tuple[Any, Any]:
    """What the maximum and the minimum over no elements are."""
    if dtype.kind not in "iu":
        return -np.inf, np.inf
    limits = np.iinfo(str(dtype))
    return limits.min, limits.max


def _is_half(dtype: np.dtype[np.generic]) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iub"
