"""Makes the input types of a graph from what a model declares.

A dim with a number is known, one with a name is symbolic, and one with neither, or with a name without letters such as
"?", gets a name from the input and its axis. Names that are not identifiers are written with underscores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import EinkornError, GraphError, brief
from ...dsl.diagnostics.places import user_place
from ...dsl.signature.dims import evaluate, names_in
from ...dsl.signature.parse_dims import parse_expression
from ...dsl.types.dtype import DType
from ..arguments import list_of
from ..driver.devices import DeviceRef
from ..types.dims import AlgebraicDim, Dim, Shape, StaticDim, SymbolicDim
from ..types.tensor_type import TensorType
from .tensors import dtype_of_code


def type_of(declared: Any) -> tuple[DType, Any]:
    """The dtype of a declared tensor, and its `TensorShapeProto`, or None when nothing is said of its shape.

    Raises:
        GraphError: EK0530, it is not a tensor.
    """
    kind = declared.type.WhichOneof("value")
    if kind != "tensor_type":
        shown = {"sequence_type": "a sequence", "optional_type": "optional", "map_type": "a map"}.get(kind, "no tensor")
        _refuse(f"input {declared.name!r} is {shown}, and the inputs of a graph are tensors", declared.name)
    tensor = declared.type.tensor_type
    dtype = dtype_of_code(tensor.elem_type, f"input {declared.name!r}")
    return dtype, tensor.shape if tensor.HasField("shape") else None


def input_types(
    declared: Sequence[Any], shapes: Mapping[str, Sequence[int | str | Dim]], device: DeviceRef
) -> tuple[list[TensorType], list[Shape]]:
    """The types of inputs, and the sizes that they are required to have; `shapes` overrules what the model says.

    The two differ where `shapes` has an expression: of an axis of `32*h` the size is `x_axis_2` as a type says, and
    `32*(x_axis_2//32)` as it is required.
    """
    names: dict[str, str] = {}  # of the model -> of the graph
    given = {each.name: _given(each, shapes) for each in declared}
    plain = {dim.name for listed in given.values() for dim in listed or () if isinstance(dim, SymbolicDim)}
    known: dict[str, Dim] = {name: Dim(name) for name in plain}
    types, required = [], []
    for each in declared:
        dtype, proto = type_of(each)
        sizes: list[int | str | Dim] = []
        wanted: list[int | str | Dim] = []
        for axis, dim in enumerate(given[each.name] or proto.dim):
            if isinstance(dim, AlgebraicDim):
                sizes.append(_identifier(f"{each.name}_axis_{axis}", names))
                wanted.append(_solved(each.name, axis, dim, Dim(sizes[-1]), known))
                continue
            if isinstance(dim, Dim):
                sizes.append(dim)
            elif dim.HasField("dim_value") and dim.dim_value >= 0:
                sizes.append(dim.dim_value)
            elif any(c.isalpha() for c in dim.dim_param):  # "?" and "-1" are not names
                sizes.append(_identifier(dim.dim_param, names))
            else:
                sizes.append(_identifier(f"{each.name}_axis_{axis}", names))
            wanted.append(sizes[-1])
        types.append(TensorType(dtype, sizes, device))
        required.append(Shape(wanted))
    return types, required


def _given(declared: Any, shapes: Mapping[str, Sequence[int | str | Dim]]) -> list[Dim] | None:
    """What `shapes` says of an input, which has as many axes as it says; None where it says nothing."""
    _, proto = type_of(declared)
    given = shapes.get(declared.name)
    if given is None:
        if proto is None:
            hint = f"pass it: from_onnx(..., shapes={{{declared.name!r}: [...]}})"
            _refuse(f"the number of axes of input {declared.name!r} is unknown", declared.name, hint=hint)
        return None
    listed = list_of(f"shapes[{declared.name!r}]", given, "sizes", "EK0528")
    if proto is not None and len(listed) != len(proto.dim):
        text = f"input {declared.name!r} has {len(proto.dim)} axes, and shapes= gives it {len(listed)}"
        _refuse(text, declared.name)
    return [_dim_of(declared.name, each) for each in listed]


def _dim_of(name: str, given: int | str | Dim) -> Dim:
    if not isinstance(given, str) or given.isidentifier():
        return Dim(given)
    try:
        expression = parse_expression(given)
        return Dim(evaluate(expression, {each.name: Dim(each.name) for each in names_in(expression)}))
    except (EinkornError, LookupError, SyntaxError, TypeError, ValueError) as error:
        text = f"shapes= gives input {name!r} the size {given!r}, which cannot be read: {brief(error, 200)}"
        _refuse(text, name, hint="a size is a number, a name, or an expression such as '32*h'")


def _solved(name: str, axis: int, dim: Dim, size: Dim, known: dict[str, Dim]) -> Dim:
    """An expression that the size of an axis has to be, in the names that the graph has."""
    unknown = [each for each in dim.parameters if each not in known]
    if len(unknown) == 1:
        rest = dim.substitute({unknown[0]: 0})
        factor = dim.substitute({unknown[0]: 1}) - rest
        if isinstance(factor, StaticDim) and int(factor) > 0 and dim == factor * Dim(unknown[0]) + rest:
            known[unknown[0]] = (size - rest.substitute(known)) // factor
            unknown = []
    if unknown:
        text = f"shapes= gives axis {axis} of input {name!r} the size {dim}, from which {unknown[0]!r} does not follow"
        _refuse(text, name, hint="an expression has one name that no axis has, times a number: '32*h', '2*k + 1'")
    return dim.substitute(known)


def _identifier(name: str, names: dict[str, str]) -> str:
    """The name of a dim in the graph; two of the model's names are never one."""
    if name not in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)[:64] or "dim"
        word = word if word.isidentifier() and word != "_" else f"dim_{word}"
        candidate, number = word, 2
        while candidate in names.values():
            candidate, number = f"{word}_{number}", number + 1
        names[name] = candidate
    return names[name]


def _refuse(message: str, argument: str, hint: str | None = None) -> NoReturn:
    raise GraphError(message, code="EK0530", place=user_place(), argument=argument, hint=hint)
