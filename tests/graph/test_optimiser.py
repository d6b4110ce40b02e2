"""The passes over graphs: what each of them changes and leaves, and that no bit of a result differs."""

from __future__ import annotations

import functools
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from einkorn.dsl import InputTensor, Numeric, OutputTensor, foreach, max, register, unroll
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError, InternalError
from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.engine.optimising import optimise_graph
from einkorn.graph.ir import ConstantTensor, GraphIR, Node
from einkorn.graph.loading.load import load_graph
from einkorn.graph.passes.pipeline import PASSES, names
from einkorn.graph.passes.simplify import RULES
from einkorn.graph.passes.verify import verify_graph

CPU = DeviceRef.CPU()
T = TypeVar("T", bound=Numeric)
F32 = DType.float32
SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-42, 3.0, -7.25, 0.5, 2.0], np.float32).reshape(
    3, 4
)


def graph_of(f: Callable[..., Any], *types: Any) -> Graph:
    return Graph(
        "g", forward=f, input_types=[TensorType(d, s, CPU) for d, s in types] or [TensorType(F32, ["m", "n"], CPU)]
    )


def optimised(graph: Graph) -> GraphIR:
    ir = optimise_graph(graph.ir, load_graph, None, False).ir
    verify_graph(ir, graph.ir, "all")
    return ir


def ops_of(ir: GraphIR) -> Counter[str]:
    return Counter(node.name for node in ir.nodes if isinstance(node, Node))


def agree(graph: Graph, *inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results with and without the passes are the same to the bit."""
    session = InferenceSession()
    actual = [output.to_numpy() for output in session.load(graph)(*inputs)]
    monkeypatch.setenv("EINKORN_WITHOUT", "graph")
    wanted = [output.to_numpy() for output in session.load(graph)(*inputs)]
    monkeypatch.delenv("EINKORN_WITHOUT")
    for a, b in zip(actual, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# *** rules ***

I8, I32, F16, BOOL = DType.int8, DType.int32, DType.float16, DType.bool
MATRIX = ["m", "n"]
# By rule: a graph that it applies to, the type of its input, and the ops that are left.
APPLIES: dict[str, list[tuple[Callable[..., Any], DType, dict[str, int]]]] = {
    "neutral": [
        (lambda x: ops.exp(x + -0.0), F32, {"exp": 1}),
        (lambda x: ops.abs(0 + x), I32, {"abs": 1}),
        (lambda x: ops.exp(x - 0.0), F32, {"exp": 1}),
        (lambda x: ops.exp(x * 1), F32, {"exp": 1}),
        (lambda x: ops.exp(x * 1), DType.bfloat16, {"exp": 1}),
        (lambda x: ops.abs(1 * x), I8, {"abs": 1}),
        (lambda x: ops.exp(x / 1.0), F16, {"exp": 1}),
        (lambda x: ops.logical_not(x & True), BOOL, {"logical_not": 1}),
        (lambda x: ops.abs(ops.bitwise_xor(x, 0)), I32, {"abs": 1}),
    ],
    "same_twice": [
        (lambda x: ops.exp(ops.max(x, x)), F32, {"exp": 1}),
        (lambda x: ops.exp(ops.where(x > 0, x, x)), F32, {"exp": 1}),
    ],
    "again": [(lambda x: ops.relu(ops.relu(x)) + 1.5, F32, {"relu": 1, "add": 1, "broadcast_to": 1})],
    "undone": [
        (lambda x: ops.exp(ops.negate(ops.negate(x))), F32, {"exp": 1}),
        (lambda x: ops.logical_not(ops.logical_not(x)) & x, BOOL, {"logical_and": 0}),
    ],
    "cast_of_cast": [
        (lambda x: ops.abs(ops.cast(ops.cast(x, DType.float64), F32)), F32, {"abs": 1}),
        (lambda x: ops.cast(ops.cast(x, DType.int64), DType.float32), I32, {"cast": 1}),
        (lambda x: ops.cast(ops.cast(x, F16), F32), F32, {"cast": 2}),
    ],
    "cast_of_number": [
        (lambda x: x + ops.cast(ops.constant(7, DType.uint8, CPU), F32), F32, {"cast": 0}),
        (lambda x: x * ops.cast(ops.constant(-7, DType.int8, CPU), DType.int32), I32, {"cast": 0}),
    ],
    "move_of_nothing": [(lambda x: ops.exp(ops.reshape(x, x.shape)), F32, {"exp": 1})],
    "reshape_of_reshape": [
        (lambda x: ops.exp(ops.reshape(ops.reshape(x, [-1]), [-1, 1])), F32, {"exp": 1, "reshape": 1})
    ],
    "broadcast_of_broadcast": [
        (lambda x: ops.broadcast_to(ops.broadcast_to(x, [2, "m", "n"]), [5, 2, "m", "n"]), F32, {"broadcast_to": 1})
    ],
    "permute_of_permute": [(lambda x: ops.exp(ops.transpose(ops.transpose(x, 0, 1), 0, 1)), F32, {"exp": 1})],
    "slice_of_concat": [],
}


@pytest.mark.parametrize(("number", "source", "target"), [(-7, I8, DType.uint8), (2**24 + 1, I32, F32)])
def test_casts_that_change_a_number_stay(number: int, source: DType, target: DType) -> None:
    def forward(x: Any) -> Any:
        return x * ops.cast(ops.constant(number, source, CPU), target)

    graph = Graph("cast", forward, input_types=[TensorType(target, ["n"], CPU)])
    assert ops_of(optimised(graph))["cast"] == 1
    x = np.arange(5).astype(target.to_numpy())
    wanted = InferenceSession(interpret=True).load(graph).execute(x)[0].to_numpy()
    assert np.array_equal(InferenceSession().load(graph).execute(x)[0].to_numpy(), wanted)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for f, dtype, left in APPLIES[rule]:
        graph = graph_of(f, (dtype, MATRIX))
        actual = ops_of(optimised(graph))
        assert {name: actual[name] for name in left if left[name]} == {name: n for name, n in left.items() if n}, actual
        assert sum(actual.values()) <= sum(left.values()) or 0 in left.values()
        with np.errstate(all="ignore"):
            agree(graph, SPECIAL.astype(dtype.to_numpy()), monkeypatch=monkeypatch)


def test_sums_with_zeros_of_the_other_sign_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """-0.0 + 0.0 is 0.0."""
    graph = graph_of(lambda x: (ops.exp(x + 0.0), ops.exp(x - -0.0), ops.exp(x * 0.0), ops.exp(x / -1.0)))
    assert ops_of(optimised(graph))["exp"] == 4 and ops_of(optimised(graph))["add"] == 1
    agree(graph, SPECIAL, monkeypatch=monkeypatch)


@pytest.mark.parametrize(("first", "size", "left"), [(0, 4, 0), (1, 2, 1), (4, 3, 1), (5, 2, 1), (2, 4, 2)])
def test_slices_of_a_concat(first: int, size: int, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One within a part reads that part, one across both stays."""
    graph = graph_of(
        lambda x, y: ops.exp(ops.concat([x, y], 1)[:, first : first + size]), (F32, ["m", 4]), (F32, ["m", 3])
    )
    collected = ops_of(optimised(graph))
    assert collected["slice"] + collected["concat2"] == left or (left == 1 and size == 3 and not collected["slice"])
    agree(graph, SPECIAL, SPECIAL[:, :3], monkeypatch=monkeypatch)


# *** merging ***


def test_equal_nodes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda x: ops.softmax(x) + ops.softmax(x) * ops.softmax(x, axis=0))
    assert ops_of(optimised(graph))["softmax"] == 2
    agree(graph, np.nan_to_num(SPECIAL, posinf=3, neginf=-3), monkeypatch=monkeypatch)


def test_outputs_have_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda x: (ops.exp(x), ops.exp(x), x * 1.0, x * 1.0, ops.relu(ops.relu(x)), ops.relu(x)))
    outputs = InferenceSession().load(graph)(SPECIAL)
    assert len({output.to_numpy().ctypes.data for output in outputs}) == 6
    assert not any(np.shares_memory(output.to_numpy(), SPECIAL) for output in outputs)
    agree(graph, SPECIAL, monkeypatch=monkeypatch)


def test_draws_are_not_merged() -> None:
    def f(x: Any) -> Any:
        ops.random.set_seed(1)
        type = TensorType(F32, [4], CPU)
        return ops.random.normal(type) - ops.random.normal(type) + x

    assert InferenceSession().load(graph_of(f, (F32, [4])))(np.zeros(4, np.float32))[0].to_numpy().any()


def test_buffers_are_never_one() -> None:
    def f(x: Any) -> Any:
        first, second = (ops.buffer_create(BufferType(F32, [3], CPU)) for _ in range(2))
        ops.buffer_store(first, x)
        ops.buffer_store(second, x * 2.0)
        return first[...] + second[...]

    (actual,) = InferenceSession().load(graph_of(f, (F32, [3])))(np.ones(3, np.float32))
    assert actual.to_numpy().tolist() == [3, 3, 3]


def test_buffers_are_read_when_their_turn_comes() -> None:
    def f(b: Any) -> Any:
        before = ops.exp(b[...])
        b[...] = b[...] * 2.0
        return before, ops.exp(b[...])

    graph = Graph("g", forward=f, input_types=[BufferType(F32, [3], CPU)])
    buffer = Buffer.from_numpy(np.ones(3, np.float32))
    first, second = InferenceSession().load(graph)(buffer)
    assert np.allclose(first.to_numpy(), np.e) and np.allclose(second.to_numpy(), np.e**2)


@register("optimiser::shown", fuse=False)
def shown(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    print("seen")
    foreach(out, lambda i: x[i] * 2)


@register("optimiser::doubled")
def doubled(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * 2)


def test_custom_ops_are_merged_unless_they_print() -> None:
    def f(x: Any, op: Any) -> Any:
        values = [ops.custom(op, device=CPU, values=[x], out_types=[x.type])[0] for _ in range(2)]
        return values[0] + values[1]

    for op, count in ((doubled, 1), (shown, 2)):
        graph = Graph(
            "g",
            forward=functools.partial(f, op=op.schema.name),
            input_types=[TensorType(F32, [4], CPU)],
            custom_extensions=[op],
        )
        assert ops_of(optimised(graph))[op.schema.name] == count


def test_bodies_keep_their_values_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of a body is not read outside; one from outside serves the bodies."""

    def f(x: Any) -> Any:
        outer = ops.exp(x)
        total = ops.sum(ops.reshape(x, [-1]), 0)
        flag = ops.reshape(total, []) > 0.0
        (chosen,) = ops.cond(flag, [x.type], lambda: ops.exp(x) * ops.exp(x), lambda: ops.sin(x) + ops.sin(x))
        _, last = ops.while_loop(
            [ops.constant(0, DType.int64, CPU), x * 1.0],
            lambda n, y: n < 3,
            lambda n, y: [n + 1, ops.sin(y) + ops.exp(x) * ops.sin(y)],
        )
        return outer, ops.sin(x), chosen, last

    graph = graph_of(f)
    ir = optimised(graph)
    assert ops_of(ir)["exp"] == 1 and ops_of(ir)["sin"] == 3
    for x in (SPECIAL[:1, 2:4], -SPECIAL[:1, 2:3]):
        agree(graph, np.ascontiguousarray(x), monkeypatch=monkeypatch)


# *** constants ***


def test_what_depends_on_constants_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)

    def f(x: Any) -> Any:
        c = ops.constant(table, F32, CPU)
        return x + ops.exp(c) * 2.0, x @ ops.transpose(ops.tanh(c), 0, 1)

    graph = graph_of(f, (F32, [3, 4]))
    violations = ops_of(optimised(graph))
    assert not violations["exp"] and not violations["tanh"] and not violations["mul"]
    agree(graph, SPECIAL, monkeypatch=monkeypatch)
    agree(graph, SPECIAL, monkeypatch=monkeypatch)  # the values come from the cache now


def test_constants_do_not_grow() -> None:
    graph = graph_of(
        lambda x: x + ops.broadcast_to(ops.exp(ops.constant([0.5], F32, CPU)), [1000, 1000]), (F32, [1000, 1000])
    )
    ir = optimised(graph)
    assert max(item.array.size for item in ir.nodes if isinstance(item, ConstantTensor)) == 1
    assert not ops_of(ir)["exp"]


def test_what_fails_is_reported_by_the_call() -> None:
    zero = ops.constant
    graph = graph_of(lambda x: x // (zero([4, 2], I32, CPU) // zero([1, 0], I32, CPU)), (I32, [2]))
    model = InferenceSession(checks="all").load(graph)
    with pytest.raises(EinkornError):
        model(np.ones(2, np.int32))


# *** permutes ***


@pytest.mark.parametrize("dtype", [F32, F16, DType.float64])
def test_permutes_cancel(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCHW to NHWC and back around elementwise ops: nothing is left."""
    bias = np.arange(3).reshape(1, 1, 1, 3)

    def f(x: Any, y: Any) -> Any:
        a, b = (ops.permute(v, [0, 2, 3, 1]) for v in (x, y))
        z = ops.relu(a + b * 2.0 + ops.constant(bias.astype(dtype.to_numpy()), dtype, CPU))
        return ops.permute(z, [0, 3, 1, 2]) * 3.0

    graph = graph_of(f, (dtype, ["n", 3, "h", 5]), (dtype, ["n", 3, "h", 5]))
    collected = ops_of(optimised(graph))
    assert collected["permute"] == 1  # that of the bias, which is a constant
    rng = np.random.default_rng(0)
    agree(graph, *(rng.normal(size=(2, 3, 4, 5)).astype(dtype.to_numpy()) for _ in range(2)), monkeypatch=monkeypatch)


def test_permutes_that_differ_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return ops.permute(ops.permute(x, [1, 2, 0]) + ops.permute(x, [2, 0, 1]), [2, 0, 1])

    agree(graph_of(f, (F32, [3, 3, 3])), np.arange(27, dtype=np.float32).reshape(3, 3, 3) ** 2, monkeypatch=monkeypatch)


# *** weights ***


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_weights_of_products_are_packed(dtype: str, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all numbers of rows, which the kernels multiply in different ways, the bits are those of `matmul`."""
    kind, numbers = DType[dtype], np.random.default_rng(0)
    array = (numbers.standard_normal((260, 2100)) * 9).astype(kind.to_numpy())
    weight = Weight("w", kind, array.shape if transposed else array.T.shape, CPU)
    graph = graph_of(
        lambda x: ops.relu(x * 2 @ (ops.transpose(weight, 0, 1) if transposed else weight)) + 1, (kind, ["m", 2100])
    )
    registry = {"w": array if transposed else np.ascontiguousarray(array.T)}
    models = []
    for without in ("", "graph"):
        monkeypatch.setenv("EINKORN_WITHOUT", without)
        models.append(InferenceSession().load(graph, weights_registry=registry))
    packed = next(each for each in models[0].passes if each.name == "pack_weights")
    assert packed.prepared == 1 and packed.bytes >= array.nbytes
    assert "made by graph.pack_weights)" in str(models[0].kernel_summaries[0])
    for rows in (0, 1, 2, 3, 4, 7, 8, 15, 31, 150):
        x = (numbers.standard_normal((rows, 2100)) * 5).astype(kind.to_numpy())
        actual, wanted = (model(x)[0].to_numpy() for model in models)
        assert actual.tobytes() == wanted.tobytes(), rows


@pytest.mark.parametrize(("use", "count"), [("product", 1), ("elements", 0), ("both", 0)])
def test_what_is_larger_than_its_weights_is_prepared_for_products(
    use: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fused with what reads it is computed there: to read it would take longer."""

    def forward(x: Any) -> Any:
        rows, columns = Weight("rows", F32, [90], CPU), Weight("columns", F32, [70], CPU)
        matrix = ops.sin(ops.reshape(rows, [90, 1]) * columns)
        if use == "product":
            return x @ matrix
        elements = ops.exp(x[:, :70] + matrix[:1])
        return x @ matrix + elements if use == "both" else elements

    graph = graph_of(forward, (F32, ["n", 90]))
    numbers = np.random.default_rng(0)
    registry = {"rows": numbers.random(90, np.float32), "columns": numbers.random(70, np.float32)}
    models = []
    for without in ("", "graph"):
        monkeypatch.setenv("EINKORN_WITHOUT", without)
        models.append(InferenceSession().load(graph, weights_registry=registry))
    assert sum(each.prepared for each in models[0].passes if each.name == "prepare_weights") == count
    for rows in (0, 1, 5, 33):
        x = numbers.random((rows, 90), np.float32)
        actual, wanted = (model(x)[0].to_numpy() for model in models)
        assert actual.tobytes() == wanted.tobytes(), rows
    other = {name: array[::-1].copy() for name, array in registry.items()}
    x = numbers.random((4, 90), np.float32)
    again, plain = (InferenceSession().load(graph, weights_registry=other)(x)[0].to_numpy() for _ in range(2))
    assert again.tobytes() == plain.tobytes() and again.tobytes() != models[0](x)[0].to_numpy().tobytes()


@pytest.mark.parametrize("scales", [(260,), (260, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_integers_with_scales_are_packed(dtype: str, scales: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, numbers = DType[dtype], np.random.default_rng(0)
    integers, factors = (
        numbers.integers(-128, 128, (260, 700)).astype(np.int8),
        numbers.random(scales).astype(np.float32),
    )
    registry = {"w": integers, "s": factors}
    weights = [Weight("w", DType.int8, [260, 700], CPU), Weight("s", F32, list(scales), CPU)]
    graph = graph_of(lambda x: ops.relu(ops.qmatmul("int8_row", None, x, *weights)) + 1, (kind, ["b", "m", 700]))
    models = []
    for without in ("", "graph"):
        monkeypatch.setenv("EINKORN_WITHOUT", without)
        models.append(InferenceSession().load(graph, weights_registry=registry))
    assert next(each for each in models[0].passes if each.name == "pack_weights").prepared == 1
    for rows in (0, 1, 2, 3, 4, 7, 15, 31):
        x = numbers.standard_normal((2, rows, 700)).astype(kind.to_numpy())
        actual, wanted = (model(x)[0].to_numpy() for model in models)
        assert actual.tobytes() == wanted.tobytes(), rows
        scaled = integers.astype(np.float64) * factors.astype(np.float64).reshape(-1, 1)
        exact = np.maximum(x.astype(np.float64) @ scaled.T, 0) + 1
        np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=1e-2, atol=3 if dtype == "bfloat16" else 2e-2)


def test_products_that_sum_other_numbers_have_panels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of integers that is multiplied by integers, and with scales by floats."""
    numbers = np.random.default_rng(0)
    registry = {"w": numbers.integers(-9, 9, (160, 130)).astype(np.int8), "s": numbers.random(160).astype(np.float32)}
    weight, scales = Weight("w", DType.int8, [160, 130], CPU), Weight("s", F32, [160], CPU)

    def forward(x: Any, y: Any) -> Any:
        return ops.qmatmul("int8_row", None, x, weight, scales), y @ ops.transpose(weight, 0, 1)

    graph = graph_of(forward, (F32, ["m", 130]), (DType.int8, ["m", 130]))
    model = InferenceSession().load(graph, weights_registry=registry)
    assert next(each for each in model.passes if each.name == "pack_weights").prepared == 2
    monkeypatch.setenv("EINKORN_WITHOUT", "graph")
    plain = InferenceSession().load(graph, weights_registry=registry)
    for rows in (1, 2, 5):
        x = numbers.standard_normal((rows, 130)).astype(np.float32)
        y = numbers.integers(-9, 9, (rows, 130)).astype(np.int8)
        for actual, wanted in zip(model(x, y), plain(x, y), strict=True):
            assert actual.to_numpy().tobytes() == wanted.to_numpy().tobytes(), rows


def test_computations_on_weights_are_done_when_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model computes them of its own weights; copies and pickled models have them, too."""
    w, b = Weight("w", F32, [64, 96], CPU), Weight("b", F32, [96], CPU)
    graph = graph_of(lambda x: x * ops.transpose(ops.exp(w) * 2, 0, 1) + ops.reshape(b, [96, 1]), (F32, [96, 64]))
    session, numbers = InferenceSession(), np.random.default_rng(0)
    compiled = session.compile(graph)
    x = numbers.standard_normal((96, 64)).astype(np.float32)
    for _ in range(2):
        registry = {"w": numbers.standard_normal((64, 96)).astype(np.float32), "b": np.ones(96, np.float32)}
        model = session.init(compiled, weights_registry=registry)
        assert ops_of(model.ir)["exp"] == ops_of(model.ir)["permute"] == 0
        monkeypatch.setenv("EINKORN_WITHOUT", "graph")
        wanted = session.load(graph, weights_registry=registry)(x)[0].to_numpy()
        monkeypatch.delenv("EINKORN_WITHOUT")
        for each in (model, model.clone(), pickle.loads(pickle.dumps(model))):
            assert each(x)[0].to_numpy().tobytes() == wanted.tobytes()


def test_what_is_not_prepared() -> None:
    """Outputs, small weights, what takes more memory than the weight, and what fails when it is computed."""
    w, n = Weight("w", DType.float16, [64, 96], CPU), Weight("n", DType.int32, [128, 64], CPU)
    graph = graph_of(
        lambda x: (ops.cast(w, F32) + x, ops.exp(w), ops.negate(n), x + ops.cast(n[:32], F32)[0, 0]), (F32, [64, 96])
    )
    registry = {"w": np.ones((64, 96), np.float16), "n": np.ones((128, 64), np.int32)}
    model = InferenceSession().load(graph, weights_registry=registry)
    assert not any(each.prepared for each in model.passes)
    assert [output.dtype for output in model(np.ones((64, 96), np.float32))] == [F32, DType.float16, DType.int32, F32]


def test_weights_that_only_prepared_values_read_are_checked() -> None:
    w = Weight("w", F32, [256, 256], CPU)
    graph = graph_of(lambda x: x @ w, (F32, [3, 256]))
    with pytest.raises(EinkornError, match="weight 'w' of graph 'g' is missing"):
        InferenceSession().load(graph)
    with pytest.raises(EinkornError, match="weight 'w' has the shape"):
        InferenceSession().load(graph, weights_registry={"w": np.ones((2, 2), np.float32)})


# *** the row of passes ***


def test_passes_are_dumped_stopped_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = graph_of(lambda x: ops.softmax(x * 1.0) + ops.softmax(x))
    monkeypatch.setenv("EINKORN_DUMP", ",".join(names()))
    model = InferenceSession().load(graph)
    shown = capsys.readouterr().err
    assert [line for line in shown.splitlines() if line.startswith("=== graph.")] == [
        f"=== {name} ===" for name in names()
    ]
    assert [each.name for each in model.passes] == [each.name for each in PASSES]
    monkeypatch.setenv("EINKORN_DUMP", "")
    monkeypatch.setenv("EINKORN_STOP", "graph.simplify")
    with pytest.raises(CompileError, match=r"stopped after the pass 'graph\.simplify'"):
        InferenceSession().load(graph)
    monkeypatch.setenv("EINKORN_STOP", "")
    monkeypatch.setenv("EINKORN_WITHOUT", "graph.merge_equal")
    assert ops_of(optimised(graph))["softmax"] == 2
    monkeypatch.setenv("EINKORN_WITHOUT", "graph.merge_eqal")
    with pytest.raises(EinkornError, match=r"graph\.merge_equal"):
        InferenceSession().load(graph)


def test_each_pass_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the results are the same to the bit. The graph is one in which most passes do something."""

    def f(x: Any) -> Any:
        weight = ops.constant(np.ones((4, 4), np.float32) / 3, F32, CPU)
        y = ops.softmax(x) * (ops.softmax(x) * 1.0 @ ops.exp(weight))
        ops.exp(y)
        return ops.transpose(ops.relu(ops.transpose(y, 0, 1)), 0, 1) + 2.0

    graph = graph_of(f, (F32, ["m", 4]))
    x = np.nan_to_num(SPECIAL, posinf=3, neginf=-3)
    wanted = InferenceSession().load(graph)(x)[0].to_numpy()
    for name in names():
        monkeypatch.setenv("EINKORN_WITHOUT", name)
        model = InferenceSession().load(graph)
        assert model(x)[0].to_numpy().tobytes() == wanted.tobytes(), name
        done = {each.name: each for each in model.passes}
        assert not done[name.removeprefix("graph.")].changed


def late(x: Any) -> Any:
    """Eight values that are computed early and read late."""
    early = [ops.softmax(x * float(k + 2)) for k in range(8)]
    for each in early:
        x = ops.softmax(x + each)
    return x


def test_values_are_computed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that fewer of them lie in memory at a time; the bits are the same."""
    graph = graph_of(late, (F32, ["m", 64]))
    sizes = []
    for without in ("", "graph.schedule"):
        monkeypatch.setenv("EINKORN_WITHOUT", without)
        ir = optimised(graph)
        order = [node.name for node in ir.nodes if isinstance(node, Node)]
        sizes.append(order.index("add") if "add" in order else -1)
        assert Counter(order)["softmax"] == 16
    assert 0 < sizes[0] < sizes[1]
    monkeypatch.delenv("EINKORN_WITHOUT")
    agree(graph, np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32), monkeypatch=monkeypatch)


def test_what_buffers_hold_is_not_computed_late() -> None:
    def f(b: Any, x: Any) -> Any:
        first = ops.softmax(b[...])
        b[...] = x
        y = x
        for _ in range(3):
            y = ops.softmax(y * 3.0)
        return y + first, ops.softmax(b[...])

    types = [BufferType(F32, [300, 64], CPU), TensorType(F32, [300, 64], CPU)]
    graph = Graph("g", forward=f, input_types=types)
    order = [node.name for node in optimised(graph).nodes if isinstance(node, Node)]
    assert order[:3] == ["buffer_load", "softmax", "buffer_store"]
    buffer = Buffer.from_numpy(np.zeros((300, 64), np.float32))
    first, second = InferenceSession().load(graph)(buffer, np.eye(300, 64, dtype=np.float32))
    assert np.allclose(first.to_numpy().sum(1), 2) and second.to_numpy()[0, 0] > second.to_numpy()[0, 1]


def test_interpreted_kernels_and_searches_for_nan_see_every_op() -> None:
    graph = graph_of(lambda x: ops.softmax(x * 1.0) + ops.softmax(x))
    for session in (InferenceSession(interpret=True), InferenceSession(checks="safe+nan")):
        assert [each.name for each in session.load(graph).passes] == ["fuse", "plan_memory"]


def test_broken_graphs_are_found() -> None:
    graph = graph_of(lambda x: ops.exp(x) + 1.0)
    ir = graph.ir
    last = ir.nodes[-1]
    assert isinstance(last, Node)
    wrong: Sequence[GraphIR] = [
        GraphIR(ir.name, ir.inputs, ir.nodes[1:], ir.outputs),
        GraphIR(ir.name, ir.inputs, ir.nodes, (99,)),
        GraphIR(ir.name, ir.inputs, ir.nodes, (0, 0)),
        GraphIR(ir.name, (), ir.nodes, ir.outputs),
    ]
    for each in wrong:
        with pytest.raises(InternalError, match="is broken after the pass 'x'"):
            verify_graph(each, ir, "x")


@register("mine::flat", move="reshape")
def flat(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x.at(out.position(i)))


def test_a_custom_op_may_be_a_reshape() -> None:
    """What an op is to fusion is a fact of its signature: the reshape takes no copy of the product."""

    def f(x: Any, y: Any) -> Any:
        return ops.softmax(ops.custom("mine::flat", CPU, [x @ y], [TensorType(F32, [2, 6], CPU)])[0])

    types = [TensorType(F32, [3, 5], CPU), TensorType(F32, [5, 4], CPU)]
    graph = Graph("g", forward=f, input_types=types, custom_extensions=[flat])
    model = InferenceSession().load(graph)
    assert [kernel.name for kernel in model.kernel_summaries] == ["matmul", "softmax"]
    x, y = np.ones((3, 5), np.float32), np.arange(20, dtype=np.float32).reshape(5, 4) / 20
    wanted = np.exp((x @ y).reshape(2, 6))
    np.testing.assert_allclose(model(x, y)[0].to_numpy(), wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


def test_a_move_suits_its_signature() -> None:
    with pytest.raises(CompileError, match="does not suit the signature") as caught:

        @register("mine::turn", move="permute")
        def turned(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"]):
            foreach(out, lambda i: x[i])

    assert caught.value.code == "EK0107" and "order" in (caught.value.hint or "")


# *** promises of custom ops ***

U = TypeVar("U", bound=Numeric)


@register("mine::turn", move="permute")
def turn(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, order: tuple[int, ...]):
    foreach(out, lambda i: x[tuple(i[order[k]] for k in unroll(x.rank))])  # of orders that are their own inverse


@register("mine::part", move="slice")
def part(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, starts: tuple[int, ...], steps: tuple[int, ...]):
    foreach(out, lambda i: x[tuple(starts[k] + steps[k] * i[k] for k in unroll(x.rank))])


@register("mine::turned_over", laws=["involution"])
def turned_over(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: 0 - x[i])


@register("mine::positive", laws=["idempotent"])
def positive(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: max(x[i], 0))


@register("mine::larger", laws=["idempotent"])
def larger(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: max(x[i], y[i]))


@register("mine::scaled", neutral={"y": 1})
def scaled(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * y[i])


@register("mine::wider", laws=["cast"])
def wider(out: OutputTensor[U, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i].cast(U))


@register("mine::noted", effects=True)
def noted(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i])


@register("mine::numbered")
def numbered(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + T(out.position(i)))


@register("mine::shared_out")
def shared_out(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] / T(x.dim(0)))


def custom(op: str, *values: Any, dtype: DType = F32, shape: Any = None, **parameters: Any) -> Any:
    type = TensorType(dtype, list(values[0].shape if shape is None else shape), CPU)
    return ops.custom(op, CPU, list(values), [type], parameters)[0]


def there_and_back(op: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: ops.transpose(op(ops.transpose(x, 0, 1)), 0, 1) * 3.0


PROMISES: list[tuple[Callable[[Any], Any], Any, int]] = [  # a graph, its custom op, and how many nodes are left
    (lambda x: ops.exp(custom("mine::turn", ops.permute(x, [1, 0]), shape=[3, 4], order=(1, 0))), turn, 1),
    (
        lambda x: ops.exp(custom("mine::part", ops.concat([x, x], 0), shape=[3, 4], starts=(3, 0), steps=(1, 1))),
        part,
        1,
    ),
    (lambda x: ops.exp(custom("mine::turned_over", custom("mine::turned_over", x))), turned_over, 1),
    (lambda x: ops.exp(custom("mine::positive", custom("mine::positive", x))), positive, 2),
    (lambda x: ops.exp(custom("mine::larger", x, x)), larger, 1),
    (lambda x: ops.exp(custom("mine::scaled", x, ops.broadcast_to(ops.constant(1.0, F32, CPU), x.shape))), scaled, 1),
    (lambda x: ops.exp(custom("mine::wider", ops.cast(x, DType.float64))), wider, 1),
    (lambda x: (custom("mine::noted", x), ops.exp(x))[1], noted, 2),
    (there_and_back(lambda x: custom("mine::scaled", x, x)), scaled, 3),
    (there_and_back(lambda x: custom("mine::numbered", x)), numbered, 5),
    (there_and_back(lambda x: custom("mine::shared_out", x)), shared_out, 5),
    (there_and_back(lambda x: ops.band_part(x, -1, 0)), scaled, 5),
]


@pytest.mark.parametrize(("forward", "op", "left"), PROMISES, ids=range(len(PROMISES)))
def test_promises_of_ops(forward: Callable[[Any], Any], op: Any, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is simplified and moved follows from the record of an op: custom ops are treated as built-in ones."""
    graph = Graph("g", forward=forward, input_types=[TensorType(F32, [3, 4], CPU)], custom_extensions=[op])
    actual = ops_of(optimised(graph))
    assert sum(actual.values()) == left, actual
    agree(graph, SPECIAL, monkeypatch=monkeypatch)


def test_promises_suit_signatures() -> None:
    for promise, hint in (
        ({"move": "slice"}, "starts: tuple"),
        ({"move": "elsewhere"}, "reshape, permute"),
        ({"laws": ["involutions"]}, "involution"),
        ({"laws": ["cast"]}, "dtype of the output"),
        ({"neutral": {"z": 0}}, "one of two inputs"),
        ({"neutral": {"x": float("inf")}}, "such as"),
    ):
        with pytest.raises(CompileError) as caught:

            @register("mine::wrong", **promise)  # type: ignore[arg-type]
            def wrong(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
                foreach(out, lambda i: x[i])

        assert caught.value.code == "EK0107" and hint in (caught.value.hint or ""), promise


def test_promises_are_kept_in_packages() -> None:
    for kernel in (turn, part, turned_over, scaled, noted):
        read = type(kernel.schema).from_json(json.loads(json.dumps(kernel.schema.to_json())))
        for name in ("move", "laws", "neutral", "effects"):
            assert getattr(read, name) == getattr(kernel.schema, name)


# *** rows that are not exact ***


def normalised(groups: int, dtype: DType, layout: str = "NCHW") -> Callable[[Any], Any]:
    """A convolution without bias, and the normalization of its channels; all weights are constants."""
    rng = np.random.default_rng(groups)

    def f(x: Any) -> Any:
        filter = ops.constant(rng.standard_normal((6, 6 // groups, 3, 3)), dtype, CPU)
        given = [ops.constant(abs(rng.standard_normal(6)) + 0.5, F32, CPU) for _ in range(4)]
        y = ops.conv2d(x, filter, 1, 1, 1, groups, None, layout, "FCRS")  # type: ignore[arg-type]  # texts name layouts
        y = ops.permute(y, [0, 3, 1, 2]) if layout == "NHWC" else y
        return ops.relu(ops.batch_norm(y, *given, epsilon=1e-3))  # type: ignore[arg-type]

    return f


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("dtype", [F32, DType.float64])
def test_batch_norms_are_folded(groups: int, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(normalised(groups, dtype), (dtype, [2, 6, 5, 7]))
    assert "batch_norm" not in ops_of(optimised(graph)) and ops_of(optimised(graph))["add_channels"] == 1
    x = np.random.default_rng(9).standard_normal((2, 6, 5, 7)).astype(dtype.to_numpy())
    folded = InferenceSession().load(graph)(x)[0].to_numpy()
    monkeypatch.setenv("EINKORN_WITHOUT", "graph.fold_batch_norm")
    assert ops_of(optimised(graph))["batch_norm"] == 1
    wanted = InferenceSession().load(graph)(x)[0].to_numpy()
    np.testing.assert_allclose(folded, wanted, atol=1e-5 if dtype == F32 else 1e-12, rtol=0)


def test_weights_of_a_folded_batch_norm_are_those_of_the_registry() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    shapes = {"w": [3, 2, 1, 1], "gamma": [3], "beta": [3], "mean": [3], "variance": [3]}
    weights = {
        name: np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()
    }

    def f(x: Any) -> Any:
        w, *given = (Weight(name, F32, shape, CPU) for name, shape in shapes.items())
        return ops.batch_norm(ops.conv2d(x, w, input_layout="NCHW", filter_layout="FCRS"), *given)  # type: ignore[arg-type]

    model = InferenceSession().load(graph_of(f, (F32, [1, 2, 4, 4])), weights_registry=weights)
    assert [each.prepared for each in model.passes if each.name == "fold_batch_norm"] == [2]
    y = np.einsum("nchw,oc->nohw", x, weights["w"][:, :, 0, 0])
    gamma, beta, mean, variance = (weights[name].reshape(1, 3, 1, 1) for name in ("gamma", "beta", "mean", "variance"))
    wanted = (y - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(model(x)[0].to_numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_batch_norms_that_stay() -> None:
    """Half types, images in NHWC, results that are read twice or given back, and operands that a call brings."""
    f = normalised(1, F32)

    def read_twice(x: Any) -> Any:
        y = f(x)
        filter = ops.constant(np.ones((6, 6, 3, 3)), F32, CPU)
        z = ops.conv2d(x, filter, padding=1, input_layout="NCHW", filter_layout="FCRS")  # type: ignore[arg-type]
        parts: list[Any] = [ops.constant(np.ones(6), F32, CPU)] * 4
        return y, z, ops.batch_norm(z, *parts)

    def brought(x: Any, mean: Any) -> Any:
        filter = ops.constant(np.ones((6, 6, 3, 3)), F32, CPU)
        z = ops.conv2d(x, filter, padding=1, input_layout="NCHW", filter_layout="FCRS")  # type: ignore[arg-type]
        one = ops.constant(np.ones(6), F32, CPU)
        return ops.batch_norm(z, one, one, mean, one)

    images = [2, 6, 5, 7]
    assert ops_of(optimised(graph_of(normalised(1, F16), (F16, images))))["batch_norm"] == 1
    assert ops_of(optimised(graph_of(normalised(1, F32, "NHWC"), (F32, [2, 5, 7, 6]))))["batch_norm"] == 1
    assert ops_of(optimised(graph_of(read_twice, (F32, images))))["batch_norm"] == 1
    assert ops_of(optimised(graph_of(brought, (F32, images), (F32, [6]))))["batch_norm"] == 1
