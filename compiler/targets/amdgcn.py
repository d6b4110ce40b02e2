"""Describes AMD's targets: LLVM's AMDGPU makes an object, which `codegen.elf` links into a code object (.hsaco).

Facts are from LLVM's "User Guide for AMDGPU Backend" (processors, memory model, code objects) and AMD's instruction set
manuals. The block size is a constant of every kernel, and the grid is passed as an argument: reading either would need
the runtime's hidden arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...dsl.contract.code_formats import HSACO
from ...dsl.contract.gpus import RESIDENT
from .base import (
    COMMON_INTRINSICS,
    AddressSpaces,
    DotOperations,
    GridOperations,
    Intrinsics,
    LaneMove,
    Limits,
    Target,
    WarpOperations,
)

TRIPLE: Final = "amdgcn-amd-amdhsa"
DATA_LAYOUT: Final = (
    "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48"
    "-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024"
    "-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)


def _dpp(control: int) -> LaneMove:
    """A move within rows of 16 lanes, which is part of the operation that uses what it gives where LLVM finds that."""
    return LaneMove(f"rocdl.update.dpp {{poison}}, {{value}} with {control}, 15, 15, true : i32")


# Controls of data-parallel primitives (DPP) that all generations have, as the ISA manuals of CDNA 3 and RDNA 3 list
# them: which lane of a row of 16 is read. Four lanes are permuted, a row is turned by 8, rows and halves are mirrored.
_OF_FOUR: Final = {1: 0b10_11_00_01, 2: 0b01_00_11_10, 3: 0b00_01_10_11}
_TURNED_BY_8, _MIRRORED, _HALF_MIRRORED = 0x128, 0x140, 0x141


def _exchanges(lanes: int) -> dict[int, tuple[LaneMove, ...]]:
    """The lanes whose numbers differ in some bits, without addresses: of wave64 within rows, of RDNA's wave32 all."""
    within = {bits: _within_rows(bits) for bits in range(16)}
    if lanes == 64:
        return within
    rows = LaneMove(
        'llvm.call_intrinsic "llvm.amdgcn.permlanex16"({poison}, {value}, {0}, {1}, {true}, {false})'
        " : (i32, i32, i32, i32, i1, i1) -> i32",
        (0x76543210, 0xFEDCBA98 - (1 << 32)),
    )
    return within | {16 | bits: (*moves, rows) for bits, moves in within.items()}


def _within_rows(bits: int) -> tuple[LaneMove, ...]:
    """The lanes of a row whose numbers differ in some of four bits."""
    if bits == 15:
        return (_dpp(_MIRRORED),)
    moves = [_dpp(_TURNED_BY_8)] if bits & 8 else []
    moves += [_dpp(_HALF_MIRRORED)] if bits & 4 else []
    rest = bits & 3 ^ (3 if bits & 4 else 0)
    return (*moves, *([_dpp(_OF_FOUR[rest])] if rest else []))


def _warp(lanes: int) -> WarpOperations:
    """Lanes read each other's registers by address where nothing better is known; a lane counts those before it."""
    count = 'llvm.call_intrinsic "llvm.amdgcn.mbcnt.{half}"({all}, {before}) : (i32, i32) -> i32'
    low = count.replace("{half}", "lo").replace("{before}", "{zero}")
    return WarpOperations(
        lane=(low,) if lanes == 32 else (low, count.replace("{half}", "hi")),
        shuffle='llvm.call_intrinsic "llvm.amdgcn.ds.bpermute"({address}, {value}) : (i32, i32) -> i32',
        shuffle_by="",
        ballot=f'llvm.call_intrinsic "llvm.amdgcn.ballot.i{lanes}"({{predicate}}) : (i1) -> i{lanes}',
        match="",
        exchange=_exchanges(lanes),
        broadcast='llvm.call_intrinsic "llvm.amdgcn.readlane"({value}, {lane}) : (i32, i32) -> i32',
    )


_GRID: Final = GridOperations(
    thread_id="rocdl.workitem.id.{axis} : i32",
    block_id="rocdl.workgroup.id.{axis} : i32",
    block_dim=None,
    grid_dim=None,
    # The barrier alone orders nothing: the fences make earlier stores visible to the block.
    barrier=(
        'llvm.fence syncscope("workgroup") release',
        "rocdl.s.barrier",
        'llvm.fence syncscope("workgroup") acquire',
    ),
    # Without the flat size AMDGPU assumes blocks of any size up to 256 threads, and larger launches fail.
    attributes=(
        "rocdl.kernel, rocdl.reqd_work_group_size = array<i32: {x}, {y}, {z}>, "
        'rocdl.flat_work_group_size = "{threads},{threads}"'
    ),
    warp=_warp(32),
    # A multiprocessor is four SIMDs: a compute unit of CDNA, two of RDNA, which LLVM's code takes together.
    wishes={
        "max_registers": 'passthrough = [["amdgpu-num-vgpr", "{n}"]]',  # vector registers
        "min_blocks": "rocdl.waves_per_eu = {warps} : i32",
    },
    sync_warp=(
        'llvm.fence syncscope("wavefront") release',
        'llvm.call_intrinsic "llvm.amdgcn.wave.barrier"() : () -> ()',
        'llvm.fence syncscope("wavefront") acquire',
    ),
)

# Measured by compiling each in a process of its own: everything else ends the process.
_NARROW = frozenset({"f16", "bf16", "f32"})
_INTRINSICS = Intrinsics(
    allowed={
        **dict.fromkeys(
            (*COMMON_INTRINSICS, "llvm.amdgcn.*", "llvm.masked.*", "llvm.ldexp", "llvm.frexp.exp", "llvm.frexp.mant"),
            None,
        ),
        **dict.fromkeys(("llvm.exp", "llvm.exp2", "llvm.log", "llvm.log2", "llvm.sin", "llvm.cos"), _NARROW),
    },
    approximate=frozenset({"llvm.sin", "llvm.cos"}),
    instructions=("frem",),
)

_DOT = 'llvm.call_intrinsic "llvm.amdgcn.{name}"({{a}}, {{b}}, {{acc}}, {{false}}) : (i32, i32, i32, i1) -> i32'
_MIXED = (
    'llvm.call_intrinsic "llvm.amdgcn.sudot4"({false}, {a}, {true}, {b}, {acc}, {false})'
    " : (i1, i32, i1, i32, i32, i1) -> i32"
)
_DOTS: Final = DotOperations(
    lanes=(1,), forms={"ss": _DOT.format(name="sdot4"), "uu": _DOT.format(name="udot4")}, of_words=True
)
_RDNA3_DOTS: Final = replace(_DOTS, forms={**_DOTS.forms, "us": _MIXED})

_RDNA2 = frozenset({"fma", "f16c", "f16", "int8_dot", "v_exp"})
_CDNA1 = _RDNA2 | {"tensor_cores", "f16_mma", "bf16_mma", "int8_mma"}
_COMMON = _CDNA1 | {"atomics_f32"}
_CDNA2 = _COMMON | {"atomics_f64", "f64_mma", "mfma"}
_CDNA3 = _CDNA2 | {"fp8_mma", "async_copy", "mfma_8_bytes"}
_RDNA3 = _COMMON | {"wmma", "wmma_rows"}
_RDNA4 = _COMMON | {"wmma", "wmma_parts", "fp8_mma", "fp8_ocp"}

# Vector and accumulation registers are one file here, and LLVM doubles what the attribute says.
_ONE_FILE = frozenset({"gfx90a", "gfx942", "gfx950"})
_WISHES_OF_HALVES = {**_GRID.wishes, "max_registers": 'passthrough = [["amdgpu-num-vgpr", "{half}"]]'}


def _target(name: str, lanes: int, capabilities: frozenset[str], shared_memory: int = 64) -> Target:
    return Target(
        name=name,
        kind="hip",
        triple=TRIPLE,
        data_layout=DATA_LAYOUT,
        cpu=name,
        features=f"+wavefrontsize{lanes}",
        format=HSACO,
        capabilities=capabilities,
        intrinsics=_INTRINSICS,
        dots=_RDNA3_DOTS if lanes == 32 and "int8_mma" in capabilities else _DOTS,
        lanes=lanes,
        vector_bits=128,
        scopes={"block": "workgroup", "cluster": "workgroup", "device": "agent", "system": ""},
        saturating_casts=True,
        returns_behind_traps=name.startswith("gfx110"),
        spaces=AddressSpaces(global_memory=1, shared_memory=3, stack=5),
        limits=Limits(
            threads_per_block=1024,
            block=(1024, 1024, 1024),
            grid=(2**31 - 1,) * 3,
            axis_threads=2**32 - 1,
            static_shared_memory=shared_memory * 1024,
            shared_memory=shared_memory * 1024,
            multiprocessors=RESIDENT[name].multiprocessors,
            resident_threads=RESIDENT[name].threads,
            resident_shared_memory=shared_memory * 1024,
        ),
        grid=replace(_GRID, warp=_warp(lanes), wishes=_WISHES_OF_HALVES if name in _ONE_FILE else _GRID.wishes),
        dialect="rocdl",
    )


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        _target("gfx908", 64, _CDNA1),
        _target("gfx90a", 64, _CDNA2),
        _target("gfx942", 64, _CDNA3 | {"tf32_mma", "fp8_fnuz"}),
        _target("gfx950", 64, _CDNA3 | {"bf16_convert", "mfma_16_bytes", "mfma_32_bytes", "fp8_ocp"}, 160),
        _target("gfx1030", 32, _RDNA2),
        _target("gfx1100", 32, _RDNA3),
        _target("gfx1101", 32, _RDNA3),
        _target("gfx1151", 32, _RDNA3),
        _target("gfx1200", 32, _RDNA4),
        _target("gfx1201", 32, _RDNA4),
    )
}
