"""Defines the portable program of a kernel: its syntax tree with all that it calls, whatever language it is written in.

A program is a table of functions and a table of globals; function 0 is the kernel. A frontend makes it, packages hold
it as JSON, and it is all that the compiler ever reads. Its digest covers meaning only: no places, no file names, no
comments.

See also `read_program`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Any

from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import EinkornError, joined
from ..diagnostics.places import SHIPPED, is_shipped
from ..signature.schema import OpSchema
from ..signature.variadic import expand
from . import syntax
from .element_maps import maps_elements


@dataclass(frozen=True)
class GlobalEntry:
    """What a global name means.

    `kind` and `value`: `function` (index into the table of functions), `library` (name of the stub, and the index of
    the function that implements it), `struct` (index into the table of functions), `instance` (such an index and the
    entries of its fields), `stub` (name), `dtype` (DType), `type` (SIMDType), `typevar` (name), `constant` (bool, int,
    float, complex, str, None or a tuple of entries), `marker` (`SIMD`, `stack`, `Pointer`), `class` (name of a class
    that groups functions and constants, and a tuple of its members' names and entries), `classmethod` (a member that
    is given the class: index into the table of functions).
    """

    kind: str
    value: Any


def _traveling(file: str) -> str:
    """The name under which a source file is known elsewhere."""
    name = PurePath(file).name
    return f"{SHIPPED}{name}" if is_shipped(file) else name


@dataclass(frozen=True)
class SourceFunction:
    """A function of the program, or a struct, and the file that it was written in."""

    syntax: Any
    file: str


@dataclass(frozen=True)
class PortableKernel:
    """All that is needed to compile an op for any dtype, rank, parameters and target.

    `shape` is the kernel that computes its late dims, if it has any; see `signature.late_dims`. `mistakes` are those
    of its text: they are raised when it is evaluated, with all that is found then. `unknown` are arguments and
    parameters that a mistake in the signature leaves unknown: the program can be looked at, and nothing can be made
    of it.
    """

    schema: OpSchema
    functions: tuple[SourceFunction, ...]
    globals: tuple[GlobalEntry, ...]
    shape: PortableKernel | None = None
    mistakes: tuple[EinkornError, ...] = field(default=(), compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)

    @cached
    def digest(self) -> str:
        """SHA-256 over schema and program, in hexadecimal; equal for equal meaning."""
        schema = self.schema.to_json()
        del schema["doc"]
        functions = [syntax.to_json(f.syntax, spans=False) for f in self.functions]
        content = [schema, functions, [_global_to_json(g) for g in self.globals]]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @cached
    def names(self) -> frozenset[str]:
        """What it uses of the language: names such as `foreach`, and those of members such as `fill`."""
        parts = (part for function in self.functions for part in syntax.walk(function.syntax))
        members = {part.name for part in parts if isinstance(part, syntax.Attribute)}
        return frozenset(members | {entry.value for entry in self.globals if entry.kind == "stub"})

    @cached
    def maps_elements(self) -> bool:
        """Whether its text shows that it computes each element of the elements of the inputs at the same place."""
        stubs = {number: entry.value for number, entry in enumerate(self.globals) if entry.kind == "stub"}
        return maps_elements(self.schema, self.functions[0].syntax, stubs)

    def expanded(self, counts: Mapping[str, int]) -> PortableKernel:
        """The program for so many tensors of each variadic argument; see `variadic`."""
        if not self.schema.variadic:
            return self
        shape = None if self.shape is None else self.shape.expanded(counts)
        return dataclasses.replace(self, schema=expand(self.schema, counts), shape=shape)

    def to_json(self) -> dict[str, Any]:
        """A JSON value that `read_program` turns back into an equal program.

        Raises:
            CompileError: there are mistakes in its text.
        """
        if self.mistakes:
            raise joined(self.mistakes)
        return {
            "schema": self.schema.to_json(),
            "functions": [{"file": _traveling(f.file), "syntax": syntax.to_json(f.syntax)} for f in self.functions],
            "globals": [_global_to_json(g) for g in self.globals],
        } | ({} if self.shape is None else {"shape": self.shape.to_json()})


def _global_to_json(entry: GlobalEntry) -> Any:
    value = entry.value
    if entry.kind == "dtype":
        value = value.name
    elif entry.kind == "library":
        value = list(value)
    elif entry.kind == "type":
        value = [value.dtype.name, value.width]
    elif entry.kind == "instance":
        value = [value[0], [_global_to_json(v) for v in value[1]]]
    elif entry.kind == "constant":
        value = [_global_to_json(v) for v in value] if isinstance(value, tuple) else syntax.to_json(value)
    elif entry.kind == "class":
        value = [value[0], [[member, _global_to_json(item)] for member, item in value[1]]]
    return [entry.kind, value]
