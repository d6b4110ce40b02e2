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
    Float64,
    UInt64,
    abs,
    bitcast,
    cos,
    erf,
    exp,
    exp2,
    float32,
    float64,
    fma,
    implements,
    int32,
    int64,
    log,
    log2,
    pow,
    rsqrt,
    select,
    sin,
    sqrt,
    static_assert,
    tanh,
    trunc,
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


def _polynomial(x: Any, coefficients: Any) -> Any:
    """The polynomial of x by Horner's rule; coefficients stand highest power first."""
    result = coefficients[0]
    for coefficient in coefficients[1:]:
        result = fma(result, x, coefficient)
    return result


def _applied(function: Any, x: Any) -> Any:
    """function(x) for a function of float32 and float64."""
    static_assert(x.dtype.is_float(), "this function works on floats: cast the value first")
    if x.dtype.is_half():
        return function(x.cast(float32)).cast(x.dtype)
    return function(x)


def _with_sign_of(size: Any, x: Any) -> Any:
    """The number size >= 0 with the sign of x, that of zeros included."""
    if x.dtype == float64:
        return bitcast(bitcast(size, int64) | (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(size, int32) | (bitcast(x, int32) & SIGN32), float32)


# *** square root ***


@implements(rsqrt)
def _rsqrt(x: Any) -> Any:
    return _applied(_rsqrt_wide, x)


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


# *** exponentials ***
#
# x = n ln 2 + r with a whole n and |r| <= ln(2) / 2, then e**x = 2**n * (1 + r + r**2 * Q(r)).

# (e**r - 1 - r) / r**2 on [-0.3467, 0.3467], relative to e**r: 2**-28 and 2**-57
EXP_32 = (1.3838036e-03, 8.369166e-03, 4.1668102e-02, 1.6666517e-01, 4.9999994e-01)
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


def _whole(x: Any) -> Any:
    """The whole number nearest to a small x, as an integer of the same width and as a float."""
    if x.dtype == float64:
        shifted = x + ROUNDER64
        return bitcast(shifted, int64) - ROUNDER64_BITS, shifted - ROUNDER64
    shifted = x + ROUNDER32
    return bitcast(shifted, int32) - ROUNDER32_BITS, shifted - ROUNDER32


def _power_of_two(n: Any) -> Any:
    """2**n as a float of the width of the integer n, which has to be the exponent of a normal number."""
    if n.dtype == int64:
        return bitcast((n + 1023) << 52, float64)
    return bitcast((n + 127) << 23, float32)


def _scaled(x: Any, n: Any) -> Any:
    """x * 2**n for x near 1: in two steps, of which only the second can round or overflow."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _clamped(x: Any, low: Any, high: Any) -> Any:
    """x between two bounds; NaN stays."""
    return select(x > high, high, select(x < low, low, x))


def _exp_reduced(x: Any) -> Any:
    """n as an integer, n as a float, and r of x = n ln 2 + r."""
    if x.dtype == float64:
        n, whole = _whole(x * LOG2_E_64[0])
        return n, fma(whole, -LN2_64[1], fma(whole, -LN2_64[0], x))
    n, whole = _whole(x * LOG2_E_32[0])
    return n, fma(whole, -LN2_32[1], fma(whole, -LN2_32[0], x))


def _exp_core(x: Any) -> Any:
    """n and the number near 1 that make e**x = number * 2**n."""
    n, r = _exp_reduced(x)
    if x.dtype == float64:
        return n, fma(r * r, _polynomial(r, EXP_64), r) + 1.0
    return n, fma(r * r, _polynomial(r, EXP_32), r) + 1.0


def _exp_parts_64(x: Any) -> Any:
    """n, r and all of e**r - 1 - r, with what r lost in its rounding, for x = n ln 2 + r in float64."""
    n, whole = _whole(x * LOG2_E_64[0])
    left = fma(whole, -LN2_64[0], x)
    r = fma(whole, -LN2_64[1], left)
    return n, r, fma(r * r, _polynomial(r, EXP_64), fma(whole, -LN2_64[1], left - r))


@implements(exp)
def _exp(x: Any) -> Any:
    return _applied(_exp_wide, x)


def _exp_wide(x: Any) -> Any:
    # Beyond the bounds the result has overflowed, or is less than half the smallest number.
    if x.dtype == float64:
        n, number = _exp_core(_clamped(x, -746.0, 710.0))
    else:
        n, number = _exp_core(_clamped(x, -104.0, 89.0))
    return _scaled(number, n)


@implements(exp2)
def _exp2(x: Any) -> Any:
    return _applied(_exp2_wide, x)


def _exp2_wide(x: Any) -> Any:
    if x.dtype == float64:
        near = _clamped(x, -1076.0, 1025.0)
        n, whole = _whole(near)
        r = near - whole
        return _scaled(fma(r, _polynomial(r, EXP2_64), 1.0), n)
    near = _clamped(x, -151.0, 129.0)
    n, whole = _whole(near)
    r = near - whole
    return _scaled(fma(r, _polynomial(r, EXP2_32), 1.0), n)


# *** logarithms ***
#
# x = 2**k * m with sqrt(1/2) <= m < sqrt(2), f = m - 1, then log x = k ln 2 + f + tail(f).

# (log(1 + f) - f + f**2 / 2) / f**3 on [-0.2929, 0.4143], relative to log(1 + f): 2**-27
LOG_32 = (
    -7.648038e-02,
    1.2762216e-01,
    -1.3155687e-01,
    1.4201427e-01,
    -1.662375e-01,
    2.0001249e-01,
    -2.500081e-01,
    3.333333e-01,
)
# (2 atanh(s) / s - 2) / z with z = s**2 on [0, 0.02944], relative to 2 atanh(s): 2**-59
ATANH_64 = (
    0.1479575312443772,
    0.15314074092440802,
    0.18183563217959506,
    0.2222219859918133,
    0.2857142874207166,
    0.39999999999416525,
    0.6666666666666734,
)


def _split(x: Any) -> Any:
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


def _log_tail(f: Any) -> Any:
    """log(1 + f) - f."""
    square = f * f
    if f.dtype == float64:
        # With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - s f + s**3 R, and s f = f**2/2 - s f**2/2.
        s = f / (2.0 + f)
        z = s * s
        return fma(s, fma(0.5, square, z * _polynomial(z, ATANH_64)), -0.5 * square)
    return fma(f * square, _polynomial(f, LOG_32), -0.5 * square)


def _sum_fast(large: Any, small: Any) -> Any:
    """The sum and what its rounding lost, for |large| >= |small| or large = 0 (Dekker 1971)."""
    total = large + small
    return total, small - (total - large)


def _log_special(x: Any, result: Any) -> Any:
    """The result for ordinary x; log 0 = -infinity, log infinity = infinity, NaN for all else."""
    odd = select(x == INFINITY, x, select(x == 0.0, -INFINITY, x.dtype(NAN)))
    return select((x > 0.0) & (x < INFINITY), result, odd)


@implements(log)
def _log(x: Any) -> Any:
    return _applied(_log_wide, x)


def _log_wide(x: Any) -> Any:
    head, rest = LN2_SHORT_32
    if x.dtype == float64:
        head, rest = LN2_SHORT_64
    k, f = _split(x)
    total, lost = _sum_fast(k * head, f)
    return _log_special(x, total + (lost + fma(k, rest, _log_tail(f))))


@implements(log2)
def _log2(x: Any) -> Any:
    return _applied(_log2_wide, x)


def _log2_wide(x: Any) -> Any:
    head, rest = LOG2_E_32
    if x.dtype == float64:
        head, rest = LOG2_E_64
    k, f = _split(x)
    product = f * head
    product_rest = fma(f, head, -product) + f * rest
    total, lost = _sum_fast(k, product)
    return _log_special(x, total + (lost + fma(_log_tail(f), head, product_rest)))


# *** sine and cosine ***
#
# |x| = n pi/2 + r with a whole n and |r| <= pi/4 or hardly more; r is an unevaluated sum of two floats.

PI_2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_PI = 0.6366197723675814

# From here on n grows so large that n * PI_2 loses digits, or that x * TWO_PI is no good guess of n.
LARGE = 67108864.0

# 2/pi without its bits above 2**(25 - E), as sums, for E = 17, 39, 61, 83 and 105.
SLICES_32 = (
    (0.6366197723675814, -3.935735335036497e-17),
    (2.3092680081343076e-05, -8.144891411629536e-22),
    (1.2974804064533467e-11, -5.811337864506167e-28),
    (2.276010073078396e-18, 1.668286766860824e-34),
    (2.8376220177865265e-25, -7.058761003808782e-42),
)
# The bits of 2/pi after 28 zeros.
TWO_PI_BITS_64 = (
    0x0000000A2F9836E4,
    0xE441529FC2757D1F,
    0x534DDC0DB6295993,
    0xC439041FE5163ABD,
    0xEBBC561B7246E3A4,
    0x24DD2E006492EEA0,
    0x9D1921CFE1DEB1CB,
    0x129A73EE88235F52,
    0xEBB4484E99C7026B,
    0x45F7E413991D6398,
    0x35339F49C845F8BB,
    0xDF9283B1FF897FFD,
    0xE05980FEF2F118B5,
    0xA0A6D1F6D367ECF2,
    0x7CB09B74F463F669,
    0xE5FEA2D7527BAC7E,
    0xBE5F17B3D0739F78,
    0xA5292EA6BFB5FB11,
    0xF8D5D0856033046F,
)

# (sin(r) / r - 1) / z and (cos(r) - 1) / z with z = r**2 up to 0.75, relative to sin(r) and cos(r): 2**-36 and 2**-32
SIN_32 = (2.7100166860942338e-06, -0.00019838374074168154, 0.00833332607588623, -0.1666666660986055)
COS_32 = (2.4292090756641616e-05, -0.0013885602621134321, 0.041666582282214294, -0.49999999316801214)
# (sin(r) / r - 1) / z and (cos(r) - 1 + z/2) / z**2 up to r = 0.793, relative to sin(r) and cos(r): 2**-57 and 2**-63
SIN_64 = (
    1.589310345068632e-10,
    -2.505069532069959e-08,
    2.75573132977055e-06,
    -0.0001984126982869613,
    0.008333333333321067,
    -0.16666666666666627,
)
COS_64 = (
    -1.1355744112205269e-11,
    2.08756474914024e-09,
    -2.755731379157043e-07,
    2.4801587287527964e-05,
    -0.001388888888887097,
    0.04166666666666658,
)


def _sin_cos_32(size: Any) -> Any:
    """n, and in float64 the sine and the cosine of r, for a float32 size >= 0 (after Payne and Hanek 1983).

    From 2**E on, size is a multiple of 2**(E - 23), so the bits of 2/pi above 2**(25 - E) give multiples of 4 to n and
    are left out. The product with the others is below 2**48 and known to 2**-57; no float32 but 0 comes nearer to a
    multiple of pi/2 than 2**-30. For infinity and NaN the result is NaN.
    """
    head, after = Float64(SLICES_32[0][0]), Float64(SLICES_32[0][1])
    for k in unroll(1, 5):
        beyond = size >= 2.0 ** (17 + 22 * k)
        head = select(beyond, SLICES_32[k][0], head)
        after = select(beyond, SLICES_32[k][1], after)
    wide = size.cast(float64)
    product = wide * head
    lost = fma(wide, head, -product)
    n, whole = _whole(product)
    r = fma(wide, after, (product - whole) + lost) * PI_2[0]
    z = r * r
    return n.cast(int32), fma(r * z, _polynomial(z, SIN_32), r), fma(z, _polynomial(z, COS_32), 1.0)


def _reduce(size: Any) -> Any:
    """n, r and the rest of r for 0 <= size < LARGE (Cody and Waite 1980, in three parts and with fma)."""
    first, second, third = PI_2
    n, whole = _whole(size * TWO_PI)
    # Exact: both numbers are multiples of the last bit of `first` (or n is 0), and they nearly cancel.
    left = fma(-whole, first, size)
    product = whole * second
    product_rest = fma(whole, second, -product)
    # Nothing is lost below either: `left` is a multiple of the last bit of `product`.
    r = left - product
    lost = (left - r) - product
    return n, r, fma(-whole, third, lost - product_rest)


def _window(words: Any, index: Any, first_step: int, count: int) -> Any:
    """words[index : index + count] for a run-time index, by one selection for each bit of it."""
    step = first_step
    for _ in unroll(5):
        if step > 0:
            far = (index & step) != 0
            chosen = ()
            for k in unroll(count + step - 1):
                chosen = (*chosen, select(far, words[k + step], words[k]))
            words = chosen
            step = step // 2
    return words


def _reduce_large(size: Any) -> Any:
    """n, r and the rest of r for LARGE <= size < infinity (Payne and Hanek 1983), in integers.

    size = m * 2**q with m < 2**53. The bits of 2/pi above 2**(1 - q) give multiples of 4 to n and are left out; of the
    bits from there on 189 are taken as 7 digits of 27 bits, times m as 2 digits. The smallest r is above 2**-62.
    """
    bits = bitcast(size, uint64)
    m = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000
    m_low, m_high = m & 0x7FFFFFF, m >> 27
    place = (bits >> 52) - 1049
    words = ()
    for word in TWO_PI_BITS_64:
        words = (*words, UInt64(word))
    words = _window(words, place >> 6, 8, 4)
    shift = place & 63
    aligned = ()
    for k in unroll(3):
        aligned = (*aligned, (words[k] << shift) | ((words[k + 1] >> 1) >> (63 - shift)))
    digits = ()
    for k in unroll(7):
        # digit k is made of the bits from 27 k on
        start = 27 * k
        word, offset = start // 64, start % 64
        if offset <= 37:
            digit = (aligned[word] >> (37 - offset)) & 0x7FFFFFF
        else:
            digit = ((aligned[word] << (offset - 37)) | (aligned[word + 1] >> (101 - offset))) & 0x7FFFFFF
        digits = (*digits, digit)
    # Columns of the product from the lowest up, with carries; column k has the weight of digit k.
    carry = (m_low * digits[6]) >> 27
    columns = ()
    for k in unroll(5, -1, -1):
        column = m_low * digits[k] + m_high * digits[k + 1] + carry
        columns = (column & 0x7FFFFFF, *columns)
        carry = column >> 27
    upper = (columns[0] << 37) | (columns[1] << 10) | (columns[2] >> 17)
    lower = (columns[2] << 47) | (columns[3] << 20) | (columns[4] >> 7)
    n = bitcast((upper + 0x2000000000000000) >> 62, int64)
    # A signed fraction of a quadrant in 128 bits, as the sum of a head of 53 bits and what follows it.
    fraction = bitcast((upper << 2) | (lower >> 62), int64)
    low_bits = fraction & 0x7FF
    head = (fraction - low_bits).cast(float64)
    after = (low_bits << 52) | bitcast((lower << 2) >> 12, int64)
    total, lost = _sum_fast(head, after.cast(float64) * 2.220446049250313e-16)
    first, second = 8.515303950216386e-20, 3.319400109442301e-36  # pi/2 * 2**-64
    r = total * first
    return n, r, fma(total, first, -r) + fma(total, second, lost * first)


def _sin_cos_64(size: Any) -> Any:
    """n, and the sine and the cosine of r, for size >= 0; NaN for infinity and NaN."""
    n, r, rest = _reduce(size)
    large = (size >= LARGE) & (size < INFINITY)
    if size.width > 1:
        n_large, r_large, rest_large = _reduce_large(size)
        n, r, rest = select(large, n_large, n), select(large, r_large, r), select(large, rest_large, rest)
    else:
        # A branch of its own: a GPU takes it where needed, a vectoriser makes selections of it.
        if large:
            n, r, rest = _reduce_large(size)
    z = r * r
    # sin(r + d) = sin r + d cos r, cos(r + d) = cos r - d sin r; 1 - z/2 is rounded with what it loses kept.
    half = 0.5 * z
    head = 1.0 - half
    lost = (1.0 - head) - half
    sine = r + fma(r * z, _polynomial(z, SIN_64), fma(-rest, half, rest))
    cosine = head + fma(z * z, _polynomial(z, COS_64), fma(-r, rest, lost))
    return n, sine, cosine


def _sin_cos(size: Any) -> Any:
    if size.dtype == float64:
        return _sin_cos_64(size)
    return _sin_cos_32(size)


@implements(sin)
def _sin(x: Any) -> Any:
    return _applied(_sin_wide, x)


def _sin_wide(x: Any) -> Any:
    n, sine, cosine = _sin_cos(abs(x))
    return _turned(select((n & 1) != 0, cosine, sine).cast(x.dtype), n >> 1, x)


@implements(cos)
def _cos(x: Any) -> Any:
    return _applied(_cos_wide, x)


def _cos_wide(x: Any) -> Any:
    n, sine, cosine = _sin_cos(abs(x))
    return _turned(select((n & 1) != 0, sine, cosine).cast(x.dtype), (n + 1) >> 1, abs(x))


def _turned(value: Any, turns: Any, x: Any) -> Any:
    """The number with its sign turned for odd `turns`, and once more for negative x."""
    if value.dtype == float64:
        return bitcast(bitcast(value, int64) ^ (turns << 63) ^ (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(value, int32) ^ (turns << 31) ^ (bitcast(x, int32) & SIGN32), float32)


# *** hyperbolic tangent ***

# (tanh(x) / x - 1) / z with z = x**2 up to x = 0.8, relative to tanh(x): 2**-28
TANH_32 = (1.5870379e-03, -7.4141696e-03, 2.1306526e-02, -5.3853597e-02, 1.3332242e-01, -3.33333e-01)


@implements(tanh)
def _tanh(x: Any) -> Any:
    return _applied(_tanh_wide, x)


def _tanh_wide(x: Any) -> Any:
    size = abs(x)
    if x.dtype == float64:
        return _with_sign_of(_tanh_size_64(size), x)
    square = size * size
    near = fma(size * square, _polynomial(square, TANH_32), size)
    # With e**(2x) = power * (1 + t): tanh x = 1 - 2 / (power + 1 + power t). It rounds to 1 from 9.02 on.
    n, r = _exp_reduced(2.0 * select(size > 10.0, 10.0, size))
    t = fma(r * r, _polynomial(r, EXP_32), r)
    power = _power_of_two(n)
    far = 1.0 - 2.0 / fma(power, t, power + 1.0)
    return _with_sign_of(select(size < 0.8, near, far), x)


def _tanh_size_64(size: Any) -> Any:
    """tanh x = E / (E + 2) with E = e**(2x) - 1, for x >= 0; all of it in unevaluated sums of two floats."""
    # It rounds to 1 from 19.1 on.
    n, r, rest = _exp_parts_64(2.0 * select(size > 20.0, 20.0, size))
    power = _power_of_two(n)
    numerator, lost = _sum_fast(power - 1.0, power * r)
    numerator, numerator_rest = _sum_fast(numerator, fma(power, rest, lost))
    denominator = numerator + 2.0
    two = denominator - numerator
    denominator_rest = ((numerator - (denominator - two)) + (2.0 - two)) + numerator_rest
    inverse = 1.0 / denominator
    quotient = numerator * inverse
    error = fma(-quotient, denominator, numerator) + fma(-quotient, denominator_rest, numerator_rest)
    return fma(error, inverse, quotient)


# *** error function ***

# erf(x) / x - 1 as a polynomial of x**2 up to x = 1, relative to erf(x): 2**-29 and 2**-56
ERF_32 = (7.806903e-05, -7.997853e-04, 5.187162e-03, -2.6853347e-02, 1.1283579e-01, -3.7612626e-01, 1.2837917e-01)
ERF_64 = (
    -7.885283244707608e-10,
    1.37668026741059e-08,
    -1.6218851513103823e-07,
    1.6448689362341804e-06,
    -1.4924828478841596e-05,
    0.00012055298825572782,
    -0.0008548326064816517,
    0.00522397760771182,
    -0.02686617064308734,
    0.11283791670942123,
    -0.3761263890318341,
    0.12837916709551256,
)
# log(1 - erf(x)) from 1 to 4, relative to erf(x): 2**-29
ERFC_LOG_32 = (
    1.8636673e-04,
    -2.947547e-03,
    2.183768e-02,
    -1.0310609e-01,
    -6.3814545e-01,
    -1.1270889e00,
    -3.41575e-04,
)
# (1 - erf(x)) e**(x**2) as a polynomial of t = (x - 2) / (x + 2) for x from 1 to 6, relative to erf(x): 2**-58
ERFC_64 = (
    -1.3045284003890986e-05,
    -2.7148993843147527e-05,
    2.7365128131030654e-05,
    0.00017424995943208168,
    4.354539507423725e-05,
    -0.000981972424445496,
    -0.0008471422341479465,
    0.006997461734126502,
    0.003732892387522693,
    -0.07897858101672112,
    0.2416581942425178,
    -0.4271858474139545,
    0.25539567631050575,
)


@implements(erf)
def _erf(x: Any) -> Any:
    return _applied(_erf_wide, x)


def _erf_wide(x: Any) -> Any:
    """erf |x| by a polynomial up to 1, and as 1 - erfc |x| above it."""
    size = abs(x)
    square = size * size
    if x.dtype == float64:
        near = fma(size, _polynomial(square, ERF_64), size)
        bounded = select(size > 6.0, 6.0, size)
        n, number = _exp_core(-bounded * bounded)
        scale = _polynomial((bounded - 2.0) / (bounded + 2.0), ERFC_64)
        far = 1.0 - number * _power_of_two(n) * scale
    else:
        near = fma(size, _polynomial(square, ERF_32), size)
        bounded = select(size > 4.0, 4.0, size)
        n, number = _exp_core(_polynomial(bounded, ERFC_LOG_32))
        far = fma(-number, _power_of_two(n), 1.0)
    return _with_sign_of(select(size < 1.0, near, far), x)


# *** powers ***

# 2 atanh(s) / (s ln 2) with z = s**2 on [0, 0.02944]: 2**-45 relative
POW_LOG2 = (
    0.28291033221060813,
    0.3199049575209971,
    0.41220927119465633,
    0.5770779421693032,
    0.9617966941140538,
    2.8853900817778495,
)
# 2**r on [-0.5, 0.5]: 2**-34 relative
POW_EXP2 = (
    1.52018946053697e-05,
    0.00015469370612554935,
    0.0013333923274197587,
    0.009618027007929783,
    0.05550410351825704,
    0.24022651199968423,
    0.6931471807291923,
    0.9999999999614941,
)
# (atanh(s) / s - 1 - z/3 - z**2/5) / z**3 with z = s**2 on [0, 0.02944]: 2**-80 relative to atanh(s) / s
POW_ATANH = (
    0.05473400993417135,
    0.05216323121032327,
    0.05884034886508644,
    0.06666630517518932,
    0.07692308166649087,
    0.09090909087224514,
    0.11111111111126441,
    0.1428571428571426,
)
THIRD = (0.3333333333333333, 1.850371707708594e-17)
FIFTH = (0.2, -1.1102230246251566e-17)


@implements(pow)
def _pow(x: Any, y: Any) -> Any:
    # A compile-time number on either side takes the type of the other.
    dtype = (x * y).dtype
    return _pow_typed(dtype(x), dtype(y))


def _pow_typed(x: Any, y: Any) -> Any:
    if x.dtype.is_integral():
        return _pow_whole(x, y)
    if x.dtype.is_half():
        return _pow_wide(x.cast(float32), y.cast(float32)).cast(x.dtype)
    return _pow_wide(x, y)


def _pow_wide(x: Any, y: Any) -> Any:
    if x.dtype == float64:
        return _pow_special(x, y, _pow_size_64(abs(x), y))
    return _pow_special(x, y, _pow_size_32(abs(x), y))


def _pow_whole(x: Any, y: Any) -> Any:
    """By squaring; wraps. A negative power gives what 1 / x**-y truncates to: 0, but for the bases 1 and -1."""
    result = x - x + 1
    base = x
    left = y
    if x.dtype.is_signed():
        result = select((y < 0) & (x != 1) & (x != -1), 0, result)
        left = select(y < 0, y & 1, y)
    while left != 0:
        if (left & 1) != 0:
            result = result * base
        base = base * base
        left = left >> 1
    return result


def _pow_special(x: Any, y: Any, size: Any) -> Any:
    """x**y from |x|**y: signs and the special values of C99, F.9.4.4."""
    half = 0.5 * y
    whole = trunc(y) == y
    odd = whole & (trunc(half) != half)
    size = select((abs(x) == 1.0) & (y == y), 1.0, size)
    size = select((x < 0.0) & (x > -INFINITY) & (y - y == 0.0) & ~whole, NAN, size)
    negative = odd & (_with_sign_of(x.dtype(1.0), x) < 0.0)
    return select((x == 1.0) | (y == 0.0), 1.0, select(negative, -size, size))


def _pow_size_32(x: Any, y: Any) -> Any:
    """x**y for x >= 0 in float64: 2**(y log2 x), rounded once at the end."""
    wide = x.cast(float64)
    k, f = _split(wide)
    s = f / (2.0 + f)
    power = fma(s, _polynomial(s * s, POW_LOG2), k)
    power = select(x == 0.0, -INFINITY, select(x < INFINITY, power, wide))
    power = _clamped(power * y.cast(float64), -160.0, 140.0)
    n, whole = _whole(power)
    return (_polynomial(power - whole, POW_EXP2) * _power_of_two(n)).cast(float32)


def _pow_size_64(x: Any, y: Any) -> Any:
    """x**y for x >= 0: e**(y log x) with log x as a sum of two floats, good to about 2**-68."""
    k, f = _split(x)
    # s = f / (2 + f); `below` is exactly the denominator, but for its rest.
    below = 2.0 + f
    below_rest = f - (below - 2.0)
    s = f / below
    s_rest = (fma(-s, below, f) - s * below_rest) / below
    # z = s**2 and atanh(s) / s = 1 + z (1/3 + z (1/5 + z POW_ATANH(z)))
    z = s * s
    z_rest = fma(s, s, -z) + 2.0 * s * s_rest
    inner, inner_rest = _sum_fast(FIFTH[0], z * _polynomial(z, POW_ATANH))
    inner, inner_rest = _multiplied(z, z_rest, inner, inner_rest + FIFTH[1])
    outer, lost = _sum_fast(THIRD[0], inner)
    outer, outer_rest = _multiplied(z, z_rest, outer, lost + (inner_rest + THIRD[1]))
    extra, extra_rest = _multiplied(2.0 * s, 2.0 * s_rest, outer, outer_rest)
    # log x = k ln 2 + 2 s + extra, largest first
    total, lost = _sum_fast(k * LN2_SHORT_64[0], 2.0 * s)
    total, lost_next = _sum_fast(total, extra)
    rest = lost + lost_next + (2.0 * s_rest + extra_rest)
    ln2_rest = k * LN2_SHORT_64[1]
    total, lost = _sum_fast(total, ln2_rest)
    rest = rest + lost
    total = select(x == 0.0, -INFINITY, select(x < INFINITY, total, x))
    power = y * total
    power_rest = fma(y, total, -power) + y * rest
    inside = (power > -746.0) & (power < 710.0)
    n, r, rest = _exp_parts_64(_clamped(power, -746.0, 710.0))
    number, lost = _sum_fast(1.0, r)
    # The rest is NaN where a number was infinite.
    return _scaled(number + (lost + (rest + select(inside, power_rest, 0.0))), n)


def _multiplied(a: Any, a_rest: Any, b: Any, b_rest: Any) -> Any:
    """(a + a_rest) * (b + b_rest) as a sum of two floats (Dekker 1971, with fma)."""
    product = a * b
    return product, fma(a, b, -product) + fma(a, b_rest, a_rest * b)
