"""Cuts a compile unit into its groups: each as a unit of its own, with a key that equal groups share.

Buffers and dim slots are numbered in the order in which the group uses them, so that it does not matter which of the
graph's they are, and what else the graph holds.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..diagnostics.cached import cached
from ..signature.parameters import identity
from .unit import BufferSpec, EntrySpec, FromBuffer, GroupSpec, Literal, NodeSpec, Operand, Passed, Size, Slot, Store


class Numbering:
    """The buffers and dim slots that a group uses, in order of first use."""

    def __init__(self, spec: EntrySpec, group: GroupSpec) -> None:
        self.spec = spec
        self.group = group
        self._buffers: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        for node in group.nodes:
            for operand in node.inputs:
                if isinstance(operand, FromBuffer):
                    self._buffers.setdefault(operand.buffer, len(self._buffers))
                    self._number(spec.buffers[operand.buffer].strides or ())
                if isinstance(operand, FromBuffer | Literal | Passed):
                    self._number(operand.shape)
            for _, shape in node.outputs:
                self._number(shape)
        for store in group.stores:
            self._buffers.setdefault(store.buffer, len(self._buffers))

    def _number(self, shape: tuple[Size, ...]) -> None:
        for size in shape:
            if isinstance(size, Slot):
                self._slots.setdefault(size.index, len(self._slots))

    @property
    def buffers(self) -> tuple[int, ...]:
        """The buffers of the unit that the group uses."""
        return tuple(self._buffers)

    @property
    def slots(self) -> tuple[int, ...]:
        """The dim slots of the unit that the group uses."""
        return tuple(self._slots)

    @cached
    def key(self) -> str:
        """Equal for groups that can share code: text that says all that the code depends on but target and checks."""
        group = self.group
        others = [getattr(group, field.name) for field in fields(group) if field.name not in ("nodes", "stores")]
        return repr((self._nodes(), self._stores(), others))

    def _nodes(self) -> list[Any]:
        nodes = []
        for node in self.group.nodes:
            dtypes = [(name, dtype.name) for name, dtype in node.dtypes]
            parameters = [(name, *identity(value)) for name, value in node.parameters]
            inputs = [self._operand(operand) for operand in node.inputs]
            outputs = [(dtype.name, self._sizes(shape)) for dtype, shape in node.outputs]
            nodes.append((node.kernel.digest, dtypes, parameters, inputs, outputs))
        return nodes

    def _operand(self, o: Operand) -> tuple[Any, ...]:
        if isinstance(o, FromBuffer):
            buffer = self.spec.buffers[o.buffer]
            strides = None if buffer.strides is None else self._sizes(buffer.strides)
            known = buffer.dtype.name, strides, buffer.device
            return "buffer", self._buffers[o.buffer], *known, self._sizes(o.shape)
        if isinstance(o, Literal):
            return "literal", repr(o.value), o.dtype.name, self._sizes(o.shape)
        if isinstance(o, Passed):
            return "passed", o.number, o.dtype.name, self._sizes(o.shape)
        return "node", o.node, o.output

    def _sizes(self, shape: tuple[Size, ...]) -> tuple[Any, ...]:
        return tuple(("slot", self._slots[n.index]) if isinstance(n, Slot) else n for n in shape)

    def _stores(self) -> list[tuple[int, int, int]]:
        return [(s.node, s.output, self._buffers[s.buffer]) for s in self.group.stores]

    def unit(self) -> EntrySpec:
        """The group as a unit of its own."""
        shapes: dict[int, tuple[Size, ...]] = {}
        for node in self.group.nodes:
            for operand in node.inputs:
                if isinstance(operand, FromBuffer):
                    shapes.setdefault(operand.buffer, operand.shape)
        read = set(shapes)
        for store in self.group.stores:
            shapes.setdefault(store.buffer, self.group.nodes[store.node].outputs[store.output][1])
        buffers = tuple(
            self._buffer(self.spec.buffers[number], shapes[number], "input" if number in read else "output")
            for number in self._buffers
        )
        nodes = tuple(self._node(node) for node in self.group.nodes)
        stores = tuple(Store(*numbers) for numbers in self._stores())
        group = replace(self.group, nodes=nodes, stores=stores)
        return EntrySpec(len(self._slots), buffers, (group,), self.spec.checks)

    def _buffer(self, buffer: BufferSpec, shape: tuple[Size, ...], role: str) -> BufferSpec:
        strides = None if buffer.strides is None else self._shape(buffer.strides)
        return replace(buffer, shape=self._shape(shape), role=role, strides=strides)

    def _node(self, node: NodeSpec) -> NodeSpec:
        outputs = tuple((dtype, self._shape(shape)) for dtype, shape in node.outputs)
        return replace(node, inputs=tuple(self._input(o) for o in node.inputs), outputs=outputs)

    def _input(self, o: Operand) -> Operand:
        if isinstance(o, FromBuffer):
            return FromBuffer(self._buffers[o.buffer], self._shape(o.shape))
        return replace(o, shape=self._shape(o.shape)) if isinstance(o, Literal | Passed) else o

    def _shape(self, shape: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(Slot(self._slots[n.index]) if isinstance(n, Slot) else n for n in shape)
