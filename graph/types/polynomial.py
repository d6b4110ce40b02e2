"""Computes with polynomials over atoms, integer coefficients: the canonical form of symbolic dims.

An atom is a symbol (`n`), a floor quotient (`n//4`), a `min` or a `max`; the operands of the latter are canonical forms
again. Equal expressions have equal forms, so that equality is comparison of tuples. A quotient is reduced by the rules
(a, c positive integers)

    (q*b + r)//b == q + r//b             (4*n + 8)//4   == n + 2       division of polynomials with a rest
    (g*p + k)//(g*c) == (p + k//g)//c    (2*n + 1)//4   == n//2        common factor
    (p//a + q)//c == (p + a*q)//(a*c)    (n//2)//3      == n//6        nested quotients
    (-p)//c == -((p + c-1)//c)           -(-n//4)       == (n + 3)//4  a leading minus

All hold for all integers and non-zero divisors (`n//n` is 1: the case n = 0 has no value to differ from). Beyond
these, equality is structural: that two forms differ does not prove that the sizes do. `min` and `max` drop an operand
that can never win, given that a symbol, being a size, is not negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.signature.dims import largest, smallest
from ..arguments import LIMIT, in_short

MOST_TERMS = 1000
MOST_NESTED = 50
MOST_FACTORS = 100  # of one product
MOST_BOUNDED = 4  # minima and maxima of a sum that a proof replaces by their operands
MOST_PARTS = 20_000  # terms and atoms, those within operands of atoms included


class Atom(NamedTuple):
    """What a polynomial is made of. `kind` is "" for a symbol (with `name`), or "//", "min", "max" (with operands).

    `depth` counts how often atoms stand within operands of atoms, and `parts` the terms and atoms that it is made of.
    """

    kind: str
    name: str
    operands: tuple[Terms, ...]
    depth: int = 0
    parts: int = 1


Monomial = tuple[Atom, ...]  # sorted, with repetition: n*n*m is (m, n, n)
Terms = tuple[tuple[Monomial, int], ...]  # sorted, highest first, no zero coefficient: 2*n + 3 is (((n,), 2), ((), 3))


def _rank(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """Graded lexical order. Products keep it, which is what makes the division of polynomials end."""
    return -len(term[0]), term[0]


def collect(terms: Iterable[tuple[Monomial, int]]) -> Terms:
    """The polynomial that is the sum of terms in any order."""
    total: dict[Monomial, int] = {}
    for monomial, factor in terms:
        total[monomial] = total.get(monomial, 0) + factor
    return tuple(sorted(((m, k) for m, k in total.items() if k), key=_rank))


def number(value: int) -> Terms:
    """The polynomial of an int."""
    return (((), value),) if value else ()


def symbol(name: str) -> Terms:
    """The polynomial of a named size."""
    return (((Atom("", name, ()),), 1),)


def _atom(kind: str, *operands: Terms) -> Terms:
    """The polynomial that is one quotient, minimum or maximum."""
    depth = 1 + max((atom.depth for terms in operands for monomial, _ in terms for atom in monomial), default=0)
    for terms in operands:
        if depth > MOST_NESTED or is_too_large(terms):
            raise too_large(terms)
    parts = 1 + sum(map(_parts, operands))
    if parts > MOST_PARTS:
        raise too_large(operands[0])
    return (((Atom(kind, "", operands, depth, parts),), 1),)


def _parts(terms: Terms) -> int:
    return len(terms) + sum(atom.parts for monomial, _ in terms for atom in monomial)


def constant(terms: Terms) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else None


def scale(terms: Terms, factor: int) -> Terms:
    """factor * terms."""
    return tuple((m, k * factor) for m, k in terms) if factor else ()


def multiply(left: Terms, right: Terms) -> Terms:
    """left * right.

    Raises:
        GraphError: EK0335, one of the two is too complex for a product.
    """
    if left and right:
        factors = len(left[0][0]) + len(right[0][0])  # the longest product stands first
        if factors > MOST_FACTORS or len(left) * len(right) > 10 * MOST_TERMS:
            raise too_large(left, factors, len(left) * len(right))
    return collect((tuple(sorted(a + b)), j * k) for a, j in left for b, k in right)


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """monomial / part, or None when it does not divide."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _divide(left: Terms, right: Terms) -> tuple[Terms, Terms]:
    """quotient and rest with left == quotient*right + rest, where no term of the rest can be reduced further.

    Coefficients are divided towards zero, so that 3*n//4 stays as it was written, but the constant downwards, so that
    it ends up in 0..c-1.
    """
    (lead, divisor), *tail = right
    quotient: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    work = left
    while work:
        (monomial, factor), *others = work
        cofactor = _without(monomial, lead)
        if cofactor is None:
            share = 0
        elif monomial == ():
            share = factor // divisor
        else:
            share = abs(factor) // divisor * (1 if factor > 0 else -1)
        if share and cofactor is not None:
            quotient.append((cofactor, share))
            others += multiply(tuple(tail), ((cofactor, -share),))
        rest.append((monomial, factor - share * divisor))
        work = collect(others)
    return collect(quotient), collect(rest)


@lru_cache(maxsize=4096)
def floor_divide(left: Terms, right: Terms) -> Terms:
    """left // right in canonical form; `right` is not the zero polynomial."""
    if right[0][1] < 0:
        left, right = scale(left, -1), scale(right, -1)
    quotient, rest = _divide(left, right)
    return collect(quotient + _quotient_of_rest(rest, right))


def _quotient_of_rest(rest: Terms, right: Terms) -> Terms:
    if not rest:
        return ()
    divisor = constant(right)
    if divisor is not None:
        return _quotient_by_int(rest, divisor)
    both = rest + right
    factor = math.gcd(*(k for _, k in both))
    common = both[0][0]
    for monomial, _ in both:
        common = tuple(_shared(common, monomial))
    if factor > 1 or common:
        return floor_divide(_cancel(rest, common, factor), _cancel(right, common, factor))
    return _atom("//", rest, right)


def _shared(left: Monomial, right: Monomial) -> Iterator[Atom]:
    remaining = list(right)
    for atom in left:
        if atom in remaining:
            remaining.remove(atom)
            yield atom


def _cancel(terms: Terms, common: Monomial, factor: int) -> Terms:
    return collect((_without(m, common) or (), k // factor) for m, k in terms)


def _quotient_by_int(rest: Terms, divisor: int) -> Terms:
    """rest // divisor for a positive int, where the constant of the rest lies in 0..divisor-1."""
    varying = tuple(term for term in rest if term[0] != ())
    offset = sum(k for m, k in rest if m == ())
    if not varying:
        return ()
    if varying[0][1] < 0:
        turned = collect(scale(rest, -1) + number(divisor - 1))
        return scale(floor_divide(turned, number(divisor)), -1)
    factor = math.gcd(divisor, *(k for _, k in varying))
    if factor > 1:
        smaller = collect(_cancel(varying, (), factor) + number(offset // factor))
        return floor_divide(smaller, number(divisor // factor))
    for monomial, sign in varying:
        inner = monomial[0]
        if len(monomial) == 1 and inner.kind == "//" and abs(sign) == 1 and (c := constant(inner.operands[1])):
            # p//c is an integer, so it may enter the numerator; -(p//c) == (-p + c-1)//c
            numerator = inner.operands[0] if sign > 0 else collect(scale(inner.operands[0], -1) + number(c - 1))
            others = scale(collect((*rest, (monomial, -sign))), c)
            return floor_divide(collect(numerator + others), number(c * divisor))
    return _atom("//", rest, number(divisor))


def extreme(kind: str, operands: Iterable[Terms]) -> Terms:
    """min or max: nested ones become one, and an operand that never wins falls out."""
    candidates: list[Terms] = []
    for terms in operands:
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0].kind == kind:
            candidates += terms[0][0][0].operands
        else:
            candidates.append(terms)
    candidates = sorted(set(candidates))
    sign = 1 if kind == "min" else -1
    kept: list[Terms] = []
    for k, terms in enumerate(candidates):
        rivals = kept + candidates[k + 1 :]
        if not any(never_negative(collect(scale(terms, sign) + scale(rival, -sign))) for rival in rivals):
            kept.append(terms)
    return kept[0] if len(kept) == 1 else _atom(kind, *kept)


def never_negative(terms: Terms) -> bool:
    """Whether a polynomial is surely >= 0; False when that is not plain to see.

    A maximum is at least each of its operands, and a minimum that is subtracted at most: `1 - min(1, n)` is >= 1 - 1.
    """
    if all(factor > 0 and all(_atom_never_negative(atom) for atom in monomial) for monomial, factor in terms):
        return True
    bounded = (k for k, (monomial, factor) in enumerate(terms) if _is_bounded(monomial, factor))
    k = next(bounded, None)
    if k is None or sum(1 for _ in bounded) >= MOST_BOUNDED:
        return False
    (atom,), factor = terms[k]
    others = (*terms[:k], *terms[k + 1 :])
    return any(never_negative(collect(others + scale(operand, factor))) for operand in atom.operands)


def _is_bounded(monomial: Monomial, factor: int) -> bool:
    """Whether a term is at least as large as one with an operand in place of its atom."""
    return len(monomial) == 1 and monomial[0].kind == ("max" if factor > 0 else "min")


def _atom_never_negative(atom: Atom) -> bool:
    known = map(never_negative, atom.operands)
    return any(known) if atom.kind == "max" else all(known)


# ------------------------------------------------------------------------------------- print and evaluation


def format_terms(terms: Terms) -> str:
    """The text of a polynomial in the dims language, so that it can be read again."""
    for monomial, factor in terms:
        if len(monomial) == 1 and monomial[0].kind == "//":
            result = _as_remainder(terms, monomial[0], factor)
            if result:
                return result
    return _join(_format_term(monomial, factor) for monomial, factor in terms)


def _join(parts: Iterable[str]) -> str:
    text = " + ".join(parts).replace("+ -", "- ")
    return text or "0"


def _as_remainder(terms: Terms, atom: Atom, factor: int) -> str | None:
    """`p - 4*(p//4)` is shown as `p%4` where p stands there in full."""
    numerator, divisor = atom.operands
    c = constant(divisor)
    if not c or factor % c:
        return None
    times = -factor // c
    rest = collect(terms + scale(numerator, -times) + (((atom,), -factor),))
    varying = [term for term in numerator if term[0] != ()]
    if len([term for term in rest if term[0] != ()]) != len(terms) - (terms[-1][0] == ()) - 1 - len(varying):
        return None
    shown = f"{bracketed(format_terms(numerator))}%{c}"
    part = shown if times == 1 else f"-({shown})" if times == -1 else f"{times}*({shown})"
    return _join([part, format_terms(rest)] if rest else [part])


def _format_term(monomial: Monomial, factor: int) -> str:
    if not monomial:
        return str(factor)
    alone = len(monomial) == 1 and factor == 1
    texts = [_format_atom(atom) if alone or atom.kind != "//" else f"({_format_atom(atom)})" for atom in monomial]
    return {1: "", -1: "-"}.get(factor, f"{factor}*") + "*".join(texts)


def _format_atom(atom: Atom) -> str:
    if atom.kind == "":
        return atom.name
    if atom.kind == "//":
        numerator, divisor = map(format_terms, atom.operands)
        return f"{bracketed(numerator)}//{bracketed(divisor)}"
    return f"{atom.kind}({', '.join(map(format_terms, atom.operands))})"


def bracketed(text: str) -> str:
    """The text, in parentheses unless it is a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def evaluate(terms: Terms, values: Mapping[str, Any]) -> Any:
    """The value, given one for each symbol: an int, or a dim where values are dims.

    Raises:
        DimDivisionError: EK0332 a division by zero.
    """
    total: Any = 0
    for monomial, factor in terms:
        product: Any = factor
        for atom in monomial:
            product = product * _atom_value(atom, values)
        total = total + product
    return total


def _atom_value(atom: Atom, values: Mapping[str, object]) -> Any:
    if atom.kind == "":
        return values[atom.name]
    first, *others = (evaluate(terms, values) for terms in atom.operands)
    for other in others:
        if atom.kind == "//":
            if other == 0:
                raise division_by_zero(_format_atom(atom))
            first = first // other
        else:
            first = smallest(first, other) if atom.kind == "min" else largest(first, other)
    return first


def symbols_in(terms: Terms) -> Iterator[str]:
    """The name of every symbol, as often as it stands there."""
    for monomial, _ in terms:
        for atom in monomial:
            if atom.kind == "":
                yield atom.name
            for operand in atom.operands:
                yield from symbols_in(operand)


class DimDivisionError(GraphError, ZeroDivisionError):
    """A dim whose divisor is zero."""


def division_by_zero(text: str) -> DimDivisionError:
    """The error of a dim whose divisor is zero."""
    return DimDivisionError(f"the dim {text} divides by zero", code="EK0332", place=user_place())


def is_too_large(terms: Terms) -> bool:
    """Whether a number in it needs more than 64 bits, or it has too many parts."""
    if len(terms) > MOST_TERMS or any(not -LIMIT <= factor <= LIMIT for _, factor in terms):
        return True
    return sum(len(monomial) for monomial, _ in terms) > 1 and _parts(terms) > MOST_PARTS


def too_large(terms: Terms, factors: int = 0, products: int = 0) -> GraphError:
    """The error of a dim with a number that 64 bits do not hold, or that is too long or nested too deeply.

    `factors` are those of the longest product, and `products` the terms before they are added up.
    """
    value = constant(terms)
    most = max((abs(factor) for _, factor in terms), default=0)
    got, expected = in_short(most), "numbers up to 2**63 - 1"
    if value is not None and most > LIMIT:
        text = f"the size {in_short(value)} needs more than 64 bits"
    elif most > LIMIT:
        text = f"a dim has the factor {in_short(most)}, which needs more than 64 bits"
    elif factors > MOST_FACTORS:
        text = f"a dim is too complex: it has a product of {factors} sizes"
        got, expected = str(factors), f"products of up to {MOST_FACTORS} sizes"
    else:
        count = max(len(terms), products)
        text = f"a dim is too complex: it has {count} terms, or quotients in quotients {MOST_NESTED} deep"
        text += f", or more than {MOST_PARTS} parts"
    return GraphError(text, code="EK0335", place=user_place(), expected=expected, got=got)
