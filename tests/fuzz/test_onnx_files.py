"""A short campaign of broken ONNX files; `tests/fuzz/onnx_files.py` runs long ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")


def test_broken_files_are_refused() -> None:
    program = Path(__file__).with_name("onnx_files.py")
    done = subprocess.run(
        [sys.executable, str(program), "--mutants", "400", "--seed", "3"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EK0526" in done.stdout and "graph" in done.stdout
