"""The k largest elements of each row and where they stand: a bitonic sort in the shared memory of a block.

The sorting network is Batcher's (K. E. Batcher, Sorting networks and their applications, 1968).
"""

from __future__ import annotations

from math import inf

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, int64, register, static_assert


def top_thread(values, indices, x, *, k: int, size: int):
    """A block a row; thread t looks after places 2t and 2t + 1, and pairs of places that lie `step` apart."""
    kept = gpu.shared[float32](size)
    places = gpu.shared[int64](size)
    row, t = gpu.block_idx.x, gpu.thread_idx.x
    for i in range(t, size, size // 2):
        kept[i] = float32(-inf)
        places[i] = x.dim(1)
        if i < x.dim(1):
            kept[i] = x[row, i]
            places[i] = i
    gpu.barrier()
    span = 2
    while span <= size:
        step = span // 2
        while step > 0:
            first = t // step * step * 2 + t % step
            second = first + step
            falling = first % (span * 2) < span
            ahead = kept[first] > kept[second] or (kept[first] == kept[second] and places[first] < places[second])
            if ahead != falling:
                larger, place = kept[second], places[second]
                kept[second], places[second] = kept[first], places[first]
                kept[first], places[first] = larger, place
            gpu.barrier()
            step = step // 2
        span = span * 2
    if t < k:
        values[row, t] = kept[t]
        indices[row, t] = places[t]


@register("gpu::top_k")
def top_k(
    values: OutputTensor[float32, "m k"],
    indices: OutputTensor[int64, "m k"],
    x: InputTensor[float32, "m n"],
    ctx: DeviceContext,
    *,
    k: int = 8,
    size: int = 1024,
) -> None:
    """The largest elements of each row, the first of equal ones first.

    Rows have `size` elements at most, a power of two; there are no NaNs.
    """
    static_assert(size & (size - 1) == 0 and k <= size // 2, "size= is a power of two, and k= at most half of it")
    assert x.dim(1) <= size, "rows are longer than size="
    ctx.launch(top_thread, values, indices, x, grid=x.dim(0), block=size // 2, parameters={"k": k, "size": size})
