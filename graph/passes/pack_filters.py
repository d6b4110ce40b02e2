"""Packs the filters of convolutions when a model is loaded, for images whose channels come before their places.

    conv(pad_places(x), filter)        conv_packed(split_places(x), prepared)

Filters that are weights or constants are cut into strips of results; see the kernels in `packed_convolution`. No bit of
a result differs. The strips take as much memory as the filter.

`pair_filters` takes those first whose last axis has three taps of neighbours, of convolutions that are large enough:

    conv(pad_places(x), filter)        conv_packed(split_pairs(x), prepared)

Two neighbouring results then take four products where `conv` takes six, and differ from its results by rounding. Their
strips take 4/3 of the filter's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..ir import GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import TensorType
from .integer_ranges import integer_range
from .pack_weights import KernelOf, held_values
from .prepare_weights import prepared_by

Numbers = tuple[int, ...]
Parameters = tuple[tuple[str, int | Numbers], ...]

FAMILY: Final = "packed_convolution"
CAST: Final = ("elementwise", "cast")
PAIRED_FAMILY: Final = "paired_convolution"
DTYPES: Final = (DType.float32, DType.float64, DType.int32)
PAIRED_DTYPES: Final = (DType.float32, DType.float64)
LEAST_FACTORED: Final = (
    16  # channels, and results, of a convolution whose results are computed in pairs: fewer gain nothing
)
FACTORS: Final = 4  # of a pair of results; as in the kernels
MORE: Final = 0.04  # of the time of a convolution, for which another one's code is taken
FEW_LINES: Final = 4  # of a map, which may have few places if one line of it has
DEPTH: Final = 256  # products of a slab; as in the kernels
MOST_EXACT: Final = 1 << 24  # up to which all integers are numbers of float32
PANEL: Final = 32  # places that may be read behind the last plane; as in the kernels


def pack_filters(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed filters; `vector_bits` finds the width of the target's vectors, 0 of a GPU."""
    if not has_convolutions(ir):
        return ir
    bits = vector_bits(ir)
    return FilterPacking(ir, bits, kernel_of).run() if bits else ir


def pair_filters(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed filters of convolutions whose results are computed in pairs."""
    if not has_convolutions(ir):
        return ir
    bits = vector_bits(ir)
    return _PairPacking(ir, bits, kernel_of).run() if bits else ir


def has_convolutions(ir: GraphIR) -> bool:
    """Whether a graph for one device has convolutions."""
    return len(ir.devices) <= 1 and any(isinstance(item, Node) and item.name == "conv" for item in ir.nodes)


def strip_rows(results: int, vector_bits: int) -> int:
    """How many results a strip has: so many that few are computed in vain, and many at a time."""
    most = 14 if vector_bits >= 512 else 6
    if results <= most:
        return max(results, 1)
    return min(range(most, most // 2, -1), key=lambda rows: _steps(results, rows))


def shared_strip_rows(results: Iterable[int], vector_bits: int) -> dict[int, int]:
    """As many for each number of results; few different ones where that costs little, since each has its own code."""

    def is_near(results: int, rows: int) -> bool:
        return _steps(results, rows) <= (1 + MORE) * _steps(results, strip_rows(results, vector_bits))

    shared: dict[int, int] = {}
    left = sorted(set(results))
    usual = range(1, 1 + max((strip_rows(n, vector_bits) for n in left), default=0))
    while left:
        rows = max(usual, key=lambda rows: (sum(is_near(n, rows) for n in left), rows))
        shared |= {n: rows for n in left if is_near(n, rows)}
        left = [n for n in left if n not in shared]
    return shared


def _steps(results: int, rows: int) -> float:
    """How long a convolution takes with strips of some rows, in rows; loads of what a tap sees are part of one."""
    return -(-results // rows) * (rows + 1.2)


@dataclass(frozen=True)
class PackedFilter:
    """A filter, a value of the graph before, in strips of some rows that a kernel with `parameters` packs."""

    filter: int
    rows: int
    parameters: Parameters
    exact: bool = False  # floats, of integers


class FilterPacking(Rewriting):
    pass_name = "pack_filters"
    split, pack, pairs = (FAMILY, "split_places"), (FAMILY, "pack_filter"), False

    def __init__(self, ir: GraphIR, vector_bits: int, kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.vector_bits = vector_bits
        self.kernel_of = kernel_of
        self.shared: dict[int, int] = {}  # by results, rows of a strip for maps of many places
        self.held = held_values(ir, computed=True)  # as a filter of integers without its zero point
        self.sources = {value: each for each in ir.nodes for value in each.results}
        self.packed: dict[PackedFilter, int] = {}

    def run(self) -> GraphIR:
        """The new graph. Strips stand before all else, so that the bodies of branches and loops may read them."""
        packed = [item for item in self.ir.nodes if isinstance(item, Node) and self.may_pack(item)]
        many = (self.of_a_group(item) for item in packed if self.is_small(item) == "no")
        self.shared = shared_strip_rows(many, self.vector_bits)
        for item in packed:
            filter = self.packed_filter(item)
            if filter not in self.packed:
                self.packed[filter] = self._strips(item, filter)
        return super().run()

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not self.may_pack(item):
            return self.keep(item)
        parameters = dict(item.parameters)
        filter = item.operands[1]
        type, out = self.ir.types[filter], item.out_types[0]
        taps = tuple(int(size) for size in type.shape[2:])
        source, before, sizes = self.image(item.operands[0], len(taps))
        image, after = self.values[source], tuple(int(size) for size in sizes)
        stride, dilation = (parameters[name] for name in ("stride", "dilation"))
        given = {"taps": taps, "stride": parameters["stride"], "dilation": parameters["dilation"]}
        is_direct = not any((*before, *after)) and all(n == 1 for n in (*taps, *stride)) and self._is_wide(out)
        if self.is_exact(item):
            (image,) = self.add(
                self.made_by(CAST, {"dtype": DType.float32}, [image], self.types[image].with_dtype(DType.float32), item)
            )
        if not is_direct:
            shape = self._split_shape(image, out, taps, stride, dilation)
            edges = {"before": before, "after": after}
            (image,) = self.add(
                self.made_by(self.split, given | edges, [image], self.types[image].with_shape(shape), item)
            )
        rows = self.rows_of(item)
        given |= {"groups": parameters["groups"], "rows": rows, "direct": is_direct, "small": self.is_small(item)}
        given |= {"pairs": self.pairs}
        operands = [image, self.packed[self.packed_filter(item)]]
        return self.replace(item, self.add(self.made_by((FAMILY, "conv_packed"), given, operands, out, item)))

    def may_pack(self, node: Node) -> bool:
        if node.name != "conv" or not node.kernel.shipped or node.operands[1] not in self.held:
            return False
        type = self.ir.types[node.operands[1]]
        if type.dtype not in DTYPES or not dict(node.parameters)["first"]:
            return False
        known = (*type.shape, *self.image(node.operands[0], len(type.shape) - 2)[2])
        return all(isinstance(size, StaticDim) for size in known) and all(int(size) > 0 for size in type.shape)

    def is_exact(self, node: Node) -> bool:
        """Whether a convolution of integers has the same sums in float32: its slabs are exact there."""
        if node.out_types[0].dtype != DType.int32 or self.is_small(node) != "no":
            return False
        ranges = [integer_range(self.ir, value, self.sources) for value in node.operands[:2]]
        largest = [max(map(abs, each)) for each in ranges if each is not None]
        return len(largest) == 2 and prod(largest) * DEPTH <= MOST_EXACT

    def image(self, x: int, axes: int) -> tuple[int, Numbers, list[Any]]:
        """What is padded, and how many zeros lie before and after each axis."""
        pad = self.sources.get(x)
        if not isinstance(pad, Node) or not pad.kernel.shipped or pad.name != "pad_places":
            return x, (0,) * axes, [StaticDim(0)] * axes
        before = dict(pad.parameters)["before"]
        image = pad.operands[0]
        sizes = zip(self.ir.types[x].shape[2:], self.ir.types[image].shape[2:], before, strict=True)
        return image, before, [padded - size - low for padded, size, low in sizes]

    def of_a_group(self, node: Node) -> int:
        """How many results a group of a convolution has."""
        return int(self.ir.types[node.operands[1]].shape[0]) // int(dict(node.parameters)["groups"])

    def packed_filter(self, node: Node) -> PackedFilter:
        """The filter of a convolution as it is packed."""
        return PackedFilter(node.operands[1], self.rows_of(node), self.packing(node), self.is_exact(node))

    def packing(self, node: Node) -> Parameters:
        """The parameters of the kernel that packs the filter of a convolution."""
        return (("groups", dict(node.parameters)["groups"]),)

    def rows_of(self, node: Node) -> int:
        """How many results a strip of a convolution's filter has."""
        small, results = self.is_small(node), self.of_a_group(node)
        if small == "no":
            return self.shared[results]
        if small == "yes" and dict(node.parameters)["groups"] == 1:  # vectors hold results
            return self.vector_bits // self.ir.types[node.operands[1]].dtype.bits
        return strip_rows(results, self.vector_bits)

    def _is_wide(self, out: Any) -> bool:
        """Whether a result has as many places as a panel."""
        sizes = out.shape[2:]
        return all(isinstance(size, StaticDim) for size in sizes) and prod(map(int, sizes)) >= PANEL

    def is_small(self, node: Node) -> str:
        """Whether a result has few places, as the kernel says it: an image whose width is any has many.

        For a call that decides the code of both ways is compiled, which takes twice as long.
        """
        sizes = node.out_types[0].shape[2:]
        known = prod(int(size) for size in sizes if isinstance(size, StaticDim))
        unknown = sum(not isinstance(size, StaticDim) for size in sizes)
        if unknown:
            return "" if unknown == 1 and known < FEW_LINES else "no"
        rows = strip_rows(self.of_a_group(node), self.vector_bits)
        return "yes" if known <= rows + rows // 2 else "no"

    def _split_shape(self, image: int, out: Any, taps: Numbers, stride: Numbers, dilation: Numbers) -> list[Any]:
        size = self.types[image].shape[1]
        for t, places in enumerate(out.shape[2:]):
            phases = stride[t] if taps[t] > 1 else 1
            size = size * phases * (places + (taps[t] - 1) * dilation[t] // stride[t])
        return [out.shape[0], size + PANEL]

    def _strips(self, node: Node, packed: PackedFilter) -> int:
        filter, groups, rows = packed.filter, dict(node.parameters)["groups"], packed.rows
        type = self.ir.types[filter]
        assert isinstance(type, TensorType)
        results = self.of_a_group(node)
        shape = self.strip_shape(groups * -(-results // rows), tuple(map(int, type.shape[1:])), packed)
        kernel, held = self.kernel_of(*self.pack), self.held[filter]
        strips = (type.with_dtype(DType.float32) if packed.exact else type).with_shape(shape)
        (value,) = self.add(prepared_by(self.ir, kernel, packed.parameters, [filter], strips, len(self.made), held))
        return value

    def strip_shape(self, strips: int, taps: Numbers, packed: PackedFilter) -> list[int]:
        """The shape of so many strips; `taps` of a filter with its channels."""
        return [strips, prod(taps), packed.rows]

    def made_by(
        self, kernel: tuple[str, str], parameters: dict[str, Any], operands: list[int], type: Any, item: Node
    ) -> Node:
        return Node(self.kernel_of(*kernel), tuple(parameters.items()), tuple(operands), (type,), (0,), item.place)


class _PairPacking(FilterPacking):
    pass_name = "pair_filters"
    split, pack, pairs = (PAIRED_FAMILY, "split_pairs"), (PAIRED_FAMILY, "pack_pairs"), True

    def may_pack(self, node: Node) -> bool:
        if not super().may_pack(node) or self.is_small(node) != "no":
            return False
        parameters, type = dict(node.parameters), self.ir.types[node.operands[1]]
        neighbours = parameters["stride"][-1] == parameters["dilation"][-1] == 1 and int(type.shape[-1]) == 3
        many = min(self.of_a_group(node), int(type.shape[1])) >= LEAST_FACTORED
        return neighbours and many and type.dtype in PAIRED_DTYPES

    def _split_shape(self, image: int, out: TensorType, taps: Numbers, stride: Numbers, dilation: Numbers) -> list[Dim]:
        paired = out.with_shape([*out.shape[:-1], (out.shape[-1] + 1) // 2])
        size = super()._split_shape(image, paired, (*taps[:-1], 1), stride, dilation)[1] - PANEL
        return [out.shape[0], FACTORS * size + PANEL]

    def strip_shape(self, strips: int, taps: Numbers, packed: PackedFilter) -> list[int]:
        return [FACTORS * strips, prod(taps[:-1]), packed.rows]
