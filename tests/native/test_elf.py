"""Objects become shared objects that the dynamic loader, gdb and readers of ELF take."""

from __future__ import annotations

import ctypes
import math
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from einkorn.compiler.codegen import llvm
from einkorn.compiler.codegen.elf import linker as elf
from einkorn.compiler.codegen.elf.object_file import read_object
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.package import elf as elf_records

# A jump table, pointers in data (to data, to code, to an undefined function), zeroed data, alignment, calls outside.
MODULE = """
@abc = private constant [4 x i8] c"abc\\00"
@xyz = private constant [4 x i8] c"xyz\\00"
@names = internal constant [2 x ptr] [ptr @abc, ptr @xyz]
@functions = global [3 x ptr] [ptr @choose, ptr @name, ptr @fmod]
@zeroed = internal global [100000 x i32] zeroinitializer, align 64
@wide = global i64 81985529216486895, align 256
@weak = extern_weak global i32
declare double @fmod(double, double)
declare ptr @memcpy(ptr, ptr, i64)

define i32 @choose(i32 %x) {
  switch i32 %x, label %other [ i32 0, label %a i32 1, label %b i32 2, label %c
                                i32 3, label %d i32 4, label %e i32 5, label %f ]
a: br label %end
b: %r = call double @fmod(double 17.5, double 5.0)
  %i = fptosi double %r to i32
  br label %end
c: br label %end
d: store i32 7, ptr getelementptr ([100000 x i32], ptr @zeroed, i32 0, i32 99999)
  br label %end
e: br label %end
f: br label %end
other: br label %end
end: %p = phi i32 [10, %a], [%i, %b], [77, %c], [31, %d], [5, %e], [901, %f], [-1, %other]
  %q = load i32, ptr getelementptr ([100000 x i32], ptr @zeroed, i32 0, i32 99999)
  %s = add i32 %p, %q
  ret i32 %s
}
define ptr @name(i32 %i) {
  %wide = sext i32 %i to i64
  %at = getelementptr [2 x ptr], ptr @names, i64 0, i64 %wide
  %p = load ptr, ptr %at
  ret ptr %p
}
define i32 @choose_through_table(i32 %x) {
  %f = load volatile ptr, ptr @functions
  %r = call i32 %f(i32 %x)
  ret i32 %r
}
define double @fmod_through_table(double %x, double %y) {
  %f = load volatile ptr, ptr getelementptr ([3 x ptr], ptr @functions, i64 0, i64 2)
  %r = call double %f(double %x, double %y)
  ret double %r
}
define i64 @copy() {
  %at = alloca i64
  %size = load volatile i64, ptr @eight
  %ignored = call ptr @memcpy(ptr %at, ptr @wide, i64 %size)
  %r = load i64, ptr %at
  ret i64 %r
}
@eight = internal global i64 8
define i1 @weak_is_null() {
  %r = icmp eq ptr @weak, null
  ret i1 %r
}
define hidden i32 @hidden() {
  ret i32 1
}
"""


def load(tmp_path: Path, image: bytes) -> ctypes.CDLL:
    path = tmp_path / "image.so"
    path.write_bytes(image)
    return ctypes.CDLL(str(path))


def compile_object(text: str, target: str = "host", level: int = 3) -> bytes:
    """An object, without the check that a kernel's object must pass."""
    return llvm.emit_object(text, lookup(target), level=level)


@pytest.mark.parametrize("level", [0, 3])
def test_everything_a_kernel_may_use(tmp_path: Path, level: int) -> None:
    image = elf.link_shared(compile_object(MODULE, level=level), needed=["libm.so.6", "libc.so.6"], soname="test.so")
    library = load(tmp_path, image)
    assert [library.choose(i) for i in range(7)] == [10, 2, 77, 38, 12, 908, 6]
    assert library.choose_through_table(2) == 84
    library.name.restype = ctypes.c_char_p
    assert [library.name(0), library.name(1)] == [b"abc", b"xyz"]
    library.fmod_through_table.restype = ctypes.c_double
    library.fmod_through_table.argtypes = [ctypes.c_double, ctypes.c_double]
    assert library.fmod_through_table(7.25, 2.0) == math.fmod(7.25, 2.0)
    library.copy.restype = ctypes.c_int64
    assert library.copy() == 81985529216486895
    assert library.weak_is_null() & 1
    assert ctypes.addressof(ctypes.c_int64.in_dll(library, "wide")) % 256 == 0
    assert not hasattr(library, "hidden") and not hasattr(library, "zeroed")


def test_linking_is_deterministic() -> None:
    object_file = compile_object(MODULE)
    first = elf.link_shared(object_file, needed=["libm.so.6"])
    assert first == elf.link_shared(object_file, needed=["libm.so.6"])
    assert b"libm.so.6\0" in first


def test_undefined_symbols_are_named() -> None:
    assert set(elf.undefined_symbols(compile_object(MODULE))) >= {"fmod", "memcpy"}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_readelf_finds_nothing_to_warn_of(tmp_path: Path, target: str) -> None:
    path = tmp_path / "image.so"
    path.write_bytes(elf.link_shared(compile_object(MODULE, target), needed=["libm.so.6"], soname="test.so"))
    shown = subprocess.run(["readelf", "-aW", str(path)], capture_output=True, text=True, check=True)
    assert not shown.stderr and "Warning" not in shown.stdout and "corrupt" not in shown.stdout
    for expected in ("[libm.so.6]", "[test.so]", "choose_through_table", "GLOB_DAT", "RELATIV"):
        assert expected in shown.stdout


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_finds_lines(tmp_path: Path) -> None:
    from einkorn.compiler.codegen import mlir

    text = """
    module { llvm.func @kernel(%x: i64) -> i64 {
      %y = arith.muli %x, %x : i64 loc("sample_kernel.py":4:9)
      llvm.return %y : i64 loc("sample_kernel.py":5:9)
    } loc("sample_kernel.py":3:1) } loc("sample_kernel.py":1:1)
    """
    path = tmp_path / "image.so"
    path.write_bytes(llvm.compile_module(mlir.lower_to_llvm(text, host()), host()).link())
    command = ["gdb", "-q", "-nx", "-batch", "-ex", "info line sample_kernel.py:4", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 'Line 4 of "sample_kernel.py"' in shown.stdout and "<kernel" in shown.stdout


# What an aarch64 processor would do, for the instructions that the linker patches: enough to follow addresses.
def follow_adrp(code: bytes, at: int, address: int) -> tuple[int, int]:
    """The register that ADRP at `at` sets, and the page."""
    (word,) = struct.unpack_from("<I", code, at)
    assert word & 0x9F000000 == 0x90000000, hex(word)
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    pages -= (pages & 1 << 20) << 1
    return word & 31, ((address + at) >> 12) + pages << 12


def test_aarch64_code_reaches_its_data() -> None:
    text = """
    @table = internal global [4 x i64] [i64 11, i64 22, i64 33, i64 44]
    declare double @fmod(double, double)
    define i64 @third() {
      %v = load volatile i64, ptr getelementptr ([4 x i64], ptr @table, i64 0, i64 2)
      ret i64 %v
    }
    define double @outside(double %x) {
      %r = call double @fmod(double %x, double 2.0)
      %s = fadd double %r, 1.0
      ret double %s
    }
    """
    object_file = compile_object(text, "aarch64")
    image = elf.link_shared(object_file, needed=["libm.so.6"])
    sections = sections_of(image)
    symbols = symbols_of(image, sections)
    code, data = sections[".text"], sections[".data"]

    at = symbols["third"] - code.address
    register, page = follow_adrp(code.data, at, code.address)
    for step in (4, 8):  # add x8, x8, low; ldr x0, [x8, #16] -- or one load with the whole offset
        (word,) = struct.unpack_from("<I", code.data, at + step)
        assert word >> 5 & 31 == register
        if word & 0xFFC00000 == 0x91000000:
            page += word >> 10 & 0xFFF
        elif word & 0xFFC00000 == 0xF9400000:
            page += (word >> 10 & 0xFFF) * 8
            break
    assert struct.unpack_from("<q", data.data, page - data.address) == (33,)

    calls = [
        (code.address + offset, word)
        for offset, word in enumerate_words(code.data)
        if word & 0xFC000000 == 0x94000000 and code.address + offset >= symbols["outside"]
    ]
    (address, word), stub = calls[0], sections[".plt"]
    distance = word & 0x3FFFFFF
    assert address + 4 * (distance - ((distance & 1 << 25) << 1)) == stub.address
    register, page = follow_adrp(stub.data, 0, stub.address)
    (load_word,) = struct.unpack_from("<I", stub.data, 4)
    assert register == 16 and page + (load_word >> 10 & 0xFFF) * 8 == sections[".got"].address


class Found:
    def __init__(self, address: int, data: bytes) -> None:
        self.address, self.data = address, data


def enumerate_words(data: bytes) -> list[tuple[int, int]]:
    return [(4 * index, word) for index, (word,) in enumerate(struct.iter_unpack("<I", data))]


def sections_of(image: bytes) -> dict[str, Found]:
    fields = elf_records.FILE_HEADER.unpack_from(image)
    headers = [elf_records.SECTION_HEADER.unpack_from(image, fields[6] + 64 * index) for index in range(fields[12])]
    names = headers[fields[13]][4]
    return {
        image[names + header[0] : image.index(b"\0", names + header[0])].decode(): Found(
            header[3], image[header[4] : header[4] + header[5]]
        )
        for header in headers
    }


def symbols_of(image: bytes, sections: dict[str, Found]) -> dict[str, int]:
    strings = sections[".strtab"].data
    return {
        strings[name : strings.index(b"\0", name)].decode(): value
        for name, _, _, _, value, _ in elf_records.SYMBOL.iter_unpack(sections[".symtab"].data)
    }


def test_hsaco_keeps_notes_and_descriptors() -> None:
    text = """
    @shared = internal addrspace(3) global [64 x float] poison
    define amdgpu_kernel void @store(ptr addrspace(1) %p) {
      store float 1.0, ptr addrspace(1) %p
      ret void
    }
    """
    object_file = compile_object(text, "gfx942")
    image = elf.link_shared(object_file)
    source = {section.name: section for section in read_object(object_file).sections}
    sections = sections_of(image)
    symbols = symbols_of(image, sections)
    assert sections[".note"].data == source[".note"].data
    assert sections[".text"].address % 256 == 0
    descriptor = sections[".rodata"].data[symbols["store.kd"] - sections[".rodata"].address :]
    # The kernel descriptor holds the distance from itself to the code.
    assert struct.unpack_from("<q", descriptor, 16) == (symbols["store"] - symbols["store.kd"],)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@t = thread_local global i32 3\ndefine ptr @f() { ret ptr @t }", "thread-local"),
        ("@c = common global i32 0\ndefine ptr @f() { ret ptr @c }", "common symbol"),
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } "
            "{ i32 65535, ptr @f, ptr null }]\ndefine void @f() { ret void }",
            "constructors",
        ),
        ("@i = ifunc i32 (), ptr @f\ndefine ptr @f() { ret ptr null }", "indirect function"),
    ],
)
def test_what_is_not_handled_is_refused(text: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        elf.link_shared(compile_object(text, "x86-64-v2", level=0))


def test_malformed_input_is_refused_without_a_crash() -> None:
    good = compile_object("define i32 @f() { ret i32 1 }", "x86-64-v2")
    for bad in (b"", b"\x7fELF", b"MZ" + bytes(100), good[:80], good[:-1]):
        with pytest.raises(InternalError, match="cannot link the object"):
            elf.link_shared(bad)
    for offset in range(0, len(good)):
        damaged = bytearray(good)
        damaged[offset] ^= 0xFF
        try:
            elf.link_shared(bytes(damaged))
        except InternalError:
            continue


def test_other_machines_are_refused() -> None:
    damaged = bytearray(compile_object("define i32 @f() { ret i32 1 }", "x86-64-v2"))
    damaged[18] = 243  # RISC-V
    with pytest.raises(InternalError, match="machine 243 is not handled"):
        elf.link_shared(bytes(damaged))
