"""Multiplies tiles whose elements have scales: one for each 32 neighbours along the inner axis (MXFP8).

A target that has a matrix instruction with such scales takes it. Others multiply element by element: an element and its
scale are float32, and so are their product and the sums. The format is that of "OCP Microscaling Formats (MX)
Specification", version 1.0.

See also `products` (products without scales, and the choice of an instruction).
"""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ..evaluator import Point
from ..values.describe import describe
from ..values.tiles import TileProduct, TileValue
from . import fragments, layouts, wave_fragments
from .block_scales import BlockScales
from .operands import DotOperand
from .products import WantedProduct, by_elements, factors, row_for

SCALED = 32  # neighbours along the inner axis that have one scale
SCALE = DType.float8_e8m0fnu
ELEMENTS = (DType.float8_e4m3fn, DType.float8_e5m2)
FORM = "gpu.dot(a, b, acc, scales=(s, t)): s is M x K / 32 of a, and t is K / 32 x N of b"


def dot(call: Point, operands: tuple[object, object], given: object, scales: object) -> TileValue:
    """`given` + (`a` by its scales) @ (`b` by its scales).

    Raises:
        CompileError: EK0653, an operand is none; EK0654, the shapes do not fit, or are not whole blocks; EK0655, the
            dtypes have no scales.
    """
    left, right, acc = factors(call, *operands, given)
    if not isinstance(scales, tuple) or len(scales) != 2:
        text = f"scales= of gpu.dot is a pair of matrices in shared memory, not {describe(scales)}"
        raise call.error("EK0653", text, "scales", hint=FORM)
    if left.dtype not in ELEMENTS:
        known = " and ".join(map(str, ELEMENTS))
        text = f"gpu.dot with scales= multiplies {known}, and a and b have {left.dtype}"
        raise call.error("EK0655", text, "scales", expected=known, got=left.dtype)
    (m, k), n = left.shape, right.shape[1]
    if k % SCALED:
        text = f"a scale is of {SCALED} neighbours along the inner axis, and {k} is not a multiple of that"
        raise call.error("EK0654", text, "scales", expected=f"a multiple of {SCALED}", got=k)
    wanted = ((m, k // SCALED), (k // SCALED, n))
    pair = [_scales(call, value, of, shape) for value, of, shape in zip(scales, ("a", "b"), wanted, strict=True)]
    row, why = row_for(
        call, WantedProduct(left, right, TileProduct(acc), True, BlockScales(pair[0], pair[1], SCALED)), "ieee"
    )
    layouts.together(call, product=why)
    of_a, of_b = (each.in_memory(call, f"scales {name}") for each, name in zip(pair, "ab", strict=True))
    blocks = BlockScales(of_a, of_b, SCALED)
    if row is None:
        return by_elements(call, left, right, acc, left.dtype.name, blocks)
    multiply = wave_fragments.multiply if row.form.rows_first else fragments.multiply
    return multiply(call, row, left, right, acc, blocks)


def _scales(call: Point, value: object, of: str, wanted: tuple[int, int]) -> DotOperand:
    layouts.readable(call, value)
    found = DotOperand.of(call, value, f"the scales of {of}")
    if found.dtype is not SCALE:
        text = f"the scales of {of} are {found.dtype}"
        raise call.error("EK0655", text, "scales", expected=str(SCALE), got=found.dtype, hint=FORM)
    if found.shape != wanted:
        rows, columns = wanted
        text = f"the scales of {of} are {found.shape[0]} x {found.shape[1]}"
        raise call.error("EK0654", text, "scales", expected=f"{rows} x {columns}", hint=FORM)
    return found
