"""The zip file under a package: what other tools make of it, and every other zip file refused."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.archive import PAGE, Archive, Content, write_archive

FETCH = "\nhint: fetch it again, or build it again with `einkorn build`"
NOT_OURS = "\nhint: this is not how `einkorn build` writes packages; do not trust the file"
MEMBERS = [("manifest.json", b"{}"), ("code/ä.so", bytes(range(256))), ("empty", b"")]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.chdir(tmp_path)
    write_archive(Path("demo.pkg"), MEMBERS)
    return Archive(Path("demo.pkg"))


def refused(path: str | Path) -> str:
    with pytest.raises(PackageError) as caught:
        Archive(Path(path))
    return str(caught.value)


def test_members_come_back_in_order(demo: Archive) -> None:
    assert [(name, demo.read(name)) for name in demo.members] == MEMBERS
    with zipfile.ZipFile(demo.path) as file:
        assert file.testzip() is None and [(name, file.read(name)) for name in file.namelist()] == MEMBERS


def test_an_archive_without_members(demo: Archive) -> None:
    write_archive(Path("none.pkg"), [])
    assert Archive(Path("none.pkg")).members == {} and zipfile.ZipFile("none.pkg").namelist() == []


def test_the_mode_is_what_the_umask_says(demo: Archive) -> None:
    Path("plain").write_bytes(b"")
    assert demo.path.stat().st_mode == Path("plain").stat().st_mode


def test_unreadable(demo: Archive) -> None:
    assert refused("none.pkg") == "error[EK0551]: 'none.pkg' cannot be read: No such file or directory"
    Path("folder.pkg").mkdir()
    assert refused("folder.pkg") == "error[EK0551]: 'folder.pkg' cannot be read: Is a directory"


def zipped(path: str, members: list[tuple[str, bytes]], **options: Any) -> str:
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = file.compression
            info.external_attr = 0o100644 << 16
            info.flag_bits = 0x800
            info.create_system = 3
            file.writestr(info, data)
    raw = Path(path).read_bytes()  # zipfile drops the UTF-8 flag of ASCII names: put it back to get at the other checks
    raw = raw.replace(b"PK\3\4\x14\0\0\0", b"PK\3\4\x14\0\0\x08").replace(
        b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\0\x08"
    )
    Path(path).write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("/etc/passwd", "is absolute"),
        ("C:/x", "is absolute"),
        ("../x", "climbs out of the package"),
        ("code/../../x", "climbs out of the package"),
        ("code\\..\\x", "holds a character that file names may not hold"),
        ("code/a\nb", "holds a character that file names may not hold"),
        ("code//x", "is not in its plain form"),
        ("./x", "is not in its plain form"),
        ("code/", "is not in its plain form"),
        ("code/x ", "is not in its plain form"),
        ("MANIFEST.json", "appears twice"),
    ],
)
def test_names_that_members_may_not_have(demo: Archive, name: str, trouble: str) -> None:
    zipped("bad.pkg", [("manifest.json", b"{}"), (name, b"")])
    assert refused("bad.pkg") == f"error[EK0554]: 'bad.pkg' holds a member whose name {trouble}: {name!r}" + NOT_OURS


def test_compression_and_bombs(demo: Archive) -> None:
    zipped("bomb.pkg", [("manifest.json", bytes(50_000_000))], compression=zipfile.ZIP_DEFLATED)
    assert Path("bomb.pkg").stat().st_size < 100_000
    message = "error[EK0555]: 'bomb.pkg' holds a compressed member, 'manifest.json'; packages are stored" + NOT_OURS
    assert refused("bomb.pkg") == message
    # A member that is called stored and claims to be larger than it is.
    zipped("bomb.pkg", [("manifest.json", b"{}")])
    raw = Path("bomb.pkg").read_bytes()
    at = raw.index(b"PK\1\2")
    Path("bomb.pkg").write_bytes(raw[: at + 24] + (1 << 31).to_bytes(4, "little") + raw[at + 28 :])
    message = "error[EK0555]: 'bomb.pkg' declares 2147483648 bytes for 'manifest.json', which takes 2 in the file"
    assert refused("bomb.pkg") == message + NOT_OURS
    Path("bomb.pkg").write_bytes(raw[: at + 20] + (1 << 31).to_bytes(4, "little") * 2 + raw[at + 28 :])
    message = "error[EK0553]: 'bomb.pkg' is damaged: 'manifest.json' reaches beyond its end"
    assert refused("bomb.pkg") == message + FETCH


@pytest.mark.parametrize(
    ("old", "new", "how"),
    [
        (b"PK\3\4\x14\0\0\x08", b"PK\3\4\x14\0\x01\x08", "the two headers of 'manifest.json' differ"),
        (b"PK\1\2\x14\3\x14\0\0\x08", b"PK\1\2\x14\3\x14\0\1\x08", "the entry of 'manifest.json' is encrypted"),
        (b"PK\5\6\0\0", b"PK\5\6\1\0", "its end record does not fit the file"),
    ],
)
def test_headers_that_disagree(demo: Archive, old: bytes, new: bytes, how: str) -> None:
    raw = demo.path.read_bytes()
    assert old in raw
    Path("odd.pkg").write_bytes(raw.replace(old, new, 1))
    assert refused("odd.pkg").startswith(f"error[EK0553]: 'odd.pkg' is damaged: {how}")


def test_members_that_overlap_or_hide(demo: Archive) -> None:
    """Data before, between or after the members is what one reader sees and another does not."""
    raw = demo.path.read_bytes()
    at = raw.index(b"PK\3\4", 4)
    Path("odd.pkg").write_bytes(raw[:at] + b"hidden" + raw[at:])
    assert refused("odd.pkg").startswith("error[EK0553]: 'odd.pkg' is damaged: its end record does not fit the file")
    Path("odd.pkg").write_bytes(b"#!/bin/sh\n" + raw)
    assert refused("odd.pkg").startswith("error[EK0552]: 'odd.pkg' is not a package: it is not a zip file")
    second = raw.index(b"PK\1\2", raw.index(b"PK\1\2") + 4) + 42  # the offset in the second directory entry
    Path("odd.pkg").write_bytes(raw[:second] + bytes(4) + raw[second + 4 :])
    message = "error[EK0553]: 'odd.pkg' is damaged: the entry of 'code/ä.so' is not written as packages are"
    assert refused("odd.pkg") == message + FETCH


# *** aligned members, and files beyond 4 GiB ***

WEIGHTS = bytes(range(256)) * 33


def written(path: str, *members: tuple[str, bytes | Content]) -> Archive:
    write_archive(Path(path), members)
    return Archive(Path(path))


def test_aligned_members_begin_at_pages(demo: Archive) -> None:
    pieces = (WEIGHTS[:100], memoryview(WEIGHTS)[100:], b"")
    contents: list[tuple[str, bytes | Content]] = [
        ("a.json", b"{}"),
        ("w", Content(pieces, aligned=True)),
        ("b", b"x"),
        ("e", Content((), aligned=True)),
    ]
    archive = written("aligned.pkg", *contents, ("w2", Content((b"12",), aligned=True)))
    assert [archive.members[name].start % PAGE for name in ("w", "e", "w2")] == [0, 0, 0]
    assert archive.members["w2"].start == 4 * PAGE + PAGE and archive.members["b"].start % PAGE
    assert archive.map("w") == WEIGHTS and archive.read("w") == WEIGHTS and archive.map("e") == b""
    with zipfile.ZipFile("aligned.pkg") as file:
        assert file.testzip() is None and file.read("w") == WEIGHTS and file.read("w2") == b"12"
    before = Path("aligned.pkg").read_bytes()
    written("aligned.pkg", *contents, ("w2", Content((b"12",), aligned=True)))
    assert Path("aligned.pkg").read_bytes() == before


def test_padding_is_zeros_and_no_more_than_is_needed(demo: Archive) -> None:
    archive = written("aligned.pkg", ("a", b"{}"), ("w", Content((WEIGHTS,), aligned=True)))
    raw, start = bytearray(Path("aligned.pkg").read_bytes()), archive.members["w"].start
    assert start == PAGE
    changed = raw.copy()
    changed[start - 1] = 1
    Path("odd.pkg").write_bytes(changed)
    assert refused("odd.pkg") == "error[EK0553]: 'odd.pkg' is damaged: the two headers of 'w' differ" + FETCH
    at = 2 + 30 + 1  # of the second local header
    for extra in (PAGE, 8, -4):  # a page more, and less than is needed
        length = int.from_bytes(raw[at + 28 : at + 30], "little") + extra
        moved = raw[: at + 28] + length.to_bytes(2, "little") + raw[at + 30 : start]
        moved = moved + bytes(extra) if extra > 0 else moved[:extra]
        end = bytearray(raw[start:])
        offset = len(end) - 6
        directory = int.from_bytes(end[offset : offset + 4], "little") + extra
        end[offset : offset + 4] = directory.to_bytes(4, "little")
        Path("odd.pkg").write_bytes(moved + end)
        assert refused("odd.pkg") == "error[EK0553]: 'odd.pkg' is damaged: the two headers of 'w' differ" + FETCH


def test_a_replaced_file_is_not_mapped(demo: Archive) -> None:
    write_archive(demo.path, [("manifest.json", b"[]")])
    with pytest.raises(PackageError, match="EK0536"):
        demo.map("manifest.json")


def sparse(path: str, size: int) -> np.ndarray[Any, Any]:
    """Zeros, and a few other bytes at the end, in a file with a hole."""
    with open(path, "wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(b"last")
    return np.memmap(path, np.uint8, "r")


def test_files_beyond_4_gib(demo: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that do not fit 32 bits are in records of zip64; the test makes the file without writing its zeros."""
    size = (1 << 32) + 100
    data = sparse("data.bin", size)
    crc = 0xE8B7BE43

    def holes(path: Path, chunks: Iterable[Any]) -> None:
        with open(path, "wb") as file:
            for chunk in chunks:
                if len(chunk) < 1 << 20 or bytes(chunk[-4:]) != bytes(4):
                    file.write(chunk)
                else:
                    file.seek(len(chunk), 1)

    monkeypatch.setattr("einkorn.dsl.package.archive.replace_file", holes)
    monkeypatch.setattr("einkorn.dsl.package.archive.zlib.crc32", lambda chunk, before=0: crc)
    write_archive(Path("large.pkg"), [("a", b"{}"), ("w", Content((data,), aligned=True)), ("b", b"tail")])
    archive = Archive(Path("large.pkg"))
    assert archive.members["w"].size == size and archive.members["w"].start == PAGE
    assert archive.members["b"].start > size and archive.map("w")[-4:] == b"last" and archive.map("b") == b"tail"
    with zipfile.ZipFile("large.pkg") as file:
        assert [(each.filename, each.file_size) for each in file.infolist()] == [("a", 2), ("w", size), ("b", 4)]
        file._didModify = False  # type: ignore[attr-defined]
    # Records of zip64 that nothing needs are refused, and so are those that are missing.
    raw = demo.path.read_bytes()
    end = len(raw) - 22
    long = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 3, 3, *struct.unpack("<2I", raw[end + 12 : end + 20]))
    Path("odd.pkg").write_bytes(raw[:end] + long + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + raw[end:])
    assert refused("odd.pkg").startswith("error[EK0553]: 'odd.pkg' is damaged: its end record does not fit the file")
