"""Products whose sums over ranks begin before they are whole: no bit differs, and summaries say what is cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.distributed import Mesh, rank, run_threads
from support import graphs
from support.rank_programs import BEGIN, run

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, nn, ops, parse_graph
from einkorn.graph.ops import reducing

allreduce: Any = ops.allreduce
CUT = "collective::allreduce_product"
DEPTH, COLUMNS = 96, 70
ROWS = (0, 1, 3, 63, 64, 66, 127, 130, 200, 391)  # with small blocks: none, one piece, several, and a few rows more


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducing, "BLOCK_BYTES", 1 << 13)


def type_of(dtype: Any, *shape: int | str) -> TensorType:
    return TensorType(DType.from_numpy(np.dtype(dtype)), shape, DeviceRef.CPU())


def names_of(model: Any) -> list[str]:
    return [summary.name for summary in model.kernel_summaries]


def whole_and_cut(
    program: Callable[[], tuple[list[str], Any]], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], Any]:
    """What a program gives, which has to be the same without the pass; and the names of kernels with it."""
    cut = run_threads(program, ranks)
    with monkeypatch.context() as patch:
        patch.setenv("EINKORN_WITHOUT", "graph.cut_products")
        whole = run_threads(program, ranks)
    assert not any(CUT in names for names, _ in whole)
    assert [result for _, result in cut] == [result for _, result in whole]
    return cut[0]


def products(dtype: Any) -> dict[str, Callable[..., Any]]:
    """Products of each kernel: the right matrix is an input, or a constant."""
    matrix = graphs.numbers((DEPTH, COLUMNS), dtype, seed=9)
    kind, host = DType.from_numpy(np.dtype(dtype)), DeviceRef.CPU()
    return {
        "matmul": lambda x, w: x @ w,
        "matmul_transposed": lambda x, w: x @ ops.permute(ops.reshape(w, [COLUMNS, DEPTH]), [1, 0]),
        "matmul_packed": lambda x, w: x @ ops.constant(matrix, kind, host),
        "matmul_transposed_packed": lambda x, w: x @ ops.permute(ops.constant(matrix.T.copy(), kind, host), [1, 0]),
    }


KINDS = [(kernel, dtype, 2) for kernel in products(np.float32) for dtype in graphs.FLOATS]


@pytest.mark.parametrize(("kernel", "dtype", "ranks"), [*KINDS, ("matmul", np.float32, 3), ("matmul", np.int32, 4)])
def test_no_bit_differs(kernel: str, dtype: Any, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> tuple[list[str], Any]:
        mesh, forward = Mesh({"all": ranks}), products(dtype)[kernel]
        types = [type_of(dtype, "rows", DEPTH), type_of(dtype, DEPTH, COLUMNS)]
        graph = Graph("cut", lambda x, w: allreduce.sum(forward(x, w), mesh), types)
        model, results = InferenceSession(num_threads=2 if ranks == 3 else 1).load(graph), []
        for rows in ROWS:
            x = graphs.numbers((rows, DEPTH), dtype, seed=rows + rank())
            results.append(model(x, graphs.numbers((DEPTH, COLUMNS), dtype, seed=7))[0].to_numpy().tobytes())
        return names_of(model), results

    names, _ = whole_and_cut(program, ranks, monkeypatch)
    assert CUT in names and not any(name.startswith("matmul") for name in names)


def test_what_stands_around_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elementwise ops before and behind, a view of a larger tensor, several axes, and all of it twice."""

    def forward(x: Any, w: Any, bias: Any, mesh: Any) -> list[Any]:
        hidden = ops.relu(x[:, ::2, 1:] * 2) @ w
        first = ops.layer_norm(allreduce.sum(hidden, mesh) + bias, bias, bias, 1e-5)
        second = allreduce.mean(first @ ops.permute(w, [1, 0]), mesh)
        return [first, second, allreduce.max(second @ w, mesh)]

    def program() -> tuple[list[str], Any]:
        mesh = Mesh({"all": 2})
        types = [type_of(np.float32, *shape) for shape in (("b", "rows", 97), (96, 70), (70,))]
        model = InferenceSession(num_threads=1).load(Graph("all", lambda x, w, bias: forward(x, w, bias, mesh), types))
        given = [graphs.numbers(shape, np.float32, seed=rank()) for shape in ((3, 301, 97), (96, 70), (70,))]
        return names_of(model), [each.to_numpy().tobytes() for each in model(*given)]

    names, _ = whole_and_cut(program, 2, monkeypatch)
    assert names.count(CUT) == 3


def test_in_loops_and_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(x: Any, w: Any, mesh: Any) -> list[Any]:
        def body(k: Any, y: Any) -> list[Any]:
            return [k + 1, allreduce.mean(y @ w, mesh)]

        _, looped = ops.while_loop([ops.constant(0, DType.int64, DeviceRef.CPU()), x], lambda k, y: k < 3, body)
        chosen = ops.cond(
            ops.sum(x)[0, 0] == 12345,
            [x.type],
            lambda: ops.relu(x),
            lambda: ops.relu(allreduce.sum(looped @ w, mesh)),
        )
        return [looped, *chosen]

    def program() -> tuple[list[str], Any]:
        mesh = Mesh({"all": 2})
        types = [type_of(np.float32, "rows", 96), type_of(np.float32, 96, 96)]
        model = InferenceSession(num_threads=1).load(Graph("bodies", lambda x, w: forward(x, w, mesh), types))
        x, w = (graphs.numbers(shape, np.float32, seed=4) for shape in ((333, 96), (96, 96)))
        return names_of(model), [each.to_numpy().tobytes() for each in model(x, w / 100)]

    names, _ = whole_and_cut(program, 2, monkeypatch)
    assert names.count(CUT) == 2


def test_layers_over_ranks_are_cut() -> None:
    """Those whose weights are split along the inner axis, and results are as of one rank."""

    class Block(nn.Module):  # type: ignore[type-arg]
        def __init__(self, group: Any = None) -> None:
            self.mlp = nn.MLP(64, 256, split_hidden=group)

        def forward(self, x: Any) -> Any:
            return x + self.mlp(x)

    whole = Block()
    weights = {
        name: graphs.numbers([int(n) for n in p.shape], np.float32, seed=1) / 100 for name, p in whole.parameters
    }
    x = graphs.numbers((2, 150, 64), np.float32, seed=2)

    def program() -> Any:
        layer = Block(Mesh({"all": 2})["all"])
        layer.load_state_dict(weights)
        compiled = layer.compile(type_of(np.float32, "b", "rows", 64))
        return compiled(x).numpy(), names_of(compiled.model)

    whole.load_state_dict(weights)
    expected = whole.compile(type_of(np.float32, "b", "rows", 64))(x).numpy()
    for result, names in run_threads(program, 2):
        assert CUT in names and np.allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_text_without_the_size_of_blocks_is_cut() -> None:
    """One that was printed before reductions had it."""

    def program() -> None:
        mesh = Mesh({"all": 2})
        types = [type_of(np.float32, "rows", 96), type_of(np.float32, 96, 64)]
        text = str(Graph("old", lambda x, w: allreduce.sum(x @ w, mesh), types))
        without = text.replace(f", block = {reducing.BLOCK_BYTES}", "")
        assert without != text
        model = InferenceSession(num_threads=1).load(parse_graph(without))
        x, w = np.ones((300, 96), np.float32), np.ones((96, 64), np.float32)
        assert CUT in names_of(model) and (model(x, w)[0].to_numpy() == 192).all()

    run_threads(program, 2)


# *** what is not cut ***


def read_twice(x: Any, w: Any, mesh: Any) -> list[Any]:
    y = x @ w
    return [allreduce.sum(y, mesh), y]


def begun_early(x: Any, w: Any, mesh: Any) -> list[Any]:
    return [allreduce.sum(x @ w, mesh), ops.softmax(w)]


WHOLE: dict[str, tuple[Callable[..., list[Any]], tuple[int | str, ...], int]] = {
    "the result of 'matmul' is read elsewhere, too": (read_twice, ("rows", 96), 2),
    "its exchange goes on while other ops run": (begun_early, ("rows", 96), 2),
    "its 8192 bytes are exchanged in one piece": (lambda x, w, mesh: [allreduce.sum(x @ w, mesh)], (32, 96), 4),
    "a product of 48 steps takes less time than its exchange": (
        lambda x, w, mesh: [allreduce.sum(x[:, :48] @ w[:48], mesh)],
        ("rows", 96),
        2,
    ),
    "there is one rank": (lambda x, w, mesh: [allreduce.sum(x @ w, mesh)], ("rows", 96), 1),
}


@pytest.mark.parametrize("reason", WHOLE)
def test_summaries_say_why_a_product_is_whole(reason: str) -> None:
    forward, shape, ranks = WHOLE[reason]

    def program() -> str:
        mesh = Mesh({"all": ranks})
        types = [type_of(np.float32, *shape), type_of(np.float32, 96, 64)]
        model = InferenceSession(num_threads=1).load(Graph("whole", lambda x, w: forward(x, w, mesh), types))
        assert CUT not in names_of(model)
        return "\n".join(map(str, model.kernel_summaries))

    for text in run_threads(program, ranks):
        assert f"it is computed before it is exchanged: {reason}" in text


# *** failures ***


def loaded(mesh: Any) -> Any:
    types = [type_of(np.float32, "rows", 96), type_of(np.int64, 1), type_of(np.float32, 96, 64)]
    graph = Graph("late", lambda x, at, w: ops.gather(allreduce.sum(x @ w, mesh), at, 0), types)
    model = InferenceSession(num_threads=1).load(graph)
    assert CUT in names_of(model)
    return model


def test_other_sizes_are_reported_with_both_places() -> None:
    def program() -> None:
        model, w = loaded(Mesh({"all": 2})), np.ones((96, 64), np.float32)
        for rows in (300, 300 - rank()):
            model(np.ones((rows, 96), np.float32), np.zeros(1, np.int64), w)

    with pytest.raises(KernelError) as caught:
        run_threads(program, 2)
    assert caught.value.code == "EK0861" and "allreduce.sum (float32, 19136 elements" in str(caught.value)
    assert str(caught.value).count("test_cut_products.py") >= 2


def test_a_rank_that_fails_is_named() -> None:
    def program() -> None:
        model, w = loaded(Mesh({"all": 2})), np.ones((96, 64), np.float32)
        for at in (0, 1 << 20 if rank() else 0, 0):
            result = model(np.ones((300, 96), np.float32), np.full(1, at), w)[0].to_numpy()
            assert (result == 192).all()

    with pytest.raises(EinkornError, match="index") as caught:
        run_threads(program, 2)
    assert "rank 1 of 2 raised this" in caught.value.__notes__


# *** processes of MPI ***

with_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")

MIXED = (
    BEGIN
    + """
import os
import ml_dtypes
from einkorn.graph.ops import reducing

reducing.BLOCK_BYTES = 1 << 13
through_python = []
before = CollectiveCalls.exchange
CollectiveCalls.exchange = lambda self, *given: through_python.append(given) or before(self, *given)
dtype, results = ml_dtypes.bfloat16, {}
for name, ranks in (("cut", []), ("all", range(n)), ("some", [1])):
    os.environ["EINKORN_WITHOUT"] = "graph.cut_products" if own in ranks else ""
    types = [type_of("a", 96, dtype=dtype), type_of(96, 70, dtype=dtype)]
    model = session.load(Graph("mixed", lambda x, w: ops.allreduce.sum(x @ w, mesh), types))
    kernels = [summary.name for summary in model.kernel_summaries]
    assert ("collective::allreduce_product" in kernels) == (own not in ranks)
    made = []
    for rows in (0, 64, 391, 391):
        rng = np.random.default_rng(own)
        x, w = rng.standard_normal((rows, 96)).astype(dtype), rng.standard_normal((96, 70)).astype(dtype)
        through_python.clear()
        made.append(model(x, w)[0].to_numpy().tobytes())
    assert not through_python, through_python  # the last sizes were there before
    results[name] = made
assert results["cut"] == results["all"] == results["some"]
print("all agree")
"""
)


@with_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_and_without_the_pass_exchange_the_same(ranks: int, tmp_path: Path) -> None:
    done = run(tmp_path, MIXED, ranks)
    assert done.stdout.count("all agree") == ranks, done.stderr


LATE = (
    BEGIN
    + """
import time
from mpi4py import MPI

types = [type_of("a", 96), type_of(96, 512)]
model = session.load(Graph("late", lambda x, w: ops.allreduce.sum(x @ w, mesh), types))
x, w = np.ones((4000, 96), np.float32), np.ones((96, 512), np.float32)
MPI.COMM_WORLD.Barrier()  # all have compiled
model(x, w)
MPI.COMM_WORLD.Barrier()
if own == 1:
    time.sleep(60)
model(x, w)
"""
)


@with_mpi
def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    """Two pieces are begun by then."""
    done = run(tmp_path, LATE, 2, EINKORN_COLLECTIVE_TIMEOUT="1")
    said = r"program\.py:\d+:\d+: error\[EK0862\]: rank 0 waited 1 s in allreduce\.sum .*rank 1 did not come"
    assert done.returncode != 0 and re.search(said, done.stderr), done.stderr
