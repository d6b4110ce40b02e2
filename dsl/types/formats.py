"""Converts binary floating-point formats: which number a bit pattern means, and which pattern a number becomes.

A number is rounded to nearest, ties to even, once, from its exact value. What a format does with numbers that it does
not have follows from its family:

    family    like           beyond the largest number   NaN                      -0
    ieee      float16        infinity                    kept                     yes
    fn        float8_e4m3fn  NaN                         kept                     yes
    fnuz      float8_e4m3fnuz  NaN                       kept, the pattern of -0  no: 0
    finite    float4_e2m1fn  the largest number          -0                       yes
    scale     float8_e8m0fnu  NaN                        kept                     no: NaN, as are 0 and numbers below 0

The `finite` formats and the scale are from "OCP Microscaling Formats (MX) Specification", 2023; the others from "FP8
Formats for Deep Learning", Micikevicius et al., 2022, and "8-bit Numerical Formats for Deep Neural Networks", Noune et
al., 2022. A NaN that is made or converted is the one pattern `nan`.

Code for targets does the same in `compiler.lowering.narrow_floats`, and tests hold the two together.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from ..diagnostics.dataclass import dataclass

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True)
class FloatFormat:
    """A format of `1 + exponent + mantissa` bits; a scale has no sign.

    Attributes:
        exponent: bits of the exponent.
        mantissa: bits of the mantissa, without the leading one.
        bias: what is subtracted from the exponent's bits.
        family: see above.
    """

    exponent: int
    mantissa: int
    bias: int
    family: str = "ieee"

    @property
    def bits(self) -> int:
        """The width of a pattern."""
        return self.exponent + self.mantissa + (self.family != "scale")

    @property
    def sign(self) -> int:
        """The sign bit; 0 where there is none."""
        return 0 if self.family == "scale" else 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        """The pattern of the largest number."""
        ones = (1 << (self.exponent + self.mantissa)) - 1
        if self.family == "ieee":
            return ones - (1 << self.mantissa)
        return ones if self.family in ("fnuz", "finite") else ones - 1

    @property
    def has_nan(self) -> bool:
        """Whether some pattern is not a number."""
        return self.family != "finite"

    @property
    def has_infinity(self) -> bool:
        """Whether some patterns are infinite."""
        return self.family == "ieee"

    @property
    def nan(self) -> int:
        """What a NaN becomes: a NaN, or -0 where there is none."""
        if self.family == "ieee":
            return self.largest + 1 + (1 << (self.mantissa - 1))
        return self.sign if self.family in ("fnuz", "finite") else self.largest + 1

    @property
    def overflow(self) -> int:
        """What becomes of a positive number beyond the largest; a negative one has the sign bit set as well, if it is
        no NaN."""
        return {"ieee": self.largest + 1, "finite": self.largest}.get(self.family, self.nan)

    def encode(self, value: float | Fraction) -> int:
        """The pattern of a number, rounded once."""
        if isinstance(value, float) and math.isnan(value):
            return self.nan
        negative = math.copysign(1.0, value) < 0 if value == 0 else value < 0
        if self.family == "scale" and (negative or value == 0):
            return self.nan
        from fractions import Fraction  # most runs have no use for it

        beyond = isinstance(value, float) and math.isinf(value)
        size = self.overflow if beyond else self._rounded(abs(Fraction(value)))
        if size > self.largest:
            size = self.overflow
            if not self.has_infinity and self.has_nan:
                return self.nan
        if size == 0 and self.family == "fnuz":
            return 0
        return size | (self.sign if negative else 0)

    def _rounded(self, size: Fraction) -> int:
        """The pattern of a number >= 0, as if exponents had no end."""
        from fractions import Fraction

        lowest = 1 - self.bias if self.family != "scale" else -self.bias
        exponent = max(_exponent(size), lowest)
        units = round(size / Fraction(2) ** (exponent - self.mantissa))  # Python rounds ties of fractions to even
        if self.family == "scale":  # no bit stands for a leading one; 1.5 lies between 1 and 2, which is even
            return exponent + self.bias + max(units, 1) - 1
        return ((exponent - lowest) << self.mantissa) + units

    def decode(self, pattern: int) -> float:
        """The number that a pattern means; all of them are floats of Python."""
        size = pattern & ~self.sign
        negative = bool(pattern & self.sign)
        if self.family == "fnuz" and pattern == self.sign:
            return math.nan
        if size > self.largest:
            if not self.has_infinity or size != self.overflow:
                return math.nan
            return -math.inf if negative else math.inf
        if self.family == "scale":
            return math.ldexp(1.0, size - self.bias)
        exponent, units = size >> self.mantissa, size & ((1 << self.mantissa) - 1)
        if exponent:
            units, exponent = units | 1 << self.mantissa, exponent - 1
        number = math.ldexp(units, exponent + 1 - self.bias - self.mantissa)
        return -number if negative else number

    def round(self, value: float | Fraction) -> float:
        """The nearest number of this format, as `encode` finds it."""
        return _nearest(self, value, math.copysign(1.0, value) if value == 0 else 0.0)


@lru_cache(maxsize=4096)
def _nearest(form: FloatFormat, value: float | Fraction, sign: float) -> float:
    """`sign` distinguishes the zeros. A program has few constants, and evaluates each several times."""
    return form.decode(form.encode(value))


def _exponent(size: Fraction) -> int:
    """floor(log2(size)); something low for 0."""
    from fractions import Fraction

    if size == 0:
        return -(1 << 16)
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if size >= Fraction(2) ** guess else guess - 1
