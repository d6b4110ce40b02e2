"""Branches and loops in graphs: what people write with them, compiled and interpreted, next to the same in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.ir.printer import print_program
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.reproducer import UNITS
from einkorn.compiler.targets import host
from einkorn.dsl.contract.checks import SAFE
from einkorn.dsl.contract.unit import groups_in
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.compile import node_facts
from einkorn.graph.loading.load import load_graph
from einkorn.graph.loading.reproducer import graph_from_json, graph_to_json
from einkorn.graph.passes.fusion import partition
from einkorn.graph.passes.memory_plan import make_plan

HOST = DeviceRef.CPU()
F32, F64, I64, BOOL = DType.float32, DType.float64, DType.int64, DType.bool
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def t(dtype: DType, *shape: int | str) -> TensorType:
    return TensorType(dtype, shape, HOST)


def held(dtype: DType, *shape: int | str) -> BufferType:
    return BufferType(dtype, shape, HOST)


def models(forward: Callable[..., Any], *types: Any) -> list[Model]:
    """The graph compiled, compiled without fusion, and interpreted."""
    graph = Graph("test", forward, types)
    unfused = Model(graph.ir, lambda ir: load_graph(ir, fuse=False))
    return [InferenceSession().load(graph), unfused, InferenceSession(interpret=True).load(graph)]


def agree(forward: Callable[..., Any], reference: Callable[..., Any], types: list[Any], *calls: list[Any]) -> None:
    """All three give what Python gives, call after call: buffers are changed alike."""
    for model in models(forward, *types):
        for given in calls:
            mine, theirs = ([np.array(x) for x in given] for _ in range(2))
            results, expected = graphs.results(model, *mine), reference(*theirs)
            for got, wanted in zip(results, expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-12)
            for got, wanted in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(got, wanted)


# *** what people write on day one ***


def test_newton_until_convergence() -> None:
    def forward(a: Any) -> Any:
        def far(x: Any, last: Any, n: Any) -> Any:
            return ops.logical_and(ops.max(abs(x - last), None, keepdims=False) > 1e-12, n < 50)

        x, _, n = ops.while_loop((a, a + 1, 0), far, lambda x, last, n: [0.5 * (x + a / x), x, n + 1])
        return x, n

    def reference(a: Array) -> list[Any]:
        x, last, n = a, a + 1, 0
        while np.max(np.abs(x - last)) > 1e-12 and n < 50:
            x, last, n = 0.5 * (x + a / x), x, n + 1
        return [x, n]

    agree(forward, reference, [t(F64, "n")], [np.array([2.0, 9.0, 1e4])], [np.array([1.0])], [np.array([1e-3, 5.0])])


def test_a_loop_that_never_runs_gives_what_it_was_given() -> None:
    def forward(x: Any, n: Any) -> Any:
        return ops.while_loop((x, n), lambda x, n: n > 0, lambda x, n: [x * 2, n - 1])

    def reference(x: Array, n: int) -> list[Any]:
        return [x * 2.0 ** max(n, 0), min(n, 0)]

    x = graphs.numbers((2, 3), np.float32)
    agree(forward, reference, [t(F32, 2, "n"), t(I64)], [x, 0], [x, -3], [x, 1], [x, 4], [x[:, :0], 3])


def test_one_value_need_no_list() -> None:
    def forward(x: Any) -> Any:
        return ops.while_loop(x, lambda v: v < 100, lambda v: v * 3)

    agree(forward, lambda x: [3 ** int(np.ceil(np.log(100) / np.log(3)))], [t(I64)], [np.int64(1)])


def test_values_change_places() -> None:
    """A body gives back what it got, elsewhere; twice; and something from outside."""

    def forward(x: Any, y: Any, n: Any) -> Any:
        body: Any = lambda a, b, c, d, k: [b, a, a, a, k + 1]  # noqa: E731
        first = ops.while_loop((x, y, x, y, 0), lambda a, b, c, d, k: k < n, body)
        second = ops.while_loop((x, 0), lambda a, k: k < n, lambda a, k: (y, k + 1))
        return first[:4] + second[:1] + [first[0]]

    def reference(x: Array, y: Array, n: int) -> list[Any]:
        a, b, c, d = x, y, x, y
        for _ in range(n):
            a, b, c, d = b, a, a, a
        return [a, b, c, d, y if n else x, a]

    x, y = graphs.numbers((5,), np.float32), graphs.numbers((5,), np.float32, 1)
    agree(forward, reference, [t(F32, "n"), t(F32, "n"), t(I64)], *([x, y, n] for n in range(4)))


def test_greedy_decoding_over_a_buffer() -> None:
    """Each step takes the best token, writes it, and stops at the end token or when the buffer is full."""
    vocabulary, length, end = 7, 6, 3

    def forward(table: Any, tokens: Any, first: Any) -> Any:
        def going(token: Any, n: Any) -> Any:
            return ops.logical_and(token != end, n < length)

        def step(token: Any, n: Any) -> Any:
            best = ops.argmax(table[token], 0, keepdims=False)
            tokens[n] = best
            return best, n + 1

        return ops.while_loop((first, 0), going, step)

    def reference(table: Array, tokens: Array, first: int) -> list[Any]:
        token, n = first, 0
        while token != end and n < length:
            token = int(np.argmax(table[token]))
            tokens[n] = token
            n += 1
        return [token, n]

    table = np.random.default_rng(3).random((vocabulary, vocabulary)).astype(np.float32)
    types = [t(F32, vocabulary, vocabulary), held(I64, length), t(I64)]
    calls = [[table, np.zeros(length, np.int64), np.int64(k)] for k in range(vocabulary)]
    agree(forward, reference, types, *calls)


def test_a_branch_picks_one_of_two_networks() -> None:
    def forward(x: Any, w: Any, v: Any, deep: Any) -> Any:
        def large() -> Any:
            return ops.relu(ops.relu(x @ w) @ ops.transpose(w, 0, 1)) @ v

        return ops.cond(deep, [t(F64, "n", 2)], large, lambda: ops.softmax(x @ v + 1))

    def reference(x: Array, w: Array, v: Array, deep: bool) -> list[Any]:
        if deep:
            return [np.maximum(np.maximum(x @ w, 0) @ w.T, 0) @ v]
        e = np.exp(x @ v + 1)
        return [e / e.sum(-1, keepdims=True)]

    x, w, v = (graphs.numbers(shape, np.float64, 2) * 0.1 for shape in ((5, 4), (4, 8), (4, 2)))
    agree(forward, reference, [t(F64, "n", 4), t(F64, 4, 8), t(F64, 4, 2), t(BOOL)], [x, w, v, True], [x, w, v, False])


def test_branches_change_buffers() -> None:
    def forward(y: Any, up: Any, x: Any) -> Any:
        def then_fn() -> None:
            ops.buffer_store(y, y[...] + x)

        def else_fn() -> None:
            y[0] = x[0]

        assert ops.cond(up, None, then_fn, else_fn) == []
        return y[...] * 2

    def reference(y: Array, up: bool, x: Array) -> list[Any]:
        if up:
            y += x
        else:
            y[0] = x[0]
        return [y * 2]

    y, x = graphs.numbers((4,), np.float32), graphs.numbers((4,), np.float32, 1)
    agree(forward, reference, [held(F32, "n"), t(BOOL), t(F32, "n")], [y, True, x], [y, False, x])


def test_while_within_cond_within_while() -> None:
    """Collatz: how long until 1, where the even steps are done in a loop of their own."""

    def forward(x: Any) -> Any:
        def even(x: Any) -> Any:
            return x % 2 == 0

        def step(x: Any, n: Any) -> Any:
            def halve() -> Any:
                return ops.while_loop((x, n), lambda v, k: even(v), lambda v, k: [v // 2, k + 1])

            return ops.cond(even(x), [t(I64), t(I64)], halve, lambda: (3 * x + 1, n + 1))

        return ops.while_loop((x, 0), lambda x, n: x != 1, step)

    def reference(x: int) -> list[Any]:
        n = 0
        while x != 1:
            x, n = (x // 2 if x % 2 == 0 else 3 * x + 1), n + 1
        return [x, n]

    agree(forward, reference, [t(I64)], *([np.int64(x)] for x in (1, 2, 7, 27)))


def test_a_recurrent_cell_over_time_steps() -> None:
    steps, width = 5, 3

    def forward(xs: Any, w: Any, h: Any) -> Any:
        def cell(h: Any, k: Any) -> Any:
            return ops.tanh(xs[k] + h @ w), k + 1

        return ops.while_loop((h, 0), lambda h, k: k < steps, cell)[0]

    def reference(xs: Array, w: Array, h: Array) -> list[Any]:
        for x in xs:
            h = np.tanh(x + h @ w)
        return [h]

    shapes = ((steps, 4, width), (width, width), (4, width))
    arrays = [graphs.numbers(shape, np.float64, 5) * 0.1 for shape in shapes]
    agree(forward, reference, [t(F64, steps, "b", width), t(F64, width, width), t(F64, "b", width)], arrays)


def test_a_counted_loop_with_an_early_exit() -> None:
    def forward(x: Any, limit: Any, most: Any) -> Any:
        def going(total: Any, k: Any) -> Any:
            return ops.logical_and(k < most, ops.sum(total, None, keepdims=False) < limit)

        return ops.while_loop((x, 0), going, lambda total, k: [total + x * ops.cast(k, F64), k + 1])

    def reference(x: Array, limit: float, most: int) -> list[Any]:
        total, k = x, 0
        while k < most and total.sum() < limit:
            total, k = total + x * k, k + 1
        return [total, k]

    x = np.array([0.5, 1.0])
    agree(forward, reference, [t(F64, "n"), t(F64), t(I64)], [x, 40.0, 3], [x, 40.0, 100], [x, -1.0, 5])


# *** values, memory and sizes ***


def test_what_is_outside_of_a_loop_is_read_in_every_round() -> None:
    """Temporaries of outside live until the loop ends, those of the body share memory with nothing that lives."""

    def forward(x: Any, n: Any) -> Any:
        outside = ops.softmax(x * 2)

        def body(a: Any, k: Any) -> Any:
            inner = ops.softmax(a + outside)
            return ops.softmax(inner - outside) + a, k + 1

        a, _ = ops.while_loop((x, 0), lambda a, k: k < n, body)
        return ops.softmax(a * outside), ops.softmax(a)

    def softmax(x: Array) -> Array:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)  # type: ignore[no-any-return]

    def reference(x: Array, n: int) -> list[Any]:
        outside, a = softmax(x * 2), x
        for _ in range(n):
            a = softmax(softmax(a + outside) - outside) + a
        return [softmax(a * outside), softmax(a)]

    x = graphs.numbers((3, 40), np.float64) * 0.1
    agree(forward, reference, [t(F64, "m", "n"), t(I64)], *([x, n] for n in (0, 1, 2, 5)))


def test_loops_begin_anew_with_each_call() -> None:
    """Odd numbers of rounds leave the values in the other of two places."""
    forward = lambda x, n: ops.while_loop((x, n), lambda x, n: n > 0, lambda x, n: [x + 1, n - 1])  # noqa: E731
    for model in models(forward, t(F32, 2), t(I64)):
        for n in (1, 1, 2, 3, 1, 0):
            got = graphs.results(model, np.zeros(2, np.float32), np.int64(n))
            np.testing.assert_array_equal(got[0], [n, n])


def test_many_threads_call_one_model() -> None:
    forward = lambda x, n: ops.while_loop((x, n), lambda x, n: n > 0, lambda x, n: [x + 1, n - 1])  # noqa: E731
    model = InferenceSession().load(Graph("test", forward, [t(I64, "n"), t(I64)]))

    def call(k: int) -> bool:
        got = graphs.results(model, np.arange(k + 1), np.int64(k))
        return bool((got[0] == np.arange(k + 1) + k).all() and got[1] == 0)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, [k % 17 for k in range(400)]))


def test_views_of_symbolic_shape_are_carried() -> None:
    def forward(x: Any) -> Any:
        part = x[1:, ::2]
        return ops.while_loop((part, 0), lambda v, n: n < 3, lambda v, n: [v + x[:-1, 1::2], n + 1])[0]

    x = graphs.numbers((4, 6), np.float32)
    for model in models(forward, t(F32, "m", 6)):
        for given in (x, x[::-1], x[:1]):
            (got,) = graphs.results(model, given)
            np.testing.assert_allclose(got, given[1:, ::2] + 3 * given[:-1, 1::2], rtol=1e-6)


def test_sizes_that_are_computed_before_a_loop_serve_in_it() -> None:
    """A stage of the call ends before the loop, and one behind it: its values stay where they are."""
    kernels = str(Path(__file__).parent / "shape_kernels.py")

    def forward(x: Any, n: Any) -> Any:
        (kept,) = ops.custom("nonzero", device=HOST, values=[x])
        looped, _ = ops.while_loop((kept, n), lambda v, k: k > 0, lambda v, k: [v + 1, k - 1])
        (more,) = ops.custom("nonzero", device=HOST, values=[looped])
        return looped * 1, more, looped

    graph = Graph("test", forward, [t(I64, "n"), t(I64)], custom_extensions=[kernels])
    for interpret in (False, True):
        model = InferenceSession(interpret=interpret).load(graph)
        for x, n in (
            (np.array([0, 3, 0, 5, 7]), 0),
            (np.array([4, 1, 0]), 1),
            (np.ones(6, int), 2),
            (np.zeros(3, int), 1),
        ):
            looped = np.argwhere(x) + n
            for got, wanted in zip(graphs.results(model, x, n), (looped, np.argwhere(looped), looped), strict=True):
                np.testing.assert_array_equal(got, wanted)


def test_sizes_are_computed_before_the_bodies_that_request_them() -> None:
    """Elements are picked in branches and loops, by what outer values, inner branches and other sizes say."""

    def forward(x: Any, p: Any, n: Any) -> Any:
        def picked(limit: Any, dim: str) -> Any:
            return ops.gather(x, ops.squeeze(ops.nonzero(x > limit, dim), 1), 0)

        def inner() -> Any:
            limit = ops.cond(n > 1, [n.type], lambda: n * 2, lambda: n)[0]  # a branch that a size depends on
            large = picked(limit, "large")
            again = ops.nonzero(large % 2 == 0, "even")  # a size that depends on another
            last = ops.max(ops.concat([again[:, 0], np.array([0])]), axis=0, keepdims=False)
            return ops.sum(large, 0, keepdims=False) + last, limit

        def body(total: Any, k: Any) -> Any:
            more, limit = ops.cond(p, [n.type, n.type], inner, lambda: (n * 0, -n))
            length = ops.shape_to_tensor(picked(n, "above").shape)[0]
            return total + more * k + limit + length, k + 1

        total, _ = ops.while_loop((n * 0, 0), lambda total, k: k < 3, body)
        return total, *ops.cond(
            p, [t(I64, "above")], lambda: x[: picked(n, "above").shape[0]], lambda: picked(n, "above")
        )

    def reference(x: Array, p: Array, n: Array) -> Any:
        limit = n * 2 if n > 1 else n
        large = x[x > limit]
        more = large.sum() + max([*np.flatnonzero(large % 2 == 0), 0])
        above = x[x > n]
        each = [(more * k + limit if p else -n) + len(above) for k in range(3)]
        return sum(each), x[: len(above)] if p else above

    x = np.array([4, 0, 3, 7, 8, 1, 2, 6])
    calls = [[x[:count], p, n] for count in (8, 0, 3) for p in (True, False) for n in (0, 1, 3)]
    agree(forward, reference, [t(I64, "n"), t(BOOL), t(I64)], *calls)


@pytest.mark.parametrize("checks", ["off", "safe", "all+nan"])
def test_all_levels_of_checks(checks: str) -> None:
    def forward(x: Any, n: Any) -> Any:
        v, _ = ops.while_loop((x, n), lambda v, k: k > 0, lambda v, k: [ops.softmax(v), k - 1])
        return ops.cond(n > 1, [x.type], lambda: v, lambda: v * 2)

    model = InferenceSession(checks=checks).load(Graph("test", forward, [t(F64, 3), t(I64)]))
    (got,) = graphs.results(model, np.zeros(3), 2)
    np.testing.assert_allclose(got, np.full(3, 1 / 3))


def test_a_failure_in_a_body_names_both_lines() -> None:
    kernels = str(__file__).replace("test_control_flow.py", "buffer_kernels.py")

    def forward(y: Any) -> Any:
        def grow(k: Any) -> Any:
            ops.inplace_custom("stops", HOST, [y, ops.constant(100.0, F32, HOST)])
            return k + 1

        return ops.while_loop(0, lambda k: k < 100, grow)

    graph = Graph("test", forward, [held(F32, 2)], custom_extensions=[kernels])
    for interpret in (False, True):
        model, y = InferenceSession(interpret=interpret).load(graph), np.array([3.0, 1.0], np.float32)
        with pytest.raises(KernelError) as caught:
            model(y)
        assert "192.0 is too large" in str(caught.value) and "test_control_flow.py" in str(caught.value)
        np.testing.assert_array_equal(y, [192.0, 64.0])
        y[...] = 0
        assert graphs.results(model, y)[0] == 100


def test_what_bodies_print_comes_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a loop whose results nothing wants."""

    def forward(n: Any) -> None:
        def body(k: Any) -> Any:
            ops.print(k, label="round")
            ops.cond(k == 1, None, lambda: ops.print("one"), lambda: None)
            return k + 1

        ops.print("before")
        ops.while_loop(0, lambda k: k < n, body)
        ops.print("after")

    for model in models(forward, t(I64)):
        for n in (3, 0):
            model(n)
            said = [line.split()[0].rstrip(":") for line in capsys.readouterr().out.splitlines()]
            assert said == ["before", *["round", "round", "one", "round"][: 4 if n else 0], "after"]


def nested(x: Any) -> Any:
    def body(n: Any, v: Any) -> Any:
        return [n - 1, *ops.cond(n == 1, [x.type], lambda: ops.exp(v), lambda: v)]

    return ops.while_loop((x[0], x), lambda n, v: n > 0, body)[1]


def test_the_text_of_a_graph() -> None:
    assert str(Graph("g", nested, [t(F32, 2)])) == TEXT


def test_reproducers_hold_control_flow() -> None:
    ir = Graph("g", nested, [t(F32, 2)]).ir
    held = json.loads(json.dumps(graph_to_json(ir, True, SAFE, False)))
    again = graph_from_json(held)[0]
    assert str(again) == TEXT and [again.regions.of, again.regions.owner] == [ir.regions.of, ir.regions.owner]
    spec = make_plan(ir, partition(ir, partial(node_facts, ir, host()))).entry
    assert spec is not None and UNITS.read(json.loads(json.dumps(UNITS.write(spec)))).steps == spec.steps


def test_the_typed_program_says_what_runs_when() -> None:
    ir = Graph("g", nested, [t(F32, 2)]).ir
    spec = make_plan(ir, partition(ir, partial(node_facts, ir, host()))).entry
    assert spec is not None and list(groups_in(spec.steps)) == list(range(len(spec.groups)))
    text = print_program(typed_program(spec, host()))
    assert text[text.index("\ncall ") + 1 :] == STEPS


STEPS = """\
call copy_0(buffer 0, buffer 2)
call copy_1(buffer 0, buffer 3)
while {
  call greater_2(buffer 2, buffer 4)
} buffer 4 do {
  call sub_3(buffer 2, buffer 5)
  call equal_4(buffer 2, buffer 6)
  if buffer 6 {
    call exp_5(buffer 3, buffer 7)
  } else {
    call copy_1(buffer 3, buffer 7)
  }
  swap buffer 2, buffer 5
  swap buffer 3, buffer 7
}
call copy_1(buffer 3, buffer 1)
"""


TEXT = """\
graph g(%0: Tensor[float32, (2), cpu:0]) {
  %1 = slice(%0) {starts = (0,), steps = (1,)} : Tensor[float32, (1), cpu:0]
  %2 = reshape(%1) : Tensor[float32, (), cpu:0]
  %3 = copy(%2) : Tensor[float32, (), cpu:0]
  %4 = copy(%0) : Tensor[float32, (2), cpu:0]
  %16, %17 = while_loop(%5 = %3, %6 = %4) : Tensor[float32, (), cpu:0], Tensor[float32, (2), cpu:0] {
    %7 = constant 0.0 : Tensor[float32, (), cpu:0]
    %8 = greater(%5, %7) : Tensor[bool, (), cpu:0]
    yield %8
  } do {
    %9 = constant 1.0 : Tensor[float32, (), cpu:0]
    %10 = sub(%5, %9) : Tensor[float32, (), cpu:0]
    %11 = constant 1.0 : Tensor[float32, (), cpu:0]
    %12 = equal(%5, %11) : Tensor[bool, (), cpu:0]
    %15 = cond(%12) : Tensor[float32, (2), cpu:0] {
      %13 = exp(%6) : Tensor[float32, (2), cpu:0]
      yield %13
    } else {
      %14 = copy(%6) : Tensor[float32, (2), cpu:0]
      yield %14
    }
    yield %10, %15
  }
  %18 = copy(%17) : Tensor[float32, (2), cpu:0]
  output %18
}"""


def test_a_condition_of_one_element_needs_no_reshape() -> None:
    """Reductions keep their axes."""

    def forward(x: Any) -> Any:
        y = ops.while_loop([x], lambda v: ops.max(v, axis=None) < 100.0, lambda v: [v * 2.0])[0]
        return ops.cond(ops.sum(y, axis=0) > 0.0, [x.type], lambda: y, lambda: -y)

    x = np.float32([1, -2, 3])
    assert graphs.run(forward, x)[0].tolist() == [64 * 1.0, 64 * -2.0, 64 * 3.0]


# *** sizes that are stated ***


def test_slices_of_a_stated_size_move_with_a_loop() -> None:
    def forward(x: Any, y: Any, n: Any) -> Any:
        def body(i: Any, total: Any, inner: Any) -> Any:
            first = ops.cond(i > 1, [TensorType(F32, [2], HOST)], lambda: y[(slice(i, i + 2), 2)], lambda: y[:2])[0]
            return i + 1, total + x[(slice(i, i + 2), 2),], inner + first

        start = ops.broadcast_to(ops.constant(0.0, F32, HOST), [2, x.shape[1]])
        begin = ops.broadcast_to(ops.constant(0.0, F32, HOST), [2])
        return ops.while_loop((0, start, begin), lambda i, total, inner: i < n, body)[1:]

    types = [TensorType(F32, ["m", "k"], HOST), TensorType(F32, ["m"], HOST), TensorType(DType.int64, [], HOST)]
    model = InferenceSession().load(Graph("moves", forward=forward, input_types=types))
    x, y = np.arange(30, dtype=np.float32).reshape(6, 5), np.arange(6, dtype=np.float32)
    for rounds in (0, 1, 5):
        total, inner = (result.to_numpy() for result in model(x, y, rounds))
        np.testing.assert_array_equal(total, sum((x[i : i + 2] for i in range(rounds)), np.zeros((2, 5))))
        parts = [y[i : i + 2] if i > 1 else y[:2] for i in range(rounds)]
        np.testing.assert_array_equal(inner, sum(parts, np.zeros(2)))
    with pytest.raises(KernelError, match="out of range"):
        model(x, y, 6)


def test_a_stated_size_is_checked_in_each_round() -> None:
    def forward(x: Any, n: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            part = ops.nonzero(x > i, 2)
            return i + 1, total + ops.sum(part.reshape([2]), 0).reshape([])

        return ops.while_loop((0, 0), lambda i, total: i < n, body)[1]

    types = [TensorType(DType.int64, ["m"], HOST), TensorType(DType.int64, [], HOST)]
    model = InferenceSession().load(Graph("finds", forward=forward, input_types=types))
    assert int(model(np.array([9, 0, 0, 9]), 2)[0].to_numpy()) == 6
    with pytest.raises(KernelError, match="another number of them: 3 and 2"):
        model(np.array([9, 0, 8, 9]), 2)
