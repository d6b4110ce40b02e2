"""AMD's code objects as LLVM's own linker makes them: the same code, the same kernels, wherever ld.lld is installed.

`LLD_COMMAND` names another command, such as "python -m ziglang ld.lld".
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from support.gpu_cases import CASES, GPUS, GpuCase

WANTED = ("add[float32-1000]", "example[histogram]", "example[reduction]", "example[matrix_multiplication-vectorized]")
PICKED = [case for case in CASES if case.name in WANTED]
AMD = [name for name in GPUS if name.startswith("gfx")]
NAMES = ("ld.lld-22", "ld.lld-21", "ld.lld")
LLD = shlex.split(os.environ.get("LLD_COMMAND", "")) or [path for name in NAMES if (path := shutil.which(name))][:1]
DESCRIPTOR, ENTRY = 64, 16  # bytes of a kernel descriptor, and where in it the distance to the kernel's code stands


def linked(command: list[str], code: bytes, folder: Path) -> bytes | None:
    """What ld.lld makes of an object; None where it is too old to know it."""
    (folder / "kernel.o").write_bytes(code)
    done = subprocess.run(
        [*command, "-shared", "-o", str(folder / "kernel.so"), str(folder / "kernel.o")], capture_output=True, text=True
    )
    if "unknown abi version" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    return (folder / "kernel.so").read_bytes()


def sections(data: bytes) -> dict[str, tuple[int, bytes]]:
    """The address and the bytes of each section of an ELF file, by name."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, start + k * size) for k in range(count)]
    offset = rows[names][4]
    collected = {}
    for name, kind, _, address, at, length in rows:
        text = data[offset + name : data.index(b"\0", offset + name)].decode()
        collected[text] = address, data[at : at + length] if kind != 8 else b""
    return collected


def symbols(data: bytes) -> dict[str, int]:
    """The addresses of the dynamic symbols."""
    actual = sections(data)
    table, names = actual[".dynsym"][1], actual[".dynstr"][1]
    rows = [struct.unpack_from("<IBBHQQ", table, k) for k in range(0, len(table), 24)]
    return {names[row[0] : names.index(b"\0", row[0])].decode(): row[4] for row in rows if row[0]}


@pytest.mark.skipif(not LLD, reason="ld.lld is not installed")
@pytest.mark.parametrize("case", PICKED, ids=str)
def test_code_is_that_of_lld(case: GpuCase, tmp_path: Path) -> None:
    for name in AMD:
        compiled = case.compile(name).compiled
        ours, theirs = compiled.link(), linked(LLD, compiled.code, tmp_path)
        if theirs is None:
            pytest.skip(f"{' '.join(LLD)} does not know this version of code objects")
        own, other = sections(ours), sections(theirs)
        assert own[".text"][1] == other[".text"][1], name
        assert symbols(ours).keys() == symbols(theirs).keys()
        for symbol in symbols(ours):
            if symbol.endswith(".kd"):
                collected = [descriptor(image, symbol) for image in (ours, theirs)]
                assert collected[0] == collected[1], (name, symbol)


def descriptor(data: bytes, symbol: str) -> tuple[bytes, int]:
    """A kernel descriptor without the distance to its code, and where that code stands in .text."""
    actual, address = sections(data), symbols(data)[symbol]
    start, content = actual[".rodata"]
    held = content[address - start : address - start + DESCRIPTOR]
    (distance,) = struct.unpack_from("<q", held, ENTRY)
    return held[:ENTRY] + held[ENTRY + 8 :], address + distance - actual[".text"][0]


def test_the_cases_are_there() -> None:
    assert len(PICKED) == len(WANTED)
