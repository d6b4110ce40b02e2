"""Faults of tinygrad's emulator, each shown by a few instructions that Einkorn's compiler does not emit.

A line of a program is its words in hexadecimal, then its assembly. Cases of kernels that need what is wrong are left
out for that family; as soon as the emulator is mended, `test_faults` says so.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from support.amd_emulator import emulator

_WAVE = {"cdna": 64, "rdna3": 32, "rdna4": 32}


@dataclass(frozen=True)
class Fault:
    """What the emulator does wrong.

    `programs` get the address of `before` in s[0:1] and run in two waves; `after` is the right memory.
    `instruction` matches the text of instructions that are always wrong; other faults depend on which lanes are off.
    """

    what: str
    programs: Mapping[str, str]
    before: tuple[int, ...]
    after: tuple[int, ...]
    instruction: str = ""

    def needed(self, family: str, asm: str) -> bool:
        """Whether code of a family has an instruction that is always wrong."""
        return family in self.programs and bool(self.instruction) and re.search(self.instruction, asm) is not None

    def run(self, family: str) -> NDArray[np.uint32]:
        """The memory after the program. May end the process."""
        lines = self.programs[family].strip().splitlines()
        words = [int(word, 16) for line in lines for word in re.findall(r"\b[0-9a-f]{8}\b", line)]
        code = np.array([*words, *[0] * 64], np.uint32)
        memory = np.array(self.before, np.uint32)
        argument = ctypes.c_uint64(memory.ctypes.data)
        at = ctypes.addressof(argument)
        launch = (1, 1, 1, 2 * _WAVE[family], 1, 1)
        shared_bytes = 1 << 15
        rsrc2 = 0x84 | shared_bytes
        size = 4 * len(words)
        emulator().run_asm(code.ctypes.data, size, *launch, at, rsrc2, 64, family, [at & 0xFFFFFFFF, at >> 32])
        return memory


FAULTS: Mapping[str, Fault] = {
    "returned": Fault(
        "an atomic operation returns nothing: of the bits `glc`, `sc0` and `th`, only `glc` is read",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                befe0181                    s_mov_b64 exec, 1
                7e020280                    v_mov_b32_e32 v1, 0
                7e040283                    v_mov_b32_e32 v2, 3
                dd098000 03020201           global_atomic_add v3, v1, v2, s[2:3] glc
                bf8c0f70                    s_waitcnt vmcnt(0)
                dc708004 00020301           global_store_dword v1, v3, s[2:3] offset:4
                bf810000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                befe0081                    s_mov_b32 exec_lo, 1
                7e020280                    v_mov_b32_e32 v1, 0
                7e040283                    v_mov_b32_e32 v2, 3
                ee0d4002 01100003 00000001  global_atomic_add_u32 v3, v1, v2, s[2:3] th:TH_ATOMIC_RETURN
                bfc00000                    s_wait_loadcnt 0x0
                ee068002 01800000 00000401  global_store_b32 v1, v3, s[2:3] offset:4
                bfb00000                    s_endpgm
            """,
        },
        (5, 0),
        (11, 8),
        r"(?m)^\s*(global|flat)_atomic_.*( glc| sc0|TH_ATOMIC_RETURN)",
    ),
    "compare and swap": Fault(
        "a compare-and-swap of 64 bits compares with the upper half of a word of 32 bits, shifted by 64",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040287                    v_mov_b32_e32 v2, 7
                7e060281                    v_mov_b32_e32 v3, 1
                7e080285                    v_mov_b32_e32 v4, 5
                7e0a0282                    v_mov_b32_e32 v5, 2
                dd848000 00020201           global_atomic_cmpswap_x2 v1, v[2:5], s[2:3]
                bf810000                    s_endpgm
            """,
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040287                    v_mov_b32_e32 v2, 7
                7e060281                    v_mov_b32_e32 v3, 1
                7e080285                    v_mov_b32_e32 v4, 5
                7e0a0282                    v_mov_b32_e32 v5, 2
                dd0a0000 00020201           global_atomic_cmpswap_b64 v1, v[2:5], s[2:3]
                bfb00000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040287                    v_mov_b32_e32 v2, 7
                7e060281                    v_mov_b32_e32 v3, 1
                7e080285                    v_mov_b32_e32 v4, 5
                7e0a0282                    v_mov_b32_e32 v5, 2
                ee108002 01000000 00000001  global_atomic_cmpswap_b64 v1, v[2:5], s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (5, 2),
        (7, 1),
        r"_atomic_cmpswap_(x2|b64)",
    ),
    "half a register": Fault(
        "a load of 16 bits from local memory into half a register writes the other half, too, and into the lower one",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040289                    v_mov_b32_e32 v2, 9
                7e060287                    v_mov_b32_e32 v3, 7
                d83e0000 00000301           ds_write_b16 v1, v3
                d8b60000 02000001           ds_read_u16_d16_hi v2, v1
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                dc708000 00020201           global_store_dword v1, v2, s[2:3]
                bf810000                    s_endpgm
            """,
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040289                    v_mov_b32_e32 v2, 9
                7e060287                    v_mov_b32_e32 v3, 7
                d87c0000 00000301           ds_store_b16 v1, v3
                da9c0000 02000001           ds_load_u16_d16_hi v2, v1
                bf89fc07                    s_waitcnt lgkmcnt(0)
                dc6a0000 00020201           global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e040289                    v_mov_b32_e32 v2, 9
                7e060287                    v_mov_b32_e32 v3, 7
                d87c0000 00000301           ds_store_b16 v1, v3
                da9c0000 02000001           ds_load_u16_d16_hi v2, v1
                bfc60000                    s_wait_dscnt 0x0
                ee068002 01000000 00000001  global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (0,),
        (0x70009,),
        r"(?m)^\s*ds_(load|read)_u(8|16)_d16_hi",
    ),
    "the other half": Fault(
        "a load of 8 bits from local memory into the lower half of a register clears the upper one",
        {
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                7e020280                    v_mov_b32_e32 v1, 0
                7e0402ff 00090000           v_mov_b32_e32 v2, 0x90000
                7e060287                    v_mov_b32_e32 v3, 7
                d8780000 00000301           ds_store_b8 v1, v3
                da880000 02000001           ds_load_u8_d16 v2, v1
                bf89fc07                    s_waitcnt lgkmcnt(0)
                dc6a0000 00020201           global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (0,),
        (0x90007,),
    ),
    "local reads": Fault(
        "a load from local memory reads for lanes that are off, at whatever address their register holds",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                2402009e                    v_lshlrev_b32_e32 v1, 30, v0
                befe0181                    s_mov_b64 exec, 1
                d86c0000 02000001           ds_read_b32 v2, v1
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                dc708000 00020201           global_store_dword v1, v2, s[2:3]
                bf810000                    s_endpgm
            """,
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                3002009e                    v_lshlrev_b32_e32 v1, 30, v0
                befe0081                    s_mov_b32 exec_lo, 1
                d8d80000 02000001           ds_load_b32 v2, v1
                bf89fc07                    s_waitcnt lgkmcnt(0)
                dc6a0000 00020201           global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                3002009e                    v_lshlrev_b32_e32 v1, 30, v0
                befe0081                    s_mov_b32 exec_lo, 1
                d8d80000 02000001           ds_load_b32 v2, v1
                bfc60000                    s_wait_dscnt 0x0
                ee068002 01000000 00000001  global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (9,),
        (0,),
    ),
    "permutation": Fault(
        "ds_bpermute writes 0 into lanes that are off, and reads registers that do not exist for their addresses",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                24020082                    v_lshlrev_b32_e32 v1, 2, v0
                7e040289                    v_mov_b32_e32 v2, 9
                befe0181                    s_mov_b64 exec, 1
                d87e0000 02000001           ds_bpermute_b32 v2, v1, v0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                befe0183                    s_mov_b64 exec, 3
                dc708000 00020201           global_store_dword v1, v2, s[2:3]
                bf810000                    s_endpgm
            """,
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                30020082                    v_lshlrev_b32_e32 v1, 2, v0
                7e040289                    v_mov_b32_e32 v2, 9
                befe0081                    s_mov_b32 exec_lo, 1
                dacc0000 02000001           ds_bpermute_b32 v2, v1, v0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                befe0083                    s_mov_b32 exec_lo, 3
                dc6a0000 00020201           global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                30020082                    v_lshlrev_b32_e32 v1, 2, v0
                7e040289                    v_mov_b32_e32 v2, 9
                befe0081                    s_mov_b32 exec_lo, 1
                dacc0000 02000001           ds_bpermute_b32 v2, v1, v0
                bfc60000                    s_wait_dscnt 0x0
                befe0083                    s_mov_b32 exec_lo, 3
                ee068002 01000000 00000001  global_store_b32 v1, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (7, 7),
        (0, 9),
    ),
    "private memory": Fault(
        "all waves of a group have the same private memory",
        {
            "cdna": """
                c0060080 00000000           s_load_dwordx2 s[2:3], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                260000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                20020086                    v_lshrrev_b32_e32 v1, 6, v0
                dc704000 007f0100           scratch_store_dword off, v1, off
                bf8a0000                    s_barrier
                dc504000 027f0000           scratch_load_dword v2, off, off
                bf8c0f70                    s_waitcnt vmcnt(0)
                24060282                    v_lshlrev_b32_e32 v3, 2, v1
                dc708000 00020203           global_store_dword v3, v2, s[2:3]
                bf810000                    s_endpgm
            """,
            "rdna3": """
                f4040080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bf89fc07                    s_waitcnt lgkmcnt(0)
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                32020085                    v_lshrrev_b32_e32 v1, 5, v0
                dc690000 007c0100           scratch_store_b32 off, v1, off
                bfbd0000                    s_barrier
                dc510000 027c0000           scratch_load_b32 v2, off, off
                bf8903f7                    s_waitcnt vmcnt(0)
                30060282                    v_lshlrev_b32_e32 v3, 2, v1
                dc6a0000 00020203           global_store_b32 v3, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
            "rdna4": """
                f4002080 f8000000           s_load_b64 s[2:3], s[0:1], 0x0
                bfc70000                    s_wait_kmcnt 0x0
                360000ff 0000007f           v_and_b32_e32 v0, 0x7f, v0
                32020085                    v_lshrrev_b32_e32 v1, 5, v0
                ed06807c 00800000 00000000  scratch_store_b32 off, v1, off
                be804ec1                    s_barrier_signal -1
                bf94ffff                    s_barrier_wait -1
                ed05007c 00000002 00000000  scratch_load_b32 v2, off, off
                bfc00000                    s_wait_loadcnt 0x0
                30060282                    v_lshlrev_b32_e32 v3, 2, v1
                ee068002 01000000 00000003  global_store_b32 v3, v2, s[2:3]
                bfb00000                    s_endpgm
            """,
        },
        (9, 9),
        (0, 1),
    ),
    "swizzle": Fault(
        "a buffer instruction neither adds the lane to the index nor swizzles, as the buffer's descriptor requests",
        {
            "cdna": """
                c0060100 00000000           s_load_dwordx2 s[4:5], s[0:1], 0x0
                bf8cc07f                    s_waitcnt lgkmcnt(0)
                be851a9f                    s_bitset1_b32 s5, 31
                b0060200                    s_movk_i32 s6, 0x200
                be8700ff 00e00000           s_mov_b32 s7, 0xe00000
                7e020287                    v_mov_b32_e32 v1, 7
                befe0183                    s_mov_b64 exec, 3
                e0700000 80010100           buffer_store_dword v1, off, s[4:7], 0
                bf810000                    s_endpgm
            """,
        },
        (5, 5),
        (7, 7),
        r"(?m)^\s*buffer_(load|store)_",
    ),
}
