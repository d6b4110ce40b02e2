"""Compiles one kernel of a file for this machine and runs it in order, without the graph.

Every call runs the interpreter too, and compares: outputs, inputs that were written, and reports, bit for bit.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from einkorn.compiler import pipeline
from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.interpreter.machine import Trap
from einkorn.compiler.ir.program import Site
from einkorn.compiler.pipeline import Artifact, Compilation, compile_entry, typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.unit import BufferSpec, EntrySpec, FromBuffer, GroupSpec, NodeSpec, Store
from einkorn.dsl.environment.compiling import compiling
from einkorn.dsl.package.library import load_library
from einkorn.dsl.signature.bind import bind
from einkorn.dsl.signature.parameters import bind_parameters
from einkorn.dsl.types.packing import pack, unpack

bfloat16 = ml_dtypes.bfloat16
HERE = Path(__file__).parent
INTS = [np.int8, np.int16, np.int32, np.int64]
UINTS = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, bfloat16, np.float32, np.float64]
ALL = [np.bool_, *INTS, *UINTS, *FLOATS]

TensorType = tuple[DType, tuple[int, ...]]


def dtype_name(dtype: Any) -> str:
    return np.dtype(dtype).name


class KernelFile:
    """The kernels of one file, each compiled once for every combination of types and parameters.

    `interprets` says whether calls are interpreted, too: with many elements that takes longer than all else.
    """

    def __init__(self, path: str | Path, *, interprets: bool = True) -> None:
        self.interprets = interprets
        self.library = load_library(path)
        self._loaded: dict[Any, tuple[Any, list[TensorType], list[Site], Interpreted]] = {}
        self.reports: list[str] = []

    def entry(
        self,
        op: str,
        inputs: Sequence[TensorType],
        parameters: dict[str, Any],
        outs: Sequence[TensorType] | None = None,
    ) -> tuple[EntrySpec, list[TensorType]]:
        """The compile unit of one op, and the types of its outputs."""
        kernel = self.library.kernels[op].portable
        bound = bind(kernel.schema, list(inputs), parameters, expected_outputs=outs)
        values = bind_parameters(kernel.schema, parameters)
        outputs = [(dtype, tuple(int(d) for d in shape)) for dtype, shape in bound.outputs]
        buffers = [BufferSpec(t, tuple(s), "input") for t, s in inputs] + [
            BufferSpec(t, s, "output") for t, s in outputs
        ]
        operands = tuple(FromBuffer(k, buffers[k].shape) for k in range(len(inputs)))
        node = NodeSpec(kernel, tuple(bound.dtypes.items()), tuple(values.items()), operands, tuple(outputs))
        stores = tuple(Store(0, k, len(inputs) + k) for k in range(len(outputs)))
        return EntrySpec(0, tuple(buffers), (GroupSpec((node,), 0, stores),)), outputs

    def compile(
        self,
        op: str,
        inputs: Sequence[TensorType],
        *,
        target: str = "host",
        outs: Sequence[TensorType] | None = None,
        **parameters: Any,
    ) -> Artifact:
        """The op's code for a target."""
        return compile_entry(self.entry(op, inputs, parameters, outs)[0], lookup(target))

    def _made(self, spec: EntrySpec, target: str, *, notes: bool) -> tuple[Interpreted, list[Site], bytes]:
        """A unit ready to be interpreted, its sites, and its code; without notes both are of one program."""
        if notes:
            interpreted = Interpreted(typed_program(spec, lookup(target), notes=True), spec)
            artifact = compile_entry(spec, lookup(target))
            return interpreted, artifact.sites, artifact.code
        both = Compilation(spec, lookup(target))
        compiling(pipeline._Watch(quiet=True).run)(pipeline.TYPED, both)
        interpreted = Interpreted(both.program, spec)  # before passes change it
        pipeline._Watch().run(pipeline.NATIVE, both)
        return interpreted, both.program.sites, both.code

    def __call__(
        self,
        op: str,
        *arrays: Any,
        outs: Sequence[TensorType] | None = None,
        target: str = "host",
        **parameters: Any,
    ) -> list[np.ndarray[Any, Any]]:
        """The op's outputs, computed on this machine by one thread. What it prints is in `reports`."""
        given = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]
        types = [(DType.from_numpy(a.dtype), a.shape) for a in given]
        key = (op, tuple(types), str(outs), target, str(sorted(parameters.items())))
        if key not in self._loaded:
            spec, outputs = self.entry(op, types, parameters, outs)
            # Debug information changes no result: every second kernel has it.
            interpreted, sites, code = self._made(spec, target, notes=len(self._loaded) % 2 == 1)
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(code)
                file.flush()
                entry = getattr(ctypes.CDLL(file.name), abi.ENTRY)
            self._loaded[key] = entry, outputs, sites, interpreted
        entry, outputs, sites, interpreted = self._loaded[key]
        results = [np.full(s, 0, t.to_numpy()) for t, s in outputs]
        for result in results:
            result.reshape(-1).view(np.uint8)[:] = 0xA5  # what nothing writes is seen
        again = [a.copy() for a in [*given, *results]]
        whole = [*given, *results]
        native = [pack(a) if DType.from_numpy(a.dtype).is_packed() else a for a in whole]
        pointers = (ctypes.c_void_p * len(native))(*[a.ctypes.data for a in native])
        context = abi.Context()
        context.threads = 1
        self.reports.clear()

        values: list[list[int]] = []

        def note(site: int, arguments: Any) -> None:
            parts = sites[site].parts
            self.reports.append(json.dumps(parts))
            values.append([int(arguments[k]) for k in range(sum(not isinstance(part, str) for part in parts))])

        report = abi.ReportFunction(lambda context, site, arguments: note(site, arguments))
        context.report = ctypes.cast(report, ctypes.c_void_p)
        entry(ctypes.byref(context), pointers, (ctypes.c_int64 * 1)())
        for array, memory in zip(whole, native, strict=True):
            if memory is not array:
                array[...] = unpack(memory, DType.from_numpy(array.dtype), array.shape)
        compiled = list(zip(self.reports, values, strict=True))
        self.reports.clear()
        values.clear()
        if not self.interprets:
            self.reports += [report for report, _ in compiled]
            return results
        try:
            interpreted.run(again, [], note)
        except Trap as stop:
            note(stop.site, stop.values)
        assert list(zip(self.reports, values, strict=True)) == compiled, f"'{op}' reports otherwise when interpreted"
        for number, (array, other) in enumerate(zip([*given, *results], again, strict=True)):
            assert_same_bits(other, array, f"tensor {number} of '{op}', interpreted and compiled")
        return results


def assert_same_bits(got: Any, wanted: Any, message: str = "", inputs: Sequence[Any] = ()) -> None:
    """Equal dtypes, shapes and bits; any NaN equals any other. Shows the first elements that differ."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype, (message, got.dtype, wanted.dtype)
    assert got.shape == wanted.shape, (message, got.shape, wanted.shape)
    if got.dtype.kind == "c":
        for a, b in ((got.real, wanted.real), (got.imag, wanted.imag)):
            assert_same_bits(a, b, message, inputs)
        return
    bits = np.dtype(f"u{got.dtype.itemsize}")
    same = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(wanted).view(bits)
    if got.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):
            same |= np.isnan(got) & np.isnan(wanted)
    if not same.all():
        where = np.flatnonzero(~same.reshape(-1))
        lines = []
        for k in where[:6]:
            operands = ", ".join(repr(np.asarray(a).reshape(-1)[k]) for a in inputs)
            lines.append(f"  [{k}] ({operands}): got {got.reshape(-1)[k]!r}, wanted {wanted.reshape(-1)[k]!r}")
        raise AssertionError(f"{message}: {len(where)} of {same.size} elements differ\n" + "\n".join(lines))


def special_values(dtype: Any) -> np.ndarray[Any, Any]:
    """The values where operations go wrong."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wanted = [
            0,
            1,
            2,
            3,
            5,
            7,
            dtype.itemsize * 8 - 1,
            dtype.itemsize * 8,
            100,
            info.max,
            info.max - 1,
            info.max // 2,
        ]
        wanted += [info.min, info.min + 1] + [-1, -2, -3, -7] * (dtype.kind == "i")
        return np.array(wanted, dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, least, most, eps = (float(v) for v in (info.tiny, info.smallest_subnormal, info.max, info.eps))
    wanted = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.25, 7.0, 0.1, 1 + eps, 1 - eps, tiny, least, tiny - least, most]
    wanted += [most / 2, 0.49999997, 1e-3, np.inf, 127.5, 128.5, 2.0 ** (info.nmant), 2.0 ** (info.nmant - 1) + 0.5]
    return np.array([*wanted, *(-v for v in wanted), np.nan]).astype(dtype)


def pairs_of(values: np.ndarray[Any, Any], seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every special value with every other, and random ones; the count is a multiple of 16."""
    rng = np.random.default_rng(seed)
    a, b = (m.reshape(-1) for m in np.meshgrid(values, values))
    n = 256 + -len(a) % 16
    return np.concatenate([a, random_values(rng, values.dtype, n)]), np.concatenate(
        [b, random_values(rng, values.dtype, n)]
    )


def random_values(rng: np.random.Generator, dtype: Any, n: int) -> np.ndarray[Any, Any]:
    """Random bit patterns and, for floats, as many numbers of ordinary size."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, n).astype(np.bool_)
    patterns = rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind in "iu":
        small = rng.integers(0, 50, n).astype(dtype)
        return np.where(rng.random(n) < 0.5, patterns, small)
    return np.where(rng.random(n) < 0.5, patterns, (rng.standard_normal(n) * 10).astype(dtype))
