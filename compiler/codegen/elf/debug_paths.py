"""Makes the paths in debug information relative: exported files contain no folder of the machine they were made on.

Paths below the installed package begin with `einkorn/`; of other files only the name stays, and debuggers look for it
in their search path. Strings keep their lengths, because line tables contain them inline: `./` fills what is left. The
line tables are those of DWARF 4, which MLIR's debug information becomes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ....dsl.diagnostics.installation import ROOT
from .object_file import ObjectFile, fault

_STRINGS: Final = ".debug_str"
_LINES: Final = ".debug_line"
_PACKAGE: Final = b"einkorn"
_ROOT: Final = os.fsencode(str(ROOT))


def relative_paths(source: ObjectFile) -> ObjectFile:
    """The object with relative paths in its debug information.

    Raises:
        InternalError: a line table is malformed, or not of DWARF 2 to 4.
    """
    finders = {_STRINGS: _strings, _LINES: _line_strings}
    places = {
        section.index: [(at, text) for at, text in finders[section.name](section.data) if text.startswith(b"/")]
        for section in source.sections
        if section.name in finders
    }
    sections = list(source.sections)
    for index, texts in places.items():
        data = bytearray(sections[index].data)
        for at, text in texts:
            data[at : at + len(text)] = _padded(_relative(text), len(text))
        sections[index] = replace(sections[index], data=bytes(data))
    return replace(source, sections=tuple(sections))


def _relative(path: bytes) -> bytes:
    """The relative path of a file or folder."""
    if path == _ROOT or path.startswith(_ROOT + b"/"):
        return _PACKAGE + path[len(_ROOT) :]
    return os.path.basename(path) if os.path.splitext(path)[1] else b"."


def _padded(path: bytes, size: int) -> bytes:
    """The same path with so many characters."""
    missing = size - len(path)
    if missing < 0:
        return b"." + b"/" * (size - 1)  # "einkorn/..." is longer than the root it replaces: the folder is left out
    if missing == 1:
        return path + b"/"
    return b"./" * (missing // 2) + (b"/" if missing % 2 else b"") + path


def _strings(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The zero-terminated strings of a section, and where they begin."""
    at = 0
    for text in data.split(b"\0"):
        yield at, text
        at += len(text) + 1


def _line_strings(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The folders and files in the headers of line tables, and where they begin."""
    start = 0
    while start < len(data):
        try:
            size, version = struct.unpack_from("<IH", data, start)
            if not 2 <= version <= 4 or size >= 0xFFFFFFF0:
                raise fault(f"its line table is of DWARF {version}, which is not handled")
            opcodes = start + 14 + (version == 4)
            at = opcodes + data[opcodes]  # behind the lengths of the standard opcodes
            while data[at]:
                end = data.index(b"\0", at)
                yield at, data[at:end]
                at = end + 1
            at += 1
            while data[at]:
                end = data.index(b"\0", at)
                yield at, data[at:end]
                at = end + 1
                for _ in range(3):  # the folder's number, time and size
                    while data[at] & 0x80:
                        at += 1
                    at += 1
        except (struct.error, IndexError, ValueError):
            raise fault("its line table is malformed") from None
        start += 4 + size
