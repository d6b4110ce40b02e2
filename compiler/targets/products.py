"""Lists the ways in which matrices are multiplied: a row for each instruction, and for the dtypes that elements have.

The first row that a target has, for the dtypes of a product, is the one that it uses; where there is none, elements are
multiplied and added one by one, which every target does for the dtypes of `ELEMENTS`. Facts are from NVIDIA's PTX ISA
manual, "Warp Level Matrix Multiply-Accumulate Instructions".

The fragments of these rows are all of one form. A word is 32 bits, or one element where that is wider, and has `e`
elements. Lane number l of a warp has

    of a     word w: row l // 4 + 8 * (w % 2), elements from e * (l % 4) + 4 * e * (w // 2) on
    of b     word w: column l // 4, elements from e * (l % 4) + 4 * e * w on
    of acc   row l // 4 + 8 * k, columns 2 * (l % 4) and the next
"""

from __future__ import annotations

from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from .base import Target


@dataclass(frozen=True)
class MatrixProduct:
    """An instruction that multiplies matrices.

    Attributes:
        name: what it is called in messages, and by the operation that stands for it.
        a, b, acc: the dtypes of the operands, and that of the sums.
        shape: rows and columns of the result, and the length of the inner axis.
        features: what a target needs to have.
        intrinsic: LLVM's name of it.
        word: the MLIR type of the operands' registers.
        precision: which products of float32 it computes; empty where the dtypes say so.
    """

    name: str
    a: DType
    b: DType
    acc: DType
    shape: tuple[int, int, int]
    features: tuple[str, ...]
    intrinsic: str
    word: str
    precision: str = ""

    @property
    def elements(self) -> int:
        """How many elements a word has."""
        return max(32 // self.a.bits, 1)

    def is_legal(self, target: Target) -> bool:
        """Whether a target has it. A simulated one multiplies elements, so that each access is checked."""
        return not target.simulates and all(target.supports(feature) for feature in self.features)


def _mma(
    a: DType, acc: DType, shape: tuple[int, int, int], feature: str, kind: str, word: str, precision: str = ""
) -> MatrixProduct:
    """A row of `mma.sync` in a form that sm_80 and later have; `bf16_mma` is what distinguishes these."""
    m, n, k = shape
    size = f"m{m}n{n}k{k}"
    name = ".".join(filter(None, ("mma.sync", size, str(a), precision)))
    features = ("mma_sync", "bf16_mma", feature)
    return MatrixProduct(name, a, a, acc, shape, features, f"llvm.nvvm.mma.{size}.row.col.{kind}", word, precision)


_F16, _BF16, _F32, _F64 = DType.float16, DType.bfloat16, DType.float32, DType.float64
_I32 = DType.int32

PRODUCTS: Final[tuple[MatrixProduct, ...]] = (
    _mma(_F16, _F32, (16, 8, 16), "f16_mma", "f32.f32", "vector<2xf16>"),
    _mma(_BF16, _F32, (16, 8, 16), "bf16_mma", "bf16", "i32"),
    _mma(_F32, _F32, (16, 8, 8), "tf32_mma", "tf32", "i32", precision="tf32"),
    _mma(DType.int8, _I32, (16, 8, 32), "int8_mma", "s8", "i32"),
    _mma(DType.uint8, _I32, (16, 8, 32), "int8_mma", "u8", "i32"),
    _mma(_F64, _F64, (8, 8, 4), "f64_mma", "f64", "f64"),
)
BY_NAME: Final = {row.name: row for row in PRODUCTS}

# What elements are multiplied and added one by one of: the dtype of both operands, and that of the sums.
ELEMENTS: Final[tuple[tuple[DType, DType], ...]] = (
    (_F16, _F32),
    (_BF16, _F32),
    (_F32, _F32),
    (DType.int8, _I32),
    (DType.uint8, _I32),
    (_I32, _I32),
    (_F64, _F64),
)


def product_row(target: Target, a: DType, acc: DType, precision: str) -> MatrixProduct | None:
    """The first row that a target has for these dtypes; None where elements are multiplied one by one."""
    fits = (row for row in PRODUCTS if row.a is a and row.acc is acc and row.precision in ("", precision))
    return next((row for row in fits if row.is_legal(target)), None)
