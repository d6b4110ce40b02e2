"""Applies relocations: the kinds of each machine, how each is stored, and the stub for a call outside.

The letters are the ABI documents' own: S is the address of the symbol (or of its slot in the offset table, or of its
stub), A the addend, P the address of the patch. See also `codegen.elf.linker` (choosing S is the linker's task).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.package import elf
from .object_file import fault

Formula = Callable[[int, int], int]  # (S + A, P) -> value
Store = Callable[[bytearray, int, int], None]  # (data, offset, value)


@dataclass(frozen=True)
class Linked(elf.ElfMachine):
    """An architecture that is linked for.

    A relocation of kind `pointer` becomes a dynamic one: `relative`, or `pointer` against an undefined symbol. `slots`
    are kinds that want the address of the symbol's slot in the offset table, `calls` those that may go through a stub,
    `debug_only` those that hold a whole address in less than a pointer: right in debug sections, wrong in code that may
    be loaded anywhere.
    """

    slots: frozenset[int]
    calls: frozenset[int]
    debug_only: frozenset[int]
    patches: Mapping[int, tuple[Formula, Store]]
    stub: Callable[[int, int], bytes] | None

    def patch(self, data: bytearray, offset: int, kind: int, value: int, place: int) -> None:
        """Applies one relocation; `value` is S + A and `place` is P.

        Raises:
            InternalError: the kind is not handled, or the value does not fit.
        """
        if kind not in self.patches:
            raise fault(f"relocation {kind} of {self.name} is not handled")
        formula, store = self.patches[kind]
        try:
            store(data, offset, formula(value, place))
        except (struct.error, OverflowError):
            raise fault(f"relocation {kind} of {self.name} does not reach its symbol") from None


def _absolute(value: int, place: int) -> int:
    return value


def _relative(value: int, place: int) -> int:
    return value - place


def _pages(value: int, place: int) -> int:
    return (value >> 12) - (place >> 12)


def _field(form: str, shift: int = 0, mask: int | None = None) -> Store:
    """Stores a whole number, after taking some of its bits where a mask is given."""
    packing = struct.Struct(form)

    def store(data: bytearray, offset: int, value: int) -> None:
        packing.pack_into(data, offset, value if mask is None else value >> shift & mask)

    return store


_I32, _U32, _I64, _U64 = _field("<i"), _field("<I"), _field("<q"), _field("<Q")
_LOW32, _HIGH32 = _field("<I", 0, 0xFFFFFFFF), _field("<I", 32, 0xFFFFFFFF)


def _store_branch16(data: bytearray, offset: int, value: int) -> None:
    # AMDGPU counts a branch in instruction words from the next instruction.
    struct.pack_into("<h", data, offset, (value - 4) >> 2)


def _instruction(bits: int, position: int, scale: int = 0, wrap: bool = False) -> Store:
    """Stores a signed field of an AArch64 instruction, in units of 2**scale; `wrap` keeps the low 12 bits only."""

    def store(data: bytearray, offset: int, value: int) -> None:
        if wrap:
            value &= 0xFFF
        elif not -(1 << (bits + scale - 1)) <= value < 1 << (bits + scale - 1):
            raise OverflowError
        if value & ((1 << scale) - 1):
            raise OverflowError
        (word,) = struct.unpack_from("<I", data, offset)
        mask = (1 << bits) - 1
        word = word & ~(mask << position) | (value >> scale & mask) << position
        struct.pack_into("<I", data, offset, word)

    return store


def _store_adr(data: bytearray, offset: int, value: int) -> None:
    # ADR and ADRP keep the two low bits of their 21 apart from the rest.
    if not -(1 << 20) <= value < 1 << 20:
        raise OverflowError
    (word,) = struct.unpack_from("<I", data, offset)
    word = word & ~(3 << 29 | 0x7FFFF << 5) | (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5
    struct.pack_into("<I", data, offset, word)


def _x86_stub(address: int, slot: int) -> bytes:
    # jmp *slot(%rip), padded to 16 bytes.
    return (b"\xff\x25" + struct.pack("<i", slot - (address + 6))).ljust(16, b"\xcc")


def _aarch64_stub(address: int, slot: int) -> bytes:
    # adrp x16, slot; ldr x17, [x16, #:lo12:slot]; br x17; nop
    code = bytearray(struct.pack("<IIII", 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F))
    _store_adr(code, 0, _pages(slot, address))
    _instruction(12, 10, scale=3, wrap=True)(code, 4, slot)
    return bytes(code)


_X86_64 = Linked(
    **vars(elf.X86_64),
    slots=frozenset({9, 41, 42}),  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
    calls=frozenset({2, 4}),  # PC32, PLT32
    debug_only=frozenset({10, 11}),  # 32, 32S
    patches={
        1: (_absolute, _U64),
        **dict.fromkeys((2, 4, 9, 41, 42), (_relative, _I32)),
        24: (_relative, _I64),  # PC64
        10: (_absolute, _U32),
        11: (_absolute, _I32),
    },
    stub=_x86_stub,
)

_AMDGPU = Linked(
    **vars(elf.AMDGPU),
    slots=frozenset({7, 8, 9}),  # GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI
    calls=frozenset(),
    debug_only=frozenset({6}),  # ABS32
    patches={
        3: (_absolute, _U64),
        4: (_relative, _I32),  # REL32
        5: (_relative, _I64),  # REL64
        6: (_absolute, _U32),
        7: (_relative, _I32),
        **dict.fromkeys((8, 10), (_relative, _LOW32)),  # REL32_LO
        **dict.fromkeys((9, 11), (_relative, _HIGH32)),  # REL32_HI
        14: (_relative, _store_branch16),  # REL16
    },
    stub=None,
)

_AARCH64 = Linked(
    **vars(elf.AARCH64),
    slots=frozenset({311, 312}),  # ADR_GOT_PAGE, LD64_GOT_LO12_NC
    calls=frozenset({261, 282, 283, 314}),  # PREL32, JUMP26, CALL26, PLT32
    debug_only=frozenset({258}),  # ABS32
    patches={
        257: (_absolute, _U64),
        258: (_absolute, _U32),
        260: (_relative, _I64),  # PREL64
        **dict.fromkeys((261, 314), (_relative, _I32)),
        273: (_relative, _instruction(19, 5, scale=2)),  # LD_PREL_LO19
        274: (_relative, _store_adr),  # ADR_PREL_LO21
        **dict.fromkeys((275, 311), (_pages, _store_adr)),  # ADR_PREL_PG_HI21
        277: (_absolute, _instruction(12, 10, wrap=True)),  # ADD_ABS_LO12_NC
        278: (_absolute, _instruction(12, 10, wrap=True)),  # LDST8_ABS_LO12_NC
        279: (_relative, _instruction(14, 5, scale=2)),  # TSTBR14
        280: (_relative, _instruction(19, 5, scale=2)),  # CONDBR19
        **dict.fromkeys((282, 283), (_relative, _instruction(26, 0, scale=2))),
        284: (_absolute, _instruction(12, 10, scale=1, wrap=True)),  # LDST16_ABS_LO12_NC
        285: (_absolute, _instruction(12, 10, scale=2, wrap=True)),  # LDST32_ABS_LO12_NC
        **dict.fromkeys((286, 312), (_absolute, _instruction(12, 10, scale=3, wrap=True))),  # LDST64_ABS_LO12_NC
        299: (_absolute, _instruction(12, 10, scale=4, wrap=True)),  # LDST128_ABS_LO12_NC
    },
    stub=_aarch64_stub,
)

MACHINES: Final[Mapping[int, Linked]] = {machine.number: machine for machine in (_X86_64, _AARCH64, _AMDGPU)}
