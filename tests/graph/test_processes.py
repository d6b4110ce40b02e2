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
print("sums agree")
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
