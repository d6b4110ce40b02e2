"""Kernels that do with memory what they must not, next to the same ones done right."""

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    Int,
    MutableInputTensor,
    OutputTensor,
    atomic,
    float32,
    gpu,
    int4,
    int32,
    register,
    stack,
)

OUT = OutputTensor[int32, "n"]
IN = InputTensor[int32, "n"]


def ring(out, x, first, second):
    """Each thread takes what its neighbour wrote; a barrier on either side."""
    t = gpu.thread_idx.x
    n = gpu.block_dim.x
    out[t] = x[t]
    if first:
        gpu.barrier()
    v = out[(t + 1) % n]
    if second:
        gpu.barrier()
    out[t] = v


@register("wrong::ring")
def ring_op(out: OUT, x: IN, ctx: DeviceContext, *, first: int = 1, second: int = 1):
    ctx.launch(ring, out, x, first == 1, second == 1, grid=1, block=64)


def rounds(out, x, count):
    t = gpu.thread_idx.x
    for k in range(count):
        out[t] = x[t] + int32(k)
        gpu.barrier()
        v = out[(t + 1) % 256]
        gpu.barrier()
        out[t] = v


@register("wrong::rounds")
def rounds_op(out: OUT, x: IN, ctx: DeviceContext, *, count: int = 10):
    ctx.launch(rounds, out, x, count, grid=1, block=256)


def one_place(out, x, by_block):
    b = gpu.block_idx.x if by_block else Int(0)
    out[b * gpu.block_dim.x + gpu.thread_idx.x] = x[gpu.global_idx.x]


@register("wrong::one_place")
def one_place_op(out: OUT, x: IN, ctx: DeviceContext, *, by_block: int = 1):
    ctx.launch(one_place, out, x, by_block == 1, grid=2, block=32)


def beyond(out, x, by):
    t = gpu.thread_idx.x
    out.pointer().store(x[t], t + by)


@register("wrong::beyond")
def beyond_op(out: OUT, x: IN, ctx: DeviceContext, *, by: int = 0):
    ctx.launch(beyond, out, x, by, grid=1, block=64)


def early(out, x, how: int):
    t = gpu.thread_idx.x
    v = out[t]
    if how == 1:
        out[t] = v + x[t]  # stored
    if how == 2 and v > 0:  # decided by
        out[t] = 3
    if how == 3:
        out[t] = x[Int(v) % 64]  # an address
    if how == 4:
        atomic.add(out, t, 1)  # a use by itself
    if how == 5:
        out[t] = gpu.warp.shuffle_xor(v, 1)  # given to another thread
    if how == 0:
        w = v * 2 + 1
        out[t] = w if x[t] < 0 else x[t]  # computed with, and not chosen


@register("wrong::early")
def early_op(out: OUT, x: IN, ctx: DeviceContext, *, how: int = 0):
    ctx.launch(early, out, x, grid=1, block=64, parameters={"how": how})


def publish(out, x, write: str, read: str):
    """Thread 0 of a block writes, thread 0 of the next one reads once it sees the flag."""
    if gpu.thread_idx.x == 0:
        if gpu.block_idx.x == 0:
            out[1] = x[1]
            atomic.store(out, 0, 1, ordering=write)
        else:
            if atomic.load(out, 0, ordering=read) == 1:
                out[2] = out[1]


@register("wrong::publish")
def publish_op(out: OUT, x: IN, ctx: DeviceContext, *, write: str = "release", read: str = "acquire"):
    ctx.launch(publish, out, x, grid=2, block=32, parameters={"write": write, "read": read})


def message(out, x, before: str, after: str, fences: str, scope: str, by: int):
    """Thread `by` takes what thread 0 leaves; where fences are named, they do what the flag does not."""
    i = gpu.global_idx.x
    if i == 0:
        out[1] = x[1]
        if fences != "":
            gpu.fence("release", fences)
        atomic.store(out, 0, 1, ordering=before, scope=scope)
    if i == by and atomic.load(out, 0, ordering=after, scope=scope) == 1:
        if fences != "":
            gpu.fence("acquire", fences)
        out[2] = out[1]


@register("wrong::message")
def message_op(
    out: OUT,
    x: IN,
    ctx: DeviceContext,
    *,
    before: str = "relaxed",
    after: str = "relaxed",
    fences: str = "",
    scope: str = "device",
    by: int = 32,
):
    ctx.launch(
        message, out, x, grid=2, block=32,
        parameters={"before": before, "after": after, "fences": fences, "scope": scope, "by": by},
    )  # fmt: skip


def warp_message(out, x, syncs: int):
    """Lane 0 publishes to another block what its whole warp has written."""
    t = gpu.thread_idx.x
    if gpu.block_idx.x == 0:
        out[64 + t] = x[t]
        if syncs == 1:
            gpu.warp.sync()
        if t == 0:
            gpu.fence("release", "device")
            atomic.add(out, 0, 1)
    elif t == 0 and atomic.load(out, 0) > 0:
        gpu.fence("acq_rel", "device")
        out[1] = out[64 + 7]


@register("wrong::warp_message")
def warp_message_op(out: OUT, x: IN, ctx: DeviceContext, *, syncs: int = 1):
    ctx.launch(warp_message, out, x, grid=2, block=32, parameters={"syncs": syncs})


def counts(out, first: str, second: str, reads: int):
    """Two blocks count in one place."""
    if gpu.block_idx.x == 0:
        if reads == 1:
            out[gpu.thread_idx.x + 1] = atomic.load(out, 0, scope=first)
        else:
            atomic.add(out, 0, 1, scope=first)
    else:
        atomic.add(out, 0, 1, scope=second)


@register("wrong::counts")
def counts_op(
    out: OUT, x: IN, ctx: DeviceContext, *, first: str = "device", second: str = "device", reads: int = 0, grid: int = 2
):
    ctx.launch(counts, out, grid=grid, block=32, parameters={"first": first, "second": second, "reads": reads})


def last_block(out, x, ordering: str, waits: int):
    """The block that comes last adds what all blocks wrote."""
    t = gpu.thread_idx.x
    b = gpu.block_idx.x
    out[8 + b * 32 + t] = x[t]
    if waits == 1:
        gpu.barrier()
    if t == 0:
        if b == 0:
            atomic.store(out, 0, 1, ordering=ordering)
        else:
            if atomic.add(out, 0, 1, ordering=ordering) == 1:
                total = int32(0)
                for k in range(32):
                    total += out[8 + k]
                out[1] = total


@register("wrong::last_block")
def last_block_op(out: OUT, x: IN, ctx: DeviceContext, *, ordering: str = "seq_cst", waits: int = 1):
    ctx.launch(last_block, out, x, grid=2, block=32, parameters={"ordering": ordering, "waits": waits})


def handed_on(out, x, waits: int):
    """What thread 0 acquired, its block has behind a barrier."""
    t = gpu.thread_idx.x
    if gpu.block_idx.x == 0:
        out[64 + t] = x[t]
        gpu.barrier()
        if t == 0:
            atomic.store(out, 0, 1, ordering="release")
    else:
        if t == 0:
            atomic.load(out, 0, ordering="acquire")
        if waits == 1:
            gpu.barrier()
        out[t + 1] = out[64 + t]


@register("wrong::handed_on")
def handed_on_op(out: OUT, x: IN, ctx: DeviceContext, *, waits: int = 1):
    ctx.launch(handed_on, out, x, grid=2, block=32, parameters={"waits": waits})


def counted(out, x, atomically: int):
    t = gpu.thread_idx.x
    if t == 0:
        out[0] = 0
    gpu.barrier()
    if atomically == 1:
        atomic.add(out, 0, x[t])
    else:
        out[0] = out[0] + x[t]
    gpu.barrier()
    if t == 0:
        out[1] = out[0]


@register("wrong::counted")
def counted_op(out: OUT, x: IN, ctx: DeviceContext, *, atomically: int = 1):
    ctx.launch(counted, out, x, grid=1, block=64, parameters={"atomically": atomically})


def copied(out, x, waits: str):
    """Each thread reads what its neighbour copied."""
    t = gpu.thread_idx.x
    rows = gpu.shared[int32](64, 4)
    token = gpu.copy_async(rows[t, :], x[4 * t : 4 * t + 4])
    if waits == "first":
        token.wait()
    gpu.barrier()
    v = rows[(t + 1) % 64, 0] if waits != "own" else rows[t, 0]
    out[t] = v
    if waits != "first":
        token.wait()


@register("wrong::copied")
def copied_op(out: OUT, x: IN, ctx: DeviceContext, *, waits: str = "first"):
    ctx.launch(copied, out, x, grid=1, block=64, parameters={"waits": waits})


def masked(out, x, mask: int):
    """Vectors under a mask: only what the mask names is touched."""
    t = gpu.thread_idx.x
    if mask == 1:
        out.store(x.load(4 * t, width=4), 4 * t)
    else:
        out.store(x.load(4 * t, width=4), 2 * t)


@register("wrong::masked")
def masked_op(out: OUT, x: IN, ctx: DeviceContext, *, mask: int = 1):
    ctx.launch(masked, out, x, grid=1, block=32, parameters={"mask": mask})


def flagged(out, x, by: int):
    """One thread takes another's element, or fails, when it finds a flag that says nothing of memory."""
    seen = gpu.shared[int32](1)
    t, i = gpu.thread_idx.x, gpu.global_idx.x
    out[i] = x[i]
    if t == 0:
        seen[0] = 0
    gpu.barrier()
    for _ in range(3):
        if t == 64:
            out[i] = x[i] + 1
            atomic.add(seen, 0, 1, ordering="relaxed")
        gpu.warp.sync()
    if t == 0 and by > 0 and atomic.load(seen, 0, ordering="relaxed") == by:
        out[i + 64] = x[i]
    assert by > 0 or t != 0 or atomic.load(seen, 0, ordering="relaxed") == 0, "the flag is up"
    if t == 0:
        print("done")


@register("wrong::flagged")
def flagged_op(out: OUT, x: IN, ctx: DeviceContext, *, by: int = 1):
    ctx.launch(flagged, out, x, by, grid=x.dim(0) // 128, block=128)


def relayed(state: MutableInputTensor[int32, "n"]):
    """The first block takes an element of the second one's that has gone before it, and raised the flag."""
    b, n = gpu.block_idx.x, state.dim(0)
    gpu.barrier()
    if gpu.thread_idx.x == 0:
        if b == 1:
            state[1] = state[1] + 1
            atomic.store(state, n - 1, 1, ordering="relaxed")
        if b == 0 and atomic.load(state, n - 1, ordering="relaxed") == 1:
            state[1] = 0


@register("wrong::relayed")
def relayed_op(state: MutableInputTensor[int32, "n"], ctx: DeviceContext):
    ctx.launch(relayed, state, grid=4, block=32)


def awaited(out, x):
    """A thread takes another's element, when it finds a flag; else it works for long."""
    up = gpu.shared[int32](1)
    t = gpu.thread_idx.x
    out[t] = x[t]
    if t == 0:
        up[0] = 0
    gpu.barrier()
    if t == 64:
        out[t] = x[t] + 1
        atomic.add(up, 0, 1, ordering="relaxed")
    if t == 0:
        if atomic.load(up, 0, ordering="relaxed") == 0:
            total = int32(0)
            for k in range(1 << 22):
                total += x[k % 256]
            out[t] = total
        else:
            out[t + 64] = x[0]


@register("wrong::awaited")
def awaited_op(out: OUT, x: IN, ctx: DeviceContext):
    ctx.launch(awaited, out, x, grid=1, block=128)


def stacked(out, x, last: int, first: int, rounds: int, zeroed: bool):
    """A thread's own storage: filled from `first` on, summed up to `last`."""
    t = gpu.thread_idx.x
    own = stack[int32](8, zeroed=zeroed)
    for k in range(first, 8):
        own[k] = x[t + k]
    total = int32(0)
    view = own.pointer()
    for k in range(rounds):
        total += view.load(Int(x[t]) * 0 + k + last - 7)
    out[t] = total


@register("wrong::stacked")
def stacked_op(out: OUT, x: IN, ctx: DeviceContext, *, last: int = 7, first: int = 0, rounds: int = 8, zero: int = 0):
    ctx.launch(stacked, out, x, last, first, rounds, zero == 1, grid=1, block=64)


def halves(out, x, skips: int):
    """Elements of half a byte in shared memory: thread t writes its own, and reads its neighbour's."""
    t = gpu.thread_idx.x
    tile = gpu.shared[int4](64)
    if t != skips:
        tile[t] = x[t].cast(int4)
    gpu.barrier()
    out[t] = tile[t ^ 1].cast(int32)


@register("wrong::halves")
def halves_op(out: OUT, x: IN, ctx: DeviceContext, *, skips: int = -1):
    ctx.launch(halves, out, x, skips, grid=1, block=64)


def promised(out, x, scope: str, by: int, rounds: int):
    t = gpu.thread_idx.x
    total = int32(0)
    for r in range(rounds):
        k = t
        while k >= 0:  # threads make other numbers of rounds
            total += gpu.uniform(int32(r), scope=scope)
            k -= 32
    if gpu.uniform(float32(t // by) * 0.5, scope=scope) > 0.25:
        total += 1
    out[gpu.global_idx.x] = total


@register("wrong::promised")
def promised_op(out: OUT, x: IN, ctx: DeviceContext, *, scope: str = "warp", by: int = 32, rounds: int = 2):
    ctx.launch(promised, out, x, scope, by, rounds, grid=2, block=64)


def parting(out, x, by: int):
    t = gpu.thread_idx.x
    if t // by % 2 == 0:
        out[t] = x[t]
    for k in range(t // by):
        out[t] = int32(k)
    n = t // by
    while n > 0:
        n -= 1
    out[t] = int32(n)


@register("wrong::parting")
def parting_op(out: OUT, x: IN, ctx: DeviceContext, *, by: int = 32):
    ctx.launch(parting, out, x, by, grid=1, block=64)


def neighbours(out, x, first: int, last: int, away: int):
    """Each block reads what the next one of its cluster wrote; `first` and `last` say how they wait for each other."""
    t = gpu.thread_idx.x
    kept = gpu.shared[int32](32)
    kept[t] = x[gpu.global_idx.x]
    if first == 2:
        gpu.cluster.sync()
    elif first == 1:
        gpu.barrier()
    v = gpu.cluster.peer(kept, (gpu.block_in_cluster.x + 1) % gpu.cluster_dim.x + away)[31 - t]
    if last == 1:
        gpu.cluster.sync()
    out[gpu.global_idx.x] = v


@register("wrong::neighbours")
def neighbours_op(out: OUT, x: IN, ctx: DeviceContext, *, first: int = 2, last: int = 1, away: int = 0):
    ctx.launch(neighbours, out, x, first, last, away, grid=4, block=32, cluster=2)


def waiting(out, x):
    """The blocks of a cluster that a promise lets part: one waits, and one has ended."""
    if gpu.uniform(x[gpu.block_in_cluster.x] > 0, scope="cluster"):
        gpu.cluster.sync()
    out[gpu.global_idx.x] = x[gpu.global_idx.x]


@register("wrong::waiting")
def waiting_op(out: OUT, x: IN, ctx: DeviceContext):
    ctx.launch(waiting, out, x, grid=2, block=32, cluster=2)
