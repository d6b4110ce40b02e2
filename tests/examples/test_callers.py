"""The programs that call kernels without a graph run, and say that they are right; each wants its own library."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "callers"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
WANTS = {
    "torch_op.py": "torch",
    "jax_op.py": "jax",
    "numba_call.py": "numba",
}  # program -> the library that it calls from


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_and_matches(program: str, tmp_path: Path) -> None:
    wanted = WANTS.get(program)
    if wanted is not None and importlib.util.find_spec(wanted) is None:
        pytest.skip(f"{wanted} is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EINKORN_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program)],
        cwd=tmp_path,
        env=clean | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "matches" in done.stdout


def test_every_program_is_in_the_readme() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    assert not [program for program in PROGRAMS if f"examples/callers/{program}" not in readme]
