"""The program that compares known with unknown shapes runs, and its table has a row for each case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import static_shapes

PROGRAM = Path(static_shapes.__file__)


def test_the_table_is_complete() -> None:
    options = ["--only", "rope", "ops.softmax_masked", "--last", "3", "8", "--elements", "64"]
    command = [sys.executable, str(PROGRAM), *options, "--rounds", "1", "--least", "1e-5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines()[1:-1]]
    assert rows == [
        ["ops.softmax_masked", "3"],
        ["ops.softmax_masked", "8"],
        ["shapes::rope", "8"],
        ["shapes::rope_angles", "8"],
        ["shapes::rope_pairs", "8"],
    ]
    assert "cases" in done.stdout.splitlines()[-1]
