"""`exp`, `exp2` and `expm1` in the kernel language; see `math` for what all of these have in common.

Input: a float of any dtype. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import abs, exp, exp2, expm1, float64, fma, implements, select
from .math_parts import applied, clamped, exp_core, exp_parts, polynomial, power_of_two, scaled, sum_fast, whole

# *** exponentials ***

# (2**r - 1) / r on [-0.5, 0.5], relative to 2**r: 2**-26 and 2**-57
EXP2_32 = (1.3335138e-04, 1.3387926e-03, 9.62544e-03, 5.5503663e-02, 2.4022594e-01, 6.931472e-01)
EXP2_64 = (
    4.5181161949189836e-10,
    7.075582046664242e-09,
    1.0177661708481289e-07,
    1.3215424629791886e-06,
    1.5252734729388358e-05,
    0.00015403530478666285,
    0.0013333558145572244,
    0.009618129107577143,
    0.05550410866482457,
    0.24022650695910172,
    0.6931471805599453,
)


@implements(exp)
def _exp(x: Any) -> Any:
    return applied(_exp_wide, x)


def _exp_wide(x: Any) -> Any:
    # Beyond the bounds the result has overflowed, or is less than half the smallest number.
    if x.dtype == float64:
        n, number = exp_core(clamped(x, -746.0, 710.0))
    else:
        n, number = exp_core(clamped(x, -104.0, 89.0))
    return scaled(number, n)


@implements(exp2)
def _exp2(x: Any) -> Any:
    return applied(_exp2_wide, x)


def _exp2_wide(x: Any) -> Any:
    if x.dtype == float64:
        near = clamped(x, -1076.0, 1025.0)
        n, nearest = whole(near)
        r = near - nearest
        return scaled(fma(r, polynomial(r, EXP2_64), 1.0), n)
    near = clamped(x, -151.0, 129.0)
    n, nearest = whole(near)
    r = near - nearest
    return scaled(fma(r, polynomial(r, EXP2_32), 1.0), n)


@implements(expm1)
def _expm1(x: Any) -> Any:
    return applied(_expm1_wide, x)


def _expm1_wide(x: Any) -> Any:
    # Half of 2**n (1 + r + tail) - 1, largest first: 2**n itself may be too large. Below -40 nothing is left but -1.
    tiny, high = 2.0**-26, 89.0
    if x.dtype == float64:
        tiny, high = 2.0**-55, 710.0
    n, r, tail = exp_parts(clamped(x, -40.0, high))
    power = power_of_two(n - 1)
    head, head_rest = sum_fast(power, -0.5)
    total, lost = sum_fast(head, power * r)
    number = 2.0 * (total + fma(power, tail, lost + head_rest))
    return select(abs(x) < tiny, x, number)
