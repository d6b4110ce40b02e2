"""Remez's exchange: the polynomial whose largest weighted error on an interval is smallest, with rounded coefficients.

Algorithm: E. Y. Remez 1934, on a grid of points that is dense where extrema are. Around 0, where all powers but the
lowest vanish and the best fit need not be unique: least squares whose weights grow with the errors (C. L. Lawson 1961),
or the same. The coefficients are rounded one after another, lowest power first, with the others fitted again after
each; but not around 0 by Remez's exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mpmath import mp, mpf

DIGITS = 60
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """What to fit.

    Attributes:
        function: the wished values, of an mpf within the interval; never called with 0 itself.
        low, high: the interval.
        count: how many coefficients.
        weight: what a deviation is multiplied with; 1 / function(z) for relative errors.
        bits: of a coefficient: 24 for float32, 53 for float64.
        fixed: coefficients of the lowest powers that are given, lowest first; they count in `count`.
        squares: by least squares.
    """

    function: Function
    low: Any
    high: Any
    count: int
    weight: Function
    bits: int = 53
    fixed: tuple[float, ...] = ()
    squares: bool = False


def rounded(value: Any, bits: int) -> Any:
    """The nearest number of so many bits."""
    with mp.workprec(bits):
        return +value


def fit(wish: Fit) -> tuple[list[float], float]:
    """The rounded coefficients, highest power first, and the largest weighted error that they leave."""
    with mp.workdps(DIGITS):
        points = _grid(mpf(wish.low), mpf(wish.high), 24 * (wish.count + 1))
        values = [wish.function(z) for z in points]
        weights = [wish.weight(z) for z in points]
        known = [mpf(c) for c in wish.fixed]
        while len(known) < wish.count:
            solve = _least_squares if wish.squares else _exchange
            free = solve(points, values, weights, known, wish.count)
            again = wish.low >= 0 or wish.squares
            known += [rounded(c, wish.bits) for c in (free[:1] if again else free)]
        error = max(abs(e) for e in _errors(points, values, weights, known, 0))
        return [float(c) for c in reversed(known)], float(error)


def _grid(low: Any, high: Any, count: int) -> list[Any]:
    """Points that lie closer together at both ends; none is 0, where functions have gaps that can be filled."""
    points = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / count) for k in range(count + 1)]
    tiny = mpf(2) ** -40 * (high - low)
    return [z if abs(z) > tiny else tiny for z in points]


def _errors(
    points: Sequence[Any], values: Sequence[Any], weights: Sequence[Any], c: Sequence[Any], start: int
) -> list[Any]:
    """Weighted errors of sum(c[j] * z**(start + j))."""
    errors = []
    for z, value, weight in zip(points, values, weights, strict=True):
        total = mpf(0)
        for coefficient in reversed(c):
            total = total * z + coefficient
        errors.append((total * z**start - value) * weight)
    return errors


def _exchange(
    points: Sequence[Any], values: Sequence[Any], weights: Sequence[Any], known: list[Any], count: int
) -> Any:
    """The coefficients after the known ones, lowest power first, before rounding."""
    start, unknowns = len(known), count - len(known)
    lowered = [-e / w for e, w in zip(_errors(points, values, weights, known, 0), weights, strict=True)]
    last = len(points) - 1
    chosen = [round(last * k / unknowns) for k in range(unknowns + 1)]
    for _ in range(30):
        rows = [[points[i] ** (start + j) for j in range(unknowns)] for i in chosen]
        system = mp.matrix(
            [[*row, (-1) ** n / weights[i]] for n, (row, i) in enumerate(zip(rows, chosen, strict=True))]
        )
        solved = mp.lu_solve(system, mp.matrix([lowered[i] for i in chosen]))
        coefficients = [solved[j] for j in range(unknowns)]
        errors = _errors(points, lowered, weights, coefficients, start)
        if max(abs(e) for e in errors) <= abs(solved[unknowns]) * mpf("1.0001"):
            break
        following = _alternating(errors, unknowns + 1)
        if following == chosen:
            break
        chosen = following
    return coefficients


def _least_squares(
    points: Sequence[Any], values: Sequence[Any], weights: Sequence[Any], known: list[Any], count: int
) -> Any:
    """The same as `_exchange`, nearly."""
    start, unknowns = len(known), count - len(known)
    lowered = [-e for e in _errors(points, values, weights, known, 0)]
    rows = [[w * z ** (start + j) for j in range(unknowns)] for z, w in zip(points, weights, strict=True)]
    shares, smallest, coefficients = [mpf(1)] * len(rows), mpf("inf"), None
    for _ in range(24):
        matrix, right = mp.matrix(unknowns, unknowns), mp.matrix(unknowns, 1)
        for row, value, share in zip(rows, lowered, shares, strict=True):
            for i in range(unknowns):
                right[i] += share * row[i] * value
                for j in range(unknowns):
                    matrix[i, j] += share * row[i] * row[j]
        solved = mp.lu_solve(matrix, right)
        errors = [abs(mp.fdot(row, solved) - value) for row, value in zip(rows, lowered, strict=True)]
        largest = max(errors)
        if largest < smallest:
            smallest, coefficients = largest, [solved[j] for j in range(unknowns)]
        shares = [share * (error / largest + mpf(2) ** -10) for share, error in zip(shares, errors, strict=True)]
        total = sum(shares)
        shares = [share / total for share in shares]
    return coefficients


def _alternating(errors: Sequence[Any], count: int) -> list[int]:
    """The largest error of each run of one sign; `count` neighbours of them that have the largest."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        drop_first = abs(errors[peaks[0]]) < abs(errors[peaks[-1]])
        peaks = peaks[1:] if drop_first else peaks[:-1]
    if len(peaks) < count:
        raise ArithmeticError(f"{len(peaks)} alternating extrema where {count} are needed")
    return peaks
