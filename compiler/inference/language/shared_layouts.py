"""Evaluates `layout=` of `gpu.shared`: the name of a swizzle, or a layout of the author's.

See also `inference.tiles.swizzles`.
"""

from __future__ import annotations

import math

from ....dsl.signature.schema import Role
from ....dsl.types.dtype import INT, DType
from ...ir.builder import Builder
from ...ir.program import Value
from ...targets.base import Target
from ..calls.struct_methods import method_of, special
from ..conversion import coerce
from ..evaluator import Point
from ..members.structs import value_attribute
from ..tiles import layouts
from ..tiles.operands import laid_out_tensor
from ..tiles.swizzles import BANKS, PATTERN, LaidOut
from ..values.compile_time import StructValue
from ..values.describe import describe
from ..values.tensors import KernelTensor

__all__ = ["extent", "laid_out", "pattern_of"]


def pattern_of(target: Target) -> int:
    """After how many bytes the pattern of a layout repeats for a target."""
    return PATTERN if layouts.has_panels(target) else BANKS


def extent(call: Point, layout: object, dtype: DType, sizes: tuple[int, ...]) -> int:
    """How many elements of memory a layout needs.

    Raises:
        CompileError: EK0656, it is no layout, or one of another number of elements.
    """
    if layout == "dot":
        if len(sizes) < 2 or dtype.is_packed():
            text = f'layout="dot" is for matrices of whole bytes, not for {len(sizes)} axis of {dtype}'
            raise call.error("EK0656", text, "layout")
        return math.prod(sizes)
    if not isinstance(layout, StructValue) or method_of(layout.type, "__call__") is None:
        text = f'layout= is "dot", a Layout or a ComposedLayout, not {describe(layout)}'
        raise call.error("EK0656", text, "layout", hint="from einkorn.stdlib import Layout")
    size, cosize = (value_attribute(call, layout, name) for name in ("size", "cosize"))
    if type(size) is not int or type(cosize) is not int or size != math.prod(sizes):
        text = f"the layout has {size if type(size) is int else 'an unknown number of'} places, not {math.prod(sizes)}"
        raise call.error("EK0656", text, "layout", hint="the layout has the sizes of the tensor, all known")
    return cosize


def laid_out(call: Point, layout: object, pointer: Value, sizes: tuple[int, ...]) -> KernelTensor:
    """The tensor of shared memory whose elements lie where a layout says."""
    if layout == "dot":
        return laid_out_tensor(call, pointer, pointer.dtype, sizes, "shared")

    def place(builder: Builder, components: tuple[Value, ...]) -> Value:
        offset = special(call, layout, "__call__", [components])
        return coerce(call, offset, INT, "the offset that a layout gives is an Int")

    dims = tuple(call.builder.int_(size) for size in sizes)
    return LaidOut(place, None, pointer, "shared", pointer.dtype, dims, Role.MUTABLE, fixed=sizes)
