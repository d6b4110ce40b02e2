"""Helpers of the kernels in `function_kernels`, in a module of their own."""

from __future__ import annotations

from einkorn.dsl import exp2, max, unroll

GAIN = 3.0
WEIGHTS = (0.25, 0.5, 0.25)
TABLE = ((1, 2, 3), (4, 5, 6))


def scaled(v, gain=GAIN, *, offset=0.0):
    """Uses a constant of this module as a default, and one that is keyword-only."""
    return v * gain + offset


def smooth(get, i):
    """Calls a function that it is given."""
    total = WEIGHTS[0] * get(i - 1)
    total += WEIGHTS[1] * get(i)
    return total + WEIGHTS[2] * get(i + 1)


def power_of(n):
    """A factory: gives a function that has n."""

    def power(v):
        result = v
        for _ in unroll(n - 1):
            result = result * v
        return result

    return power


def compose(f, g):
    return lambda v: f(g(v))


def twice(f):
    return compose(f, f)


def first_of(*, default, value):
    return max(default, value)


def through_library(v):
    return exp2(v)


cube = power_of(3)
half = 0.5
