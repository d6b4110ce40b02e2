"""Random numbers in loops and branches: a graph draws what the same program draws step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor
from support import graphs

from einkorn import functional as F
from einkorn import random
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.stdlib.kernels.random import uniform_reference

HOST = DeviceRef.CPU()
ROWS = 24  # what a program may draw; what it does not is 0


def put(out: Any, at: Any, value: Any) -> tuple[Any, Any]:
    """A row of numbers in its place, and the next place."""
    here = F.equal(F.reshape(F.arange(0, ROWS), [ROWS, 1]), at)
    return F.where(here, F.broadcast_to(F.reshape(value, [1, 4]), [ROWS, 4]), out), at + 1


def drawn(out: Any, at: Any) -> tuple[Any, Any]:
    return put(out, at, random.uniform([4]))


def one_loop(out: Any, at: Any, n: Any) -> Any:
    random.set_seed(5)
    out, at = drawn(out, at)

    def body(out: Any, at: Any, k: Any) -> Any:
        return *drawn(*drawn(out, at)), k + 1

    out, at, _ = F.while_loop((out, at, 0 * n), lambda out, at, k: k < n, body)
    return drawn(out, at)[0]


def nested(out: Any, at: Any, n: Any) -> Any:
    random.set_seed(-6)

    def inner(out: Any, at: Any, k: Any) -> Any:
        return *drawn(out, at), k + 1

    def outer(out: Any, at: Any, k: Any) -> Any:
        out, at = drawn(out, at)
        out, at, _ = F.while_loop((out, at, 0 * k), lambda out, at, j: j < k, inner)
        return *drawn(out, at), k + 1

    out, at, _ = F.while_loop((out, at, 0 * n), lambda out, at, k: k < n, outer)
    return drawn(out, at)[0]


def branches(out: Any, at: Any, n: Any) -> Any:
    """A branch that draws more often than the other, in a loop, and one behind it."""
    random.set_seed(7)
    types = None if not hasattr(out, "type") else [out.type, at.type]

    def body(out: Any, at: Any, k: Any) -> Any:
        out, at = F.cond(k % 2 == 0, types, lambda: drawn(*drawn(out, at)), lambda: (out, at))
        out, at = F.cond(k % 3 == 0, types, lambda: drawn(out, at), lambda: drawn(out, at))
        return out, at, k + 1

    out, at, _ = F.while_loop((out, at, 0 * n), lambda out, at, k: k < n, body)
    out, at = F.cond(n == 3, types, lambda: drawn(out, at), lambda: drawn(*drawn(out, at)))
    return drawn(out, at)[0]


def loop_in_branch(out: Any, at: Any, n: Any) -> Any:
    random.set_seed(8)
    types = None if not hasattr(out, "type") else [out.type, at.type]

    def loop() -> Any:
        actual = F.while_loop((out, at, 0 * n), lambda o, a, k: k < n, lambda o, a, k: (*drawn(o, a), k + 1))
        return actual[0], actual[1]

    out, at = F.cond(n > 1, types, lambda: drawn(out, at), loop)
    return drawn(out, at)[0]


def in_predicate(out: Any, at: Any, n: Any) -> Any:
    random.set_seed(9)

    def goes_on(out: Any, at: Any, k: Any) -> Any:
        return F.logical_and(k < n, random.uniform([4])[0] >= 0.0)

    out, at, _ = F.while_loop((out, at, 0 * n), goes_on, lambda o, a, k: (*drawn(o, a), k + 1))
    return drawn(out, at)[0]


def seeds_in_bodies(out: Any, at: Any, n: Any) -> Any:
    """A seed that is set in a body holds to its end, and what was counted before goes on behind it."""
    random.set_seed(10)

    def body(out: Any, at: Any, k: Any) -> Any:
        out, at = drawn(out, at)
        random.set_seed(3)
        return *drawn(*drawn(out, at)), k + 1

    out, at, _ = F.while_loop((out, at, 0 * n), lambda out, at, k: k < n, body)
    return drawn(out, at)[0]


def other_ops(out: Any, at: Any, n: Any) -> Any:
    random.set_seed(11)

    def body(out: Any, at: Any, k: Any) -> Any:
        out, at = put(out, at, random.normal([4], std=2.0))
        out, at = put(out, at, random.dropout(F.cast(F.arange(1, 5), DType.float32), 0.5))
        share = F.cast(F.arange(1, 5), DType.float32) / 6.0
        out, at = put(out, at, F.cast(random.bernoulli(share), DType.float32))
        return out, at, k + 1

    return F.while_loop((out, at, 0 * n), lambda out, at, k: k < n, body)[0]


PROGRAMS = [one_loop, nested, branches, loop_in_branch, in_predicate, seeds_in_bodies, other_ops]


def step_by_step(program: Callable[..., Any], n: int) -> np.ndarray[Any, Any]:
    start = Tensor.constant(np.zeros((ROWS, 4), np.float32)), Tensor.constant(np.int64(0)), Tensor.constant(np.int64(n))
    actual: np.ndarray[Any, Any] = program(*start).to_numpy()
    return actual


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("interpret", [False, True])
def test_a_graph_draws_what_a_program_draws_step_by_step(program: Callable[..., Any], interpret: bool) -> None:
    types = [TensorType(DType.float32, [ROWS, 4]), TensorType(DType.int64, []), TensorType(DType.int64, [])]
    model = InferenceSession(interpret=interpret).load(Graph("g", program, types))
    for n in (0, 1, 2) if interpret else (0, 1, 2, 3, 5):
        start = np.zeros((ROWS, 4), np.float32), np.int64(0), np.int64(n)
        first, again = (model(*start)[0].to_numpy() for _ in range(2))
        assert np.array_equal(first, again)
        np.testing.assert_array_equal(first, step_by_step(program, n))


def test_no_two_rows_are_the_same() -> None:
    for program in (one_loop, nested, branches, in_predicate):
        rows = [tuple(row) for row in step_by_step(program, 3) if row.any()]
        assert len(rows) > 3 and len(set(rows)) == len(rows)


def test_the_streams_of_a_loop_follow_each_other() -> None:
    actual = step_by_step(one_loop, 4)
    for stream in range(10):
        np.testing.assert_array_equal(actual[stream], uniform_reference(4, np.float32, 5, stream, 0.0, 1.0))


def test_loops_without_random_ops_carry_no_count() -> None:
    def forward(x: Any) -> Any:
        ops.random.set_seed(1)
        first = ops.random.uniform([4])
        y, _ = ops.while_loop(
            (x, 0),
            lambda x, k: ops.cond(k < 3, [TensorType(DType.bool, [])], lambda: k < 2, lambda: k < 1)[0],
            lambda x, k: (ops.while_loop((x, 0), lambda x, j: j < 2, lambda x, j: (x + 1, j + 1))[0], k + 1),
        )
        ops.random.set_seed(1)
        return y + (first - ops.random.uniform([4]))

    graph = Graph("g", forward, [TensorType(DType.float32, [4])])
    lines = str(graph).splitlines()
    assert all(line.count("int64") <= 1 for line in lines if "while_loop" in line or "cond" in line), graph
    assert sum("copy" in line for line in lines) == 5  # what two loops begin with, and what the inner one gives back
    assert np.array_equal(InferenceSession().load(graph)(np.zeros(4, np.float32))[0].to_numpy(), [4] * 4)


def test_seeds_that_come_with_a_call() -> None:
    def forward(seed: Any, n: Any) -> Any:
        ops.random.set_seed(seed)
        start = ops.constant(np.zeros(4, np.float32), DType.float32, HOST)
        return ops.while_loop((start, n), lambda x, k: k > 0, lambda x, k: (x * 2 + ops.random.uniform([4]), k - 1))[0]

    model = InferenceSession().load(Graph("g", forward, [ops.random.SeedType, TensorType(DType.int64, [])]))
    for seed in (0, 3, -(2**63)):
        wanted = np.zeros(4, np.float32)
        for stream in range(3):
            wanted = wanted * 2 + uniform_reference(4, np.float32, seed, stream, 0.0, 1.0).astype(np.float32)
        np.testing.assert_array_equal(model(np.int64(seed), np.int64(3))[0].to_numpy(), wanted)


def test_a_predicate_draws_a_number_of_times_that_is_known() -> None:
    def goes_on(x: Any, k: Any) -> Any:
        return ops.cond(k < 1, [TensorType(DType.bool, [])], lambda: ops.random.uniform([1])[0] < 2, lambda: k < 3)[0]

    with pytest.raises(GraphError, match="how many is not known") as caught:
        Graph("g", lambda x: ops.while_loop((x, 0), goes_on, lambda x, k: (x, k + 1)), [TensorType(DType.float32, [2])])
    error = caught.value
    assert (error.code, error.op, error.argument) == ("EK0415", "while_loop", "predicate")
    assert error.place is not None and error.place.file == __file__


def test_an_op_that_fails_draws_nothing() -> None:
    """What is undone is not counted, also where a loop in it has changed the count to a value."""

    def forward(x: Any) -> Any:
        def drawing_loop() -> Any:
            return ops.while_loop((x, 0), lambda x, k: k < 2, lambda x, k: (x + ops.random.uniform([4]), k + 1))[0]

        with pytest.raises(GraphError):
            ops.cond(x[0] < 2, [x.type], lambda: drawing_loop() + drawing_loop(), lambda: x[:2])
        return ops.random.uniform([4])

    actual = graphs.run(forward, np.zeros(4, np.float32))[0]
    np.testing.assert_array_equal(actual, uniform_reference(4, np.float32, 0, 0, 0.0, 1.0))


def test_on_a_simulated_gpu() -> None:
    device = Accelerator("sim")
    ref = DeviceRef.from_device(device)

    def forward(x: Any, n: Any) -> Any:
        def body(x: Any, k: Any) -> Any:
            return x * 2 + ops.random.uniform([4], dtype=DType.float32, device=ref), k - 1

        actual = ops.while_loop((x, n), lambda x, k: k > 0, body)[0]
        return actual * 2 + ops.random.uniform([4], dtype=DType.float32, device=ref)

    graph = Graph("g", forward, [TensorType(DType.float32, [4], ref), TensorType(DType.int64, [], ref)])
    model = InferenceSession(devices=[device, CPU()]).load(graph)
    given = (Buffer.from_numpy(each).to(device) for each in (np.zeros(4, np.float32), np.array(2)))
    wanted = np.zeros(4, np.float32)
    for stream in range(3):
        wanted = wanted * 2 + uniform_reference(4, np.float32, 0, stream, 0.0, 1.0).astype(np.float32)
    np.testing.assert_array_equal(model(*given)[0].to_numpy(), wanted)
