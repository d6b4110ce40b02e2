"""Defines ops for numbers of one kind each, which serve calls of an op whose numbers may be integers or floats.

PyTorch's interface for generated kernels passes integers, floats and bools, but no `Scalar`. An op with Scalars has a
further op for each combination of kinds that eager calls bring: `clamped__int(Tensor x, int low)` for
`clamped(Tensor x, Scalar low)`. It has a native door, and decomposes into the op with Scalars wherever there is none:
under autograd, in transforms and modes. Traced programs hold the op with Scalars alone.

See also `door` (doors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from ....dsl.signature.schema import Form, OpSchema
from .door import Doors
from .names import is_taken, library_of, lock, untraced
from .python_fallback import Arguments
from .schema import function_schema, number_type

_KINDS: Final = {bool: "bool", int: "int", float: "float"}
_is_traced: Final = torch.compiler.is_compiling
_LIMIT: Final = 1 << 63


def mixed_numbers(schema: OpSchema) -> tuple[int, ...]:
    """The positions of the inputs that are Scalars."""
    scalars = [(k, a) for k, a in enumerate(schema.inputs) if a.form is Form.SCALAR]
    return tuple(k for k, argument in scalars if number_type(schema, argument) == "Scalar")


class NumberOps:
    """The ops for numbers of one kind each that an op with Scalars has.

    Args:
        name: the op's, with its namespace.
        overload: what it is called by.
        schema: what it takes; at least one input is a Scalar.
    """

    def __init__(self, name: str, overload: Any, schema: OpSchema) -> None:
        self.name, self.overload, self.schema = name, overload, schema
        self.positions = mixed_numbers(schema)
        self.names = tuple(schema.inputs[k].name for k in self.positions)
        self.ops: dict[tuple[type, ...], object] = {}
        self.doors: dict[tuple[type, ...], Doors] = {}

    def open(self, call: Arguments, values: Sequence[object]) -> None:
        """Lets later calls with numbers of these kinds go through a door, where they have an op."""
        doors = self.doors.get(tuple(type(values[k]) for k in self.positions))
        if doors is not None:
            doors.open(call, values)

    def renew(self, schema: OpSchema) -> None:
        """Ends that calls go through the doors there are: the kernel is another one."""
        self.schema = schema
        for doors in self.doors.values():
            doors.renew(schema)

    def define(self, kinds: tuple[type, ...]) -> Any:
        """The op for numbers of these kinds; its first call is one of the op with Scalars."""
        with lock:
            if kinds not in self.ops:
                named = {name: _KINDS[kind] for name, kind in zip(self.names, kinds, strict=True)}
                namespace, _, plain = self.name.partition("::")
                name = f"{plain}__{'_'.join(named.values())}"
                if is_taken(namespace, name):
                    self.ops[kinds] = self.overload
                    return self.overload
                library = library_of(namespace)
                library.define(function_schema(self.schema, name, named), tags=(torch.Tag.pt2_compliant_tag,))
                library.impl(name, untraced(self._decomposed), "CompositeImplicitAutograd")
                run = self._decomposed
                self.doors[kinds] = Doors(f"{namespace}::{name}", self.schema, False, run, run, numbers=named)
                self.ops[kinds] = getattr(getattr(torch.ops, namespace), name).default
        return self.overload

    def _decomposed(self, *values: Any, **parameters: Any) -> Any:
        return self.overload(*values, **parameters)


def chosen(ops: NumberOps, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
    """What serves a call of an op."""
    if _is_traced():
        return ops.overload
    try:
        numbers = [args[k] for k in ops.positions]
    except IndexError:  # numbers by name, or none
        pairs = zip(ops.positions, ops.names, strict=True)
        numbers = [args[k] if k < len(args) else parameters.get(name) for k, name in pairs]
    kinds = tuple(map(type, numbers))
    entry = ops.ops.get(kinds)
    if entry is None:
        return ops.define(kinds) if _KINDS.keys() >= set(kinds) else ops.overload
    if int in kinds and any(type(each) is int and not -_LIMIT <= each < _LIMIT for each in numbers):
        return ops.overload
    return entry
