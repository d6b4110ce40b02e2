"""A convolution of an image with a square filter: each block keeps its tile, with a rim, in shared memory."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, float32, fma, gpu, register, static_assert

TILE = 16


def convolve_thread(out, image, filter, *, size: int):
    """A thread an element of the result; what lies outside of the image counts as 0."""
    wide = TILE + size - 1
    tile = gpu.shared[float32](wide, wide)
    taps = gpu.shared[float32](size, size)
    i, j = gpu.thread_idx.y, gpu.thread_idx.x
    top, left = gpu.block_idx.y * TILE - size // 2, gpu.block_idx.x * TILE - size // 2
    for row in range(i, wide, TILE):
        for column in range(j, wide, TILE):
            y, x = top + row, left + column
            inside = y >= 0 and y < image.dim(0) and x >= 0 and x < image.dim(1)
            tile[row, column] = image[y, x] if inside else 0.0
    if i < size and j < size:
        taps[i, j] = filter[i, j]
    gpu.barrier()
    total = float32(0)
    for row in range(size):
        for column in range(size):
            total = fma(tile[i + row, j + column], taps[row, column], total)
    y, x = gpu.global_idx.y, gpu.global_idx.x
    if y < out.dim(0) and x < out.dim(1):
        out[y, x] = total


@register("gpu::convolution")
def convolution(
    out: OutputTensor[float32, "h w"],
    image: InputTensor[float32, "h w"],
    filter: InputTensor[float32, "s s"],
    ctx: DeviceContext,
    *,
    size: int = 5,
) -> None:
    """The image, of the same size; `size` is that of the filter, odd and at most 15."""
    static_assert(size % 2 == 1 and size <= 15, "size= is an odd number up to 15")
    assert filter.dim(0) == size, "the filter has another size than size="
    grid = (ceildiv(image.dim(1), TILE), ceildiv(image.dim(0), TILE))
    ctx.launch(convolve_thread, out, image, filter, grid=grid, block=(TILE, TILE), parameters={"size": size})
