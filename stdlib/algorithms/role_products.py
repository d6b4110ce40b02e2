"""Matrix products on GPUs by warps with roles: one begins the copies of whole tiles by hardware, the others multiply.

The warps wait for each other at barriers in shared memory: a stage is full when both of its tiles have arrived, and
empty when each warp that multiplies has read it. A product goes on while the next stage is awaited, so that a stage is
empty one step after it was multiplied.

The first product stands before the loop. An inner axis without elements has one step, of zeros.

See also `tile_products`, which says when products are such, and NVIDIA's PTX ISA manual, "Tensors" and "mbarrier".
"""

from __future__ import annotations

from ...dsl import Index, Parts, ceildiv, compiled_for, float32, gpu, int32, max, min, select
from .product_tiles import Matrices, Shape, place_of_tile, right_stages, stages_of_tiles, steps_of_tiles

ROWS = 64  # of sums that four warps compute together


def is_by_roles(batches: Index, a: Matrices, b: Matrices) -> Parts:
    """Whether tensor maps describe all matrices; None where they never do, which is known at compile time."""
    if not compiled_for().supports("wgmma"):
        return None
    left, right = a(0).fits_tensor_map(), b(0).fits_tensor_map()
    if left is None or right is None:
        return None
    return (batches > 0) & left & right


def launch_by_roles(
    sizes: tuple[Index, ...],
    a: Matrices,
    b: Matrices,
    out: Matrices,
    transposed: bool,
    shape: Shape,
    pieces: Index,
) -> None:
    """out(piece * batches + batch) = the product of a piece of the inner axis, for all pieces and batches."""
    batches, m, n, depth = sizes
    M, N, warps = shape
    (K, _), stages = steps_of_tiles(), stages_of_tiles(N)
    down, across = ceildiv(m, M), ceildiv(n, N)
    length = ceildiv(ceildiv(depth, K), pieces)  # steps of a piece

    def block():
        number = gpu.block_idx.x // (down * across)
        batch = number % batches
        first = 0 if pieces == 1 else number // batches * length  # so that the number of steps may be known
        row, column = place_of_tile(gpu.block_idx.x % (down * across), down, across)
        left, right, result = a(batch), b(batch), out(number)
        sa = gpu.shared[left.dtype](stages, M, K, layout="dot")
        sb = right_stages(right.dtype, (stages, K, N), transposed)
        full, empty = gpu.mbarrier(2, stages), gpu.mbarrier(warps, stages)
        steps = max(min(ceildiv(depth, K) - first, length), 1)

        def product(stage: Index, sums: Parts):
            other = sb[stage].transpose() if transposed else sb[stage]
            return gpu.dot_async(sa[stage], other, sums)

        def multiply():
            full[0].wait(0)
            sums = product(0, gpu.tile[float32](M, N))
            before, (stage, phase) = int32(0), _next(int32(0), int32(0), stages)
            for _ in range(1, steps):
                full[stage].wait(phase)
                sums = product(stage, sums)
                sums.wait(pending=1)
                gpu.warp.sync()
                if gpu.lane_idx == 0:
                    empty[before].arrive()
                before = stage
                stage, phase = _next(stage, phase, stages)
            sums.wait().cast(result.dtype).store(result.tile(row, column, (M, N)))

        def load():
            stage, phase = int32(0), int32(0)
            for k in range(first, first + steps):
                empty[stage].wait(phase - 1)
                gpu.copy_async(sa[stage], left.tile(row, k, (M, K)), arrive=full[stage])
                if transposed:
                    gpu.copy_async(sb[stage], right.tile(column, k, (N, K)), arrive=full[stage])
                else:
                    gpu.copy_async(sb[stage], right.tile(k, column, (K, N)), arrive=full[stage])
                stage, phase = _next(stage, phase, stages)

        gpu.roles(multiply=(multiply, warps), load=(load, 1))

    gpu.launch(block, grid=pieces * batches * down * across, block=(warps + 1) * gpu.warp_size)


def _next(stage: Parts, phase: Parts, stages: int) -> tuple[Parts, Parts]:
    """The stage behind another one, and the phase of its barriers."""
    last = stage == stages - 1
    return select(last, int32(0), stage + 1), select(last, phase + 1, phase)
