"""Checks what a graph is made with: its input types, its output types, and what calls its inputs.

See also `graph` (values and nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import GraphError, plural, shown_value
from ...dsl.diagnostics.places import Place, user_place
from ..arguments import list_of, wrong
from ..types.dims import AlgebraicDim
from ..types.tensor_type import ShapedType


def refuse(message: str, *, code: str, **details: Any) -> NoReturn:
    """Raises an error of a graph under the user's line."""
    raise GraphError(message, code=code, place=user_place(), **details)


def input_types_of(graph: str, types: Any) -> tuple[ShapedType, ...]:
    """What `input_types` lists.

    Raises:
        GraphError: EK0406, something is not a type, or has a computed dim.
    """
    listed = tuple(list_of("input_types", types, "types", "EK0406"))
    for position, type in enumerate(listed):
        _check_input_type(graph, position, type)
    return listed


def _check_input_type(graph: str, position: int, type: Any) -> None:
    if not isinstance(type, ShapedType):
        refuse(
            f"graph {graph!r}: input type {position} is not a TensorType but {_name_of(type)}",
            code="EK0406",
            argument="input_types",
            expected="TensorType or BufferType",
            got=shown_value(type),
            hint="input_types is a list, also for one input",
        )
    for axis, dim in enumerate(type.shape):
        if isinstance(dim, AlgebraicDim):
            refuse(
                f"graph {graph!r}: axis {axis} of input {position} is computed, {dim}",
                code="EK0406",
                argument="input_types",
                expected="a size or a name",
                got=str(dim),
                hint="give the axis a name of its own, and rebind the input where the sizes have to agree",
            )


def _name_of(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def output_types_of(types: Any) -> list[ShapedType]:
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
