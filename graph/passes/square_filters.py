"""Packs the filters of convolutions whose results are computed two by two, when a model is loaded.

    conv(pad_places(x), filter)        conv_squares(x, prepared)

These have three by three taps of neighbours and step from place to place; they are large enough. Four results then take
16 products where `conv` takes 36, and differ from its results by rounding. Strips take 16/9 of the filter's memory.

See also `pack_filters` (other convolutions), the kernels in `square_convolution`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...dsl.types.dtype import DType
from ..ir import GraphIR, Item, Node
from .pack_filters import FilterPacking, Numbers, has_convolutions
from .pack_weights import KernelOf

FAMILY: Final = "square_convolution"
DTYPES: Final = (DType.float32, DType.float64)
SQUARE: Final = 16  # factors of two by two results; as in the kernels
LEAST: Final = 16  # channels, and results, of a convolution: fewer gain nothing


def square_filters(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed filters of convolutions whose results are computed two by two."""
    if not has_convolutions(ir):
        return ir
    bits = vector_bits(ir)
    return _SquarePacking(ir, bits, kernel_of).run() if bits else ir


class _SquarePacking(FilterPacking):
    pass_name = "square_filters"
    pack, grouped = (FAMILY, "pack_squares"), False

    def may_pack(self, node: Node) -> bool:
        if not super().may_pack(node) or self.is_small(node) != "no":
            return False
        parameters, type = dict(node.parameters), self.ir.types[node.operands[1]]
        steps = (*parameters["stride"], *parameters["dilation"], parameters["groups"])
        taps = tuple(map(int, type.shape[2:]))
        many = min(map(int, type.shape[:2])) >= LEAST
        return taps == (3, 3) and all(n == 1 for n in steps) and many and type.dtype in DTYPES

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not self.may_pack(item):
            return self.keep(item)
        filter, out = item.operands[1], item.out_types[0]
        source, before, _ = self.image(item.operands[0], 2)
        rows = self.rows_of(item)
        operands, given = [self.values[source], self.packed[filter, rows]], {"before": before, "rows": rows}
        node = self.made_by((FAMILY, "conv_squares"), given, operands, out, item)
        return self.replace(item, self.add(node))

    def strip_shape(self, strips: int, taps: Numbers, rows: int) -> list[int]:
        return [SQUARE * strips, taps[0], rows]
