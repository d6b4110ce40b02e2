"""Writes groups without the reshapes at their edges: what lies in memory is read, or written, in the other shape.

    reduce_max(reshape(buffer: [1, 64, 8, n]): [512 n])        reduce_max(buffer: [512 n])

Elements in memory are in row-major order whatever the shape, so that no index is taken apart, and groups of tensors of
different shapes share code. No bit differs.
"""

from __future__ import annotations

from dataclasses import replace

from ..dsl.contract.unit import BufferSpec, EntrySpec, FromBuffer, FromNode, GroupSpec, NodeSpec, Operand


def without_edge_reshapes(spec: EntrySpec, group: GroupSpec) -> GroupSpec:
    """A group of an entry that reads and writes its buffers in the shapes in which it computes."""
    if not any(is_reshape(node) for node in group.nodes):
        return group
    return _without_first(spec.buffers, _without_last(group))


def is_reshape(node: NodeSpec) -> bool:
    """Whether a node only gives its operand another shape."""
    return node.kernel.schema.move == "reshape"


def has_any_shape(buffers: tuple[BufferSpec, ...], operand: Operand) -> bool:
    """Whether an operand may be seen in any shape of as many elements."""
    if not isinstance(operand, FromBuffer):
        return True
    buffer = buffers[operand.buffer]
    return buffer.strides is None and not buffer.dtype.is_packed()


def _without_last(group: GroupSpec) -> GroupSpec:
    """Without reshapes of what is stored."""
    while True:
        last = group.root if group.epilogue is None else group.epilogue
        node = group.nodes[last]
        (source,) = node.inputs if is_reshape(node) else (None,)
        if not isinstance(source, FromNode) or len(group.nodes[source.node].outputs) != 1:
            return group
        stores = tuple(replace(each, node=source.node) for each in group.stores)
        moves = tuple(number for number in group.moves if number != last)
        if group.epilogue is None:
            group = replace(group, root=source.node, stores=stores)
        else:
            epilogue = None if source.node == group.root else source.node
            group = replace(group, epilogue=epilogue, stores=stores, moves=moves)
        group = without_nodes(group, {last: source})


def _without_first(buffers: tuple[BufferSpec, ...], group: GroupSpec) -> GroupSpec:
    """Without reshapes of operands."""
    gone: dict[int, Operand] = {}
    kept = {group.root, group.epilogue, *group.moves}
    for number, node in enumerate(group.nodes):
        if not is_reshape(node) or number in kept:
            continue
        operand = node.inputs[0]
        if isinstance(operand, FromNode):
            operand = gone.get(operand.node, operand)
        if not isinstance(operand, FromNode) and has_any_shape(buffers, operand):
            gone[number] = replace(operand, shape=node.outputs[0][1])
    return without_nodes(group, gone) if gone else group


def without_nodes(group: GroupSpec, gone: dict[int, Operand]) -> GroupSpec:
    """The group without some nodes, in whose places these operands are read."""
    left = [number for number in range(len(group.nodes)) if number not in gone]
    numbers = {number: place for place, number in enumerate(left)}

    def operand(each: Operand) -> Operand:
        while isinstance(each, FromNode) and each.node in gone:
            each = gone[each.node]
        return replace(each, node=numbers[each.node]) if isinstance(each, FromNode) else each

    nodes = (group.nodes[number] for number in left)
    return replace(
        group,
        nodes=tuple(replace(node, inputs=tuple(map(operand, node.inputs))) for node in nodes),
        root=numbers[group.root],
        stores=tuple(replace(each, node=numbers[each.node]) for each in group.stores),
        epilogue=None if group.epilogue is None else numbers[group.epilogue],
        moves=tuple(numbers[number] for number in group.moves),
    )
