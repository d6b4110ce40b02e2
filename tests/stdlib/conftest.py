"""Kernels of the standard library on NumPy arrays.

`run(family, op, *arrays, outputs=..., **parameters)` gives the only output of a shipped kernel; `check_compiles` makes
code for a target that this machine need not be.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.library import library_of

Array = np.ndarray[Any, Any]


def _file_of(family: str) -> Path:
    from support import harness

    module = importlib.import_module(f"einkorn.stdlib.{family}")
    file = Path(str(module.__file__))
    harness._libraries.setdefault(file, library_of(module))
    return file


@pytest.fixture(scope="session")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., Array]:
    """Runs a kernel on this machine."""

    def call(family: str, op: str, *arrays: Array, outputs: Any = None, **parameters: Any) -> Array:
        return run_kernel(_file_of(family), op, list(arrays), parameters, outputs)[0]

    return call


@pytest.fixture(scope="session")
def check_compiles(compile_kernel: Callable[..., Any]) -> Callable[..., None]:
    """Compiles a kernel and expects code."""

    def check(
        target: str,
        family: str,
        op: str,
        types: Sequence[tuple[DType, tuple[int, ...]]],
        outputs: Any = None,
        **parameters: Any,
    ) -> None:
        artifact, _ = compile_kernel(_file_of(family), op, list(types), parameters, outputs, target)
        assert len(artifact.code) > 100

    return check
