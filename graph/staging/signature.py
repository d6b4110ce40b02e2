"""Checks what a graph is made with: its input types, its output types, and what calls its inputs.

See also `graph` (values and nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import GraphError, plural, shown_value
from ...dsl.diagnostics.places import Place, user_place
from ..arguments import list_of, wrong
from ..types.dims import AlgebraicDim, SymbolicDim, linear_in
from ..types.tensor_type import ShapedType


def refuse(message: str, *, code: str, **details: Any) -> NoReturn:
    """Raises an error of a graph under the user's line."""
    raise GraphError(message, code=code, place=user_place(), **details)


def input_types_of(graph: str, types: object) -> tuple[ShapedType, ...]:
    """What `input_types` lists.

    Raises:
        GraphError: EK0406, something is not a type, or has an expression for a size from which a name in it does not
            follow.
    """
    listed = tuple(list_of("input_types", types, "types", "EK0406"))
    for position, type in enumerate(listed):
        _check_input_type(graph, position, type)
    _check_names_follow(graph, listed)
    return listed


def _check_names_follow(graph: str, types: Sequence[ShapedType]) -> None:
    """That the sizes of a call give a value to each name in expressions, one after the other."""
    axes = [(k, axis, dim) for k, type in enumerate(types) for axis, dim in enumerate(type.shape)]
    known = {name for _, _, dim in axes if isinstance(dim, SymbolicDim) for name in dim.parameters}
    waiting = [each for each in axes if isinstance(each[2], AlgebraicDim)]
    count = -1
    while waiting and count != len(waiting):
        count = len(waiting)
        for each in list(waiting):
            unknown = set(each[2].parameters) - known
            if not unknown or (len(unknown) == 1 and linear_in(each[2], *unknown) is not None):
                known |= unknown
                waiting.remove(each)
    for position, axis, dim in waiting:
        name = next(name for name in dim.parameters if name not in known)
        refuse(
            f"graph {graph!r}: axis {axis} of input {position} has the size {dim}, from which {name!r} does not follow",
            code="EK0406",
            argument="input_types",
            expected="an expression with one name that no other axis determines, times a number, as in 2*n + 1",
            got=str(dim),
            hint=f"give the axis a name of its own, or {name!r} to an axis",
        )


def _check_input_type(graph: str, position: int, type: object) -> None:
    if not isinstance(type, ShapedType):
        refuse(
            f"graph {graph!r}: input type {position} is not a TensorType but {_name_of(type)}",
            code="EK0406",
            argument="input_types",
            expected="TensorType or BufferType",
            got=shown_value(type),
            hint="input_types is a list, also for one input",
        )


def _name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def output_types_of(types: object) -> list[ShapedType]:
    """What `output_types` lists.

    Raises:
        GraphError: EK0437, something is not a type.
    """
    listed = list_of("output_types", types, "types", "EK0437")
    for position, type in enumerate(listed):
        if not isinstance(type, ShapedType):
            wrong(f"output_types[{position}]", type, "a TensorType", code="EK0437")
    return listed


def check_outputs(
    graph: str, types: Sequence[ShapedType], wanted: Sequence[ShapedType] | None, place: Place | None
) -> None:
    """That outputs are what `output_types` says.

    Raises:
        GraphError: EK0437.
    """
    if wanted is None or list(types) == list(wanted):
        return
    if len(types) != len(wanted):
        text = f"has {plural(len(types), 'output')}, and output_types says {len(wanted)}"
    else:
        k = next(k for k, (type, other) in enumerate(zip(types, wanted, strict=True)) if type != other)
        text = f"has {types[k]} as output {k}, and output_types says {wanted[k]}"
    raise GraphError(
        f"graph {graph!r} {text}",
        code="EK0437",
        place=place,
        argument="output_types",
        expected=[str(type) for type in wanted],
        got=[str(type) for type in types],
    )


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """What a function calls its positional arguments, as far as that is known."""
    whole = function if hasattr(function, "__code__") else type(function).__call__
    called = getattr(function, "__func__", whole)
    code = getattr(called, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: code.co_argcount]
    return names if called is function else names[1:]  # of a method the first is its object
