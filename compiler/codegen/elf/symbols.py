"""Renames and adds symbols of objects, and limits which of them other objects see.

See also `codegen.elf.merge`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ....dsl.package import elf
from .merge import merge_objects
from .object_file import ObjectFile, Symbol, fault, read_object


def as_object(source: bytes | ObjectFile) -> ObjectFile:
    """An object that was read, or is read now."""
    return read_object(source) if isinstance(source, bytes) else source


def code_digest(objects: Sequence[bytes | ObjectFile]) -> str:
    """The SHA-256, in hexadecimal, of what objects are at run time: allocated sections, their symbols and relocations.

    It leaves debug information out, which has the folders of the machine that compiled them.
    """
    digest = hashlib.sha256()
    for source in map(as_object, objects):
        sections = [section for section in source.sections if section.allocated]
        kept = {section.index for section in sections}
        symbols = [symbol for symbol in source.symbols if symbol.section in kept or symbol.section == elf.SHN_UNDEF]
        relocations = [item for item in source.relocations if item.section in kept]
        shapes = [(section.name, section.type, section.flags, section.size, section.alignment) for section in sections]
        digest.update(repr((source.machine, source.flags, shapes, symbols, relocations)).encode())
        for section in sections:
            digest.update(section.data)
    return digest.hexdigest()


def renamed(source: bytes | ObjectFile, names: Mapping[str, str]) -> ObjectFile:
    """An object whose symbols have other names, whether they are defined in it or not; local ones keep theirs."""
    source = as_object(source)
    symbols = tuple(
        replace(symbol, name=names[symbol.name]) if symbol.name in names and symbol.binding != elf.STB_LOCAL else symbol
        for symbol in source.symbols
    )
    return replace(source, symbols=symbols)


def aliased(source: bytes | ObjectFile, names: Mapping[str, str]) -> ObjectFile:
    """An object with further symbols: each name stands where the global symbol does that it is given for."""
    source = as_object(source)
    known = {symbol.name: symbol for symbol in source.symbols if symbol.binding != elf.STB_LOCAL}
    further = tuple(replace(known[old], name=new) for new, old in names.items())
    return replace(source, symbols=source.symbols + further)


def only(sources: bytes | ObjectFile | Sequence[bytes | ObjectFile], public: Collection[str]) -> ObjectFile:
    """One object of several, which other objects know by these symbols alone: all others become local.

    Raises:
        InternalError: one of the symbols is not defined.
    """
    several = [sources] if isinstance(sources, (bytes, ObjectFile)) else sources
    source = merge_objects([as_object(each) for each in several])
    defined = {symbol.name for symbol in source.symbols if not symbol.undefined and symbol.binding != elf.STB_LOCAL}
    if missing := sorted(set(public) - defined):
        raise fault(f"{missing[0]!r} is to be exported, and no object defines it")
    return replace(source, symbols=tuple(_limited(symbol, public) for symbol in source.symbols))


def _limited(symbol: Symbol, public: Collection[str]) -> Symbol:
    if symbol.undefined or symbol.binding == elf.STB_LOCAL:
        return symbol
    if symbol.name in public:
        return replace(symbol, other=elf.STV_DEFAULT)
    return replace(symbol, info=elf.STB_LOCAL << 4 | symbol.type, other=elf.STV_DEFAULT)
