"""Runs a launch on this machine with its memory checked, without a device: what is found, with its places."""

from __future__ import annotations

import ctypes
import functools
import mmap
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from support import harness

from einkorn.compiler.pipeline import Artifact, compile_entry
from einkorn.compiler.runtime.checker import checker_object
from einkorn.compiler.simulation.shadow_memory import FUNCTIONS
from einkorn.compiler.targets import Target, host
from einkorn.dsl import DType
from einkorn.dsl.contract import abi, checking
from einkorn.dsl.contract.checking import Check, CheckState, Found

Array = np.ndarray[Any, Any]
ALL = Check.RACES | Check.BOUNDS | Check.UNINITIALISED | Check.COPIES | Check.PROMISES
ZONE = 64  # bytes around a buffer that are unused
_NO_RESERVE = 0x4000


@dataclass(frozen=True)
class Outcome:
    """What a run gave: the outputs, or what was found and where, with the threads."""

    outputs: list[Array]
    found: Found
    lines: tuple[str, str] = ("", "")
    threads: tuple[int, int] = (0, 0)
    reports: tuple[str, ...] = ()


@functools.cache
def target() -> Target:
    """The machine at hand, with its launches' memory checked."""
    return replace(host(), checks_memory=True, identity=f"{host().identity} checked")


@functools.cache
def library() -> ctypes.CDLL:
    return _loaded(checker_object(host()))


def _loaded(code: bytes) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(code)
        file.flush()
        return ctypes.CDLL(file.name)


class Memory:
    """Pages, and the state of the checks in them."""

    def __init__(self, looks_for: Check = ALL) -> None:
        self.pages: list[mmap.mmap] = []
        self.state = CheckState()
        for name in FUNCTIONS:
            setattr(self.state, name, ctypes.cast(getattr(library(), f"ek_check_{name}"), ctypes.c_void_p).value)
        self.state.pieces = self.take(checking.PIECES * 16)
        for start, end, size in (("free", "limit", 1 << 32), ("room", "room_limit", 1 << 30)):
            setattr(self.state, start, self.take(size))
            setattr(self.state, end, getattr(self.state, start) + size)
        self.state.looks_for = int(looks_for)

    def take(self, size: int) -> int:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.pages.append(pages)
        return ctypes.addressof(ctypes.c_char.from_buffer(pages))

    def mark(self, address: int, size: int, flags: int) -> None:
        function = library().ek_check_mark
        function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
        function(ctypes.addressof(self.state), address, size, flags)


def compiled(file: Path, op: str, inputs: Sequence[Array], outputs: Sequence[Array], params: Any = None) -> Artifact:
    types = [[(DType.from_numpy(a.dtype), a.shape) for a in arrays] for arrays in (inputs, outputs)]
    return _compiled(file, op, tuple(types[0]), tuple(types[1]), tuple(sorted((params or {}).items())))


@functools.cache
def _compiled(file: Path, op: str, inputs: Any, outputs: Any, params: Any) -> Artifact:
    return compile_entry(harness.entry_of(file, op, inputs, dict(params), outputs)[0], target())


def run_checked(
    file: Path, op: str, inputs: Sequence[Array], outputs: Sequence[Array], params: Any = None, looks_for: Check = ALL
) -> Outcome:
    """Runs an op whose outputs look like those given, in buffers with nothing around them."""
    artifact = compiled(file, op, inputs, outputs, params)
    memory, arrays = Memory(looks_for), []
    for number, array in enumerate((*inputs, *outputs)):
        start = memory.take(array.nbytes + 2 * ZONE) + ZONE
        view = np.ctypeslib.as_array((ctypes.c_uint8 * array.nbytes).from_address(start)).view(array.dtype)
        arrays.append(view.reshape(array.shape))
        if number < len(inputs):
            arrays[-1][...] = array
        written = checking.INITIALISED if number < len(inputs) else 0
        memory.mark(start, array.nbytes, checking.ALLOCATED | written)
    device, context = abi.DeviceTable(), abi.Context()
    device.reports = ctypes.addressof(memory.state)
    context.device, context.threads = ctypes.addressof(device), 1
    reports: list[str] = []

    @abi.ReportFunction
    def report(context: int, site: int, arguments: Any) -> None:
        reports.append(artifact.sites[site].kind)

    context.report = ctypes.cast(report, ctypes.c_void_p)
    pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    entry = _loaded(artifact.code).ek_entry
    entry(ctypes.byref(context), pointers, (ctypes.c_int64 * 1)())
    result = memory.state.finding
    results = [array.copy() for array in arrays[len(inputs) :]]
    if not result.found:
        return Outcome(results, Found.NOTHING, reports=tuple(reports))
    lines = tuple((artifact.sites[site].place.source_line() or "").strip() for site in (result.site, result.other_site))
    assert context.status == abi.STOPPED
    return Outcome(results, Found(result.found), lines, (result.thread, result.other_thread), tuple(reports))  # type: ignore[arg-type]
