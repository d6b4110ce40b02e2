"""Calls with compile-time values; `test_pure` gives the same functions to Python.

Each function is called twice: with numbers, which is computed when the kernel is compiled, and with values of the
running program.
"""

from __future__ import annotations

from typing import Any

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    exp,
    float32,
    float64,
    foreach,
    int64,
    log,
    parallel_for,
    pow,
    register,
    sin,
    sqrt,
    stack,
    static_assert,
    struct,
    tanh,
    unroll,
)


def factorial(n: Any) -> Any:
    return 1 if n <= 1 else n * factorial(n - 1)


def even(n: Any) -> Any:
    return True if n == 0 else odd(n - 1)


def odd(n: Any) -> Any:
    return False if n == 0 else even(n - 1)


def primes(limit: Any) -> Any:
    result = ()
    for n in range(2, limit):
        if all(n % p != 0 for p in result):
            result = (*result, n)
    return result


def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        if steps > 50:
            return -1
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@struct
class Fraction:
    """A reduced fraction."""

    top: Any
    bottom: Any

    def __add__(self, other):
        top = self.top * other.bottom + other.top * self.bottom
        bottom = self.bottom * other.bottom
        a, b = top, bottom
        while b != 0:
            a, b = b, a % b
        return Fraction(top // a, bottom // a)


def harmonic(n: Any) -> Any:
    total = Fraction(0, 1)
    for k in range(1, n + 1):
        total += Fraction(1, k)
    return total


def words(n: Any) -> Any:
    text = ""
    for k in reversed(range(n)):
        text = text + "ab" * k + ("," if k else ".")
    return len(text) if text != "" else -1


# whole numbers: folded, and run


@register("whole")
def whole(folded: OutputTensor[int64, "6"], ran: OutputTensor[int64, "2 n"], v: InputTensor[int64, "n"]) -> None:
    static_assert(factorial(20) == 2432902008176640000 and factorial(25) > 2**63, "Python's numbers have no end")
    static_assert(primes(30) == (2, 3, 5, 7, 11, 13, 17, 19, 23, 29), "primes")
    static_assert(even(20) and not odd(20), "functions that call each other")
    h = harmonic(12)
    counts = stack[int64](collatz(27) + 2, len(primes(20)))
    values = (factorial(7), collatz(27), collatz(6), h.top, h.bottom, words(4) + counts.shape[0])
    for k in unroll(6):
        folded[k] = values[k]

    def column(i: Any) -> None:
        ran[0, i] = int64(collatz(v[i]))
        h = harmonic(v[i])
        ran[1, i] = h.top * 1000 + h.bottom

    parallel_for(v.dim(0), column)


def series(x: Any, n: Any) -> Any:
    total, term = 0.0, 1.0
    for k in range(1, n):
        total += term
        term = term * x / float(k)
    return total


def mixed(x: Any, y: Any) -> Any:
    value = exp(x) - log(y) * sin(x * y) + sqrt(y)
    for _ in range(3):
        value = tanh(value) * 1.5 + pow(y, x)
        if value > 4.0:
            return value * 0.5
    return value + y**3


POINTS = ((0.5, 2.0), (1.25, 0.3), (-3.0, 7.5), (0.1, 1e-3), (2.0, 3.0))


@register("floats")
def floats(
    folded: OutputTensor[float64, "2 5"], ran: OutputTensor[float64, "2 5"], x: InputTensor[float64, "5 2"]
) -> None:
    for k in unroll(5):
        a, b = POINTS[k]
        folded[0, k] = mixed(a, b)
        folded[1, k] = series(a, 12)

    def column(k: Any) -> None:
        ran[0, k] = mixed(x[k, 0], x[k, 1])
        ran[1, k] = series(x[k, 0], 12)

    parallel_for(5, column)


@register("adopted")
def adopted(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    """A folded number is a float64, rounded once when it is combined with a float32."""
    foreach(out, lambda i: x[i] * mixed(0.5, 2.0))
