"""Ranks on two machines: two network namespaces that a veth pair joins, with MPI over TCP between them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("two_machines.sh")
ALONE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def why_not() -> str:
    """Why this machine cannot make two of itself; empty where it can."""
    if find_spec("mpi4py") is None:
        return "needs mpi4py and an MPI: make callers"
    if not all(shutil.which(tool) for tool in ("unshare", "ip", "mount")):
        return "needs unshare, ip and mount of Linux"
    tried = "mount -t tmpfs none /run && ip netns add one && ip link add left netns one type veth peer name right"
    done = subprocess.run([*ALONE, "sh", "-c", tried], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"network namespaces are refused: {done.stderr.strip()}"


PROGRAM = """
import os, sys
import numpy as np
from mpi4py import MPI
from einkorn.distributed import Mesh, rank, size
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, nn, ops

world = MPI.COMM_WORLD
networks = world.allgather(os.readlink("/proc/self/ns/net"))
assert len(set(networks)) == 2 and world.Split_type(MPI.COMM_TYPE_SHARED).size == 1
if sys.argv[1:] == ["loop"]:
    os.environ["EINKORN_COLLECTIVE_TIMEOUT"] = "2"
mesh = Mesh({"model": size()})
x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
forward = lambda x: (ops.allreduce.sum(x, mesh), ops.allgather(x, mesh, axis=1), ops.alltoall(x, mesh))
model = InferenceSession(num_threads=1).load(Graph("moved", forward, [x]))
world.Barrier()  # waits without a limit for one that starts slowly
for n in (2, 4000):
    parts = [np.arange(4 * n, dtype=np.float32).reshape(n, 4) * (k + 1) for k in range(2)]
    total, joined, turned = (each.to_numpy() for each in model(parts[rank()]))
    assert np.array_equal(total, parts[0] + parts[1]) and np.array_equal(joined, np.concatenate(parts, 1))
    assert np.array_equal(turned, np.concatenate([np.split(part, 2)[rank()] for part in parts]))
print(f"rank {rank()} agrees", flush=True)
if sys.argv[1:] == ["raise"] and rank() == 1:
    raise ValueError("no data")
if sys.argv[1:]:
    while rank() == 1:
        pass
    model(np.ones((2, 4), np.float32))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := why_not():
        pytest.skip(reason)
    file = tmp_path_factory.mktemp("machines") / "program.py"
    file.write_text(PROGRAM)
    return file


@pytest.mark.parametrize("how", ["", "raise", "loop"])
def test_collectives_and_failures_between_machines(how: str, program: Path) -> None:
    launcher = str(Path(sys.executable).with_name("mpiexec"))
    command = [*ALONE, "sh", str(SCRIPT), launcher, sys.executable, str(program), *how.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == bool(how), text
    if not how:
        assert all(done.stdout.count(f"rank {rank} agrees") == 1 for rank in range(2)), text
    else:
        wanted = {"raise": "[rank 1] ValueError: no data", "loop": "rank 0 waited 2 s in allreduce.sum"}
        assert wanted[how] in text and ("not all ranks came" in text) == (how == "loop"), text
