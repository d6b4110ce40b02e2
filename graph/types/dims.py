"""Computes with dims: sizes that are known, named, or made of named ones, by exact integer algebra.

Every `Dim` is held in one canonical form (see `polynomial`), so equal expressions are equal objects. Remainders and
`ceildiv` are polynomials over floor quotients:

    a % b  ==  a - b*(a//b)              ceildiv(a, b)  ==  -(-a // b)

so that `n%4 + 4*(n//4) == n` falls out.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, overload

from ...dsl.diagnostics.errors import EinkornError, GraphError, brief, did_you_mean, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ..arguments import list_of
from .polynomial import (
    Terms,
    bracketed,
    collect,
    constant,
    division_by_zero,
    evaluate,
    extreme,
    floor_divide,
    format_terms,
    is_too_large,
    multiply,
    never_negative,
    number,
    scale,
    symbol,
    symbols_in,
    too_large,
)


class Dim:
    """The size of one axis. `Dim(3)` is a `StaticDim`, `Dim("n")` a `SymbolicDim`; arithmetic gives `AlgebraicDim`s.

    `+ - * // %` take dims, ints and names on both sides and fold (`//` and `%` round down); NumPy's ints count as ints,
    bools and floats are not sizes. `==` compares canonical forms, with an int by value and with a string by name, and
    always gives a plain bool: `dim % 8 == 0` says whether it is known that 8 divides. `<` and its kin answer when all
    sizes give the same answer, and raise otherwise.

    Raises:
        GraphError: EK0330 not a size or not a name, EK0331 a number is requested of a dim that has none yet,
            EK0332 division by zero (also a ZeroDivisionError), EK0333 an order that depends on the sizes, EK0334 a
            symbol without a value, EK0335 a number that 64 bits do not hold.
    """

    __slots__ = ("_hash", "_terms")
    __array_ufunc__ = None  # NumPy's numbers leave the reflected operators to this class, which keeps them dims
    _terms: Terms
    _hash: int

    def __new__(cls, value: int | str | SupportsIndex | Dim) -> Dim:
        result = value if isinstance(value, Dim) else _make(_expect(value))
        if not isinstance(result, cls):
            _fail(f"{value!r} is not a {cls.__name__}", code="EK0330", expected=cls.__name__, got=str(result))
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._terms,)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The symbols that the dim is made of, in alphabetical order."""
        return tuple(sorted(set(symbols_in(self._terms))))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The size, given a value for each symbol."""
        for name in self.parameters:
            if not isinstance(values, Mapping) or name not in values:
                hint = did_you_mean(name, values) if isinstance(values, Mapping) else None
                _fail(f"dim {name!r} of {self} has no value", code="EK0334", hint=hint, got=name)
            if type(values[name]) is not int and constant(_expect(values[name])) is None:
                _fail(f"dim {name!r} of {self} has no number but {shown_value(values[name])}", code="EK0334", got=name)
        return int(evaluate(self._terms, values))

    def substitute(self, values: Mapping[str, int | str | Dim]) -> Dim:
        """The dim with some symbols replaced."""
        if not isinstance(values, Mapping):
            _fail(f"{shown_value(values)} names no dims with their values", code="EK0334", argument="values")
        results = {name: Dim(values.get(name, name)) for name in self.parameters}
        return Dim(evaluate(self._terms, results))

    def minimum(self, other: int | Dim) -> Dim:
        """The smaller of the two sizes."""
        return _make(extreme("min", (self._terms, _expect(other))))

    def maximum(self, other: int | Dim) -> Dim:
        """The larger of the two sizes."""
        return _make(extreme("max", (self._terms, _expect(other))))

    def __add__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(collect(self._terms + terms))

    def __sub__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(collect(self._terms + scale(terms, -1)))

    def __rsub__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(collect(terms + scale(self._terms, -1)))

    def __mul__(self, other: object) -> Dim:
        terms = _terms_of(other)
        return NotImplemented if terms is None else _make(multiply(self._terms, terms))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _make(scale(self._terms, -1))

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
        if isinstance(other, Dim):  # nearly always
            return self is other or self._terms == other._terms
        if isinstance(other, str):
            return self._terms == symbol(other)
        terms = number(other) if isinstance(other, bool) else _terms_of(other)
        return NotImplemented if terms is None else self._terms == terms

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: object) -> bool:
        return _is_less(self, other)

    def __gt__(self, other: object) -> bool:
        return _is_less(other, self)

    def __le__(self, other: object) -> bool:
        return not _is_less(other, self)

    def __ge__(self, other: object) -> bool:
        return not _is_less(self, other)

    def __bool__(self) -> bool:
        return int(self) != 0

    def __int__(self) -> int:
        value = constant(self._terms)
        if value is None:
            _fail(
                f"dim {self} has no number until the graph runs",
                code="EK0331",
                expected="a static dim",
                got=str(self),
                hint="compute with the dim itself; + - * // % work on it",
            )
        return value

    if not TYPE_CHECKING:  # for type checkers only a static dim is a number

        def __float__(self) -> float:
            return float(int(self))

    def __str__(self) -> str:
        return format_terms(self._terms)

    def __repr__(self) -> str:
        return f"Dim({self})"


class StaticDim(Dim):
    """A known size: `StaticDim(3).dim == 3`."""

    __slots__ = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return ()

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

    if not TYPE_CHECKING:

        def __index__(self) -> NoReturn:
            _no_index(self)

    def __repr__(self) -> str:
        return f"Dim({self.name!r})"


class AlgebraicDim(Dim):
    """A size computed from named ones, as `2*n + 1`. Only arithmetic makes it."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __index__(self) -> NoReturn:
            _no_index(self)


class NoNumberError(GraphError, TypeError):
    """A dim has no number where Python takes one; Python's own error there is a TypeError."""


def _no_index(dim: Dim) -> NoReturn:
    """Raises the error of `range(dim)` and `[0] * dim`."""
    raise NoNumberError(
        f"dim {dim} has no number until the graph runs",
        code="EK0331",
        place=user_place(),
        expected="a static dim",
        got=str(dim),
        hint="ops take the dim itself, as in ops.broadcast_to(0.0, x.shape); rounds over a size are ops.while_loop; "
        "with a number in the input types the dim is static",
    )


def _make(terms: Terms) -> Dim:
    """The dim of the class that fits a canonical form."""
    if is_too_large(terms):
        raise too_large(terms)
    value = constant(terms)
    is_symbol = len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0].kind == ""
    made: Dim = object.__new__(StaticDim if value is not None else SymbolicDim if is_symbol else AlgebraicDim)
    made._terms = terms
    # equal to an int or a string means the same hash
    made._hash = hash(value) if value is not None else hash(terms[0][0][0].name) if is_symbol else hash(terms)
    return made


def _fail(message: str, **details: Any) -> NoReturn:
    raise GraphError(message, place=user_place(), **details)


def private_dim(name: str) -> Dim:
    """A named dim of the runtime's own; a user's name is an identifier, so that none is this one."""
    return _make(symbol(name))


def _terms_of(value: object) -> Terms | None:
    """The canonical form of a dim, an int or a name, None for anything else."""
    if isinstance(value, Dim):
        return value._terms
    if isinstance(value, str):
        return symbol(_name(value))
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return None
    if type(value) is int:
        return number(value)
    try:
        return number(operator.index(value))  # type: ignore[arg-type]  # seen above
    except Exception as error:  # an array that is not a number, or whatever a class of the user's raises
        raise_if_of_handler(error)
        return None


def _name(text: str) -> str:
    if not text.isidentifier() or text == "_":
        _fail(
            f"{text!r} is not a name for a dim",
            code="EK0330",
            got=text,
            hint="a dim's name is an identifier; write an expression with dims, as in 2*Dim('n')",
        )
    return str(text)


def _expect(value: object) -> Terms:
    terms = _terms_of(value)
    if terms is None:
        _fail(
            f"{shown_value(value)} is not a size",
            code="EK0330",
            expected="int, str or Dim",
            got=type(value).__name__,
        )
    return terms


def _quotient(left: Terms, right: Terms, sign: str) -> Dim:
    if not right:
        raise division_by_zero(f"{bracketed(format_terms(left))}{sign}0")
    return _make(floor_divide(left, right))


def _remainder(left: Terms, right: Terms) -> Dim:
    return _make(left) - _make(right) * _quotient(left, right, "%")


def _is_less(left: object, right: object) -> bool:
    difference = collect(_expect(right) + scale(_expect(left), -1))
    if never_negative(collect(difference + number(-1))):
        return True
    if never_negative(scale(difference, -1)):
        return False
    shown = " < ".join(str(each) if isinstance(each, Dim | str) else brief(each) for each in (left, right))
    _fail(f"whether {shown} depends on the sizes that come when the graph runs", code="EK0333")


def linear_in(dim: Dim, name: str) -> tuple[int, Dim] | None:
    """The number and the rest for which `dim` is number * name + rest; None where it has another form, or the number
    is 0."""
    rest = dim.substitute({name: 0})
    factor = dim.substitute({name: 1}) - rest
    if not isinstance(factor, StaticDim) or factor == 0 or dim != factor * Dim(name) + rest:
        return None
    return int(factor), rest


def is_below_zero(dim: Dim) -> bool:
    """Whether a dim is surely negative, whatever the sizes that come when the graph runs."""
    if (value := constant(dim._terms)) is not None:
        return value < 0
    return never_negative(collect(scale(dim._terms, -1) + number(-1)))


def signed_parts(dim: Dim) -> tuple[Dim, Dim]:
    """What is added and what is taken away: `n - 2*m` is n and 2*m."""
    added = tuple(term for term in dim._terms if term[1] > 0)
    taken = tuple((factors, -count) for factors, count in dim._terms if count < 0)
    return _make(added), _make(taken)


def ceildiv(left: int | Dim, right: int | Dim) -> Dim:
    """left / right, rounded up."""
    return -(-Dim(left) // right)


def dim_min(first: int | Dim, *others: int | Dim) -> Dim:
    """The smallest of some sizes."""
    return _make(extreme("min", map(_expect, (first, *others))))


def dim_max(first: int | Dim, *others: int | Dim) -> Dim:
    """The largest of some sizes."""
    return _make(extreme("max", map(_expect, (first, *others))))


class Shape(tuple[Dim, ...]):
    """The sizes of all axes: a tuple of dims, equal to a tuple or list of ints and names where these are equal."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | str | Dim] = ()) -> Shape:
        if cls is type(dims) is Shape:
            return dims
        try:
            return super().__new__(cls, [Dim(dim) for dim in list_of("shape", dims, "sizes")])
        except EinkornError as error:
            error.argument = "shape"
            raise

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
        return _product(self)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The symbols of all dims, in alphabetical order."""
        return tuple(sorted({name for dim in self for name in dim.parameters}))

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> Dim: ...
    @overload
    def __getitem__(self, key: slice, /) -> Shape: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> Dim | Shape:
        result = super().__getitem__(key)
        return Shape(result) if isinstance(result, tuple) else result

    def __add__(self, other: Iterable[int | str | Dim]) -> Shape:  # type: ignore[override]  # the dims are converted
        return Shape((*self, *Shape(other)))

    def __radd__(self, other: Iterable[int | str | Dim]) -> Shape:
        return Shape((*Shape(other), *self))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:  # tuple has one of its own, which would know nothing of lists
        return not self == other

    __hash__ = tuple.__hash__

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"

    def __repr__(self) -> str:
        return f"Shape({self})"


class Sizes(Shape):
    """The sizes of a tensor that has values: a `Shape` whose sizes are all known, and are Python's ints."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[int]) -> Sizes:
        return tuple.__new__(cls, sizes)

    @property
    def is_static(self) -> bool:
        """Always true."""
        return True

    @property
    def static_dims(self) -> list[int]:
        """All sizes."""
        return list(tuple.__iter__(self))  # type: ignore[arg-type]

    @property
    def num_elements(self) -> int:  # type: ignore[override]
        """The product of the sizes; 1 for rank 0."""
        return math.prod(self.static_dims)

    @property
    def parameters(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    @overload  # type: ignore[override]
    def __getitem__(self, key: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Sizes: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> int | Sizes:
        result: Any = tuple.__getitem__(self, key)
        return Sizes(result) if isinstance(key, slice) else result

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return tuple.__iter__(self)  # type: ignore[arg-type]

    def __add__(self, other: Iterable[int | str | Dim]) -> Shape:  # type: ignore[override]
        return _joined(tuple(self), list_of("shape", other, "sizes"))

    def __radd__(self, other: Iterable[int | str | Dim]) -> Shape:
        return _joined(tuple(list_of("shape", other, "sizes")), list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Sizes, (tuple(self),)


def _joined(first: Sequence[Any], second: Sequence[Any]) -> Shape:
    """The sizes one behind the other: ints, if all are."""
    sizes = (*first, *second)
    return Sizes(sizes) if all(type(each) is int for each in sizes) else Shape(sizes)


@functools.lru_cache(4096)
def _product(shape: Shape) -> Dim:
    """The number of elements: each pass over a graph requests that of each value, many times."""
    sizes = shape.static_dims
    if len(sizes) == len(shape) and (count := math.prod(sizes)) < 1 << 63:
        return Dim(count)
    return math.prod(shape, start=Dim(1))
