"""The program for several ranks runs on threads, and says that they share a layer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "distributed" / "layer.py"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_layer_on_several_ranks(ranks: int) -> None:
    command = [sys.executable, "-m", "einkorn", "run", "-n", str(ranks), "--backend", "threads", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{ranks} ranks share 32768 weights") == ranks, done.stdout
