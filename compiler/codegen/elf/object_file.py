"""Reads one relocatable ELF64 object into plain records.

Everything is checked against the bounds of the file: what is malformed or not handled is an InternalError that says
what it is. See also `codegen.elf.linker`.
"""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.errors import InternalError
from ....dsl.package import elf


@dataclass(frozen=True)
class Section:
    index: int
    name: str
    type: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    alignment: int

    @property
    def allocated(self) -> bool:
        return bool(self.flags & elf.SHF_ALLOC)


@dataclass(frozen=True)
class Symbol:
    """`section` is an index, or one of the SHN numbers; `visibility` is the whole st_other byte."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4

    @property
    def type(self) -> int:
        return self.info & 0xF

    @property
    def undefined(self) -> bool:
        return self.section == elf.SHN_UNDEF

    @property
    def exported(self) -> bool:
        return (
            not self.undefined
            and self.binding in (elf.STB_GLOBAL, elf.STB_WEAK)
            and self.other & 3 in (elf.STV_DEFAULT, elf.STV_PROTECTED)
        )


@dataclass(frozen=True)
class Relocation:
    """One patch: at `offset` of section `section`, of kind `type`, against symbol number `symbol`."""

    section: int
    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    machine: int
    flags: int
    os_abi: int
    abi_version: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def fault(message: str) -> InternalError:
    """The error for an object that cannot be linked."""
    return InternalError(f"cannot link the object: {message}", code="EK0906")


def read_object(data: bytes) -> ObjectFile:
    """Reads a relocatable object.

    Raises:
        InternalError: the bytes are not an object file, or are malformed.
    """
    if len(data) < elf.FILE_HEADER.size or data[:4] != elf.IDENTITY[:4]:
        raise fault("this is not an ELF file")
    if data[4:6] != elf.IDENTITY[4:6]:
        raise fault("only 64-bit little-endian ELF is handled")
    fields = elf.FILE_HEADER.unpack_from(data)
    kind, machine, flags, count = fields[1], fields[2], fields[7], fields[12]
    if kind != elf.ET_REL:
        raise fault("this is not a relocatable object")
    sections = _read_sections(data, table=fields[6], entry_size=fields[11], count=count, names=fields[13])
    symbols = _read_symbols(sections)
    return ObjectFile(machine, flags, data[7], data[8], sections, symbols, _read_relocations(sections, len(symbols)))


def _slice(data: bytes, offset: int, size: int, what: str) -> bytes:
    if offset + size > len(data):
        raise fault(f"{what} lies outside the file")
    return data[offset : offset + size]


def _read_sections(data: bytes, *, table: int, entry_size: int, count: int, names: int) -> tuple[Section, ...]:
    if entry_size != elf.SECTION_HEADER.size or count == 0 or names >= count:
        raise fault("the section headers are malformed")
    headers = list(elf.SECTION_HEADER.iter_unpack(_slice(data, table, count * entry_size, "the section table")))
    contents = [
        b"" if header[1] in (elf.SHT_NULL, elf.SHT_NOBITS) else _slice(data, header[4], header[5], f"section {index}")
        for index, header in enumerate(headers)
    ]
    for header in headers:
        if header[5] >= 1 << 40 or header[8] & (header[8] - 1):
            raise fault("the size or the alignment of a section is malformed")
    return tuple(
        Section(
            index=index,
            name=_text(contents[names], header[0]),
            type=header[1],
            flags=header[2],
            data=contents[index],
            size=header[5],
            link=header[6],
            info=header[7],
            alignment=max(1, header[8]),
        )
        for index, header in enumerate(headers)
    )


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if end < 0:
        raise fault("a name lies outside its string table")
    return table[offset:end].decode("utf-8", "replace")


def _section(sections: tuple[Section, ...], index: int) -> Section:
    if index >= len(sections):
        raise fault(f"there is no section {index}")
    return sections[index]


def _read_symbols(sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    tables = [section for section in sections if section.type == elf.SHT_SYMTAB]
    if len(tables) != 1 or tables[0].size % elf.SYMBOL.size:
        raise fault("the symbol table is missing or malformed")
    strings = _section(sections, tables[0].link).data
    symbols = []
    for name, info, other, section, value, size in elf.SYMBOL.iter_unpack(tables[0].data):
        symbol = Symbol(_text(strings, name), info, other, section, value, size)
        if elf.SHN_LORESERVE <= section != elf.SHN_ABS:
            what = "a common symbol" if section == elf.SHN_COMMON else f"in the special section {section:#x}"
            raise fault(f"{symbol.name!r} is {what}, which is not handled")
        if section != elf.SHN_ABS:
            _section(sections, section)
        if symbol.type in (elf.STT_TLS, elf.STT_GNU_IFUNC):
            what = "thread-local" if symbol.type == elf.STT_TLS else "an indirect function"
            raise fault(f"{symbol.name!r} is {what}, which is not handled")
        symbols.append(symbol)
    return tuple(symbols)


def _read_relocations(sections: tuple[Section, ...], symbols: int) -> tuple[Relocation, ...]:
    results = []
    for table in sections:
        if table.type == elf.SHT_REL:
            raise fault(f"{table.name} holds relocations without addends, which are not handled")
        if table.type != elf.SHT_RELA:
            continue
        if table.size % elf.RELA.size:
            raise fault(f"{table.name} is malformed")
        target = _section(sections, table.info)
        for offset, info, addend in elf.RELA.iter_unpack(table.data):
            if info >> 32 >= symbols or offset >= max(1, target.size):
                raise fault(f"a relocation in {table.name} points outside the file")
            results.append(Relocation(target.index, offset, info & 0xFFFFFFFF, info >> 32, addend))
    return tuple(results)
