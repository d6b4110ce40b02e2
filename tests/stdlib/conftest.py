"""Kernels of the standard library on NumPy arrays.

`run(family, op, *arrays, outputs=..., **parameters)` gives the only output of a shipped kernel, `run_symbolic` the same
with all sizes as arguments of the code; `check_compiles` makes code for a target that this machine need not be.
"""

from __future__ import annotations

import ctypes
import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.unit import EntrySpec, FromBuffer, Slot
from einkorn.dsl.package.library import library_of

Array = np.ndarray[Any, Any]


def _file_of(family: str) -> Path:
    from support import harness

    module = importlib.import_module(f"einkorn.stdlib.kernels.{family}")
    file = Path(str(module.__file__))
    harness._libraries.setdefault(file, library_of(module))
    return file


@pytest.fixture(scope="session")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., Array]:
    """Runs a kernel on this machine."""

    def call(
        family: str, op: str, *arrays: Array, outputs: Any = None, target: str = "host", **parameters: Any
    ) -> Array:
        return run_kernel(_file_of(family), op, list(arrays), parameters, outputs, target)[0]

    return call


def _with_slots(spec: EntrySpec) -> tuple[EntrySpec, list[int]]:
    """The same unit with each size but 1 as a slot (equal sizes share one), and the value of each slot.

    Slots are numbered as they appear: units whose sizes differ in their values alone become the same.
    """
    sizes = list(dict.fromkeys(int(n) for b in spec.buffers for n in b.shape if n != 1))  # type: ignore[arg-type]

    def symbolic(shape: Any) -> Any:
        return tuple(n if n == 1 else Slot(sizes.index(n)) for n in shape)

    buffers = tuple(replace(b, shape=symbolic(b.shape)) for b in spec.buffers)
    group = spec.groups[0]
    inputs = tuple(FromBuffer(i, buffers[i].shape) for i in range(len(group.nodes[0].inputs)))
    outputs = tuple((dtype, symbolic(shape)) for dtype, shape in group.nodes[0].outputs)
    node = replace(group.nodes[0], inputs=inputs, outputs=outputs)
    return EntrySpec(len(sizes), buffers, (replace(group, nodes=(node,)),)), sizes


@pytest.fixture(scope="session")
def run_symbolic() -> Callable[..., Array]:
    """Runs a kernel whose code does not know the sizes."""
    loaded: dict[Any, Any] = {}

    def call(family: str, op: str, *arrays: Array, outputs: Any = None, **parameters: Any) -> Array:
        from support import harness

        types = [(DType.from_numpy(a.dtype), a.shape) for a in arrays]
        spec, results = harness.entry_of(_file_of(family), op, types, parameters, outputs)
        symbolic, sizes = _with_slots(spec)
        unit = (family, op, repr(parameters), symbolic.buffers)
        if unit not in loaded:
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(compile_entry(symbolic, lookup("host")).code)
                file.flush()
                loaded[unit] = ctypes.CDLL(file.name).ek_entry
        result = np.empty(results[0][1], results[0][0].to_numpy())
        pointers = (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in (*arrays, result)))
        context = abi.Context()
        context.threads = 1
        assert loaded[unit](ctypes.byref(context), pointers, (ctypes.c_int64 * max(len(sizes), 1))(*sizes)) == 0
        return result

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
