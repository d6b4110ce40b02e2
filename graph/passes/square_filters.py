"""Packs the filters of convolutions whose results are computed two by two, when a model is loaded.

    conv(pad_places(x), filter)        conv_squares(x, prepared)

These have three by three taps of neighbours and strides of 1 or 2. Four results then take 16 products where `conv`
takes 36; where windows step by two along an axis or both, 20 or 25. They differ from its results by rounding. Strips
take 16/9 to 25/9 of the filter's memory. `Convolution` estimates whether this is faster than what `pair_filters` and
`pack_filters` make.

See also `pack_filters` (other convolutions), the kernels in `square_convolution`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..ir import GraphIR, Item, Node
from ..types.dims import StaticDim
from .pack_filters import FilterPacking, Numbers, PackedFilter, Parameters, has_convolutions
from .pack_weights import KernelOf

FAMILY: Final = "square_convolution"
DTYPES: Final = (DType.float32, DType.float64)
STRIDES: Final = (1, 2)  # along each axis
LEAST: Final = 16  # channels, and results, of a convolution: fewer gain nothing

# An estimate of time, in products of vectors. It was fitted to convolutions of 16 to 512 channels and results, and maps
# of 4 x 4 to 320 x 320, with AVX2.
FILL: Final = {1: 120, 2: 300}  # for the factors of a vector of elements, by the larger stride
FINISH: Final = 110  # for the results of a vector of sums
SPLIT: Final = 60  # for what other convolutions read of a vector of squares
OTHER: Final = 1.2  # a product of other convolutions, which read less regular memory
NEAR: Final = 4 << 20  # bytes of a filter that stay in a cache
BYTES: Final = 2  # of memory behind the caches that are read in the time of a product
USUAL: Final = 64  # the size of an axis that a call decides


@dataclass(frozen=True)
class Convolution:
    """A convolution with three by three taps: the size of its results along each axis, and what is the same in each.

    Attributes:
        sizes: rows and columns.
        stride: along both.
        channels, results: how many.
        element: bytes.
        lanes: elements of a vector.
    """

    sizes: tuple[int, int]
    stride: tuple[int, int]
    channels: int
    results: int
    element: int
    lanes: int

    def by_squares(self) -> float:
        """The cost for an image by squares of results."""
        vectors = -(-prod(-(-size // 2) for size in self.sizes) // self.lanes)
        factors = prod(3 + n for n in self.stride)
        more = FILL[max(self.stride)] * self.channels + FINISH * self.results
        return vectors * more + self._products(factors, vectors)

    def by_others(self) -> float:
        """The cost for an image by pairs, where windows are neighbours, or one by one."""
        rows, columns = self.sizes
        pairs = self.stride[1] == 1
        taps, width = (12, -(-columns // 2)) if pairs else (9, columns + 2 // self.stride[1])
        places = (rows - 1) * width + (width if pairs else columns)
        vectors = 2 * -(-places // (2 * self.lanes))
        split = SPLIT * self.channels * rows * columns / (4 * self.lanes)
        return split + self._products(taps, OTHER * vectors)

    def _products(self, factors: int, vectors: float) -> float:
        """The products of channels with results: they wait for weights that come from memory."""
        each = self.channels * self.results * factors
        return max(each * vectors, each * self.element / BYTES if each * self.element > NEAR else 0)


def square_filters(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed filters of convolutions whose results are computed two by two."""
    if not has_convolutions(ir):
        return ir
    bits = vector_bits(ir)
    return _SquarePacking(ir, bits, kernel_of).run() if bits else ir


class _SquarePacking(FilterPacking):
    pass_name = "square_filters"
    pack = (FAMILY, "pack_squares")

    def may_pack(self, node: Node) -> bool:
        if not super().may_pack(node) or self.is_small(node) != "no":
            return False
        parameters, type = dict(node.parameters), self.ir.types[node.operands[1]]
        taps = tuple(map(int, type.shape[2:]))
        if taps != (3, 3) or type.dtype not in DTYPES or min(map(int, type.shape[:2])) < LEAST:
            return False
        stride, ones = parameters["stride"], (*parameters["dilation"], parameters["groups"])
        if any(n != 1 for n in ones) or any(n not in STRIDES for n in stride):
            return False
        down, across = (int(n) if isinstance(n, StaticDim) else USUAL for n in node.out_types[0].shape[2:])
        results, channels = map(int, type.shape[:2])
        lanes = self.vector_bits // type.dtype.bits
        work = Convolution((down, across), stride, channels, results, type.dtype.bits // 8, lanes)
        return work.by_squares() < work.by_others()

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not self.may_pack(item):
            return self.keep(item)
        out, stride = item.out_types[0], dict(item.parameters)["stride"]
        source, before, _ = self.image(item.operands[0], 2)
        filter = self.packed_filter(item)
        operands = [self.values[source], self.packed[filter]]
        given = {"stride": stride, "before": before, "rows": filter.rows}
        node = self.made_by((FAMILY, "conv_squares"), given, operands, out, item)
        return self.replace(item, self.add(node))

    def packing(self, node: Node) -> Parameters:
        return (("stride", dict(node.parameters)["stride"]),)

    def strip_shape(self, strips: int, taps: Numbers, packed: PackedFilter) -> list[int]:
        ((_, stride),) = packed.parameters
        assert isinstance(stride, tuple)
        return [strips * prod(3 + n for n in stride), taps[0], packed.rows]
