"""Random graphs whose sizes are expressions of the sizes of their inputs, and go below zero, to zero, and out of sight.

Each call agrees with NumPy, or raises an error that names an op: there is no third way. The same program is staged on
values of a graph and run on arrays, where an expression of dims is one of Python's ints; a size below zero, a division
by zero, an index outside of its axis and a tensor beyond 64 bits raise `Impossible` there.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DeviceError, GraphError
from einkorn.graph import DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.types.dims import ceildiv, dim_max, dim_min

pytestmark = pytest.mark.as_shipped

KERNELS = str(Path(__file__).parent / "size_kernels.py")
HOST = DeviceRef.CPU()
F32 = DType.float32
HUGE = 1 << 61  # times 4 bytes it is beyond 64 bits
CODES = {"EK0332", "EK0424", "EK0454", "EK0475", "EK0476", "EK0465"}


class Impossible(Exception):
    """What no call can compute."""


class Unsaid(Exception):
    """A division by zero, which an expression may have lost: n//n is 1."""


Size = Callable[[dict[str, Any]], Any]


def _expression(pick: random.Random, depth: int = 0) -> Size:
    """An expression over n and m, for dims and for ints."""
    kind = pick.random()
    if depth > 2 or kind < 0.35:
        name = pick.choice("nm")
        return lambda sizes: sizes[name]
    if kind < 0.5:
        number = pick.choice((0, 1, 2, 3, 5, 7))
        return lambda sizes: sizes["one"] * number
    left, right = _expression(pick, depth + 1), _expression(pick, depth + 1)
    number = pick.randrange(1, 5)
    sign = pick.choice(("+", "-", "-", "*", "//", "%", "c", "/", "min", "max"))
    table: dict[str, Size] = {
        "+": lambda sizes: left(sizes) + right(sizes),
        "-": lambda sizes: left(sizes) - right(sizes),
        "*": lambda sizes: left(sizes) * number,
        "//": lambda sizes: left(sizes) // number,
        "%": lambda sizes: left(sizes) % number,
        "c": lambda sizes: sizes["up"](left(sizes), number),
        "/": lambda sizes: left(sizes) // right(sizes),
        "min": lambda sizes: sizes["min"](left(sizes), right(sizes)),
        "max": lambda sizes: sizes["max"](left(sizes), right(sizes)),
    }
    return table[sign]


def _dims() -> dict[str, Any]:
    return {"n": Dim("n"), "m": Dim("m"), "one": Dim(1), "up": ceildiv, "min": dim_min, "max": dim_max}


def _ints(n: int, m: int) -> dict[str, Any]:
    def up(a: int, b: int) -> int:
        return -(-a // b)

    return {"n": n, "m": m, "one": 1, "up": up, "min": min, "max": max}


Step = tuple[str, Any]


KINDS = (
    *("fill", "broadcast", "concat", "sum", "mean", "max", "slice", "tail", "merge", "unary", "double", "transpose"),
    *("rebind", "rows", "huge"),
)


def program(seed: int) -> list[Step]:
    """Steps; each makes one value of rank 1 or 2 from earlier ones."""
    pick = random.Random(seed)
    steps: list[Step] = []
    ranks = [1, 2]  # of x: (n,) and y: (n, m)
    for _ in range(pick.randrange(3, 9)):
        at = pick.randrange(len(ranks))
        flat = [k for k, rank in enumerate(ranks) if rank == 1]
        kind = pick.choice(KINDS)
        if kind in ("fill", "broadcast", "huge"):
            sizes = [_expression(pick) for _ in range(pick.randrange(1, 3))]
            if kind == "huge" and pick.random() < 0.3:
                sizes[0] = (lambda size: lambda s: size(s) * HUGE)(sizes[0])
            steps.append((("fill", "broadcast")[kind == "broadcast"], sizes))
            ranks.append(len(sizes))
        elif kind in ("concat",):
            steps.append((kind, (pick.choice(flat), pick.choice(flat))))
            ranks.append(1)
        elif kind in ("sum", "mean", "max"):
            axis = pick.randrange(ranks[at])
            steps.append((kind, (at, axis)))
            ranks.append(ranks[at])
        elif kind in ("slice", "tail"):
            steps.append((kind, (at, pick.randrange(0, 4))))
            ranks.append(ranks[at])
        elif kind == "merge":
            steps.append((kind, at))
            ranks.append(1)
        elif kind == "rebind":
            steps.append((kind, (at, _expression(pick))))
            ranks.append(ranks[at])
        else:
            steps.append((kind, at))
            ranks.append(2 if kind == "rows" else ranks[at])
    return steps


def staged(steps: list[Step], x: Any, y: Any) -> list[Any]:
    """The program on values of a graph."""
    sizes, values = _dims(), [x, y]
    one = ops.constant(1.5, F32)
    for kind, what in steps:
        if kind == "fill":
            shape = [size(sizes) for size in what]
            value = ops.custom("fill", HOST, [one], [TensorType(F32, shape, HOST)])[0]
        elif kind == "broadcast":
            value = ops.broadcast_to(one, [size(sizes) for size in what])
        elif kind == "concat":
            value = ops.concat([values[k] for k in what])
        elif kind in ("sum", "mean", "max"):
            value = getattr(ops, kind)(values[what[0]], axis=what[1])
        elif kind == "slice":
            value = values[what[0]][what[1] :]
        elif kind == "tail":
            value = values[what[0]][: what[1]]
        elif kind == "merge":
            value = ops.flatten(values[what])
        elif kind == "rebind":
            given = values[what[0]]
            value = ops.rebind(given, [what[1](sizes), *given.shape[1:]])
        elif kind == "unary":
            value = ops.negate(values[what])
        elif kind == "double":
            value = values[what] + values[what]
        elif kind == "transpose":
            value = ops.permute(values[what], range(values[what].rank)[::-1])
        else:
            value = ops.reshape(values[what], [1, -1])
        values.append(value)
    return values[2:]


def computed(steps: list[Step], x: Any, y: Any) -> list[Any]:
    """The program on arrays."""
    sizes, values = _ints(*y.shape), [x, y]

    def shape_of(what: list[Size]) -> list[int]:
        try:
            shape = [int(size(sizes)) for size in what]
        except ZeroDivisionError:
            raise Unsaid from None
        if min(shape) < 0 or math.prod(size or 1 for size in shape) * 4 >= 1 << 63:
            raise Impossible
        return shape

    for kind, what in steps:
        if kind in ("fill", "broadcast"):
            value = np.full(shape_of(what), np.float32(1.5))
        elif kind == "concat":
            value = np.concatenate([values[k] for k in what])
        elif kind in ("sum", "mean", "max"):
            given, axis = values[what[0]], what[1]
            if kind == "max" and given.shape[axis] == 0:
                raise Impossible
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # means of nothing
                value = getattr(np, kind)(given.astype(np.float64), axis=axis, keepdims=True).astype(np.float32)
        elif kind in ("slice", "tail"):
            given, bound = values[what[0]], what[1]
            if bound > len(given):
                raise Impossible
            value = given[bound:] if kind == "slice" else given[:bound]
        elif kind == "merge":
            value = values[what].reshape(-1)
        elif kind == "rebind":
            value = values[what[0]]
            if shape_of([what[1]])[0] != len(value):
                raise Impossible
        elif kind == "unary":
            value = -values[what]
        elif kind == "double":
            value = values[what] + values[what]
        elif kind == "transpose":
            value = values[what].T
        else:
            value = values[what].reshape(1, -1)
        values.append(value)
    return values[2:]


SIZES = ((3, 2), (0, 3), (1, 1), (7, 4), (2, 0), (5, 5), (0, 0), (12, 7))


def check(seed: int, interpret: bool) -> dict[str, int]:
    """One program in calls with several sizes; how many agreed, and how many were refused."""
    steps = program(seed)
    counts = {"agreed": 0, "refused": 0, "not staged": 0, "either": 0}
    keep = sorted(random.Random(-seed).sample(range(len(steps)), min(2, len(steps))))
    try:
        types = [TensorType(F32, ["n"], HOST), TensorType(F32, ["n", "m"], HOST)]
        graph = Graph("sizes", lambda x, y: [staged(steps, x, y)[k] for k in keep], types, custom_extensions=[KERNELS])
    except GraphError as error:
        assert error.place is not None and error.code in {*CODES, "EK0335", "EK0423", "EK0425"}, error
        for n, m in SIZES if error.code not in ("EK0335", "EK0332") else ():
            with pytest.raises((Impossible, Unsaid)):
                computed(steps, np.zeros(n, np.float32), np.zeros((n, m), np.float32))
        counts["not staged"] += 1
        return counts
    model = InferenceSession(interpret=interpret, checks=random.Random(seed).choice(("off", "safe", "all"))).load(graph)
    for n, m in SIZES:
        generator = np.random.default_rng([seed, n, m])
        x, y = (generator.standard_normal(shape).astype(np.float32) for shape in ((n,), (n, m)))
        try:
            expected: Any = [computed(steps, x, y)[k] for k in keep]
        except Impossible:
            expected = None
        except Unsaid:
            expected = ...
        try:
            actual = [np.array(each.to_numpy()) for each in model(x, y)]
        except (GraphError, DeviceError) as error:
            assert expected is None or expected is ..., f"seed {seed}, n={n}, m={m}: {error}\n{graph}"
            assert error.code in CODES and error.op is not None and error.place is not None, error
            counts["refused"] += 1
            continue
        assert expected is not None, f"seed {seed}, n={n}, m={m}: computed what cannot be\n{graph}"
        if expected is ...:
            counts["either"] += 1
            continue
        for one, other in zip(actual, expected, strict=True):
            assert one.shape == other.shape, f"seed {seed}, n={n}, m={m}: {one.shape} for {other.shape}\n{graph}"
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5, err_msg=f"seed {seed}, n={n}, m={m}\n{graph}")
        counts["agreed"] += 1
    return counts


@pytest.mark.parametrize("seed", range(60))
def test_sizes_are_right_or_refused(seed: int) -> None:
    check(seed, interpret=seed % 6 != 0)


def test_the_programs_are_of_every_kind() -> None:
    """Else the test above would hold for nothing: calls that agree, that are refused, and graphs that are not made."""
    kinds = [kind for seed in range(60) for kind, _ in program(seed)]
    assert len(set(kinds)) >= 12 and len(kinds) > 200
    result = [check(seed, interpret=True) for seed in range(20)]
    for outcome in ("agreed", "refused"):
        assert sum(counts[outcome] for counts in result) > 20
