"""Kernels and models on Ray: tasks, actors that hold a model, and blocks of a data set."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install einkorn[ray]")

PROGRAM = Path(__file__).with_name("on_ray.py")


def test_tasks_actors_and_data_sets(tmp_path: Path) -> None:
    """Workers take what the first has compiled from the cache of the machine."""
    with tempfile.TemporaryDirectory() as short:  # the paths of sockets are limited
        environment = os.environ | {
            "EINKORN_CACHE_DIR": str(tmp_path),
            "RAY_worker_niceness": "0",  # by default workers get what other processes leave, which is little here
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_TMPDIR": short,
        }
        command = [sys.executable, str(PROGRAM)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("holds", "FAILS"))]
    wanted = ["a task", "two actors", "nothing is compiled again"]
    wanted += ["blocks of a data set"] * (find_spec("pyarrow") is not None)
    assert lines == [f"holds {what}" for what in wanted], done.stdout + done.stderr[-3000:]
