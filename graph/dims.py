"""Symbolic dims: sizes that are known, named, or computed from named ones, with exact integer algebra.

Every `Dim` is held in one canonical form, so equal expressions are equal objects: a polynomial with integer
coefficients over *atoms*. An atom is a symbol (`n`), a floor quotient (`n//4`), a `min` or a `max`; the operands of the
latter are canonical forms again. Remainders and `ceildiv` need no atoms of their own:

    a % b  ==  a - b*(a//b)              ceildiv(a, b)  ==  -(-a // b)

so that `n%4 + 4*(n//4) == n` falls out. A quotient is reduced by the rules (a, c positive integers)

    (q*b + r)//b == q + r//b             (4*n + 8)//4   == n + 2       division of polynomials with a rest
    (g*p + k)//(g*c) == (p + k//g)//c    (2*n + 1)//4   == n//2        common factor
    (p//a + q)//c == (p + a*q)//(a*c)    (n//2)//3      == n//6        nested quotients
    (-p)//c == -((p + c-1)//c)           -(-n//4)       == (n + 3)//4  a leading minus

All hold for all integers and non-zero divisors (`n//n` is 1: the case n = 0 has no value to differ from). Beyond
these, equality is structural: that two forms differ does not prove that the sizes do. `min` and `max` drop an operand
that can never win, given that a symbol, being a size, is not negative.

Input: ints, names, and the operators. Output: immutable, hashable values with a deterministic print. Non-goals: no
solving of equations, no ranges of symbols.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, SupportsIndex, overload

from ..dsl.dims import largest, smallest
from ..dsl.errors import GraphError, did_you_mean

# ------------------------------------------------------------------------------------- polynomials over atoms


class Atom(NamedTuple):
    """What a polynomial is made of. `kind` is "" for a symbol (with `name`), or "//", "min", "max" (with operands)."""

    kind: str
    name: str
    operands: tuple[Terms, ...]


Monomial = tuple[Atom, ...]  # sorted, with repetition: n*n*m is (m, n, n)
Terms = tuple[tuple[Monomial, int], ...]  # sorted, highest first, no zero coefficient: 2*n + 3 is (((n,), 2), ((), 3))


def _rank(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """Graded lexical order. Products keep it, which is what makes the division of polynomials end."""
    return -len(term[0]), term[0]


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Terms:
    total: dict[Monomial, int] = {}
    for monomial, factor in terms:
        total[monomial] = total.get(monomial, 0) + factor
    return tuple(sorted(((m, k) for m, k in total.items() if k), key=_rank))


def _number(value: int) -> Terms:
    return (((), value),) if value else ()


def _constant(terms: Terms) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else None


def _scale(terms: Terms, factor: int) -> Terms:
    return tuple((m, k * factor) for m, k in terms) if factor else ()


def _multiply(left: Terms, right: Terms) -> Terms:
    return _collect((tuple(sorted(a + b)), j * k) for a, j in left for b, k in right)


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
            others += _multiply(tuple(tail), ((cofactor, -share),))
        rest.append((monomial, factor - share * divisor))
        work = _collect(others)
    return _collect(quotient), _collect(rest)


@lru_cache(maxsize=4096)
def _floor_divide(left: Terms, right: Terms) -> Terms:
    """left // right in canonical form; `right` is not the zero polynomial."""
    if right[0][1] < 0:
        left, right = _scale(left, -1), _scale(right, -1)
    quotient, rest = _divide(left, right)
    return _collect(quotient + _quotient_of_rest(rest, right))


def _quotient_of_rest(rest: Terms, right: Terms) -> Terms:
    if not rest:
        return ()
    divisor = _constant(right)
    if divisor is not None:
        return _quotient_by_int(rest, divisor)
    both = rest + right
    factor = math.gcd(*(k for _, k in both))
    common = both[0][0]
    for monomial, _ in both:
        common = tuple(_shared(common, monomial))
    if factor > 1 or common:
        return _floor_divide(_cancel(rest, common, factor), _cancel(right, common, factor))
    return (((Atom("//", "", (rest, right)),), 1),)


def _shared(left: Monomial, right: Monomial) -> Iterator[Atom]:
    remaining = list(right)
    for atom in left:
        if atom in remaining:
            remaining.remove(atom)
            yield atom


def _cancel(terms: Terms, common: Monomial, factor: int) -> Terms:
    return _collect((_without(m, common) or (), k // factor) for m, k in terms)


def _quotient_by_int(rest: Terms, divisor: int) -> Terms:
    """rest // divisor for a positive int, where the constant of the rest lies in 0..divisor-1."""
    varying = tuple(term for term in rest if term[0] != ())
    constant = sum(k for m, k in rest if m == ())
    if not varying:
        return ()
    if varying[0][1] < 0:
        turned = _collect(_scale(rest, -1) + _number(divisor - 1))
        return _scale(_floor_divide(turned, _number(divisor)), -1)
    factor = math.gcd(divisor, *(k for _, k in varying))
    if factor > 1:
        smaller = _collect(_cancel(varying, (), factor) + _number(constant // factor))
        return _floor_divide(smaller, _number(divisor // factor))
    for monomial, sign in varying:
        inner = monomial[0]
        if len(monomial) == 1 and inner.kind == "//" and abs(sign) == 1 and (c := _constant(inner.operands[1])):
            # p//c is an integer, so it may enter the numerator; -(p//c) == (-p + c-1)//c
            numerator = inner.operands[0] if sign > 0 else _collect(_scale(inner.operands[0], -1) + _number(c - 1))
            others = _scale(_collect((*rest, (monomial, -sign))), c)
            return _floor_divide(_collect(numerator + others), _number(c * divisor))
    return (((Atom("//", "", (rest, _number(divisor))),), 1),)


def _extreme(kind: str, operands: Iterable[Terms]) -> Terms:
    """min or max: nested ones melt together, and an operand that never wins falls out."""
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
        if not any(_never_negative(_collect(_scale(terms, sign) + _scale(rival, -sign))) for rival in rivals):
            kept.append(terms)
    return kept[0] if len(kept) == 1 else (((Atom(kind, "", tuple(kept)),), 1),)


def _never_negative(terms: Terms) -> bool:
    """Whether a polynomial is surely >= 0; False when that is not plain to see."""
    return all(factor > 0 and all(_atom_never_negative(atom) for atom in monomial) for monomial, factor in terms)


def _atom_never_negative(atom: Atom) -> bool:
    known = map(_never_negative, atom.operands)
    return any(known) if atom.kind == "max" else all(known)


# ------------------------------------------------------------------------------------- print and evaluation


def _format(terms: Terms) -> str:
    """In the dims language, so that it can be read again."""
    for monomial, factor in terms:
        if len(monomial) == 1 and monomial[0].kind == "//":
            found = _as_remainder(terms, monomial[0], factor)
            if found:
                return found
    return _join(_format_term(monomial, factor) for monomial, factor in terms)


def _join(parts: Iterable[str]) -> str:
    text = " + ".join(parts).replace("+ -", "- ")
    return text or "0"


def _as_remainder(terms: Terms, atom: Atom, factor: int) -> str | None:
    """`p - 4*(p//4)` is shown as `p%4` where p stands there in full."""
    numerator, divisor = atom.operands
    c = _constant(divisor)
    if not c or factor % c:
        return None
    times = -factor // c
    rest = _collect(terms + _scale(numerator, -times) + (((atom,), -factor),))
    varying = [term for term in numerator if term[0] != ()]
    if len([term for term in rest if term[0] != ()]) != len(terms) - (terms[-1][0] == ()) - 1 - len(varying):
        return None
    shown = f"{_factor(_format(numerator))}%{c}"
    part = shown if times == 1 else f"-({shown})" if times == -1 else f"{times}*({shown})"
    return _join([part, _format(rest)] if rest else [part])


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
        numerator, divisor = map(_format, atom.operands)
        return f"{_factor(numerator)}//{_factor(divisor)}"
    return f"{atom.kind}({', '.join(map(_format, atom.operands))})"


def _factor(text: str) -> str:
    """The text, in parentheses unless it is a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _value(terms: Terms, values: Mapping[str, Any]) -> Any:
    total: Any = 0
    for monomial, factor in terms:
        product: Any = factor
        for atom in monomial:
            product = product * _atom_value(atom, values)
        total = total + product
    return total


def _atom_value(atom: Atom, values: Mapping[str, Any]) -> Any:
    if atom.kind == "":
        return values[atom.name]
    first, *others = (_value(terms, values) for terms in atom.operands)
    for other in others:
        if atom.kind == "//":
            if other == 0:
                raise _division_by_zero(_format_atom(atom))
            first = first // other
        else:
            first = smallest(first, other) if atom.kind == "min" else largest(first, other)
    return first


def _symbols(terms: Terms) -> Iterator[str]:
    for monomial, _ in terms:
        for atom in monomial:
            if atom.kind == "":
                yield atom.name
            for operand in atom.operands:
                yield from _symbols(operand)


def _division_by_zero(text: str) -> GraphError:
    return GraphError(f"the dim {text} divides by zero", code="EK0332")


# ------------------------------------------------------------------------------------- dims


class Dim:
    """The size of one axis. `Dim(3)` is a `StaticDim`, `Dim("n")` a `SymbolicDim`; arithmetic gives `AlgebraicDim`s.

    `+ - * // %` take dims and ints on both sides and fold (`//` and `%` round down). `==` compares canonical forms,
    with an int by value and with a string by name, and always gives a plain bool: `dim % 8 == 0` says whether it is
    known that 8 divides. `<` and its kin answer when all sizes give the same answer, and raise otherwise.

    Raises:
        GraphError: EK0330 not a size or not a name, EK0331 a number is asked of a dim that has none yet,
            EK0332 division by zero, EK0333 an order that depends on the sizes, EK0334 a symbol without a value.
    """

    __slots__ = ("_hash", "_terms")
    _terms: Terms
    _hash: int

    def __new__(cls, value: int | str | SupportsIndex | Dim) -> Dim:
        found = value if isinstance(value, Dim) else _dim_of(value)
        if not isinstance(found, cls):
            raise GraphError(f"{value!r} is not a {cls.__name__}", code="EK0330", expected=cls.__name__, got=value)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._terms,)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The symbols that the dim is made of, in alphabetical order."""
        return tuple(sorted(set(_symbols(self._terms))))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The size, given a value for each symbol."""
        for name in self.parameters:
            if name not in values:
                raise GraphError(
                    f"dim {name!r} of {self} has no value", code="EK0334", hint=did_you_mean(name, values), got=name
                )
        return int(_value(self._terms, values))

    def substitute(self, values: Mapping[str, int | Dim]) -> Dim:
        """The dim with some symbols replaced."""
        return Dim(_value(self._terms, {name: _make(_symbol(name)) for name in self.parameters} | dict(values)))

    def minimum(self, other: int | Dim) -> Dim:
        """The smaller of the two sizes."""
        return _make(_extreme("min", (self._terms, _expect(other))))

    def maximum(self, other: int | Dim) -> Dim:
        """The larger of the two sizes."""
        return _make(_extreme("max", (self._terms, _expect(other))))

    def __add__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(_collect(self._terms + terms))

    def __sub__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(_collect(self._terms + _scale(terms, -1)))

    def __rsub__(self, other: object) -> Dim:
        return (-self) + other

    def __mul__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(_multiply(self._terms, terms))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _make(_scale(self._terms, -1))

    def __floordiv__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _quotient(self._terms, terms, "//")

    def __rfloordiv__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _quotient(terms, self._terms, "//")

    def __mod__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _remainder(self._terms, terms)

    def __rmod__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _remainder(terms, self._terms)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self._terms == _symbol(other)
        terms = _number(other) if isinstance(other, bool) else _terms_of(other)
        return NotImplemented if terms is None else self._terms == terms

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: object) -> bool:
        return _is_less(self, other, f"{self} < {other}")

    def __gt__(self, other: object) -> bool:
        return _is_less(other, self, f"{self} > {other}")

    def __le__(self, other: object) -> bool:
        return not _is_less(other, self, f"{self} <= {other}")

    def __ge__(self, other: object) -> bool:
        return not _is_less(self, other, f"{self} >= {other}")

    def __bool__(self) -> bool:
        return int(self) != 0

    def __int__(self) -> int:
        value = _constant(self._terms)
        if value is None:
            raise GraphError(
                f"dim {self} has no number until the graph runs",
                code="EK0331",
                expected="a static dim",
                got=str(self),
                hint="compute with the dim itself; + - * // % work on it",
            )
        return value

    def __str__(self) -> str:
        return _format(self._terms)

    def __repr__(self) -> str:
        return f"Dim({self})"


class StaticDim(Dim):
    """A known size: `StaticDim(3).dim == 3`."""

    __slots__ = ()

    @property
    def dim(self) -> int:
        return int(self)

    def __index__(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return f"Dim({int(self)})"


class SymbolicDim(Dim):
    """A size that a name stands for: `SymbolicDim("n").name == "n"`. The same name has the same size everywhere."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self._terms[0][0][0].name

    def __repr__(self) -> str:
        return f"Dim({self.name!r})"


class AlgebraicDim(Dim):
    """A size computed from named ones, as `2*n + 1`. Only arithmetic makes it."""

    __slots__ = ()


def _symbol(name: str) -> Terms:
    return (((Atom("", name, ()),), 1),)


def _make(terms: Terms) -> Dim:
    """The dim of the class that fits a canonical form."""
    value = _constant(terms)
    is_symbol = len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0].kind == ""
    made: Dim = object.__new__(StaticDim if value is not None else SymbolicDim if is_symbol else AlgebraicDim)
    made._terms = terms
    # equal to an int or a string means the same hash
    made._hash = hash(value) if value is not None else hash(terms[0][0][0].name) if is_symbol else hash(terms)
    return made


def _dim_of(value: object) -> Dim:
    if isinstance(value, str):
        if not value.isidentifier() or value == "_":
            raise GraphError(
                f"{value!r} is not a name for a dim",
                code="EK0330",
                got=value,
                hint="a dim's name is an identifier; write an expression with dims, as in 2*Dim('n')",
            )
        return _make(_symbol(value))
    return _make(_expect(value))


def _terms_of(value: object) -> Terms | None:
    """The canonical form of a dim or an int, None for anything else."""
    if isinstance(value, Dim):
        return value._terms
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return _number(operator.index(value))
    except TypeError:  # an array that is not a number
        return None


def _expect(value: object) -> Terms:
    terms = _terms_of(value)
    if terms is None:
        raise GraphError(
            f"{value!r} ({type(value).__name__}) is not a size",
            code="EK0330",
            expected="int, str or Dim",
            got=type(value).__name__,
        )
    return terms


def _quotient(left: Terms, right: Terms, sign: str) -> Dim:
    if not right:
        raise _division_by_zero(f"{_factor(_format(left))}{sign}0")
    return _make(_floor_divide(left, right))


def _remainder(left: Terms, right: Terms) -> Dim:
    return _make(left) - _make(right) * _quotient(left, right, "%")


def _is_less(left: object, right: object, shown: str) -> bool:
    difference = _collect(_expect(right) + _scale(_expect(left), -1))
    if _never_negative(_collect(difference + _number(-1))):
        return True
    if _never_negative(_scale(difference, -1)):
        return False
    raise GraphError(f"whether {shown} depends on the sizes that come when the graph runs", code="EK0333")


def ceildiv(left: int | Dim, right: int | Dim) -> Dim:
    """left / right, rounded up."""
    return -(-Dim(left) // right)


def dim_min(first: int | Dim, *others: int | Dim) -> Dim:
    """The smallest of some sizes."""
    return _make(_extreme("min", map(_expect, (first, *others))))


def dim_max(first: int | Dim, *others: int | Dim) -> Dim:
    """The largest of some sizes."""
    return _make(_extreme("max", map(_expect, (first, *others))))


class Shape(tuple[Dim, ...]):
    """The sizes of all axes: a tuple of dims, equal to a tuple or list of ints and names where these are equal."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | str | Dim] = ()) -> Shape:
        return super().__new__(cls, (Dim(dim) for dim in dims))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known."""
        return all(isinstance(dim, StaticDim) for dim in self)

    @property
    def static_dims(self) -> list[int]:
        """The sizes that are known, in order, without the others."""
        return [int(dim) for dim in self if isinstance(dim, StaticDim)]

    @property
    def num_elements(self) -> Dim:
        """The product of the sizes; 1 for rank 0."""
        return math.prod(self, start=Dim(1))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The symbols of all dims, in alphabetical order."""
        return tuple(sorted({name for dim in self for name in dim.parameters}))

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> Dim: ...
    @overload
    def __getitem__(self, key: slice, /) -> Shape: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> Dim | Shape:
        found = super().__getitem__(key)
        return Shape(found) if isinstance(found, tuple) else found

    def __add__(self, other: Iterable[int | str | Dim]) -> Shape:  # type: ignore[override]  # the dims are converted
        return Shape((*self, *other))

    def __radd__(self, other: Iterable[int | str | Dim]) -> Shape:
        return Shape((*other, *self))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:  # tuple has one of its own, which would know nothing of lists
        return not self == other

    __hash__ = tuple.__hash__

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"

    def __repr__(self) -> str:
        return f"Shape({self})"
