"""Writes and reads the zip file under a package: in one way only; what was written in another is refused.

A general zip reader has to make sense of anything: members that overlap, two headers that disagree, data before,
between and after, sizes that lie, names that climb. All of these are ways to show one reader one file and another
reader another. This one takes the opposite stand. The members are stored (not compressed: that keeps the bytes equal
whichever zlib is there, and leaves nothing to inflate), stand one after the other from the first byte, the directory
follows at once, the end record closes the file; names are plain, relative and unlike each other; times are 1980-01-01.
Every other tool can read such a file, and what differs in any way is refused.

Members that are mapped begin at multiples of 4096: zeros in the extra field of their local headers, no more than are
needed for that. Numbers that do not fit 32 bits, and no others, are in the records of zip64.
"""

from __future__ import annotations

import mmap
import os
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError
from ..diagnostics.places import shown_path
from ..diagnostics.shield import raise_if_of_handler
from ..environment.files import replace_file

MAX_MEMBERS = 65_534  # more than that, and zip needs other records
MAX_BYTES = (1 << 32) - (1 << 24)  # of a member that is read at once
MAX_FILE = 1 << 48
PAGE: Final = 4096  # what members that are mapped are aligned to

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LONG_END = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_FULL = 0xFFFFFFFF  # stands for a number that is in a record of zip64
_LONG_VERSION = 45
_CHUNK = 1 << 24  # bytes that are hashed or written at a time
_UTF8_NAME = 0x800
_MAX_NAME = 1000  # bytes
_DATE_1980 = 0x21  # 1 January 1980 in DOS form, midnight being 0
_VERSION = 20
_MADE_BY = (3 << 8) | _VERSION  # Unix
_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Member:
    """Where one member lies: `start` and `size` count bytes of the file; `crc` is the CRC-32 of its data.

    `aligned` says that its header ends with zeros, so that its data begins at a page.
    """

    name: str
    start: int
    size: int
    crc: int
    aligned: bool = False


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


@dataclass(frozen=True)
class Content:
    """The data of a member that is written: pieces of memory, one behind the other, which are not copied.

    With `aligned` it begins at a multiple of `PAGE` in the file, so that it can be mapped.
    """

    pieces: tuple[Any, ...]
    aligned: bool = False

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(memoryview(piece).nbytes for piece in self.pieces)

    def chunks(self) -> Iterator[memoryview]:
        """The data, some of it at a time."""
        for piece in self.pieces:
            view = memoryview(piece)
            if view.nbytes:
                data = view.cast("B")
                for start in range(0, len(data), _CHUNK):
                    yield data[start : start + _CHUNK]


def write_archive(path: Path, members: Iterable[tuple[str, bytes | Content]]) -> None:
    """Writes the members in the given order; code that opens `path` sees the old file or all of the new one.

    Raises:
        PackageError: EK0554 for names that may not be, EK0561 when the file cannot be written.
    """
    contents: list[tuple[bytes, Content]] = []
    directory: list[bytes] = []
    names: set[str] = set()
    offset = 0
    for name, data in members:
        content = Content((data,)) if isinstance(data, bytes) else data
        trouble = name_trouble(name) or ("appears twice" if folded(name) in names else None)
        if trouble:
            refuse(path, "EK0554", f"cannot hold a member whose name {trouble}: {name!r}")
        names.add(folded(name))
        raw, size = name.encode(), content.size
        if offset + size > MAX_FILE or len(names) > MAX_MEMBERS or len(raw) > _MAX_NAME:
            most = f"{MAX_FILE >> 40} TiB in {MAX_MEMBERS} members, names of {_MAX_NAME} bytes"
            refuse(path, "EK0561", f"would exceed what a package holds ({most})")
        crc = 0
        for chunk in content.chunks():
            crc = zlib.crc32(chunk, crc)
        header = _local_header(raw, crc, size, _padding(raw, size, offset) if content.aligned else 0)
        contents.append((header, content))
        directory.append(_central_header(raw, crc, size, offset))
        offset += len(header) + size
    end = _end_records(len(directory), sum(map(len, directory)), offset)
    try:
        replace_file(path, _file(contents, [*directory, end]))
    except OSError as error:
        raise_if_of_handler(error)
        refuse(path, "EK0561", f"cannot be written: {error.strerror or error}")


def _file(contents: Sequence[tuple[bytes, Content]], end: Iterable[bytes]) -> Iterator[Any]:
    for header, content in contents:
        yield header
        yield from content.chunks()
    yield from end


def _padding(name: bytes, size: int, offset: int) -> int:
    """How many zeros the header of an aligned member at `offset` ends with."""
    return -(offset + len(_local_header(name, 0, size))) % PAGE


def _long_numbers(*numbers: int) -> bytes:
    """The extra field with those numbers that do not fit 32 bits."""
    long = [number for number in numbers if number >= _FULL]
    return struct.pack(f"<2H{len(long)}Q", 1, 8 * len(long), *long) if long else b""


def _local_header(name: bytes, crc: int, size: int, padding: int = 0) -> bytes:
    extra, short = _long_numbers(size, size), min(size, _FULL)
    version, length = _LONG_VERSION if extra else _VERSION, len(extra) + padding
    head = _LOCAL.pack(b"PK\3\4", version, _UTF8_NAME, 0, 0, _DATE_1980, crc, short, short, len(name), length)
    return head + name + extra + bytes(padding)


def _central_header(name: bytes, crc: int, size: int, offset: int) -> bytes:
    extra, short = _long_numbers(size, size, offset), min(size, _FULL)
    version = _LONG_VERSION if extra else _VERSION
    head = _CENTRAL.pack(
        *(b"PK\1\2", _MADE_BY - _VERSION + version, version, _UTF8_NAME, 0, 0, _DATE_1980, crc, short, short),
        *(len(name), len(extra), 0, 0, 0, _MODE, min(offset, _FULL)),
    )
    return head + name + extra


def _end_records(count: int, length: int, offset: int) -> bytes:
    """What closes the file: the place and the size of the directory, in records of zip64 where they need these."""
    long = b""
    if offset >= _FULL:
        fields = (_LONG_END.size - 12, _LONG_VERSION, _LONG_VERSION, 0, 0, count, count, length, offset)
        long = _LONG_END.pack(b"PK\6\6", *fields) + _LOCATOR.pack(b"PK\6\7", 0, offset + length, 1)
    return long + _END.pack(b"PK\5\6", 0, 0, count, count, length, min(offset, _FULL), 0)


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

    @cached
    def _mapped(self) -> mmap.mmap:
        """The whole file."""
        try:
            with open(self.path, "rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                changed = _state_of(stream) != self.state
        except (OSError, ValueError) as error:
            raise_if_of_handler(error)
            refuse(self.path, "EK0551", f"cannot be mapped: {error}")
        if changed:
            refuse(self.path, "EK0536", "was replaced after it was loaded", _LOAD_AGAIN)
        return mapped

    def map(self, name: str) -> memoryview:
        """The data of a member, which must exist, as it lies in the mapped file; its checksum is not computed."""
        member = self.members[name]
        return memoryview(self._mapped)[member.start : member.start + member.size]

    def content(self, name: str) -> Content:
        """A member, which must exist, as it is written again."""
        return Content((self.map(name),), self.members[name].aligned)

    def check(self, name: str) -> None:
        """Compares a member, which must exist, with its CRC-32."""
        crc = 0
        for chunk in Content((self.map(name),)).chunks():
            crc = zlib.crc32(chunk, crc)
        if crc != self.members[name].crc:
            refuse(self.path, "EK0553", f"is damaged: the checksum of {name!r} is wrong", _FETCH_AGAIN)

    def _directory(self, stream: BinaryIO) -> list[Member]:
        start = stream.read(4)
        if start not in (b"PK\3\4", b"PK\5\6"):
            hint = "`einkorn build` writes packages; kernel sources are given as a folder or a .py file"
            refuse(self.path, "EK0552", "is not a package: it is not a zip file", hint)
        count, length, offset = self._end(stream)
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
            begin = self._start(stream, member, header, expected)
            names.add(folded(member.name))
            members.append(replace(member, start=begin, aligned=begin != member.start))
            expected = begin + member.size
        if at != length or expected != offset:
            self._damaged("its members do not fill it")
        return members

    def _end(self, stream: BinaryIO) -> tuple[int, int, int]:
        """How many members there are, and the size and the place of the directory."""
        stream.seek(max(0, self.size - _END.size))
        end = stream.read()
        if len(end) != _END.size or end[:4] != b"PK\5\6":
            refuse(self.path, "EK0553", "is cut short, or something was added to its end", _FETCH_AGAIN)
        _, _, _, _, count, length, offset, _ = _END.unpack(end)
        if offset == _FULL and self.size > _END.size + _LOCATOR.size + _LONG_END.size:
            stream.seek(self.size - _END.size - _LOCATOR.size - _LONG_END.size)
            offset = _LONG_END.unpack(stream.read(_LONG_END.size))[-1]
        fits = length <= count * (_CENTRAL.size + _MAX_NAME + len(_long_numbers(_FULL, _FULL, _FULL)))
        if fits and offset <= MAX_FILE:
            closing = _end_records(count, length, offset)
            stream.seek(max(0, self.size - len(closing)))
            if offset + length + len(closing) == self.size and stream.read() == closing:
                return count, length, offset
        self._damaged("its end record does not fit the file")

    def _start(self, stream: BinaryIO, member: Member, header: bytes, offset: int) -> int:
        """Where the data of a member begins, behind its local header: at once, or at the next page."""
        stream.seek(offset)
        there = stream.read(len(header))
        if there != header:
            raw = member.name.encode()
            header = _local_header(raw, member.crc, member.size, _padding(raw, member.size, offset))
            if there + stream.read(len(header) - len(there)) != header:
                self._damaged(f"the two headers of {member.name!r} differ")
        if offset + len(header) + member.size > self.size:
            self._damaged(f"{member.name!r} reaches beyond its end")
        return offset + len(header)

    def _entry(self, directory: bytes, at: int, expected: int) -> tuple[Member, bytes, int]:
        """The member whose directory entry is at `at`, the local header that it has where it is not aligned, and where
        the next entry is."""
        if len(directory) < at + _CENTRAL.size or directory[at : at + 4] != b"PK\1\2":
            self._damaged("its directory is not whole")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, size, name_length, extra = *fields[3:5], *fields[7:12]
        behind = at + _CENTRAL.size + name_length
        raw = directory[at + _CENTRAL.size : behind]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            refuse(self.path, "EK0554", f"holds a member whose name is not UTF-8 text: {raw!r}", _NOT_OURS)
        if method != 0:
            refuse(self.path, "EK0555", f"holds a compressed member, {name!r}; packages are stored", _NOT_OURS)
        if packed != size:
            what = f"declares {size} bytes for {name!r}, which takes {packed} in the file"
            refuse(self.path, "EK0555", what, _NOT_OURS)
        if size == _FULL and extra >= 12 and len(directory) >= behind + 12:
            (size,) = struct.unpack_from("<Q", directory, behind + 4)
        entry = _central_header(raw, crc, size, expected)
        if directory[at : at + len(entry)] != entry:
            problem = f"is encrypted (flags {flags:#x})" if flags & 1 else "is not written as packages are"
            self._damaged(f"the entry of {name!r} {problem}")
        header = _local_header(raw, crc, size)
        start = expected + len(header)
        if start + size > self.size:
            self._damaged(f"{name!r} reaches beyond its end")
        return Member(name, start, size, crc), header, at + len(entry)

    def _damaged(self, how: str) -> NoReturn:
        refuse(self.path, "EK0553", f"is damaged: {how}", _FETCH_AGAIN)


def _state_of(stream: BinaryIO) -> tuple[int, int, int]:
    """What differs between a file and one that has taken its name, or has other data."""
    result = os.fstat(stream.fileno())
    return result.st_ino, result.st_size, result.st_mtime_ns


_LOAD_AGAIN = "load the package again: einkorn.load(path)"
_FETCH_AGAIN = "fetch it again, or build it again with `einkorn build`"
_NOT_OURS = "this is not how `einkorn build` writes packages; do not trust the file"
