"""Compiles one kernel of a file and runs it, without a graph: the shortest way from a kernel to its numbers."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.packed import packed, unpacked
from support.shared_fronts import Fronts

from einkorn.compiler import pipeline
from einkorn.compiler.codegen.llvm import ModuleCode
from einkorn.compiler.pipeline import Artifact
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.unit import BufferSpec, EntrySpec, FromBuffer, GroupSpec, NodeSpec, Store
from einkorn.dsl.environment.compiling import compiling
from einkorn.dsl.package.library import LoadedLibrary, load_library
from einkorn.dsl.signature.bind import bind, bind_parameters

TensorType = tuple[DType, tuple[int, ...]]

_libraries: dict[Path, LoadedLibrary] = {}
_compiled: dict[Any, tuple[Artifact, tuple[TensorType, ...]]] = {}
_runnable: dict[Any, tuple[Any, list[Any], tuple[TensorType, ...]]] = {}
_fronts: dict[Any, tuple[Fronts, tuple[TensorType, ...]]] = {}
_entries: dict[Any, Any] = {}


def forget() -> None:
    """Drops all that was compiled so far. Code that is loaded stays where it is."""
    _compiled.clear()
    _runnable.clear()
    _fronts.clear()


class KernelFailed(AssertionError):
    """A kernel reported a failure: an `assert` or a `raise` in its text."""


def entry_of(
    file: Path,
    op: str,
    inputs: Sequence[TensorType],
    params: Mapping[str, Any] | None = None,
    outputs: Sequence[TensorType] | None = None,
) -> tuple[EntrySpec, tuple[TensorType, ...]]:
    """The compile unit of one op on fixed shapes, and the types of its outputs.

    `outputs` are needed where the signature does not say them.
    """
    file = Path(file)
    if file not in _libraries:
        _libraries[file] = load_library(file)
    kernel = _libraries[file].kernels[op].portable
    bound = bind(kernel.schema, list(inputs), dict(params or {}), expected_outputs=outputs)
    parameters = bind_parameters(kernel.schema, dict(params or {}))
    results: tuple[TensorType, ...] = tuple(
        (dtype, tuple(int(size) for size in shape)) for dtype, shape in bound.outputs
    )
    buffers = [BufferSpec(dtype, tuple(shape), "input") for dtype, shape in inputs]
    buffers += [BufferSpec(dtype, shape, "output") for dtype, shape in results]
    node = NodeSpec(
        kernel,
        tuple(bound.dtypes.items()),
        tuple(parameters.items()),
        tuple(FromBuffer(index, buffers[index].shape) for index in range(len(inputs))),
        results,
    )
    stores = tuple(Store(0, index, len(inputs) + index) for index in range(len(results)))
    return EntrySpec(0, tuple(buffers), (GroupSpec((node,), 0, stores),)), results


def _unit_of(
    file: Path,
    op: str,
    inputs: Sequence[TensorType],
    params: Mapping[str, Any] | None,
    outputs: Sequence[TensorType] | None,
    level: int,
) -> Any:
    """The name of what is compiled."""
    return Path(file), op, tuple(inputs), tuple(sorted((params or {}).items())), tuple(outputs or ()), level


def compile_kernel(
    file: Path,
    op: str,
    inputs: Sequence[TensorType],
    params: Mapping[str, Any] | None = None,
    outputs: Sequence[TensorType] | None = None,
    target: str = "host",
    level: int | None = None,
) -> tuple[Artifact, tuple[TensorType, ...]]:
    """The code of one op for a target, and the types of its outputs. The same question is compiled once."""
    level = lookup(target).level if level is None else level
    unit = _unit_of(file, op, inputs, params, outputs, level)
    if unit not in _fronts:
        spec, results = entry_of(file, op, inputs, params, outputs)
        _fronts[unit] = Fronts(spec, level), results
    if (unit, target) not in _compiled:
        fronts, results = _fronts[unit]
        _compiled[unit, target] = fronts.compile(target), results
    return _compiled[unit, target]


def assembly_of(spec: EntrySpec, target: str) -> str:
    """The assembly of a unit for a CPU alone: `compile_entry` makes the code first, and its `asm` all of it again."""
    compilation = pipeline.Compilation(spec, lookup(target))
    assert not compilation.target.has_grid
    compiling(pipeline._Watch(quiet=True).run)(pipeline.TYPED, compilation)
    for each in pipeline.NATIVE:
        if each.name == "compile":
            break
        if each.half in ("both", "host"):
            each.run(compilation)
    return ModuleCode(compilation.target, compilation.target.level, compilation.text, b"").assembly


def run_kernel(
    file: Path,
    op: str,
    inputs: Sequence[np.ndarray[Any, Any]],
    params: Mapping[str, Any] | None = None,
    outputs: Sequence[TensorType] | None = None,
    target: str = "host",
    level: int | None = None,
) -> list[np.ndarray[Any, Any]]:
    """Runs one op on this machine, in this thread; gives the output arrays.

    Raises:
        KernelFailed: the kernel reported a failure.
    """
    inputs = [np.ascontiguousarray(array) for array in inputs]
    types = [(DType.from_numpy(array.dtype), array.shape) for array in inputs]
    level = lookup(target).level if level is None else level
    library, sites, results = _loaded(file, op, types, params, outputs, target, level)
    given = [packed(a) if dtype.is_packed() else a for a, (dtype, _) in zip(inputs, types, strict=True)]
    arrays = [*given, *(_memory(dtype, shape) for dtype, shape in results)]
    pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    reports: list[str] = []

    @abi.ReportFunction
    def report(context: int, site: int, arguments: Any) -> None:
        reports.append(str(sites[site]))

    context = abi.Context()
    context.threads = 1
    context.report = ctypes.cast(report, ctypes.c_void_p)
    dims, device = (ctypes.c_int64 * 1)(), abi.DeviceTable()
    if hasattr(library, abi.SCRATCH):  # memory for the call, uninitialised
        size = abi.ScratchFunction((abi.SCRATCH, library))(ctypes.addressof(dims), 0)
        scratch = np.full(size, 0xA5, np.uint8)
        device.scratch, context.device = scratch.ctypes.data, ctypes.addressof(device)
    status = library.ek_entry(ctypes.byref(context), pointers, dims)
    if status != 0:
        raise KernelFailed("; ".join(reports) or f"status {context.status}")
    outputs = zip(arrays[len(inputs) :], results, strict=True)
    return [unpacked(a, dtype.to_numpy(), shape) if dtype.is_packed() else a for a, (dtype, shape) in outputs]


def _loaded(
    file: Path,
    op: str,
    types: Sequence[TensorType],
    params: Mapping[str, Any] | None,
    outputs: Sequence[TensorType] | None,
    target: str,
    level: int,
) -> tuple[Any, list[Any], tuple[TensorType, ...]]:
    """The loaded code of one op, its sites and the types of its outputs: no more of an artifact, which is large."""
    unit = _unit_of(file, op, types, params, outputs, level)
    if (unit, target) not in _runnable:
        if (unit, target) in _compiled:
            artifact, results = _compiled[unit, target]
        else:
            spec, results = entry_of(file, op, types, params, outputs)
            artifact = Fronts(spec, level).compile(target)
        _runnable[unit, target] = _library(artifact), artifact.sites, results
    return _runnable[unit, target]


def _memory(dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Memory for an output: bytes where elements share them."""
    if dtype.is_packed():
        return np.full(dtype.bytes_for(int(np.prod(shape))), 0xA5, np.uint8)
    return np.empty(shape, dtype.to_numpy())


def _library(artifact: Artifact) -> Any:
    """The loaded code of an artifact."""
    if artifact.code not in _entries:
        handle, name = tempfile.mkstemp(suffix=".so")
        with os.fdopen(handle, "wb") as file:
            file.write(artifact.code)
        _entries[artifact.code] = ctypes.CDLL(name)
        os.unlink(name)
    return _entries[artifact.code]
