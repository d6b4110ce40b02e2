"""`sin`, `cos` and `tan` in the kernel language; see `math.functions` for what all of these have in common."""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    Floating,
    Integral,
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
    rare,
    select,
    sin,
    tan,
    uint64,
    unroll,
)
from .parts import SIGN32, SIGN64, applied, fitted, float_of, quotient, sum_fast, whole, whole_multiple

# x = n pi/2 + r with a whole n and |r| <= pi/4 or hardly more; r is kept as a sum of two floats. The first two parts of
# pi/2 are positive, so that r of -0.0 is -0.0.

HALF_PI_32 = (1.57079625, 7.54979013e-08, -1.71512451e-15)
HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_OVER_PI = 0.6366197723675814

# From here on n grows so large that n * HALF_PI loses digits, or that x * TWO_OVER_PI is no good guess of n.
LARGE_32 = 131072.0
LARGE_64 = 67108864.0
# Close to a multiple of pi/2 the rest of r grows with n, and the inverse of r would need its square beyond this.
TAN_LARGE_32 = 32768.0

# 2/pi without its bits above 2**(25 - E), as sums, for E = 48, 70, 92 and 114; before that all of them.
SLICES_32 = (
    (0.6366197723675814, -3.935735335036497e-17),
    (8.528719804229428e-08, 6.074026489649846e-24),
    (1.4504564269239186e-14, -5.321602079519459e-31),
    (5.961774436871449e-21, -1.8556067874822505e-37),
    (1.0344533474420156e-27, -6.347906989929515e-44),
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

# (sin(r) / r - 1) / z and (cos(r) - 1 + z/2) / z**2 with z = r**2 up to 0.65, relative to sin(r) and cos(r): 2**-32
# and 2**-33
SIN_32 = (2.8146078e-06, -0.000198515831, 0.00833337661, -0.166666672)
COS_32 = (2.44120893e-05, -0.00138871302, 0.0416666418)
# The same up to r = 0.793: 2**-57 and 2**-63
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


# (1 - r cot(r)) / z with z = r**2 up to 0.63, relative to r cot(r): 2**-32.6 and 2**-56.9
COT_32 = (2.63321108e-05, 0.00020777827, 0.00211774372, 0.0222220197, 0.333333343)
COT_64 = (
    3.1230769035822125e-09,
    2.0973602502694554e-08,
    2.202062798160723e-07,
    2.1639739149839384e-06,
    2.1377919062476116e-05,
    0.00021164019150822548,
    0.0021164021183128177,
    0.022222222222133308,
    0.33333333333333476,
)


def _reduce(x: Floating) -> Any:
    """n, r and the rest of r for abs(x) < LARGE (Cody and Waite 1980, in three parts and with fma)."""
    first, second, third = HALF_PI_32
    if x.dtype == float64:
        first, second, third = HALF_PI_64
    n, nearest = whole_multiple(x, TWO_OVER_PI)
    # Exact: both numbers are multiples of the last bit of `first` (or n is 0), and they nearly cancel.
    left = fma(-nearest, first, x)
    product = nearest * second
    # Nothing is lost below either: `left` is a multiple of the last bit of `product`.
    r = left - product
    lost = ((left - r) - product) - fma(nearest, second, -product)
    return n, r, fma(-nearest, third, lost)


def _reduce_large_32(size: Floating) -> Any:
    """n, r and the rest of r for LARGE_32 <= size < infinity, in float64 (after Payne and Hanek 1983).

    From 2**E on, size is a multiple of 2**(E - 23), so the bits of 2/pi above 2**(25 - E) give multiples of 4 to n and
    are left out. The product with the others is below 2**48 and known to 2**-57; no float32 but 0 comes nearer to a
    multiple of pi/2 than 2**-30.
    """
    wide = size.cast(float64)
    lanes = SIMD[float64, size.width]
    head, after = lanes(SLICES_32[0][0]), lanes(SLICES_32[0][1])
    for k in unroll(1, 5):
        beyond = wide >= 2.0 ** (26 + 22 * k)
        head = select(beyond, SLICES_32[k][0], head)
        after = select(beyond, SLICES_32[k][1], after)
    product = wide * head
    lost = fma(wide, head, -product)
    n, nearest = whole(product)
    turn = fma(wide, after, (product - nearest) + lost) * HALF_PI_64[0]
    r = turn.cast(float32)
    return n.cast(int32), r, (turn - r.cast(float64)).cast(float32)


def _window(words: tuple[Integral, ...], index: Integral, first_step: int, count: int) -> Any:
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


def _reduce_large_64(size: Floating) -> Any:
    """n, r and the rest of r for LARGE_64 <= size < infinity (Payne and Hanek 1983), in integers.

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


def _reduced(x: Floating, limit: float) -> Any:
    """n, r and the rest of r for any x; NaN for infinity and NaN. From the limit on, n is that of abs(x)."""
    n, r, rest = _reduce(x)
    large = rare(abs(x) >= limit)
    if x.width > 1:
        n_large, r_large, rest_large = _reduce_large(x)
        return select(large, n_large, n), select(large, r_large, r), select(large, rest_large, rest)
    # A branch of its own: a GPU takes it where needed, a vectoriser makes selections of it.
    if large:
        n, r, rest = _reduce_large(x)
    return n, r, rest


def _quadrant(size: Floating) -> Any:
    """n, and the sine and the cosine of r as sums of two floats, for size >= 0; NaN for infinity and NaN."""
    n, r, rest = _reduced(size, LARGE_64 if size.dtype == float64 else LARGE_32)
    z = r * r
    # sin(r + d) = sin r + d cos r, cos(r + d) = cos r - d sin r; 1 - z/2 is rounded with what it loses kept.
    half = 0.5 * z
    head = 1.0 - half
    sine_rest = fma(-rest, half, rest)
    cosine_rest = fma(-r, rest, (1.0 - head) - half)
    cosine_rest = fma(-0.5, fma(r, r, -z), cosine_rest)
    sine_rest = fma(r, z * fitted(z, SIN_32, SIN_64), sine_rest)
    cosine_rest = fma(z * z, fitted(z, COS_32, COS_64), cosine_rest)
    return n, r, sine_rest, head, cosine_rest


def _reduce_large(x: Floating) -> Any:
    size = abs(x)
    if x.dtype == float64:
        n, r, rest = _reduce_large_64(size)
    else:
        n, r, rest = _reduce_large_32(size)
    return n, _turned(r, 0, x), _turned(rest + (size - size), 0, x)  # NaN for infinity


@implements(sin)
def _sin(x: Floating) -> Any:
    return applied(_sin_wide, x)


def _sin_wide(x: Floating) -> Any:
    n, sine, sine_rest, cosine, cosine_rest = _quadrant(abs(x))
    odd = (n & 1) != 0
    return _turned(select(odd, cosine, sine) + select(odd, cosine_rest, sine_rest), n >> 1, x)


@implements(cos)
def _cos(x: Floating) -> Any:
    return applied(_cos_wide, x)


def _cos_wide(x: Floating) -> Any:
    n, sine, sine_rest, cosine, cosine_rest = _quadrant(abs(x))
    odd = (n & 1) != 0
    return _turned(select(odd, sine, cosine) + select(odd, sine_rest, cosine_rest), (n + 1) >> 1, abs(x))


@implements(tan)
def _tan(x: Floating) -> Any:
    return applied(_tan_wide, x)


def _tan_wide(x: Floating) -> Any:
    """r by r cot r, or the negative inverse of that after an odd number of quarter turns."""
    n, r, rest = _reduced(x, LARGE_64 if x.dtype == float64 else TAN_LARGE_32)
    z = r * r
    g = fitted(z, COT_32, COT_64)
    slope = fma(-z, g, 1.0)
    # What its rounding lost, and its change from r to r + rest.
    slope_rest = fma(-0.6666667 * r, rest, fma(-z, g, 1.0 - slope))
    odd = (n & 1) != 0
    above, above_rest = select(odd, slope, r), select(odd, slope_rest, rest)
    below, below_rest = select(odd, r, slope), select(odd, rest, slope_rest)
    return _turned(quotient(above, above_rest, below, below_rest), n, abs(x))


def _turned(value: Floating, turns: Integral, x: Floating) -> Any:
    """The number with its sign turned for odd `turns`, and once more for negative x."""
    if value.dtype == float64:
        return bitcast(bitcast(value, int64) ^ (turns << 63) ^ (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(value, int32) ^ (turns << 31) ^ (bitcast(x, int32) & SIGN32), float32)
