"""Reports the tensors of collectives, which the ranks of a mesh move between them; on the host only.

Each kernel prints what it is, with addresses and sizes. The receiver of reports makes the collective before the print
returns, so that the output is written when the kernel ends.

See also `graph.distributed.calls` (what it makes of these reports).
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import (
    AnyTensor,
    InputTensor,
    Int64,
    OutputTensor,
    Parts,
    Pointer,
    Storable,
    int8,
    register,
    scratch,
    unroll,
)
from ..algorithms.algorithm import unravelled

S = TypeVar("S", bound=Storable)


def _hand_over(what: str, out: AnyTensor, x: AnyTensor, axis: int, site: Int64):
    """Reports a tensor, or where its elements have others between them a copy of it."""
    whole: Parts = True
    step: Parts = 1
    for k in unroll(x.rank):
        whole = whole and (x.dim(x.rank - 1 - k) == 1 or x.strides[x.rank - 1 - k] == step)
        step = step * x.dim(x.rank - 1 - k)
    if whole:
        _report(what, out.pointer(), x.pointer(), x, axis, site)
    else:
        copy = scratch[x.dtype](x.size)
        for position in range(x.size):
            copy[position] = x[unravelled(position, x.shape)]
        _report(what, out.pointer(), copy.pointer(), x, axis, site)


def _report(what: str, to: Pointer[S], source: Pointer[S], x: AnyTensor, axis: int, site: Int64):
    on_host = scratch[int8](1)  # memory that no GPU has: there the addresses would mean nothing
    on_host[0] = 0
    rows: Parts = 1
    for k in unroll(axis):
        rows = rows * x.dim(k)
    print(what, to, source, x.size, rows, site, sep="|")


@register("collective::allreduce", fuse=False, effects=True)
def allreduce(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], site: Int64, *, what: str) -> None:
    """The reduction of the tensors of all ranks."""
    _hand_over(what, out, x, 0, site)


@register("collective::broadcast", fuse=False, effects=True)
def broadcast(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], site: Int64, *, what: str) -> None:
    """The tensor of one rank."""
    _hand_over(what, out, x, 0, site)


@register("collective::permute", fuse=False, effects=True)
def permute(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], site: Int64, *, what: str) -> None:
    """The tensor of the rank that sends to this one; zeros where none does."""
    _hand_over(what, out, x, 0, site)


@register("collective::send", fuse=False, effects=True)
def send(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], site: Int64, *, what: str) -> None:
    """The same tensor, which is sent to a rank."""
    _hand_over(what, out, x, 0, site)


@register("collective::recv", fuse=False, effects=True)
def recv(out: OutputTensor[S, "*s"], site: Int64, *, what: str) -> None:
    """The tensor that a rank sends."""
    _report(what, out.pointer(), out.pointer(), out, 0, site)


@register("collective::alltoall", fuse=False, effects=True)
def alltoall(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], site: Int64, *, what: str, axis: int) -> None:
    """The pieces along an axis that all ranks have for this one."""
    _hand_over(what, out, x, axis, site)


@register("collective::allgather", fuse=False, effects=True)
def allgather(
    out: OutputTensor[S, "*a{axis} (ranks * n) *b"],
    x: InputTensor[S, "*a{axis} n *b"],
    site: Int64,
    *,
    what: str,
    axis: int,
    ranks: int,
) -> None:
    """The tensors of all ranks, joined along an axis."""
    _hand_over(what, out, x, axis, site)


@register("collective::reducescatter", fuse=False, effects=True)
def reducescatter(
    out: OutputTensor[S, "*a{axis} (n // ranks) *b"],
    x: InputTensor[S, "*a{axis} n *b"],
    site: Int64,
    *,
    what: str,
    axis: int,
    ranks: int,
) -> None:
    """The piece of this rank, along an axis, of the reduction of the tensors of all ranks."""
    _hand_over(what, out, x, axis, site)


@register("collective::barrier", fuse=False, effects=True)
def barrier(done: OutputTensor[int8, "0"], site: Int64, *, what: str) -> None:
    """Waits until all ranks are here."""
    _report(what, done.pointer(), done.pointer(), done, 0, site)
