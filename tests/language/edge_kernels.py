"""Corners of control flow where a compiler that inlines and flattens can go astray."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    ceildiv,
    float32,
    foreach,
    gpu,
    int8,
    int64,
    parallel_for,
    register,
    stack,
    store,
    uint64,
    unroll,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)


@register("condition_calls")
def condition_calls(out: OutputTensor[int64, "n 2"], x: InputTensor[int64, "n m"]) -> None:
    """Counts how often a condition is computed: not again after a `break`."""
    for i in range(x.dim(0)):
        calls = stack[int64](1)

        def positive(j):
            calls[0] += 1  # noqa: B023
            return x[i, j] > 0  # noqa: B023

        j = 0
        while positive(j):
            j += 1
            if j == x.dim(1):
                break
        out[i, 0] = j
        out[i, 1] = calls[0]


@register("long_chain")
def long_chain(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """The third operand is read only if the first comparison holds, and takes part in two."""
    foreach(out, lambda i: 1 if 0 < x[i] < x[x.dim(0) - 1 - i[0]] < 10 else 0)


@register("chain_calls")
def chain_calls(out: OutputTensor[int64, "n 2"], x: InputTensor[int64, "n"]) -> None:
    """Counts how many operands of `0 <= v < f()` are computed."""
    for i in range(x.dim(0)):
        calls = stack[int64](1)

        def limit():
            calls[0] += 1  # noqa: B023
            return 5

        inside = 0 <= x[i] < limit()
        out[i, 0] = 1 if inside else 0
        out[i, 1] = calls[0]


@register("return_in_unrolled")
def return_in_unrolled(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Returns without a value from an unrolled loop, under a run-time condition."""

    def mark(i):
        store(out, i, -1)
        for k in unroll(5):
            if x[i] == k:
                return
            store(out, i, k)

    for i in range(x.dim(0)):
        mark(i)


@register("value_from_unrolled")
def value_from_unrolled(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """The same with a value and `continue`: what is left of the loop goes on in one arm."""

    def value(i):
        total = 0
        for k in unroll(6):
            if x[i] % (k + 2) == 0:
                continue
            total += k + 1
        return total

    foreach(out, value)


@register("guards_without_value")
def guards_without_value(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    def one(i):
        if x[i] < 0:
            store(out, i, -1)
            return
        if x[i] > 10:
            if x[i] > 20:
                store(out, i, 20)
                return
            store(out, i, 10)
        else:
            store(out, i, x[i])
        store(out, i, out[i] * 2)

    parallel_for(x.dim(0), one)


def fill_guarded(out, x, n: Int):
    i = gpu.global_idx.x
    if i >= n:
        return
    total = 0
    for j in range(i + 1):
        total += x[j]
    out[i] = total


@register("guarded_grid")
def guarded_grid(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], ctx: DeviceContext) -> None:
    ctx.launch(fill_guarded, out, x, out.dim(0), grid=ceildiv(out.dim(0), 16), block=16)


def stride_over(out, x, n: Int):
    i = gpu.global_idx.x
    while i < n:
        out[i] = x[i] * 2
        i += gpu.grid_dim.x * gpu.block_dim.x


@register("grid_stride")
def grid_stride(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], ctx: DeviceContext) -> None:
    ctx.launch(stride_over, out, x, out.dim(0), grid=3, block=4)


@register("swaps")
def swaps(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]) -> None:
    """Reverses each row by swaps in place."""
    foreach(out, lambda i: x[i])
    for i in range(x.dim(0)):
        j = 0
        k = x.dim(1) - 1
        while j < k:
            out[i, j], out[i, k] = out[i, k], out[i, j]
            j, k = j + 1, k - 1


@register("open_conditionals")
def open_conditionals(out: OutputTensor[T, "4 n"], x: InputTensor[T, "n"]) -> None:
    """Conditionals of numbers alone take the type of what they are combined with."""
    for i in range(x.dim(0)):
        v = x[i]
        out[0, i] = v * (1.0 if v > 0 else -1.0)
        scale = 2 if v > 1 else 3
        out[1, i] = v * scale
        if v > 0:  # noqa: SIM108
            s = 0.1
        else:
            s = 0.2
        out[2, i] = s + v
        out[3, i] = (0.1 if v > 0 else 0.2) + (1 if v > 1 else 0) * v


@register("loop_variable")
def loop_variable(out: OutputTensor[int64, "n 2"], x: InputTensor[int64, "n"]) -> None:
    """A loop's variable may be assigned in its body; that does not change the count."""
    for i in range(x.dim(0)):
        rounds = 0
        j = -1
        for j in range(x[i]):
            j = j * 10
            rounds += 1
        out[i, 0] = rounds
        out[i, 1] = j


@register("negative_steps")
def negative_steps(out: OutputTensor[int64, "4"]) -> None:
    total = 0
    for k in unroll(5, 0, -2):
        total = total * 10 + k
    out[0] = total
    count = 0
    for k in range(3, 20, 7):
        count = count * 100 + k
    out[1] = count
    for k in (4, 2, 9):
        count += k
    out[2] = count
    out[3] = len(unroll(3, 10, 2)) * 10 + len((1, 2, 3)[::-1])


@register("deep_nest")
def deep_nest(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Breaks and continues on four levels."""

    def value(i):
        v = x[i]
        s = 0
        for a in range(4):
            if a == v % 5:
                continue
            b = 0
            while b < 5:
                b += 1
                for c in unroll(3):
                    if c == 1:
                        continue
                    for d in range(6):
                        if d > v:
                            break
                        if d == c:
                            continue
                        s += a * 1000 + b * 100 + c * 10 + d
                if s > 40000:
                    break
            if s > 80000:
                break
            s += 1
        return s

    foreach(out, value)


@register("print_types")
def print_types(
    out: OutputTensor[int64, "1"], a: InputTensor[uint64, "1"], b: InputTensor[int8, "1"], c: InputTensor[float32, "4"]
) -> None:
    print(a[0], b[0], c[0], c.load(0, width=4), a[0] > 5)
    print(f"{a[0]:x} {b[0]:+d} {c[1]:8.3f}|{c[0]:e} {(a[0], c[1])}")
    print("no newline", end="")
    print()
    out[0] = 1
