"""Defines the dims language: what stands in the second place of `InputTensor[T, "m (2*k + pad)"]`.

    items       separated by blanks
    n           one axis, named n              *s          any number of axes, named s
    3           one axis of a fixed size       *s{p}       as many axes as the parameter expression p says
    _           one axis, whatever size        (2*d + p)   one axis whose size is computed

    expression  + - * // % unary minus, min(...), max(...), ceildiv(a, b), sum(n_k), integers, names, parentheses

Here are its syntax tree, the print of it, and what expressions mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Protocol

from ..diagnostics.dataclass import dataclass


class DimLike(Protocol):
    """A size: an int, or an object that computes like one (and has `minimum` and `maximum`, which ints need not)."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __rfloordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...
    def __rmod__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...


# ---------------------------------------------------------------------------------------------- syntax tree


@dataclass(frozen=True)
class DimNumber:
    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class DimName:
    """A dim or an integer parameter. `at` is its offset in the text, for messages only."""

    name: str
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Negate:
    operand: Expression

    def __str__(self) -> str:
        return f"-{_bracketed(self.operand, 3)}"


@dataclass(frozen=True)
class DimOperation:
    """`operator` is one of + - * // %; all associate to the left and follow Python's sign rules."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        level = _level(self)
        blank = " " if level == 1 else ""
        left, right = _bracketed(self.left, level), _bracketed(self.right, level + 1)
        return f"{left}{blank}{self.operator}{blank}{right}"


@dataclass(frozen=True)
class FunctionCall:
    """`function` is min, max, ceildiv or sum (over the tensors of a variadic argument)."""

    function: str
    arguments: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Expression = DimNumber | DimName | Negate | DimOperation | FunctionCall


@dataclass(frozen=True)
class Axis:
    """One axis; a name that stands twice has one size."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FixedAxis:
    """One axis of a fixed size."""

    size: int

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True)
class AnyAxis:
    """One axis, whatever its size."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True)
class Pack:
    """Any number of axes, or as many as `count` says. The name `_` binds nothing."""

    name: str
    count: Expression | None = None

    def __str__(self) -> str:
        return f"*{self.name}" if self.count is None else f"*{self.name}{{{self.count}}}"


@dataclass(frozen=True)
class Computed:
    """One axis whose size an expression gives."""

    expression: Expression

    def __str__(self) -> str:
        return f"({self.expression})"


DimItem = Axis | FixedAxis | AnyAxis | Pack | Computed

FUNCTIONS = {
    "min": (1, None),
    "max": (1, None),
    "ceildiv": (2, 2),
    "sum": (1, 1),
}  # the least and the greatest number of arguments


def _level(expression: Expression) -> int:
    """How tightly the outermost operator binds: 1 sums, 2 products, 3 unary minus, 4 what needs no parentheses."""
    if isinstance(expression, DimOperation):
        return 1 if expression.operator in "+-" else 2
    return 3 if isinstance(expression, Negate) else 4


def _bracketed(expression: Expression, level: int) -> str:
    return str(expression) if _level(expression) >= level else f"({expression})"


def format_dims(items: tuple[DimItem, ...]) -> str:
    """The text of items; parsing it gives equal items."""
    return " ".join(map(str, items))


def names_in(expression: Expression) -> Iterator[DimName]:
    """Every name an expression mentions, from left to right."""
    if isinstance(expression, DimName):
        yield expression
    elif isinstance(expression, Negate):
        yield from names_in(expression.operand)
    elif isinstance(expression, DimOperation):
        yield from names_in(expression.left)
        yield from names_in(expression.right)
    elif isinstance(expression, FunctionCall):
        for argument in expression.arguments:
            yield from names_in(argument)


# ---------------------------------------------------------------------------------------------- evaluation


def evaluate(expression: Expression, values: Mapping[str, DimLike]) -> Any:
    """The value of an expression: an int when all values are ints, else what their operators give.

    Raises:
        KeyError: a name has no value.
        ZeroDivisionError: a division or remainder by zero.
    """
    if isinstance(expression, DimNumber):
        return expression.value
    if isinstance(expression, DimName):
        return values[expression.name]
    if isinstance(expression, Negate):
        return -evaluate(expression.operand, values)
    if isinstance(expression, DimOperation):
        return _apply(expression.operator, evaluate(expression.left, values), evaluate(expression.right, values))
    result, *others = (evaluate(argument, values) for argument in expression.arguments)
    for other in others:
        result = _apply(expression.function, result, other)
    return result


def _apply(operator: str, left: Any, right: Any) -> Any:
    if operator in ("//", "%", "ceildiv") and right == 0:
        raise ZeroDivisionError(operator)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case "%":
            return left % right
        case "ceildiv":
            return -(-left // right)
    return smallest(left, right) if operator == "min" else largest(left, right)


def smallest(left: Any, right: Any) -> Any:
    """The smaller of two sizes; of symbolic ones by their own `minimum`, since they have no order to request."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return right.minimum(left) if isinstance(left, int) else left.minimum(right)


def largest(left: Any, right: Any) -> Any:
    """The larger of two sizes, as `smallest`."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return right.maximum(left) if isinstance(left, int) else left.maximum(right)
