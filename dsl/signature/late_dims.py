"""Finds late dims, the output dims that neither inputs nor parameters determine, and the contract of what computes
them.

A shape function computes them as the op is run. It is a kernel of its own, with an output that holds these numbers.
"""

from __future__ import annotations

import dataclasses

from ..types.dtype import DType
from .dims import Axis
from .parse_dims import parse_dims
from .schema import OpSchema, Role, TensorArgument

SIZES = "$sizes"  # the argument of a shape function's kernel that takes what it returns; no author's name


def late_names(schema: OpSchema) -> tuple[str, ...]:
    """The named output dims that no input and no parameter determines, in order of appearance."""
    known = {item.name for argument in schema.inputs for item in parse_dims(argument.dims) if isinstance(item, Axis)}
    known |= {parameter.name for parameter in schema.parameters if parameter.kind == "int"}
    axes = (item.name for a in schema.outputs for item in parse_dims(a.dims) if isinstance(item, Axis))
    return tuple(dict.fromkeys(name for name in axes if name not in known))


def shape_schema(schema: OpSchema) -> OpSchema:
    """The contract of the kernel that computes an op's late dims: what the op takes, and one int64 for each dim."""
    inputs = tuple(dataclasses.replace(argument, role=Role.INPUT) for argument in schema.inputs)
    return OpSchema(
        name=f"{schema.name}.shape",
        arguments=(TensorArgument(SIZES, Role.OUTPUT, DType.int64, str(len(schema.late))), *inputs),
        parameters=schema.parameters,
        typevars=schema.typevars,
        fuse=False,
        place=schema.place,
        counts=schema.counts,
    )
