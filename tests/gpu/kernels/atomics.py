"""Atomic operations of every kind, ordering and scope, on memory of the device and of the block."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Integral, Numeric, OutputTensor, atomic, gpu, register

T = TypeVar("T", bound=Numeric)
B = TypeVar("B", bound=Integral)


def combine_thread(out, old, x):
    """Sums, smallest, largest and last numbers; a slot of its own each time, so that the old values are known."""
    kept, t = gpu.shared[x.dtype](6, 32), gpu.thread_idx.x
    for k in range(6):
        kept[k, t] = x[t]
        out[k, t] = x[t]
    gpu.barrier()
    v = x[31 - t]
    old[0, t] = atomic.add(kept, (0, t), v, scope="block")
    old[1, t] = atomic.sub(kept, (1, t), v, ordering="acquire", scope="block")
    old[2, t] = atomic.min(kept, (2, t), v, ordering="release", scope="cluster")
    old[3, t] = atomic.max(kept, (3, t), v, ordering="acq_rel", scope="device")
    old[4, t] = atomic.exchange(kept, (4, t), v, ordering="seq_cst", scope="system")
    old[5, t] = atomic.compare_exchange(kept, (5, t), x[t], v, scope="block")
    atomic.add(out, (0, t), v, scope="cluster")
    atomic.sub(out, (1, t), v, ordering="seq_cst", scope="device")
    atomic.min(out, (2, t), v, scope="system")
    atomic.max(out, (3, t), v, ordering="acquire", scope="block")
    atomic.exchange(out, (4, t), v, ordering="release")
    atomic.compare_exchange(out, (5, t), v + 1, v, ordering="acq_rel", scope="system")
    for k in range(6):
        atomic.add(out, (k, t), atomic.load(kept, (k, t), ordering="acquire", scope="block"))
    atomic.store(kept, (0, t), v, ordering="release", scope="block")
    old[6, t] = atomic.load(kept, (0, t))


@register("atomics::combine")
def combine(
    out: OutputTensor[T, "6 32"], old: OutputTensor[T, "7 32"], x: InputTensor[T, "32"], ctx: DeviceContext
) -> None:
    ctx.launch(combine_thread, out, old, x, grid=1, block=32)


def bits_thread(out, x):
    """Threads of two blocks use a few elements; the order does not matter."""
    kept, t = gpu.shared[x.dtype](3), gpu.thread_idx.x
    if t == 0:
        kept[0] = ~(x[0] ^ x[0])
        kept[1] = x[0] ^ x[0]
        kept[2] = x[0] ^ x[0]
    gpu.barrier()
    v = x[gpu.global_idx.x]
    atomic.and_(kept, 0, v, scope="block")
    atomic.or_(kept, 1, v, scope="block")
    atomic.xor(kept, 2, v, scope="block")
    gpu.barrier()
    if t < 3:
        out[gpu.block_idx.x, t] = kept[t]


@register("atomics::bits")
def bits(out: OutputTensor[B, "2 3"], x: InputTensor[B, "128"], ctx: DeviceContext) -> None:
    ctx.launch(bits_thread, out, x, grid=2, block=64)


def sum_thread(out, x):
    atomic.add(out, gpu.thread_idx.x % 4, x[gpu.global_idx.x])


def clear_thread(out):
    out[gpu.thread_idx.x] = 0


@register("atomics::sums")
def sums(out: OutputTensor[T, "4"], x: InputTensor[T, "128"], ctx: DeviceContext) -> None:
    ctx.launch(clear_thread, out, grid=1, block=4)
    ctx.launch(sum_thread, out, x, grid=2, block=64)
