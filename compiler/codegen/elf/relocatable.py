"""Writes a relocatable object, which system linkers link into programs.

The same input gives the same bytes. See also `codegen.elf.object_file`, which reads what is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.package import elf
from .blobs import Stream
from .image import Strings
from .object_file import ObjectFile, Relocation, Section, Symbol

_FLAGS = elf.SHF_WRITE | elf.SHF_ALLOC | elf.SHF_EXECINSTR
_STACK_NOTE = ".note.GNU-stack"  # without it linkers make stacks executable


@dataclass
class _Header:
    """A section of the file that is written."""

    name: str
    type: int
    flags: int
    alignment: int
    data: bytes = b""
    size: int = 0
    link: int = 0
    info: int = 0
    entry_size: int = 0
    offset: int = 0

    def pack(self, names: Strings) -> bytes:
        return elf.SECTION_HEADER.pack(
            names.add(self.name),
            self.type,
            self.flags,
            0,
            self.offset,
            self.size,
            self.link,
            self.info,
            self.alignment,
            self.entry_size,
        )


def write_file(file: IO[bytes], source: ObjectFile, streams: Mapping[int, Stream], *, debug: bool) -> None:
    """Writes an object in order; `streams` are the contents of sections by their numbers, which come last."""
    kept = [section for section in source.sections if _is_kept(section, debug)]
    number = {section.index: position for position, section in enumerate(kept, start=1)}
    relocations: dict[int, list[Relocation]] = {}
    for item in source.relocations:
        if item.section in number:
            relocations.setdefault(item.section, []).append(item)
    symbols, local = _symbols(source, number, relocations, debug)
    places = {index: place for place, index in enumerate(symbols, start=1)}
    strings = Strings()
    records = [elf.SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    records += [_record(source.symbols[index], number, strings) for index in symbols]

    headers = [_Header(s.name, s.type, s.flags & _FLAGS, s.alignment, s.data, s.size) for s in kept]
    headers.append(_Header(_STACK_NOTE, elf.SHT_PROGBITS, 0, 1))
    table = 1 + len(headers) + len(relocations)
    for index, items in relocations.items():
        data = b"".join(
            elf.RELA.pack(item.offset, places[item.symbol] << 32 | item.type, item.addend) for item in items
        )
        name = ".rela" + source.sections[index].name
        headers.append(_Header(name, elf.SHT_RELA, 0x40, 8, data, len(data), table, number[index], elf.RELA.size))
    data = b"".join(records)
    headers.append(_Header(".symtab", elf.SHT_SYMTAB, 0, 8, data, len(data), table + 1, 1 + local, elf.SYMBOL.size))
    headers.append(_Header(".strtab", elf.SHT_STRTAB, 0, 1, bytes(strings.data), len(strings.data)))
    names = Strings()
    for header in [*headers, last := _Header(".shstrtab", elf.SHT_STRTAB, 0, 1)]:
        names.add(header.name)
    last.data, last.size = bytes(names.data), len(names.data)
    headers.append(last)
    streamed = {number[index] - 1: stream for index, stream in streams.items() if index in number}
    _write(file, source, headers, streamed, names)


def _is_kept(section: Section, debug: bool) -> bool:
    if section.type in (elf.SHT_NULL, elf.SHT_SYMTAB, elf.SHT_STRTAB, elf.SHT_RELA):
        return False
    return section.allocated or (debug and section.name.startswith(".debug_"))


def _symbols(
    source: ObjectFile, number: Mapping[int, int], relocations: Mapping[int, list[Relocation]], debug: bool
) -> tuple[list[int], int]:
    """The numbers of the symbols that are written, local ones first, and how many of these there are."""
    used = {item.symbol for items in relocations.values() for item in items}
    kept = []
    for index, symbol in enumerate(source.symbols):
        defined = symbol.section in number or symbol.section == elf.SHN_ABS
        wanted = defined and (debug or symbol.binding != elf.STB_LOCAL)
        if index and symbol.type != elf.STT_FILE and (wanted or index in used):
            kept.append(index)
    kept.sort(key=lambda index: source.symbols[index].binding != elf.STB_LOCAL)
    return kept, sum(source.symbols[index].binding == elf.STB_LOCAL for index in kept)


def _record(symbol: Symbol, number: Mapping[int, int], strings: Strings) -> bytes:
    section = number.get(symbol.section, symbol.section)
    name = strings.add(symbol.name) if symbol.name else 0
    return elf.SYMBOL.pack(name, symbol.info, symbol.other, section, symbol.value, symbol.size)


def _write(
    file: IO[bytes], source: ObjectFile, headers: list[_Header], streams: Mapping[int, Stream], names: Strings
) -> None:
    """Writes header, sections, their table, and what is streamed."""
    body = bytearray(elf.FILE_HEADER.size)
    for position, header in enumerate(headers):
        if position not in streams:
            header.offset = _align(len(body), header.alignment)
            body += bytes(header.offset - len(body)) + header.data
    start = _align(len(body), 8)
    end = start + elf.SECTION_HEADER.size * (1 + len(headers))
    for position, stream in streams.items():
        headers[position].offset = end = _align(end, headers[position].alignment)
        end += stream.size
    body += bytes(start - len(body)) + bytes(elf.SECTION_HEADER.size)
    body += b"".join(header.pack(names) for header in headers)
    identity = elf.IDENTITY + bytes((source.os_abi, source.abi_version)) + bytes(7)
    count, size = 1 + len(headers), elf.SECTION_HEADER.size
    fields = (elf.ET_REL, source.machine, 1, 0, 0, start, source.flags, elf.FILE_HEADER.size, 0, 0, size, count)
    elf.FILE_HEADER.pack_into(body, 0, identity, *fields, count - 1)
    file.write(body)
    at = len(body)
    for position, stream in streams.items():
        file.write(bytes(headers[position].offset - at))
        stream.write(file)
        at = headers[position].offset + stream.size


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
