"""Ops in two processes of `torch.distributed` with gloo: DDP and tensor parallelism compute what torch's own do."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: make callers")

PROGRAM = Path(__file__).with_name("torch_on_ranks.py")


def test_ddp_and_tensor_parallel(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        results = [process.communicate(timeout=400) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for out, errors in results:
        lines = out.splitlines()
        assert len(lines) == 7 and all(line.startswith("holds ") for line in lines), out + errors[-3000:]
