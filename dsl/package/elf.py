"""Names the numbers and records of ELF that the linker writes, and that are read before code of a package is mapped.

See also `compiler.codegen.elf` and `dsl.package.shared_object`.

The numbers are those of the System V ABI, its processor supplements, and LLVM's AMDGPU user guide.
"""

from __future__ import annotations

import struct
from typing import Final

from ..diagnostics.dataclass import dataclass

FILE_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
RELA: Final = struct.Struct("<QQq")
DYNAMIC_ENTRY: Final = struct.Struct("<QQ")

IDENTITY: Final = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1; the ABI and its version follow
ET_REL, ET_DYN = 1, 3
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_GNU_STACK = 1, 2, 4, 6, 0x6474E551
R, RX, RW = 4, 5, 6  # flags of segments
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_BIND_NOW, DT_FLAGS_1 = 10, 11, 14, 24, 0x6FFFFFFB
DT_FINI_ARRAY, DT_FINI_ARRAYSZ = 26, 28
SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS = range(9)
SHT_REL, SHT_DYNSYM, SHT_FINI_ARRAY = 9, 11, 15
CONSTRUCTOR_TYPES: Final = frozenset({14, SHT_FINI_ARRAY, 16})  # SHT_INIT_ARRAY, SHT_PREINIT_ARRAY
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_COMPRESSED = 0x1, 0x2, 0x4, 0x400, 0x800
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 3, 4, 6, 10
STV_DEFAULT, STV_PROTECTED = 0, 3


@dataclass(frozen=True)
class ElfMachine:
    """One architecture: its number, its largest page, and the relocations that are left to the loader.

    `pointer` is a 64-bit address, `relative` one against the image's own base, `slot` the address of a symbol in the
    offset table.
    """

    number: int
    name: str
    page: int
    pointer: int
    relative: int
    slot: int


X86_64: Final = ElfMachine(62, "x86-64", 0x1000, pointer=1, relative=8, slot=6)  # R_X86_64_64, RELATIVE, GLOB_DAT
AARCH64: Final = ElfMachine(  # pages of 64 KB; R_AARCH64_ABS64, RELATIVE, GLOB_DAT
    183, "aarch64", 0x10000, pointer=257, relative=1027, slot=1025
)
AMDGPU: Final = ElfMachine(224, "AMDGPU", 0x1000, pointer=3, relative=13, slot=3)  # R_AMDGPU_ABS64, RELATIVE64, ABS64


def hash_name(name: str) -> int:
    """The hash of a symbol's name as the System V ABI has it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value
