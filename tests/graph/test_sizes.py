"""Sizes that cannot be: below zero or beyond 64 bits, in types, in every value of a graph, and in empty axes.

Whatever a graph computes with them would be nothing, or memory of others; so a call says which op it was, before
anything is computed, with every level of run-time checks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import graphs

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import BufferType, DeviceRef, Dim, DType, Graph, InferenceSession, Shape, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.types.dims import ceildiv

KERNELS = str(Path(__file__).parent / "size_kernels.py")
HOST = DeviceRef.CPU()
F32, I64 = DType.float32, DType.int64


def T(*shape: Any, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape, HOST)


def custom(name: str, *values: Any, out: Any = None) -> Any:
    return ops.custom(name, HOST, values, None if out is None else [T(*out)])[0]


def build(forward: Callable[..., Any], *types: Any) -> Graph:
    return Graph("sizes", forward, types, custom_extensions=[KERNELS])


def refused(model: Model, *inputs: Any) -> GraphError:
    with pytest.raises(GraphError) as caught:
        model(*inputs)
    error = caught.value
    assert error.place is not None and error.place.file == __file__
    return error


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def one() -> Any:
    return ops.constant(1.0, F32)


# --- types ---


@pytest.mark.parametrize("make", [TensorType, BufferType])
@pytest.mark.parametrize(
    ("shape", "code"),
    [
        ([-1], "EK0475"),
        ([3, Dim(2) - 5], "EK0475"),
        (["n", -Dim("n") - 1], "EK0475"),
        (Shape([-1]), "EK0475"),
        ([2**63], "EK0335"),
        ([2**70], "EK0335"),
        ([2**62], "EK0476"),
        ([2**31, 2**31], "EK0476"),
        ([0, 2**40, 2**40], "EK0476"),
        (["n", 2**62], "EK0476"),
        ([2**62, "n", 2**62], "EK0476"),
    ],
)
def test_types_refuse_what_no_tensor_has(make: Any, shape: Any, code: str) -> None:
    with pytest.raises(GraphError) as caught:
        make(F32, shape, HOST)
    assert caught.value.code == code
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_types_take_all_others() -> None:
    for shape in ([], [0], [0, 0, "n"], [2**60], [2**30, 2**30], ["n", "m", 2**40], [Dim("n") - 5, Dim("n") * -1 + 3]):
        assert TensorType(F32, shape, HOST).shape == shape
    assert TensorType(DType.int8, [2**63 - 1], HOST).rank == 1


@pytest.mark.parametrize(
    ("forward", "op", "code"),
    [
        (lambda x: ops.broadcast_to(one(), [-1]), "broadcast_to", "EK0475"),
        (lambda x: ops.broadcast_to(one(), [Dim(3) - 5]), "broadcast_to", "EK0475"),
        (lambda x: ops.broadcast_to(one(), [-1 - x.shape[0]]), "broadcast_to", "EK0475"),
        (lambda x: ops.broadcast_to(one(), [2**62]), "broadcast_to", "EK0476"),
        (lambda x: ops.broadcast_to(one(), [2**70]), "broadcast_to", "EK0335"),
        (lambda x: ops.broadcast_to(one(), [2**40, "n", 2**40]), "broadcast_to", "EK0476"),
        (lambda x: ops.reshape(x, [2**70, -1]), "reshape", "EK0335"),
        (lambda x: ops.rebind(x, [2**70]), "rebind", "EK0335"),
        (lambda x: ops.concat([ops.broadcast_to(one(), [2**60])] * 2), "concat", "EK0476"),
        (lambda x: ops.stack([ops.broadcast_to(one(), [2**60])] * 2), "concat", "EK0476"),
        (lambda x: ops.flatten(ops.broadcast_to(one(), [2**31, 2**31])), "broadcast_to", "EK0476"),
        (lambda x: custom("shrink", ops.broadcast_to(one(), [3, "n"])), "shrink", "EK0315"),
        (lambda x: custom("shrink", ops.broadcast_to(one(), [-x.shape[0] + 4, "n"])), "shrink", "EK0475"),
        (lambda x: custom("many", x), "many", "EK0335"),
    ],
)
def test_ops_refuse_what_is_known(forward: Callable[..., Any], op: str, code: str) -> None:
    with pytest.raises(GraphError) as caught:
        build(forward, T("n"))
    error = caught.value
    assert error.code == code and error.op == op, error
    assert error.place is not None and error.place.file == __file__


# --- calls ---

BELOW_ZERO: dict[str, tuple[Callable[..., Any], str, Callable[[Any], Any]]] = {
    # name: (graph of x: (n, m), the op that is named, the same in NumPy for n > 5)
    "an output": (lambda x: ops.broadcast_to(one(), [x.shape[0] - 5]), "broadcast_to", lambda x: ones(len(x) - 5)),
    "a reduction of it": (
        lambda x: ops.sum(ops.broadcast_to(one(), [x.shape[0] - 5])),
        "broadcast_to",
        lambda x: ones(len(x) - 5).sum(keepdims=True),
    ),
    "a custom op": (lambda x: custom("shrink", x), "shrink", lambda x: x[:-5]),
    "a reduction of a custom op": (
        lambda x: ops.sum(custom("shrink", x)),
        "shrink",
        lambda x: x[:-5].sum(-1, keepdims=True),
    ),
    "out_types": (lambda x: custom("fill", one(), out=[x.shape[0] - 5, 2]), "fill", lambda x: ones(len(x) - 5, 2)),
    "what is fused away": (
        lambda x: ops.mean(ops.exp(custom("fill", one(), out=[x.shape[0] - 5, 2]) - 1.0), (0, 1)),
        "fill",
        lambda x: ones(1, 1),
    ),
    "a part of a concat": (
        lambda x: ops.concat([ops.broadcast_to(one(), [x.shape[0] - 5]), ops.broadcast_to(one(), [x.shape[0]])]),
        "broadcast_to",
        lambda x: ones(2 * len(x) - 5),
    ),
    "two that make a positive product": (
        lambda x: ops.reshape(ops.broadcast_to(one(), [x.shape[0] - 5, x.shape[0] - 5]), [-1]),
        "broadcast_to",
        lambda x: ones((len(x) - 5) ** 2),
    ),
    "a minimum": (
        lambda x: ops.broadcast_to(one(), [x.shape[1].minimum(x.shape[0] - 5)]),
        "broadcast_to",
        lambda x: ones(min(x.shape[1], len(x) - 5)),
    ),
    "a part of a matrix product": (
        lambda x: custom("shrink", x) @ ops.transpose(x, 0, 1),
        "shrink",
        lambda x: x[:-5] @ x.T,
    ),
    "an unread result": (lambda x: (custom("shrink", x), x + 1.0)[1], "shrink", lambda x: x + 1),
}


@pytest.mark.parametrize("name", BELOW_ZERO)
def test_a_size_below_zero_is_reported_at_the_call(name: str) -> None:
    forward, op, reference = BELOW_ZERO[name]
    graph = build(forward, T("n", "m"))
    for checks in ("off", "safe", "all"):
        model = InferenceSession(checks=checks, interpret=checks == "all").load(graph)
        for n in (3, 0, 4):
            error = refused(model, ones(n, 2))
            assert (error.code, error.op) == ("EK0475", op), error
            assert f"n is {n}, axis 0 of 'x'" in error.notes and any("staged at" in note for note in error.notes)
            x = graphs.numbers((n + 7, 2), np.float32)
            np.testing.assert_allclose(graphs.results(model, x)[0], reference(x), rtol=1e-5, atol=1e-5)


def test_the_text_has_the_op_the_dim_its_value_and_where_it_is_from() -> None:
    model = InferenceSession().load(build(lambda x, y: ops.sum(custom("shrink", x)) + y, T("n", "m"), T(1)))
    error = refused(model, ones(3, 4), ones(1))
    assert error.message == "shrink: its result has the shape (n - 5, m), and axis 0 would have size -2"
    assert (error.argument, error.expected, error.got) == ("out", "n - 5 >= 0", "n - 5 = -2")
    assert error.notes[0] == "n is 3, axis 0 of 'x'"


def test_buffers_of_the_graphs_own() -> None:
    def forward(x: Any) -> Any:
        buffer = ops.buffer_create(BufferType(F32, [x.shape[0] - 5], HOST))
        ops.buffer_store(buffer, 2.0)
        return ops.sum(buffer[...], 0)

    model = InferenceSession().load(build(forward, T("n")))
    assert refused(model, ones(3)).code == "EK0475"
    assert graphs.results(model, ones(8))[0].tolist() == [6]


def test_each_stage_of_computed_sizes() -> None:
    def forward(x: Any, count: Any) -> Any:
        first = custom("counted", x, count)
        return ops.sum(ops.broadcast_to(one(), [first.shape[0] - 2]), 0)

    model = InferenceSession().load(build(forward, T("n"), T(dtype=I64)))
    for checks in ("off", "all"):
        model = InferenceSession(checks=checks).load(build(forward, T("n"), T(dtype=I64)))
        assert graphs.results(model, ones(1), 5)[0].tolist() == [3]
        error = refused(model, ones(1), 1)
        assert (error.code, error.op) == ("EK0475", "broadcast_to")
        assert error.notes[0] == "counted_k is 1, from the shape function of op 'counted'"
        assert graphs.results(model, ones(1), 3)[0].tolist() == [1]


def test_conditions_hold_also_for_what_nothing_reads() -> None:
    def forward(x: Any, count: Any) -> Any:
        ops.rebind(custom("counted", x, count), ["n"])
        ops.max(custom("counted", x, count))
        ops.broadcast_to(one(), [custom("counted", x, count).shape[0] - 9])  # of a size that is not even computed
        return x * 2.0

    model = InferenceSession().load(build(forward, T("n"), T(dtype=I64)))
    assert graphs.results(model, ones(2), 2)[0].tolist() == [2, 2]
    error = refused(model, ones(2), 7)
    assert (error.code, error.op, error.got) == ("EK0454", "rebind", "7 and 2")
    assert refused(model, ones(0), 0).code == "EK0424"


def test_a_division_by_zero_names_the_op() -> None:
    model = InferenceSession().load(build(lambda x, y: ops.sum(custom("per_block", x, y)), T("n"), T("k")))
    error = refused(model, ones(6), ones(0))
    assert (error.code, error.op) == ("EK0332", "per_block") and "n//k" in error.message
    assert graphs.results(model, ones(7), ones(2))[0].tolist() == [3]


TOO_LARGE: dict[str, tuple[Callable[..., Any], str]] = {
    "a multiple": (lambda x: ops.sum(ops.broadcast_to(one(), [x.shape[0] * 2**61])), "broadcast_to"),
    "beyond 64 bits": (lambda x: ops.sum(ops.broadcast_to(one(), [x.shape[0] * 2**62, 2])), "broadcast_to"),
    "a product": (lambda x: ops.sum(custom("fill", one(), out=[x.shape[0] * 2**20] * 3), (0, 1, 2)), "fill"),
    "an output": (lambda x: custom("fill", one(), out=[x.shape[0] * 2**61]), "fill"),
    "rounded up": (lambda x: custom("fill", one(), out=[ceildiv(x.shape[0] * 2**62, 1 + x.shape[0] // 9)]), "fill"),
    "next to an empty axis": (lambda x: custom("fill", one(), out=[x.shape[0] * 2**61, x.shape[0] - 2]), "fill"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_reported_at_the_call(name: str) -> None:
    forward, op = TOO_LARGE[name]
    model = InferenceSession(checks="off").load(build(forward, T("n")))
    error = refused(model, ones(2))
    assert (error.code, error.op) == ("EK0476", op) and "0 bytes" not in str(error)
    assert error.notes[0] == "n is 2, axis 0 of 'x'"
    if name != "next to an empty axis":
        assert graphs.results(model, ones(0))[0].sum() == 0


def test_a_number_of_elements_beyond_64_bits_when_no_size_is_0() -> None:
    """n*2**40 times 2**40 has no place in a dim, and none is made where n is 0."""

    def forward(x: Any) -> Any:
        big = custom("fill", one(), out=[x.shape[0] * 2**40, x.shape[0] * 2**40])
        return ops.sum(ops.exp(big) + big, 0), big * 2.0

    for interpret in (False, True):
        model = InferenceSession(interpret=interpret).load(build(forward, T("n")))
        assert [each.shape for each in graphs.results(model, ones(0))] == [(1, 0), (0, 0)]
        assert refused(model, ones(2)).code == "EK0476"


# --- empty axes ---


@pytest.mark.parametrize("op", [ops.max, ops.min, ops.argmax, ops.argmin])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_an_empty_axis_has_no_largest_element(op: Any, axis: int | None) -> None:
    sizes = {0: (0, 3), 1: (3, 0), -1: (3, 0), None: (0, 3)}[axis]
    with pytest.raises(GraphError) as static:
        build(lambda x: op(x, axis=axis), T(*sizes))
    model = InferenceSession().load(build(lambda x: op(x, axis=axis), T("n", "m")))
    error = refused(model, ones(*sizes))
    assert error.code == static.value.code == "EK0424" and error.op == op.__name__
    assert f"axis {sizes.index(0)}" in error.message and f"axis {sizes.index(0)}" in static.value.message
    x = graphs.numbers((4, 5), np.float32)
    wanted = getattr(np, op.__name__)(x, axis=axis, keepdims=True)
    np.testing.assert_array_equal(graphs.results(model, x)[0].reshape(wanted.shape), wanted)


def test_sums_and_means_of_nothing_keep_their_identities() -> None:
    model = graphs.load(lambda x: [ops.sum(x, 0), ops.mean(x, 0), ops.softmax(x)], (np.float32, ["n"]))
    total, mean, soft = graphs.results(model, ones(0))
    assert total.tolist() == [0] and np.isnan(mean).all() and soft.shape == (0,)


def test_what_surely_has_elements_needs_no_condition() -> None:
    graph = build(lambda x: ops.max(ops.concat([x, x[:1]])), T("n"))
    assert str(graph).count("require") == 1, "that x has the element x[:1]"
