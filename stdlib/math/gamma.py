"""`lgamma` and `gamma` in the kernel language; see `math.functions` for what all of these have in common."""

from __future__ import annotations

from typing import Any

from ...dsl import (
    Floating,
    abs,
    float32,
    float64,
    floor,
    fma,
    gamma,
    implements,
    lgamma,
    rare,
    round,
    select,
    static_assert,
    trunc,
    unroll,
)
from .circular import COS_64, SIN_64
from .logarithm import log_normal, log_pair, log_short
from .parts import (
    EXP_64,
    INFINITY,
    NAN,
    clamped,
    exp_reduced,
    polynomial,
    product_exact,
    scaled,
    sum_exact,
    sum_fast,
    with_sign_of,
)

# lgamma(x) / ((x - 1) (x - 2)) - LGAMMA_MIDDLE as a polynomial of x - 3/2, from 0.8 to 2.2, relative: 2**-57.1
LGAMMA_MIDDLE = 0.4831289505409809
LGAMMA = (
    -1.5219414874508634e-06,
    2.2182452985529084e-06,
    1.7851210008886536e-06,
    -2.2970634463037254e-06,
    -4.458813867940764e-06,
    6.252669589666429e-06,
    -2.5068545202397593e-06,
    4.5445810520928974e-06,
    -1.1446311044844014e-05,
    1.767419177282376e-05,
    -2.6139942187535112e-05,
    4.1498085498567225e-05,
    -6.637166777497019e-05,
    0.00010568103894127638,
    -0.0001688851746092381,
    0.00027126891682088935,
    -0.00043799611593531496,
    0.0007115230464132064,
    -0.001164414402029087,
    0.0019229160912508615,
    -0.0032120740804672952,
    0.005446457846373646,
    -0.00942562244838577,
    0.01679709863115158,
    -0.031308487501012006,
    0.0629114010745652,
    -0.14595989591430608,
    1.6379772383529397e-17,
)
# x times what lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2 is, as a polynomial of 1 / x**2, from 8 on: 2**-57.6
STIRLING = (
    0.004426512205152894,
    -0.001860727448742073,
    0.0008409554590202512,
    -0.0005952324809519729,
    0.000793650775025199,
    -0.0027777777777547776,
    0.08333333333333333,
)
# log(2 pi) / 2 - 1/2, log pi and pi as sums of two floats
STIRLING_CONSTANT = (0.4189385332046727, 1.6728209650585413e-17)
LOG_PI = (1.1447298858494002, 1.0265951162707826e-17)
PI = (3.141592653589793, 1.2246467991473532e-16)


# lgamma(x) / ((x - 1) (x - 2)) and the Stirling series, from 4 on, as above but for float32: 2**-33.3 and 2**-33.7
LGAMMA_SHORT = (
    0.00024730276532014485,
    -0.00037178050950017967,
    0.0001386998212815615,
    -0.0002648870781675438,
    0.000771271389565872,
    -0.0012342474403180836,
    0.001908438450666088,
    -0.003197418336975515,
    0.00544833556579127,
    -0.009427178628066548,
    0.016796979949719168,
    -0.03130841524828169,
    0.06291140392028274,
    -0.14595989687962244,
    0.48312895052980903,
)
STIRLING_SHORT = (-0.0005072531529491486, 0.0007904272002277783, -0.0027777389347536743, 0.08333333325976049)
# sin(pi m) / m as a polynomial of m**2 up to m = 1/2, relative: 2**-54.5
SIN_TURN = (
    5.570840736129392e-07,
    -2.168782080573747e-05,
    0.0004662107920662556,
    -0.007370411323881082,
    0.0821458842761946,
    -0.5992645291689848,
    2.550164039872467,
    -5.16771278004991,
    3.141592653589793,
)
# lgamma(x) / ((x - 1) (x - 2)) as a polynomial of x - 1.7, from 1.2 to 2.2, relative: 2**-53.7
LGAMMA_ABOVE = (
    2.6128653954385635e-06,
    -4.564006153085075e-06,
    5.048472828023519e-06,
    -9.195983293887637e-06,
    1.8169033646738497e-05,
    -3.2840649187559704e-05,
    5.9288123017266986e-05,
    -0.0001083956678372354,
    0.00019943316474441592,
    -0.00036949577800253063,
    0.0006907975448770723,
    -0.0013064123373742118,
    0.0025080551952626393,
    -0.004914583596486884,
    0.009916391505098736,
    -0.020920367523707902,
    0.04751567283497736,
    -0.12408106033123364,
    0.45622713050983743,
)


@implements(lgamma)
def _lgamma(x: Floating) -> Any:
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype == float64:
        return _lgamma_64(x)
    return _lgamma_32(x.cast(float64)).cast(float32).cast(x.dtype)


def _lgamma_32(x: Floating) -> Any:
    """lgamma of a float32, in float64."""
    # Every float32 beyond overflows. Just below 0 it is what it is just above.
    size = abs(x)
    size = select(size > 1e39, 1e39, size)
    value = _lgamma_above_0(size)
    below = rare(x < -(2.0**-70))
    if x.width > 1:
        value = select(below, _mirrored_short(size, value), value)
    else:
        if below:
            value = _mirrored_short(size, value)
    return select(x == 0.0, INFINITY, value)


def _mirrored_short(size: Floating, value: Floating) -> Any:
    """What `_mirrored` gives, to about 2**-33.

    From 2 to 9 are zeros next to which there are float32s. There terms cancel, and are good to 2**-50: with y = size -
    k from 1.2 to 2.2, lgamma(size) = lgamma(y) + log((size - 1) … (size - k)).
    """
    m = size - round(size)
    sine = abs(m * polynomial(m * m, SIN_TURN))
    product = sine * size
    cancels = (size > 2.0) & (size < 9.2)
    y = select(cancels, size, 2.0)
    for _ in unroll(7):
        beyond = y > 2.2
        y = select(beyond, y - 1.0, y)
        product = select(beyond, product * y, product)
    near = (y - 1.0) * (y - 2.0) * polynomial(y - 1.7, LGAMMA_ABOVE)
    pole = product == 0.0
    total = LOG_PI[0] - log_normal(select(pole, 1.0, product)) - select(cancels, near, value)
    return select(pole, INFINITY, total)


def _lgamma_above_0(x: Floating) -> Any:
    """What `_lgamma_positive` gives, to about 2**-32."""
    x = select(x < 2.0**-150, 2.0**-150, x)
    small, large = x < 0.8, x >= 4.0
    y = select(large, 2.0, x)
    beyond = y > 2.2
    y = select(beyond, y - 1.0, y)
    factors = select(beyond, y, 1.0)
    beyond = y > 2.2
    y = select(beyond, y - 1.0, y)
    factors = select(beyond, factors * y, factors)
    a = select(small, x, y - 1.0)
    near = a * (a - 1.0) * polynomial(a - 0.5, LGAMMA_SHORT)
    log = log_short(select(small | large, x, factors))
    inverse = 1.0 / x
    series = inverse * polynomial(inverse * inverse, STIRLING_SHORT)
    far = fma(x - 0.5, log - 1.0, STIRLING_CONSTANT[0] + series)
    return select(large, far, near + select(small, -log, log))


def _lgamma_64(x: Floating) -> Any:
    size = abs(x)
    # Every number beyond is a whole one, and lgamma has overflowed or is infinite.
    size = select(size > 1e306, 1e306, size)
    value, rest = _lgamma_positive(size)
    # Just below 0 it is what it is just above.
    below = rare(x < -(2.0**-70))
    if size.width > 1:
        mirrored, mirrored_rest = _mirrored(size, value, rest)
        value, rest = select(below, mirrored, value), select(below, mirrored_rest, rest)
    else:
        if below:
            value, rest = _mirrored(size, value, rest)
    value = value + rest
    return select((x == 0.0) | (size == 1e306), INFINITY, select(x == x, value, x))


def _lgamma_positive(x: Floating) -> Any:
    """lgamma(x) for x > 0 as a sum of two floats.

    With a = y - 1 for a y from 0.8 to 2.2: lgamma(y) = a (a - 1) times a polynomial. Below 0.8, y = x + 1 and
    lgamma(x) = lgamma(y) - log x; up to 8, y = x - k and lgamma(x) = lgamma(y) + log((x - 1) … (x - k)); then comes
    Stirling's series.
    """
    small, large = x < 0.8, x >= 8.0
    y = select(large, 2.0, x)
    factors, factors_rest = x.dtype(1.0) + 0.0 * y, 0.0 * y
    for _ in unroll(6):
        beyond = y > 2.2
        factor = select(beyond, y - 1.0, 1.0)
        product, lost = product_exact(factors, factor)
        factors, factors_rest = product, fma(factors_rest, factor, lost)
        y = select(beyond, factor, y)
    a = select(small, x, y - 1.0)
    b, b_rest = sum_exact(a, -1.0)
    zeros, zeros_rest = product_exact(a, b)
    zeros_rest = fma(a, b_rest, zeros_rest)
    ratio, ratio_rest = sum_fast(LGAMMA_MIDDLE, polynomial(a - 0.5, LGAMMA))
    near, near_rest = product_exact(zeros, ratio)
    near_rest = near_rest + fma(zeros, ratio_rest, zeros_rest * ratio)
    alone = small | large
    log, log_rest = log_pair(select(alone, x, factors))
    log_rest = log_rest + select(alone, 0.0, factors_rest) / factors
    near, lost = sum_exact(near, select(small, -log, log))
    near_rest = near_rest + (lost + select(small, -log_rest, log_rest))
    # (x - 1/2) (log x - 1) + log(2 pi) / 2 - 1/2 + …: with the -1 outside it would overflow too early.
    factor = x - 0.5
    log, lost = sum_fast(log, -1.0)
    far, far_rest = product_exact(factor, log)
    far_rest = fma(factor, lost + log_rest, far_rest)
    far, lost = sum_fast(far, STIRLING_CONSTANT[0])
    inverse = 1.0 / x
    series = inverse * polynomial(inverse * inverse, STIRLING)
    far_rest = far_rest + (lost + (STIRLING_CONSTANT[1] + series))
    far_rest = select(far < INFINITY, far_rest, 0.0)
    return select(large, far, near), select(large, far_rest, near_rest)


def _mirrored(size: Floating, value: Floating, rest: Floating) -> Any:
    """lgamma(-size) = log pi - log(size |sin(pi size)|) - lgamma(size); infinity at whole numbers."""
    # size = n/2 + m, both exact.
    n = round(size + size)
    m = fma(-0.5, n, size)
    r, r_rest = product_exact(m, PI[0])
    r_rest = fma(m, PI[1], r_rest)
    z = r * r
    sine = fma(r * z, polynomial(z, SIN_64), r_rest)
    half = 0.5 * z
    head = 1.0 - half
    cosine = fma(z * z, polynomial(z, COS_64), (1.0 - head) - half)
    odd = round(0.5 * n) != 0.5 * n
    turn, turn_rest = select(odd, head, r), select(odd, cosine, sine)
    turn, turn_rest = sum_fast(turn, turn_rest)
    turn, turn_rest = select(turn < 0.0, -turn, turn), select(turn < 0.0, -turn_rest, turn_rest)
    product, lost = product_exact(turn, size)
    lost = fma(turn_rest, size, lost)
    pole = product == 0.0
    product = select(pole, 1.0, product)
    log, log_rest = log_pair(product)
    log_rest = log_rest + lost / product
    first, lost = sum_exact(LOG_PI[0], -log)
    total, lost_next = sum_exact(first, -value)
    total_rest = (lost + lost_next) + ((LOG_PI[1] - log_rest) - rest)
    return select(pole, INFINITY, total), select(pole, 0.0, total_rest)


@implements(gamma)
def _gamma(x: Floating) -> Any:
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype == float64:
        return _gamma_64(x)
    return _gamma_64(x.cast(float64)).cast(float32).cast(x.dtype)


def _gamma_64(x: Floating) -> Any:
    """e to the power of the logarithm, which is a sum of two floats; the sign below 0 alternates between the poles."""
    size = abs(x)
    # Beyond 171.7 it has overflowed, and below -184 it is 0.
    size = select(size > 400.0, 400.0, size)
    value, rest = _lgamma_positive(size)
    below = rare(x < 0.0)
    if x.width > 1:
        mirrored, mirrored_rest = _mirrored(size, value, rest)
        value, rest = select(below, mirrored, value), select(below, mirrored_rest, rest)
    else:
        if below:
            value, rest = _mirrored(size, value, rest)
    n, r = exp_reduced(clamped(value, -800.0, 800.0))
    r = r + rest
    result = scaled(fma(r, fma(r, polynomial(r, EXP_64), 1.0), 1.0), n)
    # Small factorials are whole numbers.
    result = select((size < 24.0) & (size == trunc(size)), round(result), result)
    # Between -1 and 0 it is negative, between -2 and -1 positive, and so on.
    steps = floor(x)
    odd = round(0.5 * steps) != 0.5 * steps
    result = select((x < 0.0) & odd, -result, result)
    result = select((x < 0.0) & (steps == x), NAN, result)
    result = select(x == 0.0, with_sign_of(INFINITY + 0.0 * size, x), result)
    return select(x == x, result, x)
