"""The functions of mathematics in NumPy, PyTorch and Numba, and the numbers that they are timed on.

Input: a function's name. Output: functions of arrays that write into a given array, and ranges of arguments. Non-goals:
how exact they are (see `accuracy`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Into = Callable[..., Any]

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma"),
)
BINARY = ("pow", "atan2", "hypot")

# From where to where the arguments lie; the others from -4 to 4.
RANGES = {
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "lgamma"), (0.01, 20.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.99, 0.99)),
    **{"log1p": (-0.9, 20.0), "acosh": (1.0, 20.0), "pow": (0.01, 4.0)},
}
_NUMPY = {
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"},
    **{"atanh": "arctanh", "pow": "power", "atan2": "arctan2"},
}


def with_numpy(name: str) -> Into | None:
    """function(out, *arrays), or None where NumPy has none."""
    if name == "rsqrt":
        return lambda out, x: np.divide(1, np.sqrt(x, out=out), out=out)
    function = getattr(np, _NUMPY.get(name, name), None)
    return function and (lambda out, *arrays: function(*arrays, out=out))


def plainly(name: str) -> Callable[[list[Array]], Array]:
    """What the results are compared with: NumPy's function, or Python's on each element."""
    known = with_numpy(name)
    if known is not None:
        return lambda arrays: known(np.empty_like(arrays[0]), *arrays)  # type: ignore[no-any-return]
    function = getattr(math, name)
    return lambda arrays: np.array([function(v) for v in arrays[0]], arrays[0].dtype)


def with_torch(name: str) -> Into | None:
    torch = importlib.import_module("torch")
    function = getattr(torch, name, None)
    return function and (lambda out, *tensors: function(*tensors, out=out))


def with_numba(name: str) -> Into | None:
    """A loop of its own; the function is that of the C library, or of Intel's where it is installed."""
    numba = importlib.import_module("numba")
    if name in ("rsqrt", "exp2", "cbrt"):
        return None
    function = getattr(math, name)
    if name in BINARY:

        def pairs(out: Any, x: Any, y: Any) -> None:
            for i in range(x.size):
                out[i] = function(x[i], y[i])

        return numba.njit(pairs)  # type: ignore[no-any-return]

    def each(out: Any, x: Any) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    return numba.njit(each)  # type: ignore[no-any-return]
