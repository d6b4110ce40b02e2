"""Ops of JAX in two processes with two devices each: `jax.jit` of sharded arrays, and `jax.shard_map`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("einkorn.jax")
PROGRAM = Path(__file__).with_name("jax_on_ranks.py")


def test_on_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(port)],
            env=flags,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        results = [process.communicate(timeout=400) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for out, errors in results:
        # Threads of Gloo print into the same output, and may split each other's lines.
        assert out.count("holds ") == 4, out + errors[-3000:]
