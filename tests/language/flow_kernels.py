"""Loops, branches, functions: what a kernel author writes on an ordinary day, and where it gets intricate."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Float32,
    Floating,
    InputTensor,
    Int,
    Int32,
    Numeric,
    OutputTensor,
    bool8,
    float32,
    float64,
    foreach,
    int32,
    int64,
    register,
    select,
    unroll,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)


# *** loops and carried variables ***


@register("row_sums")
def row_sums(out: OutputTensor[N, "m"], count: OutputTensor[int64, "m"], x: InputTensor[N, "m n"]) -> None:
    """`acc = 0` takes the dtype of sums of x, `k = 0` becomes Int."""
    for i in range(x.dim(0)):
        acc = 0
        k = 0
        for j in range(x.dim(1)):
            if x[i, j] > 2:
                acc += x[i, j]
                k += 1
        out[i] = acc.cast(N)
        count[i] = k


@register("nested_sums")
def nested_sums(out: OutputTensor[T, "4"], x: InputTensor[T, "m n"]) -> None:
    total = 0.0
    best = -1e30
    steps = 0
    for i in range(x.dim(0)):
        row = 0.0
        for j in range(0, x.dim(1), 2):
            row += x[i, j]
            steps += 1
            if row > best:
                best = row
        total = total + row
    out[0] = total
    out[1] = best
    out[2] = total * 0 + best * 0
    out[3] = select(steps > 3, 1.0, 0.0)


@register("alternating")
def alternating(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]) -> None:
    """`sign` is assigned nothing but itself; it is combined with the elements of x, so it is one of them."""
    for i in range(x.dim(0)):
        total = 0.0
        sign = 1.0
        for j in range(x.dim(1)):
            total += sign * x[i, j]
            sign = -sign
        out[i] = total


@register("fibonacci")
def fibonacci(out: OutputTensor[int64, "n"]) -> None:
    def value(i):
        a, b = 0, 1
        for _ in range(i[0]):
            a, b = b, a + b
        return a

    foreach(out, value)


@register("tuple_carried")
def tuple_carried(out: OutputTensor[T, "m 3"], at: OutputTensor[int64, "m"], x: InputTensor[T, "m n"]) -> None:
    """A tuple of (best, (second, where)) goes round in a loop and through branches."""
    for i in range(x.dim(0)):
        state = (-1e30, (-1e30, 0))
        last = (0.0,)
        for j in range(x.dim(1)):
            best, (second, where) = state
            v = x[i, j]
            if v > best:
                state = (v, (best, j))
            elif v > second:
                state = (best, (v, where))
            last = (v,)
        best, (second, where) = state
        out[i, 0] = best
        out[i, 1] = second
        out[i, 2] = last[0]
        at[i] = where


@register("triangle")
def triangle(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Bounds of inner loops depend on outer indices; empty and backward ranges run not at all."""

    def value(i):
        s = 0
        for a in range(i[0]):
            for b in range(a, i[0]):
                for c in range(b, a, 1):  # noqa: B007
                    s += 100
                s += x[a] * x[b]
        for _ in range(5, 2):
            s += 1000
        for _ in range(-3, 0):
            s += 1
        return s

    foreach(out, value)


@register("while_loops")
def while_loops(out: OutputTensor[int64, "3 n"], x: InputTensor[int64, "n"]) -> None:
    """Collatz steps; a digit sum; the largest power of two that is not larger."""
    for i in range(x.dim(0)):
        n = x[i]
        steps = 0
        while n > 1:
            if n % 2 == 0:  # noqa: SIM108
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        out[0, i] = steps
        n = x[i]
        digits = 0
        while True:
            digits += n % 10
            n //= 10
            if n == 0:
                break
        out[1, i] = digits
        power = 1
        while power * 2 <= x[i] and power < 1000:
            power *= 2
        out[2, i] = power


# *** break and continue ***


@register("find_first")
def find_first(out: OutputTensor[int64, "m"], x: InputTensor[float32, "m n"], limit: InputTensor[float32, ""]) -> None:
    def value(i):
        actual = -1
        for j in range(x.dim(1)):
            if x[i[0], j] > limit[()]:
                actual = j
                break
        return actual

    foreach(out, value)


@register("skip_and_stop")
def skip_and_stop(out: OutputTensor[float64, "m 2"], x: InputTensor[float64, "m n"]) -> None:
    """`continue` on negative numbers, `break` on the first above 2, both within nested ifs."""
    for i in range(x.dim(0)):
        s = 0.0
        seen = 0.0
        for j in range(x.dim(1)):
            v = x[i, j]
            if v < 0:
                if v > -0.5:
                    s += 0.125
                continue
            seen += 1
            if v > 1:
                if v > 2:
                    s += 1000
                    break
                else:
                    s += 10
                    continue
            s += v
        out[i, 0] = s
        out[i, 1] = seen


@register("nested_breaks")
def nested_breaks(out: OutputTensor[int64, "m 3"], x: InputTensor[int64, "m n"]) -> None:
    """Breaks in an inner and in the outer loop, in every arrangement."""
    for i in range(x.dim(0)):
        outer = 0
        inner = 0
        trace = 0
        for a in range(x.dim(1)):
            for b in range(x.dim(1)):
                if x[i, b] == 0:
                    break
                inner += 1
                if x[i, b] == a:
                    trace = trace * 3 + 1
                    continue
                trace = (trace * 5 + b) % 1000003
            if x[i, a] == 7:
                break
            outer += 1
        out[i, 0] = outer
        out[i, 1] = inner
        out[i, 2] = trace


@register("while_in_for")
def while_in_for(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    def value(i):
        total = 0
        for a in range(10):
            k = x[i[0]]
            while k > 0:
                k -= a + 1
                if k == 5:
                    break
                if k % 2 == 1:
                    continue
                total += k
            if total > 300:
                break
        return total

    foreach(out, value)


@register("break_keeps_index")
def break_keeps_index(out: OutputTensor[int64, "m"], x: InputTensor[bool8, "m n"]) -> None:
    for i in range(x.dim(0)):
        count = 0
        stop = False
        for j in range(x.dim(1)):
            if stop:
                break
            stop = x[i, j]
            count = j + 1
        out[i] = count


@register("unrolled_breaks")
def unrolled_breaks(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Compile-time breaks in unrolled loops around run-time loops with breaks."""

    def value(i):
        s = 0
        for k in unroll(10):
            if k == 2:
                continue
            if k == 5:
                break
            for j in range(100):
                if j * k > x[i[0]]:
                    break
                s += j + k
        return s

    foreach(out, value)


# *** branches ***


@register("grades")
def grades(out: OutputTensor[int32, "n"], share: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    for i in range(x.dim(0)):
        v = x[i]
        if v >= 90:
            grade = Int32(1)
            part = v / 90
        elif v >= 70:
            grade = Int32(2)
            part = v / 70
        elif v >= 50:
            grade = Int32(3)
            part = v / 50
            if part > 1.2:
                grade = Int32(33)
        else:
            grade = Int32(4)
            part = Float32(0)
        out[i] = grade
        share[i] = part


@register("joins")
def joins(out: OutputTensor[float32, "5 n"], x: InputTensor[float32, "n"]) -> None:
    """Compile-time numbers join run-time ones; untouched variables pass through."""
    for i in range(x.dim(0)):
        a = 1.0
        b = 2.0
        c = x[i]
        if x[i] > 0:
            a = x[i]
            t = (a, 3)
        else:
            b = x[i] * 2
            t = (c, 4)
        d = 0.5
        if x[i] > 1:
            d = 5.0
        out[0, i] = a
        out[1, i] = b
        out[2, i] = c
        out[3, i] = d
        out[4, i] = t[0] + (1.0 if t[1] == 3 else 0.0)


def clamp_guard(v, low, high):
    if v < low:
        return low
    if v > high:
        return high
    return v


def bucket(v):
    if v < 0:
        if v < -10:
            return -2
        return -1
    elif v == 0:
        return 0
    for_large = 0
    if v > 10:
        for_large = 1
    return 1 + for_large


def sign_or_none(v):
    if v > 0:
        s = 1.0
        if v > 5:
            return s * 2
        s = s * v
    else:
        s = -1.0
        if v < -5:
            return s * 2
    return s * 0.5


@register("early_returns")
def early_returns(
    clamped: OutputTensor[T, "n"],
    buckets: OutputTensor[int64, "n"],
    signs: OutputTensor[T, "n"],
    x: InputTensor[T, "n"],
) -> None:
    foreach((clamped, signs), lambda i: (clamp_guard(x[i], -2.5, 3.5), sign_or_none(x[i])))
    foreach(buckets, lambda i: bucket(x[i]))


@register("returns_in_kernel")
def returns_in_kernel(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], *, mode: int = 0) -> None:
    if mode == 1:
        foreach(out, lambda i: x[i] + 1)
        return
    foreach(out, lambda i: x[i])


@register("guards")
def guards(out: OutputTensor[int64, "4 n"], x: InputTensor[int64, "n"]) -> None:
    """`and` and `or` read out of bounds only if they are not lazy; a division by 0 that is not taken does no harm."""
    for i in range(x.dim(0)):
        j = x[i]
        inside = j >= 0 and j < x.dim(0) and x[j] > 2
        out[0, i] = 1 if inside else 0
        out[1, i] = 1 if j < 0 or j >= x.dim(0) or x[j] > 2 else 0
        out[2, i] = x[j] if 0 <= j < x.dim(0) else -1
        count = 0
        while count < x.dim(0) and x[count] != j:
            count += 1
        out[3, i] = count


@register("chains")
def chains(out: OutputTensor[bool8, "6 n"], x: InputTensor[float32, "n"], y: InputTensor[float32, "n"]) -> None:
    for i in range(x.dim(0)):
        a = x[i]
        b = y[i]
        out[0, i] = 0 < a < b
        out[1, i] = a < b <= 1 < 2
        out[2, i] = not a < b
        out[3, i] = (a > 0) == (b > 0)
        out[4, i] = (a > 0 and b > 0) or a < -1
        out[5, i] = not (a > 0 or b > 0) and a != b


@register("conditionals")
def conditionals(out: OutputTensor[T, "4 n"], x: InputTensor[T, "n"]) -> None:
    for i in range(x.dim(0)):
        v = x[i]
        out[0, i] = v if v > 0 else -v
        out[1, i] = 1 if v > 0 else (0 if v == 0 else -1)
        out[2, i] = (v + 1 if v > 1 else v - 1) if v > 0 else 0.25
        out[3, i] = x[0] if i > 0 else x[x.dim(0) - 1]


@register("swap_network")
def swap_network(out: OutputTensor[N, "m 4"], x: InputTensor[N, "m 4"]) -> None:
    """Sorts four values with a nested function that returns tuples."""

    def order(a, b):
        if b < a:
            return b, a
        return a, b

    for i in range(x.dim(0)):
        a, b, c, d = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        a, b = order(a, b)
        c, d = order(c, d)
        a, c = order(a, c)
        b, d = order(b, d)
        b, c = order(b, c)
        for k in unroll(4):
            out[i, k] = (a, b, c, d)[k]


@register("branch_in_loop_in_branch")
def branch_in_loop_in_branch(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    def value(i):
        v = x[i]
        result = 0
        if v > 0:
            k = 0
            while k < v:
                if k % 3 == 0:
                    for j in range(k):
                        result += j
                elif k % 3 == 1:
                    result -= k
                k += 1
        else:
            for j in range(0 - v):
                result += 2 * j
            result = -result
        return result

    foreach(out, value)


@register("annotated")
def annotated(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]) -> None:
    n: Int = x.dim(0)
    for i in range(n):
        k: Int = 3
        s: Float32 = 0.1
        out[i] = x[i] + (s * k.cast(float32)).cast(float64)


@register("steps_of_the_program")
def steps_of_the_program(out: OutputTensor[int64, "n 4"], bounds: InputTensor[int64, "n 3"]) -> None:
    """Loops whose steps only the program has: of either sign, 0, above 0 for sure; one that is left, one within."""
    for row in range(0, out.dim(0), out.dim(1) // 4):
        low, high, step = bounds[row, 0], bounds[row, 1], bounds[row, 2]
        total, count, first = 0, 0, 0
        for i in range(low, high, step):
            total += i * 3 + 1
        for i in range(low, high, max(step, 1)):
            count += i
            for j in range(0, i, max(step, 1)):
                count += j
        for i in range(low, high, step):
            if i % 4 == 3:
                first = i
                break
        out[row, 0], out[row, 1], out[row, 2], out[row, 3] = total, count, first, row
