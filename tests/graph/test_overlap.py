"""Collectives that begin early and are waited for late: where their parts stand, and that no bit differs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.distributed import Mesh, rank, run_threads
from support import graphs
from support.rank_programs import BEGIN, run

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

allreduce: Any = ops.allreduce
FLOATS = [*graphs.FLOATS, np.int16]


def type_of(dtype: Any, *shape: int | str) -> TensorType:
    return TensorType(DType.from_numpy(np.dtype(dtype)), shape, DeviceRef.CPU())


def kernels_of(model: Any) -> list[str]:
    """The collectives and products of a model, in the order in which they run."""
    names = [summary.name for summary in model.kernel_summaries]
    return [name.removeprefix("collective::") for name in names if name.startswith(("collective", "matmul"))]


def both(program: Callable[[], Any], ranks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """What a program gives on all ranks, with the pass and without it."""
    with_pass = run_threads(program, ranks)
    with monkeypatch.context() as patch:
        patch.setenv("EINKORN_WITHOUT", "graph.overlap")
        return with_pass, run_threads(program, ranks)


def every(x: Any, w: Any, mesh: Any) -> list[Any]:
    """All collectives that may have two parts, each with a product that does not need it."""
    made = [
        *(getattr(allreduce, how)(x * 2, mesh) for how in ("sum", "max", "min")),
        *(ops.allgather(x + 1, mesh, axis) for axis in (0, 1)),
        ops.reducescatter.sum(x * 3, mesh, 0),
        ops.alltoall(x - 1, mesh, 0),
    ]
    return [*made, x @ w]


@pytest.mark.parametrize(("ranks", "interpret"), [(2, False), (3, False), (4, False), (2, True)])
def test_no_bit_differs(ranks: int, interpret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(12, 7), (0, 3), (12 * 23, 31)] if not interpret else [(4, 3)]

    def program() -> Any:
        mesh = Mesh({"all": ranks})
        session, results = InferenceSession(num_threads=1, interpret=interpret), []
        for dtype in [np.float32] if interpret else FLOATS if ranks == 3 else [np.float32, np.int16]:
            types = [type_of(dtype, "a", "b"), type_of(dtype, "b", "c")]
            model = session.load(Graph("every", lambda x, w: every(x, w, mesh), types))
            for rows, columns in shapes:
                x = graphs.numbers((rows, columns), dtype, seed=rank())
                w = graphs.numbers((columns, 5), dtype, seed=9)
                results += [each.to_numpy().tobytes() for each in model(x, w)]
        return results, kernels_of(model)

    split, whole = both(program, ranks, monkeypatch)
    assert [each for each, _ in split] == [each for each, _ in whole]
    if interpret:  # which leaves graphs as they are
        return
    starts = [name for name in split[0][1] if name.startswith("start")]
    assert starts == ["start_allreduce"] * 3 + ["start_allgather"] * 2 + ["start_alltoall"] * 2
    assert not any(name.startswith(("start", "finish", "wait")) for name in whole[0][1])


# *** processes of MPI ***

with_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")

MIXED = (
    BEGIN
    + """
import os, sys
import ml_dtypes

def forward(x, w):
    y, z = x * 2, x + 1
    made = [ops.allreduce.sum(y, mesh), ops.allreduce.max(z, mesh), ops.allgather(y, mesh, 0)]
    return [*made, ops.allgather(z, mesh, 1), ops.reducescatter.sum(y, mesh, 0), ops.alltoall(z, mesh, 0), x @ w]

through_python = []
before = CollectiveCalls.exchange
CollectiveCalls.exchange = lambda self, *given: through_python.append(given) or before(self, *given)
for dtype in (np.float32, np.int16, ml_dtypes.bfloat16)[:3 if n == 2 else 1]:
    def load():
        return session.load(Graph("mixed", forward, [type_of("a", "b", dtype=dtype), type_of("b", 5, dtype=dtype)]))

    results = {}
    for name, ranks in (("split", []), ("all", range(n)), ("some", [1])):
        os.environ["EINKORN_WITHOUT"] = "graph.overlap" if own in ranks else ""
        model = load()
        kernels = [summary.name for summary in model.kernel_summaries]
        assert any(each.startswith("collective::start") for each in kernels) == (own not in ranks)
        made = []
        for rows, columns in [(2, 4), (0, 3), (401, 302), (401, 302)]:
            rng = np.random.default_rng(own)
            x = (rng.standard_normal((n * rows, columns)) * 100).astype(dtype)
            through_python.clear()
            made.append([each.to_numpy().tobytes() for each in model(x, np.ones((columns, 5), dtype))])
        assert not through_python, through_python  # the last sizes were there before
        results[name] = made
    assert results["split"] == results["all"] == results["some"], dtype
print("all agree")
"""
)


@with_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_and_without_parts_exchange_the_same(ranks: int, tmp_path: Path) -> None:
    """Native code alone; in the last round one rank has kernels of two parts, and others have not."""
    done = run(tmp_path, MIXED, ranks)
    assert done.stdout.count("all agree") == ranks, done.stderr
