"""Matrix products on a GPU by tiles: copies of blocks into shared memory, several steps ahead, and `gpu.dot` of them.

A block of threads computes a tile of the result. It goes along the inner axis in steps, for which a ring of stages in
shared memory holds what is needed next; sums are float32. Where sizes end within a tile, zeros are multiplied and what
lies beyond is not stored. The blocks that run at the same time are those of neighbouring tiles, so that what they read
is in the cache: they go down a few rows of tiles first.

Tiles are copied by tensor maps where the target has them: a thread begins the copies of a step, which arrive at a
barrier in shared memory, and a product goes on while the next one begins. Where groups of four warps multiply, and a
tensor map describes both matrices, one warp copies and the others multiply (`role_products`). Elsewhere all threads
copy pieces of 16 bytes, if rows come in such pieces, which is tested where a step's tiles are copied. Steps are as long
as two blocks at a time have shared memory for; wide tiles, which read less, have a multiprocessor alone.

Which tiles these are, and into how many pieces the inner axis is cut where the result has few tiles, says `tile_costs`.

Grids have one axis: the others end at 65535 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyDType,
    AnyTensor,
    Bool,
    Index,
    Parts,
    ceildiv,
    compiled_for,
    float32,
    gpu,
    int32,
    max,
    min,
    parallel_for,
    select,
    store,
)
from .product_tiles import (
    WIDE,
    Matrices,
    Shape,
    begin_copies,
    begin_product,
    next_stage,
    place_of_tile,
    right_stages,
    steps_of_tiles,
)
from .role_products import ROWS, is_by_roles, launch_by_roles
from .tile_costs import FULL, arriving, clocks_of, pieces_of

LARGE = (128, 128, 4)  # rows and columns of a tile, and warps
SMALL = (64, 64, 4)
SMALL_IN_TENSOR_MEMORY = (128, 64, 4)  # which has 128 rows
FLAT_ROWS = (16, 128, 4)
PIECE = 16  # bytes that are copied at once


def has_tiles(dtype: AnyDType) -> bool:
    """Whether products of a dtype go by tiles: whether the target multiplies matrices of it."""
    return dtype.is_float() and dtype.bits == 16 and compiled_for().supports("bf16_mma")


def multiply_by_tiles(sizes: tuple[Index, ...], a: Matrices, b: Matrices, out: Matrices, transposed: bool) -> None:
    """out(batch) = a(batch) @ b(batch) for all batches, each a matrix; of a transposed b its columns are rows.

    Args:
        sizes: batches, rows, columns and the length of the inner axis.
    """
    (batches, m, n, depth), (K, _) = sizes, steps_of_tiles(LARGE[1])
    steps = ceildiv(depth, K)

    def tiles(shape: Shape) -> Index:
        count: Index = batches * ceildiv(m, shape[0]) * ceildiv(n, shape[1])
        return count

    def clocks(shape: Shape, pieces: Index) -> Index:
        return clocks_of((shape[0], shape[1], K), tiles(shape), steps, pieces)

    mapped = is_by_roles(batches, a, b)

    def launch(result: Matrices, shape: Shape, pieces: Index):
        if mapped is None or shape[0] % ROWS:
            launch_tiles(sizes, a, b, result, transposed, shape, pieces, has_tensor_maps())
        elif mapped:
            if shape == LARGE:
                if arriving(WIDE, tiles(WIDE), 1) <= arriving(LARGE, tiles(LARGE), FULL):
                    launch_by_roles(sizes, a, b, result, transposed, WIDE, pieces)
                else:
                    launch_by_roles(sizes, a, b, result, transposed, LARGE, pieces)
            else:
                launch_by_roles(sizes, a, b, result, transposed, shape, pieces)
        else:
            launch_tiles(sizes, a, b, result, transposed, shape, pieces, False)

    def launch_pieces(shape: Shape, pieces: Index):
        """A product whose inner axis is cut into pieces: their sums are added in the order of the axis."""
        if pieces == 1:
            launch(out, shape, 1)
        else:
            sums = gpu.scratch[float32](pieces * batches, m, n)
            launch(lambda number: sums[number, :, :], shape, pieces)

            def join(position: Index):
                batch, row, column = position // (m * n), position // n % m, position % n
                total = sums[batch, row, column]
                for piece in range(1, pieces):
                    total += sums[piece * batches + batch, row, column]
                result = out(batch)
                store(result, (row, column), total.cast(result.dtype))

            parallel_for(batches * m * n, join)

    less = _small()
    flat, small = pieces_of(tiles(FLAT_ROWS), steps), pieces_of(tiles(less), steps)
    if m <= FLAT_ROWS[0]:
        launch_pieces(FLAT_ROWS, flat)
    elif clocks(LARGE, 1) <= clocks(less, small):
        launch(out, LARGE, 1)
    else:
        launch_pieces(less, small)


def launch_tiles(
    sizes: tuple[Index, ...],
    a: Matrices,
    b: Matrices,
    out: Matrices,
    transposed: bool,
    shape: Shape,
    pieces: Index,
    by_maps: bool,
) -> None:
    """out(piece * batches + batch) = the product of a piece of the inner axis, for all pieces and batches.

    Args:
        by_maps: whether tiles are copied by tensor maps.
    """
    batches, m, n, depth = sizes
    M, N, warps = shape
    K, _ = steps_of_tiles(N)
    down, across = ceildiv(m, M), ceildiv(n, N)
    length = ceildiv(ceildiv(depth, K), pieces)  # steps of a piece

    def block():
        number = gpu.block_idx.x // (down * across)
        batch = number % batches
        first = 0 if pieces == 1 else number // batches * length  # so that the number of steps may be known
        row, column = place_of_tile(gpu.block_idx.x % (down * across), down, across)
        steps = max(min(ceildiv(depth, K) - first, length), 0)
        tile = (row, column, first, steps)
        sums = _by_maps if by_maps else _by_pieces
        result = out(number)
        acc = sums((M, N), a(batch), b(batch), transposed, tile)
        acc.cast(result.dtype).store(result.tile(row, column, (M, N)))

    gpu.launch(block, grid=pieces * batches * down * across, block=warps * gpu.warp_size)


def has_tensor_maps() -> bool:
    """Whether the target copies tiles by tensor maps, and has products that go on."""
    return compiled_for().supports("wgmma") or compiled_for().supports("tcgen05")


def _by_pieces(
    shape: tuple[int, int], left: AnyTensor, right: AnyTensor, transposed: bool, tile: tuple[Index, Index, Index, Index]
) -> Parts:
    """The sums of a tile, of operands that all threads copy.

    Args:
        tile: its row and its column among tiles, the first step of the inner axis, and the number of steps.
    """
    (M, N), (K, stages), (row, column, first, steps) = shape, steps_of_tiles(shape[1]), tile
    sa = gpu.shared[left.dtype](stages, M, K, layout="dot")
    sb = right_stages(right.dtype, (stages, K, N), transposed)
    whole = comes_in_pieces(left) & comes_in_pieces(right)

    def copy(k: Index, stage: Index, align: int):
        """Begins to copy the tiles of a step, of operands whose rows come in pieces of so many bytes."""
        gpu.copy_async(sa[stage], left.tile(row, k, (M, K), align=align), bulk=False)
        if transposed:
            gpu.copy_async(sb[stage], right.tile(column, k, (N, K), align=align), bulk=False)
        else:
            gpu.copy_async(sb[stage], right.tile(k, column, (K, N), align=align), bulk=False)

    fetch = lambda k, stage: in_pieces(whole, lambda align: copy(first + k, stage, align))  # noqa: E731

    acc = gpu.tile[float32](M, N)
    group = gpu.commit()
    for k in range(stages - 1):
        group = fetch(k, k)
    stage = int32(0)
    for k in range(steps):
        group.wait(pending=stages - 2)
        gpu.barrier()
        group = fetch(k + stages - 1, select(stage == 0, int32(stages - 1), stage - 1))
        other = sb[stage].transpose() if transposed else sb[stage]
        acc = gpu.dot(sa[stage], other, acc)
        stage = select(stage == stages - 1, int32(0), stage + 1)
    group.wait()
    return acc


def _by_maps(
    shape: tuple[int, int], left: AnyTensor, right: AnyTensor, transposed: bool, tile: tuple[Index, Index, Index, Index]
) -> Parts:
    """As `_by_pieces`, of operands that arrive at barriers; a product goes on while the next one begins.

    The first step is done in any case, so that tensor memory is taken in front of the loop: without steps it
    multiplies zeros.
    """
    (M, N), (K, stages), (row, column, first, steps) = shape, steps_of_tiles(shape[1]), tile
    sa = gpu.shared[left.dtype](stages, M, K, layout="dot")
    sb = right_stages(right.dtype, (stages, K, N), transposed)
    full = gpu.mbarrier(2, stages)

    def fetch(k: Index, stage: Parts):
        """Begins to copy the tiles of a step."""
        stored, at = (sa[stage], sb[stage]), (row, column, first + k)
        begin_copies(stored, (left, right), transposed, at, (M, N, K), full[stage])

    fetch(0, 0)
    for k in range(1, stages):
        if k < steps:
            fetch(k, k)
    full[0].wait(0)
    product = begin_product((sa[0], sb[0]), transposed, gpu.tile[float32](M, N))
    before, (stage, phase) = int32(0), next_stage(int32(0), int32(0), stages)
    for k in range(1, steps):
        full[stage].wait(phase)
        product = begin_product((sa[stage], sb[stage]), transposed, product)
        product.wait(pending=1)
        gpu.barrier()
        if k + stages - 1 < steps:
            fetch(k + stages - 1, before)
        before = stage
        stage, phase = next_stage(stage, phase, stages)
    return product.wait()


def comes_in_pieces(x: AnyTensor) -> Any:
    """Whether each row of a matrix begins and ends at a multiple of 16 bytes."""
    count = PIECE * 8 // x.dtype.bits
    return x.is_aligned(PIECE) & (x.strides[0] % count == 0) & (x.dim(1) % count == 0)


def in_pieces(whole: Bool, copy: Callable[[int], None]) -> Parts:
    """Begins the copies copy(align) of a step, where `align` bytes is what rows come in pieces of; their group."""
    if whole:
        copy(PIECE)
    else:
        copy(1)
    return gpu.commit()


def _small() -> Shape:
    """The tiles of results that have too few large ones."""
    return SMALL_IN_TENSOR_MEMORY if compiled_for().supports("tcgen05") else SMALL
