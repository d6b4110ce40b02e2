"""Lists the ways in which matrices are multiplied: a row for each instruction, and for the dtypes that elements have.

The first row that a target has, for the dtypes of a product and its sizes, is the one that it uses. Where none is,
elements are multiplied and added one by one, which every target does for the dtypes of `ELEMENTS`. Facts are from
NVIDIA's PTX ISA manual, "Warp Level Matrix Multiply-Accumulate Instructions", and from AMD's instruction set manuals of
CDNA 2 to 4 (MFMA), RDNA 3 and RDNA 4 (WMMA).

Fragments of `mma.sync` have one form. A word is 32 bits, or one element where that is wider, and has `e` elements. Lane
number l of a warp has

    of a     word w: row l // 4 + 8 * (w % 2), elements from e * (l % 4) + 4 * e * (w // 2) on
    of b     word w: column l // 4, elements from e * (l % 4) + 4 * e * w on
    of acc   row l // 4 + 8 * k, columns 2 * (l % 4) and the next

`wgmma` has the same form of sums, in which warp w of a group has the rows from 16 * w on; its operands lie in shared
memory, or in registers as those of `mma.sync`. Facts are from "Asynchronous Warpgroup Level Matrix Instructions".

AMD's instructions give a lane one column of the result, and several of its rows. So they are given the columns of b
first and the rows of a second: what they compute is the transposed result, of which a lane has one row and `run`
columns.
With `e` neighbours of an operand, lane number l has

    of a     row l % 16, elements from e * (l // 16) on; all elements of the row where `e` is their number
    of b     column l % 16, the same elements
    of acc   row l % 16, columns from run * (l // 16) on

Where the instruction gives a lane columns that are not neighbours, it is given the columns of b in another order, such
that they are.

Instructions with scales take a factor for each `block` neighbours along the inner axis, in bytes that lanes bring:

    mma.sync    a lane brings up to four for steps that follow each other, and the instruction says which are its own.
                Those of row l // 4 + 8 * (l % 2) of a come from lanes with l % 4 < 2, those of column l // 4 of b from
                lanes with l % 4 = 0 (PTX ISA, "Block Scaling for mma.sync", for thread-id 0)
    MFMA        lane l brings that of row l % 16 of a, column l % 16 of b, of the 32 elements from 32 * (l // 16) on.
                Elements of 8 bits lie otherwise: the first 16 of a lane are those from 16 * (l // 16) on, the others
                those from 64 + 16 * (l // 16) on
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from .base import Target


@dataclass(frozen=True)
class LaneForm:
    """How the lanes of a warp hold the sums of products: `rows` by `across` lanes, each `run` neighbouring columns.

    `rows_first`: whether lanes that follow each other hold different rows.
    """

    rows: int
    across: int
    run: int
    rows_first: bool

    @property
    def width(self) -> int:
        """How many columns the lanes that share a row have together."""
        return self.across * self.run


QUADS: Final = LaneForm(8, 4, 2, rows_first=False)
WAVES: Final = {"mfma": LaneForm(16, 4, 4, rows_first=True), "wmma": LaneForm(16, 2, 8, rows_first=True)}


def lane_form(target: Target) -> LaneForm:
    """How the lanes of a target hold tiles: as the sums of its matrix instructions, and in fours where it has none.

    A simulated GPU holds them as the GPU that it is like does.
    """
    form = next((form for feature, form in WAVES.items() if target.supports(feature)), QUADS)
    return form if form is not QUADS else LaneForm(target.warp_size // QUADS.across, QUADS.across, QUADS.run, False)


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
        form: how the lanes have the sums.
        neighbours: how many elements a lane has of an operand, where the form has rows first.
        scattered: whether the columns of a lane are not neighbours for the instruction.
        arguments: the order in which the intrinsic takes its operands, where they are not a, b, acc.
        format: the number of the operands' format in a description of `tcgen05`, whose sums lie in tensor memory; else
            -1. `intrinsic` is the name of the instruction.
        scale, block: the dtype of scales, and how many neighbours of the inner axis have one; None, 0 without scales.
        of_groups: whether groups of four warps compute it, from shared memory: `shape` has the least columns then, and
            `intrinsic` is the instruction's name, with {n} for their number.
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
    form: LaneForm = QUADS
    neighbours: int = 0
    scattered: bool = False
    arguments: tuple[str, ...] = ("a", "b", "acc")
    of_groups: bool = False
    format: int = -1
    scale: DType | None = None
    block: int = 0

    @property
    def elements(self) -> int:
        """How many elements a word has."""
        return max(32 // self.a.bits, 1)

    @property
    def of_bytes(self) -> MatrixProduct:
        """The row as kernels give it operands: elements of 4 bits by two in a byte; other rows are as they are."""
        if self.a.bits != 4:
            return self
        m, n, depth = self.shape
        bytes, block, neighbours = (m, n, depth // 2), self.block // 2, self.neighbours // 2
        return replace(self, a=DType.uint8, b=DType.uint8, shape=bytes, block=block, neighbours=neighbours)

    @property
    def scales(self) -> int:
        """How many scales a row of `a` has."""
        return self.shape[2] // self.block if self.block else 0

    @property
    def in_tensor_memory(self) -> bool:
        """Whether the sums lie in tensor memory."""
        return self.format >= 0

    @property
    def reads_across(self) -> bool:
        """Whether an operand in shared memory may lie in either order; else its inner axis goes along its rows."""
        return self.a.bits == 16

    @property
    def has_whole_rows(self) -> bool:
        """Whether each lane has all elements of its row of an operand, which other lanes have as well."""
        return self.neighbours == self.shape[2]

    def missing(self, target: Target) -> str | None:
        """Why a target does not have it; None where it does."""
        if target.simulates:
            return "a simulated GPU multiplies elements, so that each access is checked"
        lacking = [feature for feature in self.features if not target.supports(feature)]
        return f"{target.name} has no {lacking[0]}" if lacking else None


def _mma(
    a: DType, acc: DType, shape: tuple[int, int, int], feature: str, kind: str, word: str, precision: str = ""
) -> MatrixProduct:
    """A row of `mma.sync` in a form that sm_80 and later have; `bf16_mma` is what distinguishes these."""
    m, n, k = shape
    size = f"m{m}n{n}k{k}"
    name = ".".join(filter(None, ("mma.sync", size, str(a), precision)))
    features = ("mma_sync", "bf16_mma", feature)
    return MatrixProduct(name, a, a, acc, shape, features, f"llvm.nvvm.mma.{size}.row.col.{kind}", word, precision)


def _mma_scaled(a: DType, depth: int, scale: tuple[DType, int], kinds: tuple[str, str, str]) -> MatrixProduct:
    """A row of `mma.sync` with scales; `kinds` are PTX's words: the kind, the dtype of elements, that of scales."""
    of_scale, block = scale
    kind, of_elements, of_scales = kinds
    name = f"mma.sync.m16n8k{depth}.{a}.scaled_by_{block}"
    dtypes = f"f32.{of_elements}.{of_elements}.f32.{of_scales}"
    how = f"kind::{kind}.block_scale.scale_vec::{depth // block}X.{dtypes}"
    instruction = f"mma.sync.aligned.m16n8k{depth}.row.col.{how}"
    features = ("mma_sync", "block_scaled_mma")
    return MatrixProduct(name, a, a, _F32, (16, 8, depth), features, instruction, "i32", scale=of_scale, block=block)


def _wgmma(a: DType, acc: DType, kind: str, precision: str = "") -> MatrixProduct:
    """A row of `wgmma.mma_async`, whose sums lie in lanes as those of `mma.sync` do, 16 rows for each warp.

    An instruction takes 32 bytes along the inner axis.
    """
    depth = 256 // a.bits
    name = ".".join(filter(None, (f"wgmma.m64k{depth}", str(a), precision)))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{{n}}k{depth}.{kind}"
    shape = (64, 8, depth)
    return MatrixProduct(name, a, a, acc, shape, ("wgmma",), instruction, "i32", precision, of_groups=True)


def _tcgen05_scaled(a: DType, format: int, scale: tuple[DType, int], kind: str) -> MatrixProduct:
    """A row of `tcgen05.mma` with scales, which lie in tensor memory as well."""
    of_scale, block = scale
    row = _tcgen05(a, _F32, kind, format)
    instruction = f"{row.intrinsic}.block_scale.scale_vec::{row.shape[2] // block}X"
    return replace(row, name=f"{row.name}.scaled_by_{block}", intrinsic=instruction, scale=of_scale, block=block)


def _tcgen05(a: DType, acc: DType, kind: str, format: int, precision: str = "") -> MatrixProduct:
    """A row of `tcgen05.mma`, which one thread begins, of 128 rows of sums in tensor memory.

    A thread gets of them what four warps with 32 rows each have as those of `mma.sync`.
    """
    depth = 256 // a.bits
    name = ".".join(filter(None, (f"tcgen05.m128k{depth}", str(a), precision)))
    instruction = f"tcgen05.mma.cta_group::1.kind::{kind}"
    return MatrixProduct(name, a, a, acc, (128, 16, depth), ("tcgen05",), instruction, "i32", precision, format=format)


def _mfma(
    of: tuple[DType, DType],
    depth: int,
    feature: str,
    kind: str,
    word: str,
    *,
    precision: str = "",
    scattered: bool = False,
) -> MatrixProduct:
    """A row of MFMA, which 64 lanes compute together."""
    a, acc = of
    name = ".".join(filter(None, (f"mfma.16x16x{depth}", str(a), precision)))
    return MatrixProduct(
        name,
        a,
        a,
        acc,
        (16, 16, depth),
        ("mfma", feature),
        f"llvm.amdgcn.mfma.{'i32' if acc is _I32 else 'f64' if acc is _F64 else 'f32'}.16x16x{depth}{kind}",
        word,
        precision,
        WAVES["mfma"],
        depth // 4,
        scattered,
        ("b", "a", "acc", "zero", "zero", "zero"),
    )


def _mfma_of_formats(a: DType, number: str, scale: tuple[DType, int] | None = None) -> MatrixProduct:
    """A row of MFMA of 4-, 6- and 8-bit floats, whose format is a number; without scales these are left out."""
    intrinsic = "llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4"
    row = _mfma((a, _F32), 128, "mfma_32_bytes", "", f"vector<{a.bits}xi32>")
    last = ["zero"] * 4 if scale is None else ["first", "scale_b", "first", "scale_a"]
    row = replace(row, intrinsic=intrinsic, arguments=("b", "a", "acc", number, number, *last))
    if scale is None:
        return row
    return replace(row, name=f"{row.name}.scaled_by_{scale[1]}", scale=scale[0], block=scale[1])


def _wmma(of: tuple[DType, DType], feature: str, kind: str, word: str, *, whole: bool) -> MatrixProduct:
    """A row of WMMA, which 32 lanes compute together; `whole`: the form of RDNA 3, with whole rows in a lane."""
    a, acc = of
    signed = "false" if a is DType.uint8 else "true"
    bytes = a.bits == 8 and not a.is_float()
    return MatrixProduct(
        f"wmma.16x16x16.{a}.{'whole' if whole else 'parts'}",
        a,
        a,
        acc,
        (16, 16, 16),
        ("wmma", "wmma_rows" if whole else "wmma_parts", feature),
        f"llvm.amdgcn.wmma.{'i32' if bytes else 'f32'}.16x16x16.{kind}",
        word,
        "",
        WAVES["wmma"],
        16 if whole else 8,
        whole,
        (signed, "b", signed, "a", "acc", "false") if bytes else ("b", "a", "acc"),
    )


_F16, _BF16, _F32, _F64 = DType.float16, DType.bfloat16, DType.float32, DType.float64
_I32 = DType.int32
_I8, _U8 = DType.int8, DType.uint8
_E8M0, _E2M1 = DType.float8_e8m0fnu, DType.float4_e2m1fn
_E4M3, _E5M2, _E4M3_Z, _E5M2_Z = (
    DType.float8_e4m3fn,
    DType.float8_e5m2,
    DType.float8_e4m3fnuz,
    DType.float8_e5m2fnuz,
)

PRODUCTS: Final[tuple[MatrixProduct, ...]] = (
    _wgmma(_F16, _F32, "f32.f16.f16"),
    _wgmma(_BF16, _F32, "f32.bf16.bf16"),
    _wgmma(_F32, _F32, "f32.tf32.tf32", precision="tf32"),
    _wgmma(_I8, _I32, "s32.s8.s8"),
    _wgmma(_U8, _I32, "s32.u8.u8"),
    _wgmma(_E4M3, _F32, "f32.e4m3.e4m3"),
    _wgmma(_E5M2, _F32, "f32.e5m2.e5m2"),
    _tcgen05(_F16, _F32, "f16", 0),
    _tcgen05(_BF16, _F32, "f16", 1),
    _tcgen05(_F32, _F32, "tf32", 2, precision="tf32"),
    _tcgen05(_I8, _I32, "i8", 1),
    _tcgen05(_U8, _I32, "i8", 0),
    _tcgen05(_E4M3, _F32, "f8f6f4", 0),
    _tcgen05(_E5M2, _F32, "f8f6f4", 1),
    _tcgen05_scaled(_E4M3, 0, (_E8M0, 32), "mxf8f6f4"),
    _tcgen05_scaled(_E5M2, 1, (_E8M0, 32), "mxf8f6f4"),
    _tcgen05_scaled(_E2M1, 1, (_E8M0, 32), "mxf4"),
    _tcgen05_scaled(_E2M1, 1, (_E4M3, 16), "mxf4nvf4"),
    _mma_scaled(_E4M3, 32, (_E8M0, 32), ("mxf8f6f4", "e4m3", "ue8m0")),
    _mma_scaled(_E5M2, 32, (_E8M0, 32), ("mxf8f6f4", "e5m2", "ue8m0")),
    _mma_scaled(_E2M1, 64, (_E8M0, 32), ("mxf4", "e2m1", "ue8m0")),
    _mma_scaled(_E2M1, 64, (_E4M3, 16), ("mxf4nvf4", "e2m1", "ue4m3")),
    _mma(_F16, _F32, (16, 8, 16), "f16_mma", "f32.f32", "vector<2xf16>"),
    _mma(_BF16, _F32, (16, 8, 16), "bf16_mma", "bf16", "i32"),
    _mma(_F32, _F32, (16, 8, 8), "tf32_mma", "tf32", "i32", precision="tf32"),
    _mma(_I8, _I32, (16, 8, 32), "int8_mma", "s8", "i32"),
    _mma(_U8, _I32, (16, 8, 32), "int8_mma", "u8", "i32"),
    _mma(_F64, _F64, (8, 8, 4), "f64_mma", "f64", "f64"),
    _mma(_E4M3, _F32, (16, 8, 32), "fp8_mma_sync", "f32.e4m3.e4m3.f32", "i32"),
    _mma(_E5M2, _F32, (16, 8, 32), "fp8_mma_sync", "f32.e5m2.e5m2.f32", "i32"),
    _mfma((_F16, _F32), 32, "mfma_16_bytes", ".f16", "vector<8xf16>"),
    _mfma((_F16, _F32), 16, "f16_mma", "f16", "vector<4xf16>"),
    _mfma((_BF16, _F32), 32, "mfma_16_bytes", ".bf16", "vector<8xbf16>"),
    _mfma((_BF16, _F32), 16, "bf16_mma", "bf16.1k", "vector<4xi16>"),
    _mfma((_I8, _I32), 64, "mfma_16_bytes", ".i8", "vector<4xi32>"),
    _mfma((_I8, _I32), 32, "mfma_8_bytes", ".i8", "i64"),
    _mfma((_I8, _I32), 16, "int8_mma", "i8", "i32"),
    _mfma_of_formats(_E4M3, "zero", (_E8M0, 32)),
    _mfma_of_formats(_E5M2, "one", (_E8M0, 32)),
    _mfma_of_formats(_E2M1, "four", (_E8M0, 32)),
    _mfma_of_formats(_E4M3, "zero"),
    _mfma_of_formats(_E5M2, "one"),
    *(
        _mfma((a, _F32), 32, feature, f".{kind}.{kind}", "i64")
        for a, feature, kind in (
            (_E4M3, "fp8_ocp", "fp8"),
            (_E5M2, "fp8_ocp", "bf8"),
            (_E4M3_Z, "fp8_fnuz", "fp8"),
            (_E5M2_Z, "fp8_fnuz", "bf8"),
        )
    ),
    _mfma((_F32, _F32), 8, "tf32_mma", ".xf32", "vector<2xf32>", precision="tf32"),
    _mfma((_F32, _F32), 4, "mfma", "f32", "f32"),
    _mfma((_F64, _F64), 4, "f64_mma", "f64", "f64", scattered=True),
    _wmma((_F16, _F32), "f16_mma", "f16", "vector<16xf16>", whole=True),
    _wmma((_BF16, _F32), "bf16_mma", "bf16", "vector<16xi16>", whole=True),
    _wmma((_I8, _I32), "int8_mma", "iu8", "vector<4xi32>", whole=True),
    _wmma((_U8, _I32), "int8_mma", "iu8", "vector<4xi32>", whole=True),
    _wmma((_F16, _F32), "f16_mma", "f16", "vector<8xf16>", whole=False),
    _wmma((_BF16, _F32), "bf16_mma", "bf16", "vector<8xi16>", whole=False),
    _wmma((_I8, _I32), "int8_mma", "iu8", "vector<2xi32>", whole=False),
    _wmma((_U8, _I32), "int8_mma", "iu8", "vector<2xi32>", whole=False),
    _wmma((_E4M3, _F32), "fp8_ocp", "fp8.fp8", "vector<2xi32>", whole=False),
    _wmma((_E5M2, _F32), "fp8_ocp", "bf8.bf8", "vector<2xi32>", whole=False),
)
SCALE_LANES: Final = 32  # of tensor memory that have scales of different rows of a, or columns of b


def scale_words(along: int, shape: tuple[int, int]) -> tuple[int, int]:
    """How many words of four scales a lane of tensor memory has of a, and of b.

    `along` scales lie along the inner axis, and the sums have `shape` rows and columns.
    """
    words = along // 4
    return words * -(-shape[0] // SCALE_LANES), words * -(-shape[1] // SCALE_LANES)


BY_NAME: Final = {row.name: row for row in PRODUCTS}

# What elements are multiplied and added one by one of: the dtype of both operands, and that of the sums.
ELEMENTS: Final[tuple[tuple[DType, DType], ...]] = (
    (_F16, _F32),
    (_BF16, _F32),
    (_F32, _F32),
    (_I8, _I32),
    (_U8, _I32),
    (_I32, _I32),
    (_F64, _F64),
    (_E4M3, _F32),
    (_E5M2, _F32),
    (_E4M3_Z, _F32),
    (_E5M2_Z, _F32),
)


def product_rows(a: DType, acc: DType, precision: str, scale: tuple[DType, int] | None = None) -> list[MatrixProduct]:
    """The rows for these dtypes, the best ones of each kind of target first.

    `scale`: the dtype of scales, and how many neighbours have one; None without scales.
    """
    fitting = (row for row in PRODUCTS if (row.a, row.acc) == (a, acc) and row.precision in ("", precision))
    return [row for row in fitting if (row.scale, row.block) == (scale or (None, 0))]
