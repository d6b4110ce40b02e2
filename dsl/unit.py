"""The compile unit: what the graph asks the compiler for, as plain data.

An entry is a list of groups over a list of buffers. A group is a set of kernel instances that melt into one: the root
is the kernel whose loops run, the others are evaluated where the root reads an element, or where it stores one (the
epilogue). Sizes that are not known are slots, filled at the call.

Input: nothing. Output: frozen values that hash and compare by content. Non-goals: no decision about fusion is made here.
"""

from __future__ import annotations

from dataclasses import dataclass

from .portable import PortableKernel
from .types import DType


@dataclass(frozen=True)
class Slot:
    """A size known at the call only: entry `index` of the dims that the caller passes."""

    index: int


Size = int | Slot


@dataclass(frozen=True)
class BufferSpec:
    """A contiguous row-major buffer. `role` is input, output, temp or constant."""

    dtype: DType
    shape: tuple[Size, ...]
    role: str


@dataclass(frozen=True)
class FromBuffer:
    """An operand that lies in memory, seen with a shape (of as many elements as the buffer has)."""

    buffer: int
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class FromNode:
    """An operand that is computed where it is read: output `output` of node `node` of the group."""

    node: int
    output: int


Operand = FromBuffer | FromNode


@dataclass(frozen=True)
class NodeSpec:
    """An instance of a kernel: dtypes for its type variables, values for its parameters, operands and results."""

    kernel: PortableKernel
    dtypes: tuple[tuple[str, DType], ...]
    parameters: tuple[tuple[str, object], ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[tuple[DType, tuple[Size, ...]], ...]


@dataclass(frozen=True)
class Store:
    """Output `output` of node `node` goes to buffer `buffer`."""

    node: int
    output: int
    buffer: int


@dataclass(frozen=True)
class GroupSpec:
    """Kernel instances in topological order. `epilogue` is the node that is done in the root's stores, if any."""

    nodes: tuple[NodeSpec, ...]
    root: int
    stores: tuple[Store, ...]
    epilogue: int | None = None


@dataclass(frozen=True)
class EntrySpec:
    """A whole graph, or one op."""

    slots: int
    buffers: tuple[BufferSpec, ...]
    groups: tuple[GroupSpec, ...]
