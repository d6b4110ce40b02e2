"""Writes elementwise groups over axes that all their tensors have in common, so that they need no reshapes.

    x: [n, 32, 512] * [n, 32, 1], reshaped to [n, 64, 16, 16], + [64, 1, 1]
    x: [n, 32, 2, 256] * [n, 32, 1, 1]                         + [1, 32, 2, 1]

An axis of one shape is cut where an axis of another one ends, and neighbours that each tensor has or has not become one
axis. Elements are computed as before, in row-major order, and groups that differ in these sizes share code: an index
is not taken apart by numbers that the code has to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..dsl.contract.unit import EntrySpec, FromNode, GroupSpec, NodeSpec, Operand, Size
from ..dsl.diagnostics.places import is_shipped
from ..dsl.signature.schema import Form, TensorArgument
from .reshapes import has_any_shape, is_reshape, without_nodes


class _Axis:
    """An axis: its size, or the axes that it is cut into."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.parts: list[_Axis] | None = None

    def cut(self) -> Iterator[_Axis]:
        """The axes that it stands for."""
        if self.parts is None:
            yield self
        else:
            for part in self.parts:
                yield from part.cut()


Axes = list[list[_Axis]]  # those of each axis of a shape; none of an axis of size 1


def over_common_axes(spec: EntrySpec, group: GroupSpec) -> GroupSpec:
    """A group without reshapes, if all its kernels are elementwise and the sizes say which axes are the same."""
    gone = [number for number, node in enumerate(group.nodes) if is_reshape(node)]
    if not gone or group.root in gone or group.epilogue is not None or not all(map(_may_be, group.nodes)):
        return group
    if not all(has_any_shape(spec.buffers, operand) for node in group.nodes for operand in node.inputs):
        return group
    inputs, outputs = list[list[Axes]](), list[Axes]()
    for node in group.nodes:
        inputs.append([outputs[o.node] if isinstance(o, FromNode) else _axes(o.shape) for o in node.inputs])
        outputs.append(_axes(node.outputs[0][1]))
        if not _joined(node, inputs[-1], outputs[-1]):
            return group
    tensors = [_flat(axes) for axes in (*outputs, *(each for row in inputs for each in row))]
    whole = tensors[group.root]
    if not whole or not set(whole).issuperset(axis for axes in tensors for axis in axes):
        return group
    if len(set(whole)) < len(whole):  # one tensor lies along two axes, as in x[:, None] - x
        return group
    blocks = _blocks(whole, [frozenset(axes) for axes in tensors])

    def shape(axes: Axes) -> tuple[Size, ...]:
        there = set(_flat(axes))
        return tuple(size if first in there else 1 for first, size in blocks)

    def operand(argument: TensorArgument, each: Operand, axes: Axes) -> Operand:
        if isinstance(each, FromNode) or argument.form is Form.SCALAR:
            return each
        return replace(each, shape=shape(axes))

    nodes = []
    for node, read, made in zip(group.nodes, inputs, outputs, strict=True):
        operands = tuple(map(operand, node.kernel.schema.inputs, node.inputs, read))
        nodes.append(replace(node, inputs=operands, outputs=((node.outputs[0][0], shape(made)),)))
    return without_nodes(replace(group, nodes=tuple(nodes)), {number: nodes[number].inputs[0] for number in gone})


def _may_be(node: NodeSpec) -> bool:
    move = node.kernel.schema.move
    known = node.kernel.maps_elements or (
        move in ("reshape", "broadcast") and is_shipped(node.kernel.functions[0].file)
    )
    return known and len(node.outputs) == 1


def _axes(shape: tuple[Size, ...]) -> Axes:
    return [[] if size == 1 else [_Axis(size)] for size in shape]


def _flat(axes: Axes) -> list[_Axis]:
    return [part for axis in axes for each in axis for part in each.cut()]


def _joined(node: NodeSpec, inputs: Sequence[Axes], output: Axes) -> bool:
    """Makes axes of a node's operands and of its result that are the same one axis; whether that is possible."""
    if is_reshape(node):
        return _same(_flat(inputs[0]), _flat(output))
    spreads = node.kernel.schema.move == "broadcast"
    for argument, axes in zip(node.kernel.schema.inputs, inputs, strict=True):
        if argument.form is Form.SCALAR:
            continue
        ahead = len(output) - len(axes)
        if ahead < 0 or (ahead and not spreads):
            return False
        for left, right in zip(axes, output[ahead:], strict=True):
            one, other = _flat([left]), _flat([right])
            if not one and (spreads or not other):
                continue
            if not _same(one, other):
                return False
    return True


def _same(left: list[_Axis], right: list[_Axis]) -> bool:
    """Cuts the axes of two shapes of equally many elements, from the last one on, so that they are the same axes."""
    while left and right:
        one, other = left.pop(), right.pop()
        if one is other:
            continue
        if one.parts is not None or other.parts is not None:  # by this: it is two axes of one of the shapes
            return False
        if one.size == other.size:
            one.parts = [other]
            continue
        if not isinstance(one.size, int) or not isinstance(other.size, int):
            return False
        large, small, rest = (one, other, left) if one.size > other.size else (other, one, right)
        assert isinstance(large.size, int) and isinstance(small.size, int)
        if small.size == 0 or large.size % small.size:
            return False
        outer = _Axis(large.size // small.size)
        large.parts = [outer, small]
        rest.append(outer)
    return not left and not right


def _blocks(whole: Sequence[_Axis], tensors: Sequence[frozenset[_Axis]]) -> list[tuple[_Axis, Size]]:
    """The first axis and the size of each run of axes of known sizes that every tensor has or has not."""
    blocks: list[tuple[_Axis, Size]] = []
    for axis in whole:
        if blocks:
            first, size = blocks[-1]
            together = all((first in each) == (axis in each) for each in tensors)
            if together and isinstance(size, int) and isinstance(axis.size, int):
                blocks[-1] = first, size * axis.size
                continue
        blocks.append((axis, axis.size))
    return blocks
