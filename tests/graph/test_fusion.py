"""Fused graphs give what unfused ones and NumPy give, bit for bit, and fuse what they should."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import host
from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.compile import node_facts
from einkorn.graph.loading.load import load_graph
from einkorn.graph.passes.fusion import partition

pytestmark = pytest.mark.as_shipped

KERNELS = Path(__file__).parent / "fusion_kernels.py"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing comes from an earlier run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINKORN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@dataclass
class Loaded:
    """One graph, compiled with and without fusion."""

    fused: Model
    unfused: Model

    @property
    def groups(self) -> list[str]:
        """For each group of the fused entry: the names of its ops, the root in brackets."""
        entry = self.fused.code.plan.entry
        assert entry is not None
        texts = []
        for group in entry.groups:
            names = [node.kernel.schema.name for node in group.nodes]
            names[group.root] = f"[{names[group.root]}]"
            texts.append(" ".join(name for name in names if name != "broadcast_to"))
        return texts

    def __call__(self, *arrays: Any) -> list[np.ndarray[Any, Any]]:
        """The outputs, which are the same both ways."""
        fused = [np.array(b.to_numpy()) for b in self.fused(*arrays)]
        unfused = [np.array(b.to_numpy()) for b in self.unfused(*arrays)]
        for number, (a, b) in enumerate(zip(fused, unfused, strict=True)):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a, b, err_msg=f"output {number}: fused and unfused differ")
        return fused


def load(forward: Callable[..., Any], *inputs: tuple[Any, Sequence[int | str]]) -> Loaded:
    types = [TensorType(DType.from_numpy(np.dtype(dtype)), shape, DeviceRef.CPU()) for dtype, shape in inputs]
    graph = Graph("test", forward=forward, input_types=types, custom_extensions=[KERNELS])
    return Loaded(Model(graph.ir, load_graph), Model(graph.ir, partial(load_graph, fuse=False)))


def custom(name: str, *values: Any, **parameters: Any) -> Any:
    results = ops.custom(name, DeviceRef.CPU(), list(values), parameters=parameters)
    return results[0] if len(results) == 1 else results


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small whole numbers: sums and products of a few of them are exact in every dtype."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


F = np.float32


# *** what fuses ***


def test_a_chain_is_one_group() -> None:
    model = load(lambda x: ops.relu(ops.sqrt(abs(x * 2.0 + 1.0)) - 1.5) / 3.0, (F, ["m", "n"]))
    assert len(model.groups) == 1
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(F)
    wanted = np.maximum(np.sqrt(np.abs(x * F(2) + F(1))) - F(1.5), F(0)) / F(3)
    np.testing.assert_array_equal(model(x)[0], wanted)


def test_a_long_chain_loads() -> None:
    def forward(x: Any) -> Any:
        for k in range(60):
            x = x * 0.5 + float(k)
        return x

    model = load(forward, (np.float64, ["n"]))
    assert len(model.groups) < 20
    x = np.random.default_rng(0).standard_normal(100)
    wanted = x
    for k in range(60):
        wanted = wanted * 0.5 + float(k)
    np.testing.assert_array_equal(model(x)[0], wanted)


def test_broadcasts_fuse() -> None:
    model = load(
        lambda x, row, column, one: (x + row) * column - one, (F, ["m", "n"]), (F, ["n"]), (F, ["m", 1]), (F, [])
    )
    assert len(model.groups) == 1
    for m, n in [(1, 1), (3, 5), (7, 1), (1, 6), (0, 4), (4, 0)]:
        x, row, column, one = numbers(m, n), numbers(n, seed=1), numbers(m, 1, seed=2), np.array(2, F)
        np.testing.assert_array_equal(model(x, row, column, one)[0], (x + row) * column - one)


def test_index_maps_fuse() -> None:
    def forward(x: Any, w: Any) -> Any:
        y = ops.permute(x, [2, 0, 1]) * 2.0
        y = ops.reshape(y, [4, 2, -1]) + 1.0
        y = y[1:4:2, ::-1, 1:]
        return ops.concat([y, w * 3.0], 0)

    model = load(forward, (F, [2, 3, 4]), (F, [1, 2, 2]))
    assert len(model.groups) == 1
    x, w = numbers(2, 3, 4), numbers(1, 2, 2, seed=1)
    y = (x.transpose(2, 0, 1) * F(2)).reshape(4, 2, -1) + F(1)
    y = y[1:4:2, ::-1, 1:]
    np.testing.assert_array_equal(model(x, w)[0], np.concatenate([y, w * F(3)], 0))


def test_a_prologue_fuses_into_a_reduction() -> None:
    model = load(lambda x: ops.sum(ops.relu(x * 2.0 + 1.0), 1), (F, ["m", "n"]))
    assert len(model.groups) == 1
    for m, n in [(3, 5), (1, 40), (70, 1), (2, 0), (0, 3)]:
        x = numbers(m, n)
        np.testing.assert_array_equal(model(x)[0], np.maximum(x * F(2) + F(1), F(0)).sum(axis=1, keepdims=True))


def test_an_epilogue_fuses_into_a_reduction() -> None:
    model = load(lambda x, y: ops.relu(ops.sum(x, 0) * 2.0 + y), (F, ["m", "n"]), (F, [1, "n"]))
    assert len(model.groups) == 1
    x, y = numbers(6, 7), numbers(1, 7, seed=1)
    np.testing.assert_array_equal(model(x, y)[0], np.maximum(x.sum(0, keepdims=True) * F(2) + y, F(0)))


def test_an_epilogue_fuses_into_a_matrix_product() -> None:
    model = load(lambda x, w, b: ops.relu(x @ w + b) * 0.5, (F, ["m", "k"]), (F, ["k", "n"]), (F, ["n"]))
    assert len(model.groups) == 1
    for m, k, n in [(3, 4, 5), (1, 1, 1), (17, 33, 9), (0, 2, 3), (2, 0, 3), (64, 70, 65)]:
        x, w, b = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
        np.testing.assert_array_equal(model(x, w, b)[0], np.maximum(x @ w + b, F(0)) * F(0.5))


def test_softmax_between_elementwise_neighbours() -> None:
    model = load(lambda x: ops.softmax(x * 2.0) + 1.0, (np.float64, ["m", "n"]))
    x = np.random.default_rng(0).standard_normal((4, 9))
    e = np.exp(x * 2 - (x * 2).max(axis=1, keepdims=True))
    np.testing.assert_allclose(model(x)[0], e / e.sum(axis=1, keepdims=True) + 1, rtol=1e-14)


# *** sharing ***


def test_a_cheap_producer_of_two_consumers() -> None:
    def forward(x: Any) -> Any:
        shared = x + 1.0
        return shared * 2.0, ops.sum(shared, 0)

    model = load(forward, (F, ["m", "n"]))
    x = numbers(4, 5)
    a, b = model(x)
    np.testing.assert_array_equal(a, (x + F(1)) * F(2))
    np.testing.assert_array_equal(b, (x + F(1)).sum(0, keepdims=True))


def test_a_dear_producer_is_computed_once() -> None:
    def forward(x: Any) -> Any:
        shared = custom("horner", x)
        return shared + 1.0, ops.transpose(shared, 0, 1) * 2.0

    model = load(forward, (np.float64, ["m", "n"]))
    assert len(model.groups) == 3
    x = np.random.default_rng(0).standard_normal((4, 5)) * 0.5
    total = np.zeros_like(x)
    for _ in range(20):
        total = total * x + 1
    a, b = model(x)
    np.testing.assert_array_equal(a, total + 1)
    np.testing.assert_array_equal(b, total.T * 2)


def test_a_value_that_is_also_an_output() -> None:
    def forward(x: Any) -> Any:
        y = x * 2.0
        z = y + 1.0
        return z, y, z

    x = numbers(3, 3)
    a, b, c = load(forward, (F, [3, "n"]))(x)
    np.testing.assert_array_equal(b, x * 2)
    np.testing.assert_array_equal(a, x * 2 + 1)
    np.testing.assert_array_equal(c, a)


def test_diamonds() -> None:
    def forward(x: Any) -> Any:
        for _ in range(6):
            x = (x + 1) * (x - 1) % 7
        return x

    x = numbers(50, dtype=np.int32)
    wanted = x
    for _ in range(6):
        wanted = (wanted + 1) * (wanted - 1) % 7
    np.testing.assert_array_equal(load(forward, (np.int32, ["n"]))(x)[0], wanted)


def test_a_root_read_at_two_places() -> None:
    """The sum is read at its own index and transposed: no epilogue may swallow the second reading."""

    def forward(x: Any) -> Any:
        total = ops.reshape(ops.sum(x, 2), [4, 4])
        return total + ops.transpose(total, 0, 1) * 10

    x = numbers(4, 4, 3, dtype=np.int64)
    total = x.sum(2)
    np.testing.assert_array_equal(load(forward, (np.int64, [4, 4, "n"]))(x)[0], total + total.T * 10)


def test_two_roots_combine() -> None:
    def forward(x: Any, y: Any) -> Any:
        return ops.sum(x, 1) * ops.max(y, axis=1) + ops.relu(ops.sum(x, 1))

    x, y = numbers(5, 6), numbers(5, 6, seed=1)
    total = x.sum(1, keepdims=True)
    wanted = total * y.max(1, keepdims=True) + np.maximum(total, 0)
    np.testing.assert_array_equal(load(forward, (F, ["m", "n"]), (F, ["m", "n"]))(x, y)[0], wanted)


# *** an epilogue, and others that read what it reads ***


def test_what_several_groups_read_of_a_root_is_its_epilogue() -> None:
    """The first reader of the softmax stands in two groups: it is computed once, where the softmax is stored."""

    def forward(x: Any) -> Any:
        t = ops.softmax(x) + 1.0
        return t * ops.mean(t, -1)

    model = load(forward, (np.float64, ["m", "n"]))
    assert model.groups == ["[softmax] add", "[reduce_mean]", "[mul]"]
    x = np.random.default_rng(0).standard_normal((4, 9))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    t = e / e.sum(axis=1, keepdims=True) + 1
    np.testing.assert_allclose(model(x)[0], t * t.mean(1, keepdims=True), rtol=1e-14)


def test_a_residual_and_a_layer_norm_behind_a_matrix_product() -> None:
    def forward(x: Any, w: Any, b: Any) -> Any:
        h = ops.relu(x @ w + b) + x
        centred = h - ops.mean(h, -1)
        return centred * ops.rsqrt(ops.mean(centred * centred, -1) + 1e-5)

    model = load(forward, (np.float64, ["m", 8]), (np.float64, [8, 8]), (np.float64, [8]))
    assert model.groups[0] == "[matmul] add relu add" and len(model.groups) == 4
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((5, 8)), rng.standard_normal((8, 8)), rng.standard_normal(8)
    h = np.maximum(x @ w + b, 0) + x
    centred = h - h.mean(1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(model(x, w, b)[0], wanted, rtol=1e-12, atol=1e-12)


def test_a_root_that_several_groups_read_is_stored() -> None:
    """No kernel has all that is made of the sum behind it, so that no epilogue keeps others from reading the sum."""

    def forward(x: Any) -> Any:
        total = ops.sum(x, 1)
        turned = ops.transpose(total + 1, 0, 1)
        return ops.sum(turned, 0) + turned, total * 2, ops.max(total - 1, axis=0)

    model = load(forward, (np.int64, ["m", "n"]))
    x = numbers(5, 4, dtype=np.int64)
    total = x.sum(1, keepdims=True)
    a, b, c = model(x)
    np.testing.assert_array_equal(a, (total + 1).T.sum(0, keepdims=True) + (total + 1).T)
    np.testing.assert_array_equal(b, total * 2)
    np.testing.assert_array_equal(c, (total - 1).max(0, keepdims=True))


def test_an_epilogue_whose_root_another_reads_through_a_view() -> None:
    def forward(x: Any) -> Any:
        total = custom("double_rows", x)
        return total + 1, ops.sum(ops.reshape(total, [-1]), 0)

    x = numbers(3, 4, dtype=np.int64)
    a, b = load(forward, (np.int64, [3, 4]))(x)
    np.testing.assert_array_equal(a, x * 2 + 1)
    np.testing.assert_array_equal(b, (x * 2).sum(keepdims=True).reshape(1))


def test_a_loop_is_not_repeated_through_a_cheap_reader() -> None:
    """`horner` has a loop; what is made of it by one operation is as dear."""

    def forward(x: Any) -> Any:
        shared = custom("horner", x) + 1.0
        return shared * 2.0, ops.transpose(shared, 0, 1), ops.sum(shared, 0)

    model = load(forward, (np.float64, ["m", "n"]))
    assert sum("horner" in group for group in model.groups) == 1
    x = np.random.default_rng(0).standard_normal((4, 5)) * 0.5
    total = np.zeros_like(x)
    for _ in range(20):
        total = total * x + 1
    a, b, c = model(x)
    np.testing.assert_array_equal(a, (total + 1) * 2)
    np.testing.assert_array_equal(b, (total + 1).T)
    np.testing.assert_allclose(c, (total + 1).sum(0, keepdims=True), rtol=1e-14)


def test_a_deep_diamond_is_partitioned_fast() -> None:
    """Twenty diamonds one behind the other before a root's epilogue: ways through them are not counted one by one."""

    def forward(x: Any) -> Any:
        y = ops.sum(x, 1)
        for k in range(60):
            y = ops.maximum(y, y - float(k % 3))
        return y, x

    x = numbers(3, 4)
    np.testing.assert_array_equal(load(forward, (F, ["m", "n"]))(x)[0], x.sum(1, keepdims=True))


# *** custom ops ***


def test_custom_ops_fuse_with_built_in_ones() -> None:
    model = load(lambda x, y: custom("scale_add", x + 1.0, y * 2.0, factor=5) - 1.0, (F, ["n"]), (F, ["n"]))
    assert len(model.groups) == 1
    x, y = numbers(20), numbers(20, seed=1)
    np.testing.assert_array_equal(model(x, y)[0], (x + 1) * 5 + y * 2 - 1)


def test_only_neighbours_are_requested_facts() -> None:
    """Facts take long to find: not of a kernel that stands by itself, and of none where nothing is fused."""

    def forward(x: Any, y: Any) -> list[Any]:
        return [ops.exp(x), ops.tanh(ops.relu(y)), ops.sum(x, axis=0)]

    ir = Graph("g", forward, [TensorType(DType.float32, ["m", "n"])] * 2).ir
    requested: list[str] = []

    def facts_of(node: Any) -> Any:
        requested.append(node.name)
        return node_facts(ir, host(), node)

    groups = [group.nodes for group in partition(ir, facts_of).groups]
    assert requested == ["relu", "tanh"] and len(groups) == 3 and max(map(len, groups)) == 2
    requested.clear()
    assert len(partition(ir, facts_of, fuse=False).groups) == 4 and requested == []


def test_fuse_false_is_respected() -> None:
    model = load(lambda x, y: custom("unfused_add", x + 1.0, y * 2.0) - 1.0, (F, ["n"]), (F, ["n"]))
    assert model.groups == ["[add]", "[mul]", "[unfused_add]", "[sub]"]
    x, y = numbers(20), numbers(20, seed=1)
    np.testing.assert_array_equal(model(x, y)[0], x + 1 + y * 2 - 1)


def test_several_outputs_of_a_custom_op() -> None:
    def forward(x: Any) -> Any:
        up, down, high = custom("both_ways", x * 2)
        return ops.where(high, up, down) + 1, down

    x = numbers(4, 9, dtype=np.int32)
    a, b = load(forward, (np.int32, ["m", "n"]))(x)
    np.testing.assert_array_equal(a, np.where(x * 2 > 3, x * 2 + 1, x * 2 - 1) + 1)
    np.testing.assert_array_equal(b, x * 2 - 1)


def test_several_outputs_as_outputs() -> None:
    x = numbers(6, dtype=np.int32)
    up, down, high = load(lambda x: custom("both_ways", x), (np.int32, ["n"]))(x)
    np.testing.assert_array_equal(up, x + 1)
    np.testing.assert_array_equal(down, x - 1)
    np.testing.assert_array_equal(high, x > 3)


def test_a_reader_of_neighbours() -> None:
    model = load(lambda x: custom("neighbours", x * x + 1) * 2, (np.int64, ["n"]))
    for n in (1, 2, 3, 10):
        x = numbers(n, dtype=np.int64)
        y = x * x + 1
        np.testing.assert_array_equal(model(x)[0], (np.roll(y, 1) + y * 2 + np.roll(y, -1)) * 2)


def test_promised_loops_take_prologue_and_epilogue() -> None:
    model = load(lambda x, y: custom("double_rows", x + 1) * 3 - y, (np.int32, ["m", "n"]), (np.int32, ["n"]))
    assert len(model.groups) == 1
    x, y = numbers(4, 6, dtype=np.int32), numbers(6, dtype=np.int32, seed=1)
    np.testing.assert_array_equal(model(x, y)[0], (x + 1) * 6 - y)


def test_loops_without_a_promise_stay_alone() -> None:
    model = load(lambda x: custom("running_sum", x + 1) * 3, (np.int32, ["m", "n"]))
    assert model.groups == ["[add]", "[running_sum]", "[mul]"]
    x = numbers(4, 6, dtype=np.int32)
    np.testing.assert_array_equal(model(x)[0], np.cumsum(x + 1, axis=1) * 3)


def test_an_epilogue_does_not_read_its_root_elsewhere() -> None:
    """`double_rows` may have an epilogue, but not one that reads the neighbours of what is being stored."""

    def forward(x: Any) -> Any:
        flat = ops.reshape(custom("double_rows", x), [-1])
        return custom("neighbours", flat)

    x = numbers(3, 4, dtype=np.int64)
    y = (x * 2).reshape(-1)
    np.testing.assert_array_equal(load(forward, (np.int64, ["m", 4]))(x)[0], np.roll(y, 1) + y * 2 + np.roll(y, -1))


def test_chains_of_roots() -> None:
    def forward(x: Any) -> Any:
        for _ in range(3):
            x = custom("double_rows", x + 1) - 1
            x = custom("running_sum", x) % 11
        return x

    x = numbers(5, 7, dtype=np.int64)
    wanted = x
    for _ in range(3):
        wanted = np.cumsum((wanted + 1) * 2 - 1, axis=1) % 11
    np.testing.assert_array_equal(load(forward, (np.int64, ["m", "n"]))(x)[0], wanted)


def test_atomic_additions_from_many_threads() -> None:
    graph = Graph(
        "count",
        forward=lambda x: ops.custom(
            "count_up", DeviceRef.CPU(), [x], [TensorType(DType.int64, [10], DeviceRef.CPU())], {"k": 10}
        ),
        input_types=[TensorType(DType.int64, ["n"], DeviceRef.CPU())],
        custom_extensions=[KERNELS],
    )
    model = Model(graph.ir, load_graph)
    x = np.random.default_rng(0).integers(0, 1000, 200_000)
    for _ in range(5):
        np.testing.assert_array_equal(model(x)[0].to_numpy(), np.bincount(x % 10, minlength=10))


# *** inputs and constants as outputs, sizes ***


def test_outputs_without_work() -> None:
    constant = np.arange(6, dtype=F).reshape(2, 3)

    def forward(x: Any, y: Any) -> Any:
        c = ops.constant(constant, DType.float32, DeviceRef.CPU())
        return x, c, ops.reshape(x, [-1]), y, x, ops.transpose(c, 0, 1), c + y

    x, y = numbers(2, 5), np.array(3, F)
    got = load(forward, (F, [2, "n"]), (F, []))(x, y)
    wanted = [x, constant, x.reshape(-1), y, x, constant.T, constant + y]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert got[0] is not x and not np.shares_memory(got[0], x)


def test_reshaped_values_are_names_only() -> None:
    def forward(x: Any) -> Any:
        y = custom("running_sum", x)
        z = ops.reshape(y, [-1])
        return ops.sum(z, 0), custom("running_sum", ops.reshape(z, [2, -1])) + 1

    x = numbers(4, 6, dtype=np.int64)
    y = np.cumsum(x, axis=1)
    a, b = load(forward, (np.int64, [4, 6]))(x)
    np.testing.assert_array_equal(a, y.reshape(-1).sum(keepdims=True))
    np.testing.assert_array_equal(b, np.cumsum(y.reshape(2, -1), axis=1) + 1)


def test_one_model_at_many_sizes() -> None:
    def forward(x: Any, y: Any) -> Any:
        joined = ops.concat([x, y * 2, x + 1], 0)
        flat = ops.reshape(joined, [-1])
        total = ops.sum(joined, 0)
        return flat[::2] - 1, ops.max(joined - total, axis=1), ops.permute(joined, [1, 0]) * total.reshape([-1, 1])

    model = load(forward, (np.int64, ["m", "n"]), (np.int64, ["k", "n"]))
    for m, k, n in [(1, 1, 1), (2, 3, 4), (5, 0, 3), (0, 1, 7), (8, 8, 64), (3, 4, 1), (2, 3, 4)]:
        x, y = numbers(m, n, dtype=np.int64), numbers(k, n, dtype=np.int64, seed=1)
        joined = np.concatenate([x, y * 2, x + 1], 0)
        total = joined.sum(0, keepdims=True)
        a, b, c = model(x, y)
        np.testing.assert_array_equal(a, joined.reshape(-1)[::2] - 1)
        np.testing.assert_array_equal(b, (joined - total).max(1, keepdims=True))
        np.testing.assert_array_equal(c, joined.T * total.reshape(-1, 1))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)], ids=str)
def test_empty_tensors(shape: tuple[int, ...]) -> None:
    names = [f"d{k}" for k in range(len(shape))]
    model = load(lambda x: (ops.relu(x * 2.0), ops.sum(x + 1.0, 0), ops.reshape(x, [-1]) - 1.0), (F, names))
    x = np.zeros(shape, F)
    a, b, c = model(x)
    assert a.shape == shape and c.shape == (0,)
    np.testing.assert_array_equal(b, (x + 1).sum(0, keepdims=True))


def test_scalars_only() -> None:
    model = load(lambda x, y: ops.where(x > y, x * y, x + y), (np.int32, []), (np.int32, []))
    assert len(model.groups) == 1
    for x, y in [(3, 2), (2, 3)]:
        got = model(np.array(x, np.int32), np.array(y, np.int32))[0]
        assert got.shape == () and got == (x * y if x > y else x + y)


@pytest.mark.parametrize("rank", range(6))
def test_every_rank(rank: int) -> None:
    shape = (2, 3, 1, 4, 2)[:rank]
    order = list(range(rank))[::-1]
    model = load(lambda x: ops.permute(x * 2, order) + ops.permute(x, order) - 1, (np.int16, list(shape)))
    assert len(model.groups) == 1
    x = numbers(*shape, dtype=np.int16) if rank else np.array(3, np.int16)
    np.testing.assert_array_equal(model(x)[0], x.transpose(order) * np.int16(3) - np.int16(1))


def test_only_what_cannot_be_built_is_taken_apart() -> None:
    """Three groups cannot be built; what they share with others, and all others, stay as they are."""

    def forward(x: Any, y: Any) -> Any:
        doubled = x * 2
        first, second = custom("addressed", doubled) + 3, custom("addressed", ops.relu(y))
        return first, second, ops.relu(doubled - 1), ops.sum(y * y), custom("addressed", -x)

    def made() -> Loaded:
        return load(forward, (F, ["m", "n"]), (F, ["m", "n"]))

    model = made()
    around = ["[mul]", "[addressed]", "[add]", "[relu]", "[addressed]", "[negate]", "[addressed]"]
    assert sorted(model.groups) == sorted([*around, "sub [relu]", "mul [reduce_sum]"])
    x = np.arange(12, dtype=F).reshape(3, 4)
    results = model(x, x - 5)
    wanted = x * 2 + 4, np.maximum(x - 5, 0) + 1, np.maximum(x * 2 - 1, 0), ((x - 5) ** 2).sum(-1, keepdims=True), 1 - x
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    reasons = [edge.reason for kernel in model.fused.kernel_summaries for edge in kernel.unfused]
    assert len(reasons) == 5
    assert all(reason.endswith("cannot be compiled together with other ops, and runs alone") for reason in reasons)
    assert made().fused.code.plan.parts == model.fused.code.plan.parts


def test_a_graph_of_one_group_is_taken_apart_too() -> None:
    model = load(lambda x: custom("addressed", x * 2), (F, ["m", "n"]))
    assert model.groups == ["[mul]", "[addressed]"]
    np.testing.assert_array_equal(model(np.ones((2, 3), F))[0], np.full((2, 3), 3))


def test_an_epilogue_of_vectors_is_not_taken_apart_lane_by_lane() -> None:
    """A pool stores vectors: what follows reads them from memory, in a loop that becomes vectors again."""
    made = load(lambda x: ops.exp(ops.avg_pool1d(x, 3, padding=1)) * 2, (F, ["n", "w", "c"]))
    assert made.groups == ["[avg_pool] exp mul"]
    entry = made.fused.code.plan.entry
    assert entry is not None
    used = [op for f in typed_program(entry, host()).functions for op in walk(f.body)]
    assert DType.float32 not in {op.operands[0].dtype for op in used if op.name == "extract_at"}
    x = numbers(2, 9, 70)
    around = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    wanted = np.exp((around[:, :-2] + around[:, 1:-1] + around[:, 2:]) / 3) * 2
    np.testing.assert_allclose(made(x)[0], wanted, rtol=1e-5)


def test_two_models_do_not_share_memory() -> None:
    """Temporaries lie in an arena of each model's own; results of earlier calls stay as they are."""
    model = load(lambda x: ops.sum(custom("running_sum", custom("running_sum", x) + 1), 0), (np.int64, ["m", "n"]))
    x, y = numbers(4, 5, dtype=np.int64), numbers(4, 5, dtype=np.int64, seed=1)
    first = model.fused(x)[0].to_numpy()
    kept = first.copy()
    second = model.fused(y)[0].to_numpy()
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(second, (np.cumsum(np.cumsum(y, 1) + 1, 1)).sum(0, keepdims=True))


def test_a_kernel_reads_an_output_that_goes_on_to_the_next(tmp_path: Path) -> None:
    """What it promises is not so: said where it reads, and only where another op runs in its stores."""
    file = tmp_path / "kernels.py"
    for read in ("out[i]", "out.load(i)", "out.at(i)"):
        file.write_text(
            "from einkorn.dsl import InputTensor, OutputTensor, float32, register\n\n"
            '@register("again", writes_once=True)\n'
            'def again(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n'
            "    for i in range(x.dim(0)):\n"
            "        out[i] = x[i]\n"
            f"        out[i] = x[i] + {read}\n"
        )
        types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())]

        def forward(x: Any, then: Any) -> Any:
            return then(ops.custom("again", device=DeviceRef.CPU(), values=[x])[0])

        graph = Graph("test", forward, types, None, lambda y: y * 2.0, custom_extensions=[str(file)])
        with pytest.raises(CompileError, match=f"{file}:7.*'out' is read") as error:
            InferenceSession().load(graph)
        assert error.value.code == "EK0455"
    alone = Graph("test", forward, types, None, lambda y: y, custom_extensions=[str(file)])
    assert InferenceSession().load(alone)(np.float32([1, 2]))[0].to_numpy().tolist() == [2, 4]
