"""The best level of this machine is chosen, and none below the lowest."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import pytest
from support.elf_files import ElfFile

from einkorn.compiler.codegen import llvm
from einkorn.compiler.codegen.elf.linker import write_shared
from einkorn.compiler.codegen.elf.object_file import ObjectFile
from einkorn.compiler.runtime.levels import NO_LEVEL, baseline, level_text, levels_object
from einkorn.compiler.targets import fits, host, lookup
from einkorn.compiler.targets.cpu import LEVELS

NAMES = tuple(LEVELS)
on_x86 = pytest.mark.skipif(host().architecture != "x86_64", reason="these levels are x86-64's")


def entries(names: tuple[str, ...]) -> bytes:
    """An entry for each level, which returns its number."""
    text = "".join(
        f'define i32 @"ek_entry__{name}"(ptr %c, ptr %p, ptr %d) {{ ret i32 {number} }}\n'
        for number, name in enumerate(names)
    )
    return llvm.emit_object(text, baseline(host()))


@on_x86
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_best_level_of_this_machine_is_chosen(tmp_path: Path, count: int) -> None:
    for names in itertools.combinations(NAMES, count):
        path = tmp_path / f"{'_'.join(names)}.so"
        with path.open("wb") as file:
            write_shared(file, [levels_object(names, host()), entries(names)], public=["ek_entry"])
        library = ctypes.CDLL(str(path))
        best = max((number for number, name in enumerate(names) if fits(name)), default=NO_LEVEL)
        assert [library.ek_entry(None, None, None) for _ in range(2)] == [best, best]


# The processor of a test: words that the test sets.
PROCESSOR = """
@said = global [6 x i32] zeroinitializer
define void @ek_cpuid(i32 %leaf, i32 %sub, ptr %words) {
entry:
  switch i32 %leaf, label %none [ i32 0, label %zero i32 1, label %one i32 7, label %seven
                                  i32 -2147483648, label %most i32 -2147483647, label %amd ]
zero: br label %first
most: br label %first
first:
  %f = phi i64 [ 4, %zero ], [ 5, %most ]
  %f.at = getelementptr i32, ptr @said, i64 %f
  %fv = load i32, ptr %f.at
  store i32 %fv, ptr %words
  ret void
one:
  %o.to = getelementptr i32, ptr %words, i64 2
  %ov = load i32, ptr @said
  store i32 %ov, ptr %o.to
  ret void
seven:
  %s.at = getelementptr i32, ptr @said, i64 1
  %s.to = getelementptr i32, ptr %words, i64 1
  %sv = load i32, ptr %s.at
  store i32 %sv, ptr %s.to
  ret void
amd:
  %a.at = getelementptr i32, ptr @said, i64 2
  %a.to = getelementptr i32, ptr %words, i64 2
  %av = load i32, ptr %a.at
  store i32 %av, ptr %a.to
  ret void
none:
  ret void
}
define i32 @ek_xgetbv() {
  %at = getelementptr i32, ptr @said, i64 3
  %v = load i32, ptr %at
  ret i32 %v
}
"""

# Features as CPUID numbers them: its word here, and the bit.
ONE = {"pni": 0, "ssse3": 9, "fma": 12, "cx16": 13, "sse4_1": 19, "sse4_2": 20, "movbe": 22, "popcnt": 23, "xsave": 26}
SEVEN = {"bmi1": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512cd": 28, "avx512bw": 30, "avx512vl": 31}
BITS = {
    **{name: (0, bit) for name, bit in (ONE | {"avx": 28, "f16c": 29}).items()},
    **{name: (1, bit) for name, bit in SEVEN.items()},
    "lahf_lm": (2, 0),
    "abm": (2, 5),
}


@on_x86
def test_each_feature_is_looked_for_where_the_processor_reports_it(tmp_path: Path) -> None:
    order = tuple(reversed(NAMES))
    door = llvm.emit_object(level_text(order, "ek_entry"), baseline(host()))
    parts = [door, llvm.emit_object(PROCESSOR, baseline(host())), entries(NAMES)]
    image = tmp_path / "levels.so"
    with image.open("wb") as file:
        write_shared(file, parts, public=["ek_entry", "said"])
    copies = itertools.count()

    def chosen(words: list[int]) -> int:
        path = tmp_path / f"{next(copies)}.so"  # each chooses once
        path.write_bytes(image.read_bytes())
        library = ctypes.CDLL(str(path))
        said = (ctypes.c_uint32 * 6).in_dll(library, "said")
        for number, word in enumerate(words):
            said[number] = word
        return int(library.ek_entry(None, None, None))

    full = [0, 0, 0, 0xE6, 7, 0x80000001]
    for word, bit in BITS.values():
        full[word] |= 1 << bit
    full[0] |= 1 << 27
    assert set(BITS) == LEVELS["x86-64-v4"] and chosen(full) == 2
    for name, (word, bit) in BITS.items():
        less = [value & ~(1 << bit) if at == word else value for at, value in enumerate(full)]
        wanted = max((n for n, level in enumerate(NAMES) if name not in LEVELS[level]), default=NO_LEVEL)
        assert chosen(less) == wanted, name
    for at, value, wanted in ((3, 6, 1), (3, 0, 0), (4, 6, 0), (5, 0x80000000, NO_LEVEL), (0, full[0] & ~(1 << 27), 0)):
        assert chosen([value if at == word else old for word, old in enumerate(full)]) == wanted


def test_aarch64_has_one_level() -> None:
    source = levels_object(["aarch64"], lookup("aarch64"))
    assert source == levels_object(["aarch64"], lookup("aarch64"))
    assert {s.name for s in source.symbols if s.undefined and s.name} == {"ek_entry__aarch64"}


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_only_the_function_is_seen(tmp_path: Path, target: str) -> None:
    text = f'define i32 @"net_entry__{target}"(ptr %c, ptr %p, ptr %d) {{ ret i32 0 }}'
    code = llvm.emit_object(text, lookup(target))
    parts: list[bytes | ObjectFile] = [levels_object([target], lookup(target), "net_entry"), code]
    path = tmp_path / "file.so"
    with path.open("wb") as file:
        write_shared(file, parts, public=["net_entry"])
    assert ElfFile(path.read_bytes()).exported() == {"net_entry"}
