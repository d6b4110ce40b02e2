"""Shared objects of packages are read before they are mapped: what Einkorn writes passes, whatever differs does not."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import einkorn
from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import architecture, lookup
from einkorn.dsl.diagnostics.json_reading import Misread
from einkorn.dsl.package.library import load_library
from einkorn.dsl.package.shared_object import read_shared_object
from einkorn.graph.findings.reports import read_reports

KERNELS = Path(einkorn.__file__).resolve().parent / "examples" / "custom_ops" / "kernels"
OPS = ("layer_norm", "histogram", "palette", "add_one")


def code_of(op: str, target: str) -> bytes:
    kernel = load_library(KERNELS).kernels[op]
    return compile_entry(instance_entry(kernel.portable, make_instance(kernel.schema, {}, {}, {})), lookup(target)).code


@pytest.fixture(scope="module")
def code() -> bytes:
    """An object with everything: calls of the system, pointers, reports."""
    return code_of("layer_norm", "x86-64-v2")


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("op", OPS)
def test_what_is_compiled_passes(op: str, target: str) -> None:
    read_reports(read_shared_object(code_of(op, target), architecture(target)))


def test_it_is_for_one_machine(code: bytes) -> None:
    for target, message in (("aarch64", "for another machine"), ("sm_80", "no machine that is known")):
        with pytest.raises(Misread, match=message):
            read_shared_object(code, architecture(target))


def fields(data: bytes) -> Iterator[tuple[int, int]]:
    """All header fields, and all words of what the dynamic section names, but code."""
    yield from ((k, 1) for k in range(16))
    yield from ((16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (48, 4), (52, 2), (54, 2), (56, 2))
    count = struct.unpack_from("<H", data, 56)[0]
    for start in range(64, 64 + 56 * count, 56):
        yield from ((start, 4), (start + 4, 4), *((start + k, 8) for k in (8, 16, 32, 40, 48)))
    dynamic = next(s for s in range(64, 64 + 56 * count, 56) if struct.unpack_from("<I", data, s)[0] == 2)
    offset, size = struct.unpack_from("<Q", data, dynamic + 8)[0], struct.unpack_from("<Q", data, dynamic + 32)[0]
    yield from ((offset + k, 8) for k in range(0, size, 8))
    entries = dict(struct.iter_unpack("<QQ", data[offset : offset + size]))
    buckets, symbols = struct.unpack_from("<2I", data, entries[4])
    yield from ((entries[4] + 4 * k, 4) for k in range(2 + buckets + symbols))
    yield from ((entries[6] + k, 8) for k in range(0, 24 * symbols, 8))
    yield from ((entries[7] + k, 8) for k in range(0, entries.get(8, 0), 8))
    yield from ((entries[5] + k, 1) for k in range(entries[10]))


@pytest.mark.parametrize("value", [0, 1, 0x7F, 2**31, 2**32 - 1, 2**63, 2**64 - 1, "more", "less", "page"])
def test_no_field_leads_astray(code: bytes, value: Any) -> None:
    """Each is refused, or the object is as good as before; what reading it raises is nothing but Misread."""
    wanted, accepted, tried = read_reports(read_shared_object(code, "x86_64")), 0, 0
    for at, size in fields(code):
        old = int.from_bytes(code[at : at + size], "little")
        new = {"more": old + 1, "less": old - 1, "page": old + 4096}.get(value, value) % (1 << 8 * size)
        changed = code[:at] + new.to_bytes(size, "little") + code[at + size :]
        tried += changed != code
        try:
            assert read_reports(read_shared_object(changed, "x86_64")) == wanted
            accepted += changed != code
        except Misread:
            pass
    assert tried > 100 and accepted < tried * 0.2, (accepted, tried)


def test_every_way_to_cut_it(code: bytes) -> None:
    needed = max(offset + size for offset, size in fields(code))
    for length in (0, 1, 4, 16, 63, 64, 100, *range(64, needed, 97)):
        with pytest.raises(Misread):
            read_shared_object(code[:length], "x86_64")


def dynamic_entry(data: bytes, tag: int) -> int:
    """Where the value of an entry of the dynamic section stands in the file."""
    count = struct.unpack_from("<H", data, 56)[0]
    start = next(s for s in range(64, 64 + 56 * count, 56) if struct.unpack_from("<I", data, s)[0] == 2)
    offset = struct.unpack_from("<Q", data, start + 8)[0]
    while struct.unpack_from("<Q", data, offset)[0] != tag:
        offset += 16
    return int(offset)


@pytest.mark.parametrize("tag", [12, 13, 15, 21, 22, 23, 25, 26, 27, 29, 32, 0x6FFFFEF5, 0x6FFFFFFE])
def test_nothing_may_run_by_itself_or_be_found_elsewhere(code: bytes, tag: int) -> None:
    """DT_INIT, DT_FINI and their arrays, DT_RPATH, DT_TEXTREL, DT_JMPREL, other hash tables, versions."""
    at = dynamic_entry(code, 24)  # DT_BIND_NOW, which nothing needs
    with pytest.raises(Misread, match="that it may not have"):
        read_shared_object(code[:at] + struct.pack("<Q", tag) + code[at + 8 :], "x86_64")


def test_no_other_library_and_no_other_function(code: bytes) -> None:
    at = code.index(b"libc.so.6")
    with pytest.raises(Misread, match=r"wants to load other libraries: libd\.so\.6"):
        read_shared_object(code[:at] + b"libd.so.6" + code[at + 9 :], "x86_64")
    at = code.index(b"\0mem") + 1
    with pytest.raises(Misread, match=r"calls what it may not call|a symbol is not found"):
        read_shared_object(code[:at] + b"sys" + code[at + 3 :], "x86_64")


def test_code_with_a_stack_that_runs_or_memory_that_is_written_and_run(code: bytes) -> None:
    count = struct.unpack_from("<H", code, 56)[0]
    for start in range(64, 64 + 56 * count, 56):
        (kind,) = struct.unpack_from("<I", code, start)
        if kind in (1, 0x6474E551):
            with pytest.raises(Misread):
                read_shared_object(code[: start + 4] + struct.pack("<I", 7) + code[start + 8 :], "x86_64")


PLACE = ["f.py", 1, 1, 1, 2]
DETAILS = {"tensor": "x", "axis": 0, "index": {"value": 0, "dtype": "int64"}, "extent": 5}
GOOD = ["bounds", ["index ", ["", "int64"]], PLACE, "op", DETAILS, [["called from", PLACE]]]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (0, "nan"), (0, ["bounds"]), (0, None), (1, "text"), (1, [["", "int65"]]), (1, [["999999999d", "int64"]]),
        (1, [["s", "int64"]]), (1, [["{}", "int64"]]), (1, [["", "int64"]] * 2000), (2, ["f.py", "1", 1, 1, 1]),
        (2, []),
        (3, 1), (4, {}), (4, {"tensor": "x"}), (4, []), (5, [["called from"]]), (5, "abc"),
        (4, {**DETAILS, "index": {"value": 10**12, "dtype": "int64"}}),
        (4, {**DETAILS, "index": {"value": -1, "dtype": "int64"}}),
        (4, {**DETAILS, "place": 1}),
    ],
)  # fmt: skip
def test_tables_of_reports_are_checked(part: int, value: Any) -> None:
    assert len(read_reports(json.dumps([GOOD]).encode())) == 1
    record = [*GOOD]
    record[part] = value
    with pytest.raises(Misread, match=r"reports\[1\]"):
        read_reports(json.dumps([GOOD, record]).encode())
    for text in (b"", b"{}", b"[1", b"\xff", b"[[]]", b"null"):
        with pytest.raises(Misread):
            read_reports(text)
