"""Bessel functions of order 0 and 1 in the kernel language; see `math.functions` for what all of these have in common.

    j0(x)    up to |x| = 8 a polynomial of x**2; beyond, sqrt(2 / (pi x)) (P cos(x - pi/4) - Q sin(x - pi/4))
    y0(x)    2/pi log(x) j0(x) + a polynomial of x**2; beyond, the same with sin and cos exchanged
    i0(x)    a polynomial of x**2; beyond 8, exp(x) / sqrt(x) times one of 1/x

and so for order 1. P and Q are Hankel's (M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 9.2), here
as polynomials of 64 / x**2. All of it is computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    Floating,
    abs,
    cos,
    exp,
    float32,
    float64,
    i0,
    i1,
    implements,
    j0,
    j1,
    log,
    select,
    sin,
    sqrt,
    static_assert,
    y0,
    y1,
)
from .parts import INFINITY, NAN, polynomial, polynomial_apart

INVERSE_PI = 0.3183098861837907
TWO_OVER_PI = 0.6366197723675814

# j0(x) as a polynomial of x**2 / 32 - 1, up to x = 8: 2**-52.8
BESSEL_J0 = (
    -1.1383853535882654e-14,
    4.0037633450832346e-13,
    -1.2384630335053019e-11,
    3.3634475785667686e-10,
    -7.915407750363412e-09,
    1.5956109104553222e-07,
    -2.7177491450123583e-06,
    3.847319785594433e-05,
    -0.00044354592247272803,
    0.004058078989140991,
    -0.02847271861086957,
    0.14598884856759264,
    -0.507468045847102,
    1.0383794611437211,
    -0.808088807669687,
    -0.6484692830871837,
    0.9303012472958572,
    0.04582966485981377,
)
# j1(x) / x, as above: 2**-55.2
BESSEL_J1 = (
    -3.2386592458742887e-16,
    1.2095548165974358e-14,
    -3.99080854080253e-13,
    1.1610590175014727e-11,
    -2.943037885529767e-10,
    6.431268798328914e-09,
    -1.196708164420811e-07,
    1.8684525371950864e-06,
    -2.404574866086981e-05,
    0.0002494945813909099,
    -0.002029039494570245,
    0.012456814392255438,
    -0.054745818212847276,
    0.15858376432721938,
    -0.2595948652859303,
    0.15151665143806634,
    0.08105866038589796,
    -0.05814382795599107,
)
# y0(x) - 2/pi log(x) j0(x), as above: 2**-53.1
BESSEL_Y0 = (
    2.5584172772175418e-14,
    -8.840112233942707e-13,
    2.6818205320027877e-11,
    -7.130461464826014e-10,
    1.6391065296363403e-08,
    -3.218507844594454e-07,
    5.321318633709019e-06,
    -7.279541882454109e-05,
    0.0008061586060550782,
    -0.00702574105727097,
    0.04636704768134709,
    -0.21895747096171628,
    0.6721770783431723,
    -1.0775477338215995,
    0.14412632369302442,
    1.6470964788745466,
    -0.8284358903604587,
    -0.382250654459425,
)
# (y1(x) - 2/pi (log(x) j1(x) - 1 / x)) / x, as above: 2**-56.0
BESSEL_Y1 = (
    7.34003118028765e-16,
    -2.6951390012271864e-14,
    8.728806011356573e-13,
    -2.4887509901673278e-11,
    6.16974262054931e-10,
    -1.3153322551129995e-08,
    2.3804929913593266e-07,
    -3.600999874357813e-06,
    4.467433012914448e-05,
    -0.00044381734351149876,
    0.0034224907399180455,
    -0.019628756833099423,
    0.07854786922242545,
    -0.19639839859930425,
    0.23507209206669755,
    0.023367571720993584,
    -0.24337743079193114,
    0.07075985882118005,
)
# P and x Q of order 0 as polynomials of 64 / x**2, from x = 8 on: 2**-60.5
BESSEL_P0 = (
    -1.0261330354516928e-10,
    8.041861686860144e-10,
    -2.9508340599572663e-09,
    6.879858107786895e-09,
    -1.1900968674214792e-08,
    1.7489922398795858e-08,
    -2.5524951836016377e-08,
    4.385814971998702e-08,
    -1.0240315714186543e-07,
    3.6203474603270567e-07,
    -2.183919187602124e-06,
    2.738088367976245e-05,
    -0.0010986328124998365,
    1.0,
)
# 2**-55.0
BESSEL_Q0 = (
    -1.125996264400266e-09,
    8.38747347395273e-09,
    -2.9263836751398967e-08,
    6.529713046680035e-08,
    -1.1016082449250642e-07,
    1.6427482154355223e-07,
    -2.586907937970326e-07,
    5.120901225646042e-07,
    -1.4530115984202677e-06,
    6.590742930463869e-06,
    -5.54462888733794e-05,
    0.0011444091796774327,
    -0.12499999999999997,
)
# the same of order 1: 2**-60.4
BESSEL_P1 = (
    1.0861379091101422e-10,
    -8.516461325101126e-10,
    3.127477279970435e-09,
    -7.301286518441648e-09,
    1.2658611510065118e-08,
    -1.867801957980644e-08,
    2.7447583388638835e-08,
    -4.768373474370928e-08,
    1.1318544100117816e-07,
    -4.1030655083475203e-07,
    2.5809954568189826e-06,
    -3.520399330577556e-05,
    0.0018310546874998276,
    1.0,
)
# 2**-54.9
BESSEL_Q1 = (
    1.2588036662686768e-09,
    -9.28092725140087e-09,
    3.206173201523139e-08,
    -7.09080520736545e-08,
    1.1885409720914228e-07,
    -1.769057200311313e-07,
    2.799529672400728e-07,
    -5.610259224838095e-07,
    1.6239854974606956e-06,
    -7.604707042593003e-06,
    6.776768663950655e-05,
    -0.0016021728515556869,
    0.375,
)
# i0(x), relative, as a polynomial of x**2, up to x = 8: 2**-58.8
BESSEL_I0 = (
    8.55732705539991e-34,
    4.204634641266072e-31,
    3.932241272962298e-28,
    2.5903544214435923e-25,
    1.4967626653934993e-22,
    7.242083823208259e-20,
    2.896908496955339e-17,
    9.385965923764741e-15,
    2.4028075652230496e-12,
    4.709502795485341e-10,
    6.78168402788204e-08,
    6.7816840277736236e-06,
    0.0004340277777777865,
    0.015624999999999993,
    0.25,
    1.0,
)
# i1(x) / x, as above: 2**-61.6
BESSEL_I1 = (
    2.608447064159198e-35,
    1.4307318512281687e-32,
    1.3985774391123489e-29,
    9.969687886374492e-27,
    6.2359899911330285e-24,
    3.291883866353926e-21,
    1.4484532185383699e-18,
    5.214425786185263e-16,
    1.5017547231664713e-13,
    3.3639305688604575e-11,
    5.6514033565122705e-09,
    6.781684027776594e-07,
    5.425347222222245e-05,
    0.0026041666666666665,
    0.0625,
    0.5,
)
# i0(x) exp(-x) sqrt(x), relative, as a polynomial of 16 / x - 1, from x = 8 on: 2**-53.8
BESSEL_E0 = (
    -5.778158624088681e-11,
    -2.2547842688981364e-11,
    4.411211611598326e-10,
    1.65683454756251e-10,
    -1.577597383724364e-09,
    -6.031256848746296e-10,
    3.5789852631286174e-09,
    1.5639918975839112e-09,
    -5.900647605826484e-09,
    -3.5442723748699727e-09,
    7.3993559188668176e-09,
    7.574320168126513e-09,
    -5.392698352801533e-09,
    -1.341698173012385e-08,
    -6.750702383002474e-09,
    7.556607345255385e-09,
    2.15488564739903e-08,
    3.9325566359561825e-08,
    8.87221540033541e-08,
    2.9735988101815663e-07,
    1.483847567795162e-06,
    1.114303379011769e-05,
    0.00013621607439189722,
    0.0033605519836678705,
    0.4021765094450081,
)
# the same of order 1: 2**-55.4
BESSEL_E1 = (
    5.996553411096722e-11,
    2.0857021909382622e-11,
    -4.581572119357282e-10,
    -1.5329543603056433e-10,
    1.6406896837406442e-09,
    5.617546065850096e-10,
    -3.731686710494201e-09,
    -1.483461593644905e-09,
    6.186220308536419e-09,
    3.465186075316093e-09,
    -7.855124266376928e-09,
    -7.664452007572018e-09,
    5.961538126063346e-09,
    1.4042403511531338e-08,
    6.737719735226055e-09,
    -8.429700658240714e-09,
    -2.3374440394923126e-08,
    -4.3128898300535465e-08,
    -1.0001283642533665e-07,
    -3.483855983601495e-07,
    -1.8349101348154277e-06,
    -1.5038547199751938e-05,
    -0.00021923576383385323,
    -0.009749577193235746,
    0.38939845902587233,
)


def _in_float64(function: Callable[[Floating], Floating], x: Floating) -> Any:
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype == float64:
        return function(x)
    return function(x.cast(float64)).cast(float32).cast(x.dtype)


@implements(j0)
def _j0(x: Floating) -> Any:
    return _in_float64(_j0_64, x)


@implements(j1)
def _j1(x: Floating) -> Any:
    return _in_float64(_j1_64, x)


@implements(y0)
def _y0(x: Floating) -> Any:
    return _in_float64(_y0_64, x)


@implements(y1)
def _y1(x: Floating) -> Any:
    return _in_float64(_y1_64, x)


@implements(i0)
def _i0(x: Floating) -> Any:
    return _in_float64(_i0_64, x)


@implements(i1)
def _i1(x: Floating) -> Any:
    return _in_float64(_i1_64, x)


def _near(x: Floating, coefficients: tuple[float, ...]) -> Any:
    """A polynomial of x**2 / 32 - 1."""
    u = x * x * 0.03125 - 1.0
    return polynomial_apart(u, u * u, coefficients)


def _far(x: Floating, p: tuple[float, ...], q: tuple[float, ...]) -> Any:
    """P and Q times the amplitude sqrt(1 / (pi x)), and the sum and the difference of sin(x) and cos(x), for x >= 8."""
    inverse = 1.0 / x
    w = 64.0 * inverse * inverse
    amplitude = sqrt(INVERSE_PI * inverse)
    p, q = amplitude * polynomial(w, p), amplitude * inverse * polynomial(w, q)
    sine, cosine = sin(x), cos(x)
    return p, q, sine + cosine, sine - cosine


def _split(size: Floating) -> Any:
    """The number for each of the two forms: up to 8, and from 8 to below infinity."""
    return select(size > 8.0, 8.0, size), select((size > 8.0) & (size < INFINITY), size, 8.0)


def _j0_64(x: Floating) -> Any:
    size = abs(x)
    near, far = _split(size)
    p, q, total, difference = _far(far, BESSEL_P0, BESSEL_Q0)
    result = select(size > 8.0, p * total - q * difference, _near(near, BESSEL_J0))
    result = select(size < 2.0**-27, 1.0, result)
    return select(size == INFINITY, 0.0, select(x == x, result, x))


def _j1_64(x: Floating) -> Any:
    size = abs(x)
    near, far = _split(size)
    p, q, total, difference = _far(far, BESSEL_P1, BESSEL_Q1)
    result = select(size > 8.0, p * difference + q * total, near * _near(near, BESSEL_J1))
    result = select(size == INFINITY, 0.0, select(x < 0.0, -result, result))
    return select((x == 0.0) | (x != x), x, result)


def _y0_64(x: Floating) -> Any:
    near, far = _split(x)
    p, q, total, difference = _far(far, BESSEL_P0, BESSEL_Q0)
    positive = select(near > 0.0, near, 1.0)
    close = TWO_OVER_PI * log(positive) * _near(near, BESSEL_J0) + _near(near, BESSEL_Y0)
    result = select(x > 8.0, p * difference + q * total, close)
    return _of_second_kind(x, result)


def _y1_64(x: Floating) -> Any:
    near, far = _split(x)
    p, q, total, difference = _far(far, BESSEL_P1, BESSEL_Q1)
    positive = select(near > 0.0, near, 1.0)
    close = log(positive) * near * _near(near, BESSEL_J1) - 1.0 / positive
    close = TWO_OVER_PI * close + near * _near(near, BESSEL_Y1)
    result = select(x > 8.0, q * difference - p * total, close)
    return _of_second_kind(x, result)


def _of_second_kind(x: Floating, result: Floating) -> Any:
    """The result with its values at 0, below, and at infinity."""
    result = select(x == INFINITY, 0.0, select(x == 0.0, -INFINITY, result))
    return select((x < 0.0) | (x != x), NAN, result)


def _i0_64(x: Floating) -> Any:
    size = abs(x)
    near, far = _split(size)
    result = select(size > 8.0, _grown(far, BESSEL_E0), polynomial(near * near, BESSEL_I0))
    return select(size == INFINITY, INFINITY, select(x == x, result, x))


def _i1_64(x: Floating) -> Any:
    size = abs(x)
    near, far = _split(size)
    result = select(size > 8.0, _grown(far, BESSEL_E1), near * polynomial(near * near, BESSEL_I1))
    result = select(size == INFINITY, INFINITY, result)
    return select((x == 0.0) | (x != x), x, select(x < 0.0, -result, result))


def _grown(x: Floating, coefficients: tuple[float, ...]) -> Any:
    """exp(x) / sqrt(x) times a polynomial of 16 / x - 1. The exponential comes in two factors, to overflow later."""
    v = 16.0 / x - 1.0
    half = exp(0.5 * x)
    return half * (polynomial_apart(v, v * v, coefficients) / sqrt(x)) * half
