"""Packs the weights and constants of matrix products when a model is loaded.

    matmul(x, weight)        matmul_packed(x, prepared)

The kernels of products copy their right matrix into panels at each call. Where it is a weight or a constant, it is
copied once, and the products read the panels where they lie; see the kernels in `packed_products`. No bit of a result
differs. No product reads the weight itself any more; the bytes of panels are in `model.passes`.

Matrices stay of products whose kernels do not copy them (known to have one to three rows, by the transpose of a matrix
or by a small one) or copy them for many rows. Small matrices are packed, too, so that they share code with large ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.package.library import LoadedKernel
from ...dsl.types.dtype import DType
from ..ir import GraphIR, Held, Item, Node
from ..renumbering import Rewriting
from ..types.tensor_type import TensorType
from .fold_constants import elements_of
from .prepare_weights import prepared_by

KernelOf = Callable[[str, str], LoadedKernel]  # of a family and a name

MIN_ELEMENTS: Final = 1 << 14  # of a matrix that is packed for few rows, too
MIN_COLUMNS: Final = 8  # fewer are multiplied by dot products
MIN_ROWS: Final = 4  # fewer are multiplied by dot products with a transposed matrix, and fast with a small one
MAX_ROWS: Final = 512  # of a product; with more of them, copying takes little of the time
VECTORS: Final = 2  # of a panel's row; as in the kernels
FAMILY, BYTES_FAMILY = "packed_products", "byte_products"


@dataclass(frozen=True)
class PackedProduct:
    """A row of `PRODUCTS`: a kernel whose second operand is a matrix.

    Attributes:
        pack: the kernel that packs the matrix.
        columns: the axis of the matrix that its columns lie along.
        few: the kernel of products that may have few rows, where these are summed in another order; "" where not.
        packed: the kernel of products with panels.
        steps: how many elements of a column lie side by side in a row of a panel.
        sums: the kernel that sums the packed columns; "" where products do not need that.
        bits: the width of the numbers in which a product is summed; 0 where the matrix determines it.
        taken: the parameters that the packed product has, too.
        only: the values that parameters have where a product is packed.
    """

    pack: str
    columns: int
    few: str = ""
    packed: str = "matmul_packed"
    steps: int = 1
    sums: str = ""
    bits: int = 0
    taken: tuple[str, ...] = ()
    only: tuple[tuple[str, object], ...] = ()


PRODUCTS: Final = {
    "matmul": PackedProduct("pack_panels", 1),
    "matmul_transposed": PackedProduct("pack_panels_transposed", 0, "matmul_transposed_packed"),
    "matmul_8_bits": PackedProduct("pack_bytes", 1, "", "matmul_8_bits_packed", 4, "sums_of_bytes", bits=32),
    "matmul_8_bits_transposed": PackedProduct(
        "pack_bytes_transposed", 0, "", "matmul_8_bits_packed", 4, "sums_of_bytes_transposed", bits=32
    ),
    "matmul_scaled": PackedProduct(
        "pack_panels_transposed",
        0,
        "matmul_scaled_packed",
        "matmul_scaled_packed",
        bits=32,
        taken=("rows",),
        only=(("columns", 0),),
    ),
}


def pack_weights(ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> GraphIR:
    """The graph with packed matrices; `vector_bits` finds the width of the target's vectors, 0 of a GPU."""
    if len(ir.devices) > 1 or not any(isinstance(item, Held) for item in ir.nodes):
        return ir
    return _WeightPacking(ir, vector_bits, kernel_of).run()


def held_values(ir: GraphIR, computed: bool = False) -> dict[int, Held]:
    """By value the weight or constant that it is or is a part of; if `computed`, also what casts, sums and products
    make of these alone."""
    held: dict[int, Held] = {}
    for item in ir.nodes:
        if isinstance(item, Held):
            held[item.results[0]] = item
        elif isinstance(item, Node) and item.operands and held.keys() >= {*item.operands}:
            is_view = item.move in ("reshape", "slice") and len(item.operands) == 1
            if len(item.results) == 1 and (is_view or (computed and _is_computed(item))):
                held[item.results[0]] = held[item.operands[0]]
    return held


def _is_computed(node: Node) -> bool:
    schema = node.kernel.schema
    return node.move == "broadcast" or "cast" in schema.laws or bool(schema.neutral)


class _WeightPacking(Rewriting):
    pass_name = "pack_weights"

    def __init__(self, ir: GraphIR, vector_bits: Callable[[GraphIR], int], kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.vector_bits_of = vector_bits
        self.kernel_of = kernel_of
        self.held = held_values(ir)
        self.packed: dict[tuple[int, str, int], int] = {}  # by value of `ir`, kernel and bits of a sum, what it makes

    def run(self) -> GraphIR:
        """The new graph. Panels stand before all else, so that the bodies of branches and loops may read them."""
        for item in self.ir.nodes:
            row = self._row(item)
            if row and isinstance(item, Node) and self._key(item.operands[1], row, row.pack) not in self.packed:
                self._pack(item.operands[1], row)
        return super().run()

    def rewrite(self, number: int, item: Item) -> None:
        row = self._row(item)
        if row is None or not isinstance(item, Node):
            return self.keep(item)
        x, matrix, *zeros = item.operands
        panels = self.packed[self._key(matrix, row, row.pack)]
        steps = _steps(row, self.ir.types[matrix].dtype)
        # Code for a machine with other vectors reads these, too: of a package, or of an export.
        lanes = int(self.types[panels].shape[2]) // steps // VECTORS
        parameters = (*((name, value) for name, value in item.parameters if name in row.taken), ("lanes", lanes))
        values = (*self.new((x, *zeros)), panels)
        if row.sums:
            parameters = (("unsigned", self.ir.types[matrix].dtype is DType.uint8), *parameters)
            values = (*values, self.packed[self._key(matrix, row, row.sums)])
        kernel = self.kernel_of(_family(row), row.few if row.few and self._rows(x) is None else row.packed)
        return self.replace(item, self.add(Node(kernel, parameters, values, item.out_types, (0,), item.place)))

    @cached
    def vector_bits(self) -> int:
        return self.vector_bits_of(self.ir)

    def _row(self, item: Item) -> PackedProduct | None:
        """How the matrix of a product is packed, if it is."""
        row = PRODUCTS.get(item.name) if isinstance(item, Node) and item.kernel.shipped else None
        return row if row and isinstance(item, Node) and self._is_worth(item, row) else None

    def _is_worth(self, node: Node, row: PackedProduct) -> bool:
        x, matrix = node.operands[:2]
        type = self.ir.types[matrix]
        if matrix not in self.held or type.dtype.is_complex() or type.dtype.is_storage():
            return False
        if not set(row.only) <= set(node.parameters):
            return False
        elements = elements_of(type) or 0
        if elements == 0 or int(type.shape[row.columns]) < MIN_COLUMNS:
            return False
        rows = self._rows(x)
        least = MIN_ROWS if row.few or elements < MIN_ELEMENTS else 1
        return self.vector_bits > 0 and (rows is None or least <= rows <= MAX_ROWS)

    def _rows(self, x: int) -> int | None:
        """How many rows the left operand has; None where a call says it."""
        type = self.ir.types[x]
        return elements_of(type.with_shape(type.shape[:-1]))

    def _pack(self, matrix: int, row: PackedProduct) -> None:
        """Adds the matrix in panels, and the sums of its columns where they are needed, computed at load."""
        type = self.ir.types[matrix]
        assert isinstance(type, TensorType)
        width = VECTORS * self.vector_bits // self._bits(matrix, row)
        columns, depth = int(type.shape[row.columns]), int(type.shape[1 - row.columns])
        steps = _steps(row, type.dtype)
        panels = type.with_shape([-(-columns // width), -(-depth // steps), steps * width])
        if row.sums:
            sums = dataclasses.replace(type.with_shape([columns]), dtype=DType.int32)
            self._prepare(matrix, row, row.sums, sums)
            panels = dataclasses.replace(panels, dtype=DType.int8)
        self._prepare(matrix, row, row.pack, panels)

    def _prepare(self, matrix: int, row: PackedProduct, kernel: str, type: TensorType) -> None:
        loaded = self.kernel_of(_family(row), kernel)
        value = prepared_by(self.ir, loaded, (), [matrix], type, len(self.made), self.held[matrix])
        (self.packed[self._key(matrix, row, kernel)],) = self.add(value)

    def _key(self, matrix: int, row: PackedProduct, kernel: str) -> tuple[int, str, int]:
        """Where a packed matrix is kept: products that sum other numbers have panels of another width."""
        return matrix, kernel, self._bits(matrix, row)

    def _bits(self, matrix: int, row: PackedProduct) -> int:
        """The width of the numbers in which a product is summed."""
        return row.bits or _sum_bits(self.ir.types[matrix].dtype)


def _family(row: PackedProduct) -> str:
    return BYTES_FAMILY if row.sums else FAMILY


def _steps(row: PackedProduct, dtype: DType) -> int:
    """How many steps a row of a panel has."""
    return 2 if dtype is DType.bfloat16 else row.steps


def _sum_bits(dtype: DType) -> int:
    """The width of the numbers in which a product of elements of a dtype is summed."""
    return max(dtype.bits, 32) if dtype.is_float() else dtype.bits
