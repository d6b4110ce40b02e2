"""Barriers of whole blocks, of some of their warps and of one warp; fences."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, atomic, gpu, int32, register


def hand_over_thread(out, x):
    """One half of a block of 4 warps works on what the other has left, by two barriers of their own."""
    kept, t = gpu.shared[int32](128), gpu.thread_idx.x
    if gpu.warp_size == 32:
        if gpu.warp_idx < 2:
            kept[t] = x[t] * 2
            gpu.barrier(id=1, threads=64)
            kept[64 + t] = kept[63 - t] + 1
        else:
            gpu.barrier(id=2, threads=64)
    else:
        if t < 64:
            kept[t] = x[t] * 2
            gpu.barrier(id=1, threads=64)
            kept[64 + t] = kept[63 - t] + 1
    gpu.barrier(id=5)
    out[t] = kept[t] if t < 64 else kept[t] * 3


@register("barriers::hand_over")
def hand_over(out: OutputTensor[int32, "128"], x: InputTensor[int32, "128"], ctx: DeviceContext) -> None:
    ctx.launch(hand_over_thread, out, x, grid=1, block=128)


def turn_thread(out, x):
    """Within each warp what one lane stores another reads."""
    kept, t = gpu.shared[int32](96), gpu.thread_idx.x
    for turn in range(3):
        kept[t] = x[t] if turn == 0 else kept[t] + turn.cast(int32)
        gpu.warp.sync()
        partner = t - gpu.lane_idx + (gpu.lane_idx ^ 1)
        got = kept[partner]
        gpu.warp.sync()
        kept[t] = got * 2
    out[t] = kept[t]


@register("barriers::turns")
def turns(out: OutputTensor[int32, "96"], x: InputTensor[int32, "96"], ctx: DeviceContext) -> None:
    ctx.launch(turn_thread, out, x, grid=1, block=96)


def last_thread(out, counter, parts, x):
    """The block that comes last adds up what all have left: a fence in front of the count, and one behind it."""
    last, t = gpu.shared[int32](1), gpu.thread_idx.x
    if t == 0:
        total = int32(0)
        for k in range(gpu.block_idx.x * 8, gpu.block_idx.x * 8 + 8):
            total += x[k]
        parts[gpu.block_idx.x] = total
        gpu.fence("release", scope="device")
        before = atomic.add(counter, 0, 1, scope="device")
        last[0] = 1 if before == 3 else 0
        gpu.fence("acquire", "device")
    gpu.barrier()
    if last[0] == 1 and t == 0:
        for k in range(4):
            out[k] = parts[k] * 10
        out[4] = parts[0] + parts[1] + parts[2] + parts[3]


def last_in_order_thread(out, counter, parts, x):
    """The same, where the count says itself what it publishes and learns."""
    if gpu.thread_idx.x == 0:
        b = gpu.block_idx.x
        total = int32(0)
        for k in range(b * 8, b * 8 + 8):
            total += x[k]
        parts[b] = total
        before = atomic.add(counter, 0, 1, ordering="acq_rel", scope="device")
        if before == 3:
            total = int32(0)
            for k in range(4):
                out[k] = parts[k] * 10
                total += parts[k]
            out[4] = total


def clear_thread(counter):
    counter[0] = 0


@register("barriers::last_block")
def last_block(
    out: OutputTensor[int32, "5"],
    counter: OutputTensor[int32, "1"],
    parts: OutputTensor[int32, "4"],
    x: InputTensor[int32, "32"],
    ctx: DeviceContext,
) -> None:
    ctx.launch(clear_thread, counter, grid=1, block=1)
    ctx.launch(last_thread, out, counter, parts, x, grid=4, block=32)


@register("barriers::last_block_in_order")
def last_block_in_order(
    out: OutputTensor[int32, "5"],
    counter: OutputTensor[int32, "1"],
    parts: OutputTensor[int32, "4"],
    x: InputTensor[int32, "32"],
    ctx: DeviceContext,
) -> None:
    ctx.launch(clear_thread, counter, grid=1, block=1)
    ctx.launch(last_in_order_thread, out, counter, parts, x, grid=4, block=32)


@register("barriers::limited")
def limited(out: OutputTensor[int32, "96"], x: InputTensor[int32, "96"], ctx: DeviceContext) -> None:
    """The same turns, by a kernel of few registers."""
    ctx.launch(turn_thread, out, x, grid=1, block=96, max_registers=32, min_blocks=2)


def producer_thread(out, x):
    """Warp 0 fills two stages in turn, which warp 1 reads: a barrier of its own says of each that it is filled."""
    kept, lane, size = gpu.shared[int32](2, 64), gpu.lane_idx, gpu.warp_size
    stage = 0
    if gpu.warp_idx == 0:
        for k in range(x.dim(0) // size):
            kept[stage, lane] = x[k * size + lane] * 2
            gpu.barrier(id=1 + stage, threads=2 * gpu.warp_size)
            stage = 1 - stage
    else:
        for k in range(x.dim(0) // size):
            gpu.barrier(id=1 + stage, threads=2 * gpu.warp_size)
            out[k * size + lane] = kept[stage, size - 1 - lane] + 1
            stage ^= 1


@register("barriers::producer")
def producer(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"], ctx: DeviceContext) -> None:
    ctx.launch(producer_thread, out, x, grid=1, block=2 * gpu.warp_size)
