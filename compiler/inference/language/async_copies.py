"""Emits copies into shared memory that run next to a thread: `gpu.copy_async`, `gpu.commit`, and waiting for them.

A copy under way is a value: an Int that goes round loops and through branches, and says nothing to hardware, which
counts groups itself. That every copy is awaited is checked later (see `passes.tokens`).

See also `lowering.async_copies` (targets without such copies).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import BOOL, INT
from ...ir.builder import Builder
from ...ir.program import PointerType, Value
from ..conversion import coerce
from ..evaluator import Point, rule
from ..members.spans import Span, when
from ..members.table import method
from ..members.tensor_memory import span_of
from ..members.tensors import refuse_input
from ..runtime_checks import guard_index
from ..tiles import copies
from ..values.compile_time import Copies
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.mbarriers import MBarriers
from ..values.tensors import KernelTensor, Stored, View
from ..values.tiles import TileView
from .grids import kernel_of
from .mbarriers import place_of

SIZES = (4, 8, 16)
MOST_PENDING = 64


def _neighbours(call: Point, tensor: Any, argument: str) -> tuple[KernelTensor, int]:
    """A side of a copy: a view of one axis, with how many neighbours it names."""
    count = None
    if isinstance(tensor, View) and tensor.rank == 1 and tensor.unbroken:
        count = tensor.requested
    elif isinstance(tensor, Stored) and tensor.rank == 1:
        count = tensor.dims[0].const
    if count is None:
        what = describe(tensor)
        if isinstance(tensor, KernelTensor):
            what = f"{what} of {tensor.rank} axes" if tensor.rank != 1 else f"{what}, whose size is not known"
        text = f"gpu.copy_async takes neighbours whose number is known at compile time, not {what}"
        raise call.error("EK0646", text, argument, hint="name them by a slice: x[i, j : j + 4]")
    return tensor, count


def _span(call: Point, tensor: KernelTensor, argument: str) -> Span:
    builder = call.builder
    span = span_of(call, tensor, _first(builder, tensor))
    if span is None or span.step is not None:
        text = f"gpu.copy_async takes neighbours in memory, which {describe(tensor)} has none of"
        raise call.error("EK0646", text, argument)
    return span


def _first(builder: Builder, tensor: KernelTensor) -> BodyIndex:
    return BodyIndex(tensor.dims, components=(builder.int_(0),))


def _guard(call: Point, tensor: KernelTensor, count: int, argument: str) -> None:
    """Checks that the elements lie in the tensor that the author sliced."""
    at = call.argument(argument)
    index, root = _first(call.builder, tensor), tensor
    while isinstance(root, View):
        index, root = root.mapped(call.builder, index), root.base
    index = BodyIndex(root.dims, components=index.components(call.builder))
    index.unchecked = True
    guard_index(at, root, index, count)


@rule("gpu.copy_async")
def copy_async(
    call: Point,
    to: object,
    source: object,
    mask: object = True,
    arrive: object = None,
    multicast: object = False,
    bulk: object = True,
) -> Copies | None:
    kernel_of(call, "copy_async()")
    for name, value in (("multicast", multicast), ("bulk", bulk)):
        if type(value) is not bool:
            text = f"{name}= is True or False, known at compile time, not {describe(value)}"
            raise call.error("EK0646", text, name)
    if not bulk and (multicast or not isinstance(source, TileView)):
        text = "bulk=False is for a copy of a tile that is not for all blocks of a cluster"
        raise call.error("EK0646", text, "bulk")
    if multicast and (arrive is None or not isinstance(source, TileView)):
        text = "a copy to all blocks of a cluster is of a tile, and arrives at a barrier of each block"
        raise call.error(
            "EK0659", text, "multicast", hint="gpu.copy_async(s, x.tile(...), arrive=full, multicast=True)"
        )
    if arrive is not None:
        place_of(call, arrive, "arrive")
        if not isinstance(source, TileView):
            text = f"a copy that arrives at a barrier is of a tile, not of {describe(source)}"
            raise call.error("EK0659", text, "source", hint="x.tile(i, j, (M, N))")
    if isinstance(source, TileView):
        if mask is not True:
            text = "gpu.copy_async of a view copies what lies in the tensor, and takes no mask="
            raise call.error("EK0646", text, "mask")
        barrier = arrive if isinstance(arrive, MBarriers) else None
        return copies.copy(call, to, source, barrier, bool(multicast), bool(bulk))
    builder = call.builder
    target, count = _neighbours(call, to, "to")
    given, others = _neighbours(call, source, "source")
    refuse_input(call.argument("to"), target)
    if target.dtype is not given.dtype or count != others:
        text = f"gpu.copy_async copies {count} of {target.dtype} from {others} of {given.dtype}"
        raise call.error("EK0646", text, "source", hint="both sides have one dtype and one size")
    size = count * max(8, target.dtype.bits) // 8
    if size not in SIZES or target.dtype.is_packed():
        text = f"gpu.copy_async copies 4, 8 or 16 bytes, not {count} elements of {target.dtype}"
        raise call.error("EK0646", text, "to", got=size, expected=SIZES)
    there, here = _span(call, target, "to"), _span(call, given, "source")
    _of_space(call, there, "shared", "to")
    _of_space(call, here, "global", "source")
    allowed = coerce(call.argument("mask"), mask, BOOL, "mask= of gpu.copy_async is a Bool")
    _guard(call, target, count, "to")
    if allowed.const is None:
        when(builder, allowed, lambda: _guard(call, given, count, "source"))
    elif allowed.const:
        _guard(call, given, count, "source")
    call.locate()
    operands = [there.pointer, there.offset, here.pointer, here.offset, allowed]
    return Copies("copy", builder.one("copy_async", operands, INT, count=count))


def _of_space(call: Point, span: Span, space: str, argument: str) -> None:
    type = span.pointer.type
    assert isinstance(type, PointerType)
    if type.space != space:
        words = {"shared": "shared memory (gpu.shared)", "global": "a tensor of the op"}
        text = f"gpu.copy_async copies from a tensor of the op to shared memory; this is not {words[space]}"
        raise call.error("EK0646", text, argument)


@rule("gpu.commit")
def commit(call: Point) -> Copies:
    kernel_of(call, "commit()")
    return Copies("group", call.builder.one("copy_commit", [], INT))


@method(Copies, "wait")
def wait(call: Point, owner: Copies, pending: object = 0) -> None:
    if owner.what == "copy" and pending != 0:
        text = "the token of one copy waits for all of them; a group (gpu.commit) may leave some under way"
        raise call.error("EK0646", text, "pending")
    if type(pending) is not int or not 0 <= pending <= MOST_PENDING:
        text = f"pending= is a compile-time number from 0 to {MOST_PENDING}, not {describe(pending)}"
        raise call.error("EK0646", text, "pending")
    number = owner.number
    assert isinstance(number, Value)
    call.builder.add("copy_wait", [number], what=owner.what, pending=pending)
