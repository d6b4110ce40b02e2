"""Runs AMD code objects in tinygrad's emulator, from a checkout (see `amd_checkout`). Nothing of it is here.

A code object is loaded as the runtime of a device would do it: segments, relocations, the kernel's descriptor, the
packet of the launch. The emulator compiles what each instruction does with clang. What the emulator does not know it
says.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import mmap
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.amd_checkout import checkout
from support.launching_device import Launched

from einkorn.dsl.package import elf

# Bits of the descriptor's properties: which registers the kernel finds filled, and how many words each takes.
_REGISTERS: Final = (
    ("buffer", 4),
    ("dispatch", 2),
    ("queue", 2),
    ("arguments", 2),
    ("id", 2),
    ("scratch", 2),
    ("size", 1),
)

# Instructions that write caches back or drop what is in them: their first words behind a mask, and how many words they
# have; the others say how far and are zeros else. `s_nop` does nothing.
_CACHES: Final = {
    "cdna": ({0xE0A00000, 0xE0A40000, 0xE0F80000, 0xE0FC0000}, 0xFFFC0000, 2),  # buffer_wbl2, _inv, _wbinvl1, _vol
    "rdna3": ({0xE0AC0000, 0xE0B00000}, 0xFFFC0000, 2),  # buffer_gl0_inv, buffer_gl1_inv
    "rdna4": ({0xEE0AC07C, 0xEE0B007C, 0xEE13C07C}, 0xFFFFFFFF, 3),  # global_inv, global_wb, global_wbinv
}
_NOTHING: Final = 0xBF800000


def emulator() -> Any:
    """The emulator's module."""
    folder = checkout()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("test.mockgpu.amd.emu")


def run_amd(code: bytes, launch: Launched, memory: Mapping[int, int]) -> None:
    """Runs one launch."""
    loaded = load(code)
    descriptor = loaded.descriptor(launch.kernel.symbol)
    arguments = _arguments(launch, descriptor.argument_bytes)
    private = ctypes.create_string_buffer(descriptor.private * -(-math.prod(launch.block) // 64) * 64)
    packet = ctypes.create_string_buffer(_packet(launch), 64)
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
        descriptor.registers(
            buffer=_private_buffer(ctypes.addressof(private), len(private)),
            arguments=ctypes.addressof(arguments),
            dispatch=ctypes.addressof(packet),
        ),
    )


def _private_buffer(address: int, size: int) -> int:
    """The descriptor of a buffer for the private memory of waves of 64, in 128 bits.

    Its bits say that words of neighbouring lanes lie side by side, and that the lane is the index.
    """
    swizzled, lane_is_index, lanes_64 = 1 << 63, 1 << 119, 3 << 117
    return address | swizzled | size << 64 | lane_is_index | lanes_64


def _packet(launch: Launched) -> bytes:
    """What a launch says of its sizes, as kernels may read it."""
    threads = [blocks * size for blocks, size in zip(launch.grid, launch.block, strict=True)]
    return struct.pack("<HHHHHHIII", 0, 3, *launch.block, 0, *threads)


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

    def registers(self, **values: int) -> list[int]:
        """The first scalar registers: addresses and descriptors by what they are, else 0."""
        words: list[int] = []
        for bit, (what, count) in enumerate(_REGISTERS):
            if self.properties >> bit & 1:
                bits = values.get(what, 0)
                words += [bits >> 32 * k & 0xFFFFFFFF for k in range(count)]
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
        for _, flag, _, address, _, filed, _, _ in loads:
            if flag & 1:
                self._without_caches(address, filed)

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

    def _without_caches(self, start: int, size: int) -> None:
        """Writes nothing-to-do over instructions about caches: the emulator has none, and lacks most of them."""
        begins, mask, words = _CACHES[self.kind]
        for at in range(start, start + size - 4 * words + 4, 4):
            first, *rest = struct.unpack_from(f"<{words}I", self.memory, at)
            if first & mask in begins and not any(word & ~0x000C0000 for word in rest):
                struct.pack_into(f"<{words}I", self.memory, at, *[_NOTHING] * words)

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
