"""A product of matrices in five steps, each quicker on a GPU than the one before; `algorithm` chooses.

naive         a thread an element; neighbouring threads read rows of `a` that lie far apart
coalesced     the same, with threads numbered so that neighbours read and write neighbours
shared        tiles of both matrices go through shared memory: each element is read once a tile
registers     each thread computes 4 x 4 elements, which stay in its registers
vectorized    the same, with 16 bytes an access to memory
"""

from __future__ import annotations

from einkorn.dsl import (
    SIMD,
    DeviceContext,
    InputTensor,
    OutputTensor,
    ceildiv,
    float32,
    fma,
    gpu,
    register,
    stack,
    static_assert,
    unroll,
)

SIDE = 16  # of the blocks of the first steps
TILE = 64  # elements of the product along either axis of a block of the last two
DEPTH = 16  # elements along k that are in shared memory
EACH = 4  # elements along either axis of a thread of the last two


def dot(a, b, i, j):
    total = float32(0)
    for k in range(a.dim(1)):
        total = fma(a[i, k], b[k, j], total)
    return total


def naive_thread(out, a, b):
    i, j = gpu.global_idx.x, gpu.global_idx.y
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = dot(a, b, i, j)


def coalesced_thread(out, a, b):
    i, j = gpu.global_idx.y, gpu.global_idx.x
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = dot(a, b, i, j)


def shared_thread(out, a, b):
    left = gpu.shared[float32](SIDE, SIDE)
    right = gpu.shared[float32](SIDE, SIDE)
    y, x = gpu.thread_idx.y, gpu.thread_idx.x
    i, j = gpu.global_idx.y, gpu.global_idx.x
    total = float32(0)
    for start in range(0, a.dim(1), SIDE):
        left[y, x] = a[i, start + x] if i < a.dim(0) and start + x < a.dim(1) else 0.0
        right[y, x] = b[start + y, j] if start + y < b.dim(0) and j < b.dim(1) else 0.0
        gpu.barrier()
        for k in unroll(SIDE):
            total = fma(left[y, k], right[k, x], total)
        gpu.barrier()
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = total


def registers_thread(out, a, b):
    """The tile of `a` lies transposed, so that a thread reads its rows as neighbours."""
    left = gpu.shared[float32](DEPTH, TILE)
    right = gpu.shared[float32](DEPTH, TILE)
    tile = stack[float32](EACH, EACH)
    x, y = gpu.thread_idx.x, gpu.thread_idx.y
    top, start_column = gpu.block_idx.y * TILE, gpu.block_idx.x * TILE
    t = y * SIDE + x
    for start in range(0, a.dim(1), DEPTH):
        for n in range(t, DEPTH * TILE, SIDE * SIDE):
            i, k = top + n // DEPTH, start + n % DEPTH
            left[n % DEPTH, n // DEPTH] = a[i, k] if i < a.dim(0) and k < a.dim(1) else 0.0
            k, j = start + n // TILE, start_column + n % TILE
            right[n // TILE, n % TILE] = b[k, j] if k < b.dim(0) and j < b.dim(1) else 0.0
        gpu.barrier()
        for k in range(DEPTH):
            for r in unroll(EACH):
                for c in unroll(EACH):
                    tile[r, c] = fma(left[k, y * EACH + r], right[k, x * EACH + c], tile[r, c])
        gpu.barrier()
    for r in unroll(EACH):
        for c in unroll(EACH):
            i, j = top + y * EACH + r, start_column + x * EACH + c
            if i < out.dim(0) and j < out.dim(1):
                out[i, j] = tile[r, c]


def vectorized_thread(out, a, b):
    """Rows of the matrices begin at multiples of 16 bytes: the op sees to that."""
    left = gpu.shared[float32](DEPTH, TILE)
    right = gpu.shared[float32](DEPTH, TILE)
    tile = (SIMD[float32, EACH](0.0),) * EACH
    x, y = gpu.thread_idx.x, gpu.thread_idx.y
    top, start_column = gpu.block_idx.y * TILE, gpu.block_idx.x * TILE
    t = y * SIDE + x
    for start in range(0, a.dim(1), DEPTH):
        row, k = t // (DEPTH // EACH), t % (DEPTH // EACH) * EACH
        four = SIMD[float32, EACH](0.0)
        if top + row < a.dim(0) and start + k < a.dim(1):
            four = a.load(top + row, start + k, width=EACH)
        for c in unroll(EACH):
            left[k + c, row] = four[c]
        row, j = t // (TILE // EACH), t % (TILE // EACH) * EACH
        four = SIMD[float32, EACH](0.0)
        if start + row < b.dim(0) and start_column + j < b.dim(1):
            four = b.load(start + row, start_column + j, width=EACH)
        right.store(four, row, j)
        gpu.barrier()
        for k in range(DEPTH):
            rows, columns = left.load(k, y * EACH, width=EACH), right.load(k, x * EACH, width=EACH)
            grown = ()
            for r in unroll(EACH):
                grown = (*grown, fma(SIMD[float32, EACH](rows[r]), columns, tile[r]))
            tile = grown
        gpu.barrier()
    for r in unroll(EACH):
        i, j = top + y * EACH + r, start_column + x * EACH
        if i < out.dim(0) and j < out.dim(1):
            out.store(tile[r], i, j)


@register("gpu::matrix_multiplication")
def matrix_multiplication(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[float32, "m k"],
    b: InputTensor[float32, "k n"],
    ctx: DeviceContext,
    *,
    algorithm: str = "vectorized",
) -> None:
    """a @ b; for sizes that are not multiples of 4 "vectorized" is "registers"."""
    m, n = out.shape
    if algorithm == "naive":
        ctx.launch(naive_thread, out, a, b, grid=(ceildiv(m, SIDE), ceildiv(n, SIDE)), block=(SIDE, SIDE))
    elif algorithm == "coalesced":
        ctx.launch(coalesced_thread, out, a, b, grid=(ceildiv(n, SIDE), ceildiv(m, SIDE)), block=(SIDE, SIDE))
    elif algorithm == "shared":
        ctx.launch(shared_thread, out, a, b, grid=(ceildiv(n, SIDE), ceildiv(m, SIDE)), block=(SIDE, SIDE))
    else:
        static_assert(algorithm == "registers" or algorithm == "vectorized", "algorithm= is none of the five")
        # With two blocks to a multiprocessor a thread has up to 128 registers. Without this wish ptxas plans for four
        # blocks, and stores values that do not fit into 64 registers.
        grid, at_once = (ceildiv(n, TILE), ceildiv(m, TILE)), 2
        if algorithm == "vectorized" and n % EACH == 0 and a.dim(1) % EACH == 0:
            ctx.launch(vectorized_thread, out, a, b, grid=grid, block=(SIDE, SIDE), min_blocks=at_once)
        else:
            ctx.launch(registers_thread, out, a, b, grid=grid, block=(SIDE, SIDE), min_blocks=at_once)
