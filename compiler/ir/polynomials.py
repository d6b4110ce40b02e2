"""Polynomials over the values of a program, as `ranges` reasons with them: sums of products, each with a whole
factor."""

from __future__ import annotations

Poly = dict[tuple[int, ...], int]  # monomial (serials of atoms, ascending) -> coefficient, never 0


def plus(a: Poly, b: Poly) -> Poly:
    """a + b."""
    out = dict(a)
    for monomial, factor in b.items():
        out[monomial] = out.get(monomial, 0) + factor
        if not out[monomial]:
            del out[monomial]
    return out


def scaled(a: Poly, factor: int) -> Poly:
    """a times a number."""
    return {monomial: value * factor for monomial, value in a.items()} if factor else {}


def minus(a: Poly, b: Poly) -> Poly:
    """a - b."""
    return plus(a, scaled(b, -1))


def times(a: Poly, b: Poly) -> Poly:
    """a * b."""
    out: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            out = plus(out, {tuple(sorted((*left, *right))): x * y})
    return out


def combined(name: str, parts: list[Poly]) -> Poly:
    if name == "neg":
        return scaled(parts[0], -1)
    return {"add": plus, "sub": minus, "mul": times}[name](*parts)


def split(poly: Poly, serial: int) -> tuple[Poly | None, Poly]:
    """`poly` as factor * atom + rest; None for the factor when the atom is squared, {} if it does not occur."""
    factor: Poly = {}
    rest: Poly = {}
    for monomial, value in poly.items():
        count = monomial.count(serial)
        if count > 1:
            return None, poly
        if count:
            without = list(monomial)
            without.remove(serial)
            factor[tuple(without)] = value
        else:
            rest[monomial] = value
    return factor, rest
