"""`sin`, `cos` and `tan` in the kernel language; see `math` for what all of these have in common.

Input: a float of any dtype, of any size. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import (
    SIMD,
    UInt64,
    abs,
    bitcast,
    cos,
    float32,
    float64,
    fma,
    implements,
    int32,
    int64,
    select,
    sin,
    tan,
    uint64,
    unroll,
)
from .math_parts import INFINITY, SIGN32, SIGN64, applied, float_of, polynomial, quotient_sum, sum_fast, whole

# |x| = n pi/2 + r with a whole n and |r| <= pi/4 or hardly more. float32 computes in float64 from end to end: that is
# less work than sums of two float32, over the whole range of arguments. float64 keeps r as a sum of two floats.

HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_OVER_PI = 0.6366197723675814

# From here on n grows so large that n * HALF_PI loses digits, or that x * TWO_OVER_PI is no good guess of n.
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
TWO_OVER_PI_BITS = (
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
    wide = size.cast(float64)
    lanes = SIMD[float64, size.width]
    head, after = lanes(SLICES_32[0][0]), lanes(SLICES_32[0][1])
    for k in unroll(1, 5):
        beyond = size >= 2.0 ** (17 + 22 * k)
        head = select(beyond, SLICES_32[k][0], head)
        after = select(beyond, SLICES_32[k][1], after)
    product = wide * head
    lost = fma(wide, head, -product)
    n, nearest = whole(product)
    r = fma(wide, after, (product - nearest) + lost) * HALF_PI[0]
    z = r * r
    return n.cast(int32), fma(r * z, polynomial(z, SIN_32), r), fma(z, polynomial(z, COS_32), 1.0)


def _reduce(size: Any) -> Any:
    """n, r and the rest of r for 0 <= size < LARGE (Cody and Waite 1980, in three parts and with fma)."""
    first, second, third = HALF_PI
    n, nearest = whole(size * TWO_OVER_PI)
    # Exact: both numbers are multiples of the last bit of `first` (or n is 0), and they nearly cancel.
    left = fma(-nearest, first, size)
    product = nearest * second
    product_rest = fma(nearest, second, -product)
    # Nothing is lost below either: `left` is a multiple of the last bit of `product`.
    r = left - product
    lost = (left - r) - product
    return n, r, fma(-nearest, third, lost - product_rest)


def _window(words: Any, index: Any, first_step: int, count: int) -> Any:
    """words[index : index + count] for a run-time index, by one selection for each bit of it."""
    step = first_step
    for _ in unroll(5):
        if step > 0:
            far = (index & step) != 0
            chosen: Any = ()
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
    words: Any = ()
    for word in TWO_OVER_PI_BITS:
        words = (*words, UInt64(word))
    words = _window(words, place >> 6, 8, 4)
    shift = place & 63
    aligned: Any = ()
    for k in unroll(3):
        aligned = (*aligned, (words[k] << shift) | ((words[k + 1] >> 1) >> (63 - shift)))
    digits: Any = ()
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
    columns: Any = ()
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
    head = float_of(fraction - low_bits)
    after = (low_bits << 52) | bitcast((lower << 2) >> 12, int64)
    total, lost = sum_fast(head, float_of(after) * 2.220446049250313e-16)
    first, second = 8.515303950216386e-20, 3.319400109442301e-36  # pi/2 * 2**-64
    r = total * first
    return n, r, fma(total, first, -r) + fma(total, second, lost * first)


def _parts_64(size: Any) -> Any:
    """n, and the sine and the cosine of r as sums of two floats, for size >= 0; NaN for infinity and NaN."""
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
    sine_rest = fma(r * z, polynomial(z, SIN_64), fma(-rest, half, rest))
    cosine_rest = fma(z * z, polynomial(z, COS_64), fma(-r, rest, lost))
    return n, r, sine_rest, head, cosine_rest


def _sin_cos(size: Any) -> Any:
    if size.dtype == float64:
        n, sine, sine_rest, cosine, cosine_rest = _parts_64(size)
        return n, sine + sine_rest, cosine + cosine_rest
    return _sin_cos_32(size)


@implements(sin)
def _sin(x: Any) -> Any:
    return applied(_sin_wide, x)


def _sin_wide(x: Any) -> Any:
    n, sine, cosine = _sin_cos(abs(x))
    return _turned(select((n & 1) != 0, cosine, sine).cast(x.dtype), n >> 1, x)


@implements(cos)
def _cos(x: Any) -> Any:
    return applied(_cos_wide, x)


def _cos_wide(x: Any) -> Any:
    n, sine, cosine = _sin_cos(abs(x))
    return _turned(select((n & 1) != 0, sine, cosine).cast(x.dtype), (n + 1) >> 1, abs(x))


@implements(tan)
def _tan(x: Any) -> Any:
    return applied(_tan_wide, x)


def _tan_wide(x: Any) -> Any:
    """Sine by cosine, or -cosine by sine after an odd number of quarter turns."""
    size = abs(x)
    if x.dtype == float64:
        n, sine, sine_rest, cosine, cosine_rest = _parts_64(size)
        sine, sine_rest = sum_fast(sine, sine_rest)
        cosine, cosine_rest = sum_fast(cosine, cosine_rest)
        odd = (n & 1) != 0
        above, above_rest = select(odd, -cosine, sine), select(odd, -cosine_rest, sine_rest)
        below, below_rest = select(odd, sine, cosine), select(odd, sine_rest, cosine_rest)
        quotient, rest = quotient_sum(above, above_rest, below, below_rest)
        value = quotient + rest
    else:
        n, sine, cosine = _sin_cos_32(size)
        odd = (n & 1) != 0
        value = (select(odd, -cosine, sine) / select(odd, sine, cosine)).cast(float32)
    return _turned(value, n - n, x)


def _turned(value: Any, turns: Any, x: Any) -> Any:
    """The number with its sign turned for odd `turns`, and once more for negative x."""
    if value.dtype == float64:
        return bitcast(bitcast(value, int64) ^ (turns << 63) ^ (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(value, int32) ^ (turns << 31) ^ (bitcast(x, int32) & SIGN32), float32)
