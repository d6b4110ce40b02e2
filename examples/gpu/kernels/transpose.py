"""A transposed matrix: element by element, and by tiles that go through shared memory."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, float32, gpu, register, static_assert

TILE = 32
ROWS = 8  # threads of a block along y: each moves TILE // ROWS elements


def naive_thread(out, x):
    """Neighbouring threads read neighbours, and write elements that are a whole row apart."""
    row, column = gpu.global_idx.y, gpu.global_idx.x
    if row < x.dim(0) and column < x.dim(1):
        out[column, row] = x[row, column]


def tiled_thread(out, x):
    """Neighbouring threads read neighbours, and write neighbours: the tile turns in shared memory.

    Its rows have an element more than is used, so that the elements of a column lie in different banks.
    """
    tile = gpu.shared[float32](TILE, TILE + 1)
    top, left = gpu.block_idx.y * TILE, gpu.block_idx.x * TILE
    j = gpu.thread_idx.x
    for i in range(gpu.thread_idx.y, TILE, ROWS):
        if top + i < x.dim(0) and left + j < x.dim(1):
            tile[i, j] = x[top + i, left + j]
    gpu.barrier()
    for i in range(gpu.thread_idx.y, TILE, ROWS):
        if left + i < x.dim(1) and top + j < x.dim(0):
            out[left + i, top + j] = tile[j, i]


@register("gpu::transpose")
def transpose(
    out: OutputTensor[float32, "n m"],
    x: InputTensor[float32, "m n"],
    ctx: DeviceContext,
    *,
    algorithm: str = "tiled",
) -> None:
    """The transposed matrix; `algorithm` is "naive" or "tiled"."""
    static_assert(algorithm == "naive" or algorithm == "tiled", 'algorithm= is "naive" or "tiled"')
    rows, columns = x.shape
    if algorithm == "naive":
        ctx.launch(naive_thread, out, x, grid=(ceildiv(columns, 16), ceildiv(rows, 16)), block=(16, 16))
    else:
        ctx.launch(tiled_thread, out, x, grid=(ceildiv(columns, TILE), ceildiv(rows, TILE)), block=(TILE, ROWS))
