"""Layers that processes of MPI share, and a step of training by their rows: equal to one rank."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")

PROGRAM = Path(__file__).with_name("layers_on_ranks.py")
PARTS = ("linear", "mlp", "attention", "experts", "layer", "training")


@pytest.mark.parametrize("count", [2, 4])
def test_on_processes(count: int) -> None:
    launcher = Path(sys.executable).with_name("mpiexec")
    command = [str(launcher), "-n", str(count), sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    wanted = [f"rank {rank} of {count}: {part} holds" for rank in range(count) for part in PARTS]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in wanted if done.stdout.count(line) != 1] == []
