"""Makes the input types of a graph from what a model declares.

A dim with a number is known, one with a name is symbolic, and one with neither gets a name from the input and its
axis. Names that are not identifiers are written with underscores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..types.dims import Dim
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
    declared: Sequence[Any], shapes: Mapping[str, Sequence[int | str]], device: DeviceRef
) -> list[TensorType]:
    """The types of inputs; `shapes` overrules what the model says."""
    names: dict[str, str] = {}  # of the model -> of the graph
    result = []
    for each in declared:
        dtype, proto = type_of(each)
        given = shapes.get(each.name)
        if proto is None and given is None:
            hint = f"pass it: from_onnx(..., shapes={{{each.name!r}: [...]}})"
            _refuse(f"the number of axes of input {each.name!r} is unknown", each.name, hint=hint)
        if proto is not None and given is not None and len(given) != len(proto.dim):
            text = f"input {each.name!r} has {len(proto.dim)} axes, and shapes= gives it {len(given)}"
            _refuse(text, each.name)
        if given is not None:
            result.append(TensorType(dtype, given, device))
            continue
        sizes: list[int | str | Dim] = []
        for axis, dim in enumerate(proto.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                sizes.append(dim.dim_value)
            elif dim.dim_param:
                sizes.append(_identifier(dim.dim_param, names))
            else:
                sizes.append(_identifier(f"{each.name}_axis_{axis}", names))
        result.append(TensorType(dtype, sizes, device))
    return result


def _identifier(name: str, names: dict[str, str]) -> str:
    """The name of a dim in the graph; two of the model's names are never one."""
    if name not in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)[:64] or "dim"
        word = word if word.isidentifier() and word != "_" else f"dim_{word}"
        found, number = word, 2
        while found in names.values():
            found, number = f"{word}_{number}", number + 1
        names[name] = found
    return names[name]


def _refuse(message: str, argument: str, hint: str | None = None) -> NoReturn:
    raise GraphError(message, code="EK0530", place=user_place(), argument=argument, hint=hint)
