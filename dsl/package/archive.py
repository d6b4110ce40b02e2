"""Writes and reads the zip file under a package: in one way only; what was written in another is refused.

A general zip reader has to make sense of anything: members that overlap, two headers that disagree, data before,
between and after, sizes that lie, names that climb. All of these are ways to show one reader one file and another
reader another. This one takes the opposite stand. The members are stored (not compressed: that keeps the bytes equal
whichever zlib is there, and leaves nothing to inflate), stand one after the other from the first byte, the directory
follows at once, the end record closes the file; names are plain, relative and unlike each other; times are 1980-01-01.
Every other tool can read such a file, and what differs in any way is refused.
"""

from __future__ import annotations

import os
import struct
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from ..diagnostics.errors import PackageError
from ..diagnostics.places import shown_path
from ..diagnostics.shield import raise_if_of_handler
from ..environment.files import replace_file

MAX_MEMBERS = 65_534  # more than that, and above 4 GiB, zip needs other records
MAX_BYTES = (1 << 32) - (1 << 24)

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_UTF8_NAME = 0x800
_MAX_NAME = 1000  # bytes
_DATE_1980 = 0x21  # 1 January 1980 in DOS form, midnight being 0
_VERSION = 20
_MADE_BY = (3 << 8) | _VERSION  # Unix
_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Member:
    """Where one member lies: `start` and `size` count bytes of the file; `crc` is the CRC-32 of its data."""

    name: str
    start: int
    size: int
    crc: int


def refuse(path: Path, code: str, what: str, hint: str | None = None) -> NoReturn:
    """Raises the PackageError that says `what` about the package at `path`."""
    raise PackageError(f"{shown_path(str(path))!r} {what}", code=code, hint=hint)


def name_trouble(name: str) -> str | None:
    """What is wrong with a member's name, or None: it must stay below the folder into which it is unpacked."""
    if not name:
        return "is empty"
    if name.startswith("/") or name[1:2] == ":":
        return "is absolute"
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") or c in '\\:*?"<>|' for c in name):
        return "holds a character that file names may not hold"
    segments = name.split("/")
    if any(segment == ".." for segment in segments):
        return "climbs out of the package"
    if any(segment in ("", ".") or segment != segment.strip(" ") or segment.endswith(".") for segment in segments):
        return "is not in its plain form"
    return None


def folded(name: str) -> str:
    """Names that fold alike are one file on some file systems (those that ignore case or normalise accents)."""
    return unicodedata.normalize("NFC", name).casefold()


def write_archive(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Writes the members in the given order; code that opens `path` sees the old file or all of the new one.

    Raises:
        PackageError: EK0554 for names that may not be, EK0561 when the file cannot be written.
    """
    chunks: list[bytes] = []
    directory: list[bytes] = []
    names: set[str] = set()
    offset = 0
    for name, data in members:
        trouble = name_trouble(name) or ("appears twice" if folded(name) in names else None)
        if trouble:
            refuse(path, "EK0554", f"cannot hold a member whose name {trouble}: {name!r}")
        names.add(folded(name))
        raw, crc, size = name.encode(), zlib.crc32(data), len(data)
        if offset + size > MAX_BYTES or len(names) > MAX_MEMBERS or len(raw) > _MAX_NAME:
            refuse(
                path,
                "EK0561",
                f"would exceed what a package holds (4 GB in {MAX_MEMBERS} members, names of {_MAX_NAME} bytes)",
            )
        chunks += [_local_header(raw, crc, size), data]
        directory.append(_central_header(raw, crc, size, offset))
        offset += _LOCAL.size + len(raw) + size
    central = b"".join(directory)
    end = _END.pack(b"PK\5\6", 0, 0, len(directory), len(directory), len(central), offset, 0)
    try:
        replace_file(path, [*chunks, central, end])
    except OSError as error:
        raise_if_of_handler(error)
        refuse(path, "EK0561", f"cannot be written: {error.strerror or error}")


def _local_header(name: bytes, crc: int, size: int) -> bytes:
    head = _LOCAL.pack(b"PK\3\4", _VERSION, _UTF8_NAME, 0, 0, _DATE_1980, crc, size, size, len(name), 0)
    return head + name


def _central_header(name: bytes, crc: int, size: int, offset: int) -> bytes:
    head = _CENTRAL.pack(
        *(b"PK\1\2", _MADE_BY, _VERSION, _UTF8_NAME, 0, 0, _DATE_1980, crc, size, size, len(name)),
        *(0, 0, 0, 0, _MODE, offset),
    )
    return head + name


class Archive:
    """The members of a zip file that is built as `write_archive` builds it.

    Raises (the constructor and `read`):
        PackageError: EK0551 unreadable, EK0552 no zip file, EK0553 cut short or damaged, EK0554 bad names,
            EK0555 compressed or with sizes that do not agree.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as stream:
                self.state = _state_of(stream)
                self.size = os.fstat(stream.fileno()).st_size
                self.members = {member.name: member for member in self._directory(stream)}
        except OSError as error:
            raise_if_of_handler(error)
            refuse(path, "EK0551", f"cannot be read: {error.strerror or error}")

    @property
    def shown(self) -> str:
        """The path as messages show it."""
        return shown_path(str(self.path))

    def read(self, name: str, limit: int = MAX_BYTES) -> bytes:
        """The data of a member, which must exist; checked against its CRC-32."""
        member = self.members[name]
        if member.size > limit:
            refuse(self.path, "EK0555", f"declares {member.size} bytes for {name!r}; at most {limit} are allowed")
        try:
            with open(self.path, "rb") as stream:
                stream.seek(member.start)
                data = stream.read(member.size)
                changed = _state_of(stream) != self.state
        except OSError as error:
            raise_if_of_handler(error)
            refuse(self.path, "EK0551", f"cannot be read: {error.strerror or error}")
        if len(data) != member.size or zlib.crc32(data) != member.crc:
            if changed:
                refuse(
                    self.path, "EK0536", f"was replaced after it was loaded: {name!r} is another one now", _LOAD_AGAIN
                )
            refuse(self.path, "EK0553", f"is damaged: the checksum of {name!r} is wrong", _FETCH_AGAIN)
        return data

    def _directory(self, stream: BinaryIO) -> list[Member]:
        start = stream.read(4)
        if start not in (b"PK\3\4", b"PK\5\6"):
            hint = "`einkorn build` writes packages; kernel sources are given as a folder or a .py file"
            refuse(self.path, "EK0552", "is not a package: it is not a zip file", hint)
        stream.seek(max(0, self.size - _END.size))
        end = stream.read()
        if len(end) != _END.size or end[:4] != b"PK\5\6":
            refuse(self.path, "EK0553", "is cut short, or something was added to its end", _FETCH_AGAIN)
        _, disk, first, here, count, length, offset, comment = _END.unpack(end)
        long = length > count * (_CENTRAL.size + _MAX_NAME)
        if disk or first or here != count or comment or long or offset + length + _END.size != self.size:
            self._damaged("its end record does not fit the file")
        stream.seek(offset)
        directory = stream.read(length)
        members: list[Member] = []
        names: set[str] = set()
        at = expected = 0
        for _ in range(count):
            member, header, at = self._entry(directory, at, expected)
            trouble = name_trouble(member.name) or ("appears twice" if folded(member.name) in names else None)
            if trouble:
                refuse(self.path, "EK0554", f"holds a member whose name {trouble}: {member.name!r}", _NOT_OURS)
            stream.seek(expected)
            if stream.read(len(header)) != header:
                self._damaged(f"the two headers of {member.name!r} differ")
            names.add(folded(member.name))
            members.append(member)
            expected = member.start + member.size
        if at != length or expected != offset:
            self._damaged("its members do not fill it")
        return members

    def _entry(self, directory: bytes, at: int, expected: int) -> tuple[Member, bytes, int]:
        """The member whose directory entry is at `at`, the local header that it must have, and where the next is."""
        if len(directory) < at + _CENTRAL.size or directory[at : at + 4] != b"PK\1\2":
            self._damaged("its directory is not whole")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, size, name_length, offset = *fields[3:5], *fields[7:11], fields[16]
        raw = directory[at + _CENTRAL.size : at + _CENTRAL.size + name_length]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            refuse(self.path, "EK0554", f"holds a member whose name is not UTF-8 text: {raw!r}", _NOT_OURS)
        if method != 0:
            refuse(self.path, "EK0555", f"holds a compressed member, {name!r}; packages are stored", _NOT_OURS)
        if packed != size:
            what = f"declares {size} bytes for {name!r}, which takes {packed} in the file"
            refuse(self.path, "EK0555", what, _NOT_OURS)
        entry = _central_header(raw, crc, size, offset)
        if offset != expected or directory[at : at + len(entry)] != entry:
            problem = f"is encrypted (flags {flags:#x})" if flags & 1 else "is not written as packages are"
            self._damaged(f"the entry of {name!r} {problem}")
        start = offset + _LOCAL.size + len(raw)
        if start + size > self.size:
            self._damaged(f"{name!r} reaches beyond its end")
        return Member(name, start, size, crc), _local_header(raw, crc, size), at + len(entry)

    def _damaged(self, how: str) -> NoReturn:
        refuse(self.path, "EK0553", f"is damaged: {how}", _FETCH_AGAIN)


def _state_of(stream: BinaryIO) -> tuple[int, int, int]:
    """What differs between a file and one that has taken its name, or has other data."""
    result = os.fstat(stream.fileno())
    return result.st_ino, result.st_size, result.st_mtime_ns


_LOAD_AGAIN = "load the package again: einkorn.load(path)"
_FETCH_AGAIN = "fetch it again, or build it again with `einkorn build`"
_NOT_OURS = "this is not how `einkorn build` writes packages; do not trust the file"
