"""Sums that a number begins, in every form that they are written in; `test_accumulators` compares them with NumPy.

Each function below `# both` runs in kernels and in Python, where elements are Python's numbers and never wrap.
"""

from __future__ import annotations

from typing import Any, TypeVar

from einkorn.dsl import InputTensor, MutableInputTensor, Numeric, OutputTensor, max, min, register, struct, unroll

N = TypeVar("N", bound=Numeric)
W = TypeVar("W", bound=Numeric)

# both


@struct
class Moments:
    first: Any
    second: Any

    def more(self, value: Any) -> Any:
        return Moments(self.first + value, self.second + self.first)


def augmented(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i]
    return total


def written_out(x: Any, n: Any) -> Any:
    total = 0
    total += x[0]
    total = total + x[1]
    total = x[2] + total
    return total


def unrolled(x: Any, n: Any) -> Any:
    total = 1
    for i in unroll(range(9)):
        total = total * 3 + x[i]
    return total


def product(x: Any, n: Any) -> Any:
    total = 1
    for i in range(5):
        total *= x[i]
    return total


def nested(x: Any, n: Any) -> Any:
    total = 0
    for i in range(3):
        for j in unroll(range(3)):
            total += x[3 * i + j]
    return total


def nested_loops(x: Any, n: Any) -> Any:
    total = 0
    for i in range(3):
        row = 0
        for j in range(3):
            row += x[3 * i + j]
        total += row
    return total


def where(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        if x[i] > 40:
            total += x[i]
        else:
            total = total - 1 if total > 9 else total + x[i]
    return total


def begun_again(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        if x[i] == x[0]:
            total = x[i]
        else:
            total += x[i]
    return total


def conditional(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total = total + x[i] if x[i] > 40 else total
    return total


def by_a_function(x: Any, n: Any) -> Any:
    def plus(a: Any, b: Any) -> Any:
        return a + b

    total = 0
    for i in range(n):
        total = plus(total, x[i])
    return total


def while_less(x: Any, n: Any) -> Any:
    total, i = 0, 0
    while i < n and total < 100000:
        total += x[i]
        i += 1
    return total


def left(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        if i == 7:
            break
        total += x[i]
    return total


def by_two(x: Any, n: Any) -> Any:
    a, b = 0, 1
    for i in range(20):
        a, b = b, a + x[i]
    return a + b


def in_a_tuple(x: Any, n: Any) -> Any:
    pair = (0, 0)
    for i in range(n):
        pair = (pair[0] + x[i], pair[1] + 1)
    return pair[0]


def in_a_struct(x: Any, n: Any) -> Any:
    moments = Moments(0, 0)
    for i in range(n):
        moments = moments.more(x[i])
    return moments.second


def by_sum(x: Any, n: Any) -> Any:
    return sum(x[i] for i in unroll(range(9)))


def used(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i]
    return max(total, x[0]) - min(x[1], total) + (total if total > x[0] else x[0])


FUNCTIONS = (
    augmented,
    written_out,
    unrolled,
    product,
    nested,
    nested_loops,
    where,
    begun_again,
    conditional,
    by_a_function,
    while_less,
    left,
    by_two,
    in_a_tuple,
    in_a_struct,
    by_sum,
    used,
)

# kernels


@register("every_sum")
def every_sum(out: OutputTensor[W, "17"], x: InputTensor[N, "n"]) -> None:
    n = x.dim(0)
    functions = (
        augmented,
        written_out,
        unrolled,
        product,
        nested,
        nested_loops,
        where,
        begun_again,
        conditional,
        by_a_function,
        while_less,
        left,
        by_two,
        in_a_tuple,
        in_a_struct,
        by_sum,
        used,
    )
    for k in unroll(17):
        out[k] = functions[k](x, n)


@register("largest")
def largest(out: OutputTensor[N, "2"], x: InputTensor[N, "n"]) -> None:
    """What is chosen, and not computed, keeps its dtype."""
    best, last = 0, 0
    for i in range(x.dim(0)):
        best = max(best, x[i])
        last = x[i]
    out[0] = best
    out[1] = last


@register("typed")
def typed(out: OutputTensor[N, "2"], x: InputTensor[N, "n"]) -> None:
    """A sum of a given type keeps it; so does one of elements in memory."""
    total = N(0)
    for i in range(x.dim(0)):
        total += x[i]
    out[0] = total
    out[1] = N(0)
    for i in range(x.dim(0)):
        out[1] += x[i]


@register("half_sum")
def half_sum(out: OutputTensor[N, "2"], x: InputTensor[N, "n"]) -> None:
    """Rounded once, where it is stored."""
    total = 0.0
    for i in range(x.dim(0)):
        total += x[i]
    out[0] = total
    out[1] = total / 2 + x[0]


@register("into")
def into(out: MutableInputTensor[N, "1"], x: InputTensor[N, "n"]) -> None:
    total = 0
    for i in range(x.dim(0)):
        total += x[i]
    out[0] = total
