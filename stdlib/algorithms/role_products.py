"""Matrix products on GPUs by warps with roles: one begins the copies of whole tiles by hardware, the others multiply.

The warps wait for each other at barriers in shared memory: a stage is full when both of its tiles have arrived, and
empty when each warp that multiplies has read it. A product goes on while the next stage is awaited, so that a stage is
empty one step after it was multiplied.

The first product stands before the loop. An inner axis without elements has one step, of zeros.

See also `tile_products`, which says when products are such, and NVIDIA's PTX ISA manual, "Tensors" and "mbarrier".
"""

from __future__ import annotations

from ...dsl import Index, Parts, ceildiv, compiled_for, float32, gpu, int32, max, min
from .product_tiles import (
    Matrices,
    Shape,
    begin_copies,
    begin_product,
    next_stage,
    place_of_tile,
    right_stages,
    steps_of_tiles,
)

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
    K, stages = steps_of_tiles(N)
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

        def multiply():
            full[0].wait(0)
            sums = begin_product((sa[0], sb[0]), transposed, gpu.tile[float32](M, N))
            before, (stage, phase) = int32(0), next_stage(int32(0), int32(0), stages)
            for _ in range(1, steps):
                full[stage].wait(phase)
                sums = begin_product((sa[stage], sb[stage]), transposed, sums)
                sums.wait(pending=1)
                gpu.warp.sync()
                if gpu.lane_idx == 0:
                    empty[before].arrive()
                before = stage
                stage, phase = next_stage(stage, phase, stages)
            sums.wait().cast(result.dtype).store(result.tile(row, column, (M, N)))

        def load():
            stage, phase = int32(0), int32(0)
            for k in range(first, first + steps):
                empty[stage].wait(phase - 1)
                stored = sa[stage], sb[stage]
                begin_copies(stored, (left, right), transposed, (row, column, k), (M, N, K), full[stage])
                stage, phase = next_stage(stage, phase, stages)

        gpu.roles(multiply=(multiply, warps), load=(load, 1))

    gpu.launch(block, grid=pieces * batches * down * across, block=(warps + 1) * gpu.warp_size)
