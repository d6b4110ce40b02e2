"""Buffers of graphs: memory of the caller's that is changed in place, in the order in which ops were staged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, KernelError
from einkorn.graph import (
    Buffer,
    BufferType,
    BufferValue,
    DeviceRef,
    Dim,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    ops,
)
from einkorn.graph.engine.model import Model

HOST = DeviceRef.CPU()
KERNELS = str(Path(__file__).parent / "buffer_kernels.py")
F32, I64 = DType.float32, DType.int64


def held(dtype: DType = F32, *shape: int | str) -> BufferType:
    return BufferType(dtype, list(shape), HOST)


def build(forward: Callable[..., Any], *types: Any, kernels: str = KERNELS) -> Graph:
    return Graph("test", forward=forward, input_types=types, custom_extensions=[kernels])


def load(forward: Callable[..., Any], *types: Any, **more: Any) -> Model:
    return InferenceSession().load(build(forward, *types, **more))


def inplace(op: str, *values: Any, **more: Any) -> list[Any]:
    return ops.inplace_custom(op, device=HOST, values=list(values), **more)


@pytest.mark.parametrize("interpret", [False, True])
def test_a_kernel_changes_the_callers_memory(interpret: bool) -> None:
    def forward(y: BufferValue, a: Any, x: Any) -> None:
        inplace("axpy_into", y, a, x * 2)

    graph = build(forward, held(F32, "m", "n"), TensorType(F32, [], HOST), TensorType(F32, ["m", "n"], HOST))
    model = InferenceSession(interpret=interpret).load(graph)
    y, x = graphs.numbers((3, 5), np.float32), graphs.numbers((3, 5), np.float32, 1)
    expected, kept = y.copy(), x.copy()
    for a in (0.5, 2.0):
        assert model(y, a, x) == []
        expected = expected + np.float32(a) * (x * np.float32(2))
        np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, kept)
    buffer = Buffer.from_numpy(y)
    model(buffer, 1, x)
    np.testing.assert_array_equal(buffer.to_numpy(), expected + x * np.float32(2))


def test_effects_happen_in_the_order_of_staging() -> None:
    def forward(y: BufferValue, x: Any) -> list[Any]:
        before = y[...]
        ops.buffer_store(y, before * 2 + x)
        middle = ops.buffer_load(y)
        (sums,) = inplace("bump_and_sum", y, x[0])
        (read,) = inplace("row_total", y)
        y[1:, 0] = 7
        y[0] = x[0, 0]
        after = y[...]
        return [before, middle, sums, read, after, before + 1]

    model = load(forward, held(F32, 3, 4), TensorType(F32, [3, 4], HOST))
    y, x = graphs.numbers((3, 4), np.float32), graphs.numbers((3, 4), np.float32, 1)
    start = y.copy()
    results = graphs.results(model, y, x)
    middle = start * 2 + x
    bumped = middle + x[0]
    sums = bumped[:, 0] - bumped[:, 0]
    for c in range(4):
        sums = sums + bumped[:, c]
    final = bumped.copy()
    final[1:, 0] = 7
    final[0] = x[0, 0]
    for actual, expected in zip(results, [start, middle, sums, sums, final, start + 1], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_array_equal(y, results[4])


def test_what_is_loaded_keeps_its_value() -> None:
    """A value that was loaded is a tensor: later stores do not show in it, wherever it is used."""

    def forward(n: BufferValue) -> list[Any]:
        values = []
        for k in range(6):
            value = n[...] + k
            values.append(value)
            ops.buffer_store(n, value * 3)
        return [*values, sum(values[1:], values[0])]

    model = load(forward, held(I64))
    n = np.array(5)
    results = [int(r) for r in graphs.results(model, n)]
    expected, now = [], 5
    for k in range(6):
        expected.append(now + k)
        now = (now + k) * 3
    assert results == [*expected, sum(expected)] and int(n) == now


def test_a_graph_has_buffers_of_its_own() -> None:
    def forward(x: Any) -> Any:
        own = ops.buffer_create(held(F32, "n"))
        other = ops.buffer_create(x.type.as_buffer())
        ops.buffer_store(own, 0.0)
        ops.buffer_store(other, x)
        inplace("axpy_into", own, 2.0, x)
        inplace("swap", own, other)
        return own[...], other[::-1], own[1:3]

    model = load(forward, TensorType(F32, ["n"], HOST))
    for n in (3, 1000, 3):
        x = graphs.numbers((n,), np.float32)
        a, b, c = graphs.results(model, x)
        np.testing.assert_array_equal(a, x)
        np.testing.assert_array_equal(b, (x * 2)[::-1])
        np.testing.assert_array_equal(c, x[1:3])


def test_slices_are_written_as_numpy_writes_them() -> None:
    indices = [(slice(1, 3),), (Ellipsis, slice(None, None, -2)), (0, 1), (slice(None), -1), (None, 2), (slice(2, 2),)]
    for index in indices:
        part = np.zeros((4, 5))[index]
        source = graphs.numbers(part.shape, np.float32, 3)

        def forward(y: BufferValue, x: Any, index: Any = index) -> None:
            y[index] = x

        model = load(forward, held(F32, 4, 5), TensorType(F32, part.shape, HOST))
        y = graphs.numbers((4, 5), np.float32)
        expected = y.copy()
        expected[index] = source
        model(y, source)
        np.testing.assert_array_equal(y, expected)


def test_a_kernel_that_stops_leaves_what_it_did() -> None:
    model = load(lambda y: inplace("stops", y, 10) and None, held(I64, "n"))
    y = np.array([1, 2, 30, 4])
    with pytest.raises(KernelError, match="30 is too large"):
        model(y)
    assert y.tolist() == [2, 4, 30, 4]
    y[2] = 0
    model(y)
    assert y.tolist() == [4, 8, 0, 8]


MEMORY: dict[str, tuple[Callable[[], tuple[Any, ...]], str, str]] = {
    "read-only": (lambda: (np.frombuffer(bytes(16), np.float32), np.ones(4, np.float32)), "EK0461", "read-only"),
    "a number": (lambda: (1.0, np.ones(4, np.float32)), "EK0452", "not a tensor but float"),
    "dtype": (lambda: (np.ones(4), np.ones(4, np.float32)), "EK0452", "holds float64"),
    "the same": (lambda: ((a := np.ones(4, np.float32)), a), "EK0462", "shares memory with 'x'"),
    "overlap": (lambda: ((a := np.ones(7, np.float32))[:4], a[3:]), "EK0462", "shares memory with 'x'"),
    "shape": (lambda: (np.ones(4, np.float32), np.ones(5, np.float32)), "EK0454", "dim 'n' is 4"),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_checked_before_it_is_touched(name: str) -> None:
    make, code, message = MEMORY[name]
    model = load(lambda y, x: inplace("axpy_into", y, 1.0, x) and None, held(F32, "n"), TensorType(F32, ["n"], HOST))
    values = make()
    before = [np.array(v) for v in values]
    with pytest.raises(EinkornError, match=message) as caught:
        model(*values)
    assert caught.value.code == code and caught.value.place is not None and caught.value.place.file == __file__
    for old, value in zip(before, values, strict=True):
        np.testing.assert_array_equal(old, value)
    base = np.ones(8, np.float32)
    model(base[:4], base[4:])  # neighbours share nothing
    assert base.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]


WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "custom": (lambda y, x: ops.custom("axpy_into", HOST, [y, 1.0, x]), "EK0442", "changes 'y' in place"),
    "a tensor": (lambda y, x: inplace("axpy_into", x, 1.0, x), "EK0460", "'y' is changed in place, and a tensor"),
    "no buffer": (lambda y, x: inplace("row_total", x), "EK0460", "none of the values is a buffer"),
    "twice": (lambda y, x: inplace("swap", y, y), "EK0463", "and is also argument 'y'"),
    "read too": (lambda y, x: inplace("axpy_into", y, 1.0, y), "EK0463", "and is also argument 'x'"),
    "an operand": (lambda y, x: x + y, "EK0403", "not a tensor but BufferValue"),
    "an output": (lambda y, x: y, "EK0405", "not a value but BufferValue"),
    "load": (lambda y, x: ops.buffer_load(x), "EK0460", "is not a buffer but TensorValue"),
    "create": (lambda y, x: ops.buffer_create(x.type), "EK0460", "a buffer needs a BufferType"),
    "store shape": (lambda y, x: ops.buffer_store(y, x[1:]), "EK0421", "and \\(4\\) is written"),
    "store dtype": (lambda y, x: ops.buffer_store(y, x.cast(I64)), "EK0413", "the source holds int64"),
    "slice": (lambda y, x: y.__setitem__(slice(0, 9), 1), "EK0425", "out of range"),
    "shape": (lambda y, x: inplace("axpy_into", y, 1.0, x[1:]), "EK0312", "dims '\\*s'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_reported_where_they_are_staged(name: str) -> None:
    forward, code, message = WRONG[name]
    with pytest.raises((GraphError, DTypeError), match=message) as caught:
        build(forward, held(F32, 4), TensorType(F32, [4], HOST))
    assert caught.value.code == code
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_types_distinguish_tensors_from_buffers() -> None:
    tensor, buffer = TensorType(F32, ["n", 3], HOST), held(F32, "n", 3)
    assert tensor != buffer and tensor.as_buffer() == buffer and buffer.as_tensor() == tensor
    assert {tensor: 1, buffer: 2}[buffer] == 2
    assert str(buffer) == "Buffer[float32, (n, 3), cpu:0]"
    graph = build(lambda y: inplace("stops", y, 1.0) and None, held(F32, "n"))
    assert "%2 = stops" not in str(graph) and " = stops(%0, %1) : " in str(graph)
    with Graph("two", input_types=[buffer, tensor]) as two:
        y, x = two.inputs
        assert y.buffer is y and x.tensor is x and y.type == buffer
        for wrong in (lambda: y.tensor, lambda: x.buffer):
            with pytest.raises(GraphError):
                wrong()
        with pytest.raises(GraphError, match="at least one output"):
            two.output()
        two.output(x)


def test_packages_hold_ready_made_code_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "instances.json"
    listed.write_text('{"axpy_into": [{"ranks": {"s": 1}}], "bump_and_sum": [{}]}')
    build_package(KERNELS, str(tmp_path / "k.pkg"), ["host", "sm_80"], instances=str(listed))
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    with graphs.cache_in(tmp_path / "cache"):
        kernels = str(tmp_path / "k.pkg")
        types = [held(F32, "n"), TensorType(F32, ["n"], HOST)]
        model = load(lambda y, x: inplace("axpy_into", y, 3.0, x) and None, *types, kernels=kernels)
        y, x = np.float32([1, 2]), np.float32([10, 20])
        model(y, x)
        assert y.tolist() == [31, 62]
        types = [held(F32, "m", "n"), TensorType(F32, ["n"], HOST)]
        model = load(lambda y, x: inplace("bump_and_sum", y, x), *types, kernels=kernels)
        rows = np.ones((2, 2), np.float32)
        assert graphs.results(model, rows, x)[0].tolist() == [32, 32]
        assert rows.tolist() == [[11, 21], [11, 21]]


# *** loads that are read in place ***


def test_an_op_that_only_reads_takes_a_buffer() -> None:
    def forward(y: BufferValue) -> Any:
        before = ops.custom("row_total", HOST, [y])[0]
        y[0] = 0.0
        return before, ops.custom("row_total", HOST, [y])[0]

    y = graphs.numbers((3, 4), np.float32)
    start = y.copy()
    before, after = graphs.results(load(forward, held(F32, 3, 4)), y)
    np.testing.assert_allclose(before, start.sum(1), rtol=1e-6)
    np.testing.assert_allclose(after, [0, *start[1:].sum(1)], rtol=1e-6)


COPIES = {  # by name: what a graph does with a buffer of (4, 3), and whether a kernel copies all of it
    "a part": (lambda b, x: b[1] + x, False),
    "a part of a part, turned": (lambda b, x: ops.permute(b[1:3], [1, 0])[0] * x[0], False),
    "a store to another part": (lambda b, x: then(b[1] + 0, lambda: store(b, 2, x), b[1]), False),
    "a part before its store": (lambda b, x: then(b[1], lambda: store(b, 1, x)), False),
    "in place": (lambda b, x: store(b, Ellipsis, b[...] * 2), False),
    "a part in place": (lambda b, x: store(b, slice(1, 3), b[1:3] * 2), False),
    "the whole before a store": (lambda b, x: then(b[...], lambda: store(b, 1, x)), True),
    "turned in place": (lambda b, x: store(b, slice(0, 3), ops.permute(b[...][:3], [1, 0])), False),
}


def store(b: BufferValue, index: Any, x: Any) -> Any:
    b[index] = x
    return ops.buffer_load(b)[0]


def then(value: Any, change: Callable[[], Any], other: Any = None) -> Any:
    change()
    return value + 1 if other is None else value + other


@pytest.mark.parametrize("name", COPIES)
def test_loads_copy_where_a_store_comes_before_their_use(name: str) -> None:
    call, copies = COPIES[name]
    graph = build(call, held(F32, 4, 3), TensorType(F32, [3], HOST))
    model = InferenceSession().load(graph)
    whole = [kernel for kernel in model.kernel_summaries if kernel.name == "buffer_load"]
    assert bool(whole) == copies, str(model.kernel_summaries)
    b, x = graphs.numbers((4, 3), np.float32), graphs.numbers((3,), np.float32, 1)
    memory = b.copy()
    (result,) = graphs.results(model, memory, x)
    plain = InferenceSession(interpret=True).load(graph)
    other = b.copy()
    (wanted,) = graphs.results(plain, other, x)
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(memory, other)


# *** sizes that are expressions ***


def test_sizes_of_inputs_may_be_expressions() -> None:
    s = Dim("s")
    types = [TensorType(F32, ["s"], HOST), held(F32, s + 1), TensorType(F32, [2 * s, 3 * Dim("k") + s], HOST)]

    def forward(x: Any, y: BufferValue, z: Any) -> Any:
        y[1:] = x
        return y[:-1] + x, z.reshape([2, s, 3 * Dim("k") + s])[0]

    model = InferenceSession().load(Graph("expressions", forward=forward, input_types=types))
    for n, k in ((3, 1), (0, 2), (5, 0)):
        x, y, z = np.arange(n, dtype=np.float32), np.full(n + 1, 7, np.float32), np.ones((2 * n, 3 * k + n), np.float32)
        returned, first = graphs.results(model, x, y, z)
        np.testing.assert_array_equal(y, [7, *x])
        np.testing.assert_array_equal(returned, y[:-1] + x)
        assert first.shape == (n, 3 * k + n)
    for sizes, text in (
        ((3, 3, (6, 3)), "'y' has size 3 on axis 0, the graph takes s + 1, with s = 3"),
        ((3, 4, (5, 3)), "'z' has size 5 on axis 0, the graph takes 2*s, with s = 3"),
        ((3, 4, (6, 4)), "'z' has size 4 on axis 1, the graph takes 3*k + s, with s = 3"),
        ((3, 4, (6, 0)), "'z' has size 0 on axis 1"),
    ):
        with pytest.raises(GraphError) as raised:
            model(*(np.zeros(size, np.float32) for size in sizes))
        assert raised.value.code == "EK0454" and text in raised.value.message, raised.value.message


@pytest.mark.parametrize("size", [Dim("s") * Dim("s"), Dim("s") // 2, Dim("s") + Dim("t")])
def test_sizes_from_which_no_name_follows_are_refused(size: Dim) -> None:
    with pytest.raises(GraphError) as raised:
        Graph("unsolved", forward=lambda x: x, input_types=[TensorType(F32, [size], HOST)])
    assert raised.value.code == "EK0406" and "'s' does not follow" in raised.value.message
    Graph("solved", forward=lambda x, s, t: x, input_types=[TensorType(F32, [d], HOST) for d in (size, "s", "t")])


def test_subgraphs_take_expressions() -> None:
    s = Dim("s")
    types = [TensorType(F32, [s + 1], HOST), TensorType(F32, ["s"], HOST)]
    inner = Graph("inner", forward=lambda x, y: x[1:] * y, input_types=types)
    model = load(lambda z: ops.call(inner, z, z[1:])[0], TensorType(F32, ["n"], HOST))
    z = graphs.numbers((6,), np.float32)
    np.testing.assert_array_equal(graphs.results(model, z)[0], z[1:] * z[1:])
    with pytest.raises(GraphError) as raised:
        build(lambda z: ops.call(inner, z, z)[0], TensorType(F32, ["n"], HOST))
    assert raised.value.code == "EK0449"
