"""Grids with fewer blocks than there are tiles."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, float32, gpu, int32, register


def numbered_block(out, tiles_out, x, order: str):
    """Twice each element, and which block did it; a tile is copied by the block that has it."""
    held = gpu.shared[float32](16, 64)
    for row, column in gpu.work((ceildiv(x.dim(0), 16), ceildiv(x.dim(1), 64)), order=order):
        gpu.copy_async(held, x.tile(row, column, (16, 64))).wait()
        gpu.barrier()
        t = gpu.load(held)
        (t + t).store(out.tile(row, column, (16, 64)))
        if gpu.thread_idx.x == 0:
            tiles_out[row, column] = int32(gpu.block_idx.x + 2 * gpu.block_idx.y)
        gpu.barrier()


@register("persistent::doubled")
def doubled(
    out: OutputTensor[float32, "m n"],
    tiles: OutputTensor[int32, "i j"],
    x: InputTensor[float32, "m n"],
    ctx: DeviceContext,
    *,
    order: str = "grouped",
    more: int = 1,
) -> None:
    ctx.launch(numbered_block, out, tiles, x, grid=(2, more), block=64, parameters={"order": order})
