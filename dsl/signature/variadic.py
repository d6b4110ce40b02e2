"""Spells out variadic arguments: `xs: VariadicTensors[T, "m n_k"]` as `xs[0]`, `xs[1]`, ….

How many tensors a call passes is part of the instance. A schema (and with it a program) is expanded for these numbers,
and from there on a variadic argument is so many ordinary ones; only the kernel sees them together, as a tuple.

Names are shared by all tensors of the argument, as everywhere: `"m n"` wants equal shapes. A name that ends in `_k` is
the tensor's own: `n_k` becomes `n_0`, `n_1`, …, and `*s_k` axes of its own. An output that stands for as many tensors
takes the sizes one by one; one that stands for a single tensor takes them together: `sum(n_k)`, `min(n_k)`, `max(n_k)`.

    out: OutputTensor[T, "m (sum(n_k))"], xs: VariadicTensors[T, "m n_k"]      with two tensors:
    out: OutputTensor[T, "m (n_0 + n_1)"], xs[0]: InputTensor[T, "m n_0"], xs[1]: InputTensor[T, "m n_1"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..diagnostics.errors import GraphError
from ..diagnostics.places import Place
from .dims import (
    Axis,
    Computed,
    DimItem,
    DimName,
    DimNumber,
    DimOperation,
    Expression,
    FunctionCall,
    Negate,
    Pack,
    format_dims,
    names_in,
)
from .parse_dims import parse_dims
from .schema import Argument, Form, OpSchema, TensorArgument

OVER_TENSORS = ("sum", "min", "max")  # what takes the sizes of all tensors of an argument together


def expand(schema: OpSchema, counts: Mapping[str, int]) -> OpSchema:
    """The schema with `counts[name]` tensors for each variadic argument. One without such arguments is itself.

    Raises:
        KeyError: a count is missing.
    """
    if not schema.variadic:
        return schema
    return _expand(schema, tuple((a.name, counts[a.name]) for a in schema.variadic))


@lru_cache(maxsize=256)
def _expand(schema: OpSchema, counts: tuple[tuple[str, int], ...]) -> OpSchema:
    numbers = dict(counts)
    own = own_names(schema)
    arguments: list[Argument] = []
    reads: dict[str, int] = {}
    for argument in schema.arguments:
        if not isinstance(argument, TensorArgument):
            arguments.append(argument)
            continue
        sizes = {name: numbers[owner] for name, owner in own.items()}
        for k in range(numbers[argument.name]) if argument.form is Form.VARIADIC else [-1]:
            items = (_item(item, k, sizes) for item in parse_dims(argument.dims))
            dims = format_dims(tuple(items)) if sizes else argument.dims
            if k < 0:
                one = dataclasses.replace(argument, dims=dims)
            else:
                name = f"{argument.name}[{k}]"
                one = TensorArgument(name, argument.role, argument.dtype, dims, argument.place, group=argument.name)
            arguments.append(one)
            if argument.name in dict(schema.reads):
                reads[one.name] = dict(schema.reads)[argument.name]
    return dataclasses.replace(schema, arguments=tuple(arguments), reads=tuple(sorted(reads.items())), counts=counts)


def own_names(schema: OpSchema) -> dict[str, str]:
    """The names that mean another size for each tensor, with the variadic argument that binds them."""
    owners: dict[str, str] = {}
    for argument in (*schema.inputs, *schema.outputs):
        if argument.form is Form.VARIADIC:
            for item in parse_dims(argument.dims):
                if isinstance(item, Axis | Pack) and item.name.endswith("_k"):
                    owners.setdefault(item.name, argument.name)
    return owners


def _item(item: DimItem, k: int, sizes: Mapping[str, int]) -> DimItem:
    if isinstance(item, Axis) and item.name in sizes:
        return Axis(_own(item.name, k))
    if isinstance(item, Pack):
        return Pack(_own(item.name, k) if item.name in sizes else item.name, item.count)
    if isinstance(item, Computed):
        return Computed(_expression(item.expression, k, sizes))
    return item


def _own(name: str, k: int) -> str:
    return f"{name[:-1]}{k}"


def _expression(expression: Expression, k: int, sizes: Mapping[str, int]) -> Expression:
    match expression:
        case DimName(name=name) if name in sizes:
            return DimName(_own(name, k))
        case Negate(operand=operand):
            return Negate(_expression(operand, k, sizes))
        case DimOperation(operator=operator, left=left, right=right):
            return DimOperation(operator, _expression(left, k, sizes), _expression(right, k, sizes))
        case FunctionCall(function=function, arguments=arguments):
            parts: list[Expression] = []
            for argument in arguments:
                shared = [sizes[n.name] for n in names_in(argument) if n.name in sizes]
                spread = shared and function in OVER_TENSORS
                parts += [_expression(argument, j, sizes) for j in (range(shared[0]) if spread else [k])]
            return _together(function, parts)
    return expression


def _together(function: str, parts: list[Expression]) -> Expression:
    if not parts:
        return DimNumber(0)
    if function != "sum":
        return FunctionCall(function, tuple(parts)) if len(parts) > 1 else parts[0]
    total = parts[0]
    for part in parts[1:]:
        total = DimOperation("+", total, part)
    return total


# *** the counts of a call ***


def counted_inputs(
    schema: OpSchema, values: Sequence[object], parameters: Mapping[str, object], place: Place | None = None
) -> tuple[dict[str, int], list[Any]]:
    """How many tensors each variadic input of a call has, and the values in one list.

    The tensors of a variadic argument come as a list or tuple in its place. They may stand among the others where no
    more than one argument is open.

    Raises:
        GraphError: EK0345 a count is not known, or is not the one that is declared.
    """
    several = [a for a in schema.inputs if a.form is Form.VARIADIC]
    if not several:
        return {}, list(values)
    known = {a.name: declared_count(a, parameters) for a in several}
    if any(isinstance(value, list | tuple) for value in values):
        return _nested(schema, values, known, place)
    missing = [name for name, count in known.items() if count is None]
    if len(missing) > 1:
        hint = f"give the tensors of '{missing[0]}' as one list: values=[[a, b], ...]"
        text = f"stands for any number of tensors, and so does {missing[1]!r}"
        raise _wrong_count(schema, missing[0], text, hint, place)
    rest = len(values) - (len(schema.inputs) - len(several)) - sum(count or 0 for count in known.values())
    counts = {name: max(rest, 0) if count is None else count for name, count in known.items()}
    return counts, list(values)


def _nested(
    schema: OpSchema, values: Sequence[object], known: Mapping[str, int | None], place: Place | None
) -> tuple[dict[str, int], list[Any]]:
    counts: dict[str, int] = {}
    flat: list[object] = []
    for argument, value in zip(schema.inputs, values, strict=False):
        if argument.form is not Form.VARIADIC:
            flat.append(value)
            continue
        if not isinstance(value, list | tuple):
            text = "takes its tensors as a list here, together with other lists"
            raise _wrong_count(schema, argument.name, text, f"write [{argument.name}] for one tensor", place)
        wanted = known[argument.name]
        if wanted is not None and wanted != len(value):
            text = f"stands for {wanted} tensors, and {len(value)} are given"
            raise _wrong_count(schema, argument.name, text, None, place)
        counts[argument.name] = len(value)
        flat += value
    for argument in schema.inputs[len(values) :]:
        if argument.form is Form.VARIADIC:
            counts[argument.name] = known[argument.name] or 0
    return counts, [*flat, *values[len(schema.inputs) :]]


def counted_outputs(
    schema: OpSchema,
    counts: Mapping[str, int],
    parameters: Mapping[str, object],
    expected: int | None,
    place: Place | None = None,
) -> dict[str, int]:
    """`counts` with those of the outputs: declared, or as many as the input that its own sizes are of, or as expected.

    Raises:
        GraphError: EK0345 a count is not known.
    """
    numbers = dict(counts)
    open_: list[str] = []
    for argument in schema.outputs:
        if argument.form is not Form.VARIADIC:
            continue
        count = known_count(schema, argument, counts, parameters)
        if count is None:
            open_.append(argument.name)
        else:
            numbers[argument.name] = count
    if len(open_) > 1 or (open_ and expected is None):
        hint = "pass out_types, one type for each tensor"
        raise _wrong_count(schema, open_[0], "has a number of tensors that nothing determines", hint, place)
    if open_:
        others = sum(numbers.get(a.name, 1) for a in schema.outputs if a.name != open_[0])
        numbers[open_[0]] = max((expected or 0) - others, 0)
    return numbers


def declared_count(argument: TensorArgument, parameters: Mapping[str, Any]) -> int | None:
    """How many tensors the signature says, or None."""
    if not argument.count:
        return None
    return int(argument.count) if argument.count.isdecimal() else int(parameters[argument.count])


def known_count(
    schema: OpSchema, argument: TensorArgument, counts: Mapping[str, int], parameters: Mapping[str, object]
) -> int | None:
    """How many tensors the signature says, or another argument whose own sizes this one takes; or None."""
    own = own_names(schema)
    shared = {own[i.name] for i in parse_dims(argument.dims) if isinstance(i, Axis | Pack) and i.name in own}
    declared = declared_count(argument, parameters)
    return declared if declared is not None else next((counts[n] for n in sorted(shared) if n in counts), None)


def _wrong_count(schema: OpSchema, name: str, text: str, hint: str | None, place: Place | None) -> GraphError:
    argument = next(a for a in schema.tensors if a.name == name)
    notes = [f"'{argument}' is declared at {argument.place}"] if argument.place else []
    message = f"op {schema.name!r}: argument {name!r} {text}"
    return GraphError(message, code="EK0345", place=place, op=schema.name, argument=name, notes=notes, hint=hint)
