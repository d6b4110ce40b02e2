"""Copies a tile into the shared memory of all blocks of a cluster, each of which copies a part of the rows.

Each block arrives at the barrier of each block once its part is there. Where a target copies by tensor maps, one
instruction writes a part into the memory of all blocks, and its bytes arrive at their barriers; elsewhere threads load
elements once and store them into each block.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....dsl.types.dtype import SIMDType
from ...ir.program import PointerType, Value
from ..conversion import coerce
from ..evaluator import Point
from ..language import mbarriers
from ..language.grids import gpu_value, kernel_of, synchronise
from ..members.spans import chosen, guarded, when
from ..values.index import BodyIndex
from ..values.mbarriers import MBarriers
from ..values.tensors import KernelTensor
from ..values.tiles import TileView
from . import access, bulk_copies, layouts, tensor_maps
from .swizzles import place_of


def copy(call: Point, to: KernelTensor, view: TileView, barrier: MBarriers, threads: int) -> None:
    """Copies this block's part of a tile into the memory of all blocks, and arrives at the barrier of each.

    Raises:
        CompileError: EK0646, the blocks have no equal parts of the rows.
    """
    builder, (rows, columns) = call.builder, view.shape
    blocks = math.prod(kernel_of(call, "copy_async()").cluster)
    if rows % blocks:
        text = f"{blocks} blocks of a cluster copy equal parts of the rows, and the tile has {rows}"
        raise call.error("EK0646", text, "source", hint=f"a multiple of {blocks} rows")
    first = builder.imul(_rank(call), builder.int_(rows // blocks))
    part = replace(view, row=builder.iadd(view.row, first), shape=(rows // blocks, columns))
    plan = _plan(call, to, view, blocks)
    words = plan if isinstance(plan, str) else f"{plan.words}, to {blocks} blocks"
    layouts.together(call, copies=words)

    def by_elements() -> Value:
        _by_elements(call, to, part, first, blocks, threads)
        return builder.int_(0)

    if isinstance(plan, str):
        made = by_elements()
    else:
        map, mapped = tensor_maps.make(call, plan, view)

        def by_map() -> Value:
            return tensor_maps.copy_to_cluster(call, plan, map, to, part, first, barrier, blocks)

        made = chosen(builder, mapped, by_map, by_elements)
    synchronise(call)
    one = builder.compare("eq", layouts.thread_number(call), builder.int_(0))
    when(builder, one, lambda: mbarriers.arrive_everywhere(call, barrier, made))


def _rank(call: Point) -> Value:
    """The number of this block in its cluster, along x, then y, then z."""
    builder, total, step = call.builder, call.builder.int_(0), 1
    for axis, size in zip("xyz", kernel_of(call, "copy_async()").cluster, strict=True):
        if size > 1:
            number = gpu_value(call, f"block_in_cluster.{axis}")
            total = builder.iadd(total, builder.imul(number, builder.int_(step)))
        step *= size
    return total


def _plan(call: Point, to: KernelTensor, view: TileView, blocks: int) -> tensor_maps.MapPlan | str:
    """How parts are copied by a tensor map; where they are not, how they are copied, and why not so."""
    grid = call.evaluator.target.grid
    if grid is None or grid.copies is None or call.evaluator.target.simulates:
        return ""
    if grid.bulk is None:
        return f"elements: {call.evaluator.target.name} has no bulk copies, or code for it is of a version without"
    if not bulk_copies.fills_with_zeros(view):
        return "elements: not by a tensor map, as fill= is not 0"
    plan = tensor_maps.plan(call, to, view, access.Reach(call, view), share=blocks)
    return f"elements: not by a tensor map, as {plan}" if isinstance(plan, str) else plan


def _by_elements(call: Point, to: KernelTensor, part: TileView, first: Value, blocks: int, threads: int) -> None:
    builder, tensor, reach = call.builder, part.tensor, access.Reach(call, part)
    rows, columns = part.shape
    fill = coerce(call, part.beyond, SIMDType(tensor.dtype))
    zero = builder.int_(0)
    own, _ = place_of(to, builder, (zero, zero))
    type = PointerType(tensor.dtype, "cluster")
    peers = [builder.one("peer", [own, builder.int_(k)], type, blocks=blocks) for k in range(blocks)]
    loop = builder.for_loop(layouts.thread_number(call), builder.int_(rows * columns), builder.int_(threads))
    with builder.inside(loop):
        row, column = (f(loop.args[0], builder.int_(columns)) for f in (builder.idiv, builder.irem))

        def read() -> Value:
            at = (builder.iadd(part.row, row), builder.iadd(part.column, column))
            return tensor.load(builder, BodyIndex(tensor.dims, components=at))

        value = guarded(builder, reach.mask(builder, row, column, 1), read, fill)
        _, offset = place_of(to, builder, (builder.iadd(first, row), column))
        for pointer in peers:
            builder.add("store", [value, pointer, offset])
        builder.end()
