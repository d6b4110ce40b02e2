"""Ops of JAX on 1, 2 and 4 devices, by `jax.shard_map` and by sharded arrays under `jax.jit`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("einkorn.jax")
ROOT = Path(__file__).parents[2]


def test_on_devices() -> None:
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    program = [sys.executable, "-m", "tests.interop.jax_on_devices"]
    done = subprocess.run(program, env=flags, cwd=ROOT, capture_output=True, text=True, timeout=540)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(lines) > 50 and [line for line in lines if not line.startswith("holds")] == []
