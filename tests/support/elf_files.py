"""Reads shared objects and relocatable objects as tests look at them: sections, symbols, what the loader reads.

It shares no code with the linker but the layouts of ELF's records.
"""

from __future__ import annotations

from dataclasses import dataclass

from einkorn.dsl.package import elf


@dataclass(frozen=True)
class FileSection:
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    data: bytes


@dataclass(frozen=True)
class FileSymbol:
    name: str
    binding: int
    type: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class ElfFile:
    """An ELF file of 64 bits."""

    image: bytes

    @property
    def machine(self) -> int:
        return int(elf.FILE_HEADER.unpack_from(self.image)[2])

    @property
    def sections(self) -> list[FileSection]:
        fields = elf.FILE_HEADER.unpack_from(self.image)
        headers = [elf.SECTION_HEADER.unpack_from(self.image, fields[6] + 64 * n) for n in range(fields[12])]
        names = headers[fields[13]][4]
        result = []
        for name, type, flags, address, offset, size, *_ in headers:
            data = b"" if type in (elf.SHT_NULL, elf.SHT_NOBITS) else self.image[offset : offset + size]
            result.append(FileSection(self._text(names + name), type, flags, address, offset, size, data))
        return result

    def section(self, name: str) -> FileSection:
        (result,) = (each for each in self.sections if each.name == name)
        return result

    def has(self, name: str) -> bool:
        return any(each.name == name for each in self.sections)

    def symbols(self, table: str) -> list[FileSymbol]:
        """The symbols of `.symtab` or `.dynsym`, the first, empty one aside."""
        strings = self.section(".strtab" if table == ".symtab" else ".dynstr").offset
        records = list(elf.SYMBOL.iter_unpack(self.section(table).data))[1:]
        return [
            FileSymbol(self._text(strings + name), info >> 4, info & 15, section, value, size)
            for name, info, _, section, value, size in records
        ]

    @property
    def needed(self) -> list[str]:
        strings = self.section(".dynstr").offset
        entries = elf.DYNAMIC_ENTRY.iter_unpack(self.section(".dynamic").data)
        return [self._text(strings + value) for tag, value in entries if tag == elf.DT_NEEDED]

    def exported(self) -> set[str]:
        """The symbols that other files see."""
        table = ".dynsym" if self.has(".dynsym") else ".symtab"
        return {s.name for s in self.symbols(table) if s.section != elf.SHN_UNDEF and s.binding != elf.STB_LOCAL}

    def _text(self, offset: int) -> str:
        return self.image[offset : self.image.index(b"\0", offset)].decode()
