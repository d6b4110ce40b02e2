"""Mathematics, written in the kernel language: what `exp(x)`, `sin(x)`, `x ** y`, … mean inside a kernel.

The functions use additions, multiplications, `fma`, divisions, square roots and operations on bits, in a fixed order,
and no call of a mathematics library or of a target's own approximation. So every target gives the same bits, and a loop
over elements becomes vector code: cases are chosen with `select`.

Input: floats of any dtype, scalar or SIMD (half types compute through float32). Output: values of the same type;
special values as C99 (annex F) has them. Non-goals: no rounding modes but to nearest, no floating-point flags, no
complex numbers.

How the polynomials were made: each is a minimax polynomial (Remez's exchange at 60 digits) of the function that is
named next to it, on the interval that is named, for a weight that turns its error into the relative error of the final
result. Coefficients stand highest power first. They were rounded one after another, lowest power first, with the others
fitted again after each; "2**-28" is the largest weighted error with the rounded coefficients. The measured errors of
the finished functions stand in `docs/numerics.md`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import (
    float64,
    fma,
    implements,
    rsqrt,
    select,
    sqrt,
)
from . import math_circular, math_exponential, math_logarithm  # noqa: F401  (they say what their functions mean)
from .math_parts import (
    INFINITY,
    applied,
)

# *** square root ***


@implements(rsqrt)
def _rsqrt(x: Any) -> Any:
    return applied(_rsqrt_wide, x)


def _rsqrt_wide(x: Any) -> Any:
    # Both roundings of 1 / sqrt(x) are put right by one step of Newton's. Small numbers are scaled by a power of 4, for
    # their residual would underflow.
    tiny, up, down = 2.0**-60, 2.0**64, 2.0**32
    if x.dtype == float64:
        tiny, up, down = 2.0**-800, 2.0**200, 2.0**100
    small = x < tiny
    scaled = select(small, x * up, x)
    root = sqrt(scaled)
    guess = 1.0 / root
    residual = fma(-root, root, scaled)
    step = fma(-root, guess, 1.0) - 0.5 * residual * guess * guess
    refined = fma(guess, step, guess)
    refined = select(small, refined * down, refined)
    return select((x > 0.0) & (x < INFINITY), refined, guess)
