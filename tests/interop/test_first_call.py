"""What a first call loads: where its code is in the cache no compiler, and nothing of other callers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KERNELS = """
from typing import TypeVar
from einkorn.dsl import InputTensor, Numeric, OutputTensor, foreach, register

T = TypeVar("T", bound=Numeric)

@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 1)
"""
FIRST = """
import sys
import numpy as np
known = set(sys.modules)
sys.path.insert(0, {folder!r})
from first_kernels import add_one
assert add_one(np.ones(3, np.float32)).tolist() == [2, 2, 2]
print(*sorted(set(sys.modules) - known))
"""
# Rooms and files that a call from NumPy has no need of when its code is in the cache.
NOT_NEEDED = (
    *("graph.eager", "graph.tuning", "graph.interop.torch", "graph.interop.jax", "graph.interop.numba"),
    *(
        "graph.interop.ufunc",
        "graph.interop.elementwise",
        "graph.interop.broadcasting",
        "graph.interop.notebook",
        "dsl.diagnostics.cards",
    ),
    *("graph.interop.tools", "graph.interop.tuned", "graph.interop.gradients", "graph.interop.checked"),
    *("compiler.codegen", "compiler.dialects", "compiler.inference", "compiler.pipeline", "compiler.groups"),
    *("stdlib", "testing", "torch", "jax", "numba", "tensor", "functional", "random"),
)
# What the standard library has that takes long to load.
SLOW = {
    "asyncio",
    "concurrent",
    "email",
    "http",
    "multiprocessing",
    "pydoc",
    "socket",
    "sqlite3",
    "ssl",
    "unittest",
    "xml",
}


def loaded(folder: Path) -> list[str]:
    """The modules that a process loads beyond NumPy's until it has its first result."""
    command = [sys.executable, "-c", FIRST.format(folder=str(folder))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_first_call_loads_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "first_kernels.py").write_text(KERNELS)
    loaded(tmp_path)  # from now on its code is in the cache
    names = loaded(tmp_path)
    own = [name.removeprefix("einkorn.") for name in names if name.startswith("einkorn.")]
    assert "graph.interop.direct" in own
    assert not [name for name in own for other in NOT_NEEDED if f"{name}.".startswith(f"{other}.")]
    others = {name.split(".")[0] for name in names} - {"einkorn", "first_kernels"}
    assert others - sys.stdlib_module_names <= {"ml_dtypes", "platformdirs"}  # the latter where no cache is named
    assert not others & SLOW
