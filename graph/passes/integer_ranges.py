"""Finds between which numbers the elements of an integer tensor lie, as far as its graph shows it.

    cast(x, int32) - cast(zero, int32)        of uint8: from -255 to 255

Casts, sums, differences and moves are followed back to constants of few elements, and to tensors of 8-bit integers,
whose dtype bounds their elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...dsl.types.dtype import DType
from ..ir import ConstantTensor, GraphIR, Item, Node, PreparedValue

Range = tuple[int, int]  # the smallest and the largest number

BYTES: Final[Mapping[DType, Range]] = {DType.uint8: (0, 255), DType.int8: (-128, 127)}
MOVES: Final = ("broadcast_to", "reshape", "permute", "slice")
MOST_SEEN: Final = 1 << 12  # elements of a constant that are looked at
INT32: Final[Range] = (-(1 << 31), (1 << 31) - 1)


def integer_range(ir: GraphIR, value: int, makers: Mapping[int, Item]) -> Range | None:
    """Between which numbers the elements of a value lie; None where that is not known.

    `makers` has the item that each value is a result of.
    """
    if (known := BYTES.get(ir.types[value].dtype)) is not None:
        return known
    item = makers.get(value)
    if ir.types[value].dtype != DType.int32:
        return None
    if isinstance(item, ConstantTensor) and 0 < item.array.size <= MOST_SEEN:
        return int(item.array.min()), int(item.array.max())
    if isinstance(item, PreparedValue) and (part := item.part) is not None:
        return integer_range(part, part.outputs[0], {made: each for each in part.nodes for made in each.results})
    if not isinstance(item, Node) or not item.kernel.shipped:
        return None
    return _of_node(ir, item, makers)


def _of_node(ir: GraphIR, node: Node, makers: Mapping[int, Item]) -> Range | None:
    """The range of the result of a node of int32."""
    if node.name in (*MOVES, "cast"):
        return integer_range(ir, node.operands[0], makers)
    if node.name == "pad_places":
        inner = integer_range(ir, node.operands[0], makers)
        return inner and (min(inner[0], 0), max(inner[1], 0))
    if node.name in ("add", "sub"):
        left, right = (integer_range(ir, operand, makers) for operand in node.operands)
        if left is None or right is None:
            return None
        low, high = right if node.name == "add" else (-right[1], -right[0])
        total = (left[0] + low, left[1] + high)
        return total if INT32[0] <= total[0] and total[1] <= INT32[1] else None
    return None
