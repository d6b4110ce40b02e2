"""Makes sizes agree where ONNX compares them when the model runs: what import cannot prove, a call checks.

Two sizes that import can compare are left to the op, which says what is wrong with them. Of others a condition is
added to the graph, with both sizes and the node in its message, and the tensors get the same sizes:

    Concat of axes of (h + 15)//16 and 2*((h + 31)//32)      a call has to have h for which these are equal
    Add of axes of n and m, two names of inputs              equal, or the one that is 1 is broadcast

A size that is computed, such as `(n + 320)//512`, counts as equal to what it is compared with; a named one may also
be 1 and broadcast, if the other one does not depend on it.

See also `staging.graph.Graph.require` (conditions in arms of branches).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .. import ops
from ..ops.operands import as_shape
from ..ops.stage import builtin, require
from ..staging.value import TensorValue
from ..types.dims import Dim, StaticDim, SymbolicDim, dim_max, dim_min
from .known import is_at_least

ONE = StaticDim(1)


class ConvertedNode(Protocol):
    """The node that is being converted; see `call.NodeCall`."""

    node: Any
    broadcasts: dict[Dim, frozenset[Dim]]


def differ_by_number(left: Dim, right: Dim) -> bool:
    """Whether two sizes are never equal."""
    return left != right and isinstance(left - right, StaticDim)


def equal_size(call: ConvertedNode, left: Dim, right: Dim, what: str) -> Dim:
    """The size of two axes that have to have the same one; `left` where they never have it."""
    if left == right or differ_by_number(left, right):
        return left
    require(call.node.op_type, "equal", left, right, f"{what} have to be equal")
    return _simpler(left, right)


def same_sizes(call: ConvertedNode, values: Sequence[TensorValue], but: int | None = None) -> list[TensorValue]:
    """Tensors of one rank with equal sizes, on all axes or on all but one."""
    first = values[0]
    if any(value.rank != first.rank for value in values):
        return list(values)
    sizes = list(first.shape)
    for axis in range(first.rank):
        for position, value in enumerate(values[1:], 1):
            if axis != but:
                what = f"the sizes of inputs 0 and {position} on axis {axis}"
                sizes[axis] = equal_size(call, sizes[axis], value.shape[axis], what)
    return [with_sizes(x, [x.shape[k] if k == but else sizes[k] for k in range(x.rank)]) for x in values]


def with_equal_axes(call: ConvertedNode, what: str, *places: tuple[TensorValue, int]) -> list[TensorValue]:
    """Tensors whose given axes get one size; `what` names the sizes in a message."""
    size = places[0][0].shape[places[0][1]]
    for value, axis in places[1:]:
        size = equal_size(call, size, value.shape[axis], what)
    return [
        with_sizes(value, [size if k == axis % value.rank else own for k, own in enumerate(value.shape)])
        for value, axis in places
    ]


def with_sizes_of(call: ConvertedNode, x: TensorValue, *weights: TensorValue | None) -> TensorValue:
    """A tensor whose last axes have the sizes of weights that are broadcast over it; an axis of 1 fits any size."""
    sizes = list(x.shape)
    for weight in weights:
        for axis in range(1, 0 if weight is None else weight.rank + 1):
            assert weight is not None
            if weight.shape[-axis] != ONE and axis <= x.rank:
                what = f"the sizes of the input and of its weights on axis {-axis}"
                sizes[-axis] = equal_size(call, sizes[-axis], weight.shape[-axis], what)
    return with_sizes(x, sizes)


def required_sizes(name: str, value: TensorValue, sizes: Sequence[Dim]) -> TensorValue:
    """An input under the sizes that the caller of the import says it has."""
    for axis, (own, dim) in enumerate(zip(value.shape, sizes, strict=True)):
        if own != dim:
            require(
                "from_onnx", "equal", own, dim, f"input {name!r}: axis {axis} has not the size that shapes= gives it"
            )
    return as_shape(value, sizes)


def with_sizes(value: TensorValue, sizes: Sequence[Dim]) -> TensorValue:
    """A tensor under sizes that are required to be its own; those that are never its own are left to the op."""
    wanted = [own if differ_by_number(own, dim) else dim for own, dim in zip(value.shape, sizes, strict=True)]
    return as_shape(value, wanted)


def broadcast_sizes(call: ConvertedNode, values: Sequence[TensorValue], behind: int = 0) -> list[TensorValue]:
    """Tensors whose sizes can be seen to broadcast, the last `behind` axes aside."""
    if all(value.shape == values[0].shape for value in values):
        return list(values)
    sizes: dict[int, Dim] = {}  # by axis from the end
    for position, value in enumerate(values):
        for axis in range(behind + 1, value.rank + 1):
            what = f"the sizes of inputs 0 to {position} on axis {-axis}" if position > 1 else ""
            what = what or f"the sizes of its inputs on axis {-axis}"
            sizes[axis] = _broadcast(call, sizes.get(axis, ONE), value.shape[-axis], what)
    return [_spread(call, value, sizes, behind) for value in values]


def broadcast_to_sizes(call: ConvertedNode, value: TensorValue, sizes: Sequence[Dim]) -> TensorValue:
    """A tensor broadcast with a shape."""
    joint: dict[int, Dim] = {}
    for axis in range(1, max(value.rank, len(sizes)) + 1):
        own = value.shape[-axis] if axis <= value.rank else ONE
        wanted = sizes[-axis] if axis <= len(sizes) else ONE
        joint[axis] = _broadcast(call, own, wanted, f"its size and the requested one on axis {-axis}")
    spread = _spread(call, value, joint, 0)
    return ops.broadcast_to(spread, [joint[axis] for axis in range(len(joint), 0, -1)])


def _broadcast(call: ConvertedNode, left: Dim, right: Dim, what: str) -> Dim:
    """The size that two axes have together."""
    if left == right or right == ONE:
        return left
    parts, others = (call.broadcasts.get(dim, frozenset([dim])) for dim in (left, right))
    if left == ONE or parts < others:
        return right
    if differ_by_number(left, right) or others < parts:
        return left
    if not _may_be_one(left, right):
        return equal_size(call, left, right, what)
    require(call.node.op_type, "broadcast", left, right, f"{what} have to be equal, or one of them 1")
    static = next((dim for dim in (left, right) if isinstance(dim, StaticDim)), None)
    if static is not None:
        return static
    both = sorted(parts | others, key=str)
    joint = dim_max(*both) * dim_min(1, *both)  # 0 where one is 0 and the other one 1
    call.broadcasts[joint] = frozenset(both)
    return joint


def _may_be_one(left: Dim, right: Dim) -> bool:
    """Whether two sizes may differ in a call: one of them is a name that the other one does not depend on, or is at
    most 1, such as the `min(1, n)` elements of a slice."""
    if any(is_at_least(ONE, dim) for dim in (left, right)):
        return True
    names = set(left.parameters).isdisjoint(right.parameters)
    return names and any(isinstance(dim, SymbolicDim) for dim in (left, right))


def _spread(call: ConvertedNode, value: TensorValue, sizes: dict[int, Dim], behind: int) -> TensorValue:
    """A tensor with those of its sizes that are not 1 replaced by the joint ones."""
    wanted, by_size = list(value.shape), [False] * value.rank
    for axis in range(behind + 1, value.rank + 1):
        own, joint = value.shape[-axis], sizes[axis]
        if own in (ONE, joint) or differ_by_number(own, joint):
            continue
        wanted[-axis] = joint
        by_size[-axis] = joint in call.broadcasts or _may_be_one(own, joint)
    if not any(by_size):
        return as_shape(value, wanted)
    renamed = [own if spread else dim for own, dim, spread in zip(value.shape, wanted, by_size, strict=True)]
    axes = tuple(int(spread) for spread in by_size)
    operand, out = as_shape(value, renamed), value.type.with_shape(wanted)
    return builtin("movement", "broadcast_by_size", [operand], {"axes": axes}, [out])[0]


def _simpler(left: Dim, right: Dim) -> Dim:
    """The one of two sizes that more can be seen of: a number, a name, the shorter expression."""
    return min(left, right, key=lambda dim: (not isinstance(dim, StaticDim), len(dim.parameters), len(str(dim))))
