"""Computes the collectives of ranks, where the tensors lie: on the host, or on a GPU.

A communicator moves bytes (`exchange`), and these kernels compute with what has come. Reductions go in the order of
ranks, on every communicator: each rank reduces one piece of the tensor, and all gather the pieces (Rabenseifner 2004,
without its recursion). Small tensors, and those of two ranks, are gathered whole, which takes one step and moves no
more. Half types are added up in float32 and rounded once.

A collective is one kernel, or two: `start_...` begins its exchanges, and `finish_...` waits for them and computes the
result (see `graph.passes.overlap`). Both ways make the same exchanges in the same order, so that some ranks may go one
way and some the other. What is begun is known by the address of its result.

See also `graph.distributed.calls` (which communicator an exchange goes to).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...dsl import (
    AnyTensor,
    DType,
    Index,
    InputTensor,
    Int64,
    OutputTensor,
    Parts,
    Pointer,
    Storable,
    ceildiv,
    compiled_for,
    float32,
    foreach,
    gpu,
    int8,
    max,
    min,
    parallel_for,
    register,
    scratch,
    select,
    unroll,
)
from ...dsl.language.native import exchange
from ..algorithms.algorithm import unravelled

S = TypeVar("S", bound=Storable)

LANES = 16  # elements that are reduced at once
BLOCK = 1 << 20  # bytes from all ranks that a host reduces at once, so that they stay in its caches


def _room(dtype: DType, count: Index):
    """Memory for so many elements, next to the tensors."""
    if compiled_for().is_gpu:
        return gpu.scratch[dtype](count)
    return scratch[dtype](count)


def _each(count: Index, body: Callable[[Index], None]) -> None:
    """Calls a function for so many numbers: on a GPU in threads, on the host one after the other."""
    if compiled_for().is_gpu:
        parallel_for(count, body)
    else:
        for k in range(count):
            body(k)


def _located(x: AnyTensor, use: Callable[[Pointer[S], bool], None]) -> None:
    """Calls a function with where the elements of a tensor lie one after the other, and whether they stay there: those
    of a copy, if others lie between them, are gone with the kernel."""
    whole: Parts = True
    step: Parts = 1
    for k in unroll(x.rank):
        whole = whole and (x.dim(x.rank - 1 - k) == 1 or x.strides[x.rank - 1 - k] == step)
        step = step * x.dim(x.rank - 1 - k)
    if whole:
        use(x.pointer(), True)
    else:
        copy = _room(x.dtype, x.size)
        to = copy.pointer()
        _each(x.size, lambda k: to.store(x[unravelled(k, x.shape)], k))
        use(to, False)


def _together(x: AnyTensor, use: Callable[[Pointer[S]], None]) -> None:
    """Calls a function with where the elements of a tensor lie one after the other."""

    def use_located(source: Pointer[S], stays: bool) -> None:
        use(source)

    _located(x, use_located)


def _rows(x: AnyTensor, axis: int):
    """How many rows lie before an axis."""
    rows: Parts = 1
    for k in unroll(axis):
        rows = rows * x.dim(k)
    return rows


# *** reductions ***


def _reduce_at(to: Pointer[S], parts: Pointer[S], count: Index, first: Index, lanes: int, how: str, ranks: int) -> None:
    wide = to.dtype
    if to.dtype.is_half() and (how == "sum" or how == "mean"):
        wide = float32
    total = parts.load(first, width=lanes).cast(wide)
    for rank in range(1, ranks):
        part = parts.load(rank * count + first, width=lanes).cast(wide)
        if how == "max":
            total = max(total, part)
        elif how == "min":
            total = min(total, part)
        else:
            total = total + part
    if how == "mean":
        total = total / ranks
    to.store(total.cast(to.dtype), first)


def _reduce(to: Pointer[S], parts: Pointer[S], count: Index, how: str, ranks: int) -> None:
    """Reduces the pieces of all ranks, of so many elements each, in their order."""
    full: Parts = 0
    if not to.dtype.is_complex() and not compiled_for().is_gpu:
        full = count // LANES * LANES
        for first in range(0, full, LANES):
            _reduce_at(to, parts, count, first, LANES, how, ranks)
    _each(count - full, lambda k: _reduce_at(to, parts, count, full + k, 1, how, ranks))


def _block(dtype: DType, count: Index, ranks: int, block: int):
    """How many elements of each rank are reduced at once, of so many; `block` are bytes from all ranks."""
    if compiled_for().is_gpu:
        return max(1, count)
    return max(1, min(count, block // (ranks * dtype.bits // 8)))


def _piece(count: Index, ranks: int, small: int):
    """How many elements each rank reduces for all; 0 where each reduces all for itself."""
    if ranks == 2:
        return 0
    return select(count <= small, 0, count // ranks)


@register("collective::allreduce", fuse=False, effects=True)
def allreduce(
    out: OutputTensor[S, "*s"],
    x: InputTensor[S, "*s"],
    node: Int64,
    *,
    what: str,
    how: str,
    ranks: int,
    small: int,
    block: int = BLOCK,
) -> None:
    """The reduction of the tensors of all ranks; up to `small` elements are gathered whole, others in blocks of so many
    bytes from all ranks."""

    def reduce(source: Pointer[S]) -> None:
        to = out.pointer()
        piece = _piece(x.size, ranks, small)
        if piece > 0:
            step = _block(x.dtype, piece, ranks, block)
            parts, mine = _room(x.dtype, ranks * step), _room(x.dtype, step)
            for first in range(0, piece, step):
                size, start = min(step, piece - first), ranks * first
                exchange("alltoall", what, parts.pointer(), source + start, size, x.size, node)
                _reduce(mine.pointer(), parts.pointer(), size, how, ranks)
                exchange("gather_pieces", what, to + start, mine.pointer(), size, x.size, node)
        done = ranks * piece
        if done < x.size or x.size == 0:
            rest = x.size - done
            step = _block(x.dtype, rest, ranks, block)
            parts = _room(x.dtype, ranks * step)
            for first in range(0, max(rest, 1), step):
                size = min(step, rest - first)
                exchange("allgather", what, parts.pointer(), source + (done + first), size, x.size, node)
                _reduce(to + (done + first), parts.pointer(), size, how, ranks)

    _together(x, reduce)


@register("collective::start_allreduce", fuse=False, effects=True)
def start_allreduce(
    parts: OutputTensor[S, "m"],
    x: InputTensor[S, "*s"],
    node: Int64,
    *,
    what: str,
    ranks: int,
    small: int,
    block: int = BLOCK,
) -> None:
    """Begins a reduction: what comes from the ranks lies in `parts`, block after block."""

    def start(source: Pointer[S], stays: bool) -> None:
        to = parts.pointer()
        piece = _piece(x.size, ranks, small)
        step = _block(x.dtype, piece, ranks, block)
        for first in range(0, piece, step):
            at, size = ranks * first, min(step, piece - first)
            if stays:
                exchange("start_alltoall", what, to + at, source + at, size, x.size, node)
            else:
                exchange("alltoall", what, to + at, source + at, size, x.size, node)
        done = ranks * piece
        rest = x.size - done
        step = _block(x.dtype, rest, ranks, block)
        if done < x.size or x.size == 0:
            for first in range(0, max(rest, 1), step):
                at, size = done + ranks * first, min(step, rest - first)
                if stays:
                    exchange("start_allgather", what, to + at, source + (done + first), size, x.size, node)
                else:
                    exchange("allgather", what, to + at, source + (done + first), size, x.size, node)

    _located(x, start)


@register("collective::finish_allreduce", fuse=False, effects=True)
def finish_allreduce(
    out: OutputTensor[S, "*s"],
    parts: InputTensor[S, "m"],
    x: InputTensor[S, "*s"],
    node: Int64,
    *,
    what: str,
    how: str,
    ranks: int,
    small: int,
    block: int = BLOCK,
) -> None:
    """Waits for a reduction that `start_allreduce` has begun with the same tensor, and computes it."""
    to, source = out.pointer(), parts.pointer()
    piece = _piece(x.size, ranks, small)
    if piece > 0:
        step = _block(x.dtype, piece, ranks, block)
        mine = _room(x.dtype, step)
        for first in range(0, piece, step):
            size, at = min(step, piece - first), ranks * first
            exchange("wait", what, source + at, source + at, size, x.size, node)
            _reduce(mine.pointer(), source + at, size, how, ranks)
            exchange("gather_pieces", what, to + at, mine.pointer(), size, x.size, node)
    done = ranks * piece
    rest = x.size - done
    step = _block(x.dtype, rest, ranks, block)
    for first in range(0, rest, step):
        size, at = min(step, rest - first), done + ranks * first
        exchange("wait", what, source + at, source + at, size, x.size, node)
        _reduce(to + (done + first), source + at, size, how, ranks)


def reduce_in_place(
    out: AnyTensor,
    parts: AnyTensor,
    node: Int64,
    compute: Callable[[Index, Index], None],
    what: str,
    how: str,
    numbers: tuple[int, int, int],
) -> None:
    """A reduction whose exchanges begin while the tensor is computed: `compute(begin, end)` stores these elements.

    A block is sent from `out`, and reduced there after the next block was computed. The exchanges are those of
    `allreduce`, which has the same `numbers`: `ranks`, `small` and `block`. `parts` holds what comes of two blocks.
    """
    ranks, small, block = numbers
    to, count = out.pointer(), out.size
    piece = _piece(count, ranks, small)
    step = _block(out.dtype, piece, ranks, block)
    done = ranks * piece
    rest = count - done
    last = _block(out.dtype, rest, ranks, block)
    in_pieces = ceildiv(piece, step)
    blocks = max(in_pieces + ceildiv(rest, last), 1)
    mine = _room(out.dtype, select(piece > 0, step, 0))

    def arrived(k: Index):
        return parts.pointer() + k % 2 * (parts.size // 2)

    def place(k: Index) -> tuple[Index, Index, Index]:
        """Where a block begins and ends, and how many elements a rank gets of it."""
        if ranks == 2:
            return k * last, min((k + 1) * last, count), min(last, count - k * last)
        first = select(k < in_pieces, ranks * k * step, done + (k - in_pieces) * last)
        size = select(k < in_pieces, min(step, piece - k * step), min(last, count - first))
        return first, first + select(k < in_pieces, ranks * size, size), size

    for k in range(blocks + 1):
        if k < blocks:
            begin, end, size = place(k)
            compute(begin, end)
            if ranks > 2 and k < in_pieces:
                exchange("start_alltoall", what, arrived(k), to + begin, size, count, node)
            else:
                exchange("start_allgather", what, arrived(k), to + begin, size, count, node)
        if k > 0:
            begin, _, size = place(k - 1)
            came = arrived(k - 1)
            exchange("wait", what, came, came, size, count, node)
            if ranks > 2 and k <= in_pieces:
                _reduce(mine.pointer(), came, size, how, ranks)
                exchange("gather_pieces", what, to + begin, mine.pointer(), size, count, node)
            else:
                _reduce(to + begin, came, size, how, ranks)


@register("collective::reducescatter", fuse=False, effects=True)
def reducescatter(
    out: OutputTensor[S, "*a{axis} (n // ranks) *b"],
    x: InputTensor[S, "*a{axis} n *b"],
    node: Int64,
    *,
    what: str,
    axis: int,
    how: str,
    ranks: int,
) -> None:
    """The piece of this rank, along an axis, of the reduction of the tensors of all ranks."""
    parts = _room(x.dtype, x.size)
    _send_pieces(what, parts.pointer(), x, _rows(x, axis), ranks, node)
    _reduce(out.pointer(), parts.pointer(), out.size, how, ranks)


# *** movements ***


def _send_pieces(what: str, to: Pointer[S], x: AnyTensor, rows: Index, ranks: int, node: Int64) -> None:
    """Sends each rank its piece of every row. At `to` all that comes from one rank lies together."""

    def send_all(source: Pointer[S]) -> None:
        exchange("alltoall", what, to, source, x.size // ranks, x.size, node)

    def send_rows(source: Pointer[S]) -> None:
        by_rank = _room(x.dtype, x.size)
        _swap(by_rank.pointer(), source, x.size, rows, ranks)
        send_all(by_rank.pointer())

    if rows == 1:
        _together(x, send_all)
    else:
        _together(x, send_rows)


def _swap(to: Pointer[S], source: Pointer[S], count: Index, outer: Index, inner: Index) -> None:
    """Exchanges the first two axes of so many elements: `outer` times `inner` pieces."""
    size = select(count == 0, 0, count // max(outer * inner, 1))

    def swap(i: Index, j: Index, k: Index) -> None:
        to[(j * outer + i) * size + k] = source[(i * inner + j) * size + k]

    if compiled_for().is_gpu:
        parallel_for(outer * inner * size, lambda n: swap(n // (inner * size), n // size % inner, n % size))
    else:
        for i in range(outer):
            for j in range(inner):
                for k in range(size):
                    swap(i, j, k)


@register("collective::allgather", fuse=False, effects=True)
def allgather(
    out: OutputTensor[S, "*a{axis} (ranks * n) *b"],
    x: InputTensor[S, "*a{axis} n *b"],
    node: Int64,
    *,
    what: str,
    axis: int,
    ranks: int,
) -> None:
    """The tensors of all ranks, joined along an axis."""
    rows = _rows(x, axis)

    def gather(source: Pointer[S]) -> None:
        if rows == 1:
            exchange("allgather", what, out.pointer(), source, x.size, x.size, node)
        else:
            parts = _room(x.dtype, out.size)
            exchange("allgather", what, parts.pointer(), source, x.size, x.size, node)
            _swap(out.pointer(), parts.pointer(), out.size, ranks, rows)

    _together(x, gather)


@register("collective::alltoall", fuse=False, effects=True)
def alltoall(
    out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], node: Int64, *, what: str, axis: int, ranks: int
) -> None:
    """The pieces along an axis that all ranks have for this one."""
    rows = _rows(x, axis)
    if rows == 1:
        _send_pieces(what, out.pointer(), x, rows, ranks, node)
    else:
        parts = _room(x.dtype, x.size)
        _send_pieces(what, parts.pointer(), x, rows, ranks, node)
        _swap(out.pointer(), parts.pointer(), x.size, ranks, rows)


@register("collective::broadcast", fuse=False, effects=True)
def broadcast(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], node: Int64, *, what: str) -> None:
    """The tensor of one rank."""
    foreach(out, lambda i: x[i])
    exchange("broadcast", what, out.pointer(), out.pointer(), x.size, x.size, node)


@register("collective::permute", fuse=False, effects=True)
def permute(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], node: Int64, *, what: str) -> None:
    """The tensor of the rank that sends to this one; zeros where none does."""
    _together(x, lambda source: exchange("move", what, out.pointer(), source, x.size, x.size, node))


@register("collective::send", fuse=False, effects=True)
def send(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"], node: Int64, *, what: str) -> None:
    """The same tensor, which is sent to a rank."""
    foreach(out, lambda i: x[i])
    exchange("move", what, out.pointer(), out.pointer(), x.size, x.size, node)


@register("collective::recv", fuse=False, effects=True)
def recv(out: OutputTensor[S, "*s"], node: Int64, *, what: str) -> None:
    """The tensor that a rank sends."""
    exchange("move", what, out.pointer(), out.pointer(), out.size, out.size, node)


@register("collective::barrier", fuse=False, effects=True)
def barrier(done: OutputTensor[int8, "0"], node: Int64, *, what: str, ranks: int) -> None:
    """Waits until all ranks are here."""
    mine, everyone = scratch[int8](1, zeroed=True), scratch[int8](ranks)
    exchange("allgather", what, everyone.pointer(), mine.pointer(), 1, 0, node)


# *** movements that begin early ***


@register("collective::start_allgather", fuse=False, effects=True)
def start_allgather(parts: OutputTensor[S, "*t"], x: InputTensor[S, "*s"], node: Int64, *, what: str) -> None:
    """Begins to gather the tensors of all ranks, one after the other."""

    def start(source: Pointer[S], stays: bool) -> None:
        if stays:
            exchange("start_allgather", what, parts.pointer(), source, x.size, x.size, node)
        else:
            exchange("allgather", what, parts.pointer(), source, x.size, x.size, node)

    _located(x, start)


@register("collective::start_alltoall", fuse=False, effects=True)
def start_alltoall(
    parts: OutputTensor[S, "*t"], x: InputTensor[S, "*s"], node: Int64, *, what: str, ranks: int
) -> None:
    """Begins to send each rank its piece of a tensor: pieces lie one after the other."""

    def start(source: Pointer[S], stays: bool) -> None:
        if stays:
            exchange("start_alltoall", what, parts.pointer(), source, x.size // ranks, x.size, node)
        else:
            exchange("alltoall", what, parts.pointer(), source, x.size // ranks, x.size, node)

    _located(x, start)


@register("collective::wait", fuse=False, effects=True)
def wait(
    done: OutputTensor[int8, "0"], parts: InputTensor[S, "*t"], x: InputTensor[S, "*s"], node: Int64, *, what: str
) -> None:
    """Waits for what was begun with a tensor. After that, `parts` is the result."""
    exchange("wait", what, parts.pointer(), parts.pointer(), x.size, x.size, node)


@register("collective::finish_allgather", fuse=False, effects=True)
def finish_allgather(
    out: OutputTensor[S, "*a{axis} (ranks * n) *b"],
    parts: InputTensor[S, "*t"],
    x: InputTensor[S, "*a{axis} n *b"],
    node: Int64,
    *,
    what: str,
    axis: int,
    ranks: int,
) -> None:
    """Waits for the tensors of all ranks, and joins them along an axis."""
    exchange("wait", what, parts.pointer(), parts.pointer(), x.size, x.size, node)
    _swap(out.pointer(), parts.pointer(), out.size, ranks, _rows(x, axis))


@register("collective::finish_reducescatter", fuse=False, effects=True)
def finish_reducescatter(
    out: OutputTensor[S, "(n // ranks) *b"],
    parts: InputTensor[S, "*t"],
    x: InputTensor[S, "n *b"],
    node: Int64,
    *,
    what: str,
    how: str,
    ranks: int,
) -> None:
    """Waits for the pieces of all ranks, and reduces them."""
    exchange("wait", what, parts.pointer(), parts.pointer(), out.size, x.size, node)
    _reduce(out.pointer(), parts.pointer(), out.size, how, ranks)


@register("collective::progress", fuse=False, effects=True)
def progress(done: OutputTensor[int8, "0"], node: Int64, *, what: str) -> None:
    """Lets what was begun go on."""
    nothing = scratch[int8](1, zeroed=True)
    exchange("progress", what, nothing.pointer(), nothing.pointer(), 1, 0, node)
