"""Splits the arguments of an op: tensors, numbers that come with each call, sizes, and what decides the code.

Number operands and sizes are not part of the code: `x * rate` and `x.reshape([n, 3])` compile once for all
rates and sizes. What is left decides the code: axes, modes, dtypes, and a few numbers for which there is better code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..ops.stage import BuiltinOp
from ..staging.graph import Graph
from ..types.dims import Shape, StaticDim
from ..types.tensor_type import TensorType
from .nodes import Recorded

OPERAND, SIZES, OTHER = "operand", "sizes", "other"
# Ops that are irregular, and stage nothing but each number that they are given, in order.
TAKE_NUMBERS = ("clamp", "clip", "full", "full_like")
# There is better code for division by 2 and for squares: these numbers stay in the code of these ops.
FOLDED = (0, 1, -1, 2)
FOLDING = ("div", "floordiv", "left_shift", "mod", "pow", "right_shift")


class Size(int):
    """A size among the arguments of an op."""


class NumberSlot:
    """Stands in keys for a number that comes with each call, by its Python type."""

    def __init__(self, type: type) -> None:
        self.type = type


NUMBERS = {type: NumberSlot(type) for type in (float, int, bool)}


@dataclass
class Split:
    """The arguments of a call.

    Attributes:
        key: all that the code and the types of the results depend on; sizes among it.
        operands: the tensors.
        numbers: those that come with each call.
        sizes: those that are arguments.
        tree: the arguments, with numbers of operands, numbers and sizes in their places.
    """

    key: list[Any]
    operands: list[Recorded] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tree: object = None


@dataclass(eq=False)
class Operator:
    """An op, and how its arguments are read.

    Attributes:
        name: as in `ops`.
        function: stages it.
        symbolic: stages it where sizes have names, if that takes more.
        numbers: whether its number operands are arguments of each call.
        prepare: makes the arguments anew before they are split, with sizes in the place of what follows from them.
        extensions: what custom ops come from.
        integers: the dtype in which integers are computed, if it is not their own.
        folds: whether there is better code for some numbers.
        number_dtype: of its numbers, where no constants determine it.
        shortcut: gives for a call and its arguments what makes the results without code of Einkorn, or None.
        alone: for the kind of an operand what runs the op at once.
        pairs: the same of two operands, by the kind of the first, then of the second.
        categories: of parameters by position and by name; of all others it is `rest`.
    """

    name: str
    function: Callable[..., Any]
    symbolic: Callable[..., object] | None = None
    numbers: bool = False
    prepare: Callable[..., tuple[tuple[object, ...], dict[str, object]]] | None = None
    extensions: tuple[Any, ...] = ()
    integers: DType | None = None
    places: tuple[str, ...] = ()
    categories: dict[str, str] = field(default_factory=dict)
    rest: str = OTHER
    folds: bool = False
    number_dtype: DType | None = None
    shortcut: Callable[..., Any] | None = None
    alone: dict[object, Any] = field(default_factory=dict)
    pairs: dict[object, dict[object, Any]] = field(default_factory=dict)

    def graph(self, types: list[TensorType]) -> Graph:
        """A graph in which it can be staged."""
        return Graph(self.name.replace(".", "_"), input_types=types, custom_extensions=self.extensions)

    def split(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Split:
        """The arguments apart."""
        split = Split([self])
        places, rest, categories = self.places, self.rest, self.categories
        count = len(places)
        taken = [self._read(a, places[k] if k < count else rest, split) for k, a in enumerate(args)]
        named = {}
        for name in sorted(kwargs):
            split.key.append(name)
            named[name] = self._read(kwargs[name], categories.get(name, rest), split)
        split.tree = (taken, named)
        return split

    def _read(self, value: Any, category: str, split: Split) -> Any:
        if isinstance(value, Recorded):
            split.key.append(value._kind)
            split.operands.append(value)
            return ("operand", len(split.operands) - 1)
        if isinstance(value, np.generic):
            value = value.item()
        takes = category == OPERAND and self.numbers and type(value) in NUMBERS
        if takes and not (self.folds and value in FOLDED):
            split.key.append(NUMBERS[type(value)])
            split.numbers.append(value)
            return ("number", len(split.numbers) - 1)
        if category == SIZES and (type(value) is int or isinstance(value, StaticDim)) and int(value) >= 0:
            split.key.append(Size(value))
            split.sizes.append(int(value))
            return ("size", len(split.sizes) - 1)
        return self._nested(value, category, split)

    def _nested(self, value: object, category: str, split: Split) -> Any:
        if isinstance(value, Shape):
            value = list(value)
        if isinstance(value, list | tuple):
            split.key.append((type(value), len(value)))
            return ("list", type(value), [self._read(each, category, split) for each in value])
        if isinstance(value, slice):
            split.key.append(slice)
            return ("slice", [self._read(each, category, split) for each in (value.start, value.stop, value.step)])
        if isinstance(value, TensorType):
            split.key.append((TensorType, value.dtype, value.device, value.rank))
            return ("type", value.dtype, value.device, [self._read(each, SIZES, split) for each in value.shape])
        if isinstance(value, Mapping):
            split.key.append((dict, tuple(value)))
            return ("dict", {name: self._read(each, category, split) for name, each in value.items()})
        split.key.append((type(value), _hashable(value)))
        return ("is", value)


def _hashable(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    if value == 0 and isinstance(value, float):
        return str(value)  # -0.0
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def fill(tree: Any, operands: Sequence[Any], numbers: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The arguments with these tensors, numbers and sizes in their places: positional ones and those by name."""
    taken, named = tree
    given = (operands, numbers, sizes)
    return [_fill(each, given) for each in taken], {name: _fill(each, given) for name, each in named.items()}


def _fill(tree: Any, given: Any) -> Any:
    what = tree[0]
    if what == "is":
        return tree[1]
    if what == "operand":
        return given[0][tree[1]]
    if what == "number":
        return given[1][tree[1]]
    if what == "size":
        return given[2][tree[1]]
    if what == "slice":
        return slice(*[_fill(each, given) for each in tree[1]])
    if what == "type":
        return TensorType(tree[1], [_fill(each, given) for each in tree[3]], tree[2])
    if what == "dict":
        return {name: _fill(each, given) for name, each in tree[1].items()}
    return tree[1](_fill(each, given) for each in tree[2])


# *** what the parameters of ops are ***


def categories_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The categories of an op's parameters: by position, by name, and of `*args`."""
    places, categories, rest = [], {}, OTHER
    for name, parameter in inspect.signature(function).parameters.items():
        category = _category(str(parameter.annotation))
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rest = category
            continue
        categories[name] = category
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            places.append(category)
    return tuple(places), categories, rest


def _category(annotation: str) -> str:
    return OPERAND if "TensorValueLike" in annotation else SIZES if "DimLike" in annotation else OTHER


def operator_of(row: BuiltinOp) -> Operator:
    """An op of the table as an operator."""
    places, categories, rest = categories_of(row.function)
    return Operator(
        row.name,
        row.function,
        numbers=row.form == "elementwise" or row.name in TAKE_NUMBERS,
        integers=row.integers,
        places=places,
        categories=categories,
        rest=rest,
        folds=row.name in FOLDING,
    )
