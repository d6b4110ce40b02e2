"""The distance between a function of float32 and the same of float64, for `accuracy`."""

from __future__ import annotations

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitcast,
    cbrt,
    clamp,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    float32,
    float64,
    foreach,
    gamma,
    i0,
    i1,
    int64,
    j0,
    j1,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    max,
    register,
    rsqrt,
    select,
    sin,
    sinh,
    tan,
    tanh,
    y0,
    y1,
)

# In the order of `truths.UNARY`.
ODD = (sin, tan, asin, atan, sinh, tanh, asinh, atanh, erf, cbrt)
OTHERS = (cos, cosh, rsqrt, exp, exp2, expm1, log, log2, log10, log1p, acos, acosh, erfc, lgamma, gamma)
BESSEL = (i0, i1, j0, j1, y0, y1)
FUNCTIONS = (*ODD, *OTHERS, *BESSEL)
BEYOND = 2.0**128  # what infinity stands for


def ulps(got, truth):
    """Units in the last place of a float32 between it and a float64. Two NaN agree."""
    size = bitcast(bitcast(abs(truth), int64) & 0x7FF0000000000000, float64)
    unit = max(size, 2.0**-126) * 2.0**-23
    apart = abs(clamp(got.cast(float64), -BEYOND, BEYOND) - clamp(truth, -BEYOND, BEYOND)) / unit
    both, one = (got != got) & (truth != truth), (got != got) | (truth != truth)
    return select(both, 0.0, select(one, float64(float("inf")), apart))


@register("distance")
def distance(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, number: int):
    """How far FUNCTIONS[number] of each float32 is from that of the same number as a float64."""

    def apart(v):
        return ulps(FUNCTIONS[number](v), FUNCTIONS[number](v.cast(float64))).cast(float32)

    foreach(out, lambda i: apart(x[i]))
