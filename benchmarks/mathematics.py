"""The functions of mathematics in NumPy, PyTorch and Numba, and the numbers that they are timed on.

`mod` is `x % y`, which NumPy and PyTorch call `remainder`; `remainder` is that of IEEE 754, which they do not have.

See also `accuracy` (how exact they are).
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Into = Callable[..., Any]

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "frexp"),
)
BINARY = ("pow", "atan2", "hypot", "fmod", "mod", "remainder", "ldexp")

# From where to where the arguments lie; the others from -4 to 4.
RANGES = {
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "lgamma"), (0.01, 20.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.99, 0.99)),
    **{"log1p": (-0.9, 20.0), "acosh": (1.0, 20.0), "pow": (0.01, 4.0)},
}
_NUMPY: dict[str, str | None] = {
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"},
    **{"atanh": "arctanh", "pow": "power", "atan2": "arctan2"},
    **{"mod": "remainder", "remainder": None},
}


_TORCH: dict[str, str | None] = {"mod": "remainder", "remainder": None}


def arguments(name: str, shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Array]:
    """The same numbers each time; `ldexp` takes whole ones as its second argument."""
    generator = np.random.default_rng(7)
    low, high = RANGES.get(name, (-4.0, 4.0))
    arrays = [generator.uniform(low, high, shape).astype(dtype) for shape in shapes]
    return [arrays[0], (arrays[1] * 8).astype(np.int32)] if name == "ldexp" else arrays


def with_numpy(name: str) -> Into | None:
    """function(out, *arrays), or None where NumPy has none."""
    if name == "rsqrt":
        return lambda out, x: np.divide(1, np.sqrt(x, out=out), out=out)
    if name == "frexp":
        return lambda out, x: np.frexp(x, out, _exponents(out.shape))[0]
    function = getattr(np, _NUMPY.get(name, name) or "", None)
    return function and (lambda out, *arrays: function(*arrays, out=out))


@functools.cache
def _exponents(shape: tuple[int, ...]) -> Array:
    """Memory for the other result of `frexp`."""
    return np.zeros(shape, np.int32)


def plainly(name: str) -> Callable[[list[Array]], Array]:
    """What the results are compared with: NumPy's function, or Python's on each element."""
    known = with_numpy(name)
    if known is not None:
        return lambda arrays: known(np.empty_like(arrays[0]), *arrays)  # type: ignore[no-any-return]
    function = getattr(math, name)
    return lambda arrays: np.array([function(*v) for v in zip(*arrays, strict=True)], arrays[0].dtype)


def with_torch(name: str) -> Into | None:
    torch = importlib.import_module("torch")
    function = getattr(torch, _TORCH.get(name, name) or "", None)
    if name == "frexp":
        return lambda out, x: function(x, out=(out, torch.from_numpy(_exponents(tuple(out.shape)))))[0]
    return function and (lambda out, *tensors: function(*tensors, out=out))


def with_numba(name: str) -> Into | None:
    """A loop of its own; the function is that of the C library, or of Intel's where it is installed."""
    numba = importlib.import_module("numba")
    if name in ("rsqrt", "exp2", "cbrt", "remainder"):
        return None
    others: dict[str, Any] = {"mod": operator.mod, "fmod": np.fmod}
    function = others.get(name) or getattr(math, name)
    if name in BINARY:

        def pairs(out: Any, x: Any, y: Any) -> None:
            for i in range(x.size):
                out[i] = function(x[i], y[i])

        return numba.njit(pairs)  # type: ignore[no-any-return]
    if name == "frexp":

        def parts(out: Any, exponents: Any, x: Any) -> None:
            for i in range(x.size):
                out[i], exponents[i] = function(x[i])

        loop = numba.njit(parts)
        return lambda out, x: loop(out, _exponents(out.shape), x)

    def each(out: Any, x: Any) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    return numba.njit(each)  # type: ignore[no-any-return]
