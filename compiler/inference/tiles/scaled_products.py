"""Multiplies tiles whose elements have scales: one for each 32 neighbours along the inner axis (MXFP8, MXFP4), or for
each 16 (NVFP4).

A target that has a matrix instruction with such scales takes it. One that multiplies the elements without scales scales
and adds the sums of each block. Others multiply element by element: an element and its scale are float32, and so are
their product and the sums. The formats are those of "OCP Microscaling Formats (MX)
Specification", version 1.0, and NVFP4 of NVIDIA's PTX ISA manual ("Block Scaling for mma.sync"). Elements of 4 bits are
the halves of bytes, the first of two neighbours along the inner axis in the lower one.

See also `products` (products without scales, and the choice of an instruction).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....dsl.types.dtype import DType, SIMDType
from ...targets.products import MatrixProduct, product_rows
from ..evaluator import Point
from ..values.describe import describe
from ..values.tiles import TileProduct, TileValue
from . import layouts, tensor_products
from .block_scales import BlockScales
from .operands import DotOperand
from .products import (
    by_blocks,
    by_elements,
    by_warps,
    factors,
    misfit,
    row_for,
    sums_at_once,
    under_way,
)
from .wanted_product import WantedProduct

# How many neighbours along the inner axis have a scale: by their dtype, and by that of the scale.
BLOCKS: Final = {
    DType.float8_e4m3fn: {DType.float8_e8m0fnu: 32},
    DType.float8_e5m2: {DType.float8_e8m0fnu: 32},
    DType.float4_e2m1fn: {DType.float8_e8m0fnu: 32, DType.float8_e4m3fn: 16},
}
FORM = "gpu.dot(a, b, acc, scales=(s, t)): s is M x K / 32 of a, and t is K / 32 x N of b"
PACKED = "gpu.dot(a, b, acc, scales=(s, t), packed=float4_e2m1fn): a is M x K / 2 bytes, b K / 2 x N"


def dot(call: Point, operands: tuple[object, object], given: object, scales: object, packed: object) -> TileValue:
    """`given` + (`a` by its scales) @ (`b` by its scales); `packed`: what the bytes of a and b are two elements of.

    Raises:
        CompileError: EK0653, an operand is none; EK0654, the shapes do not fit, or are not whole blocks; EK0655, the
            dtypes have no scales.
    """
    return _begun(call, operands, sums_at_once(call, given), scales, packed, waits=True).tile


def dot_async(
    call: Point, operands: tuple[object, object], given: object, scales: object, packed: object
) -> TileProduct:
    """What `dot` gives, under way; `given` may be a product under way.

    Raises:
        CompileError: as `dot`.
    """
    return under_way(call, _begun(call, operands, given, scales, packed, waits=False), given)


def _begun(
    call: Point, operands: tuple[object, object], given: object, scales: object, packed: object, *, waits: bool
) -> TileProduct:
    packed = _packed(call, packed)
    left, right, acc = factors(call, *operands, given.tile if isinstance(given, TileProduct) else given, packed)
    first = given.first if isinstance(given, TileProduct) else None
    if not isinstance(scales, tuple) or len(scales) != 2:
        text = f"scales= of gpu.dot is a pair of matrices in shared memory, not {describe(scales)}"
        raise call.error("EK0653", text, "scales", hint=FORM if packed is None else PACKED)
    dtype = packed or left.dtype
    if dtype not in BLOCKS:
        known = " and ".join(str(one) for one in BLOCKS if not one.is_packed())
        text = f"gpu.dot with scales= multiplies {known}, and a and b have {left.dtype}"
        raise call.error("EK0655", text, "scales", expected=known, got=left.dtype, hint=PACKED)
    pair = [_scales(call, value, of, dtype) for value, of in zip(scales, "ab", strict=True)]
    block = _block(call, dtype, (left, right), pair)
    blocks = BlockScales(pair[0], pair[1], block, packed)
    wanted = WantedProduct(left, right, TileProduct(acc, first), waits, blocks)
    row, why = row_for(call, wanted, "ieee")
    of_blocks = _row_of_blocks(call, wanted) if row is None else None
    if of_blocks is not None:
        why = f"{of_blocks.name}, whose sums of {block} neighbours are scaled: {why.removeprefix('elements: ')}"
    layouts.together(call, product=why)
    of_a, of_b = (each.in_memory(call, f"scales {name}") for each, name in zip(pair, "ab", strict=True))
    blocks = BlockScales(of_a, of_b, block, packed)
    if row is not None and row.in_tensor_memory:
        return tensor_products.multiply(call, row, replace(wanted, scales=blocks))
    if of_blocks is not None:
        return TileProduct(by_blocks(call, of_blocks, left, right, acc, blocks))
    if row is None:
        return TileProduct(by_elements(call, left, right, acc, dtype.name, blocks))
    return TileProduct(by_warps(call, row, left, right, acc, blocks))


def _row_of_blocks(call: Point, wanted: WantedProduct) -> MatrixProduct | None:
    """An instruction without scales of which one or several multiply a block; None where the target has none."""
    scales, target = wanted.scales, call.evaluator.target
    assert scales is not None
    for row in product_rows(wanted.dtype, wanted.acc.tile.dtype, "ieee"):
        of_warps = not row.of_groups and not row.in_tensor_memory and scales.block % row.shape[2] == 0
        if of_warps and row.missing(target) is None and misfit(call, row, wanted) is None:
            return row
    return None


def _packed(call: Point, packed: object) -> DType | None:
    """The dtype of elements of which bytes have two."""
    found = packed.dtype if isinstance(packed, SIMDType) and packed.is_scalar else packed
    if found is not None and found is not DType.float4_e2m1fn:
        text = f"packed= of gpu.dot says what bytes are two elements of: float4_e2m1fn, not {describe(packed)}"
        raise call.error("EK0655", text, "packed", hint=PACKED)
    return found


def _scales(call: Point, value: object, of: str, dtype: DType) -> DotOperand:
    layouts.readable(call, value)
    found, known = DotOperand.of(call, value, f"the scales of {of}"), BLOCKS[dtype]
    if found.dtype not in known:
        text = f"the scales of {of} are {found.dtype}, and its elements {dtype}"
        expected = " or ".join(map(str, known))
        raise call.error("EK0655", text, "scales", expected=expected, got=found.dtype, hint=FORM)
    return found


def _block(call: Point, dtype: DType, operands: tuple[DotOperand, DotOperand], scales: list[DotOperand]) -> int:
    """How many neighbours have a scale; the scales of both operands are as many as these need."""
    if scales[0].dtype is not scales[1].dtype:
        text = f"the scales of a are {scales[0].dtype}, and those of b {scales[1].dtype}"
        raise call.error("EK0655", text, "scales", expected="one dtype")
    block, (left, right) = BLOCKS[dtype][scales[0].dtype], operands
    (m, bytes), n = left.shape, right.shape[1]
    k = bytes * (2 if dtype.is_packed() else 1)
    if k % block:
        text = f"a scale is of {block} neighbours along the inner axis, and {k} is not a multiple of that"
        raise call.error("EK0654", text, "scales", expected=f"a multiple of {block}", got=k)
    for found, of, (rows, columns) in zip(scales, "ab", ((m, k // block), (k // block, n)), strict=True):
        if found.shape != (rows, columns):
            got, expected = (f"{m} x {n}" for m, n in (found.shape, (rows, columns)))
            text = f"the scales of {of} are {got}, and its blocks {expected}"
            raise call.error("EK0654", text, "scales", expected=expected, got=got, hint=FORM)
    return block
