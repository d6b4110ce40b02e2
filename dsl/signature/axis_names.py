"""Names the axes of a call of which only dtypes and ranks are known, as the signature names them.

An axis `n` is called `n` wherever it stands, the axes of a pack `*s` are `s_0`, `s_1`, …; an axis without a name, or of
a computed size, gets one of its own. So what the signature calls by one name is one size.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ..diagnostics.dataclass import dataclass
from .dims import Axis, Computed, DimItem, DimName, DimNumber, Expression, FixedAxis, Pack, evaluate, names_in
from .parse_dims import parse_dims
from .schema import OpSchema, TensorArgument


@dataclass
class AxisNames:
    """What the axes of a call are called.

    Attributes:
        inputs: for each input a name an axis, or the size that the signature or a parameter determines.
        packs: the names of the axes of each pack.
        computed: by (input, axis): the expression that the size of the axis has to be.
        integers: the int parameters.
    """

    inputs: list[tuple[int | str, ...]]
    packs: dict[str, tuple[str, ...]]
    computed: dict[tuple[int, int], Expression]
    integers: dict[str, int]
    taken: set[str] = field(default_factory=set)


def axis_names(schema: OpSchema, ranks: Sequence[int], parameters: Mapping[str, Any]) -> AxisNames | None:
    """The names for inputs of these ranks; None where the ranks do not fit the signature."""
    if len(ranks) != len(schema.inputs):
        return None
    integers = {p.name: parameters[p.name] for p in schema.parameters if p.kind == "int"}
    items = [parse_dims(argument.dims, argument.place) for argument in schema.inputs]
    lengths = _pack_lengths(items, ranks, integers)
    if lengths is None:
        return None
    taken = {name for argument in schema.tensors for name in _names(argument)} | set(integers) | set(schema.late)
    names = AxisNames([], {}, {}, integers, taken)
    for name, length in lengths.items():
        names.packs[name] = tuple(_fresh(names, f"{name}_{k}") for k in range(length))
    for number, argument in enumerate(schema.inputs):
        names.inputs.append(_axes(names, number, argument, items[number], ranks[number]))
    return names


def _pack_lengths(
    items: Sequence[tuple[DimItem, ...]], ranks: Sequence[int], integers: Mapping[str, int]
) -> dict[str, int] | None:
    """How many axes each named pack has; None where the ranks contradict each other."""
    lengths: dict[str, int] = {}
    pending = list(zip(items, ranks, strict=True))
    while pending:
        ready = next((each for each in pending if len(_open(each[0], lengths)) <= 1), None)
        if ready is None:
            return None
        pending.remove(ready)
        parts, rank = ready
        unknown = _open(parts, lengths)
        free = rank - sum(_length(item, lengths, integers) or 0 for item in parts if item not in unknown)
        if free < 0 or (free and not unknown):
            return None
        for item in unknown:
            assert isinstance(item, Pack)
            if item.name != "_":
                lengths[item.name] = free
        for item in parts:
            if isinstance(item, Pack) and item.name != "_" and item.count is not None:
                count = _length(item, lengths, integers) or 0
                if lengths.setdefault(item.name, count) != count:
                    return None
    return lengths


def _open(items: Sequence[DimItem], lengths: Mapping[str, int]) -> list[DimItem]:
    """The packs whose number of axes is not known yet."""
    return [item for item in items if isinstance(item, Pack) and item.count is None and item.name not in lengths]


def _length(item: DimItem, lengths: Mapping[str, int], integers: Mapping[str, int]) -> int | None:
    if not isinstance(item, Pack):
        return 1
    return lengths.get(item.name) if item.count is None else max(0, operator.index(evaluate(item.count, integers)))


def _axes(
    names: AxisNames, number: int, argument: TensorArgument, items: Sequence[DimItem], rank: int
) -> tuple[int | str, ...]:
    """What the axes of one input are called."""
    results: list[int | str] = []
    known = sum(_length(item, {n: len(p) for n, p in names.packs.items()}, names.integers) or 0 for item in items)
    for item in items:
        own = f"{argument.name.replace('[', '_').replace(']', '')}_{len(results)}"
        if isinstance(item, FixedAxis):
            results.append(item.size)
        elif isinstance(item, Axis):
            results.append(names.integers.get(item.name, item.name))
        elif isinstance(item, Pack) and item.name != "_":
            results += names.packs[item.name]
        elif isinstance(item, Pack):
            count = rank - known if item.count is None else _length(item, {}, names.integers) or 0
            results += [_fresh(names, f"{own}_{k}") for k in range(count)]
        elif isinstance(item, Computed) and {n.name for n in names_in(item.expression)} <= set(names.integers):
            results.append(operator.index(evaluate(item.expression, names.integers)))
        else:
            if isinstance(item, Computed):
                names.computed[number, len(results)] = item.expression
            results.append(_fresh(names, own))
    return tuple(results)


def _fresh(names: AxisNames, wanted: str) -> str:
    """A name like this one that stands for nothing else."""
    while wanted in names.taken:
        wanted += "_"
    names.taken.add(wanted)
    return wanted


def _names(argument: TensorArgument) -> set[str]:
    """The names of axes and in expressions of an argument."""
    results: set[str] = set()
    for item in parse_dims(argument.dims, argument.place):
        if isinstance(item, Axis):
            results.add(item.name)
        elif isinstance(item, Computed):
            results.update(name.name for name in names_in(item.expression))
    return results


def open_sizes(schema: OpSchema) -> dict[str, tuple[int, int]]:
    """The named sizes that only the memory of an output has: output and axis where each stands first."""
    if any(isinstance(item, Pack) for argument in schema.outputs for item in parse_dims(argument.dims, argument.place)):
        return {}
    known = {name for argument in schema.inputs for name in _names(argument)} | set(schema.late)
    known |= {parameter.name for parameter in schema.parameters}
    results: dict[str, tuple[int, int]] = {}
    for number, argument in enumerate(schema.outputs):
        for axis, item in enumerate(parse_dims(argument.dims, argument.place)):
            if isinstance(item, Axis) and item.name not in known:
                results.setdefault(item.name, (number, axis))
    return results


def output_sizes(schema: OpSchema, names: AxisNames) -> list[tuple[Expression, ...]]:
    """The size of each axis of each output, as an expression of the names of inputs' axes, of late dims and of int
    parameters."""
    results = []
    for argument in schema.outputs:
        sizes: list[Expression] = []
        for item in parse_dims(argument.dims, argument.place):
            if isinstance(item, Pack):
                sizes += map(DimName, names.packs.get(item.name, ()))
            elif isinstance(item, FixedAxis):
                sizes.append(DimNumber(item.size))
            elif isinstance(item, Axis):
                sizes.append(DimName(item.name))
            elif isinstance(item, Computed):
                sizes.append(item.expression)
        results.append(tuple(sizes))
    return results
