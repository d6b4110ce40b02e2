"""Declares the names for grids of threads: where a thread is, how threads wait for each other, what they share."""

from __future__ import annotations

from typing import Any

from . import collectives
from .async_copies import CopyGroup, CopyToken, MBarrier
from .stubs import Namespace, Storage, namespace, value

__all__ = ["gpu"]


class Axes(Namespace):
    """A number for each axis of the grid."""

    x: Any
    y: Any
    z: Any


def _axes(name: str, doc: str) -> Axes:
    names = {axis: value(f"gpu.{name}.{axis}", f"{doc}, axis {axis}.") for axis in "xyz"}
    return Axes(**names, _name=f"'gpu.{name}'")


@namespace
class gpu:
    """What a thread of a grid has of itself and of its block."""

    thread_idx = _axes("thread_idx", "The thread's index within its block")
    block_idx = _axes("block_idx", "The block's index within the grid")
    block_dim = _axes("block_dim", "Threads in a block")
    grid_dim = _axes("grid_dim", "Blocks in the grid")
    global_idx = _axes("global_idx", "`block_idx * block_dim + thread_idx`")
    cluster_idx = _axes("cluster_idx", "The index of the block's cluster among the clusters of the grid")
    block_in_cluster = _axes("block_in_cluster", "The block's index within its cluster")
    cluster_dim = _axes("cluster_dim", "Blocks in a cluster; 1 without `cluster=`")
    lane_idx = value("gpu.lane_idx", "The thread's number within its warp; threads count along x, then y, then z.")
    warp_idx = value("gpu.warp_idx", "The warp's number within its block.")
    warp_size = value("gpu.warp_size", "Threads in a warp, known at compile time: 32 or 64, on a CPU 32.")
    threads_per_block = value("gpu.threads_per_block", "Threads in a block along all its axes, known at compile time.")
    warps_per_block = value("gpu.warps_per_block", "Warps in a block, the last of which may be a part of one.")

    shared = Storage(
        "gpu.shared",
        "(*dims, align=16, layout=None)",
        "A tensor that the threads of a block share, of sizes known at compile time; uninitialised. `layout` says where"
        ' elements lie: a `Layout`, a `ComposedLayout`, or `"dot"` for matrices that products read. `s[k]` is a view.',
    )
    dynamic_shared = Storage(
        "gpu.dynamic_shared",
        "(*dims)",
        "The same of any sizes, in the memory that `shared=` of the launch reserves, one after the other.",
    )

    scratch = Storage(
        "gpu.scratch",
        "(*dims)",
        "A tensor in memory of the device for this call of the op, of any sizes; made by host code, not written yet.",
    )

    tile = Storage(
        "gpu.tile",
        '(M, N, value=0, scope="block")',
        "A matrix of one number that the threads of the block hold together, M a multiple of 16 and N of 8, or 1: a"
        " value, which goes round loops and to functions.",
    )

    warp = collectives.warp
    block = collectives.block
    cluster = collectives.cluster

    @staticmethod
    def uniform(value: Any, scope: str = "warp") -> Any:
        """The value, which the author promises to be equal in all threads of the scope: warp, block, cluster or grid.

        A condition on it may stand around a barrier, or around what the threads of a warp do together.
        """

    @staticmethod
    def launch(kernel: Any, *, grid: Any, block: Any, shared: Any = 0, min_blocks: int | None = None) -> None:
        """Runs a function without arguments by every thread of a grid, as `ctx.launch` does; in helpers without one."""

    @staticmethod
    def barrier(id: int = 0, threads: int | None = None) -> None:
        """Waits until every thread of the block is here, and shows them what each has stored.

        With `threads`, whole warps with so many threads together wait at barrier number `id`, from 0 to 15, where the
        target has `"named_barriers"`; the others of the block do not have to come.
        """

    @staticmethod
    def roles(**roles: object) -> None:
        """Lets the warps of a block run different functions, each to its end: `gpu.roles(load=(load, 1),
        math=(multiply, 4))`, by name a function without arguments and its number of warps, in the order of the warps. A
        third number is how many registers each thread of the role has, where the target moves registers. In a role the
        names of the block (`thread_idx`, `barrier()`, `block`, tiles) are those of its own threads."""

    @staticmethod
    def mbarrier(count: int, stages: int | None = None) -> MBarrier:
        """A barrier in shared memory, or as many as `stages` says, of which `barrier[k]` is one. `count` arrivals end a
        phase of it: threads arrive and go on, and so do copies (`arrive=` of `copy_async`). All threads of the block
        make it together."""
        raise NotImplementedError

    @staticmethod
    def work(tiles: tuple[object, object], order: str = "grouped") -> Any:
        """The tiles of this block, for grids with fewer blocks than there are tiles: `for row, column in
        gpu.work((ceildiv(m, M), ceildiv(n, N)))`. Tiles go by bands of eight rows, down each column of a band, or by
        `"rows"` or `"columns"`; block number b of n takes tiles b, b + n, …."""

    @staticmethod
    def fence(ordering: str = "acq_rel", scope: str = "block") -> None:
        """Puts what this thread has read and written in front of what it does next, as the threads of the scope
        (block, cluster, device, system) see it; `ordering` is acquire, release, acq_rel or seq_cst."""

    @staticmethod
    def copy_async(
        to: Any,
        source: Any,
        mask: Any = True,
        arrive: MBarrier | None = None,
        multicast: bool = False,
        bulk: bool = True,
    ) -> CopyToken:
        """Begins to copy neighbours of 4, 8 or 16 bytes from a tensor into shared memory, while this thread goes on:
        `gpu.copy_async(tile[r, c : c + 4], x[i, j : j + 4])`. Both sides lie at a multiple of so many bytes. Where
        `mask` is False, zeros are stored, and nothing is read. A view, `gpu.copy_async(s, x.tile(i, j, (M, N)))`, is
        copied by all threads of the block together, and where it reaches beyond the tensor, its `fill` is stored. With
        `arrive`, the copy of a view arrives at that barrier when it has ended, once, and gives nothing to wait for.
        With `multicast`, the blocks of a cluster begin the same copy together: each copies a part of the view's rows
        into the memory of all of them, and arrives at the barrier of each. With `bulk=False`, threads copy pieces of a
        view where hardware would copy all of it."""
        raise NotImplementedError

    @staticmethod
    def load(view: Any, dtype: Any = None) -> Any:
        """The elements of `x.tile(i, j, (M, N))`, or of a matrix in shared memory, as a tile, cast to `dtype`."""

    @staticmethod
    def dot(
        a: object, b: object, acc: object, precision: str = "ieee", scales: object = None, packed: object = None
    ) -> Any:
        """The tile `acc + a @ b`. `a` and `b` are matrices in shared memory, which `s.transpose()` turns over, or
        tiles, of one dtype; products are added in the dtype of `acc`: float32 for float16, bfloat16 and float32, int32
        for integers, float64 for float64. `precision="tf32"` rounds float32 operands to 10 bits where the target
        multiplies these. `scales=(s, t)` are factors of blocks of 32 elements along the inner axis, matrices like `a`
        and `b` of float8_e8m0fnu: M x K / 32 of `a`, and K / 32 x N of `b`. These have float8_e4m3fn or float8_e5m2.
        `packed=float4_e2m1fn` says that bytes of `a` and `b` are two such elements each, neighbours along the inner
        axis, the first one in the lower half: M x K / 2 and K / 2 x N bytes. Scales are as above, or float8_e4m3fn for
        each 16 elements."""

    @staticmethod
    def dot_async(
        a: object, b: object, acc: object, precision: str = "ieee", scales: object = None, packed: object = None
    ) -> Any:
        """The product `gpu.dot(a, b, acc, precision, scales, packed)` under way: `.wait()` gives its sums. `acc` may be
        a product under way; `.wait(pending=1)` waits for all products but the newest one, and gives nothing. Operands
        in shared memory may be written again when the product has ended and a barrier is behind it, and `acc` is not
        read any more."""

    @staticmethod
    def commit() -> CopyGroup:
        """The copies that this thread has begun since the last `commit`, as a group."""
        raise NotImplementedError
