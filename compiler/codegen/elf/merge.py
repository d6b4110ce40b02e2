"""Makes one relocatable object of several: sections of one name become one, symbols of one name become one.

See also `codegen.elf.linker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.package import elf
from .object_file import ObjectFile, Relocation, Section, Symbol, fault

_TABLES = (elf.SHT_NULL, elf.SHT_SYMTAB, elf.SHT_STRTAB, elf.SHT_RELA)  # of the object, not of the program


@dataclass
class _Joined:
    """A section that is being collected, with what each object gave to it."""

    first: Section
    index: int
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    alignment: int = 1

    def add(self, section: Section) -> int:
        """Puts a section behind what is there; where it begins."""
        base = -(-self.size // section.alignment) * section.alignment
        if section.type != elf.SHT_NOBITS:
            self.data += bytes(base - len(self.data)) + section.data
        self.size = base + section.size
        self.alignment = max(self.alignment, section.alignment)
        return base

    def section(self) -> Section:
        return replace(self.first, index=self.index, data=bytes(self.data), size=self.size, alignment=self.alignment)


def merge_objects(objects: Sequence[ObjectFile]) -> ObjectFile:
    """One object with all that these hold.

    Raises:
        InternalError: they are for different machines, or two define the same symbol.
    """
    first = objects[0]
    if len(objects) == 1:
        return first
    if any((o.machine, o.flags, o.os_abi) != (first.machine, first.flags, first.os_abi) for o in objects):
        raise fault("it is for another machine than the rest")
    joined: dict[tuple[str, int, int], _Joined] = {}
    merger = _Merger()
    for each in objects:
        places: dict[int, tuple[int, int]] = {}  # of a section: the index of the joined one, and where it begins in it
        for section in each.sections:
            if section.type not in _TABLES:
                name = (section.name, section.type, section.flags)
                into = joined.setdefault(name, _Joined(section, 1 + len(joined)))
                places[section.index] = into.index, into.add(section)
        merger.add(each, places)
    nothing = replace(first.sections[0], index=0)
    sections = (nothing, *(each.section() for each in joined.values()))
    return replace(first, sections=sections, symbols=tuple(merger.symbols), relocations=tuple(merger.relocations))


class _Merger:
    """Collects symbols and relocations. What is undefined in one object and defined in another is one symbol."""

    def __init__(self) -> None:
        self.symbols: list[Symbol] = []
        self.relocations: list[Relocation] = []
        self.known: dict[str, int] = {}  # symbols that all objects see, by name

    def add(self, each: ObjectFile, places: dict[int, tuple[int, int]]) -> None:
        numbers = [self._symbol(symbol, places) for symbol in each.symbols]
        for item in each.relocations:
            section, base = places[item.section]
            at = item.offset + base
            self.relocations.append(replace(item, section=section, offset=at, symbol=numbers[item.symbol]))

    def _symbol(self, symbol: Symbol, places: dict[int, tuple[int, int]]) -> int:
        moved = symbol
        if symbol.section in places:
            section, base = places[symbol.section]
            moved = replace(symbol, section=section, value=symbol.value + base)
        if symbol.binding == elf.STB_LOCAL:
            return self._append(moved)
        known = self.known.setdefault(symbol.name, len(self.symbols))
        if known == len(self.symbols):
            return self._append(moved)
        if not symbol.undefined:
            if not self.symbols[known].undefined:
                raise fault(f"{symbol.name!r} is defined twice")
            self.symbols[known] = moved
        return known

    def _append(self, symbol: Symbol) -> int:
        self.symbols.append(symbol)
        return len(self.symbols) - 1
