"""Ctrl-C at any moment: the process lives, and what was interrupted works when it is done again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "interrupted.py"
PATIENCE = 300.0  # seconds in which every process must have ended


@pytest.mark.parametrize("seed", range(6))
def test_interrupts_of_import_compile_load_and_run(seed: int, tmp_path: Path) -> None:
    """Two at random moments of a process."""
    moments = random.Random(seed)
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path), "EINKORN_NUM_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    for _ in range(2):
        time.sleep(moments.random() ** 2 * 4)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode, err) == ("begun\n", 0, "")
    assert set(out.splitlines()) <= {"stopped", "right"} and out.endswith("right\n")
