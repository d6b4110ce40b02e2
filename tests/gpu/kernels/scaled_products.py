"""Products of tiles with a scale for each 32 neighbours along the inner axis."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    ceildiv,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float32,
    gpu,
    register,
)

E = TypeVar("E", float8_e4m3fn, float8_e5m2)


def scaled_block(out, a, s, b, t, M: int, N: int, K: int):
    left = gpu.shared[a.dtype](M, K, layout="dot")
    right = gpu.shared[b.dtype](K, N, layout="dot")
    of_left = gpu.shared[float8_e8m0fnu](M, K // 32)
    of_right = gpu.shared[float8_e8m0fnu](K // 32, N)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    sums = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(1), K)):
        gpu.copy_async(left, a.tile(row, k, (M, K)))
        gpu.copy_async(right, b.tile(k, column, (K, N)))
        group = gpu.commit()
        for i in range(gpu.thread_idx.x, M * (K // 32), gpu.block_dim.x):
            r, c = i // (K // 32), i % (K // 32)
            inside = (row * M + r < s.dim(0)) & (k * (K // 32) + c < s.dim(1))
            of_left[r, c] = s[row * M + r, k * (K // 32) + c] if inside else float8_e8m0fnu(1.0)
        for i in range(gpu.thread_idx.x, (K // 32) * N, gpu.block_dim.x):
            r, c = i // N, i % N
            inside = (k * (K // 32) + r < t.dim(0)) & (column * N + c < t.dim(1))
            of_right[r, c] = t[k * (K // 32) + r, column * N + c] if inside else float8_e8m0fnu(1.0)
        group.wait()
        gpu.barrier()
        sums = gpu.dot(left, right, sums, scales=(of_left, of_right))
        gpu.barrier()
    sums.store(out.tile(row, column, (M, N)))


@register("scaled::product")
def product(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    s: InputTensor[float8_e8m0fnu, "m j"],
    b: InputTensor[E, "k n"],
    t: InputTensor[float8_e8m0fnu, "j n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 64,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(scaled_block, out, a, s, b, t, grid=grid, block=64, parameters={"M": M, "N": N, "K": K})
