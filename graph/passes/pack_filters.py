"""Packs the filters of convolutions when a model is loaded, for images whose channels come before their places.

    conv(pad_places(x), filter)        conv_packed(split_places(x), prepared)

Filters that are weights or constants are cut into strips of results; see the kernels in `packed_convolution`. No bit of
a result differs. The strips take as much memory as the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

from ...dsl.types.dtype import DType
from ..ir import GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.dims import StaticDim
from ..types.tensor_type import TensorType
from .pack_weights import KernelOf, held_values
from .prepare_weights import prepared_by

Numbers = tuple[int, ...]

FAMILY: Final = "packed_convolution"
DTYPES: Final = (DType.float32, DType.float64, DType.int32)
PANEL: Final = 32  # places that may be read behind the last plane; as in the kernels


def pack_filters(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed filters; `vector_bits` finds the width of the target's vectors, 0 of a GPU."""
    if len(ir.devices) > 1 or not any(isinstance(item, Node) and item.name == "conv" for item in ir.nodes):
        return ir
    bits = vector_bits(ir)
    return _FilterPacking(ir, bits, kernel_of).run() if bits else ir


def strip_rows(results: int, vector_bits: int) -> int:
    """How many results a strip has: so many that few are computed in vain, and many at a time."""
    most = 14 if vector_bits >= 512 else 6
    if results <= most:
        return max(results, 1)
    return min(range(most, most // 2, -1), key=lambda rows: -(-results // rows) * (rows + 1.2))


class _FilterPacking(Rewriting):
    pass_name = "pack_filters"

    def __init__(self, ir: GraphIR, vector_bits: int, kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.vector_bits = vector_bits
        self.kernel_of = kernel_of
        self.held = held_values(ir, computed=True)  # as a filter of integers without its zero point
        self.sources = {value: each for each in ir.nodes for value in each.results}
        self.packed: dict[int, int] = {}  # by filter, a value of `ir`, that in strips

    def run(self) -> GraphIR:
        """The new graph. Strips stand before all else, so that the bodies of branches and loops may read them."""
        for item in self.ir.nodes:
            if isinstance(item, Node) and self._may_pack(item) and item.operands[1] not in self.packed:
                self.packed[item.operands[1]] = self._strips(item)
        return super().run()

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not self._may_pack(item):
            return self.keep(item)
        parameters = dict(item.parameters)
        filter = item.operands[1]
        type, out = self.ir.types[filter], item.out_types[0]
        taps = tuple(int(size) for size in type.shape[2:])
        source, before, sizes = self._image(item.operands[0], len(taps))
        image, after = self.values[source], tuple(int(size) for size in sizes)
        stride, dilation = (parameters[name] for name in ("stride", "dilation"))
        given = {"taps": taps, "stride": parameters["stride"], "dilation": parameters["dilation"]}
        is_direct = not any((*before, *after)) and all(n == 1 for n in (*taps, *stride)) and self._is_wide(out)
        if not is_direct:
            shape = self._split_shape(image, out, taps, stride, dilation)
            edges = {"before": before, "after": after}
            (image,) = self.add(self._node("split_places", given | edges, [image], out.with_shape(shape), item))
        given |= {"groups": parameters["groups"], "rows": self._rows(item), "direct": is_direct}
        given["small"] = self._is_small(out, self._rows(item))
        operands = [image, self.packed[filter]]
        return self.replace(item, self.add(self._node("conv_packed", given, operands, out, item)))

    def _may_pack(self, node: Node) -> bool:
        if node.name != "conv" or not node.kernel.shipped or node.operands[1] not in self.held:
            return False
        type = self.ir.types[node.operands[1]]
        if type.dtype not in DTYPES or not dict(node.parameters)["first"]:
            return False
        known = (*type.shape, *self._image(node.operands[0], len(type.shape) - 2)[2])
        return all(isinstance(size, StaticDim) for size in known) and all(int(size) > 0 for size in type.shape)

    def _image(self, x: int, axes: int) -> tuple[int, Numbers, list[Any]]:
        """What is padded, and how many zeros lie before and after each axis."""
        pad = self.sources.get(x)
        if not isinstance(pad, Node) or not pad.kernel.shipped or pad.name != "pad_places":
            return x, (0,) * axes, [StaticDim(0)] * axes
        before = dict(pad.parameters)["before"]
        image = pad.operands[0]
        sizes = zip(self.ir.types[x].shape[2:], self.ir.types[image].shape[2:], before, strict=True)
        return image, before, [padded - size - low for padded, size, low in sizes]

    def _rows(self, node: Node) -> int:
        """How many results a strip of a convolution's filter has."""
        results = int(self.ir.types[node.operands[1]].shape[0])
        return strip_rows(results // dict(node.parameters)["groups"], self.vector_bits)

    def _is_wide(self, out: Any) -> bool:
        """Whether a result has as many places as a panel."""
        sizes = out.shape[2:]
        return all(isinstance(size, StaticDim) for size in sizes) and prod(map(int, sizes)) >= PANEL

    def _is_small(self, out: Any, rows: int) -> str:
        """Whether a result has few places, as the kernel says it: an image of any height and width has many.

        For a call that decides the code of both ways is compiled, which takes twice as long.
        """
        sizes = out.shape[2:]
        unknown = sum(not isinstance(size, StaticDim) for size in sizes)
        if unknown:
            return "" if unknown == 1 else "no"
        return "yes" if prod(map(int, sizes)) <= rows + rows // 2 else "no"

    def _split_shape(self, image: int, out: Any, taps: Numbers, stride: Numbers, dilation: Numbers) -> list[Any]:
        size = self.types[image].shape[1]
        for t, places in enumerate(out.shape[2:]):
            phases = stride[t] if taps[t] > 1 else 1
            size = size * phases * (places + (taps[t] - 1) * dilation[t] // stride[t])
        return [out.shape[0], size + PANEL]

    def _strips(self, node: Node) -> int:
        filter, groups, rows = node.operands[1], dict(node.parameters)["groups"], self._rows(node)
        type = self.ir.types[filter]
        assert isinstance(type, TensorType)
        results, depth = int(type.shape[0]) // groups, prod(int(size) for size in type.shape[1:])
        strips = type.with_shape([groups * -(-results // rows), depth, rows])
        kernel = self.kernel_of(FAMILY, "pack_filter")
        parameters = (("groups", groups),)
        held = self.held[filter]
        (value,) = self.add(prepared_by(self.ir, kernel, parameters, [filter], strips, len(self.made), held))
        return value

    def _node(self, name: str, parameters: dict[str, Any], operands: list[int], type: Any, item: Node) -> Node:
        kernel = self.kernel_of(FAMILY, name)
        return Node(kernel, tuple(parameters.items()), tuple(operands), (type,), (0,), item.place)
