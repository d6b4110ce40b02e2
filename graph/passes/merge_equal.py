"""Merges nodes that compute the same value: two equal `softmax(x)` become one.

Two nodes are equal where they call the same kernel with the same parameters on the same values, and make the same
types. The later one is left out, if the earlier one has run by then: it stands in the same body or in one around it.
Equal constants are merged, too. Nodes that read or change buffers stay, and so do custom kernels that print or call
native code.

Numbers, broadcasts and reshapes stay where they are read, since they cost nothing there: their readers are still known
to be equal. What a branch or loop gives back, and what a loop begins with, has memory of its own: such values stay, and
so do two outputs of the graph.
"""

from __future__ import annotations

import json
from typing import Any, Final

from ...dsl.signature.parameters import identity
from ..ir import ConstantTensor, GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.tensor_type import BufferType

MAX_CONSTANT_BYTES: Final = 4096  # larger constants are compared by the identity of their memory
_SEEN: Final = ("print", "breakpoint", "external_call", "inline_assembly", "llvm_intrinsic")  # effects in kernels


def merge_equal(ir: GraphIR) -> GraphIR:
    """The graph with each of several equal values computed once."""
    return _Merging(ir).run()


def own_memory(ir: GraphIR) -> frozenset[int]:
    """The values whose memory control flow or a computed size depends on: each has to be made by its own node."""
    return frozenset({*ir.regions.given(), *(step.value for step in ir.steps)})


class _Merging(Rewriting):
    def __init__(self, ir: GraphIR) -> None:
        super().__init__(ir)
        self.regions = ir.regions
        self.fixed = own_memory(ir)
        self.outputs = set(ir.outputs)
        self.given: set[int] = set()  # values of the new graph that are outputs
        self.equal: dict[int, int] = {}  # by value of the new graph, the first one that is equal to it
        self.known: dict[Any, list[tuple[int, tuple[int, ...]]]] = {}  # by key: region, and values of the new graph

    def rewrite(self, number: int, item: Item) -> None:
        key = self._key(item)
        if key is None:
            return self.keep(item)
        if _is_free(item):
            self.keep(item)
            (value,) = self.new(item.results)
            self.equal[value] = self.known.setdefault(key, [(0, (value,))])[0][1][0]
            return None
        region = self.regions.of[number]
        is_output = not self.outputs.isdisjoint(item.results)
        for where, values in self.known.get(key, ()):
            if tuple(self.types[value] for value in values) != item.out_types:
                continue
            if self._is_around(where, region) and not (is_output and not self.given.isdisjoint(values)):
                self.replace(item, values)
                self.given.update(values if is_output else ())
                return None
        self.keep(item)
        values = self.new(item.results)
        self.given.update(values if is_output else ())
        self.known.setdefault(key, []).append((region, values))
        return None

    def _key(self, item: Item) -> Any:
        """What equal items have in common; None where an item is not merged."""
        if not self.fixed.isdisjoint(item.results):
            return None
        if isinstance(item, ConstantTensor):
            small = item.array.nbytes <= MAX_CONSTANT_BYTES
            return "constant", item.type, item.array.tobytes() if small else id(item.array)
        if not isinstance(item, Node) or not item.results or self.ir.ordered(item):
            return None
        if any(isinstance(type, BufferType) for type in item.out_types):  # two buffers are two pieces of memory
            return None
        parameters = tuple((name, *identity(value)) for name, value in item.parameters)
        types = item.out_types if _is_free(item) else ()  # else they are compared: to hash them takes longer
        key = item.kernel.digest, item.kernel.shipped, parameters, self._operands(item), types
        return None if key in self.known and is_seen(item) else key

    def _operands(self, node: Node) -> tuple[int, ...]:
        return tuple(self.equal.get(value, value) for value in self.new(node.operands))

    def _is_around(self, outer: int, region: int) -> bool:
        while region not in (outer, 0):
            region = self.regions.around(region)
        return region == outer


def _is_free(item: Item) -> bool:
    """Whether an item costs nothing where it is read."""
    if isinstance(item, ConstantTensor):
        return item.array.size == 1
    return isinstance(item, Node) and item.move in ("broadcast", "reshape")


def is_seen(node: Node) -> bool:
    """Whether a custom kernel does something that is seen each time it runs."""
    if node.kernel.shipped:
        return False
    text = json.dumps(node.kernel.portable.to_json())
    return any(f'"{name}"' in text for name in _SEEN)
