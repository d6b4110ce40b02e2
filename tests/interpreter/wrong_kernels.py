"""Kernels that go wrong in ways that only the interpreter sees."""

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    float32,
    foreach,
    gpu,
    int64,
    parallel_for,
    register,
    stack,
    store,
)


def shifted(x, i, by):
    return x[i + by]


@register("reads_outside")
def reads_outside(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, by: int = 1):
    foreach(out, lambda i: shifted(x, i[0], by))


@register("writes_outside")
def writes_outside(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    for i in range(x.dim(0) + 1):
        out[i] = x[0]


@register("wide_outside")
def wide_outside(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    n = x.dim(0)
    for i in range(0, n, 4):
        out.store(x.load(i, width=4), i)


@register("reads_early")
def reads_early(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    out[0, 0] = x[0, 0]
    out[0, 1] = out[1, 1]


@register("reads_stack_early")
def reads_stack_early(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    rows = stack[float32](4, zeroed=False)
    rows[0] = x[0]
    out[0] = rows[x.dim(0) // 2]


@register("depends_on_order")
def depends_on_order(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):
    out[0] = x[0]
    parallel_for(x.dim(0), lambda i: store(out, min(x[i], 0), out[0] * 2 + x[i]))
    for i in range(1, x.dim(0)):
        out[i] = out[0]


def turn(out, x):
    """Each thread takes what another one wrote; a barrier on either side."""
    i = gpu.thread_idx.x
    out[i] = x[i] + 1
    gpu.barrier()
    other = out[3 - i]
    gpu.barrier()
    out[i] = other


def parting(out, x):
    i = gpu.thread_idx.x
    if gpu.uniform(i < 2, scope="block"):  # it is not
        gpu.barrier()
    out[i] = x[i]


@register("turns")
def turns(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(turn, out, x, grid=1, block=4)


@register("parts")
def parts(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(parting, out, x, grid=1, block=4)
