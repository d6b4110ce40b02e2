"""What a kernel multiplies, before it is known by which instruction."""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ..values.tiles import TileProduct
from .block_scales import BlockScales
from .operands import DotOperand


@dataclass(frozen=True)
class WantedProduct:
    """A product: its operands, its sums, whether it is done at once, and scales of its operands."""

    left: DotOperand
    right: DotOperand
    acc: TileProduct
    waits: bool
    scales: BlockScales | None = None

    @property
    def dtype(self) -> DType:
        """That of the elements."""
        packed = self.scales.packed if self.scales is not None else None
        return packed or self.left.dtype

    @property
    def depth(self) -> int:
        """The length of the inner axis, in elements."""
        return self.left.shape[1] * (1 if self.dtype is self.left.dtype else 2)
