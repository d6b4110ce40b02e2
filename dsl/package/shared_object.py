"""Reads a shared object of unknown origin, before the system maps it.

The dynamic loader believes what it loads: a wrong offset in the tables that it follows ends the process, and a file may
run functions before one is called. So code of a package is read here first, and taken only where it
is built as `compiler.codegen.elf.image` builds it: segments within the file that share no page and are never writable
and executable at once, a dynamic section of the few entries that we write, symbols and a hash table without a way out,
relocations of the three kinds that we write into memory that may be written, no libraries but libc and libm, nothing
that runs by itself. The entry lies in code, the table of reports in memory that is read-only.

Raises: `Misread`. It is run as it is: run only the code of packages from trusted sources.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..contract import abi
from ..diagnostics.dataclass import dataclass
from ..diagnostics.json_reading import Misread
from . import elf

_FIXED = {elf.DT_RELAENT: elf.RELA.size, elf.DT_SYMENT: elf.SYMBOL.size, elf.DT_BIND_NOW: 0, elf.DT_FLAGS_1: 1}
_REQUIRED = (elf.DT_HASH, elf.DT_STRTAB, elf.DT_SYMTAB, elf.DT_STRSZ, elf.DT_SYMENT)
_MAX_MEMORY = 1 << 30  # bytes that one object takes when it is mapped
_MAX_SYMBOLS = 1 << 16

MACHINES: Mapping[str, elf.ElfMachine] = {"x86_64": elf.X86_64, "aarch64": elf.AARCH64}


@dataclass(frozen=True)
class _Segment:
    flags: int
    offset: int
    address: int
    in_file: int
    in_memory: int

    def holds(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.address + self.in_memory

    def has_data(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.address + self.in_file


def read_shared_object(data: bytes, architecture: str) -> bytes:
    """The table of reports in a shared object for an architecture, `x86_64` or `aarch64`.

    Raises:
        Misread: it is not a shared object for it, or not one that Einkorn has written.
    """
    return _read(data, architecture).text(abi.REPORTS)


def read_host_half(data: bytes, architecture: str) -> tuple[bytes, bytes]:
    """The tables of reports and of kernels in a shared object that launches these.

    Raises:
        Misread: it is not a shared object for the architecture, or not one that Einkorn has written.
    """
    reader = _read(data, architecture)
    return reader.text(abi.REPORTS), reader.text(abi.KERNELS)


def _read(data: bytes, architecture: str) -> _ObjectReader:
    if architecture not in MACHINES:
        raise Misread(f"is for no machine that is known here ({architecture})")
    reader = _ObjectReader(data, MACHINES[architecture])
    reader.read()
    return reader


class _ObjectReader:
    """Reads one object, from the outside to the inside."""

    def __init__(self, data: bytes, machine: elf.ElfMachine) -> None:
        self.data = data
        self.machine = machine
        self.segments: list[_Segment] = []
        self.dynamic: dict[int, int] = {}
        self.needed: list[int] = []
        self.symbols: list[tuple[str, int, int, int, int, int]] = []

    def read(self) -> None:
        self.headers()
        self.dynamic_section()
        self.symbol_table()
        self.relocations()
        entry = self.exported(abi.ENTRY, elf.STT_FUNC, elf.RX)
        if not any(s.flags == elf.RX and s.has_data(entry, 1) for s in self.segments):
            raise Misread(f"has its {abi.ENTRY} outside of its code")

    def text(self, symbol: str) -> bytes:
        """A text that lies in the constants under a symbol."""
        start = self.exported(symbol, elf.STT_OBJECT, elf.R)
        segment = next((s for s in self.segments if s.flags == elf.R and s.has_data(start, 1)), None)
        if segment is None:
            raise Misread(f"has its {symbol} outside of its constants")
        at = start - segment.address + segment.offset
        end = self.data.find(b"\0", at, segment.offset + segment.in_file)
        if end < 0:
            raise Misread(f"has {symbol} without an end")
        return self.data[at:end]

    # *** the file ***

    def headers(self) -> None:
        if len(self.data) < elf.FILE_HEADER.size or self.data[:4] != elf.IDENTITY[:4]:
            raise Misread("is no ELF file")
        identity, kind, machine, version, start, table, _, flags, size, entry, count, *_ = elf.FILE_HEADER.unpack_from(
            self.data
        )
        if identity != elf.IDENTITY + bytes(9) or version != 1 or size != elf.FILE_HEADER.size or flags or start:
            raise Misread("is an ELF file of another kind")
        if kind != elf.ET_DYN:
            raise Misread("is not a shared object")
        if machine != self.machine.number:
            raise Misread(f"is for another machine (number {machine})")
        if table != elf.FILE_HEADER.size or entry != elf.PROGRAM_HEADER.size or not 0 < count <= 16:
            raise Misread("has no program headers in their place")
        if len(self.data) < table + count * entry:
            raise Misread("ends within its program headers")
        headers = [elf.PROGRAM_HEADER.unpack_from(self.data, table + number * entry) for number in range(count)]
        for header in headers:
            self.segment(*header)
        kinds = [header[0] for header in headers]
        if kinds.count(elf.PT_GNU_STACK) != 1 or kinds.count(elf.PT_DYNAMIC) != 1 or kinds.count(elf.PT_PHDR) != 1:
            raise Misread("has not the program headers that it should have")
        if not self.segments or self.segments[0].offset or not self.segments[0].has_data(0, table + count * entry):
            raise Misread("does not begin with its own headers")

    def segment(
        self, kind: int, flags: int, offset: int, address: int, _: int, in_file: int, in_memory: int, alignment: int
    ) -> None:
        """One program header."""
        page = self.machine.page
        if kind == elf.PT_GNU_STACK:
            if flags != elf.RW:
                raise Misread("wants a stack that may be executed")
            return
        if offset + in_file > len(self.data) or in_file > in_memory or address + in_memory > _MAX_MEMORY:
            raise Misread("has a segment that reaches beyond the file, or beyond all bounds")
        if kind == elf.PT_LOAD:
            if flags not in (elf.R, elf.RX, elf.RW) or (in_memory != in_file and flags != elf.RW) or not in_memory:
                raise Misread("has a segment with rights that it may not have")
            if alignment != page or address != offset + len(self.segments) * page:
                raise Misread("has a segment that is not page-aligned")
            if self.segments and self.segments[-1].address + self.segments[-1].in_memory > address // page * page:
                raise Misread("has segments that share a page, or are not in order")
            self.segments.append(_Segment(flags, offset, address, in_file, in_memory))
        elif kind == elf.PT_PHDR:
            if (offset, address, self.segments) != (
                elf.FILE_HEADER.size,
                elf.FILE_HEADER.size,
                [],
            ) or in_file % elf.PROGRAM_HEADER.size:
                raise Misread("has no program headers in their place")
        elif kind == elf.PT_DYNAMIC:
            self.place_of_dynamic(flags, offset, address, in_file, in_memory)
        else:
            raise Misread(f"has a program header of an unknown kind, {kind:#x}")

    def place_of_dynamic(self, flags: int, offset: int, address: int, in_file: int, in_memory: int) -> None:
        home = next((s for s in self.segments if s.has_data(address, in_file)), None)
        fits = home is not None and home.flags == flags == elf.RW and offset - home.offset == address - home.address
        if not fits or in_file != in_memory or in_file % elf.DYNAMIC_ENTRY.size or address % 8:
            raise Misread("has a dynamic section outside its own memory")
        self.dynamic_at, self.dynamic_size = address, in_file
        for tag, value in elf.DYNAMIC_ENTRY.iter_unpack(self.data[offset : offset + in_file]):
            if tag == 0:
                return
            if tag == elf.DT_NEEDED:
                self.needed.append(value)
            elif tag in self.dynamic or tag not in (*_FIXED, *_REQUIRED, elf.DT_SONAME, elf.DT_RELA, elf.DT_RELASZ):
                raise Misread(f"has an entry {tag:#x} in its dynamic section that it may not have")
            else:
                self.dynamic[tag] = value
        raise Misread("has a dynamic section without an end")

    # *** the tables ***

    def constants(self, tag: int, size: int, what: str) -> bytes:
        """Bytes at an address that the dynamic section names; the loader reads them, and they are read-only."""
        address = self.dynamic[tag]
        home = next((s for s in self.segments if s.flags == elf.R and s.has_data(address, size)), None)
        if home is None or address % (1 if tag == elf.DT_STRTAB else 4):
            raise Misread(f"has {what} outside of its constants")
        at = address - home.address + home.offset
        return self.data[at : at + size]

    def dynamic_section(self) -> None:
        if any(tag not in self.dynamic for tag in _REQUIRED):
            raise Misread("lacks an entry of its dynamic section")
        if any(self.dynamic.get(tag, value) != value for tag, value in _FIXED.items()):
            raise Misread("has an entry of its dynamic section with another meaning")
        if len({elf.DT_RELA, elf.DT_RELASZ, elf.DT_RELAENT} & self.dynamic.keys()) not in (0, 3):
            raise Misread("has half of a table of relocations")
        self.strings = self.constants(elf.DT_STRTAB, self.dynamic[elf.DT_STRSZ], "names")
        if self.strings[:1] != b"\0" or self.strings[-1:] != b"\0":
            raise Misread("has names without an end")
        libraries = {self.name(at) for at in self.needed}
        if not libraries <= set(abi.LIBCALLS.values()) or len(libraries) != len(self.needed):
            raise Misread(f"wants to load other libraries: {', '.join(sorted(libraries))}")
        self.name(self.dynamic.get(elf.DT_SONAME, 0))

    def name(self, at: int) -> str:
        if at >= len(self.strings):
            raise Misread("has a name outside of its names")
        return self.strings[at : self.strings.index(b"\0", at)].decode("ascii", "backslashreplace")

    def symbol_table(self) -> None:
        buckets, count = struct.unpack("<2I", self.constants(elf.DT_HASH, 8, "a hash table"))
        if not 0 < buckets <= _MAX_SYMBOLS or not 0 < count <= _MAX_SYMBOLS:
            raise Misread("has a hash table of an impossible size")
        words = struct.unpack(
            f"<{buckets + count}I", self.constants(elf.DT_HASH, 4 * (2 + buckets + count), "a hash table")[8:]
        )
        bucket_of: dict[int, int] = {}
        for bucket, number in enumerate(words[:buckets]):
            while number:
                if number >= count or number in bucket_of:
                    raise Misread("has a hash table that goes in a circle, or out of its bounds")
                bucket_of[number] = bucket
                number = words[buckets + number]
        table = self.constants(elf.DT_SYMTAB, elf.SYMBOL.size * count, "symbols")
        for number, (name, info, other, section, value, size) in enumerate(elf.SYMBOL.iter_unpack(table)):
            self.symbols.append((self.name(name), info >> 4, info & 15, section, value, size))
            if number == 0:
                if any((name, info, other, section, value, size)):
                    raise Misread("has a first symbol")
            else:
                self.symbol(*self.symbols[-1], other)
                if bucket_of.get(number) != elf.hash_name(self.symbols[-1][0]) % buckets:
                    raise Misread("has a hash table in which a symbol is not found")
        if len({symbol[0] for symbol in self.symbols}) != count:
            raise Misread("has two symbols of one name")

    def symbol(self, name: str, binding: int, kind: int, section: int, value: int, size: int, other: int) -> None:
        if section == 0:
            if binding != elf.STB_GLOBAL or name not in abi.LIBCALLS or value or other:
                raise Misread(f"calls what it may not call: {name!r}")
            return
        if (
            binding not in (elf.STB_GLOBAL, elf.STB_WEAK)
            or kind not in (elf.STT_NOTYPE, elf.STT_OBJECT, elf.STT_FUNC)
            or other not in (0, 3)
        ):
            raise Misread(f"has a symbol of an unknown kind, {name!r}")
        if section >= elf.SHN_LORESERVE or not any(s.holds(value, size) for s in self.segments):
            raise Misread(f"has a symbol without an address, {name!r}")

    def exported(self, name: str, kind: int, flags: int) -> int:
        """Where a symbol lies that the runtime requests."""
        for result, _, of_kind, section, value, size in self.symbols:
            inside = any(s.flags == flags and s.has_data(value, max(size, 1)) for s in self.segments)
            if result == name and of_kind == kind and section and inside:
                return value
        raise Misread(f"has no symbol {name!r} in memory that it should be in")

    def relocations(self) -> None:
        """What the loader writes: into memory that may be written, and neither over what it reads nor out of it."""
        if elf.DT_RELA not in self.dynamic:
            return
        size = self.dynamic[elf.DT_RELASZ]
        if size % elf.RELA.size:
            raise Misread("has half a relocation")
        writable = [s for s in self.segments if s.flags == elf.RW]
        end = self.segments[-1].address + self.segments[-1].in_memory
        for at, info, addend in elf.RELA.iter_unpack(self.constants(elf.DT_RELA, size, "relocations")):
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            apart = at + 8 <= self.dynamic_at or self.dynamic_at + self.dynamic_size <= at
            if not apart or not any(s.holds(at, 8) for s in writable):
                raise Misread("has a relocation of memory that may not be written")
            if kind == self.machine.relative:
                if symbol or not 0 <= addend < end:
                    raise Misread("has a relocation that leads out of it")
            elif (
                kind not in (self.machine.pointer, self.machine.slot)
                or symbol >= len(self.symbols)
                or abs(addend) > end
            ):
                raise Misread(f"has a relocation of an unknown kind, {kind}")
            elif not symbol or self.symbols[symbol][3]:
                raise Misread("has a relocation against a symbol of its own")
