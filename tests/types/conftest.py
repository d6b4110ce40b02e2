"""Makes tests/language's `kernel_harness` importable, and gives the kernels of this folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LANGUAGE = str(HERE.parent / "language")
if LANGUAGE not in sys.path:
    sys.path.insert(0, LANGUAGE)


@pytest.fixture(scope="session")
def kernels() -> Any:
    """The kernels of `storage_kernels.py`; each call is compared with the interpreter."""
    from kernel_harness import KernelFile

    return KernelFile(HERE / "storage_kernels.py")


@pytest.fixture(scope="session")
def packed_kernels() -> Any:
    """Those of `packed_kernels.py`, the same way."""
    from kernel_harness import KernelFile

    return KernelFile(HERE / "packed_kernels.py")
