"""Ranks that fail, come late or do not agree while a collective is begun and not waited for."""

from __future__ import annotations

import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.distributed import Mesh, rank, run_threads
from support.rank_programs import BEGIN, run

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

allreduce: Any = ops.allreduce
with_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")


def type_of(dtype: Any, *shape: int | str) -> TensorType:
    return TensorType(DType.from_numpy(np.dtype(dtype)), shape, DeviceRef.CPU())


def gathering(mesh: Any) -> Any:
    """A model that takes a row of a product between the two kernels of a sum."""
    types = [type_of(np.float32, "n", 32), type_of(np.int64, 1)]

    def forward(x: Any, index: Any) -> list[Any]:
        return [allreduce.sum(x * 2, mesh), ops.gather(x @ ops.permute(x, [1, 0]), index, 0)]

    model = InferenceSession(num_threads=1).load(Graph("gathering", forward, types))
    names = [summary.name for summary in model.kernel_summaries]
    start, end = (names.index(f"collective::{part}_allreduce") for part in ("start", "finish"))
    assert start < names.index("gather") < end
    return model


X, FIRST, BEYOND = np.ones((64, 32), np.float32), np.zeros(1, np.int64), np.full(1, 1 << 20)


def test_a_rank_that_fails_between_them_is_named() -> None:
    """What it has begun is there for the others; they fail where they wait for it next."""
    others: list[str] = []

    def program() -> None:
        model = gathering(Mesh({"all": 2}))
        for index in (FIRST, BEYOND if rank() else FIRST, FIRST):
            try:
                assert (model(X, index)[0].to_numpy() == 4).all()
            except EinkornError as error:
                others.append(error.code if rank() == 0 else "")
                raise

    with pytest.raises(EinkornError, match="index") as caught:
        run_threads(program, 2)
    assert caught.value.code == "EK0701" and "rank 1 of 2 raised this" in caught.value.__notes__
    assert [code for code in others if code] == ["EK0863"]


def test_a_wait_ends_with_its_op_line_and_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def program() -> None:
        model = gathering(Mesh({"all": 2}))
        model(X, FIRST)
        monkeypatch.setenv("EINKORN_COLLECTIVE_TIMEOUT", "0.5")
        if rank() == 1:
            is_over.wait(60)
            return
        try:
            model(X, FIRST)
        finally:
            is_over.set()

    with pytest.raises(KernelError) as caught:
        run_threads(program, 2)
    assert caught.value.code == "EK0862"
    assert "rank 0 waited 0.5 s in allreduce.sum (float32, 2048 elements" in str(caught.value)
    assert "rank 1 did not come" in str(caught.value) and "test_begun_exchanges.py" in str(caught.value)


@pytest.mark.parametrize("what", ["size", "order"])
def test_other_calls_are_reported_with_both_places(what: str) -> None:
    def program() -> None:
        mesh = Mesh({"all": 2})
        types = [type_of(np.float32, "n", 32)]
        load = InferenceSession(num_threads=1).load
        models = [
            load(Graph(how, lambda x, how=how: [getattr(allreduce, how)(x * 2, mesh), x[:, :8] @ x[:8]], types))
            for how in ("sum", "max")
        ]
        for model in models:
            assert any("start_allreduce" in each.name for each in model.kernel_summaries)
            model(X)
        models[rank() if what == "order" else 0](X[: 64 - rank()] if what == "size" else X)

    with pytest.raises(KernelError) as caught:
        run_threads(program, 2)
    other = "allreduce.sum (float32, 2016 elements" if what == "size" else "allreduce.max (float32, 2048 elements"
    assert caught.value.code == "EK0861" and str(caught.value).count("test_begun_exchanges.py") >= 3
    assert "rank 0 calls allreduce.sum (float32, 2048 elements" in str(caught.value)
    assert f"rank 1 calls {other}" in str(caught.value)


FAILING = (
    BEGIN
    + """
import signal, sys, time
from mpi4py import MPI

def forward(x, index):
    return [ops.allreduce.sum(x * 2, mesh), ops.gather(x @ ops.permute(x, [1, 0]), index, 0)]

model = session.load(Graph("failing", forward, [type_of("n", 32), type_of(1, dtype=np.int64)]))
assert [each.name for each in model.kernel_summaries if "allreduce" in each.name][0] == "collective::start_allreduce"
x, index = np.ones((64, 32), np.float32), np.zeros(1, np.int64)
MPI.COMM_WORLD.Barrier()  # all have compiled
for _ in range(4):
    model(x, index)
print("begins", flush=True)
how, large = sys.argv[1], np.ones((12000, 32), np.float32)
if own == 1 and how == "kill":
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # which ends the process in the product
if own == 1 and how == "late":
    time.sleep(60)
if own == 1 and how == "raise":
    index = np.full(1, 1 << 20)
model(x if how == "late" else large, index)
if how != "late":
    model(x, index)
    print("not reached", flush=True)
"""
)

SAID = {
    "raise": r"(?s)\[rank 1\].*EK0701.*index",
    "late": r"program\.py:\d+:\d+: error\[EK0862\]: rank 0 waited 1 s in allreduce\.sum .*rank 1 did not come",
    "kill": r"rank 1 was ended by signal 14",
}


@with_mpi
@pytest.mark.parametrize("how", SAID)
def test_processes_that_fail_between_them(how: str, tmp_path: Path) -> None:
    done = run(tmp_path, FAILING, 2, how, EINKORN_COLLECTIVE_TIMEOUT="1" if how == "late" else "300")
    assert done.returncode != 0 and done.stdout.count("begins") == 2 and "not reached" not in done.stdout
    assert re.search(SAID[how], done.stderr), done.stderr
