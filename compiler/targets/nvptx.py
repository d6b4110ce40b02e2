"""Describes NVIDIA's targets: LLVM's NVPTX makes PTX text, which the driver or ptxas assembles.

Each target requests the lowest PTX version that has its architecture, so that the code loads on the oldest driver
possible. Facts are from NVIDIA's PTX ISA manual ("Release Notes" and "Target ISA Notes" of each instruction) and the
CUDA programming guide's table of compute capabilities.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...dsl.contract.abi import TENSOR_MAP_RANK
from ...dsl.contract.code_formats import PTX
from ...dsl.contract.gpus import RESIDENT
from ...dsl.diagnostics.errors import InternalError, TargetError
from .base import (
    COMMON_INTRINSICS,
    AddressSpaces,
    BulkOperations,
    CopyOperations,
    DotOperations,
    GridOperations,
    Intrinsics,
    Limits,
    Target,
    WarpOperations,
)

TRIPLE: Final = "nvptx64-nvidia-cuda"
DATA_LAYOUT: Final = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

_REGISTER = "nvvm.read.ptx.sreg"
GRID: Final = GridOperations(
    thread_id=f"{_REGISTER}.tid.{{axis}} : i32",
    block_id=f"{_REGISTER}.ctaid.{{axis}} : i32",
    block_dim=f"{_REGISTER}.ntid.{{axis}} : i32",
    grid_dim=f"{_REGISTER}.nctaid.{{axis}} : i32",
    barrier=("nvvm.barrier",),
    attributes="nvvm.kernel, nvvm.reqntid = array<i32: {x}, {y}, {z}>",
    warp=WarpOperations(
        lane=(f"{_REGISTER}.laneid : i32",),
        shuffle="nvvm.shfl.sync idx {mask}, {value}, {lane}, {last} : i32 -> i32",
        shuffle_by="nvvm.shfl.sync {kind} {mask}, {value}, {amount}, {last} : i32 -> i32",
        ballot="nvvm.vote.sync ballot {mask}, {predicate} -> i32",
        match="nvvm.match.sync any {mask}, {value} : i32 -> i32",
    ),
    wishes={
        "cluster": "nvvm.cluster_dim = array<i32: {n}>",
        "max_registers": "nvvm.maxnreg = {n} : i32",
        "min_blocks": "nvvm.minctasm = {n} : i32",
    },
    named_barrier="nvvm.barrier id = {id}{threads}",
    sync_warp=("nvvm.bar.warp.sync {mask} : i32",),
    sync_cluster=("nvvm.cluster.arrive {aligned}", "nvvm.cluster.wait {aligned}"),
    peer="nvvm.mapa {pointer}, {rank} : !llvm.ptr<3> -> !llvm.ptr<7>",
)
_COPY = "nvvm.cp.async.shared.global {to}, {source}, {bytes}, cache = "
_COPIED = " : !llvm.ptr<3>, !llvm.ptr<1>"
_CACHES = {4: "ca", 8: "ca", 16: "cg"}  # only 16 bytes can go past the first cache
ASYNC_GRID: Final = replace(
    GRID,
    copies=CopyOperations(
        copy={size: f"{_COPY}{cache}{_COPIED}" for size, cache in _CACHES.items()},
        masked={size: f"{_COPY}{cache}, {{taken}}{_COPIED}, i32" for size, cache in _CACHES.items()},
        commit="nvvm.cp.async.commit.group",
        wait="nvvm.cp.async.wait.group {pending}",
    ),
)
_EFFECT = 'llvm.inline_asm has_side_effects "{text}", "{constraints},~{{{{memory}}}}" '


def _of_barrier(text: str, constraints: str, operands: str, signature: str) -> str:
    """An instruction that LLVM has no name for, or none that both of its versions know."""
    return f"{_EFFECT.format(text=text, constraints=constraints)}{operands} : {signature}"


def _copy_box(rank: int, to: str, *, to_all: bool = False) -> str:
    """A bulk copy of a part of a tensor of so many axes, described by a map, to shared memory of a cluster or block."""
    coordinates = ", ".join(f"${3 + k}" for k in range(rank))
    text = f"cp.async.bulk.tensor.{rank}d.shared::{to}.global.mbarrier::complete_tx::bytes"
    operands = ", ".join(["{to}, {map}, {barrier}", *(f"{{c{k}}}" for k in range(rank)), *["{blocks}"] * to_all])
    kind, mask = (".multicast::cluster", f", ${3 + rank}") if to_all else ("", "")
    return _of_barrier(
        f"{text}{kind} [$0], [$1, {{{{{coordinates}}}}}], [$2]{mask};",
        f"l,l,l{',r' * rank}{',h' * to_all}",
        operands,
        f"(!llvm.ptr<3>, !llvm.ptr, !llvm.ptr<3>{', i32' * rank}{', i16' * to_all}) -> ()",
    )


_RANKS = range(2, TENSOR_MAP_RANK + 1)
_REGISTERS = 'llvm.inline_asm has_side_effects "setmaxnreg.{}.sync.aligned.u32 {{count}};", "" : () -> ()'
_TEST = "{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }}"
BULK_GRID: Final = replace(
    ASYNC_GRID,
    bulk=BulkOperations(
        begin=_of_barrier(
            "mbarrier.init.shared::cta.b64 [$0], $1;", "l,r", "{barrier}, {warps}", "(!llvm.ptr<3>, i32) -> ()"
        ),
        order='llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{{memory}}" : () -> ()',
        announce=_of_barrier(
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$0], $1;",
            "l,r",
            "{barrier}, {bytes}",
            "(!llvm.ptr<3>, i32) -> ()",
        ),
        copy=_of_barrier(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
            "l,l,r,l",
            "{to}, {source}, {bytes}, {barrier}",
            "(!llvm.ptr<3>, !llvm.ptr<1>, i32, !llvm.ptr<3>) -> ()",
        ),
        arrive=_of_barrier(
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];", "l", "{barrier}", "(!llvm.ptr<3>) -> ()"
        ),
        expect=_of_barrier(
            "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;",
            "l,r",
            "{barrier}, {bytes}",
            "(!llvm.ptr<3>, i32) -> ()",
        ),
        copy_box={rank: _copy_box(rank, "cluster") for rank in _RANKS},
        copy_box_to_all={rank: _copy_box(rank, "cluster", to_all=True) for rank in _RANKS},
        arrive_there=_of_barrier(
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];", "l", "{barrier}", "(!llvm.ptr<7>) -> ()"
        ),
        expect_there=_of_barrier(
            "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [$0], $1;",
            "l,r",
            "{barrier}, {bytes}",
            "(!llvm.ptr<7>, i32) -> ()",
        ),
        ended_in_cluster=_of_barrier(
            _TEST.replace("parity.", "parity.acquire.cluster."),
            "=r,l,r",
            "{barrier}, {parity}",
            "(!llvm.ptr<3>, i32) -> i32",
        ),
        order_all='llvm.inline_asm has_side_effects "fence.proxy.async;", "~{{memory}}" : () -> ()',
        fetch_map=_of_barrier("prefetch.tensormap [$0];", "l", "{map}", "(!llvm.ptr) -> ()"),
        ended=_of_barrier(_TEST, "=r,l,r", "{barrier}, {parity}", "(!llvm.ptr<3>, i32) -> i32"),
    ),
)
_MOVES = {more: _REGISTERS.format("inc" if more else "dec") for more in (False, True)}


def _bulk_grid(ptx: int, *, own: bool = False) -> GridOperations:
    """What kernels of a version of PTX have; with registers that move between warps where code is for one GPU alone.

    Where PTX says that a tensor is copied to the block's own memory, code for sm_120 does without a call.
    """
    assert BULK_GRID.bulk is not None
    bulk = BULK_GRID.bulk
    if ptx >= BLOCK_PTX:
        bulk = replace(bulk, copy_box={rank: _copy_box(rank, "cta") for rank in _RANKS})
    return replace(BULK_GRID, bulk=bulk, registers=_MOVES if own else {})


_DOT = 'llvm.call_intrinsic "llvm.nvvm.idp4a.{a}.{b}"({{a}}, {{b}}, {{acc}}) : (i32, i32, i32) -> i32'
_DOTS: Final = DotOperations(
    lanes=(1,),
    forms={signs: _DOT.format(a=signs[0], b=signs[1]) for signs in ("ss", "uu", "us")},
    of_words=True,
)
_PREFETCH = tuple(f"prefetch.global.{level} [$0];" for level in ("L2", "L2", "L2", "L1"))

# Measured by compiling each in a process of its own: everything else ends the process ("no libcall available").
_NARROW = frozenset({"f16", "bf16", "f32"})
_INTRINSICS = Intrinsics(
    allowed={
        **dict.fromkeys((*COMMON_INTRINSICS, "llvm.masked.*", "llvm.nvvm.*"), None),
        "llvm.exp2": _NARROW,
        "llvm.sin": _NARROW,
        "llvm.cos": _NARROW,
    },
    approximate=frozenset({"llvm.exp2", "llvm.sin", "llvm.cos"}),
    instructions=("frem",),
)
_INTRINSICS_SM80 = Intrinsics(
    allowed={**_INTRINSICS.allowed, "llvm.tanh": _NARROW},
    approximate=_INTRINSICS.approximate | {"llvm.tanh"},
    instructions=_INTRINSICS.instructions,
)

_TURING = frozenset(
    {
        "fma",
        "ex2",
        "f16c",
        "f16",
        "int8_dot",
        "atomics_f32",
        "atomics_f64",
        "tensor_cores",
        "mma_sync",
        "f16_mma",
        "int8_mma",
        "named_barriers",
    }
)
_AMPERE = _TURING | {"bf16_mma", "bf16_convert", "tf32_mma", "f64_mma", "async_copy"}
_ADA = _AMPERE | {"fp8_mma"}
_HOPPER = _ADA | {"bf16", "clusters", "tma"}


BULK_PTX: Final = 80  # ten times the first version of PTX that has bulk copies
BLOCK_PTX: Final = 86  # ten times the first version of PTX that copies tensors to the block's own memory
FLOAT8_PTX: Final = 84  # ten times the first version of PTX in which mma.sync takes 8-bit floats


def _target(name: str, ptx: int, capabilities: frozenset[str], shared_memory: int) -> Target:
    """`ptx` is ten times the PTX version; `shared_memory` the opt-in maximum of one block."""
    bulk = "tma" in capabilities and ptx >= BULK_PTX
    return Target(
        name=name,
        kind="cuda",
        triple=TRIPLE,
        data_layout=DATA_LAYOUT,
        cpu=name,
        features=f"+ptx{ptx}",
        format=PTX,
        capabilities=capabilities
        | ({"fp8_mma_sync"} if ptx >= FLOAT8_PTX else set())
        | ({"bulk_copy"} if bulk else set()),
        intrinsics=_INTRINSICS if name == "sm_75" else _INTRINSICS_SM80,
        dots=_DOTS,
        lanes=32,
        vector_bits=128,
        scopes={
            "block": "block",
            "cluster": "cluster" if "clusters" in capabilities else "block",
            "device": "device",
            "system": "",
        },
        atomic_scopes={
            "block": "cta",
            "cluster": "cluster" if "clusters" in capabilities else "cta",
            "system": "sys",
        },
        keeps_atomic_order=False,
        saturating_casts=True,
        prefetch=_PREFETCH,
        spaces=AddressSpaces(global_memory=1, shared_memory=3, stack=0, cluster_memory=7),
        limits=Limits(
            threads_per_block=1024,
            block=(1024, 1024, 64),
            grid=(2**31 - 1, 65535, 65535),
            static_shared_memory=48 * 1024,
            shared_memory=shared_memory * 1024,
            multiprocessors=RESIDENT[name].multiprocessors,
            resident_threads=RESIDENT[name].threads,
            resident_blocks=RESIDENT[name].blocks,
            resident_shared_memory=RESIDENT[name].shared_memory,
        ),
        grid=_bulk_grid(ptx) if bulk else ASYNC_GRID if "async_copy" in capabilities else GRID,
        dialect="nvvm",
        mlir_passes=("convert-nvvm-to-llvm",),
        debug_info="DebugDirectivesOnly",
    )


def _with_own(target: Target, feature: str, ptx: int = 0) -> Target:
    """The processor of a target with what only code for exactly this processor may use: `sm_90a` of `sm_90`."""
    newest = max(ptx, int(target.features.removeprefix("+ptx")))
    bulk = newest >= BULK_PTX
    return replace(
        target,
        name=f"{target.name}a",
        cpu=f"{target.cpu}a",
        features=f"+ptx{ptx}" if ptx else target.features,
        capabilities=target.capabilities | {feature} | ({"bulk_copy", "set_registers"} if bulk else set()),
        grid=_bulk_grid(newest, own=True) if bulk else target.grid,
    )


_SM90 = _target("sm_90", 78, _HOPPER, 227)
_SM100 = _target("sm_100", 87, _HOPPER, 227)
_SM103 = _target("sm_103", 88, _HOPPER, 227)
_SM110 = _target("sm_110", 90, _HOPPER, 227)
_SM120 = _target("sm_120", 87, _HOPPER, 99)
_SM121 = _target("sm_121", 88, _HOPPER, 99)

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        _target("sm_75", 63, _TURING, 64),
        _target("sm_80", 70, _AMPERE, 163),
        _target("sm_86", 71, _AMPERE, 99),
        _target("sm_87", 74, _AMPERE, 163),
        _target("sm_89", 78, _ADA, 99),
        _SM90,
        _with_own(_SM90, "wgmma", ptx=80),
        _SM100,
        _with_own(_SM100, "tcgen05"),
        _SM103,
        _with_own(_SM103, "tcgen05"),
        _SM110,
        _with_own(_SM110, "tcgen05"),
        _SM120,
        _with_own(_SM120, "block_scaled_mma"),
        _SM121,
        _with_own(_SM121, "block_scaled_mma"),
    )
}


def newest_for(architecture: str) -> Target | None:
    """The best target for a GPU: with all that its architecture has alone, or else the newest that it runs."""
    if not re.fullmatch(r"sm_\d+", architecture):
        return None
    number = int(architecture.removeprefix("sm_"))
    exact = TARGETS.get(f"{architecture}a")
    older = [t for name, t in TARGETS.items() if name[-1].isdigit() and int(name.removeprefix("sm_")) <= number]
    return exact or max(older, key=lambda target: int(target.name.removeprefix("sm_")), default=None)


def find_ptxas() -> str | None:
    """The path of ptxas: on PATH, else in the wheel `nvidia-cuda-nvcc`, else None."""
    return find_tool("ptxas")


def find_tool(name: str) -> str | None:
    """The path of a program of the CUDA toolkit: on PATH, else in one of NVIDIA's wheels, else None."""
    if result := shutil.which(name):
        return result
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for candidate in sorted(Path(folder).glob(f"*/bin/{name}")):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return None


def assemble(ptx: str, target: Target) -> bytes:
    """Assembles PTX for the architecture of `target` and returns the cubin.

    Raises:
        TargetError: ptxas is not installed, or is too old to know the target.
        InternalError: ptxas refused the text.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise TargetError(
            f"ptxas is not installed, and a cubin for {target.name} cannot be made without it",
            code="EK0602",
            hint="pip install nvidia-cuda-nvcc, or keep PTX: the driver assembles it when it is loaded",
        )
    with tempfile.TemporaryDirectory(prefix="einkorn-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [ptxas, f"--gpu-name={target.cpu}", str(source), f"--output-file={result}"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return result.read_bytes()
    message = (run.stderr + run.stdout).strip().replace(str(source), "kernel.ptx")
    lines = [line for line in message.splitlines() if line.startswith("ptxas")] or message.splitlines()
    first = lines[0] if lines else f"exit status {run.returncode}"
    if "is not defined for option 'gpu-name'" in message or "Unsupported .version" in message:
        raise TargetError(
            f"the installed ptxas is too old for {target.name}: {first}",
            code="EK0602",
            hint="install a newer CUDA toolkit",
        )
    raise InternalError(f"ptxas refused the code for {target.name}: {first}", code="EK0903", notes=lines[1:4])
