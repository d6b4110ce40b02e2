"""Packs the weights and constants of matrix products when a model is loaded.

    matmul(x, weight)        matmul_packed(x, prepared)

The kernels of products copy their right matrix into panels at each call. Where it is a weight or a constant, it is
copied once, and the products read the panels where they lie; see the kernels in `packed_products`. No bit of a result
differs. The panels take memory in addition to the weight; see `model.passes`.

Small matrices stay, and so do those of products whose kernels do not copy them (one to three rows by the transpose of a
matrix) or copy them for many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...dsl.diagnostics.cached import cached
from ...dsl.package.library import LoadedKernel
from ...dsl.types.dtype import DType
from ..ir import GraphIR, Held, Item, Node, Prepared
from ..renumbering import Rewriting
from ..types.tensor_type import TensorType
from .fold_constants import elements_of
from .prepare_weights import prepared_by

KernelOf = Callable[[str, str], LoadedKernel]  # of a family and a name

MIN_ELEMENTS: Final = 1 << 16  # of a matrix
MIN_COLUMNS: Final = 8  # fewer are multiplied by dot products
MIN_DOT_ROWS: Final = 4  # fewer rows are multiplied by dot products with a transposed matrix
MAX_ROWS: Final = 512  # of a product; with more of them, copying takes little of the time
VECTORS: Final = 2  # of a panel's row; as in the kernels
FAMILY: Final = "packed_products"


@dataclass(frozen=True)
class Product:
    """A row of `PRODUCTS`: a kernel whose second operand is a matrix.

    Attributes:
        pack: the kernel that packs the matrix.
        columns: the axis of the matrix that its columns lie along.
        few: the kernel of products of any number of rows, which reads the matrix, too, when they are few; "" where
            it needs panels alone.
    """

    pack: str
    columns: int
    few: str = ""


PRODUCTS: Final = {
    "matmul": Product("pack_panels", 1),
    "matmul_transposed": Product("pack_panels_transposed", 0, "matmul_transposed_packed"),
}


def pack_weights(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed matrices; `vector_bits` finds the width of the target's vectors, 0 of a GPU."""
    if len(ir.devices) > 1 or not any(isinstance(item, Held) for item in ir.nodes):
        return ir
    return _Packing(ir, vector_bits, kernel_of).run()


_VIEWS: Final = ("reshape", "slice")  # of a weight


def held_values(ir: GraphIR) -> dict[int, Held]:
    """By value the weight or constant that it is, or a part of or another form."""
    held: dict[int, Held] = {}
    for item in ir.nodes:
        if isinstance(item, Held):
            held[item.results[0]] = item
        elif isinstance(item, Node) and item.kernel.shipped and item.name in _VIEWS:
            sources = [held[value] for value in item.operands if value in held]
            if len(sources) == len(item.operands) == 1:
                held[item.results[0]] = sources[0]
    return held


class _Packing(Rewriting):
    pass_name = "pack_weights"

    def __init__(self, ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.vector_bits_of = vector_bits
        self.kernel_of = kernel_of
        self.held = held_values(ir)
        self.packed: dict[tuple[int, str], int] = {}  # by value of `ir` and kernel, the value with the panels

    def run(self) -> GraphIR:
        """The new graph. Panels stand before all else, so that the bodies of branches and loops may read them."""
        for item in self.ir.nodes:
            row = self._row(item)
            if row and isinstance(item, Node) and (item.operands[1], row.pack) not in self.packed:
                matrix = item.operands[1]
                (self.packed[matrix, row.pack],) = self.add(self._panels(matrix, row))
        return super().run()

    def rewrite(self, number: int, item: Item) -> None:
        row = self._row(item)
        if row is None or not isinstance(item, Node):
            return self.keep(item)
        x, matrix = item.operands
        key = matrix, row.pack
        operands = (x, matrix) if row.few and self._rows(x) is None else (x,)
        kernel = self.kernel_of(FAMILY, row.few if len(operands) > 1 else "matmul_packed")
        values = (*self.new(operands), self.packed[key])
        return self.replace(item, self.add(Node(kernel, (), values, item.out_types, (0,), item.place)))

    @cached
    def vector_bits(self) -> int:
        return self.vector_bits_of(self.ir)

    def _row(self, item: Item) -> Product | None:
        """How the matrix of a product is packed, if it is."""
        row = PRODUCTS.get(item.name) if isinstance(item, Node) and item.kernel.shipped else None
        return row if row and isinstance(item, Node) and self._is_worth(item, row) else None

    def _is_worth(self, node: Node, row: Product) -> bool:
        x, matrix = node.operands
        type = self.ir.types[matrix]
        if matrix not in self.held or type.dtype.is_complex() or type.dtype.is_storage():
            return False
        if (elements_of(type) or 0) < MIN_ELEMENTS or int(type.shape[row.columns]) < MIN_COLUMNS:
            return False
        rows = self._rows(x)
        least = MIN_DOT_ROWS if row.few else 1
        return self.vector_bits > 0 and (rows is None or least <= rows <= MAX_ROWS)

    def _rows(self, x: int) -> int | None:
        """How many rows the left operand has; None where a call says it."""
        type = self.ir.types[x]
        return elements_of(type.with_shape(type.shape[:-1]))

    def _panels(self, matrix: int, row: Product) -> Prepared:
        """The matrix in panels, as a value that is computed when the model is loaded."""
        type = self.ir.types[matrix]
        assert isinstance(type, TensorType)
        width = VECTORS * self.vector_bits // _sum_bits(type.dtype)
        columns, depth = int(type.shape[row.columns]), int(type.shape[1 - row.columns])
        steps = 2 if type.dtype is DType.bfloat16 else 1  # in a row of a panel
        panels = type.with_shape([-(-columns // width), -(-depth // steps), steps * width])
        kernel = self.kernel_of(FAMILY, row.pack)
        return prepared_by(self.ir, kernel, (), [matrix], panels, len(self.made), self.held[matrix])


def _sum_bits(dtype: DType) -> int:
    """The width of the numbers in which a product is summed."""
    return max(dtype.bits, 32) if dtype.is_float() else dtype.bits
