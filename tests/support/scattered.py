"""Places the ops of a graph on devices at random, with a transfer wherever a value is read on another device.

Custom ops stay on the host, for which some of them are made alone. What reads or changes a buffer stays with it, and a
branch or loop is on one device with all that is in it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from einkorn.graph import BufferType, DeviceRef, Graph, TensorType
from einkorn.graph.ir import (
    Body,
    Branch,
    Carried,
    ConstantTensor,
    Control,
    External,
    GraphIR,
    Item,
    Loop,
    Node,
    begin_of,
)

HOST = DeviceRef.CPU()


def on(type: Any, device: DeviceRef) -> Any:
    """A type on a device."""
    return (BufferType if isinstance(type, BufferType) else TensorType)(type.dtype, type.shape, device)


class Scattering:
    """Writes a graph of the host anew."""

    def __init__(self, graph: Graph, rng: random.Random, devices: Sequence[DeviceRef]) -> None:
        self.ir = ir = graph.ir
        self.rng, self.devices = rng, devices
        self.kernel = graph.kernels.builtin("movement", "transfer_to")
        customs = any(isinstance(node, Node) and not node.kernel.shipped for node in ir.nodes)
        self.buffers = HOST if customs else rng.choice(devices)
        self.nodes: list[Item] = []
        self.values: dict[int, int] = {}
        self.copies: dict[tuple[int, DeviceRef], int] = {}
        self.types: list[Any] = []
        self.chosen: dict[int, DeviceRef] = {}  # by the last node of what stays together

    def run(self) -> GraphIR:
        inputs = []
        for value, type in enumerate(self.ir.inputs):
            device = self.buffers if isinstance(type, BufferType) else self.rng.choice(self.devices)
            inputs.append(on(type, device))
            self._made(value, inputs[-1])
        end, units = len(self.ir.nodes), []
        while end:
            item = self.ir.nodes[end - 1]
            begin = begin_of(item, self.ir.nodes) if isinstance(item, Control) else end - 1
            units.append((begin, end))
            end = begin
        makers = {value: number for number, item in enumerate(self.ir.nodes) for value in item.results}
        for begin, end in units:  # from the last on: what a loop begins with is made where it runs
            device = self.chosen.get(end - 1) or self._device(self.ir.nodes[begin:end])
            self.chosen[end - 1] = device
            last = self.ir.nodes[end - 1]
            for value in last.initial if isinstance(last, Loop) else ():
                self.chosen[makers[value]] = device
        for begin, end in units[::-1]:
            self._unit(begin, end)
        steps = tuple(dataclasses.replace(step, value=self.values[step.value]) for step in self.ir.steps)
        outputs = tuple(self.values[value] for value in self.ir.outputs)
        return dataclasses.replace(self.ir, inputs=tuple(inputs), nodes=tuple(self.nodes), outputs=outputs, steps=steps)

    def _made(self, value: int, type: Any) -> int:
        number = self.values[value] = len(self.types)
        self.types.append(type)
        return number

    def _device(self, items: Sequence[Item]) -> DeviceRef:
        types = [type for item in items for type in item.out_types]
        types += [self.ir.types[v] for item in items if isinstance(item, Node) for v in item.operands]
        if any(isinstance(type, BufferType) for type in types):
            return self.buffers
        if any(isinstance(item, Node) and not item.kernel.shipped for item in items):
            return HOST
        return self.rng.choice(self.devices)

    def _unit(self, begin: int, end: int) -> None:
        items = self.ir.nodes[begin:end]
        device = self.chosen[end - 1]
        made = {value for item in items for value in item.results}
        for item in items:
            read = [*getattr(item, "operands", ())]
            read += [v for body in item.bodies for v in body.outputs] if isinstance(item, Control) else []
            for value in read:
                if value not in made:
                    self._ready(value, device)
        shift = len(self.nodes) - begin
        for item in items:
            self.nodes.append(self._written(item, device, shift))

    def _ready(self, value: int, device: DeviceRef) -> None:
        """Copies a value to a device, unless it is there already."""
        number = self.values[value]
        if self.types[number].device == device or (value, device) in self.copies:
            return
        type, result = on(self.types[number], device), len(self.types)
        self.types.append(type)
        self.nodes.append(Node(self.kernel, (), (number,), (type,), (result,)))
        self.copies[value, device] = result

    def _at(self, values: Sequence[int], device: DeviceRef) -> tuple[int, ...]:
        return tuple(self.copies.get((value, device), self.values[value]) for value in values)

    def _written(self, item: Item, device: DeviceRef, shift: int) -> Item:
        types = tuple(on(type, device) for type in item.out_types)
        operands = {name: getattr(item, name) for name in ("operands", "initial", "carried") if hasattr(item, name)}
        new = {name: self._at(each, device) for name, each in operands.items()}
        condition = self._at([item.condition], device)[0] if isinstance(item, Branch) else 0
        bodies: Any = (
            tuple(Body(b.first + shift, b.end + shift, self._at(b.outputs, device)) for b in item.bodies)
            if isinstance(item, Control)
            else ()
        )
        results = tuple(self._made(value, type) for value, type in zip(item.results, types, strict=True))
        if isinstance(item, ConstantTensor | External):
            return dataclasses.replace(item, type=types[0], result=results[0])
        if isinstance(item, Carried):
            return dataclasses.replace(item, out_types=types, results=results)
        if isinstance(item, Node):
            return dataclasses.replace(item, operands=new["operands"], out_types=types, results=results)
        if isinstance(item, Branch):
            return dataclasses.replace(item, condition=condition, bodies=bodies, out_types=types, results=results)
        assert isinstance(item, Loop)
        known = {"initial": new["initial"], "carried": new["carried"]}
        return dataclasses.replace(item, **known, bodies=bodies, out_types=types, results=results)


def scattered(graph: Graph, seed: int, devices: Sequence[DeviceRef]) -> GraphIR:
    """The graph with its ops on these devices, at random."""
    return Scattering(graph, random.Random(seed), devices).run()
