"""Runs all tests on every interpreter that is found, from Python 3.11 to 3.14: what `make test-pythons` does.

One of each version is taken, from PATH or from those of pyenv. Each has an environment of its own in build/, which
stays, so that the next run begins at once. `PYTEST_ARGS` picks tests, as for `make test`.

Run as a program: python pythons.py [INTERPRETER ...].
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def version_of(interpreter: str) -> str | None:
    """The version of an interpreter, such as "3.12"; None where it does not run."""
    requested = [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(requested, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def found(version: str) -> str | None:
    """An interpreter of a version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates: Iterable[str | None] = (
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))),
    )
    return next((each for each in candidates if each is not None and version_of(each) == version), None)


def main(interpreters: list[str]) -> int:
    chosen = interpreters or [each for version in VERSIONS if (each := found(version)) is not None]
    failed = []
    for interpreter in chosen:
        version = version_of(interpreter)
        print(f"=== {interpreter} ({version or 'does not run'})", flush=True)
        settings = [f"VENV=build/python-{version}", f"PYTHON={interpreter}"]
        command = ["make", "--no-print-directory", *settings, "everything"]
        if version is None or subprocess.run(command, cwd=ROOT).returncode:
            failed.append(interpreter)
    print(f"=== {len(chosen) - len(failed)} of {len(chosen)} interpreters pass", *failed)
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
