"""Lets groups that differ only in numbers share code: literals and sizes become what their calls pass.

A network has the same group many times, with another factor or bound in each, or over tensors of other sizes. Code that
loads the number from an argument has the same bits as code that has it as a constant: the ops concerned compute with it
as with any element. Code for a size that its call passes is that for a symbolic size of a graph.

Sizes that are equal in each of the groups stay one size, so that the code can rely on it. What is 0 or 1, or
the same in all of them, stays a constant.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..dsl.contract.groups import Numbering
from ..dsl.contract.unit import (
    EntrySpec,
    FromBuffer,
    FromNode,
    GroupSpec,
    Literal,
    NodeSpec,
    Operand,
    Passed,
    Size,
    Slot,
)
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.places import is_shipped
from ..dsl.types.dtype import DType
from .common_axes import over_common_axes
from .reshapes import without_edge_reshapes

# Kernels that compute with a number as with any element, whatever it is. Not those of which a number that is known
# makes better code: the larger of two. A quotient is among them where its number is no power of two.
_PLAIN = frozenset(["add", "sub", "mul", "equal", "not_equal", "matmul_8_bits", "matmul_8_bits_packed"])
_SPREADING = frozenset(["broadcast_to"])  # what gives the number on
# Products that read panels of a matrix, their second operand. One panel, or one step along the inner axis, is a number
# of these like any other.
_WITH_PANELS = frozenset(["matmul_packed", "matmul_transposed_packed"])
_TYPES = {DType.float32: "<f", DType.int32: "<i", DType.int64: "<q"}

# Kernels whose inner loops are as fast for sizes that are not known, next to those that map elements: these may be
# roots of groups that share code. A softmax or an average over windows is not among them: it takes up to three times as
# long.
_ANY_SIZES = frozenset([
    "batch_matmul", "batch_matmul_transposed", "broadcast_to", "concat2", "conv", "conv_packed", "conv_squares",
    "depthwise_conv", "gather", "grouped_matmul_ragged", "matmul", "matmul_8_bits", "matmul_8_bits_packed",
    "matmul_packed", "matmul_transposed", "matmul_transposed_packed", "max_pool", "pack_bytes", "pack_filter",
    "pack_pairs", "pack_panels", "pack_panels_transposed", "pack_squares", "pad_places", "permute", "reduce_max",
    "reduce_mean", "reduce_min", "reduce_sum", "reshape", "resize_nearest", "slice", "split_pairs", "split_places",
    "sums_of_bytes",
])  # fmt: skip


@dataclass(frozen=True)
class SharedGroup:
    """A group, and what its call passes: numbers, and sizes.

    Slots of the group from the entry's number of slots on are `sizes`, in their order.
    """

    group: Numbering
    passed: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    def dims(self) -> tuple[Size, ...]:
        """The sizes that the call passes: slots of the entry, and numbers."""
        count = self.group.spec.slots
        return tuple(Slot(n) if n < count else self.sizes[n - count] for n in self.group.slots)


@dataclass(frozen=True)
class _General:
    """A group without its numbers: equal keys are groups that may differ in these alone."""

    key: tuple[str, int]
    numbers: tuple[int, ...]
    sizes: tuple[int, ...]


def shared_groups(spec: EntrySpec) -> list[SharedGroup]:
    """The groups of an entry; those that are equal but for numbers take these as arguments."""
    groups = [_without_reshapes(spec, group) for group in spec.groups]
    whole = [_general(spec, group) for group in groups]
    kinds: dict[tuple[str, int], list[_General]] = {}
    for made in whole:
        kinds.setdefault(made.key, []).append(made)
    return [_shared(spec, group, kinds[made.key]) for group, made in zip(groups, whole, strict=True)]


def alone(spec: EntrySpec, number: int) -> SharedGroup:
    """A group of an entry that shares no code: kernels may fuse for sizes that are known, and not for others."""
    return SharedGroup(Numbering(spec, _without_reshapes(spec, spec.groups[number])))


def _without_reshapes(spec: EntrySpec, group: GroupSpec) -> GroupSpec:
    """A group with as few reshapes as may be, which compute with sizes that code cannot share."""
    return over_common_axes(spec, without_edge_reshapes(spec, group))


def _general(spec: EntrySpec, group: GroupSpec) -> _General:
    numbers, sizes = list[int](), list[int]()

    def slot(size: int) -> Size:
        sizes.append(size)
        return Slot(spec.slots + len(sizes) - 1)

    general = _replaced(group, numbers, lambda _: True, slot)
    key = Numbering(spec, general).key, len(sizes)  # sizes of the entry differ from those that are numbers
    return _General(key, tuple(numbers), tuple(sizes))


def _shared(spec: EntrySpec, group: GroupSpec, kind: Sequence[_General]) -> SharedGroup:
    """A group as the others of its kind are, with arguments for what differs among them."""
    columns = list(zip(*(each.numbers for each in kind), strict=True))
    differing = [len(set(column)) > 1 for column in columns]
    axes = iter(list(zip(*(each.sizes for each in kind), strict=True)))
    slots: dict[tuple[int, ...], int] = {}
    numbers, sizes = list[int](), list[int]()

    def slot(size: int) -> Size:
        column = next(axes)
        if len(set(column)) == 1:
            return size
        if column not in slots:
            slots[column] = spec.slots + len(sizes)
            sizes.append(size)
        return Slot(slots[column])

    general = _replaced(group, numbers, lambda count: differing[count], slot)
    return SharedGroup(Numbering(spec, general), tuple(numbers), tuple(sizes))


def _replaced(
    group: GroupSpec, numbers: list[int], wanted: Callable[[int], bool], slot: Callable[[int], Size]
) -> GroupSpec:
    """A group whose literals are passed, as far as they are wanted, and with other sizes.

    Args:
        group: a group.
        numbers: takes the bits of the literals that are passed.
        wanted: whether the literal of this number is passed; the others stay what they are.
        slot: called with each size that may differ among groups, in a fixed order; returns what takes its place.
    """
    fixed = _fixed_sizes(group)
    count = 0

    def shape(sizes: tuple[Size, ...], any_axes: range = range(0)) -> tuple[Size, ...]:
        """Other sizes; of `any_axes` also for those of 1."""
        if fixed is None:
            return sizes

        def other(axis: int, n: Size) -> Size:
            return n if isinstance(n, Slot) or (n in fixed and not (n == 1 and axis in any_axes)) else slot(n)

        return tuple(other(axis, n) for axis, n in enumerate(sizes))

    def operand(number: int, place: int, each: Operand) -> Operand:
        nonlocal count
        if isinstance(each, FromNode):
            return each
        bits = _bits(each) if isinstance(each, Literal) and _takes_any(group.nodes, number, each) else None
        if isinstance(each, Literal) and bits is not None:
            count += 1
            if wanted(count - 1):
                numbers.append(bits)
                return Passed(len(numbers) - 1, each.dtype, shape(each.shape))
        return replace(each, shape=shape(each.shape, _axes_of_any_size(group, number, place)))

    nodes = []
    for number, node in enumerate(group.nodes):
        inputs = tuple(operand(number, place, each) for place, each in enumerate(node.inputs))
        outputs = tuple((dtype, shape(sizes)) for dtype, sizes in node.outputs)
        nodes.append(replace(node, inputs=inputs, outputs=outputs))
    return replace(group, nodes=tuple(nodes), passed=len(numbers))


# *** sizes ***


def _fixed_sizes(group: GroupSpec) -> frozenset[int] | None:
    """The sizes of a group that stay constants; None for all of them."""
    maps = [node.kernel.maps_elements for node in group.nodes]
    known = all(
        there or is_shipped(node.kernel.functions[0].file) for there, node in zip(maps, group.nodes, strict=True)
    )
    as_fast = maps[group.root] or group.light or group.nodes[group.root].kernel.schema.name in _ANY_SIZES
    if not known or not as_fast:
        return None
    fixed = {0, 1}
    for number, node in enumerate(group.nodes):
        if node.kernel.schema.move == "reshape" and not _is_stored_alone(group, number):
            fixed.update(_divided_sizes(_shape_of(group, node.inputs[0]), node.outputs[0][1]))
    return frozenset(fixed)


def _axes_of_any_size(group: GroupSpec, number: int, place: int) -> range:
    """The axes of an operand along which a size of 1 is like any other: those of panels, and the inner one of products
    with these. Along others it may stand for an operand that is repeated."""
    node = group.nodes[number]
    if number != group.root or node.kernel.schema.name not in _WITH_PANELS:
        return range(0)
    ranks = [len(each.shape) for each in node.inputs if isinstance(each, FromBuffer)]
    if len(ranks) < len(node.inputs):
        return range(0)
    return range(0 if place else ranks[0] - 1, ranks[place])


def _is_stored_alone(group: GroupSpec, number: int) -> bool:
    """Whether a node is the last of the moves to what is stored, where a position serves as an index."""
    return number == group.epilogue and number in group.moves


def _shape_of(group: GroupSpec, operand: Operand) -> tuple[Size, ...]:
    if isinstance(operand, FromNode):
        return group.nodes[operand.node].outputs[operand.output][1]
    return operand.shape


def _divided_sizes(before: Sequence[Size], after: Sequence[Size]) -> list[int]:
    """The sizes between which elements of a reshape are taken apart, which is by numbers that the code has to know."""
    left, right = ([size for size in shape if size != 1] for shape in (before, after))
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    return [size for size in (*left, *right) if isinstance(size, int)]


# *** literals ***


def _bits(operand: Operand) -> int | None:
    """A literal's bits as a number of 64 bits; None of what is not a literal, or of a dtype that cannot be passed."""
    if not isinstance(operand, Literal) or operand.dtype not in _TYPES:
        return None
    data = struct.pack(_TYPES[operand.dtype], operand.value)
    return int.from_bytes(data, "little", signed=operand.dtype is DType.int64)


def _takes_any(nodes: Sequence[NodeSpec], number: int, literal: Literal) -> bool:
    """Whether a node, and each that it gives its operand on to, computes with a number as with any element."""
    name = nodes[number].kernel.schema.name
    if name in _PLAIN:
        return True
    if name == "div":
        return literal.dtype.is_float() and abs(math.frexp(float(literal.value))[0]) != 0.5  # type: ignore[arg-type]
    if name not in _SPREADING:
        return False
    users = [
        k for k, node in enumerate(nodes) if any(isinstance(o, FromNode) and o.node == number for o in node.inputs)
    ]
    return all(_takes_any(nodes, user, literal) for user in users)
