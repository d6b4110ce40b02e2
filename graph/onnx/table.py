"""Declares how op types of ONNX are converted: a row an op type, or a version of one.

    @onnx_op("Gemm")
    def gemm(a: TensorValue, b: TensorValue, c: TensorValue | None = None, *, alpha: float, ...) -> TensorValue:

A row is a function. What it is given follows from its signature: positional parameters are the inputs of the node in
their order, in the form that the annotation names; keyword parameters are its attributes under ONNX's names, with the
defaults of the schema of the model's opset. An input that used to be an attribute of the same name is found there.
`**attributes` takes all attributes that there are.

| annotation | the input as |
|---|---|
| `TensorValue` | a tensor of the graph |
| `Value` | a tensor, or `KnownTensor` where it is known at import |
| `Ints`, `Array` | numbers, which have to be known |
| `Dims` | sizes: known, symbolic, or those that a tensor holds when the graph runs |
| `Items` | a sequence |
| `NodeCall` | no input: the node itself |

See also `importer` (how a node's inputs are found).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ..staging.value import TensorValue
from ..types.dims import Dim
from .items import AppendedItems, AxisPieces, CountedItems
from .known import Array, KnownTensor
from .leading_parts import LeadingPart
from .texts import Texts

F = TypeVar("F", bound=Callable[..., Any])
Value = TensorValue | KnownTensor | Texts | list[Any] | CountedItems | AxisPieces | AppendedItems | LeadingPart | None
Ints = list[int]
Dims = list[Dim]
Items = list[Any] | CountedItems | AxisPieces | AppendedItems
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own op types, whose schemas the package onnx has not
ML = "ai.onnx.ml"  # the domain of classical models: linear ones, trees, support vectors, and what prepares features
__all__ = [
    "MICROSOFT",
    "ML",
    "ROWS",
    "Array",
    "Dims",
    "Ints",
    "Items",
    "OpTypeRow",
    "Value",
    "find_row",
    "onnx_op",
    "same_op",
]


@dataclass(frozen=True)
class OpTypeRow:
    """How an op type is converted.

    Attributes:
        op_type: its name in ONNX.
        convert: makes values of the inputs and attributes.
        since: the first version of the opset that the row is for.
        domain: of the op type.
        known: computes the op of NumPy arrays, which may hold dims; None when it is never computed at import.
        broadcasts: whether the tensors that it takes are broadcast with each other.
        unlimited: whether `known` makes no more elements than it is given, so that large constants are folded, too.
    """

    op_type: str
    convert: Callable[..., Any]
    since: int = 1
    domain: str = ""
    known: Callable[..., Any] | None = None
    unlimited: bool = False
    broadcasts: bool = False

    @cached
    def parameters(self) -> list[inspect.Parameter]:
        """Those of `convert`."""
        return list(inspect.signature(self.convert).parameters.values())


ROWS: dict[tuple[str, str], list[OpTypeRow]] = {}


def onnx_op(
    *names: str,
    since: int = 1,
    domain: str = "",
    known: Callable[..., Any] | None = None,
    unlimited: bool = False,
    broadcasts: bool = False,
) -> Callable[[F], F]:
    """Makes a function the row of some op types; see the module."""

    def declare(function: F) -> F:
        for name in names:
            _add(OpTypeRow(name, function, since, domain, known, unlimited, broadcasts))
        return function

    return declare


def same_op(name: str, function: Callable[..., Any], known: Callable[..., Any] | None = None, since: int = 1) -> None:
    """A row for an op type without attributes that an op of the graph does as it is, with its inputs broadcast."""

    def convert(*inputs: TensorValue) -> Any:
        return function(*inputs)

    _add(OpTypeRow(name, convert, since, "", known, broadcasts=True))


def _add(row: OpTypeRow) -> None:
    listed = ROWS.setdefault((row.domain, row.op_type), [])
    assert all(other.since != row.since for other in listed), f"two rows for {row.op_type} since {row.since}"
    listed.append(row)
    listed.sort(key=lambda each: each.since)


def find_row(domain: str, op_type: str, version: int) -> OpTypeRow | None:
    """The row of an op type in a version of its opset."""
    fitting = [row for row in ROWS.get((domain, op_type), ()) if row.since <= version]
    return fitting[-1] if fitting else None


def as_numbers(value: object) -> Array:
    """An attribute of several numbers as an array."""
    return value if isinstance(value, np.ndarray) else np.asarray(value)
