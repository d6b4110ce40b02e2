"""The drivers of GPUs, without a GPU: the real `cuda.bindings` and `hip` find a library that the test has made.

Each runs the checks of `device/` in a process of its own, since a process keeps the libraries it has found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import fake_hip, fake_libraries

HERE = Path(__file__).parent
TESTS = HERE.parent


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def checks(folder: Path, plugin: str, *files: str) -> str:
    """Runs files of checks under a plugin of pytest; gives what it prints."""
    options = [
        "-p",
        plugin,
        "-p",
        "no:cacheprovider",
        "-o",
        "python_files=check_*.py",
        "-o",
        "python_functions=check_*",
    ]
    done = run(folder, "-m", "pytest", "-v", *options, *(str(HERE / "device" / name) for name in files))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `libcuda.so.1`."""
    folder = tmp_path_factory.mktemp("cuda")
    fake_libraries.write_cuda(folder)
    return folder


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the libraries are ELF files")


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `libamdhip64.so`."""
    folder = tmp_path_factory.mktemp("hip")
    fake_libraries.write_hip(folder, fake_hip.NAMES)
    return folder


def test_hip(hip: Path) -> None:
    assert "passed" in checks(hip, "support.fake_hip", "check_buffers.py", "check_calls.py")


def test_cuda(cuda: Path) -> None:
    assert "passed" in checks(cuda, "support.fake_cuda", "check_buffers.py", "check_calls.py")
