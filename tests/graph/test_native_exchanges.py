"""Collectives that native code makes by MPI: all of them against NumPy, without Python; time-outs and other sizes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from einkorn.distributed import Mesh, run_threads
from support.rank_programs import BEGIN, run

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

with_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")

ALL = (
    BEGIN
    + """
def forward(x):
    ops.barrier(mesh)
    pairs = [(k, (k + 1) % n) for k in range(n)]
    return [
        ops.allreduce.sum(x, mesh), ops.allreduce.max(x, mesh), ops.allgather(x, mesh, 0), ops.allgather(x, mesh, 1),
        ops.reducescatter.sum(x, mesh, 1), ops.alltoall(x, mesh, 0), ops.alltoall(x, mesh, 1),
        ops.distributed_broadcast(x, mesh, root=n - 1), ops.collective_permute(x, mesh, pairs),
        ops.collective_permute(x, mesh, [(0, 1)]),
    ]

def wanted(xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return [
        total, np.maximum.reduce(xs), np.concatenate(xs, 0), np.concatenate(xs, 1), np.split(total, n, 1)[own],
        np.concatenate([np.split(x, n, 0)[own] for x in xs], 0),
        np.concatenate([np.split(x, n, 1)[own] for x in xs], 1), xs[-1], xs[own - 1],
        xs[0] if own == 1 else np.zeros_like(xs[0]),
    ]

through_python = []
before = CollectiveCalls.exchange
CollectiveCalls.exchange = lambda self, *given: through_python.append(given) or before(self, *given)
for dtype in (np.float32, np.float64, np.int16):
    model = session.load(Graph("all", forward, [type_of("a", "b", dtype=dtype)]))
    for round, shape in enumerate([(2, 4), (0, 2), (40, 302), (2, 4)]):
        sizes = n * shape[0], n * shape[1]
        xs = [(np.random.default_rng(k).standard_normal(sizes) * 100).astype(dtype) for k in range(n)]
        through_python.clear()
        results = model(xs[own])
        for number, (result, right) in enumerate(zip(results, wanted(xs), strict=True)):
            assert result.to_numpy().tobytes() == right.tobytes(), (dtype, shape, number)
        assert round in (0, 2) or not through_python, through_python
print("all agree")
"""
)

LATE = (
    BEGIN
    + """
import time
model = session.load(Graph("late", lambda x: ops.allreduce.sum(x, mesh), [type_of("n")]))
for _ in range(3):
    model(np.ones(3, np.float32))
if own == 1:
    time.sleep(60)
model(np.ones(3, np.float32))
"""
)


@with_mpi
def test_all_collectives_without_python(tmp_path: Path) -> None:
    """Python makes the first exchange of each collective alone: a later call of the same model makes none there. (A
    size that takes another way for the first time, by pieces, has its own first exchanges.)"""
    done = run(tmp_path, ALL)
    assert done.stdout.count("all agree") == 2, done.stderr


@with_mpi
def test_time_outs_of_native_exchanges(tmp_path: Path) -> None:
    done = run(tmp_path, LATE, EINKORN_COLLECTIVE_TIMEOUT="1")
    assert done.returncode != 0
    assert "EK0862" in done.stderr and "rank 0 waited 1 s in allreduce.sum (float32, 3 elements" in done.stderr
    assert "rank 1 did not come" in done.stderr and "program.py" in done.stderr


OTHER_SIZES = (
    BEGIN
    + """
import sys
op = {"allreduce": ops.allreduce.sum, "allgather": ops.allgather, "alltoall": ops.alltoall}[sys.argv[1]]
model = session.load(Graph("sizes", lambda x: op(x, mesh), [type_of("n")]))
for count in (12, 12, int(sys.argv[2 if own == 0 else 3])):
    model(np.ones(count, np.float32))
    print("done", count, flush=True)
"""
)


@with_mpi
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("op, first, others", [("allreduce", 6, 12), ("allgather", 6000, 9000), ("alltoall", 12, 6)])
def test_ranks_that_call_it_with_other_sizes(ranks: int, op: str, first: int, others: int, tmp_path: Path) -> None:
    done = run(tmp_path, OTHER_SIZES, ranks, op, str(first), str(others), EINKORN_COLLECTIVE_TIMEOUT="20")
    assert done.returncode != 0 and "EK0861" in done.stderr and "program.py" in done.stderr, done.stderr
    assert re.search(rf"rank \d calls {op}.* with another number of elements", done.stderr), done.stderr


AFTER = (
    BEGIN
    + """
import sys, time
from einkorn.dsl.diagnostics.errors import KernelError
large = int(sys.argv[1])
model = session.load(Graph("late", lambda x: ops.allreduce.sum(x, mesh), [type_of("n")]))
for _ in range(3):
    model(np.ones(large, np.float32))
if own == 1:
    time.sleep(2)
for expected in ("EK0862", "EK0863"):
    try:
        result = model(np.full(large, own + 1, np.float32))[0].to_numpy()
    except KernelError as error:
        print("rank", own, error.code, expected, flush=True)
        heap = [bytearray(64 * k) for k in range(10000)]  # fails where MPI writes into memory that is free
time.sleep(2)
"""
)


@with_mpi
@pytest.mark.parametrize("count", [16, 200000])
def test_a_group_is_not_used_after_a_time_out(count: int, tmp_path: Path) -> None:
    """A rank that comes late would be answered with the tensor of another call."""
    done = run(tmp_path, AFTER, 2, str(count), EINKORN_COLLECTIVE_TIMEOUT="1")
    said = [line for line in done.stdout.splitlines() if "rank 0 EK" in line]
    assert [line.split()[-2:] for line in said] == [["EK0862"] * 2, ["EK0863"] * 2], done.stdout + done.stderr


GONE = (
    BEGIN
    + """
import sys
model = session.load(Graph("gone", lambda x: ops.allreduce.sum(x, mesh), [type_of("n")]))
for _ in range(3):
    model(np.ones(3, np.float32))
if own == 1:
    if sys.argv[1] == "finalize":
        sys.modules["mpi4py.MPI"].Finalize()
    sys.exit(int(sys.argv[1] == "status"))
model(np.ones(3, np.float32))
print("not reached", flush=True)
"""
)


@with_mpi
@pytest.mark.parametrize("how", ["status", "end", "finalize"])
def test_a_rank_that_ends_is_not_waited_for(how: str, tmp_path: Path) -> None:
    """By the launcher alone, which does not look at how a process ends."""
    path = tmp_path / "program.py"
    path.write_text(GONE)
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", "2", sys.executable, str(path), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)  # of the 300 s that ranks wait
    assert done.returncode != 0 and "not reached" not in done.stdout
    assert "EK0863" in done.stderr and "program.py" in done.stderr, done.stderr
    assert "rank 0 waits in allreduce.sum (float32, 3 elements" in done.stderr
    assert "rank 1 has ended without calling it" in done.stderr


def test_a_thread_that_waits_for_itself_fails_at_once() -> None:
    def program() -> None:
        mesh = Mesh({"all": 2})
        x = TensorType(DType.float32, [3], DeviceRef.CPU())
        model = InferenceSession(num_threads=1).load(
            Graph("itself", lambda x: ops.recv(x.type, mesh.group, source=mesh.rank), [x])
        )
        model(np.ones(3, np.float32))

    with pytest.raises(KernelError, match="has not sent to itself") as caught:
        run_threads(program, 2)
    assert caught.value.code == "EK0863"
