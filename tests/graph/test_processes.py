"""Ranks that are processes of MPI: a program by mpiexec, and how a failure ends them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")

PROGRAM = """
import sys
import numpy as np
from einkorn.distributed import Mesh, rank, size
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

mesh = Mesh({"model": size()})
x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
model = InferenceSession(num_threads=1).load(Graph("total", lambda x: ops.allreduce.sum(x, mesh), [x]))
for n in (3, 5001):
    assert (model(np.full(n, rank() + 1, np.float32))[0].to_numpy() == 3).all()
print("sums agree", flush=True)
model(np.ones(3, np.float32))  # all ranks have printed
if sys.argv[1:] and rank() == 1:
    raise ValueError("no data")
if sys.argv[1:]:
    model(np.ones(4, np.float32))
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_program_on_two_processes(fails: bool, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "einkorn", "run", "-n", "2", str(program), *["fail"] * fails]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("sums agree") == 2 and "[rank 1] sums agree" in done.stdout, done.stderr
    assert (done.returncode != 0) == fails, done.stderr
    if fails:
        assert "[rank 1]" in done.stderr and "ValueError: no data" in done.stderr


ALONE = """
import mpi4py.MPI
import numpy as np
from einkorn.distributed import Mesh
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.dsl.diagnostics.errors import KernelError

mesh = Mesh({"pipe": 1})
x = TensorType(DType.float32, ["n"], DeviceRef.CPU())

def forward(x):
    ops.send(x, mesh, to=0)
    ops.send(x + 1, mesh, to=0)
    return ops.recv(x.type, mesh, source=0), ops.recv(x.type, mesh, source=0)

model = InferenceSession().load(Graph("to itself", forward, [x]))
for n in (3, 100000):
    same, more = model(np.full(n, 5, np.float32))
    assert (same.to_numpy() == 5).all() and (more.to_numpy() == 6).all()
nothing = InferenceSession().load(Graph("nothing", lambda x: ops.recv(x.type, mesh, source=0), [x]))
try:
    nothing(np.ones(3, np.float32))
except KernelError as error:
    assert "EK0863" in str(error) and "has not sent to itself" in str(error)
    print("as said")
"""


def test_a_rank_sends_to_itself_without_waiting(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ALONE)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=100)
    assert done.stdout == "as said\n", done.stderr
