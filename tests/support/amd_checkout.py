"""Says what is missing to run AMD code in tinygrad's emulator, and ends with 1 then: `make test-amd` begins with it.

`EINKORN_AMD_EMULATOR` names a checkout of tinygrad. What compiles refuses variables of this beginning that it does not
know, so `rename()` gives it another name for the tests and the processes that they start.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "EINKORN_AMD_EMULATOR"
_KEPT: Final = "AMD_EMULATOR"


def rename() -> None:
    """Takes the variable out of the environment, and keeps what it says."""
    if VARIABLE in os.environ:
        os.environ[_KEPT] = os.environ.pop(VARIABLE)


def checkout() -> str:
    """The folder of the emulator, or nothing."""
    return os.environ.get(VARIABLE) or os.environ.get(_KEPT, "")


def missing() -> str | None:
    """What has to be there and is not; None where AMD code can run."""
    folder = checkout()
    if not folder:
        return f"{VARIABLE} does not name a checkout of tinygrad"
    if not Path(folder, "test", "mockgpu", "amd", "emu.py").is_file():
        return f"{VARIABLE}={folder} is not a checkout of tinygrad: there is no test/mockgpu/amd/emu.py in it"
    if shutil.which(os.environ.get("CC", "clang")) is None:
        return "the emulator compiles with clang, and clang is not on PATH"
    return None


if __name__ == "__main__":
    if reason := missing():
        sys.exit(f"AMD code cannot run here: {reason}")
