"""Links relocatable objects into a shared object, or into one relocatable object: all the linking that kernels need.

The same input gives the same bytes.

The phases: read (`object_file`), join several (`merge`), limit what is exported (`symbols`), collect the pieces, lay
out (`image`), relocate (`relocations` has the machines), write (`image`, `relocatable`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import IO

from ....dsl.package import elf
from .blobs import Blob, Stream, with_blobs
from .debug_paths import relative_paths
from .image import STUB_SIZE, Image, OutputSection, dynamic_entries, fill_tables, lay_out, write_image
from .merge import merge_objects
from .object_file import ObjectFile, Relocation, fault, read_object
from .relocatable import write_file
from .relocations import MACHINES
from .symbols import as_object, only


def undefined_symbols(data: bytes) -> tuple[str, ...]:
    """The names that an object leaves to others, in its own order."""
    return tuple(symbol.name for symbol in read_object(data).symbols if symbol.undefined and symbol.name)


def link_shared(data: bytes | Sequence[bytes], *, needed: Sequence[str] = (), soname: str = "") -> bytes:
    """Links relocatable objects into a shared object.

    Args:
        data: the object, or several that know symbols of each other.
        needed: shared libraries that the loader shall load too; they have the undefined symbols.
        soname: the name the image calls itself, or none.

    Raises:
        InternalError: the object is malformed, or uses what is not handled: other machines and relocations,
            thread-local variables, constructors, indirect functions, common symbols.
    """
    objects = [data] if isinstance(data, bytes) else data
    output = io.BytesIO()
    source = merge_objects([read_object(each) for each in objects])
    _link(output, _collect(source, soname, tuple(needed), destructors=False))
    return output.getvalue()


def write_shared(
    file: IO[bytes],
    objects: Sequence[bytes | ObjectFile],
    *,
    needed: Sequence[str] = (),
    soname: str = "",
    public: Collection[str],
    blobs: Sequence[Blob] = (),
    debug: bool = False,
) -> None:
    """Links objects into a shared object, and writes it to a binary file in order.

    Args:
        file: where it is written, from the current position on, which is the file's beginning.
        objects: objects that know symbols of each other.
        needed, soname: as for `link_shared`.
        public: the only symbols that others see.
        blobs: read-only arrays, whose symbols the objects leave undefined.
        debug: whether debug information and the names of local symbols are kept, with paths made relative.

    Raises:
        InternalError: as `link_shared`, or a symbol of `public` is not defined.
    """
    source, streams = _exported(objects, public, blobs, debug)
    _link(file, _collect(source, soname, tuple(needed), streams=streams, debug=debug))


def write_relocatable(
    file: IO[bytes],
    objects: Sequence[bytes | ObjectFile],
    *,
    public: Collection[str],
    blobs: Sequence[Blob] = (),
    debug: bool = False,
) -> None:
    """Joins objects into one that system linkers take, and writes it to a binary file in order; see `write_shared`.

    Raises:
        InternalError: an object is malformed, or a symbol of `public` is not defined.
    """
    source, streams = _exported(objects, public, blobs, debug)
    try:
        write_file(file, source, streams, debug=debug)
    except struct.error:
        raise fault("a number in it is out of range") from None


def _exported(
    objects: Sequence[bytes | ObjectFile], public: Collection[str], blobs: Sequence[Blob], debug: bool
) -> tuple[ObjectFile, Mapping[int, Stream]]:
    """The objects as one, and the contents of sections that are streamed."""
    source, stream = with_blobs(merge_objects([as_object(each) for each in objects]), blobs)
    source = only(source, public)
    if debug:
        source = relative_paths(source)
    return source, {len(source.sections) - 1: stream} if blobs else {}


def _link(file: IO[bytes], image: Image) -> None:
    try:
        segments = lay_out(image)
        _fill_stubs(image)
        fill_tables(image, _relocate(image))
        write_image(file, image, segments)
    except struct.error:
        raise fault("a number in it is out of range") from None


def _collect(
    source: ObjectFile,
    soname: str,
    needed: tuple[str, ...],
    *,
    streams: Mapping[int, Stream] | None = None,
    debug: bool = True,
    destructors: bool = True,
) -> Image:
    """Decides what goes into the image, with final sizes everywhere."""
    if source.machine not in MACHINES:
        raise fault(f"machine {source.machine} is not handled")
    machine = MACHINES[source.machine]
    pieces = _pieces(source, streams or {}, debug, destructors)
    loaded = [item for item in source.relocations if source.sections[item.section].allocated]
    slots: dict[int, None] = {}
    stubs: dict[int, None] = {}
    for item in loaded:
        symbol = source.symbols[item.symbol]
        if item.type in machine.slots:
            slots[item.symbol] = None
        elif symbol.undefined and item.type in machine.calls and machine.stub:
            slots[item.symbol] = stubs[item.symbol] = None
        elif symbol.undefined and item.type != machine.pointer:
            raise fault(f"relocation {item.type} of {machine.name} against the undefined {symbol.name!r}")
    used = {item.symbol for item in loaded}
    dynamic = [
        index
        for index, symbol in enumerate(source.symbols)
        if (symbol.undefined and symbol.name and index in used)
        or (symbol.exported and (symbol.section in pieces or symbol.section == elf.SHN_ABS))
    ]
    image = Image(source, machine, soname, needed, pieces, list(slots), list(stubs), dynamic, debug)
    _make_own_pieces(image, sum(item.type == machine.pointer for item in loaded))
    return image


def _pieces(
    source: ObjectFile, streams: Mapping[int, Stream], debug: bool, destructors: bool
) -> dict[int, OutputSection]:
    """The sections that go into the image; empty ones only where a symbol lies in them."""
    page = MACHINES[source.machine].page
    marked = {symbol.section for symbol in source.symbols if symbol.type != elf.STT_SECTION}
    refused = elf.CONSTRUCTOR_TYPES - ({elf.SHT_FINI_ARRAY} if destructors else set())
    pieces: dict[int, OutputSection] = {}
    for section in source.sections:
        if section.flags & elf.SHF_TLS:
            raise fault(f"{section.name} holds thread-local variables, which are not handled")
        if section.type in refused or section.name.startswith((".ctors", ".dtors")):
            raise fault(f"{section.name} holds constructors, which are not handled")
        if section.flags & elf.SHF_COMPRESSED:
            raise fault(f"{section.name} is compressed, which is not handled")
        wanted = section.allocated and (section.size or section.index in marked)
        if wanted or (debug and section.name.startswith(".debug_") and section.size):
            if section.alignment > page:
                raise fault(f"{section.name} is aligned to {section.alignment} bytes, more than a page")
            stream = streams.get(section.index)
            zeroed = section.size if section.type == elf.SHT_NOBITS else 0
            data = bytearray(section.data)
            pieces[section.index] = OutputSection(
                section.name, section.type, section.flags, section.alignment, data, zeroed, stream
            )
    return pieces


def _make_own_pieces(image: Image, pointers: int) -> None:
    alloc, write = elf.SHF_ALLOC, elf.SHF_ALLOC | elf.SHF_WRITE
    symbols = len(image.dynamic)
    for index in image.dynamic:
        image.strings.add(image.source.symbols[index].name)
    for name in (*image.needed, *filter(None, [image.soname])):
        image.strings.add(name)
    relocations = elf.RELA.size * (len(image.slots) + pointers)
    entries = len(dynamic_entries(image, has_relocations=relocations > 0))
    code = alloc | elf.SHF_EXECINSTR

    def add(name: str, type: int, flags: int, size: int, entry_size: int, link: str = "", alignment: int = 8) -> None:
        piece = OutputSection(name, type, flags, alignment, bytearray(size), entry_size=entry_size, link=link)
        if size:
            image.own[name] = piece

    add(".dynsym", elf.SHT_DYNSYM, alloc, elf.SYMBOL.size * (1 + symbols), elf.SYMBOL.size, ".dynstr")
    image.own[".dynsym"].info = 1
    add(".hash", elf.SHT_HASH, alloc, 4 * (2 + max(1, symbols) + 1 + symbols), 4, ".dynsym")
    add(".dynstr", elf.SHT_STRTAB, alloc, len(image.strings.data), 0, alignment=1)
    add(".rela.dyn", elf.SHT_RELA, alloc, relocations, elf.RELA.size, ".dynsym")
    add(".plt", elf.SHT_PROGBITS, code, STUB_SIZE * len(image.stubs), STUB_SIZE, alignment=16)
    add(".got", elf.SHT_PROGBITS, write, 8 * len(image.slots), 8)
    add(".dynamic", elf.SHT_DYNAMIC, write, elf.DYNAMIC_ENTRY.size * entries, elf.DYNAMIC_ENTRY.size, ".dynstr")


def _fill_stubs(image: Image) -> None:
    """Writes the stubs; everything else about symbols needs section numbers and is written last."""
    if image.machine.stub is None:
        return
    for number, symbol in enumerate(image.stubs):
        stub = image.machine.stub(image.stub_address(symbol), image.slot_address(symbol))
        image.own[".plt"].data[number * STUB_SIZE : (number + 1) * STUB_SIZE] = stub


def _relocate(image: Image) -> list[bytes]:
    """Patches all pieces, and returns the relocations that are left to the loader."""
    machine, symbols = image.machine, image.source.symbols
    numbers = {symbol: number for number, symbol in enumerate(image.dynamic, start=1)}
    dynamic = []
    for index in image.slots:
        if symbols[index].undefined:
            entry = (image.slot_address(index), numbers[index] << 32 | machine.slot, 0)
        else:
            entry = (image.slot_address(index), machine.relative, image.address_of(symbols[index]))
        dynamic.append(elf.RELA.pack(*entry))
    for item in image.source.relocations:
        piece = image.pieces.get(item.section)
        if piece is None:
            continue
        if not piece.flags & elf.SHF_ALLOC:
            _patch_debug(image, piece, item)
        elif item.type == machine.pointer:
            symbol = symbols[item.symbol]
            if symbol.undefined:
                entry = (piece.address + item.offset, numbers[item.symbol] << 32 | machine.pointer, item.addend)
            else:
                entry = (piece.address + item.offset, machine.relative, image.address_of(symbol) + item.addend)
            dynamic.append(elf.RELA.pack(*entry))
        elif item.type in machine.debug_only:
            raise fault(f"relocation {item.type} of {machine.name} fixes an address in code that may move")
        else:
            if item.type in machine.slots:
                value = image.slot_address(item.symbol)
            elif symbols[item.symbol].undefined:
                value = image.stub_address(item.symbol)
            else:
                value = image.address_of(symbols[item.symbol])
            machine.patch(piece.data, item.offset, item.type, value + item.addend, piece.address + item.offset)
    return dynamic


def _patch_debug(image: Image, piece: OutputSection, item: Relocation) -> None:
    symbol = image.source.symbols[item.symbol]
    value = 0 if symbol.undefined else image.address_of(symbol)
    image.machine.patch(piece.data, item.offset, item.type, value + item.addend, item.offset)
