"""Lays out and writes the image of a shared object: its pieces, their addresses, and the bytes of the file.

The pieces lie in three segments, in this order:

    read            headers, notes, .dynsym, .hash, .dynstr, .rela.dyn, read-only data
    read, execute   code, .plt (stubs for calls to undefined symbols)
    read, write     data, .got (a slot for each symbol whose address is loaded from memory), .dynamic, zeroed data
    not loaded      .symtab, .strtab, .debug_*, .shstrtab
    read            large arrays, which are written from where they lie (`codegen.elf.blobs`)

Code and data reach the last segment through addresses of 64 bits only, so that it may have any size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import IO

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.package import elf
from .blobs import Stream
from .object_file import ObjectFile, Symbol, fault
from .relocations import Linked

STUB_SIZE = 16


@dataclass
class OutputSection:
    """A section of the output. `data` has its final size from the start, and is filled and patched later."""

    name: str
    type: int
    flags: int
    alignment: int
    data: bytearray = field(default_factory=bytearray)
    zeroed: int = 0  # the size of a piece that takes no room in the file
    stream: Stream | None = None  # the contents, where they are not in `data`
    entry_size: int = 0
    link: str = ""
    info: int = 0
    address: int = 0
    offset: int = 0

    @property
    def size(self) -> int:
        return self.stream.size if self.stream is not None else self.zeroed or len(self.data)

    @property
    def file_size(self) -> int:
        """How many bytes of the file it takes."""
        return 0 if self.zeroed else self.size


@dataclass
class Strings:
    """A string table that is being collected."""

    data: bytearray = field(default_factory=lambda: bytearray(1))
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        if text not in self.offsets:
            self.offsets[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self.offsets[text]


@dataclass
class Image:
    """Everything about one link. Symbols and sections are known by their numbers in the object."""

    source: ObjectFile
    machine: Linked
    soname: str
    needed: tuple[str, ...]
    pieces: dict[int, OutputSection]  # by section of the object; also those that are not loaded
    slots: list[int]  # symbols with a slot in .got
    stubs: list[int]  # symbols with a stub in .plt
    dynamic: list[int]  # symbols in .dynsym
    debug: bool = True  # whether .symtab is written
    own: dict[str, OutputSection] = field(default_factory=dict)  # the pieces the linker makes
    strings: Strings = field(default_factory=Strings)

    def __post_init__(self) -> None:
        self._slots = {symbol: number for number, symbol in enumerate(self.slots)}
        self._stubs = {symbol: number for number, symbol in enumerate(self.stubs)}

    def slot_address(self, symbol: int) -> int:
        return self.own[".got"].address + 8 * self._slots[symbol]

    def stub_address(self, symbol: int) -> int:
        return self.own[".plt"].address + STUB_SIZE * self._stubs[symbol]

    def address_of(self, symbol: Symbol) -> int:
        """Where a defined symbol lies; in a section that is not loaded, its offset there."""
        if symbol.section == elf.SHN_ABS:
            return symbol.value
        if symbol.section not in self.pieces:
            raise fault(f"{symbol.name!r} lies in {self.source.sections[symbol.section].name}, which is left out")
        return self.pieces[symbol.section].address + symbol.value


@dataclass(frozen=True)
class ElfSegment:
    flags: int
    pieces: tuple[OutputSection, ...]


def lay_out(image: Image) -> tuple[ElfSegment, ...]:
    """Gives every loaded piece its address and its offset in the file.

    Offsets are packed; a segment's addresses are its offsets plus a number of whole pages, so that no page of memory
    belongs to two segments though a page of the file may.
    """
    loaded = [piece for piece in image.pieces.values() if piece.flags & elf.SHF_ALLOC]
    streamed = [piece for piece in loaded if piece.stream is not None]
    readable = [
        piece for piece in loaded if not piece.flags & (elf.SHF_WRITE | elf.SHF_EXECINSTR) and piece.stream is None
    ]
    writable = [piece for piece in loaded if piece.flags & elf.SHF_WRITE]
    own = image.own
    order: list[tuple[int, list[OutputSection]]] = [
        (
            elf.R,
            [
                *(piece for piece in readable if piece.type == elf.SHT_NOTE),
                *(own[name] for name in (".dynsym", ".hash", ".dynstr", ".rela.dyn") if name in own),
                *(piece for piece in readable if piece.type != elf.SHT_NOTE),
            ],
        ),
        (
            elf.RX,
            [piece for piece in loaded if piece.flags & elf.SHF_EXECINSTR]
            + [own[name] for name in (".plt",) if name in own],
        ),
        (
            elf.RW,
            [
                *(piece for piece in writable if not piece.zeroed),
                *(own[name] for name in (".got", ".dynamic") if name in own),
                *(piece for piece in writable if piece.zeroed),
            ],
        ),
    ]
    segments = tuple(ElfSegment(flags, tuple(pieces)) for flags, pieces in order if pieces)
    last = tuple(ElfSegment(elf.R, (piece,)) for piece in streamed)
    offset = elf.FILE_HEADER.size + elf.PROGRAM_HEADER.size * _count_program_headers(image, segments + last)
    page = image.machine.page
    for number, segment in enumerate(segments):
        bias = number * page
        zeroed = 0
        for piece in segment.pieces:
            # Zeroed pieces come last: they take addresses but no room in the file. No segment comes after them but that
            # of streams, which begins at a page of its own.
            start = _align(offset + zeroed, piece.alignment)
            piece.address = start + bias
            if piece.zeroed:
                piece.offset = offset
                zeroed = start + piece.size - offset
            else:
                piece.offset = start
                offset = start + piece.size
    end = segments[-1].pieces[-1].address + segments[-1].pieces[-1].size
    for piece in streamed:
        piece.address = end = _align(end, page)
        end += piece.size
    return segments + last


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def _notes(segments: Sequence[ElfSegment]) -> list[OutputSection]:
    return [piece for segment in segments for piece in segment.pieces if piece.type == elf.SHT_NOTE]


def _count_program_headers(image: Image, segments: Sequence[ElfSegment]) -> int:
    return 3 + len(segments) + bool(_notes(segments))


def _fini_array(image: Image) -> OutputSection | None:
    return next((piece for piece in image.pieces.values() if piece.type == elf.SHT_FINI_ARRAY), None)


def dynamic_entries(image: Image, *, has_relocations: bool) -> list[tuple[int, int]]:
    def address(name: str) -> int:
        return image.own[name].address if name in image.own else 0

    def size(name: str) -> int:
        return image.own[name].size if name in image.own else 0

    entries = [(elf.DT_NEEDED, image.strings.add(name)) for name in image.needed]
    if image.soname:
        entries.append((elf.DT_SONAME, image.strings.add(image.soname)))
    entries += [
        (elf.DT_HASH, address(".hash")),
        (elf.DT_STRTAB, address(".dynstr")),
        (elf.DT_SYMTAB, address(".dynsym")),
        (elf.DT_STRSZ, size(".dynstr")),
        (elf.DT_SYMENT, elf.SYMBOL.size),
    ]
    if has_relocations:
        entries += [
            (elf.DT_RELA, address(".rela.dyn")),
            (elf.DT_RELASZ, size(".rela.dyn")),
            (elf.DT_RELAENT, elf.RELA.size),
        ]
    if (ends := _fini_array(image)) is not None:
        entries += [(elf.DT_FINI_ARRAY, ends.address), (elf.DT_FINI_ARRAYSZ, ends.size)]
    if image.machine.stub:
        entries += [(elf.DT_BIND_NOW, 0), (elf.DT_FLAGS_1, 1)]
    return [*entries, (0, 0)]


def fill_tables(image: Image, dynamic: Sequence[bytes]) -> None:
    """Fills what the loader reads, but for .dynsym, which holds section numbers."""
    own = image.own
    own[".dynstr"].data[:] = image.strings.data
    own[".hash"].data[:] = _hash_table([image.source.symbols[index].name for index in image.dynamic])
    if dynamic:
        own[".rela.dyn"].data[:] = b"".join(dynamic)
    entries = dynamic_entries(image, has_relocations=bool(dynamic))
    own[".dynamic"].data[:] = b"".join(elf.DYNAMIC_ENTRY.pack(*entry) for entry in entries)


def _hash_table(names: Sequence[str]) -> bytes:
    """The System V hash table of symbols 1..n."""
    buckets = [0] * max(1, len(names))
    chain = [0] * (len(names) + 1)
    for number, name in enumerate(names, start=1):
        bucket = elf.hash_name(name) % len(buckets)
        chain[number], buckets[bucket] = buckets[bucket], number
    words = (len(buckets), len(chain), *buckets, *chain)
    return struct.pack(f"<{len(words)}I", *words)


def write_image(file: IO[bytes], image: Image, segments: Sequence[ElfSegment]) -> None:
    """Writes the file in order."""
    loaded = [piece for segment in segments for piece in segment.pieces]
    debug = [piece for piece in image.pieces.values() if not piece.flags & elf.SHF_ALLOC]
    names = OutputSection(".shstrtab", elf.SHT_STRTAB, 0, 1)
    tables = (
        [OutputSection(".symtab", elf.SHT_SYMTAB, 0, 8, entry_size=elf.SYMBOL.size, link=".strtab")]
        if image.debug
        else []
    )
    tables += [OutputSection(".strtab", elf.SHT_STRTAB, 0, 1) for _ in tables]
    sections = [*loaded, *tables, *debug, names]
    number = {id(piece): index for index, piece in enumerate(sections, start=1)}
    _fill_symbols(image, number, tables)
    strings = Strings()
    for piece in sections:
        strings.add(piece.name)
    names.data = strings.data

    streamed = [piece for piece in loaded if piece.stream is not None]
    output = bytearray(max(piece.offset + len(piece.data) for piece in loaded if piece.stream is None))
    for piece in sections[len(loaded) :]:
        piece.offset = _align(len(output), piece.alignment)
        output += bytes(piece.offset - len(output)) + piece.data
    for piece in loaded:
        output[piece.offset : piece.offset + len(piece.data)] = piece.data
    table = _align(len(output), 8)
    end = table + elf.SECTION_HEADER.size * (1 + len(sections))
    for piece in streamed:
        piece.offset = end = _align(end, image.machine.page)
        end += piece.size
    output += bytes(table - len(output)) + bytes(elf.SECTION_HEADER.size)
    for piece in sections:
        link = next((number[id(other)] for other in sections if other.name == piece.link), 0) if piece.link else 0
        output += elf.SECTION_HEADER.pack(
            strings.add(piece.name),
            piece.type,
            piece.flags & 0x7,
            piece.address,
            piece.offset,
            piece.size,
            link,
            piece.info,
            piece.alignment,
            piece.entry_size,
        )
    _write_headers(image, segments, output, table, len(sections) + 1)
    file.write(output)
    at = len(output)
    for piece in streamed:
        assert piece.stream is not None
        file.write(bytes(piece.offset - at))
        piece.stream.write(file)
        at = piece.offset + piece.size


def _fill_symbols(image: Image, number: Mapping[int, int], tables: Sequence[OutputSection]) -> None:
    """Fills .dynsym, and .symtab with its strings where there are these; `number` has the sections by their pieces."""

    def record(symbol: Symbol, name: int) -> bytes:
        section, value = symbol.section, 0
        if not symbol.undefined:
            value = image.address_of(symbol)
            section = number[id(image.pieces[symbol.section])] if symbol.section in image.pieces else elf.SHN_ABS
        return elf.SYMBOL.pack(name, symbol.info, symbol.other, section, value, symbol.size)

    all_symbols = image.source.symbols
    records = [record(all_symbols[index], image.strings.add(all_symbols[index].name)) for index in image.dynamic]
    image.own[".dynsym"].data[:] = bytes(elf.SYMBOL.size) + b"".join(records)
    if not tables:
        return
    symbols, strings = tables[0], Strings()
    named = [item for item in all_symbols if item.name and item.type not in (elf.STT_SECTION, elf.STT_FILE)]
    kept = [item for item in named if item.undefined or item.section in image.pieces or item.section == elf.SHN_ABS]
    kept.sort(key=lambda item: item.binding != elf.STB_LOCAL)  # stable: the ABI wants local symbols first
    symbols.data = bytearray(elf.SYMBOL.size) + b"".join(record(item, strings.add(item.name)) for item in kept)
    symbols.info = 1 + sum(item.binding == elf.STB_LOCAL for item in kept)
    tables[1].data = strings.data


def _write_headers(image: Image, segments: Sequence[ElfSegment], output: bytearray, table: int, sections: int) -> None:
    source, count = image.source, _count_program_headers(image, segments)
    start, size = elf.FILE_HEADER.size, elf.PROGRAM_HEADER.size
    identity = elf.IDENTITY + bytes((source.os_abi, source.abi_version)) + bytes(7)
    elf.FILE_HEADER.pack_into(
        output,
        0,
        identity,
        elf.ET_DYN,
        source.machine,
        1,
        0,
        start,
        table,
        source.flags,
        start,
        size,
        count,
        elf.SECTION_HEADER.size,
        sections,
        sections - 1,
    )

    headers = [(elf.PT_PHDR, elf.R, start, start, size * count, size * count, 8)]
    for position, segment in enumerate(segments):
        first, last = segment.pieces[0], segment.pieces[-1]
        offset, address = (0, 0) if position == 0 else (first.offset, first.address)
        file_end = max(piece.offset + piece.file_size for piece in segment.pieces)
        memory = last.address + last.size - address
        headers.append((elf.PT_LOAD, segment.flags, offset, address, file_end - offset, memory, image.machine.page))
    dynamic = image.own[".dynamic"]
    headers.append((elf.PT_DYNAMIC, elf.RW, dynamic.offset, dynamic.address, dynamic.size, dynamic.size, 8))
    headers.append((elf.PT_GNU_STACK, elf.RW, 0, 0, 0, 0, 0))
    if notes := _notes(segments):
        length = notes[-1].offset + notes[-1].size - notes[0].offset
        headers.append((elf.PT_NOTE, elf.R, notes[0].offset, notes[0].address, length, length, 4))
    for index, (kind, flags, offset, address, file_size, memory, alignment) in enumerate(headers):
        elf.PROGRAM_HEADER.pack_into(
            output, start + index * size, kind, flags, offset, address, address, file_size, memory, alignment
        )
