"""Functions that end early, from inside loops of both stages; `test_exits` gives them to Python, too."""

# ruff: noqa: SIM102 (conditions in conditions are what is tested)
from __future__ import annotations

from typing import Any

from einkorn.dsl import InputTensor, Int, OutputTensor, float32, int64, parallel_for, register, store, struct, unroll

# both


def found(row: Any, n: Any) -> Any:
    """A loop that only `return` ends, with a break in an unrolled one."""
    j = 0
    while True:
        for k in unroll(3):
            if j + k >= n:
                return -1
            if row(j + k) > 1:
                if k == 1:
                    break
                return j + k
        j += 3


def partly(v: Any, w: Any) -> Any:
    """Conditions in conditions: what follows is reached from several places."""
    if v > 0:
        if w > 0:
            return v
    if v < -1:
        if w < -1:
            return w
        v = v + 3
    if v < w:
        if w < 5:
            return v + w
    return v * w


def summed(row: Any, n: Any, more: Any) -> Any:
    total = row(0)
    for j in reversed(range(1, n)):
        if row(j) < -1:
            continue
        for v in (row(j), more(row(j))):
            if v > 2:
                break
            total += v
    return total


def nested(row: Any, n: Any) -> Any:
    """A tuple out of two loops and an unrolled one; its second item is known at compile time."""
    for i in range(n):
        j = i
        while j < n:
            for k in (1, 2):
                if row(i) + row(j) * k > 3:
                    return (row(i), "found", (i, j, k))
            if row(j) < -1.5:
                break
            j += 2
    return (row(0), "found", (0, 0, 0))


def refuses(v: Any) -> Any:
    raise ValueError(f"{v} is refused")


# kernels


@struct
class Sum:
    """What a loop carries, and what is returned out of it."""

    total: float32
    count: Int = 0
    best: Any = (0.0, 0)

    def push(self, v, at):
        self.total += v
        self.count += 1
        if v > self.best[0]:
            self.best = (v, at)
        return self


def scanned(row: Any, n: Any, step: Any, state: Any) -> Any:
    for j in range(n):
        state = step(state, row(j), j)
        if state.total > 4:
            return state
    return state


@register("exits")
def exits(
    at: OutputTensor[int64, "m 5"], out: OutputTensor[float32, "m 5"], x: InputTensor[float32, "m n"], *, sign: int = 1
) -> None:
    def row(i):
        def element(j):
            return x[i, j]

        n = x.dim(1)
        at[i, 0] = int64(found(element, n))
        value, _, place = nested(element, n)
        state = scanned(element, n, lambda s, v, j: s.push(v, j), Sum(0.0))
        at[i, 1], at[i, 2], at[i, 3] = place
        at[i, 4] = state.count * 100 + state.best[1]
        out[i, 0] = value
        out[i, 1] = partly(x[i, 0], x[i, 1])
        out[i, 2] = summed(element, n, lambda v: v + sign)
        out[i, 3] = state.total
        out[i, 4] = state.best[0]

    parallel_for(x.dim(0), row)


@register("refused")
def refused(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    parallel_for(x.dim(0), lambda i: store(out, i, x[i] if x[i] < 0 else refuses(x[i]) * 2))
