"""The mathematics that is written in the language itself: names, signatures and meanings (see `stubs`).

How exact each function is, and its special values, stand in `docs/numerics.md`. Input: nothing. Output: the names.
Non-goals: the functions themselves (see `stdlib/math.py` and its neighbours).
"""

from __future__ import annotations

from typing import Any

from .stubs import stub


@stub("library")
def rsqrt(x: Any) -> Any:
    """`1 / sqrt(x)`."""


@stub("library")
def exp(x: Any) -> Any:
    """e to the power x."""


@stub("library")
def exp2(x: Any) -> Any:
    """2 to the power x."""


@stub("library")
def log(x: Any) -> Any:
    """The natural logarithm."""


@stub("library")
def log2(x: Any) -> Any:
    """The logarithm to base 2."""


@stub("library")
def pow(x: Any, y: Any) -> Any:
    """x to the power y, also written `x ** y`. Integers take a power >= 0 and wrap."""


@stub("library")
def sin(x: Any) -> Any:
    """The sine of x in radians."""


@stub("library")
def cos(x: Any) -> Any:
    """The cosine of x in radians."""


@stub("library")
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""


@stub("library")
def erf(x: Any) -> Any:
    """The Gauss error function."""
