"""The kernels of `examples/gpu`, as cases like those of the tests' own kernels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from support.gpu_case import GpuCase

HEAVY = ("matrix_multiplication", "attention", "convolution")
FOLDER = Path(__file__).parents[2] / "examples" / "gpu"


def _module() -> Any:
    """The module of the examples, which are no package."""
    spec = importlib.util.spec_from_file_location("kernel_examples", FOLDER / "kernel_examples.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = tuple(
    GpuCase(
        f"example[{each.name.replace(' ', '-')}]",
        str(each.path),
        each.op,
        each.inputs,
        each.reference,
        each.parameters,
        bound=each.bound,
        heavy=each.file in HEAVY,
    )
    for each in _module().EXAMPLES
)
