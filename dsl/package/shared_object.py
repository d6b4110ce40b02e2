"""A shared object that came from somebody else, read before the system maps it.

The dynamic loader believes what it loads: a wrong offset in the tables that it follows ends the process, and a file may
ask it to run functions before anybody has called one. So code of a package is read here first, and taken only where it
is built as `compiler.codegen.elf.write` builds it: segments within the file that share no page and are never writable
and executable at once, a dynamic section of the few entries that we write, symbols and a hash table without a way out,
relocations of the three kinds that we write into memory that may be written, no libraries but libc and libm, nothing
that runs by itself. The entry lies in code, the table of reports in memory that nobody may change.

Input: the bytes of a file, and a machine. Output: the table of reports. Raises: `Misread`. Non-goals: the machine code.
It is run as it is; who does not trust the maker of a package does not run its code.

The numbers are those of the System V ABI and its processor supplements.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ..contract import abi
from ..diagnostics.json_reading import Misread

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_IDENTITY = b"\x7fELF\x02\x01\x01" + bytes(9)
_LOAD, _DYNAMIC_SEGMENT, _SELF, _STACK = 1, 2, 6, 0x6474E551
_R, _RX, _RW = 4, 5, 6
_NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT, _STRSZ, _SYMENT = 1, 4, 5, 6, 7, 8, 9, 10, 11
_SONAME, _BIND_NOW, _FLAGS_1 = 14, 24, 0x6FFFFFFB
_FIXED = {_RELAENT: _RELOCATION.size, _SYMENT: _SYMBOL.size, _BIND_NOW: 0, _FLAGS_1: 1}
_REQUIRED = (_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT)
_GLOBAL, _WEAK, _NOTYPE, _OBJECT, _FUNCTION = 1, 2, 0, 1, 2
_MAX_MEMORY = 1 << 30  # bytes that one object takes when it is mapped
_MAX_SYMBOLS = 1 << 16


@dataclass(frozen=True)
class Machine:
    """What differs between machines: their number, their largest page, and relocations: relative, of a symbol."""

    number: int
    page: int
    relative: int
    symbolic: tuple[int, ...]


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(62, 0x1000, 8, (1, 6)),  # R_X86_64_RELATIVE; 64, GLOB_DAT
    "aarch64": Machine(183, 0x10000, 1027, (257, 1025)),  # R_AARCH64_RELATIVE; ABS64, GLOB_DAT
}


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
        Misread: it is no shared object for it, or not one that Einkorn has written.
    """
    if architecture not in MACHINES:
        raise Misread(f"is for no machine that is known here ({architecture})")
    return _Reader(data, MACHINES[architecture]).reports()


def _hash(name: str) -> int:
    """The hash of a name as the System V ABI has it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


class _Reader:
    """Reads one object, from the outside to the inside."""

    def __init__(self, data: bytes, machine: Machine) -> None:
        self.data = data
        self.machine = machine
        self.segments: list[_Segment] = []
        self.dynamic: dict[int, int] = {}
        self.needed: list[int] = []
        self.symbols: list[tuple[str, int, int, int, int, int]] = []

    def reports(self) -> bytes:
        self.headers()
        self.dynamic_section()
        self.symbol_table()
        self.relocations()
        entry = self.exported(abi.ENTRY, _FUNCTION, _RX)
        if not any(s.flags == _RX and s.has_data(entry, 1) for s in self.segments):
            raise Misread(f"has its {abi.ENTRY} outside of its code")
        start = self.exported(abi.REPORTS, _OBJECT, _R)
        segment = next((s for s in self.segments if s.flags == _R and s.has_data(start, 1)), None)
        if segment is None:
            raise Misread(f"has its {abi.REPORTS} outside of its constants")
        at = start - segment.address + segment.offset
        end = self.data.find(b"\0", at, segment.offset + segment.in_file)
        if end < 0:
            raise Misread(f"has {abi.REPORTS} without an end")
        return self.data[at:end]

    # *** the file ***

    def headers(self) -> None:
        if len(self.data) < _HEADER.size or self.data[:4] != _IDENTITY[:4]:
            raise Misread("is no ELF file")
        identity, kind, machine, version, start, table, _, flags, size, entry, count, *_ = _HEADER.unpack_from(
            self.data
        )
        if identity != _IDENTITY or version != 1 or size != _HEADER.size or flags or start:
            raise Misread("is an ELF file of another kind")
        if kind != 3:
            raise Misread("is no shared object")
        if machine != self.machine.number:
            raise Misread(f"is for another machine (number {machine})")
        if table != _HEADER.size or entry != _PROGRAM.size or not 0 < count <= 16:
            raise Misread("has no program headers in their place")
        if len(self.data) < table + count * entry:
            raise Misread("ends within its program headers")
        headers = [_PROGRAM.unpack_from(self.data, table + number * entry) for number in range(count)]
        for header in headers:
            self.segment(*header)
        kinds = [header[0] for header in headers]
        if kinds.count(_STACK) != 1 or kinds.count(_DYNAMIC_SEGMENT) != 1 or kinds.count(_SELF) != 1:
            raise Misread("has not the program headers that it should have")
        if not self.segments or self.segments[0].offset or not self.segments[0].has_data(0, table + count * entry):
            raise Misread("does not begin with its own headers")

    def segment(
        self, kind: int, flags: int, offset: int, address: int, _: int, in_file: int, in_memory: int, alignment: int
    ) -> None:
        """One program header."""
        page = self.machine.page
        if kind == _STACK:
            if flags != _RW:
                raise Misread("wants a stack that may be executed")
            return
        if offset + in_file > len(self.data) or in_file > in_memory or address + in_memory > _MAX_MEMORY:
            raise Misread("has a segment that reaches beyond the file, or beyond all bounds")
        if kind == _LOAD:
            if flags not in (_R, _RX, _RW) or (in_memory != in_file and flags != _RW) or not in_memory:
                raise Misread("has a segment with rights that it may not have")
            if alignment != page or address != offset + len(self.segments) * page:
                raise Misread("has a segment that does not lie at its page")
            if self.segments and self.segments[-1].address + self.segments[-1].in_memory > address // page * page:
                raise Misread("has segments that share a page, or stand in no order")
            self.segments.append(_Segment(flags, offset, address, in_file, in_memory))
        elif kind == _SELF:
            if (offset, address, self.segments) != (_HEADER.size, _HEADER.size, []) or in_file % _PROGRAM.size:
                raise Misread("has no program headers in their place")
        elif kind == _DYNAMIC_SEGMENT:
            self.place_of_dynamic(flags, offset, address, in_file, in_memory)
        else:
            raise Misread(f"has a program header of an unknown kind, {kind:#x}")

    def place_of_dynamic(self, flags: int, offset: int, address: int, in_file: int, in_memory: int) -> None:
        home = next((s for s in self.segments if s.has_data(address, in_file)), None)
        fits = home is not None and home.flags == flags == _RW and offset - home.offset == address - home.address
        if not fits or in_file != in_memory or in_file % _DYNAMIC.size or address % 8:
            raise Misread("has a dynamic section that does not lie in memory of its own")
        self.dynamic_at, self.dynamic_size = address, in_file
        for tag, value in _DYNAMIC.iter_unpack(self.data[offset : offset + in_file]):
            if tag == 0:
                return
            if tag == _NEEDED:
                self.needed.append(value)
            elif tag in self.dynamic or tag not in (*_FIXED, *_REQUIRED, _SONAME, _RELA, _RELASZ):
                raise Misread(f"has an entry {tag:#x} in its dynamic section that it may not have")
            else:
                self.dynamic[tag] = value
        raise Misread("has a dynamic section without an end")

    # *** the tables ***

    def constants(self, tag: int, size: int, what: str) -> bytes:
        """Bytes at an address that the dynamic section names; the loader reads them, and nobody may change them."""
        address = self.dynamic[tag]
        home = next((s for s in self.segments if s.flags == _R and s.has_data(address, size)), None)
        if home is None or address % (1 if tag == _STRTAB else 4):
            raise Misread(f"has {what} outside of its constants")
        at = address - home.address + home.offset
        return self.data[at : at + size]

    def dynamic_section(self) -> None:
        if any(tag not in self.dynamic for tag in _REQUIRED):
            raise Misread("lacks an entry of its dynamic section")
        if any(self.dynamic.get(tag, value) != value for tag, value in _FIXED.items()):
            raise Misread("has an entry of its dynamic section with another meaning")
        if len({_RELA, _RELASZ, _RELAENT} & self.dynamic.keys()) not in (0, 3):
            raise Misread("has half of a table of relocations")
        self.strings = self.constants(_STRTAB, self.dynamic[_STRSZ], "names")
        if self.strings[:1] != b"\0" or self.strings[-1:] != b"\0":
            raise Misread("has names without an end")
        libraries = {self.name(at) for at in self.needed}
        if not libraries <= set(abi.LIBCALLS.values()) or len(libraries) != len(self.needed):
            raise Misread(f"wants to load other libraries: {', '.join(sorted(libraries))}")
        self.name(self.dynamic.get(_SONAME, 0))

    def name(self, at: int) -> str:
        if at >= len(self.strings):
            raise Misread("has a name outside of its names")
        return self.strings[at : self.strings.index(b"\0", at)].decode("ascii", "backslashreplace")

    def symbol_table(self) -> None:
        buckets, count = struct.unpack("<2I", self.constants(_HASH, 8, "a hash table"))
        if not 0 < buckets <= _MAX_SYMBOLS or not 0 < count <= _MAX_SYMBOLS:
            raise Misread("has a hash table of an impossible size")
        words = struct.unpack(
            f"<{buckets + count}I", self.constants(_HASH, 4 * (2 + buckets + count), "a hash table")[8:]
        )
        bucket_of: dict[int, int] = {}
        for bucket, number in enumerate(words[:buckets]):
            while number:
                if number >= count or number in bucket_of:
                    raise Misread("has a hash table that goes in a circle, or out of its bounds")
                bucket_of[number] = bucket
                number = words[buckets + number]
        table = self.constants(_SYMTAB, _SYMBOL.size * count, "symbols")
        for number, (name, info, other, section, value, size) in enumerate(_SYMBOL.iter_unpack(table)):
            self.symbols.append((self.name(name), info >> 4, info & 15, section, value, size))
            if number == 0:
                if any((name, info, other, section, value, size)):
                    raise Misread("has a first symbol")
            else:
                self.symbol(*self.symbols[-1], other)
                if bucket_of.get(number) != _hash(self.symbols[-1][0]) % buckets:
                    raise Misread("has a hash table in which a symbol is not found")
        if len({symbol[0] for symbol in self.symbols}) != count:
            raise Misread("has two symbols of one name")

    def symbol(self, name: str, binding: int, kind: int, section: int, value: int, size: int, other: int) -> None:
        if section == 0:
            if binding != _GLOBAL or name not in abi.LIBCALLS or value or other:
                raise Misread(f"calls what it may not call: {name!r}")
            return
        if binding not in (_GLOBAL, _WEAK) or kind not in (_NOTYPE, _OBJECT, _FUNCTION) or other not in (0, 3):
            raise Misread(f"has a symbol of an unknown kind, {name!r}")
        if section >= 0xFF00 or not any(s.holds(value, size) for s in self.segments):
            raise Misread(f"has a symbol that lies nowhere, {name!r}")

    def exported(self, name: str, kind: int, flags: int) -> int:
        """Where a symbol lies that the runtime asks for."""
        for found, _, of_kind, section, value, size in self.symbols:
            inside = any(s.flags == flags and s.has_data(value, max(size, 1)) for s in self.segments)
            if found == name and of_kind == kind and section and inside:
                return value
        raise Misread(f"has no symbol {name!r} in memory that it should be in")

    def relocations(self) -> None:
        """What the loader writes: into memory that may be written, and neither over what it reads nor out of it."""
        if _RELA not in self.dynamic:
            return
        size = self.dynamic[_RELASZ]
        if size % _RELOCATION.size:
            raise Misread("has half a relocation")
        writable = [s for s in self.segments if s.flags == _RW]
        end = self.segments[-1].address + self.segments[-1].in_memory
        for at, info, addend in _RELOCATION.iter_unpack(self.constants(_RELA, size, "relocations")):
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            apart = at + 8 <= self.dynamic_at or self.dynamic_at + self.dynamic_size <= at
            if not apart or not any(s.holds(at, 8) for s in writable):
                raise Misread("has a relocation of memory that may not be written")
            if kind == self.machine.relative:
                if symbol or not 0 <= addend < end:
                    raise Misread("has a relocation that leads out of it")
            elif kind not in self.machine.symbolic or symbol >= len(self.symbols) or abs(addend) > end:
                raise Misread(f"has a relocation of an unknown kind, {kind}")
            elif not symbol or self.symbols[symbol][3]:
                raise Misread("has a relocation against a symbol of its own")
