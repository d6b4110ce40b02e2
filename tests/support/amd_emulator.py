"""Runs AMD code objects in tinygrad's emulator, from a checkout that `EINKORN_AMD_EMULATOR` names. Nothing of it is here.

Input: a code object and a launch. Output: changed memory. A code object is loaded as the runtime of a device would do
it: segments, relocations, the kernel's descriptor. The emulator compiles what each instruction does with clang.
Non-goals: no time and no weak memory. What the emulator does not know it says itself; how threads get memory of their
own is known for the targets of `KINDS` alone.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import shutil
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.launching_device import Launched

from einkorn.dsl.package import elf

# What compiles refuses variables of this beginning that it does not know, so it is taken out of the environment; under
# the other name processes find it that this one starts.
VARIABLE: Final = "EINKORN_AMD_EMULATOR"
_KEPT: Final = "AMD_EMULATOR"
if VARIABLE in os.environ:
    os.environ[_KEPT] = os.environ.pop(VARIABLE)

# Bits of the descriptor's properties: which registers the kernel finds filled, and how many words each takes.
_REGISTERS: Final = (("buffer", 4), ("dispatch", 2), ("queue", 2), ("arguments", 2), ("id", 2), ("scratch", 2), ("size", 1))


def missing() -> str | None:
    """What has to be there and is not; None where kernels can run."""
    checkout = os.environ.get(_KEPT, "")
    if not checkout:
        return f"{VARIABLE} does not name a checkout of tinygrad"
    if not Path(checkout, "test", "mockgpu", "amd", "emu.py").is_file():
        return f"{VARIABLE}={checkout} is not a checkout of tinygrad: there is no test/mockgpu/amd/emu.py in it"
    if shutil.which(os.environ.get("CC", "clang")) is None:
        return "clang is not on PATH"
    return None


def emulator() -> Any:
    """The emulator's module."""
    checkout = os.environ[_KEPT]
    if checkout not in sys.path:
        sys.path.insert(0, checkout)
    return importlib.import_module("test.mockgpu.amd.emu")


def run_amd(code: bytes, launch: Launched, memory: Mapping[int, int]) -> None:
    """Runs one launch."""
    loaded = load(code)
    descriptor = loaded.descriptor(launch.kernel.symbol)
    arguments = _arguments(launch, descriptor.argument_bytes)
    shared = descriptor.shared + launch.shared
    emulator().run_asm(
        descriptor.entry,
        loaded.size,
        *launch.grid,
        *launch.block,
        ctypes.addressof(arguments),
        descriptor.rsrc2 | -(-shared // 512) << 15,
        descriptor.private,
        loaded.kind,
        descriptor.registers(ctypes.addressof(arguments)),
    )


def _arguments(launch: Launched, size: int) -> ctypes.Array[ctypes.c_char]:
    """The arguments as they lie in memory, each at a multiple of its size."""
    data = bytearray()
    for parameter, bits in zip(launch.kernel.parameters, launch.arguments, strict=True):
        data += b"\0" * (-len(data) % parameter.bytes)
        data += bits.to_bytes(8, "little")[: parameter.bytes]
    assert len(data) <= size, "the kernel has fewer arguments than its table says"
    return ctypes.create_string_buffer(bytes(data.ljust(size, b"\0")), size)


@dataclass(frozen=True)
class Descriptor:
    """What the descriptor of a kernel says. `properties` are the bits of `_REGISTERS`, from 0 on."""

    entry: int
    shared: int
    private: int
    argument_bytes: int
    rsrc2: int
    properties: int

    def registers(self, arguments: int) -> list[int]:
        """The first scalar registers; what is not known here is 0."""
        words: list[int] = []
        for bit, (what, count) in enumerate(_REGISTERS):
            if self.properties >> bit & 1:
                words += [arguments & 0xFFFFFFFF, arguments >> 32] if what == "arguments" else [0] * count
        return words


class Loaded:
    """A code object in memory."""

    def __init__(self, code: bytes) -> None:
        header = elf.FILE_HEADER.unpack_from(code)
        machine, flags, at, size, count = header[2], header[7], header[5], header[9], header[10]
        assert code[:4] == b"\x7fELF" and machine == elf.AMDGPU.number
        segments = [elf.PROGRAM_HEADER.unpack_from(code, at + k * size) for k in range(count)]
        loads = [s for s in segments if s[0] == elf.PT_LOAD]
        self.size = max(s[3] + s[6] for s in loads)
        self.memory = mmap.mmap(-1, self.size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for _, _, offset, address, _, filed, _, _ in loads:
            self.memory[address : address + filed] = code[offset : offset + filed]
        ((_, _, _, dynamic, _, _, length, _),) = (s for s in segments if s[0] == elf.PT_DYNAMIC)
        self.dynamic = dict(struct.iter_unpack("<QQ", self.memory[dynamic : dynamic + length]))
        self.flags = flags
        self._relocate()

    def _symbol(self, number: int) -> tuple[str, int]:
        name, _, _, _, value, _ = elf.SYMBOL.unpack_from(self.memory, self.dynamic[elf.DT_SYMTAB] + 24 * number)
        start = self.dynamic[elf.DT_STRTAB] + name
        return self.memory[start : self.memory.find(b"\0", start)].decode(), value

    def _relocate(self) -> None:
        start, length = self.dynamic.get(elf.DT_RELA, 0), self.dynamic.get(elf.DT_RELASZ, 0)
        for place, info, addend in struct.iter_unpack("<QQq", self.memory[start : start + length]):
            value = 0 if info & 0xFFFFFFFF == elf.AMDGPU.relative else self._symbol(info >> 32)[1]
            assert info & 0xFFFFFFFF in (elf.AMDGPU.relative, elf.AMDGPU.pointer), info
            self.memory[place : place + 8] = struct.pack("<Q", self.base + value + addend)

    @property
    def kind(self) -> str:
        """What the emulator calls the family: by the processor's number, the lowest byte of the flags."""
        number = self.flags & 0xFF
        return "rdna3" if 0x41 <= number <= 0x47 else "rdna4" if number in (0x48, 0x4E) else "cdna"

    def descriptor(self, symbol: str) -> Descriptor:
        count = struct.unpack_from("<II", self.memory, self.dynamic[elf.DT_HASH])[1]
        at = next(value for name, value in map(self._symbol, range(count)) if name == f"{symbol}.kd")
        shared, private, arguments, _, entry = struct.unpack_from("<IIIIq", self.memory, at)
        _, rsrc2, properties = struct.unpack_from("<IIH", self.memory, at + 48)
        return Descriptor(self.base + at + entry, shared, private, arguments, rsrc2, properties)


_loaded: dict[bytes, Loaded] = {}


def load(code: bytes) -> Loaded:
    """A code object in memory, once."""
    if code not in _loaded:
        _loaded[code] = Loaded(code)
    return _loaded[code]
