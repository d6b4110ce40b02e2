"""Computes the collectives on the tensors of a rank, with nothing but what a communicator has.

Reductions go in the order of ranks, on every backend: each rank reduces one piece of the tensor, and all gather the
pieces (Rabenseifner 2004, without its recursion). Small tensors are gathered whole, which takes one step. Half types
are added up in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .communicator import CollectiveCall, Communicator

Array = np.ndarray[Any, Any]

SMALL: Final = 4096  # bytes up to which all ranks get the whole tensors of all others

_FUNCTIONS: Final[dict[str, Callable[..., Array]]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


def as_bytes(array: Array) -> Array:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def reduced(parts: Array, how: str, out: Array) -> None:
    """Reduces the rows of `parts` in their order into `out`."""
    function, dtype = _FUNCTIONS[how], out.dtype
    is_wide = (dtype.kind in "iufcb" and dtype.itemsize > 2) or dtype.kind in "iub"
    if is_wide or how in ("max", "min"):
        total = out
        total[...] = parts[0]
        for part in parts[1:]:
            function(total, part, out=total)
    else:
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            total += part.astype(np.float32)
    if how == "mean":
        total = total / len(parts)
    if total is not out:
        out[...] = total.astype(dtype)


def allreduce(ranks: Communicator, x: Array, out: Array, how: str, call: CollectiveCall) -> None:
    """Reduces the tensors of all ranks; each gets the result."""
    if x.nbytes <= SMALL or x.size < ranks.size:
        parts = np.empty((ranks.size, x.size), x.dtype)
        ranks.allgather(as_bytes(x), as_bytes(parts), call)
        reduced(parts, how, out)
        return
    piece = x.size // ranks.size
    whole = piece * ranks.size
    parts = np.empty((ranks.size, piece), x.dtype)
    ranks.alltoall(as_bytes(x[:whole]), as_bytes(parts), call)
    mine = np.empty(piece, x.dtype)
    reduced(parts, how, mine)
    ranks.allgather(as_bytes(mine), as_bytes(out[:whole]), call)
    if whole < x.size:
        allreduce(ranks, x[whole:], out[whole:], how, call)


def reducescatter(ranks: Communicator, x: Array, out: Array, how: str, outer: int, call: CollectiveCall) -> None:
    """Reduces the tensors of all ranks; each gets one piece along an axis, before which there are `outer` rows."""
    pieces = x.reshape(outer, ranks.size, -1)
    sent = np.ascontiguousarray(pieces.swapaxes(0, 1))
    parts = np.empty_like(sent).reshape(ranks.size, -1)
    ranks.alltoall(as_bytes(sent), as_bytes(parts), call)
    reduced(parts, how, out)


def allgather(ranks: Communicator, x: Array, out: Array, outer: int, call: CollectiveCall) -> None:
    """Joins the tensors of all ranks along an axis, before which there are `outer` rows."""
    if outer == 1:
        ranks.allgather(as_bytes(x), as_bytes(out), call)
        return
    parts = np.empty((ranks.size, outer, x.size // outer if outer else 0), x.dtype)
    ranks.allgather(as_bytes(x), as_bytes(parts), call)
    out.reshape(outer, ranks.size, -1)[...] = parts.swapaxes(0, 1)


def alltoall(ranks: Communicator, x: Array, out: Array, outer: int, call: CollectiveCall) -> None:
    """Sends piece k along an axis to rank k, and joins what comes along the same axis."""
    if outer == 1:
        ranks.alltoall(as_bytes(x), as_bytes(out), call)
        return
    sent = np.ascontiguousarray(x.reshape(outer, ranks.size, -1).swapaxes(0, 1))
    parts = np.empty_like(sent)
    ranks.alltoall(as_bytes(sent), as_bytes(parts), call)
    out.reshape(outer, ranks.size, -1)[...] = parts.swapaxes(0, 1)


def broadcast(ranks: Communicator, x: Array, out: Array, root: int, call: CollectiveCall) -> None:
    """Gives each rank the tensor of rank `root`."""
    out[...] = x
    ranks.broadcast(as_bytes(out), root, call)


def permute(ranks: Communicator, x: Array, out: Array, pairs: list[tuple[int, int]], call: CollectiveCall) -> None:
    """Sends tensors from rank to rank: of each pair from its first to its second; zeros where nothing comes.

    A rank sends after lower ones have, so that no two wait for each other.
    """
    as_bytes(out)[...] = 0
    for source, to in sorted(pairs):
        if source == to == ranks.rank:
            out[...] = x
        elif source == ranks.rank:
            ranks.send(as_bytes(x), to, call)
        elif to == ranks.rank:
            ranks.receive(as_bytes(out), source, call)


def barrier(ranks: Communicator, call: CollectiveCall) -> None:
    """Waits until all ranks are here."""
    nothing = np.empty(1, np.uint8)
    ranks.allgather(nothing, np.empty(ranks.size, np.uint8), call)
