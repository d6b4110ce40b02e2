"""Sums that a number begins, in every form that they are written in; `test_accumulators` compares them with NumPy.

Each function below `# both` runs in kernels and in Python, where elements are Python's numbers and never wrap.
"""

from __future__ import annotations

from typing import Any, TypeVar

from einkorn.dsl import (
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    abs,
    float64,
    max,
    min,
    register,
    struct,
    unroll,
)
from einkorn.stdlib import Max, Sum, reduce, scan

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


def only_then(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        if x[i] > 40:
            total += x[i]
    return total


def unless_skipped(x: Any, n: Any) -> Any:
    total = 1
    for i in range(n):
        if x[i] == x[1]:
            continue
        if x[i] > 1:
            part = x[i]
            if part < x[0]:
                total = total + part
    return total


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
    only_then,
    unless_skipped,
)

# terms of sums: arithmetic on elements, which does not wrap


def product_of_two(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i] * x[n - 1 - i]
    return total


def weighted(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total = x[i] * 3 + x[0] * x[1] + total
    return total


def difference(x: Any, n: Any) -> Any:
    total = 5
    for i in range(n):
        total -= x[i] - x[3] + 7
    return total


def squares(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i] ** 2 - x[i]
    return total


def by_a_variable(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        term = x[i] + x[i]
        twice = term + term
        total += twice
    return total


def by_a_branch(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        term = x[i]
        if x[i] > 3:
            term = term * x[2]
        total += term
    return total


def nested_branches(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        term = x[i] + x[1]
        if x[i] > 3:
            other = term * 2
            if x[i] > x[0]:
                term = other + term
            else:
                other = other - 1
            term = term + other
        total += term * term
    return total


def chosen(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i] * x[0] if x[i] > 2 else x[i] + x[n - 1]
    return total


def chained(x: Any, n: Any) -> Any:
    total = 0
    power = x[0]
    for k in unroll(range(3)):
        power = power + power
        total += power + x[k]
    return total


def shifted(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += (x[i] << 3) + (x[i] + x[i] >> 1)
    return total


def quotient(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += (x[i] + x[0]) // 3
    return total


def remainder(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += (x[i] * x[0]) % 7
    return total


def distance(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += abs(x[i] - x[0]) * 2
    return total


def smaller(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += min(x[i] - x[0], max(x[i] * 100, x[2]))
    return total


def of_a_lambda(x: Any, n: Any) -> Any:
    term = lambda i: x[i] * x[i]  # noqa: E731
    return sum(term(i) for i in unroll(range(9)))


def running(x: Any, n: Any) -> Any:
    total, weight = 0, 1
    for i in range(9):
        weight += x[i] * 2
        total += weight + x[i] * x[i]
    return total


def mixed(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += x[i] * 2
        if total > x[i] + x[0]:
            total -= x[i] + x[0]
    return total


TERMS = (
    product_of_two,
    weighted,
    difference,
    squares,
    by_a_variable,
    by_a_branch,
    nested_branches,
    chosen,
    chained,
    shifted,
    quotient,
    remainder,
    distance,
    smaller,
    of_a_lambda,
    running,
    mixed,
)

# kernels


@register("every_term")
def every_term(out: OutputTensor[W, "17"], x: InputTensor[N, "n"]) -> None:
    n = x.dim(0)
    functions = (
        product_of_two,
        weighted,
        difference,
        squares,
        by_a_variable,
        by_a_branch,
        nested_branches,
        chosen,
        chained,
        shifted,
        quotient,
        remainder,
        distance,
        smaller,
        of_a_lambda,
        running,
        mixed,
    )
    for k in unroll(17):
        out[k] = functions[k](x, n).cast(W)


@register("differences")
def differences(out: OutputTensor[float64, "9"], x: InputTensor[N, "n"], y: InputTensor[N, "n"]) -> None:
    """Sums of what may be negative, of signed and unsigned numbers."""
    less, negated, products, distances, both, three = 0, 0, 0, 0, 0, 0
    for i in range(x.dim(0)):
        less += x[i] - y[0]
        negated -= x[i]
        products = products + (x[i] - 3 * y[i])
        distances += abs(x[i] - y[0])
        both += x[i]
        both -= y[i]
        three += x[i] - 1 - y[i]
    out[0], out[1], out[2] = less.cast(float64), negated.cast(float64), products.cast(float64)
    out[3], out[4], out[5] = distances.cast(float64), both.cast(float64), three.cast(float64)
    out[6] = (x.load(0, width=8) - y[0]).reduce_add().cast(float64)
    out[7] = reduce(x, Sum, of=lambda v: -v).cast(float64)
    out[8] = reduce(x, Sum, of=lambda v: v - y[0]).cast(float64)


@register("written_type")
def written_type(out: OutputTensor[W, "3"], x: InputTensor[N, "n"]) -> None:
    """A type that is written ends the arithmetic that is done in a wider type."""
    total, other, third = 0, 0, 0
    for i in range(x.dim(0)):
        total += (x[i] * x[i]).cast(N)
        product: N = x[i] * x[i]
        other += product
        third += N(x[i] * x[i])
    out[0] = total
    out[1] = other
    out[2] = third


@register("of_monoids")
def of_monoids(
    out: OutputTensor[W, "3"], best: OutputTensor[N, "1"], running: OutputTensor[W, "n"], x: InputTensor[N, "n"]
) -> None:
    """Monoids that add up are given terms that do not wrap; others are given the elements' dtype."""
    out[0] = reduce((x, x), Sum, of=lambda a, b: a * b)
    out[1] = reduce(x, Sum, of=lambda a: a + 1)
    eight = x.load(0, width=8)
    out[2] = (eight * eight).reduce_add()
    best[0] = reduce(x, Max, of=lambda a: a * a)
    scan(running, x, Sum, of=lambda a: a * a)


@register("half_dot")
def half_dot(out: OutputTensor[N, "1"], x: InputTensor[N, "n"]) -> None:
    """Products are not rounded before they are added."""
    total = 0.0
    for i in range(x.dim(0)):
        total += x[i] * x[i]
    out[0] = total


@register("every_sum")
def every_sum(out: OutputTensor[W, "19"], x: InputTensor[N, "n"]) -> None:
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
        only_then,
        unless_skipped,
    )
    for k in unroll(19):
        out[k] = functions[k](x, n)


@register("largest")
def largest(out: OutputTensor[N, "3"], x: InputTensor[N, "n"]) -> None:
    """What is chosen, and not computed, keeps its dtype."""
    best, last, again = 0, 0, 0
    for i in range(x.dim(0)):
        best = max(best, x[i])
        last = x[i]
        if x[i] > again:
            again = x[i]
    out[0] = best
    out[1] = last
    out[2] = again


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
