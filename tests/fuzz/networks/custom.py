"""What the custom ops in `kernels` give, op by op, in the arithmetic of `bounds`.

See also `oracle` (built-in ops).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bounds import Bounds, exact
from .network import Parameters
from .oracle import Memory, add, added, compared, extreme, mul, sub

NOTHING: Parameters = {}


def times(x: Bounds, number: float) -> Bounds:
    return mul(x, {"number": number})


def plus(x: Bounds, number: float) -> Bounds:
    return add(x, {"number": number})


def both_ways(x: Bounds, p: Parameters) -> list[Bounds]:
    high = compared(lambda al, ah, bl, bh: al > bh, lambda al, ah, bl, bh: ah <= bl)
    return [plus(x, 1), sub(x, {"number": 1}), high(x, {"number": 3})]


def neighbours(x: Bounds, p: Parameters) -> list[Bounds]:
    left, right = x.moved(lambda part: np.roll(part, 1, 0)), x.moved(lambda part: np.roll(part, -1, 0))
    return [add(add(left, times(x, 2), NOTHING), right, NOTHING)]


def column(x: Bounds, k: int) -> Bounds:
    return x.moved(lambda part: part[:, k])


def zero(x: Bounds) -> Bounds:
    return exact(np.zeros(x.shape[0]), x.dtype)


def running_sum(x: Bounds, p: Parameters) -> list[Bounds]:
    total, collected = zero(x), []
    for k in range(x.shape[1]):
        total = add(total, column(x, k), NOTHING)
        collected.append(total)
    if not collected:
        return [x]
    ends = [np.stack([getattr(one, name) for one in collected], 1) for name in ("low", "high")]
    return [Bounds(ends[0], ends[1], x.dtype)]


def read_rows(x: Bounds | Memory, p: Parameters) -> list[Bounds]:
    held = x.holds if isinstance(x, Memory) else x
    total = zero(held)
    for k in range(held.shape[1]):
        total = add(total, column(held, k), NOTHING)
    return [total]


def row_totals(x: Bounds, p: Parameters) -> list[Bounds]:
    return [added(x, 1, False), extreme(np.max)(x, {"axis": 1, "keepdims": False})]


def horner(x: Bounds, p: Parameters) -> list[Bounds]:
    total = exact(np.zeros(x.shape), x.dtype)
    for _ in range(5):
        total = plus(times(mul(total, x, NOTHING), 0.25), 1)
    return [total]


def outer(x: Bounds, y: Bounds, p: Parameters) -> list[Bounds]:
    tall, wide = x.moved(lambda part: part[:, None]), y.moved(lambda part: part[None, :])
    return [mul(tall, wide, NOTHING)]


def total(*given: Any) -> list[Bounds]:
    result = given[0]
    for x in given[1:-1]:
        result = add(result, x, NOTHING)
    return [result]


def kept(x: Bounds, p: Parameters) -> list[Bounds]:
    """Of what is known only: a network never uses it for what is not."""
    assert x.sure().all(), "a shape function reads what is not known"
    actual = x.low[x.low > p["numbers"][0]]
    return [Bounds(actual, actual, x.dtype)]


def axpy_into(y: Memory, x: Bounds, p: Parameters) -> list[Bounds]:
    y.holds = add(y.holds, times(x, p["numbers"][0]), NOTHING)
    return []


def bump_and_total(y: Memory, by: Bounds, p: Parameters) -> list[Bounds]:
    y.holds = add(y.holds, by.moved(lambda part: part[None, :]), NOTHING)
    return read_rows(y, p)


def _number(p: Parameters) -> Any:
    return p["numbers"][0]


CUSTOM: dict[str, Callable[..., list[Bounds]]] = {
    "scale_add": lambda x, y, p: [add(times(x, p["parameters"]["factor"]), y, NOTHING)],
    "unfused_add": lambda x, y, p: [add(x, y, NOTHING)],
    "both_ways": both_ways,
    "neighbours": neighbours,
    "double_rows": lambda x, p: [times(x, 2)],
    "running_sum": running_sum,
    "scanned": lambda x, p: [x.moved(lambda part: np.maximum.accumulate(part, axis=-1))],
    "row_totals": row_totals,
    "horner": horner,
    "outer": outer,
    "blend": lambda x, y, p: [sub(times(x, _number(p)), y, NOTHING)],
    "scaled_rows": lambda x, p: [times(x, _number(p))],
    "total": total,
    "scaled_all": lambda *given: [times(x, _number(given[-1])) for x in given[:-1]],
    "twice": lambda x, p: [x.moved(lambda part: np.concatenate([part, part]))],
    "kept": kept,
    "axpy_into": axpy_into,
    "bump_and_total": bump_and_total,
    "read_rows": read_rows,
}


def custom(*given: Any) -> list[Bounds]:
    """A step `custom`."""
    return CUSTOM[given[-1]["name"]](*given)
