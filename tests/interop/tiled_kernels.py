"""A product by tiles whose sizes are chosen by tuning."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, autotune, bfloat16, ceildiv, float32, gpu, register


def product_block(out, a, b, M: int, N: int, K: int, stages: int):
    row, column = gpu.block_idx.y, gpu.block_idx.x
    left = gpu.shared[a.dtype](stages, M, K, layout="dot")
    right = gpu.shared[b.dtype](stages, K, N, layout="dot")

    def fetch(k):
        gpu.copy_async(left[k % stages], a.tile(row, k, (M, K)))
        gpu.copy_async(right[k % stages], b.tile(k, column, (K, N)))
        return gpu.commit()

    group = gpu.commit()
    for k in range(stages - 1):
        group = fetch(k)
    sums = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(1), K)):
        group.wait(pending=stages - 2)
        gpu.barrier()
        group = fetch(k + stages - 1)
        sums = gpu.dot(left[k % stages], right[k % stages], sums)
    group.wait()
    sums.cast(out.dtype).store(out.tile(row, column, (M, N)))


@autotune({"M": (16, 128), "N": (64, 128), "stages": (2, 3)}, key=("m", "n", "k"), exact=False)
@register("tiled_product")
def tiled_product(
    out: OutputTensor[bfloat16, "m n"],
    a: InputTensor[bfloat16, "m k"],
    b: InputTensor[bfloat16, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 64,
    K: int = 64,
    stages: int = 2,
    warps: int = 4,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    threads = warps * gpu.warp_size
    ctx.launch(
        product_block, out, a, b, grid=grid, block=threads, parameters={"M": M, "N": N, "K": K, "stages": stages}
    )


@autotune({"width": (1, 4)}, key=("n",))
@register("doubled_by_threads")
def doubled_by_threads(
    out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext, *, width: int = 1
) -> None:
    ctx.launch(doubled_block, out, x, grid=ceildiv(x.dim(0), 256 * width), block=256, parameters={"width": width})


def doubled_block(out, x, width: int):
    first = (gpu.block_idx.x * 256 + gpu.thread_idx.x) * width
    for k in range(width):
        if first + k < x.dim(0):
            out[first + k] = x[first + k] * 2


@register("column_reader")
def column_reader(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "n m"], ctx: DeviceContext) -> None:
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 8))
    ctx.launch(transposed_block, out, x, grid=grid, block=(32, 8))


def transposed_block(out, x):
    row, column = gpu.block_idx.y * 8 + gpu.thread_idx.y, gpu.block_idx.x * 32 + gpu.thread_idx.x
    if row < out.dim(0) and column < out.dim(1):
        out[row, column] = x[column, row]


@register("host_doubled")
def host_doubled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, width: int = 1) -> None:
    for k in range(x.dim(0)):
        out[k] = x[k] * 2
