"""What `exp(x, fast=True)` and its kin mean: instructions of a GPU that approximate a function of float32.

Half types compute through float32. Targets without such instructions, and simulated GPUs, take the ordinary function.
How far each is from the exact result, and what of that the makers of GPUs promise, stands in `docs/numerics.md`.
Subnormal arguments and results may count as 0.

See also `math.functions` (the ordinary functions), `compiler.interpreter.native` (the instructions in the interpreter).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    Floating,
    abs,
    cos,
    erf,
    exp,
    exp2,
    fma,
    implements,
    log,
    log2,
    log10,
    reciprocal,
    rsqrt,
    select,
    sin,
    sqrt,
    tanh,
)
from .parts import (
    LOG2_E_32,
    applied,
    by_instruction,
    exp2_by_instruction,
    has_approximations,
    polynomial,
    takes_nvidia,
    with_sign_of,
)

# log(x) = log(2) * log2(x), log10(x) = log10(2) * log2(x)
LN2, LOG10_2 = 0.6931471805599453, 0.3010299956639812
TURNS_IN_RADIAN = 0.15915494309189535  # 1 / (2 pi)
# tanh(x) / x = 1 + x**2 (-1/3 + x**2 2/15): Taylor's series, to 2.1e-7 for |x| <= 1/8
TANH_NEAR_0 = (0.13333333, -0.33333334, 1.0)
# erf(x) = 1 - (a1 t + ... + a5 t**5) exp(-x**2) for x >= 0 with t = 1 / (1 + p x), to 1.5e-7: Abramowitz and Stegun,
# "Handbook of Mathematical Functions", 7.1.26; a5 first
ERF_P = 0.3275911
ERF_A = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _turns(x: Floating) -> Any:
    """An angle in turns, without whole ones: AMD's instructions take these."""
    return by_instruction(x * TURNS_IN_RADIAN, "", "llvm.amdgcn.fract.f32")


def _log2_by_instruction(x: Floating) -> Any:
    return by_instruction(x, "llvm.nvvm.lg2.approx.ftz.f", "llvm.amdgcn.log.f32")


def _reciprocal_by_instruction(x: Floating) -> Any:
    return by_instruction(x, "llvm.nvvm.rcp.approx.ftz.f", "llvm.amdgcn.rcp.f32")


def _approximated(wide: Callable[[Floating], Floating], ordinary: Callable[[Floating], Floating], x: Floating) -> Any:
    """`wide(x)`, computed through float32, on targets with such instructions; `ordinary(x)` on others."""
    return applied(wide, x) if has_approximations() else ordinary(x)


@implements("fast.exp")
def _exp(x: Floating) -> Any:
    return _approximated(_exp_wide, exp, x)


def _exp_wide(x: Floating) -> Any:
    return exp2_by_instruction(x * LOG2_E_32[0])


@implements("fast.exp2")
def _exp2(x: Floating) -> Any:
    return _approximated(exp2_by_instruction, exp2, x)


@implements("fast.log")
def _log(x: Floating) -> Any:
    return _approximated(_log_wide, log, x)


def _log_wide(x: Floating) -> Any:
    return _log2_by_instruction(x) * LN2


@implements("fast.log2")
def _log2(x: Floating) -> Any:
    return _approximated(_log2_by_instruction, log2, x)


@implements("fast.log10")
def _log10(x: Floating) -> Any:
    return _approximated(_log10_wide, log10, x)


def _log10_wide(x: Floating) -> Any:
    return _log2_by_instruction(x) * LOG10_2


@implements("fast.sin")
def _sin(x: Floating) -> Any:
    return _approximated(_sin_wide, sin, x)


def _sin_wide(x: Floating) -> Any:
    if takes_nvidia():
        return by_instruction(x, "llvm.nvvm.sin.approx.ftz.f", "")
    return by_instruction(_turns(x), "", "llvm.amdgcn.sin.f32")


@implements("fast.cos")
def _cos(x: Floating) -> Any:
    return _approximated(_cos_wide, cos, x)


def _cos_wide(x: Floating) -> Any:
    if takes_nvidia():
        return by_instruction(x, "llvm.nvvm.cos.approx.ftz.f", "")
    return by_instruction(_turns(x), "", "llvm.amdgcn.cos.f32")


@implements("fast.sqrt")
def _sqrt(x: Floating) -> Any:
    return _approximated(_sqrt_wide, sqrt, x)


def _sqrt_wide(x: Floating) -> Any:
    return by_instruction(x, "llvm.nvvm.sqrt.approx.ftz.f", "llvm.amdgcn.sqrt.f32")


@implements("fast.rsqrt")
def _rsqrt(x: Floating) -> Any:
    return _approximated(_rsqrt_wide, rsqrt, x)


def _rsqrt_wide(x: Floating) -> Any:
    return by_instruction(x, "llvm.nvvm.rsqrt.approx.ftz.f", "llvm.amdgcn.rsq.f32")


@implements("fast.reciprocal")
def _reciprocal(x: Floating) -> Any:
    return _approximated(_reciprocal_by_instruction, reciprocal, x)


@implements("fast.tanh")
def _tanh(x: Floating) -> Any:
    return _approximated(_tanh_wide, tanh, x)


def _tanh_wide(x: Floating) -> Any:
    if takes_nvidia():
        return by_instruction(x, "tanh.approx.f32 $0, $1;", "")
    # (1 - e**(-2 |x|)) / (1 + e**(-2 |x|)), whose difference loses digits near 0
    size, square = abs(x), x * x
    power = exp2_by_instruction(size * (-2.0 * LOG2_E_32[0]))
    far = (1.0 - power) * _reciprocal_by_instruction(1.0 + power)
    return with_sign_of(select(size < 0.125, size * polynomial(square, TANH_NEAR_0), far), x)


@implements("fast.erf")
def _erf(x: Floating) -> Any:
    return _approximated(_erf_wide, erf, x)


def _erf_wide(x: Floating) -> Any:
    size = abs(x)
    t = _reciprocal_by_instruction(fma(size, ERF_P, 1.0))
    power = exp2_by_instruction(x * x * -LOG2_E_32[0])
    return with_sign_of(fma(-polynomial(t, ERF_A) * t, power, 1.0), x)
