"""Stages `einsum`: products and sums over axes that have names.

Each operand first loses what it has alone: an axis named twice becomes its diagonal, an axis that no other operand
names is summed over. Then operands are taken two at a time, from the left: axes that both have and that are still
wanted are those of a batch, axes that are wanted no more those of a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ...dsl.diagnostics.dataclass import dataclass
from ..arguments import text_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from .elementwise import mul
from .matmul import matmul
from .operands import HINT_FOR_SYMBOLS, as_shape, check_kind, permuted, tensors
from .reduction import sum as sum_along
from .stage import builtin, fail, op

__all__ = ["einsum"]

_NAME = "einsum"
_ONE = StaticDim(1)


@dataclass
class _Named:
    """A tensor with a name for each axis; those of `...` are numbers, counted from the last of them."""

    value: TensorValue
    names: list[str]

    def size(self, name: str) -> Dim:
        return self.value.shape[self.names.index(name)]


@op(example='ops.einsum("ij,jk->ik", x, y)')
def einsum(equation: str, *operands: TensorValueLike) -> TensorValue:
    """Sums of products over named axes, as NumPy's: `ij,jk->ik` is the matrix product, `ii->i` the diagonal.

    Args:
        equation: letters for the axes of each operand, after `->` those of the result; `...` stands for any axes, which
            broadcast. Without `->` the result has the letters that occur once, in the order of the alphabet.
        operands: tensors of numbers, in one dtype as of `mul`; one of size 1 along an axis serves for any size.

    Raises:
        GraphError: EK0414, the equation does not fit the operands, or is not an equation; EK0420, sizes of one name
            differ.
        DTypeError: bool tensors, or dtypes that do not go together.
    """
    terms, result = _parsed(text_of("equation", equation), len(operands))
    values = tensors(_NAME, None, **{f"operands[{k}]": operand for k, operand in enumerate(operands)})
    for k, value in enumerate(values):
        check_kind(_NAME, f"operands[{k}]", value, "numeric")
    named = [_Named(value, _names(term, value, k)) for k, (term, value) in enumerate(zip(terms, values, strict=True))]
    wanted = _result_names(named, result, equation)
    named = _without_ones([_diagonals(each) for each in named])
    result_term = named[0]
    for k, other in enumerate(named[1:], 1):
        later = {name for each in named[k + 1 :] for name in each.names} | set(wanted)
        result_term = _product(
            _summed(result_term, later | set(other.names)), _summed(other, later | set(result_term.names)), later
        )
    result_term = _summed(result_term, set(wanted))
    return _ordered(result_term, wanted)


# *** equations ***


def axis_names(equation: str, operands: Sequence[TensorValue]) -> list[list[str]]:
    """A name for each axis of each operand; axes of `...` are numbers, counted from the last of them.

    Raises:
        GraphError: EK0414, the equation does not fit the operands, or is not an equation.
    """
    terms, _ = _parsed(equation, len(operands))
    return [_names(term, value, k) for k, (term, value) in enumerate(zip(terms, operands, strict=True))]


def _fail(text: str, equation: str) -> NoReturn:
    fail(_NAME, text, code="EK0414", argument="equation", expected="an equation such as 'ij,jk->ik'", got=equation)


def _parsed(equation: str, count: int) -> tuple[list[str], str | None]:
    """The letters of each operand, and of the result if they are given."""
    plain = "".join(equation.split())
    left, arrow, right = plain.partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        rest = term.replace("...", "", 1)
        if not all(letter.isascii() and letter.isalpha() for letter in rest):
            _fail(f"{equation!r} is not an equation: axes are letters, or '...' once in a term", equation)
    if len(terms) != count or count == 0:
        _fail(f"{equation!r} has {len(terms)} operands, and {count} are given", equation)
    return terms, right if arrow else None


def _names(term: str, value: TensorValue, number: int) -> list[str]:
    """A name for each axis of an operand."""
    before, dots, after = term.partition("...")
    open_axes = value.rank - len(before) - len(after)
    if open_axes < 0 or (open_axes and not dots):
        text = f"'{term}' names {len(before) + len(after)} axes, and operand {number} has rank {value.rank}"
        fail(_NAME, text, code="EK0414", argument="equation", expected=f"{value.rank} axes", got=term)
    return [*before, *(str(k) for k in reversed(range(open_axes))), *after]


def _result_names(named: Sequence[_Named], result: str | None, equation: str) -> list[str]:
    """The names of the result's axes."""
    all_names = [name for each in named for name in each.names]
    dots = sorted({name for name in all_names if name.isdigit()}, key=int, reverse=True)
    if result is None:
        return [*dots, *sorted(name for name in set(all_names) if name.isalpha() and all_names.count(name) == 1)]
    before, ellipsis, after = result.partition("...")
    names = [*before, *(dots if ellipsis else ()), *after]
    if len(set(names)) != len(names) or not set(names) <= set(all_names):
        _fail(f"the result '{result}' names an axis twice, or one that no operand has", equation)
    return names


# *** operands ***


def _diagonals(operand: _Named) -> _Named:
    """Each name once: of axes with the same name the diagonal."""
    value, names = operand.value, list(operand.names)
    while len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        first, second = [k for k, each in enumerate(names) if each == name][:2]
        others = [k for k in range(len(names)) if k not in (first, second)]
        moved = permuted(value, [*others, first, second])
        _check_sizes(name, moved.shape[-2], moved.shape[-1])
        value = builtin("einsum", "diagonal", [moved])[0]
        names = [*(names[k] for k in others), name]
    return _Named(value, names)


def _check_sizes(name: str, left: Dim, right: Dim) -> None:
    if left != right:
        static = isinstance(left, StaticDim) and isinstance(right, StaticDim)
        hint = None if static else HINT_FOR_SYMBOLS
        text = f"axis '{name}' has sizes {left} and {right}"
        fail(_NAME, text, code="EK0420", argument="operands", expected=str(left), got=str(right), hint=hint)


def _without_ones(named: list[_Named]) -> list[_Named]:
    """Axes of size 1 left out where another operand has another size; all other sizes of a name agree."""
    sizes: dict[str, Dim] = {}
    for each in named:
        for name, dim in zip(each.names, each.value.shape, strict=True):
            if sizes.setdefault(name, dim) == _ONE:
                sizes[name] = dim
            elif dim != _ONE:
                _check_sizes(name, sizes[name], dim)
    result = []
    for each in named:
        kept = [k for k, name in enumerate(each.names) if each.value.shape[k] == sizes[name]]
        value = as_shape(each.value, [each.value.shape[k] for k in kept])
        result.append(_Named(value, [each.names[k] for k in kept]))
    return result


def _summed(operand: _Named, wanted: set[str]) -> _Named:
    """Without the unused axes."""
    axes = tuple(k for k, name in enumerate(operand.names) if name not in wanted)
    if not axes:
        return operand
    return _Named(sum_along(operand.value, axes, keepdims=False), [name for name in operand.names if name in wanted])


def _product(left: _Named, right: _Named, wanted: set[str]) -> _Named:
    """The product of two, summed over the common axes that the result does not have."""
    shared = [name for name in left.names if name in right.names]
    batch, inner = [n for n in shared if n in wanted], [n for n in shared if n not in wanted]
    mine = [name for name in left.names if name not in shared]
    other = [name for name in right.names if name not in shared]
    names = [*batch, *mine, *other]
    shape: list[int | str | Dim] = [*(left.size(n) for n in [*batch, *mine]), *(right.size(n) for n in other)]
    if not inner:
        a = as_shape(_ordered(left, [*batch, *mine]), [*shape[: len(batch) + len(mine)], *[1] * len(other)])
        b_shape: list[int | str | Dim] = [*shape[: len(batch)], *[1] * len(mine), *shape[len(batch) + len(mine) :]]
        return _Named(mul(a, as_shape(_ordered(right, [*batch, *other]), b_shape)), names)
    outer = [left.size(name) for name in batch]
    m, k, n = (
        Shape(sizes).num_elements
        for sizes in (
            [left.size(name) for name in mine],
            [left.size(name) for name in inner],
            [right.size(name) for name in other],
        )
    )
    a = as_shape(_ordered(left, [*batch, *mine, *inner]), [*outer, m, k])
    b = as_shape(_ordered(right, [*batch, *inner, *other]), [*outer, k, n])
    return _Named(as_shape(matmul(a, b), shape), names)


def _ordered(operand: _Named, names: Sequence[str]) -> TensorValue:
    return permuted(operand.value, [operand.names.index(name) for name in names])
