"""Computes what depends on weights alone when a model is loaded, and not at each call.

    permute(weight) + x        prepared + x

Transposes, casts and arithmetic of shipped ops are prepared, of weights of `MIN_ELEMENTS` elements or more, and weights
that are joined. A value that takes more bytes than what it is computed from is not: to read it would take longer than
to compute it. It is prepared nevertheless, up to `MAX_GROWN` bytes, where all that reads it needs it in memory, as a
convolution needs its filter.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ...dsl.package.library import LoadedKernel
from ..ir import ConstantTensor, External, GraphIR, Item, Node, PreparedValue, is_transfer
from ..renumbering import Rewriting
from ..types.tensor_type import ShapedType, TensorType
from .fold_constants import computed_from, creates, elements_of, part_of

MIN_ELEMENTS: Final = 1 << 12
MAX_GROWN: Final = 1 << 22


def prepare_weights(ir: GraphIR) -> GraphIR:
    """The graph with what depends on weights alone prepared."""
    if len(ir.devices) > 1 or not any(isinstance(item, External) for item in ir.nodes):
        return ir
    return _prepared(_prepared(ir, True), False)


def _prepared(ir: GraphIR, grown: bool) -> GraphIR:
    """The graph with values prepared: those that are larger than what they are computed from, or the others."""
    makers = {value: item for item in ir.nodes for value in item.results}
    may = functools.partial(_may_grow if grown else _may_prepare, makers)
    wanted = computed_from(ir, (ConstantTensor, External), may, _is_free)
    if grown:
        readers = _readers(ir)
        wanted = [value for value in wanted if _is_needed_in_memory(ir, value, readers[value])]
    return _Preparing(ir, {value: part_of(ir, [value])[0] for value in wanted}).run() if wanted else ir


def prepared(part: GraphIR, type: ShapedType, number: int, item: Item) -> PreparedValue:
    """The value that a part of a graph computes; `number` is unique among those of the graph."""
    assert isinstance(type, TensorType)
    sources = [each.name for each in part.nodes if isinstance(each, External)]
    name = f"{', '.join(sources) or 'constant'} (prepared {number})"
    return PreparedValue(name, type, 0, place=item.place, part=part)


def prepared_by(
    ir: GraphIR,
    kernel: LoadedKernel,
    parameters: tuple[tuple[str, object], ...],
    values: Sequence[int],
    type: TensorType,
    number: int,
    item: Item,
) -> PreparedValue:
    """The value that a kernel computes from values of `ir` that depend on weights and constants alone."""
    part, _ = part_of(ir, values)
    node = Node(kernel, parameters, part.outputs, (type,), (len(part.types),))
    return prepared(GraphIR("weights", (), (*part.nodes, node), node.results), type, number, item)


class _Preparing(Rewriting):
    def __init__(self, ir: GraphIR, parts: Mapping[int, GraphIR]) -> None:
        super().__init__(ir)
        self.parts = parts

    def rewrite(self, number: int, item: Item) -> None:
        part = self.parts.get(item.results[0]) if isinstance(item, Node) and item.results else None
        if part is None or not any(isinstance(each, External) for each in part.nodes):
            return self.keep(item)
        return self.replace(item, self.add(prepared(part, item.out_types[0], number, item)))


def _may_prepare(makers: Mapping[int, Item], ir: GraphIR, node: Node) -> bool:
    """Whether a node may be done at load, and its result takes no more bytes than what it reads."""
    sizes = _sizes(makers, ir, node)
    if sizes is None or _is_free(ir, node):
        return sizes is not None
    made, most = sizes
    return (elements_of(node.out_types[0]) or 0) >= MIN_ELEMENTS and made <= most


def _may_grow(makers: Mapping[int, Item], ir: GraphIR, node: Node) -> bool:
    """Whether a node may be done at load, and its result is not too large."""
    sizes = _sizes(makers, ir, node)
    return sizes is not None and (_is_free(ir, node) or sizes[0] <= max(MAX_GROWN, sizes[1]))


def _readers(ir: GraphIR) -> Mapping[int, Sequence[Item]]:
    """The items that have a value as an operand, by value."""
    readers: dict[int, list[Item]] = defaultdict(list)
    for item in ir.nodes:
        for value in getattr(item, "operands", ()):
            readers[value].append(item)
    return readers


def _is_needed_in_memory(ir: GraphIR, value: int, readers: Sequence[Item]) -> bool:
    """Whether a value is larger than all that it is computed from, and all nodes that read it need it in memory."""
    made = _bytes(ir.types[value])
    if made is None or (elements_of(ir.types[value]) or 0) < MIN_ELEMENTS:
        return False
    if not all(isinstance(item, Node) and not _computes_where_read(item) for item in readers):
        return False
    part, _ = part_of(ir, [value])
    held = [_bytes(each.type) or 0 for each in part.nodes if isinstance(each, ConstantTensor | External)]
    return made > max(held, default=0)


def _computes_where_read(node: Node) -> bool:
    """Whether a node may be fused with what makes its operands: it moves them, or computes element by element."""
    tensors = node.kernel.schema.tensors
    return bool(node.move) or len({argument.dims for argument in tensors}) == 1


def _sizes(makers: Mapping[int, Item], ir: GraphIR, node: Node) -> tuple[int, int] | None:
    """The bytes of a node's result, and of what it reads; None of a node that is not done at load."""
    type = node.out_types[0] if len(node.out_types) == 1 else None
    if not node.kernel.shipped or not isinstance(type, TensorType) or ir.ordered(node) or is_transfer(ir, node):
        return None
    made, read = _bytes(type), [_bytes(ir.types[_spread(makers, value)]) for value in node.operands]
    if made is None or None in read:
        return None
    counts = [count or 0 for count in read]
    return made, sum(counts) if node.move == "concat" else max(counts, default=0)


def _is_free(ir: GraphIR, node: Node) -> bool:
    """Whether to read the elements of a result takes as long as to find them."""
    return node.move in ("reshape", "broadcast", "slice", "copy") or creates(ir, node)


def _spread(makers: Mapping[int, Item], value: int) -> int:
    """The value whose elements a broadcast repeats; of other values they themselves."""
    maker = makers.get(value)
    while isinstance(maker, Node) and maker.move == "broadcast":
        value = maker.operands[0]
        maker = makers.get(value)
    return value


def _bytes(type: ShapedType) -> int | None:
    count = elements_of(type)
    return None if count is None else int(type.dtype.bytes_for(count))
