"""Exported files: their symbols, their arrays, their paths; as shared objects and for system linkers."""

from __future__ import annotations

import ctypes
import io
import mmap
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from support.elf_files import ElfFile

from einkorn.compiler.codegen import llvm, mlir
from einkorn.compiler.codegen.elf.blobs import Blob
from einkorn.compiler.codegen.elf.linker import write_relocatable, write_shared
from einkorn.compiler.codegen.elf.object_file import read_object
from einkorn.compiler.codegen.elf.symbols import only, renamed
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.diagnostics.installation import ROOT
from einkorn.dsl.package import elf

needs_cc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

# A door: a table of arrays in data, one array by its address in code, a function of another object.
DOOR = """
@first = external hidden constant [0 x i8]
@second = external hidden constant [0 x i8]
@third = external global i8
@table = internal constant [2 x ptr] [ptr @first, ptr @second]
@counter = internal global i32 0
@empty = internal constant [0 x i8] zeroinitializer
declare double @helper(double)
define i32 @sum(i32 %table, i32 %at) {
  %t = sext i32 %table to i64
  %a = sext i32 %at to i64
  %entry = getelementptr [2 x ptr], ptr @table, i64 0, i64 %t
  %array = load ptr, ptr %entry
  %element = getelementptr i32, ptr %array, i64 %a
  %value = load i32, ptr %element
  %other.at = getelementptr i32, ptr @third, i64 %a
  %other = load i32, ptr %other.at
  %result = add i32 %value, %other
  ret i32 %result
}
define double @helped(double %x) {
  %y = call double @helper(double %x)
  ret double %y
}
define ptr @nothing() { ret ptr @empty }
"""
HELPER = """
declare double @fmod(double, double)
define double @helper(double %x) {
  %r = call double @fmod(double %x, double 5.0)
  ret double %r
}
"""
ARRAYS = [np.arange(100, dtype=np.int32), np.arange(100, 117, dtype=np.int32), np.full(100, 1000, np.int32)]


def blobs(arrays: Sequence[np.ndarray] = ARRAYS) -> list[Blob]:
    return [Blob(name, array) for name, array in zip(("first", "second", "third"), arrays, strict=True)]


def objects(target: str = "host") -> list[bytes]:
    return [llvm.emit_object(text, lookup(target)) for text in (DOOR, HELPER)]


def shared(target: str = "host", arrays: Sequence[np.ndarray] = ARRAYS, *, debug: bool = False) -> bytes:
    file = io.BytesIO()
    names = ["sum", "helped", "nothing"]
    write_shared(file, objects(target), needed=["libm.so.6"], public=names, blobs=blobs(arrays), debug=debug)
    return file.getvalue()


def relocatable(prefix: str = "", target: str = "host", arrays: Sequence[np.ndarray] = ARRAYS) -> bytes:
    file = io.BytesIO()
    names = {name: prefix + name for name in ("sum", "helped", "nothing")}
    parts = [renamed(each, names) for each in objects(target)]
    write_relocatable(file, parts, public=names.values(), blobs=blobs(arrays))
    return file.getvalue()


def load(tmp_path: Path, image: bytes, name: str = "image.so") -> ctypes.CDLL:
    path = tmp_path / name
    path.write_bytes(image)
    library = ctypes.CDLL(str(path))
    library.helped.restype, library.helped.argtypes = ctypes.c_double, [ctypes.c_double]
    library.nothing.restype = ctypes.c_void_p
    return library


def test_arrays_lie_in_a_segment_of_their_own(tmp_path: Path) -> None:
    image = shared()
    library = load(tmp_path, image)
    assert [library.sum(0, 7), library.sum(1, 16), library.sum(1, 0)] == [1007, 1116, 1100]
    assert library.helped(17.5) == 2.5 and library.nothing()
    file = ElfFile(image)
    section = file.section(".ekweights")
    assert section.flags == elf.SHF_ALLOC and section.offset % 4096 == section.address % 4096 == 0
    assert section.offset + section.size == len(image)
    assert section.data[: 4 * 100] == ARRAYS[0].tobytes() and section.data[448 : 448 + 4 * 17] == ARRAYS[1].tobytes()


def test_only_public_symbols_are_seen() -> None:
    names = {"sum", "helped", "nothing"}
    file = ElfFile(shared())
    assert file.exported() == names and not file.has(".symtab")
    assert {s.name for s in file.symbols(".dynsym")} == {*names, "fmod"}
    assert file.needed == ["libm.so.6"]
    assert ElfFile(relocatable("net_")).exported() == {f"net_{name}" for name in names}
    local = {s.name for s in ElfFile(shared(debug=True)).symbols(".symtab") if s.binding == elf.STB_LOCAL}
    assert {"helper", "first", "counter"} - local <= {"counter"}


def test_a_public_symbol_has_to_exist() -> None:
    with pytest.raises(InternalError, match="'absent' is to be exported, and no object defines it"):
        write_shared(io.BytesIO(), objects(), public=["sum", "absent"], blobs=blobs())
    with pytest.raises(InternalError, match="'sum' is defined twice"):
        write_shared(io.BytesIO(), objects(), public=["sum"], blobs=[*blobs(), Blob("sum", b"1234")])
    with pytest.raises(InternalError, match="two arrays have the same symbol"):
        write_shared(io.BytesIO(), objects(), public=["sum"], blobs=[*blobs(), *blobs()])


def test_equal_arrays_are_written_once(tmp_path: Path) -> None:
    large = np.arange(1 << 21, dtype=np.int32)
    changed = large.copy()
    changed[1 << 19] += 1  # in none of the places that are hashed
    once, twice = shared(arrays=[large, large.copy(), ARRAYS[2]]), shared(arrays=[large, changed, ARRAYS[2]])
    assert len(twice) - len(once) == large.nbytes
    assert load(tmp_path, once).sum(1, 5) == 1005
    assert load(tmp_path, twice, "twice.so").sum(1, 5) == 1005
    nothing = np.zeros(0, np.int32)
    assert load(tmp_path, shared(arrays=[nothing, ARRAYS[1], ARRAYS[2]]), "empty.so").sum(1, 5) == 1105


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_the_same_input_gives_the_same_bytes(target: str) -> None:
    assert shared(target) == shared(target)
    assert relocatable("a_", target) == relocatable("a_", target)
    assert ElfFile(shared(target)).machine == ElfFile(relocatable("", target)).machine


class Hole(io.RawIOBase):
    """A file that keeps the parts of what is written that are not zeros."""

    def __init__(self) -> None:
        self.at = self.most = 0
        self.kept: list[tuple[int, bytes]] = []

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.most = max(self.most, len(view))
        if len(view) < 1 << 20 or any(view[:64]):
            self.kept.append((self.at, bytes(view)))
        self.at += len(view)
        return len(view)


def test_arrays_of_many_gigabytes_are_written_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    size = 5 << 30
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 400)
        file.write(ARRAYS[0].tobytes())
    with path.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        arrays = [Blob("first", view[: 1 << 31]), Blob("second", ARRAYS[1]), Blob("third", view[size - 400 :])]
        sink = Hole()
        write_shared(sink, objects(), public=["sum"], blobs=arrays)  # type: ignore[arg-type]
        del arrays
        view.release()
    assert sink.most <= 4 << 20 and sink.at > 1 << 31
    # The code reaches the arrays behind the gap: written with a hole, the file runs.
    image = tmp_path / "large.so"
    with image.open("wb") as file:
        file.truncate(sink.at)
        for at, data in sink.kept:
            file.seek(at)
            file.write(data)
    library = ctypes.CDLL(str(image))
    assert [library.sum(0, 3), library.sum(1, 3)] == [3, 106]


@needs_cc
@pytest.mark.parametrize("options", [[], ["-static"], ["-static-pie"], ["-no-pie"], ["-shared", "-fPIC"]])
def test_system_linkers_take_several_objects(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "a.o").write_bytes(relocatable("a_", "x86-64-v2" if host().architecture == "x86_64" else "aarch64"))
    other = [ARRAYS[0] + 1, ARRAYS[1], ARRAYS[2]]
    (tmp_path / "b.o").write_bytes(
        relocatable("b_", "x86-64-v2" if host().architecture == "x86_64" else "aarch64", other)
    )
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        int a_sum(int, int), b_sum(int, int); double a_helped(double), b_helped(double); void *a_nothing(void);
        int main(void) {
            double helped = a_helped(17.5) + b_helped(6);
            printf("%d %d %d %g %d\\n", a_sum(0, 7), b_sum(0, 7), a_sum(1, 16), helped, !a_nothing());
            return 0;
        }
        """
    )
    files = [str(tmp_path / name) for name in ("main.c", "a.o", "b.o")]
    program = tmp_path / "program"
    command = ["gcc", *options, "-Wl,--fatal-warnings", *files, "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "-static" in " ".join(options) and "cannot find -l" in done.stderr:
        pytest.skip("the static C library is not installed")
    assert (done.returncode, done.stderr) == (0, "")
    if "-shared" not in options:
        shown = subprocess.run([str(program)], capture_output=True, text=True, check=True)
        assert shown.stdout == "1007 1008 1116 3.5 0\n"


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
@pytest.mark.parametrize("debug", [False, True])
def test_readelf_finds_nothing_to_warn_of(tmp_path: Path, target: str, debug: bool) -> None:
    (tmp_path / "image.so").write_bytes(shared(target, debug=debug))
    (tmp_path / "image.o").write_bytes(relocatable("a_", target))
    for name in ("image.so", "image.o"):
        command = ["readelf", "-aW", str(tmp_path / name)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not shown.stderr and "Warning" not in shown.stdout and "corrupt" not in shown.stdout
        assert ".ekweights" in shown.stdout


def placed_object(folder: str) -> bytes:
    """A kernel with lines of three files, one of the library."""
    text = f"""
    module {{
      llvm.func internal @inner(%x: i64) -> i64 attributes {{passthrough = ["noinline"]}} {{
        %y = arith.muli %x, %x : i64 loc("{ROOT}/stdlib/kernels/matmul.py":4:9)
        llvm.return %y : i64 loc("{ROOT}/stdlib/kernels/matmul.py":5:9)
      }} loc("{ROOT}/stdlib/kernels/matmul.py":3:1)
      llvm.func internal @other(%x: i64) -> i64 attributes {{passthrough = ["noinline"]}} {{
        %y = arith.addi %x, %x : i64 loc("{folder}/blocks/attention.py":4:9)
        llvm.return %y : i64 loc("{folder}/blocks/attention.py":5:9)
      }} loc("{folder}/blocks/attention.py":3:1)
      llvm.func @kernel(%x: i64) -> i64 {{
        %y = llvm.call @inner(%x) : (i64) -> i64 loc("{folder}/models/net.py":4:9)
        %z = llvm.call @other(%y) : (i64) -> i64 loc("{folder}/models/net.py":5:9)
        llvm.return %z : i64 loc("{folder}/models/net.py":6:9)
      }} loc("{folder}/models/net.py":3:1)
    }} loc("{folder}/models/net.py":1:1)
    """
    return llvm.emit_object(mlir.lower_to_llvm(text, lookup("x86-64-v2")), lookup("x86-64-v2"))


def test_no_path_of_the_machine_is_in_debug_information(tmp_path: Path) -> None:
    images = []
    for folder in ("/private/ada/work/one", "/srv/grace"):
        file = io.BytesIO()
        write_shared(file, [placed_object(folder)], public=["kernel"], debug=True)
        images.append(file.getvalue())
        for secret in (b"private", b"ada", b"grace", b"srv", b"blocks", str(ROOT).encode()):
            assert secret not in images[-1]
        for kept in (b"attention.py", b"net.py", b"einkorn/stdlib/kernels"):
            assert kept in images[-1]
    plain = io.BytesIO()
    write_shared(plain, [placed_object("/private/ada/work/one")], public=["kernel"])
    assert b"net.py" not in plain.getvalue()
    if shutil.which("readelf"):
        (tmp_path / "image.so").write_bytes(images[0])
        command = ["readelf", "--debug-dump=decodedline,info", str(tmp_path / "image.so")]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not shown.stderr and "attention.py" in shown.stdout


def test_damaged_line_tables_are_refused() -> None:
    source = read_object(placed_object("/private/ada"))
    (number,) = (section.index for section in source.sections if section.name == ".debug_line")
    data = source.sections[number].data
    for damaged in (data[:20], data[:4] + struct.pack("<H", 5) + data[6:]):
        sections = list(source.sections)
        sections[number] = type(sections[number])(**(vars(sections[number]) | {"data": damaged}))
        broken = type(source)(**(vars(source) | {"sections": tuple(sections)}))
        with pytest.raises(InternalError, match="line table"):
            write_shared(io.BytesIO(), [broken], public=["kernel"], debug=True)


def test_parts_with_equal_names_go_into_one_file(tmp_path: Path) -> None:
    """Two levels of one kernel: each keeps its entry under a name of its own, and its helpers to itself."""
    parts = []
    for number in (1, 2):
        entry = "declare i32 @helper()\ndefine i32 @entry() { %x = call i32 @helper()\n ret i32 %x }"
        helper = f"define i32 @helper() {{ ret i32 {number} }}"
        part = only([llvm.emit_object(text, host()) for text in (entry, helper)], {"entry"})
        parts.append(renamed(part, {"entry": f"entry__{number}"}))
    door = "declare i32 @entry__1()\ndeclare i32 @entry__2()\ndefine i32 @both() {\n"
    door += (
        "%a = call i32 @entry__1()\n%b = call i32 @entry__2()\n%c = mul i32 %b, 10\n%d = add i32 %a, %c\nret i32 %d }"
    )
    path = tmp_path / "levels.so"
    file: IO[bytes]
    with path.open("wb") as file:
        write_shared(file, [llvm.emit_object(door, host()), *parts], public=["both"])
    assert ctypes.CDLL(str(path)).both() == 21


DESTRUCTOR = """
@ends = internal constant ptr @end, section ".fini_array"
@llvm.compiler.used = appending global [1 x ptr] [ptr @ends], section "llvm.metadata"
@at = global ptr null
define internal void @end() {
  %p = load ptr, ptr @at
  store i32 77, ptr %p
  ret void
}
"""


def test_a_destructor_runs_when_the_library_is_closed(tmp_path: Path) -> None:
    import _ctypes

    path = tmp_path / "ends.so"
    with path.open("wb") as file:
        write_shared(file, [llvm.emit_object(DESTRUCTOR, host())], public=["at"])
    library = ctypes.CDLL(str(path))
    seen = ctypes.c_int32(0)
    ctypes.c_void_p.in_dll(library, "at").value = ctypes.addressof(seen)
    _ctypes.dlclose(library._handle)
    assert seen.value == 77
