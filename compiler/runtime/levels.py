"""Code of several CPU levels in one file: the machine's best one is chosen at the first call.

    int32_t ek_entry(context, pointers, dims)     jumps to `ek_entry__<target>` of the best level; -6 below the lowest

The choice is stored atomically, so that any number of threads may call at once. The instructions that read what a
processor can do are machine code here: LLVM takes them as inline assembly only, for the host's architecture alone. See
also `compiler.targets.cpu` (the levels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...dsl.contract import abi
from ...dsl.package import elf
from ..codegen.elf.object_file import ObjectFile, Section, Symbol
from ..codegen.elf.symbols import only
from ..codegen.kept import kept_object
from ..targets import Target, lookup
from ..targets.cpu import LEVELS

NO_LEVEL: Final = -6  # the status of a call on a machine below the lowest level

# The word of `ek_processor` and the bit there that reports each feature of `LEVELS`. Words 0 and 1 are CPUID 1 and 7,
# word 2 is CPUID 0x80000001, word 3 what the system saves of registers: 256 bits with bits 1 and 2, 512 with 5 to 7.
_BITS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    **{
        name: ((0, bit),)
        for name, bit in {
            "pni": 0,
            "ssse3": 9,
            "fma": 12,
            "cx16": 13,
            "sse4_1": 19,
            "sse4_2": 20,
            "movbe": 22,
            "popcnt": 23,
            "xsave": 26,
            "f16c": 29,
        }.items()
    },
    "avx": ((0, 28), (3, 1), (3, 2)),
    "bmi1": ((1, 3),),
    "avx2": ((1, 5),),
    "bmi2": ((1, 8),),
    "avx512f": ((1, 16), (3, 5), (3, 6), (3, 7)),
    "avx512dq": ((1, 17),),
    "avx512cd": ((1, 28),),
    "avx512bw": ((1, 30),),
    "avx512vl": ((1, 31),),
    "lahf_lm": ((2, 0),),
    "abm": ((2, 5),),
}

# ek_cpuid(leaf, subleaf, words): push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; mov [r8], eax;
# mov [r8+4], ebx; mov [r8+8], ecx; mov [r8+12], edx; pop rbx; ret
_CPUID: Final = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
# ek_xgetbv(): xor ecx, ecx; xgetbv; ret
_XGETBV: Final = bytes.fromhex("31c9 0f01d0 c3")


def baseline(target: Target) -> Target:
    """The target for code that runs before a level is chosen: that of the lowest level of its architecture."""
    lowest = map(lookup, (*LEVELS, "aarch64"))
    return next(each for each in lowest if each.architecture == target.architecture)


def levels_object(names: Sequence[str], target: Target, function: str = abi.ENTRY) -> ObjectFile:
    """The object that chooses among levels, with no other symbol.

    Args:
        names: targets of one architecture; others than those of `LEVELS` are taken to run on every machine.
        target: any of this architecture.
        function: the name of the function, and with `__` and a target behind it those of the levels.
    """
    base = baseline(target)
    order = [
        *(name for name in reversed(tuple(LEVELS)) if name in names),
        *(name for name in names if name not in LEVELS),
    ]
    door = kept_object(level_text(order, function), base)
    parts: list[bytes | ObjectFile] = [door]
    if base.architecture == "x86_64":
        parts.append(processor_object())
    return only(parts, {function})


def level_text(names: Sequence[str], function: str) -> str:
    """The function that chooses in LLVM IR; the first of the names is the best."""
    entries = "".join(f'declare i32 @"{function}__{name}"(ptr, ptr, ptr)\n' for name in names)
    checked = [name for name in names if name in LEVELS]
    sure = next((f'@"{function}__{name}"' for name in names if name not in LEVELS), "@below")
    lines, result = [], sure
    for number, name in enumerate(reversed(checked)):  # the best one last, so that it has the last word
        lines += [*_fits(number, name)]
        lines.append(f'  %best.{number} = select i1 %fits.{number}, ptr @"{function}__{name}", ptr {result}')
        result = f"%best.{number}"
    body = _READ + "\n".join(lines) if checked else "entry:"
    return f"""
{entries}
@chosen = internal global ptr null, align 8

define internal i32 @below(ptr %context, ptr %pointers, ptr %dims) {{
  ret i32 {NO_LEVEL}
}}

define i32 @{function}(ptr %context, ptr %pointers, ptr %dims) {{
entry:
  %known = load atomic ptr, ptr @chosen acquire, align 8
  %first = icmp eq ptr %known, null
  br i1 %first, label %choose, label %go
choose:
  %best = call ptr @choose()
  store atomic ptr %best, ptr @chosen release, align 8
  br label %go
go:
  %entry.of.level = phi ptr [ %known, %entry ], [ %best, %choose ]
  %status = musttail call i32 %entry.of.level(ptr %context, ptr %pointers, ptr %dims)
  ret i32 %status
}}

define internal ptr @choose() noinline {{
{body}
  ret ptr {result}
}}
{_DECLARED if checked else ""}"""


def _fits(number: int, name: str) -> list[str]:
    """Whether all bits of a level are set."""
    masks = [0, 0, 0, 0]
    for feature in LEVELS[name]:
        for word, bit in _BITS[feature]:
            masks[word] |= 1 << bit
    lines = []
    for word, mask in enumerate(masks):
        signed = mask - (1 << 32) if mask >> 31 else mask
        lines.append(f"  %some.{number}.{word} = and i32 %word.{word}, {signed}")
        lines.append(f"  %all.{number}.{word} = icmp eq i32 %some.{number}.{word}, {signed}")
    lines.append(f"  %low.{number} = and i1 %all.{number}.0, %all.{number}.1")
    lines.append(f"  %high.{number} = and i1 %all.{number}.2, %all.{number}.3")
    lines.append(f"  %fits.{number} = and i1 %low.{number}, %high.{number}")
    return lines


_DECLARED: Final = """
declare void @ek_cpuid(i32, i32, ptr)
declare i32 @ek_xgetbv()
"""

# Reads the four words. Leaf 0 says which leaves there are; bit 27 of CPUID 1 whether the system saves registers.
_READ: Final = """entry:
  %words = alloca [4 x i32], align 16
  %second.at = getelementptr inbounds i8, ptr %words, i64 4
  %third.at = getelementptr inbounds i8, ptr %words, i64 8
  call void @ek_cpuid(i32 0, i32 0, ptr %words)
  %leaves = load i32, ptr %words
  call void @ek_cpuid(i32 1, i32 0, ptr %words)
  %word.0 = load i32, ptr %third.at
  %saves = and i32 %word.0, 134217728
  %saving = icmp ne i32 %saves, 0
  br i1 %saving, label %saved, label %leaf
saved:
  %registers = call i32 @ek_xgetbv()
  br label %leaf
leaf:
  %word.3 = phi i32 [ 0, %entry ], [ %registers, %saved ]
  %seven = icmp uge i32 %leaves, 7
  br i1 %seven, label %newer, label %extended
newer:
  call void @ek_cpuid(i32 7, i32 0, ptr %words)
  %of.seven = load i32, ptr %second.at
  br label %extended
extended:
  %word.1 = phi i32 [ 0, %leaf ], [ %of.seven, %newer ]
  call void @ek_cpuid(i32 -2147483648, i32 0, ptr %words)
  %more = load i32, ptr %words
  %has = icmp ugt i32 %more, -2147483648
  br i1 %has, label %amd, label %decide
amd:
  call void @ek_cpuid(i32 -2147483647, i32 0, ptr %words)
  %of.amd = load i32, ptr %third.at
  br label %decide
decide:
  %word.2 = phi i32 [ 0, %extended ], [ %of.amd, %amd ]
"""


def processor_object() -> ObjectFile:
    """The object of the two functions that read what the processor can do."""
    start = -(-len(_CPUID) // 16) * 16
    code = _CPUID.ljust(start, b"\xcc") + _XGETBV
    flags, info = elf.SHF_ALLOC | elf.SHF_EXECINSTR, elf.STB_GLOBAL << 4 | elf.STT_FUNC
    nothing = Section(0, "", elf.SHT_NULL, 0, b"", 0, 0, 0, 1)
    text = Section(1, ".text", elf.SHT_PROGBITS, flags, code, len(code), 0, 0, 16)
    symbols = (
        Symbol("", 0, 0, elf.SHN_UNDEF, 0, 0),
        Symbol("ek_cpuid", info, 0, 1, 0, len(_CPUID)),
        Symbol("ek_xgetbv", info, 0, 1, start, len(_XGETBV)),
    )
    return ObjectFile(elf.X86_64.number, 0, 0, 0, (nothing, text), symbols, ())
