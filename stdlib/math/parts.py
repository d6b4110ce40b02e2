"""Building blocks of the functions of `math`: polynomials, sums of two floats, exponents and their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    Floating,
    Integral,
    Numeric,
    bitcast,
    compiled_for,
    float32,
    float64,
    fma,
    inline_assembly,
    int32,
    int64,
    llvm_intrinsic,
    select,
    static_assert,
    uint32,
    uint64,
    unroll,
)

INFINITY = float("inf")
NAN = float("nan")

# Adding 1.5 * 2**23 (2**52) to a small number rounds it to a whole number, which then lies in the low bits of the sum.
ROUNDER32 = 12582912.0
ROUNDER32_BITS = 0x4B400000
ROUNDER64 = 6755399441055744.0
ROUNDER64_BITS = 0x4338000000000000

SIGN32 = -0x80000000
SIGN64 = -0x8000000000000000

# ln 2 and log2 e as unevaluated sums. The "short" heads have so few bits that a multiple by an exponent is exact.
LN2_32 = (6.931472e-01, -1.9046542e-09)
LN2_64 = (0.6931471805599453, 2.3190468138462996e-17)
LN2_SHORT_32 = (0.693145751953125, 1.4286068e-06)
LN2_SHORT_64 = (0.6931471805598903, 5.497923018708371e-14)
LOG2_E_32 = (1.442695e00, 1.925963e-08)
LOG2_E_64 = (1.4426950408889634, 2.0355273740931033e-17)

# x = n ln 2 + r with a whole n and |r| <= ln(2) / 2; then e**x = 2**n * (1 + r + r**2 * Q(r)), and this is Q:
# (e**r - 1 - r) / r**2 on [-0.3467, 0.3467], relative to e**r: 2**-28 and 2**-57
EXP_32 = (1.3838036e-03, 8.369166e-03, 4.1668102e-02, 1.6666517e-01, 4.9999994e-01)
# the same with a term more, 2**-29.8, for differences that lose digits
EXP_FINE_32 = (
    0.000197903064,
    0.00139446522,
    0.00833349675,
    0.0416662954,
    0.166666657,
    0.5,
)
EXP_64 = (
    2.50401590877666e-08,
    2.7631176491577773e-07,
    2.7557455819426856e-06,
    2.4801490644767343e-05,
    0.00019841269657471747,
    0.0013888888945754886,
    0.00833333333342231,
    0.04166666666652362,
    0.1666666666666653,
    0.5000000000000011,
)


# *** instructions that approximate ***


def has_approximations() -> bool:
    """Whether the target has instructions that approximate functions of float32."""
    return takes_nvidia() or compiled_for().supports("v_exp")


def takes_nvidia() -> bool:
    """Whether these are NVIDIA's."""
    return compiled_for().supports("ex2")


def by_instruction(x: Floating, nvidia: str, amd: str) -> Any:
    """What an instruction of the target gives for each lane of a float32.

    Each is an intrinsic of LLVM, or where LLVM has none, the instruction itself.
    """
    if x.width == 1:
        return _of_one(x, nvidia, amd)
    lanes: Any = ()
    for k in unroll(x.width):
        lanes = (*lanes, _of_one(x[k], nvidia, amd))
    return SIMD[float32, x.width](*lanes)


def _of_one(x: Floating, nvidia: str, amd: str) -> Any:
    if not takes_nvidia():
        return llvm_intrinsic(amd, float32, x, has_side_effects=False)
    if nvidia[:5] != "llvm.":
        return inline_assembly(nvidia, float32, x, constraints="=f,f", has_side_effects=False)
    return llvm_intrinsic(nvidia, float32, x, has_side_effects=False)


def exp2_by_instruction(x: Floating) -> Any:
    """2**x of float32, to 2 ulp, or 0 where that is no normal number: an instruction of the target."""
    return by_instruction(x, "llvm.nvvm.ex2.approx.ftz.f", "llvm.amdgcn.exp2.f32")


# *** polynomials and sums of two floats ***


def polynomial(x: Floating, coefficients: tuple[float, ...]) -> Any:
    """The polynomial of x by Horner's rule; coefficients stand highest power first."""
    result = coefficients[0]
    for coefficient in coefficients[1:]:
        result = fma(result, x, coefficient)
    return result


def fitted(x: Floating, narrow: tuple[float, ...], wide: tuple[float, ...]) -> Any:
    """The polynomial of x whose coefficients were made for its dtype: float32 or float64."""
    return polynomial(x, wide) if x.dtype == float64 else polynomial(x, narrow)


def polynomial_in_halves(x: Floating, coefficients: tuple[float, ...]) -> Any:
    """The same for 13 coefficients or more: x**9 and above apart, so that fewer steps wait for each other.

    The last step is as in Horner's rule, and so is the error.
    """
    square = x * x
    fourth = square * square
    higher = fma(fourth * fourth, polynomial(x, coefficients[:-9]), polynomial(x, coefficients[-9:-1]))
    return fma(x, higher, coefficients[-1])


def polynomial_apart(x: Floating, square: Floating, coefficients: tuple[float, ...]) -> Any:
    """The same with x**2 at hand, and even and odd powers apart: for loops that wait for long polynomials."""
    ahead, last = polynomial(square, coefficients[0::2]), polynomial(square, coefficients[1::2])
    if len(coefficients) % 2 == 0:
        return fma(ahead, x, last)
    return fma(last, x, ahead)


def applied(function: Callable[[Floating], Floating], x: Floating) -> Any:
    """function(x) for a function of float32 and float64."""
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype.is_half():
        return function(x.cast(float32)).cast(x.dtype)
    return function(x)


def applied_to_two(function: Callable[[Floating, Floating], Floating], x: Floating, y: Floating) -> Any:
    """function(x, y) for a function of two float32 or float64; a number on either side takes the type of the other."""
    product = x * y
    static_assert(
        product.dtype.is_float(),
        "this function works on floats: cast the values first",
    )
    lanes = SIMD[product.dtype, product.width]
    a, b = lanes(x), lanes(y)
    if product.dtype.is_half():
        return function(a.cast(float32), b.cast(float32)).cast(product.dtype)
    return function(a, b)


def with_sign_of(size: Floating, x: Floating) -> Any:
    """The number size >= 0 with the sign of x, that of zeros included."""
    if x.dtype == float64:
        return bitcast(bitcast(size, int64) | (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(size, int32) | (bitcast(x, int32) & SIGN32), float32)


def sum_fast(large: Floating, small: Floating) -> Any:
    """The sum and what its rounding lost, for |large| >= |small| or large = 0 (Dekker 1971)."""
    total = large + small
    return total, small - (total - large)


def sum_exact(a: Floating, b: Floating) -> Any:
    """The sum and what its rounding lost, whichever is larger (Knuth 1969)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def product_exact(a: Floating, b: Floating) -> Any:
    """The product and what its rounding lost."""
    product = a * b
    return product, fma(a, b, -product)


def quotient_sum(above: Floating, above_rest: Floating, below: Floating, below_rest: Floating) -> Any:
    """(above + above_rest) / (below + below_rest) as a sum of two floats.

    `below` has to have a normal inverse, and the rests to be tiny next to it.
    """
    inverse = 1.0 / below
    quotient = above * inverse
    error = fma(-quotient, below, above) + fma(-quotient, below_rest, above_rest)
    return quotient, error * inverse


def quotient(above: Floating, above_rest: Floating, below: Floating, below_rest: Floating) -> Any:
    """The same, rounded to one float. A zero above, with a rest of 0, keeps its sign over a positive number."""
    inverse = 1.0 / below
    result = above * inverse
    excess = fma(result, below, -above) + fma(result, below_rest, -above_rest)
    return fma(-excess, inverse, result)


# *** exponentials ***


def whole(x: Floating) -> Any:
    """The whole number nearest to a small x, as an integer of the same width and as a float."""
    if x.dtype == float64:
        shifted = x + ROUNDER64
        return bitcast(shifted, int64) - ROUNDER64_BITS, shifted - ROUNDER64
    shifted = x + ROUNDER32
    return bitcast(shifted, int32) - ROUNDER32_BITS, shifted - ROUNDER32


def whole_multiple(x: Floating, factor: float) -> Any:
    """The same for x * factor, which is rounded once only."""
    if x.dtype == float64:
        shifted = fma(x, factor, ROUNDER64)
        return bitcast(shifted, int64) - ROUNDER64_BITS, shifted - ROUNDER64
    shifted = fma(x, factor, ROUNDER32)
    return bitcast(shifted, int32) - ROUNDER32_BITS, shifted - ROUNDER32


def float_of(n: Integral) -> Any:
    """An int64 as a float64, like `n.cast(float64)`, for which few CPUs have an instruction that works on vectors."""
    # The upper half lies in the bits of 2**84 + 2**63 + upper * 2**32, the lower in those of 2**52 + lower.
    upper = bitcast(((bitcast(n, uint64) >> 32) ^ 0x80000000) | 0x4530000000000000, float64) - 1.9342822337206104e25
    lower = bitcast((n & 0xFFFFFFFF) | 0x4330000000000000, float64) - 4503599627370496.0
    return upper + lower


def as_wide(n: Integral, x: Floating) -> Any:
    """The lower bits of an integer, as a signed one that is as wide as the float x."""
    return n.cast(int64 if x.dtype == float64 else int32)


def power_of_two(n: Integral) -> Any:
    """2**n as a float of the width of the integer n, which has to be the exponent of a normal number."""
    if n.dtype == int64:
        return bitcast((n + 1023) << 52, float64)
    return bitcast((n + 127) << 23, float32)


def scaled(x: Floating, n: Integral) -> Any:
    """x * 2**n for x near 1: in two steps, of which only the second can round or overflow."""
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


def clamped(x: Numeric, low: float, high: float) -> Any:
    """x between two bounds; NaN stays."""
    above = select(x < low, low, x)
    return select(above > high, high, above)


def exp_reduced(x: Floating) -> Any:
    """n as an integer, n as a float, and r of x = n ln 2 + r."""
    if x.dtype == float64:
        n, nearest = whole(x * LOG2_E_64[0])
        return n, fma(nearest, -LN2_64[1], fma(nearest, -LN2_64[0], x))
    n, nearest = whole(x * LOG2_E_32[0])
    return n, fma(nearest, -LN2_32[1], fma(nearest, -LN2_32[0], x))


def exp_core(x: Floating) -> Any:
    """n and the number near 1 that make e**x = number * 2**n."""
    n, r = exp_reduced(x)
    if x.dtype == float64:
        return n, fma(r, fma(r, polynomial(r, EXP_64), 1.0), 1.0)
    return n, fma(r, fma(r, polynomial(r, EXP_32), 1.0), 1.0)


def exp_parts(x: Floating) -> Any:
    """n, r and all of e**r - 1 - r, with what r lost in its rounding, for x = n ln 2 + r."""
    if x.dtype == float64:
        n, nearest = whole(x * LOG2_E_64[0])
        left = fma(nearest, -LN2_64[0], x)
        r = fma(nearest, -LN2_64[1], left)
        return n, r, fma(r * r, polynomial(r, EXP_64), fma(nearest, -LN2_64[1], left - r))
    n, nearest = whole(x * LOG2_E_32[0])
    left = fma(nearest, -LN2_32[0], x)
    r = fma(nearest, -LN2_32[1], left)
    return n, r, fma(r * r, polynomial(r, EXP_FINE_32), fma(nearest, -LN2_32[1], left - r))


# *** logarithms ***


def split(x: Floating) -> Any:
    """k as a float, and f = m - 1 exactly, of a number 0 < x < infinity."""
    if x.dtype == float64:
        tiny = x < 2.2250738585072014e-308
        bits = bitcast(select(tiny, x * 18014398509481984.0, x), int64) - 0x3FE6A09E667F3BCD
        k = bits >> 52
        k = select(tiny, k - 54, k)
        m = bitcast((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD, float64)
        return bitcast(k + ROUNDER64_BITS, float64) - ROUNDER64, m - 1.0
    tiny = x < 1.17549435e-38
    bits = bitcast(select(tiny, x * 33554432.0, x), int32) - 0x3F3504F3
    k = bits >> 23
    k = select(tiny, k - 25, k)
    m = bitcast((bits & 0x7FFFFF) + 0x3F3504F3, float32)
    return k.cast(float32), m - 1.0


ROOT_HALF = 0.7071067811865476


def is_positive(x: Floating) -> Any:
    """Whether x is a positive normal number, by one comparison of its bits."""
    if x.dtype == float64:
        return bitcast(x, uint64) - 0x0010000000000000 < 0x7FE0000000000000
    return bitcast(x, uint32) - 0x00800000 < 0x7F000000


def mantissa_from(least: float, x: Floating) -> Any:
    """k as a float, m, and 2**-k (for |k| < 1023 or 127) of x = 2**k m with least <= m < 2 least, for a normal number.

    `least` is ROOT_HALF or 3/4.
    """
    if x.dtype == float64:
        first = 0x3FE8000000000000
        if least == ROOT_HALF:
            first = 0x3FE6A09E667F3BCD
        # The biased exponent lies in the bits of 2**52 + k + 1023.
        bits = bitcast(x, uint64) + (0x3FF0000000000000 - first)
        k = bitcast((bits >> 52) | 0x4330000000000000, float64) - 4503599627371519.0
        m = bitcast((bits & 0xFFFFFFFFFFFFF) + first, float64)
        return k, m, bitcast(0x7FE0000000000000 - (bits & 0xFFF0000000000000), float64)
    first = 0x3F400000
    if least == ROOT_HALF:
        first = 0x3F3504F3
    bits = bitcast(x, int32) - first
    m = bitcast((bits & 0x7FFFFF) + first, float32)
    return (bits >> 23).cast(float32), m, bitcast(0x3F800000 - (bits & -0x800000), float32)
