"""A product of matrices by tiles, with copies two stages ahead, and a bias and an activation before it is stored."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    OutputTensor,
    ceildiv,
    float32,
    float64,
    gpu,
    max,
    register,
    select,
)

T = TypeVar("T", bound=Floating)
STAGES = 3  # tiles of each operand that are in shared memory


def product_block(out, a, b, bias, M: int, N: int, K: int):
    """One tile of the result: a row of tiles of `a` times a column of tiles of `b`."""
    row, column = gpu.block_idx.y, gpu.block_idx.x
    left = gpu.shared[a.dtype](STAGES, M, K, layout="dot")
    right = gpu.shared[b.dtype](STAGES, K, N, layout="dot")

    def fetch(k, stage):
        gpu.copy_async(left[stage], a.tile(row, k, (M, K)))
        gpu.copy_async(right[stage], b.tile(k, column, (K, N)))
        return gpu.commit()

    group = gpu.commit()
    for k in range(STAGES - 1):
        group = fetch(k, k)
    wide = float64 if a.dtype == float64 else float32
    sums = gpu.tile[wide](M, N)
    stage = 0
    for k in range(ceildiv(a.dim(1), K)):
        group.wait(pending=STAGES - 2)  # the copies of this stage are done, those of the next one are under way
        gpu.barrier()
        group = fetch(k + STAGES - 1, select(stage == 0, STAGES - 1, stage - 1))
        sums = gpu.dot(left[stage], right[stage], sums)
        stage = select(stage == STAGES - 1, 0, stage + 1)
    group.wait()
    sums = max(sums + gpu.load(bias.tile(0, column, (1, N)), wide), 0.0)
    sums.cast(out.dtype).store(out.tile(row, column, (M, N)))


@register("tiled_products")
def tiled_products(
    out: OutputTensor[T, "m n"],
    a: InputTensor[T, "m k"],
    b: InputTensor[T, "k n"],
    bias: InputTensor[T, "1 n"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 64,
    K: int = 32,
    threads: int = 128,
) -> None:
    """relu(a @ b + bias), a tile of M x N elements in each block of threads."""
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(product_block, out, a, b, bias, grid=grid, block=threads, parameters={"M": M, "N": N, "K": K})
