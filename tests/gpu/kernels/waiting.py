"""Programs whose threads wait for each other through memory: barriers of grids, look-back, locks, queues, pipelines.

Each op has `x` of as many elements as threads, and an output of the same size. `state` is memory that is 0 at first.
"""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, Int, OutputTensor, atomic, gpu, int32, register
from einkorn.stdlib import Sum

IN, OUT = InputTensor[int32, "n"], OutputTensor[int32, "n"]
CELLS = 256


def zero(state):
    state[gpu.global_idx.x] = 0


def launch(ctx, thread, out, x, block, cluster=1):
    """The kernel on a grid of whole blocks, with its state."""
    state = gpu.scratch[int32](CELLS)
    ctx.launch(zero, state, grid=CELLS // 64, block=64)
    ctx.launch(thread, out, x, state, grid=x.dim(0) // block, block=block, cluster=cluster)


# *** barriers of a grid ***


def counted_thread(out, x, state):
    """Each block counts itself, and waits until all have."""
    i, n = gpu.global_idx.x, x.dim(0)
    out[i] = x[i]
    gpu.barrier()
    if gpu.thread_idx.x == 0:
        atomic.add(state, 0, 1, ordering="release")
        while atomic.load(state, 0, ordering="acquire") < int32(gpu.grid_dim.x):
            pass
    gpu.barrier()
    v = out[n - 1 - i]
    counted_again(state, 1)
    out[i] = v


def counted_again(state, at):
    gpu.barrier()
    if gpu.thread_idx.x == 0:
        atomic.add(state, at, 1, ordering="acq_rel")
        while True:
            if atomic.load(state, at, ordering="acquire") == int32(gpu.grid_dim.x):
                break
    gpu.barrier()


@register("waiting::counted")
def counted(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, counted_thread, out, x, 16)


def generations_thread(out, x, state):
    """A barrier that is used again: the last block to come begins the next generation."""
    i, n = gpu.global_idx.x, x.dim(0)
    out[i] = x[i]
    for _ in range(3):
        next_generation(state)
        v = out[(i + 16) % n]
        next_generation(state)
        out[i] = v


def next_generation(state):
    gpu.barrier()
    if gpu.thread_idx.x == 0:
        now = atomic.load(state, 1, ordering="relaxed")
        if atomic.add(state, 0, 1, ordering="acq_rel") == int32(gpu.grid_dim.x) - 1:
            atomic.store(state, 0, 0, ordering="relaxed")
            atomic.add(state, 1, 1, ordering="release")
        else:
            while atomic.load(state, 1, ordering="acquire") == now:
                pass
    gpu.barrier()


@register("waiting::generations")
def generations(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, generations_thread, out, x, 16)


def led_thread(out, x, state):
    """Each block raises a flag of its own; the first block waits for all, and answers."""
    i, n, b = gpu.global_idx.x, x.dim(0), gpu.block_idx.x
    out[i] = x[i]
    gpu.barrier()
    if b == 0:
        if gpu.thread_idx.x > 0 and gpu.thread_idx.x < gpu.grid_dim.x:
            while atomic.load(state, gpu.thread_idx.x, ordering="acquire") == 0:
                pass
        gpu.barrier()
        if gpu.thread_idx.x == 0:
            atomic.store(state, 0, 1, ordering="release")
    else:
        if gpu.thread_idx.x == 0:
            atomic.store(state, b, 1, ordering="release")
            while atomic.load(state, 0, ordering="acquire") == 0:
                pass
    gpu.barrier()
    v = out[n - 1 - i]
    counted_again(state, 200)
    out[i] = v


@register("waiting::led")
def led(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, led_thread, out, x, 16)


# *** scans over blocks ***


def chained_thread(out, x, state):
    """Each block waits for the sum of all before it."""
    t, b = gpu.thread_idx.x, gpu.block_idx.x
    kept = gpu.shared[int32](1)
    own = int32(gpu.block.scan(x[gpu.global_idx.x], Sum))
    if t == gpu.block_dim.x - 1:
        before = int32(0)
        if b > 0:
            while atomic.load(state, b, ordering="acquire") == 0:
                pass
            before = state[64 + b]
        kept[0] = before
        state[64 + b + 1] = before + own
        atomic.store(state, b + 1, 1, ordering="release")
    gpu.barrier()
    out[gpu.global_idx.x] = own + kept[0]


@register("waiting::chained")
def chained(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, chained_thread, out, x, 16)


def look_back_thread(out, x, state):
    """Decoupled look-back: blocks in the order of a ticket publish sums of their own (1), then of all so far (2)."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](2)
    if t == 0:
        kept[0] = atomic.add(state, 0, 1)
    gpu.barrier()
    b = Int(kept[0])
    i = b * gpu.block_dim.x + t
    own = int32(gpu.block.scan(x[i], Sum))
    if t == gpu.block_dim.x - 1:
        state[64 + b] = own
        atomic.store(state, 1 + b, 1, ordering="release")
        kept[1] = look_back(state, b)
        state[128 + b] = kept[1] + own
        atomic.store(state, 1 + b, 2, ordering="release")
    gpu.barrier()
    out[i] = own + kept[1]


def look_back(state, b):
    total, at, going = int32(0), b - 1, b > 0
    while going:
        flag = atomic.load(state, 1 + at, ordering="acquire")
        if flag == 2:
            total += state[128 + at]
            going = False
        elif flag == 1:
            total += state[64 + at]
            at -= 1
            going = at >= 0
    return total


@register("waiting::look_back")
def look_back_op(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, look_back_thread, out, x, 16)


# *** locks ***


def locked_thread(out, x, state):
    """Blocks add to a sum under a lock, which is taken by an exchange."""
    if gpu.thread_idx.x == 0:
        while atomic.exchange(state, 0, 1, ordering="acquire") != 0:
            pass
        state[1] = state[1] + x[gpu.global_idx.x]
        state[2] = state[2] + 1
        atomic.store(state, 0, 0, ordering="release")
    counted_again(state, 200)
    out[gpu.global_idx.x] = state[1] + state[2]


@register("waiting::locked")
def locked(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, locked_thread, out, x, 16)


def lanes_locked_thread(out, x, state):
    """The same for every thread, by comparing and exchanging."""
    while atomic.compare_exchange(state, 0, 0, 1, ordering="acq_rel") != 0:
        pass
    state[1] = state[1] + x[gpu.global_idx.x]
    atomic.store(state, 0, 0, ordering="release")
    counted_again(state, 200)
    out[gpu.global_idx.x] = state[1]


@register("waiting::lanes_locked")
def lanes_locked(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, lanes_locked_thread, out, x, 16)


def tickets_thread(out, x, state):
    """A lock that serves in the order of its tickets."""
    i = gpu.global_idx.x
    if gpu.thread_idx.x == 0:
        ticket = atomic.add(state, 0, 1, ordering="relaxed")
        while atomic.load(state, 1, ordering="acquire") != ticket:
            pass
        state[2] = state[2] + x[i]
        atomic.store(state, 1, ticket + 1, ordering="release")
    counted_again(state, 200)
    out[i] = state[2]


@register("waiting::tickets")
def tickets(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, tickets_thread, out, x, 16)


def semaphore_thread(out, x, state):
    """At most two blocks at once; each uses one of two places, which it takes by its bit."""
    i = gpu.global_idx.x
    if gpu.thread_idx.x == 0:
        while atomic.add(state, 0, 1, ordering="acquire") >= 2:
            atomic.sub(state, 0, 1, ordering="relaxed")
        place = 1
        if atomic.exchange(state, 1, 1, ordering="acquire") != 0:
            while atomic.exchange(state, 2, 1, ordering="acquire") != 0:
                pass
            place = 2
        state[8 + place] = state[8 + place] + x[i]
        atomic.store(state, place, 0, ordering="release")
        atomic.sub(state, 0, 1, ordering="release")
    counted_again(state, 200)
    out[i] = state[9] + state[10]


@register("waiting::semaphore")
def semaphore(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, semaphore_thread, out, x, 16)


def versions_thread(out, x, state):
    """A sequence lock: one block writes two numbers, others read both of one version."""
    i = gpu.global_idx.x
    if gpu.block_idx.x == 0:
        if gpu.thread_idx.x == 0:
            atomic.add(state, 0, 1, ordering="acq_rel")
            gpu.fence(scope="device")
            atomic.store(state, 1, x[0], ordering="relaxed")
            atomic.store(state, 2, x[0] + 1, ordering="relaxed")
            atomic.add(state, 0, 1, ordering="release")
        out[i] = 1
    else:
        before, after, a, b = int32(0), int32(1), int32(0), int32(0)
        while before != after or before % 2 == 1 or before == 0:
            before = atomic.load(state, 0, ordering="acquire")
            a = atomic.load(state, 1, ordering="relaxed")
            b = atomic.load(state, 2, ordering="relaxed")
            gpu.fence(scope="device")
            after = atomic.load(state, 0, ordering="relaxed")
        out[i] = b - a


@register("waiting::versions")
def versions(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, versions_thread, out, x, 16)


# *** queues ***


def queue_thread(out, x, state):
    """Blocks take items until there are no more."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](1)
    items = int32(x.dim(0) // 16)
    going = True
    while going:
        if t == 0:
            kept[0] = atomic.add(state, 0, 1)
        gpu.barrier()
        item = gpu.uniform(kept[0], scope="block")
        gpu.barrier()
        going = item < items
        if going:
            out[Int(item) * 16 + t] = x[Int(item) * 16 + t] * 2


@register("waiting::queue")
def queue(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, queue_thread, out, x, 16)


def fed_thread(out, x, state):
    """The first block makes items, which the others wait for, each its own."""
    t, b = gpu.thread_idx.x, gpu.block_idx.x
    if b == 0:
        for item in range(1, gpu.grid_dim.x):
            if t == 0:
                state[64 + item] = x[16 * item] * 3
                atomic.store(state, item, 1, ordering="release")
        out[t] = 0
    else:
        kept = gpu.shared[int32](1)
        if t == 0:
            while atomic.load(state, b, ordering="acquire") == 0:
                pass
            kept[0] = state[64 + b]
        gpu.barrier()
        out[gpu.global_idx.x] = kept[0]


@register("waiting::fed")
def fed(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, fed_thread, out, x, 16)


def bounded_thread(out, x, state):
    """A queue of two places between two blocks: the writer waits for room, the reader for items."""
    t, b, n = gpu.thread_idx.x, gpu.block_idx.x, int32(8)
    if t == 0 and b == 0:
        for k in range(8):
            while int32(k) - atomic.load(state, 1, ordering="acquire") >= 2:
                pass
            state[8 + k % 2] = x[k]
            atomic.store(state, 0, int32(k) + 1, ordering="release")
    total = int32(0)
    if t == 0 and b == 1:
        for k in range(8):
            while atomic.load(state, 0, ordering="acquire") <= int32(k):
                pass
            total = total * 2 + state[8 + k % 2]
            atomic.store(state, 1, int32(k) + 1, ordering="release")
    out[gpu.global_idx.x] = total + n


@register("waiting::bounded")
def bounded(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, bounded_thread, out, x, 16)


# *** messages ***


def fenced_thread(out, x, state):
    """The orders are those of fences around relaxed operations."""
    i, b = gpu.global_idx.x, gpu.block_idx.x
    if gpu.thread_idx.x == 0:
        state[64 + b] = x[i]
        gpu.fence(ordering="release", scope="device")
        atomic.store(state, b, 1, ordering="relaxed")
        other = (b + 1) % gpu.grid_dim.x
        while atomic.load(state, other, ordering="relaxed") == 0:
            pass
        gpu.fence(ordering="acquire", scope="device")
        out[i] = state[64 + other]
    else:
        out[i] = 0


@register("waiting::fenced")
def fenced(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, fenced_thread, out, x, 16)


def token_thread(out, x, state):
    """A token goes twice through all blocks, which add to what it brings."""
    b, n = gpu.block_idx.x, gpu.grid_dim.x
    if gpu.thread_idx.x == 0:
        for lap in range(2):
            while atomic.load(state, 0, ordering="acquire") != int32(lap * n + b):
                pass
            state[1] = state[1] * 2 + x[gpu.global_idx.x]
            atomic.store(state, 0, int32(lap * n + b + 1), ordering="release")
        while atomic.load(state, 0, ordering="acquire") != int32(2 * n):
            pass
    gpu.barrier()
    out[gpu.global_idx.x] = state[1]


@register("waiting::token")
def token(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, token_thread, out, x, 16)


def wavefront_thread(out, x, state):
    """Block b computes its column row by row, each from that of the block before it."""
    t, b = gpu.thread_idx.x, gpu.block_idx.x
    if t == 0:
        for row in range(4):
            left = x[row]
            if b > 0:
                while atomic.load(state, b - 1, ordering="acquire") <= int32(row):
                    pass
                left = out[16 * (b - 1) + row]
            out[16 * b + row] = left + 1
            atomic.add(state, b, 1, ordering="release")
    if t >= 4:
        out[16 * b + t] = 0


@register("waiting::wavefront")
def wavefront(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, wavefront_thread, out, x, 16)


def split_thread(out, x, state):
    """Parts of a sum are left by all blocks but the first, which waits for each, and adds them up."""
    t, b, n = gpu.thread_idx.x, gpu.block_idx.x, gpu.grid_dim.x
    state[64 + 16 * b + t] = x[gpu.global_idx.x]
    gpu.barrier()
    if b > 0:
        if t == 0:
            atomic.store(state, b, 1, ordering="release")
        out[gpu.global_idx.x] = 0
    else:
        total = int32(0)
        for part in range(n):
            if part > 0:
                while atomic.load(state, part, ordering="acquire") == 0:
                    pass
            total += state[64 + 16 * part + t]
        out[t] = total


@register("waiting::split")
def split(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, split_thread, out, x, 16)


# *** warps of a block ***


def pair_thread(out, x, state):
    """One warp waits for what another one brings to shared memory."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](33)
    if t == 0:
        kept[32] = 0
    gpu.barrier()
    if t >= 32:
        kept[t - 32] = x[gpu.global_idx.x]
        gpu.warp.sync()
        if t == 32:
            atomic.store(kept, 32, 1, ordering="release", scope="block")
        out[gpu.global_idx.x] = 0
    else:
        while atomic.load(kept, 32, ordering="acquire", scope="block") == 0:
            pass
        out[gpu.global_idx.x] = kept[31 - t]


@register("waiting::pair")
def pair(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, pair_thread, out, x, 64)


def staged_thread(out, x, state):
    """A pipeline of two stages: a warp fills them, another one empties them, by counters of full and empty ones."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](64)
    counts = gpu.shared[int32](2)
    if t < 2:
        counts[t] = 0
    gpu.barrier()
    lane, first = t % 32, gpu.block_idx.x * 64
    total = int32(0)
    for k in range(4):
        at = 32 * (k % 2) + lane
        if t < 32:
            while int32(32 * (k - 1)) > atomic.load(counts, 1, ordering="acquire", scope="block"):
                pass
            kept[at] = x[first + lane] * int32(k + 1)
            atomic.add(counts, 0, 1, ordering="release", scope="block")
        else:
            while int32(32 * (k + 1)) > atomic.load(counts, 0, ordering="acquire", scope="block"):
                pass
            total += kept[32 * (k % 2) + 31 - lane]
            atomic.add(counts, 1, 1, ordering="release", scope="block")
    out[gpu.global_idx.x] = total


@register("waiting::staged")
def staged(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, staged_thread, out, x, 64)


def named_thread(out, x, state):
    """A pipeline by named barriers: 1 and 2 say that a stage is full, 3 and 4 that it is empty."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](64)
    lane, first = t % 32, gpu.block_idx.x * 64
    total = int32(0)
    for k in range(4):
        if t < 32:
            kept[32 * (k % 2) + lane] = x[first + lane] * int32(k + 1)
            gpu.barrier(id=1 + k % 2, threads=64)
            gpu.barrier(id=3 + k % 2, threads=64)
        else:
            gpu.barrier(id=1 + k % 2, threads=64)
            total += kept[32 * (k % 2) + 31 - lane]
            gpu.barrier(id=3 + k % 2, threads=64)
    out[gpu.global_idx.x] = total


@register("waiting::named")
def named(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, named_thread, out, x, 64)


def rally_thread(out, x, state):
    """Two warps take turns, by a number that each waits for."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](2)
    if t < 2:
        kept[t] = 0
    gpu.barrier()
    if t % 32 == 0:
        side = int32(t // 32)
        for k in range(5):
            while atomic.load(kept, 0, ordering="acquire", scope="block") != int32(2 * k) + side:
                pass
            kept[1] = kept[1] * 2 + side + 1
            atomic.store(kept, 0, int32(2 * k) + side + 1, ordering="release", scope="block")
    gpu.barrier()
    out[gpu.global_idx.x] = kept[1]


@register("waiting::rally")
def rally(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, rally_thread, out, x, 64)


# *** blocks of a cluster ***


def peers_thread(out, x, state):
    """Each block of a cluster hands a number to the next, through its shared memory."""
    t, rank, size = gpu.thread_idx.x, gpu.block_in_cluster.x, gpu.cluster_dim.x
    box = gpu.shared[int32](2)
    if t < 2:
        box[t] = 0
    gpu.cluster.sync()
    if t == 0:
        other = gpu.cluster.peer(box, (rank + 1) % size)
        other[1] = x[gpu.global_idx.x]
        atomic.store(other, 0, 1, ordering="release", scope="cluster")
        while atomic.load(box, 0, ordering="acquire", scope="cluster") == 0:
            pass
        out[gpu.global_idx.x] = box[1]
    else:
        out[gpu.global_idx.x] = 0
    gpu.cluster.sync()


@register("waiting::peers")
def peers(out: OUT, x: IN, ctx: DeviceContext) -> None:
    launch(ctx, peers_thread, out, x, 16, cluster=4)
