"""What the functions of mathematics should give, and numbers to try them on: for `accuracy` and for the tests.

`UNARY` and `BINARY` name the functions that are measured. For each there is NumPy's float64 function (a reference for
float32, whose last place is 2**29 of its own), mpmath's, and `samples` from every part of its domain, the hard parts
among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import mp, mpf

Array = np.ndarray[Any, Any]

# Whether f(-x) is -f(x), f(x), or something else.
ODD = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "cbrt")
EVEN = ("cos", "cosh")
OTHER = ("rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "acos", "acosh", "erfc", "lgamma", "gamma")
BESSEL = ("i0", "i1", "j0", "j1", "y0", "y1")
UNARY = ODD + EVEN + OTHER + BESSEL
BINARY = ("pow", "atan2", "hypot")

# What docs/numerics.md promises, in units in the last place, for float32 and float64; `lgamma` for x > 0.
NEARLY_EXACT = ("rsqrt", "hypot")
BOUNDS = {name: (0.51, 0.51) if name in NEARLY_EXACT else (1.0, 1.0) for name in UNARY + BINARY}
BOUNDS["pow"] = (1.5, 1.5)
BOUNDS["gamma"] = (1.0, 1.5)
BOUNDS |= dict.fromkeys(("i0", "i1"), (1.0, 5.0)) | dict.fromkeys(("j0", "j1", "y0", "y1"), (1.0, 16.0))

NUMPY: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.array([math.erf(v) for v in x]),
    "erfc": lambda x: np.array([math.erfc(v) for v in x]),
    "lgamma": lambda x: np.array([_lgamma(v) for v in x]),
    "gamma": lambda x: np.array([_gamma(v) for v in x]),
    **{name: lambda x, name=name: np.array([_bessel(name, float(v)) for v in x]) for name in BESSEL},
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
}


def _lgamma(x: float) -> float:
    """Python's own, with C's answers where Python raises an error."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


def _gamma(x: float) -> float:
    """The same for the gamma function."""
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.copysign(math.inf, x) if x == 0 else math.nan


def _bessel(name: str, x: float) -> float:
    """mpmath's function, which takes its time, with the limits at 0 and infinity."""
    if x != x or (name[0] == "y" and x < 0):
        return math.nan
    if math.isinf(x):
        grown = math.inf if name == "i0" else x
        return grown if name[0] == "i" else 0.0
    if x == 0:
        return -math.inf if name[0] == "y" else 1.0 if name[1] == "0" else x
    return float(precise(name)(mpf(x)))


MPMATH: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "exp2": lambda x: mpf(2) ** x,
    "log2": lambda x: mp.log(x) / mp.ln2,
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))) if abs(x) < 100 else mp.re(mp.loggamma(x)),
    **{f"j{n}": lambda x, n=n: mp.besselj(n, x) for n in (0, 1)},
    **{f"y{n}": lambda x, n=n: mp.bessely(n, x) for n in (0, 1)},
    **{f"i{n}": lambda x, n=n: mp.besseli(n, x) for n in (0, 1)},
    "pow": lambda x, y: mp.re(mp.power(x, int(y) if x < 0 else y)),
}


def precise(name: str) -> Callable[..., Any]:
    """mpmath's function; the caller sets the precision."""
    function: Callable[..., Any] = MPMATH.get(name) or getattr(mp, name)
    return function


def precision(name: str) -> int:
    """The bits that mpmath needs for the results of a function to be good for 100 bits."""
    if name in BESSEL:
        return 200
    return 1300 if name in ("sin", "cos", "tan") else 400


def size_of(name: str, truth: Any, at: Any) -> Any:
    """The number whose last place is the unit of errors: the result; for functions that oscillate, the larger of it and
    their amplitude min(1, sqrt(2 / (pi x))).
    """
    if name not in ("j0", "j1", "y0", "y1") or not at:
        return truth
    return max(abs(truth), min(mpf(1), mp.sqrt(2 / (mp.pi * abs(at)))))


def distance(got: float, truth: Any, dtype: Any, size: Any = None) -> float:
    """Units in the last place between a float and one of mpmath's numbers; infinity stands for the next power of 2.

    The last place is that of `size`, or of the number.
    """
    info = np.finfo(dtype)
    if math.isnan(got):
        return math.inf
    limit = mpf(2) ** int(info.maxexp)
    exact = mpf(got) if math.isfinite(got) else math.copysign(1, got) * limit
    truth = max(-limit, min(limit, truth))
    if truth == 0:
        return 0.0 if got == 0 else math.inf
    unit = truth if size is None else min(limit, abs(size))
    exponent = max(mp.frexp(abs(unit))[1] - 1, int(info.minexp))
    return float(abs(exact - truth) / mpf(2) ** (exponent - int(info.nmant)))


def ulps(got: Array, truth: Array) -> Array:
    """The same for arrays, float32 against float64. Two NaN agree."""
    exponent = np.maximum(np.frexp(truth)[1], -125)
    unit = np.ldexp(1.0, exponent - 24)
    beyond = np.ldexp(1.0, 128)
    apart = np.abs(np.clip(got.astype(np.float64), -beyond, beyond) - np.clip(truth, -beyond, beyond)) / unit
    nans = np.isnan(got) + np.isnan(truth).astype(int)
    return np.where(nans == 2, 0.0, np.where(nans == 1, np.inf, apart))


def spread(rng: np.random.Generator, count: int, low: int, high: int) -> Array:
    """Numbers of both signs with exponents from low to high, all equally likely."""
    sign = rng.choice([-1.0, 1.0], count)
    return np.asarray(sign * np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count)))


def samples(name: str, dtype: Any, count: int, seed: int = 20) -> list[Array]:
    """The arguments of a function, one array for each: from every part of its domain, the hard parts among them."""
    rng = np.random.default_rng(seed)
    if name in BINARY:
        return [np.asarray(a, dtype) for a in _pairs(rng, name, np.finfo(dtype), count)]
    with np.errstate(over="ignore"):
        x = np.concatenate([np.asarray(part, dtype) for part in _parts(rng, name, np.finfo(dtype), count // 4)])
    least = {"log1p": -1.0, "acosh": 1.0}.get(name, -np.inf)
    return [x[np.isfinite(x) & (x >= least)]]


def _parts(rng: np.random.Generator, name: str, info: Any, quarter: int) -> list[Array]:
    smallest, largest = int(info.minexp - info.nmant), int(info.maxexp)
    near_one = 1 + rng.uniform(-1, 1, quarter) * 2.0 ** -rng.uniform(1, info.nmant, quarter)
    everywhere = spread(rng, quarter, smallest, largest)
    small = spread(rng, quarter, -30, 1)
    if name in ("exp", "exp2", "expm1", "sinh", "cosh"):
        scale = 1.0 if name == "exp2" else math.log(2)
        low, high = (smallest - 1) * scale, (largest + 1) * scale
        edge = rng.uniform(low, 0.8 * low, quarter)
        return [rng.uniform(low, high, quarter), edge, rng.uniform(-2, 2, quarter), small]
    if name in ("log", "log2", "log10", "rsqrt"):
        return [np.abs(everywhere), rng.uniform(0.5, 2, quarter), rng.uniform(0.3, 20, quarter), near_one]
    if name in ("log1p", "acosh"):
        shift = 1.0 if name == "log1p" else 0.0
        above = [1 + np.abs(small), near_one, 1 + np.abs(everywhere), rng.uniform(1, 20, quarter)]
        return [part - shift for part in above] + ([small, -np.abs(small) / 2] if shift else [])
    if name in ("sin", "cos", "tan"):
        turns = rng.integers(1, 1 << 20, quarter) * (math.pi / 2)
        near = turns * (1 + rng.uniform(-1, 1, quarter) * 2.0 ** -rng.uniform(0, info.nmant, quarter))
        return [rng.uniform(-10, 10, quarter), everywhere, spread(rng, quarter, -30, 30), near]
    if name in ("asin", "acos", "atanh"):
        signs = rng.choice([-1.0, 1.0], quarter)
        return [rng.uniform(-1, 1, 2 * quarter), signs * np.minimum(near_one, 2 - near_one), small / 2]
    if name in ("cbrt", "atan", "asinh"):
        return [everywhere, rng.uniform(-1.5, 1.5, quarter), rng.uniform(-10, 10, quarter), small]
    if name == "lgamma":
        return [np.abs(everywhere), rng.uniform(0, 4, quarter), rng.uniform(0, 60, quarter), near_one, 1 + near_one]
    if name == "gamma":
        high = 171.6 if info.bits == 64 else 35.0
        parts = [rng.uniform(0, high, quarter), rng.uniform(-high, 0, quarter), rng.uniform(-5, 5, quarter), small]
        return [part[part.astype(info.dtype) != np.floor(part.astype(info.dtype))] for part in parts]
    if name in BESSEL:
        most = math.log(info.max) if name in ("i0", "i1") else 1000.0
        parts = [rng.uniform(-width, width, quarter) for width in (8, 30, most)] + [small]
        return [np.abs(part) for part in parts] if name in ("y0", "y1") else parts
    return [rng.uniform(-width, width, quarter) for width in (1, 4, 28)] + [small]


def _pairs(rng: np.random.Generator, name: str, info: Any, count: int) -> tuple[Array, Array]:
    half, third = count // 2, count // 3
    smallest, largest = int(info.minexp - info.nmant), int(info.maxexp)
    if name == "pow":
        near = 1 + rng.uniform(-1, 1, half) * 2.0 ** -rng.uniform(1, info.nmant - 1, half)
        bases = np.concatenate([np.abs(spread(rng, half, smallest, largest)), near])
        bases = bases.astype(info.dtype).astype(np.float64)
        bases = bases[(bases != 1) & (bases > 0)]
        # Powers whose result lies anywhere between the smallest and the largest number, and a little beyond.
        powers = rng.uniform(-1.1, 1.03, bases.size) * largest * math.log(2) / np.log(bases)
        bases = np.concatenate([bases, -rng.uniform(0.1, 4, half // 4)])
        return bases, np.concatenate([powers, rng.integers(-60, 60, half // 4)])
    first = np.concatenate(
        [rng.uniform(-3, 3, third), spread(rng, third, smallest, largest), spread(rng, third, -9, 9)]
    )
    ratio = np.concatenate([rng.uniform(-3, 3, third), spread(rng, 2 * third, -15, 15)])
    with np.errstate(over="ignore", under="ignore"):
        second = first * ratio
        keep = np.isfinite(second.astype(info.dtype)) & np.isfinite(first.astype(info.dtype)) & (second != 0)
    return first[keep], second[keep]
