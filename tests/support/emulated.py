"""Calls exported files for other systems: by programs that an emulator or another C library runs.

program = Program.for_aarch64(folder)             None where this machine lacks what it takes
exported = Emulated(model, folder, program)       as support.exported.Exported
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.exported import CallFailed, Exported, room
from support.graphs import Array

from einkorn.dsl.contract import exports
from einkorn.dsl.types.dtype import DType
from einkorn.dsl.types.packing import unpack
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.compile import header_code

SOURCE = Path(__file__).resolve().parents[1] / "native" / "programs" / "run_exported.c"
SYSROOT = Path("/usr/aarch64-linux-gnu")  # where Debian has the C library of its package libc6-arm64-cross


class Program:
    """tests/native/programs/run_exported.c, compiled.

    Args:
        compiler: the command of a C compiler.
        emulator: what stands before the program in the command.
    """

    def __init__(self, folder: Path, compiler: Sequence[str], emulator: Sequence[str] = ()) -> None:
        self.path = folder / "run_exported"
        (folder / "model.h").write_text(header_code([], "model.h"))
        options = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder}", str(SOURCE)]
        subprocess.run([*compiler, *options, "-ldl", "-lpthread", "-lm", "-o", str(self.path)], check=True)
        self.command = [*emulator, str(self.path)]

    @staticmethod
    def for_aarch64(folder: Path) -> Program | None:
        """The program for aarch64; None where there is no emulator, no compiler or no C library for it."""
        emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        compiler = shutil.which("aarch64-linux-gnu-gcc")
        if emulator is None or compiler is None or not SYSROOT.is_dir():
            return None
        return Program(folder, [compiler], [emulator, "-L", str(SYSROOT)])

    def __call__(self, *arguments: str | os.PathLike[str]) -> None:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (done.returncode, done.stderr)


class Emulated(Exported):
    """The file of a model for a target, called by a program. What is known of it is read from one for this machine.

    Attributes:
        options: further arguments of the program.
    """

    options: tuple[str, ...] = ()

    def __init__(
        self, model: Model, folder: Path, program: Program, name: str = "graph", target: str = "aarch64", **how: Any
    ) -> None:
        super().__init__(model, folder, name, **how)
        self.program, self.name = program, name
        self.foreign = self.path.with_name(f"{self.path.stem}_{target}.so")
        model.export(self.foreign, name=name, targets=target, **how)

    def call(self, given: Sequence[Array | None], sizes: Sequence[int]) -> list[Array]:
        record, known = self.record, dict(zip(self.dim_names, sizes, strict=False))
        outputs = [record.tensors[record.inputs + k] for k in range(record.outputs)]
        rooms = [0 if a is None else a.nbytes for a in given]
        for each in outputs:
            late = each.flags & exports.LATE
            rooms.append(-1 if late else room(DType[each.dtype.decode()], self.shape(each, known)).nbytes)
        request, response = self.path.with_suffix(".request"), self.path.with_suffix(".response")
        words = np.array([*sizes, *rooms], np.int64).tobytes()
        request.write_bytes(b"".join([words, *(b"" if a is None else a.tobytes() for a in given)]))
        self.program(self.foreign, self.name, request, response, *self.options)
        data = response.read_bytes()
        status = int.from_bytes(data[:8], "little", signed=True)
        if status:
            raise CallFailed(status, data[8:].decode(), exports.ExportedFailure())
        late_sizes = np.frombuffer(data, np.int64, record.late_dims, 8)
        known = dict(zip(self.dim_names, [*sizes, *map(int, late_sizes)], strict=True))
        tensors = list(_tensors(data[8 + late_sizes.nbytes :]))
        for array, held in zip(given, tensors, strict=False):
            if array is not None and array.flags.writeable:
                ctypes.memmove(array.ctypes.data, held, len(held))
        collected = []
        for each, held in zip(outputs, tensors[len(given) :], strict=True):
            dtype, shape = DType[each.dtype.decode()], self.shape(each, known)
            memory = room(dtype, shape)
            ctypes.memmove(memory.ctypes.data, held, memory.nbytes)
            collected.append(unpack(memory, dtype, shape) if dtype.is_packed() else memory)
        return collected


def _tensors(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 8 : at + 8 + size]
        at += 8 + size
