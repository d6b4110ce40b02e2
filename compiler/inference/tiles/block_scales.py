"""Says what scales of blocks a product has, and adds the instructions of a step to the sums, with the scales they take.

See also `targets.products` (which lane brings which scale), `fragments` and `wave_fragments` (which read them).
"""

from __future__ import annotations

import math

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ...ir.program import Value
from ...targets.products import MatrixProduct
from ..evaluator import Point
from . import layouts
from .operands import DotOperand

WORD = 4  # scales that a lane brings at most


@dataclass(frozen=True, eq=False)
class BlockScales:
    """Factors of each `block` neighbours along the inner axis: M x K / block of a, K / block x N of b.

    `packed` is the dtype of the elements where the operands are bytes that hold two elements each; else None.
    """

    a: DotOperand
    b: DotOperand
    block: int
    packed: DType | None = None

    @property
    def kind(self) -> tuple[DType, int]:
        """What a row of `targets.products` needs to have."""
        return self.a.dtype, self.block

    @property
    def word(self) -> int:
        """How many scales a lane brings at once."""
        return math.gcd(self.a.shape[1], WORD)


@dataclass(frozen=True, eq=False)
class Brought:
    """The scales that a lane brings for each fragment of a and of b; those of one step are from `first` on."""

    a: list[Value]
    b: list[Value]
    first: int


def add_products(
    call: Point,
    row: MatrixProduct,
    fragments: tuple[list[Value], list[Value]],
    sums: list[list[Value]],
    brought: Brought | None,
) -> None:
    """Adds each fragment of a times each of b to its sums, by the instruction of a row."""
    attrs: dict[str, object] = {"row": row.name, **layouts.warp_of(call)}
    if brought is not None:
        attrs["first"] = brought.first
    for i, a in enumerate(fragments[0]):
        for j, b in enumerate(fragments[1]):
            operands = [a, b, sums[i][j]]
            if brought is not None:
                operands += [brought.a[i], brought.b[j]]
            sums[i][j] = call.builder.one("multiply_matrices", operands, sums[i][j].type, **attrs)
