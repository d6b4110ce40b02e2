"""Folds the normalization of channels into the weights of the convolution before it, when a model is loaded.

    batch_norm(conv(x, filter), gamma, beta, mean, variance)        add_channels(conv(x, prepared), prepared)

The filter is multiplied by gamma / sqrt(variance + epsilon), and what is left is one addition. A result differs from
the unfolded one by rounding: the products with the filter are rounded before they are added. So the pass is marked as
not exact, and half types are left alone.

Folded are convolutions of images in NCHW without bias, whose filter and the four operands are weights or constants, and
whose result nothing else reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...dsl.types.dtype import DType
from ..ir import GraphIR, Held, Item, Node
from ..renumbering import Rewriting
from ..types.tensor_type import ShapedType, TensorType
from .merge_equal import own_memory
from .pack_weights import KernelOf
from .prepare_weights import prepared_by

FAMILY: Final = "folded_norms"
CONVOLUTIONS: Final = ("conv", "depthwise_conv", "grouped_conv")
DTYPES: Final = (DType.float32, DType.float64)


def fold_batch_norm(ir: GraphIR, kernel_of: KernelOf) -> GraphIR:
    """The graph with normalizations in the filters before them."""
    if len(ir.devices) > 1 or not any(isinstance(item, Node) and item.name == "batch_norm" for item in ir.nodes):
        return ir
    return _BatchNormFolding(ir, kernel_of).run()


class _BatchNormFolding(Rewriting):
    pass_name = "fold_batch_norm"

    def __init__(self, ir: GraphIR, kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.kernel_of = kernel_of
        self.held = {item.results[0] for item in ir.nodes if isinstance(item, Held)}
        self.fixed = {*own_memory(ir), *ir.outputs}
        readers = Counter(value for item in ir.nodes for value in getattr(item, "operands", ()))
        makers = {value: item for item in ir.nodes for value in item.results}
        self.convolutions: dict[int, Node] = {}  # by result of a normalization
        for number, item in enumerate(ir.nodes):
            if isinstance(item, Node) and item.kernel.shipped and item.name == "batch_norm":
                before = makers.get(item.operands[0])
                once = readers[item.operands[0]] == 1 and not ir.regions.of[number]
                if once and isinstance(before, Node) and self._may_fold(before, item):
                    self.convolutions[item.results[0]] = before
        self.folded = {node.results[0] for node in self.convolutions.values()}

    def _may_fold(self, conv: Node, norm: Node) -> bool:
        (value,) = conv.results[:1]
        if not conv.kernel.shipped or conv.name not in CONVOLUTIONS or value in self.fixed:
            return False
        if not dict(conv.parameters)["first"] or conv.out_types[0].dtype not in DTYPES:
            return False
        return self.held.issuperset((conv.operands[1], *norm.operands[1:]))

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not item.results:
            return self.keep(item)
        if item.results[0] in self.folded:
            self.changed += 1
            return None
        conv = self.convolutions.get(item.results[0])
        if conv is None:
            return self.keep(item)
        x, filter = conv.operands
        _, gamma, beta, mean, variance = item.operands
        (type,) = conv.out_types
        scaled = self._prepared("scaled_filter", item, (filter, gamma, variance), self.ir.types[filter])
        shift = self._prepared("channel_shift", item, (gamma, beta, mean, variance), type.with_shape([type.shape[1]]))
        operands = (self.values[x], scaled)
        (result,) = self.add(Node(conv.kernel, conv.parameters, operands, (type,), (0,), conv.place))
        add = self.kernel_of(FAMILY, "add_channels")
        return self.replace(item, self.add(Node(add, (), (result, shift), item.out_types, (0,), item.place)))

    def _prepared(self, name: str, norm: Node, values: Sequence[int], type: ShapedType) -> int:
        assert isinstance(type, TensorType)
        parameters: tuple[tuple[str, object], ...] = norm.parameters
        kernel = self.kernel_of(FAMILY, name)
        (value,) = self.add(prepared_by(self.ir, kernel, parameters, values, type, len(self.made), norm))
        return value
