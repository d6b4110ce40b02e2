"""Makes the coefficients of the mathematics in `stdlib/math_*.py` anew: `python benchmarks/polynomials.py [NAME …]`.

Each `Fit` is named as the constant in the standard library is. It prints the constant as it stands there, and the
largest weighted error of the polynomial, in bits. Needs mpmath.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from mpmath import mp, mpf
from remez import Fit, fit

HALF_LN2 = mpf(0.34658)
AROUND_1 = (mpf(0.70710) - 1, mpf(1.41422) - 1)
FROM_3_4 = (mpf(-0.250001), mpf(0.500001))
LOG10_E = mpf(0.4342944920063019)


def _odd(function: Any) -> Any:
    """(f(x) / x - 1) / z as a function of z = x**2."""
    return lambda z: (function(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def _odd_weight(function: Any) -> Any:
    """What an error of that is, relative to f(x)."""
    return lambda z: z * mp.sqrt(z) / function(mp.sqrt(z))


def _odd_fit(function: Any, high: Any, count: int, bits: int) -> Fit:
    return Fit(_odd(function), 0, high, count, _odd_weight(function), bits)


def _cot_fit(count: int, bits: int) -> Fit:
    """(1 - r cot(r)) / z for z = r**2."""

    def slope(z: Any) -> Any:
        return mp.sqrt(z) * mp.cot(mp.sqrt(z))

    return Fit(lambda z: (1 - slope(z)) / z, 0, mpf("0.63"), count, lambda z: z / slope(z), bits)


def _sine_ratio(z: Any) -> Any:
    """sin(pi m) / m for z = m**2."""
    return mp.sinpi(mp.sqrt(z)) / mp.sqrt(z)


def _acosh_tail(t: Any) -> Any:
    return (mp.acosh(1 + t) / mp.sqrt(2 * t) - 1) / t


def _log_of_ratio(z: Any) -> Any:
    """(log((1 + s) / (1 - s)) / s - 2) / z for z = s**2."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z


def _from_ratio(center: float, t: Any) -> Any:
    """x of t = (x - center) / (x + center)."""
    return center * (1 + t) / (1 - t)


def _scaled_erfc(x: Any) -> Any:
    """(1 + 2x) e**(x**2) erfc(x), which is nearly 1 for all x >= 0."""
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def _erfc_fit(center: float, constant: float, high: float, count: int, bits: int) -> Fit:
    def wish(t: Any) -> Any:
        return _scaled_erfc(_from_ratio(center, t)) - constant

    def weight(t: Any) -> Any:
        return 1 / _scaled_erfc(_from_ratio(center, t))

    return Fit(wish, -1, (mpf(high) - center) / (mpf(high) + center), count, weight, bits)


def _expm1_fit(count: int, bits: int) -> Fit:
    low, high = mpf(-0.28769), mpf(0.40547)
    return _around(lambda r: (mp.expm1(r) - r) / r**2, low, high, count, lambda r: r**2 / mp.expm1(r), bits)


def _exp_tail_fit(count: int, bits: int) -> Fit:
    return Fit(lambda r: (mp.exp(r) - 1 - r) / r**2, -HALF_LN2, HALF_LN2, count, lambda r: r**2 / mp.exp(r), bits)


def _cbrt_fit(count: int, bits: int) -> Fit:
    limit = mpf(0.1024)
    return _around(lambda e: (1 / mp.cbrt(1 - e) - 1) / e, -limit, limit, count, lambda e: e * mp.cbrt(1 - e), bits)


def _around(wish: Any, low: Any, high: Any, count: int, weight: Any, bits: int) -> Fit:
    """A fit on an interval around 0."""
    return Fit(wish, low, high, count, weight, bits, squares=True)


def _log_fit(power: int, constant: Any, base: Any, interval: Any, count: int, bits: int) -> Fit:
    """(log(1 + f) / (f log(base)) - constant) / f**power, relative to log(1 + f)."""

    def wish(f: Any) -> Any:
        return (mp.log(1 + f) / (f * mp.log(base)) - constant) / f**power

    return _around(wish, *interval, count, lambda f: f ** (power + 1) * mp.log(base) / mp.log(1 + f), bits)


def _twice_atanh(z: Any) -> Any:
    """2 atanh(s) / s for s**2 = z."""
    return 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z)


def _log2_ratio_fit(power: int, count: int, bits: int) -> Fit:
    """2 atanh(s) / (s ln 2) for s**2 = z, without its first one or two terms and divided by the next power of z."""

    def wish(z: Any) -> Any:
        known = 2 + (2 * z / 3 if power == 2 else 0)
        return (_twice_atanh(z) - known) / mp.ln2 / z**power

    return Fit(wish, 0, mpf("0.02945"), count, lambda z: z**power * mp.ln2 / _twice_atanh(z), bits)


def _exp2_fit(count: int, bits: int) -> Fit:
    limit = mpf("0.5001")
    return _around(lambda r: (mpf(2) ** r - 1) / r, -limit, limit, count, lambda r: r / mpf(2) ** r, bits)


def _lgamma_ratio(u: Any) -> Any:
    """lgamma(x) / ((x - 1) (x - 2)) for x = u + 3/2; u = 1/2 and -1/2 are gaps."""
    x = u + mpf(1.5)
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def _lgamma_weight(u: Any) -> Any:
    return 1 / _lgamma_ratio(u)


def _stirling(z: Any) -> Any:
    """x (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2) for z = 1 / x**2."""
    x = 1 / mp.sqrt(z)
    with mp.extradps(40):
        return +(x * (mp.loggamma(x) - (x - mpf(0.5)) * mp.log(x) + x - mp.log(2 * mp.pi) / 2))


LGAMMA_LIMIT = mpf(0.7001)

FITS: dict[str, Fit] = {
    "EXP_32": _exp_tail_fit(5, 24),
    "EXP_FINE_32": _exp_tail_fit(6, 24),
    "EXP_64": _exp_tail_fit(10, 53),
    "EXPM1_32": _expm1_fit(6, 24),
    "EXPM1_64": _expm1_fit(11, 53),
    "SINH_32": _odd_fit(mp.sinh, 1, 4, 24),
    "SINH_64": _odd_fit(mp.sinh, 1, 8, 53),
    "TANH_NEAR_32": _odd_fit(mp.tanh, mpf("1.0001"), 7, 24),
    "TANH_FAR_32": _around(lambda r: mp.expm1(r * mp.ln2) / r, -0.5, 0.5, 6, lambda r: r / mpf(2) ** r, 24),
    "ASIN_32": _odd_fit(mp.asin, mpf(0.2501), 5, 24),
    "ASIN_64": _odd_fit(mp.asin, mpf(0.2501), 13, 53),
    "ATAN_32": _odd_fit(mp.atan, mpf("1.0001"), 10, 24),
    "ATAN_64": _odd_fit(mp.atan, mpf("1.0001"), 20, 53),
    "COT_32": _cot_fit(5, 24),
    "COT_64": _cot_fit(9, 53),
    "ASINH_32": _odd_fit(mp.asinh, mpf(0.2501), 6, 24),
    "LOG_ABOVE_32": Fit(
        lambda f: (mp.log(1 + f) - f + f**2 / 2) / f**3, mpf("-0.2929"), mpf("0.41422"), 7, lambda f: f**3, 24
    ),
    "ACOSH_32": Fit(_acosh_tail, 0, mpf("0.5001"), 5, lambda t: t * mp.sqrt(2 * t) / mp.acosh(1 + t), 24),
    "ATANH_NEAR_32": _odd_fit(mp.atanh, mpf("0.2501"), 6, 24),
    "ATANH_NEAR_64": _odd_fit(mp.atanh, mpf("0.2501"), 13, 53),
    "CBRT_32": _cbrt_fit(3, 24),
    "CBRT_64": _cbrt_fit(4, 53),
    "LOG_WIDE_32": _log_fit(1, 1, mp.e, FROM_3_4, 9, 24),
    "LOG2_32": _log_fit(0, 1, 2, AROUND_1, 10, 24),
    "LOG10_32": _log_fit(0, LOG10_E, 10, AROUND_1, 10, 24),
    "ATANH_WIDE_64": Fit(lambda z: (_twice_atanh(z) - 2) / z, 0, mpf(0.0401), 7, lambda z: z / _twice_atanh(z)),
    "POW_LOG_32": _log2_ratio_fit(1, 4, 24),
    "POW_LOG_64": _log2_ratio_fit(2, 7, 53),
    "POW_EXP_32": _exp2_fit(6, 24),
    "POW_EXP_64": _exp2_fit(11, 53),
    "LGAMMA": Fit(lambda u: _lgamma_ratio(u) - 0.4831289505409809, -LGAMMA_LIMIT, LGAMMA_LIMIT, 28, _lgamma_weight),
    "LGAMMA_SHORT": Fit(_lgamma_ratio, -LGAMMA_LIMIT, LGAMMA_LIMIT, 15, _lgamma_weight),
    "LGAMMA_ABOVE": Fit(
        lambda u: _lgamma_ratio(u + mpf("0.2")),
        mpf("-0.501"),
        mpf("0.501"),
        19,
        lambda u: _lgamma_weight(u + mpf("0.2")),
    ),
    "STIRLING_SHORT": Fit(_stirling, mpf(2) ** -60, mpf(1) / 16, 4, lambda z: mpf(1)),
    "SIN_TURN": Fit(_sine_ratio, 0, mpf("0.2501"), 9, lambda z: 1 / _sine_ratio(z)),
    "ATANH_SHORT": Fit(_log_of_ratio, 0, mpf("0.02945"), 4, lambda z: 1 / (_log_of_ratio(z) + 2 / z)),
    "STIRLING": Fit(_stirling, mpf(2) ** -60, mpf(1) / 64, 7, lambda z: mpf(1)),
    "ERFC_32": _erfc_fit(3.5, 1.125, 11.0, 13, 24),
    "ERFC_64": _erfc_fit(3.0, 1.125, 28.0, 23, 53),
}


def main() -> None:
    for name in sys.argv[1:] or FITS:
        wish = FITS[name]
        coefficients, error = fit(wish)
        print(f"# 2**{math.log2(error):.1f}\n{name} = (")
        for c in coefficients:
            print(f"    {c:.9g}," if wish.bits == 24 else f"    {c!r},")
        print(")", flush=True)


if __name__ == "__main__":
    main()
