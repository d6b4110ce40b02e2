"""Describes CPUs: the machine at hand (`host`), the x86-64 levels, and generic aarch64 for cross-compiling."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...dsl.contract.abi import LIBCALLS
from ...dsl.contract.code_formats import SHARED_OBJECT
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError
from ...dsl.environment.knobs import knobs
from .base import COMMON_INTRINSICS, DotOperations, Intrinsics, Target, ThreadSystem

X86_TRIPLE: Final = "x86_64-unknown-linux-gnu"
X86_DATA_LAYOUT: Final = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
AARCH64_TRIPLE: Final = "aarch64-unknown-linux-gnu"
AARCH64_DATA_LAYOUT: Final = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32"

# Bits 15, 14, 13 and 6 of MXCSR are cleared: results flushed to zero, rounding, denormal operands taken as zero. Bits 7
# to 12 are set: no exception traps.
_X86_FLOATS: Final = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @float_mode() {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %mode = load i32, ptr %at
  %wide = zext i32 %mode to i64
  ret i64 %wide
}

define internal void @set_float_mode(i64 %wide) {
  %at = alloca i32
  %mode = trunc i64 %wide to i32
  store i32 %mode, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}

define internal i64 @plain_floats(i64 %mode) {
  %exact = and i64 %mode, -57409
  %plain = or i64 %exact, 8064
  ret i64 %plain
}

define internal i1 @floats_are_plain(i64 %mode) {
  %bits = and i64 %mode, 65472
  %plain = icmp eq i64 %bits, 8064
  ret i1 %plain
}
"""

# Bits 24, 23, 22 and 19 of FPCR are cleared: the same of all floats, rounding, the same of half floats. So are bits 15
# and 12 to 8, by which exceptions trap.
_AARCH64_FLOATS: Final = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @float_mode() {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}

define internal void @set_float_mode(i64 %mode) {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}

define internal i64 @plain_floats(i64 %mode) {
  %plain = and i64 %mode, -29925121
  ret i64 %plain
}

define internal i1 @floats_are_plain(i64 %mode) {
  %bits = and i64 %mode, 29925120
  %plain = icmp eq i64 %bits, 0
  ret i1 %plain
}
"""

X86_LINUX: Final = ThreadSystem(
    futex=202,
    sched_yield=24,
    setaffinity=203,
    getaffinity=204,
    getcpu=309,
    gettid=186,
    getpid=39,
    sigprocmask=14,
    nanosleep=35,
    mmap=9,
    munmap=11,
    pause="call void @llvm.x86.sse2.pause()",
    declaration="declare void @llvm.x86.sse2.pause()",
    float_modes=_X86_FLOATS,
)
AARCH64_LINUX: Final = ThreadSystem(
    futex=98,
    sched_yield=124,
    setaffinity=122,
    getaffinity=123,
    getcpu=168,
    gettid=178,
    getpid=172,
    sigprocmask=135,
    nanosleep=101,
    mmap=222,
    munmap=215,
    pause="call void @llvm.aarch64.hint(i32 1)",
    declaration="declare void @llvm.aarch64.hint(i32)",
    float_modes=_AARCH64_FLOATS,
)

INTRINSICS: Final = Intrinsics(
    allowed=dict.fromkeys(
        (
            *COMMON_INTRINSICS,
            "llvm.aarch64.*",
            "llvm.coro.*",
            "llvm.ldexp",
            "llvm.masked.*",
            "llvm.stackrestore",
            "llvm.stacksave",
            "llvm.thread.pointer",
            "llvm.x86.*",
        ),
        None,
    )
)

# What each level adds, in the words of /proc/cpuinfo (pni is SSE3, abm has lzcnt).
_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
LEVELS: Final[Mapping[str, frozenset[str]]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


@dataclass(frozen=True)
class HostMachine:
    """The machine at hand: its architecture, the processor's own numbers, and the flags the kernel reports."""

    architecture: str
    processor: str
    flags: frozenset[str]


@functools.cache
def machine() -> HostMachine:
    """Reads /proc/cpuinfo once; without it the flags are empty, and only the host itself fits."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    numbers = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")
    return HostMachine(
        architecture=platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64"),
        processor="/".join(fields.get(number, "") for number in numbers),
        flags=frozenset((fields.get("flags") or fields.get("Features") or "").split()),
    )


def _features(name: str, flags: frozenset[str]) -> str:
    """What LLVM's own tuning gets wrong for code that an author vectorised."""
    if "avx512f" in flags:
        return "-prefer-256-bit"  # it prefers half of AVX-512's vectors; whole ones are 1.2 to 1.8 times as fast
    if name == "x86-64-v3":
        return "+fast-gather"  # a gather becomes a branch for each lane otherwise
    return ""


def _x86_dots(flags: frozenset[str]) -> DotOperations:
    """`vpdpbusd` where there is one, else `vpmaddwd`, after `vpmaddubsw` where that is exact."""
    if "avx512_vnni" in flags or "avx_vnni" in flags:
        name = '"llvm.x86.avx512.vpdpbusd.{bits}"'
        mixed = f"llvm.call_intrinsic {name}({{acc}}, {{a}}, {{b}}) : ({{sums}}, {{bytes}}, {{bytes}}) -> {{sums}}"
        return DotOperations(lanes=(4, 8, 16) if "avx512_vnni" in flags else (4, 8), forms={"us": mixed})
    pairs = {4: "llvm.x86.sse2.pmadd.wd"}
    pairs |= {8: "llvm.x86.avx2.pmadd.wd"} if "avx2" in flags else {}
    pairs |= {16: "llvm.x86.avx512.pmaddw.d.512"} if "avx512bw" in flags else {}
    bytes = {4: "llvm.x86.ssse3.pmadd.ub.sw.128"} if "ssse3" in flags else {}
    bytes |= {8: "llvm.x86.avx2.pmadd.ub.sw"} if "avx2" in flags else {}
    bytes |= {16: "llvm.x86.avx512.pmaddubs.w.512"} if "avx512bw" in flags else {}
    return DotOperations(lanes=tuple(pairs), pairs=pairs, byte_pairs=bytes)


def _x86_tables(flags: frozenset[str]) -> dict[int, str]:
    """`vpshufb`, which looks up each 16 bytes in a table of their own."""
    tables = {16: ("ssse3", "llvm.x86.ssse3.pshuf.b.128"), 32: ("avx2", "llvm.x86.avx2.pshuf.b")}
    tables[64] = ("avx512bw", "llvm.x86.avx512.pshuf.b.512")
    return {size: intrinsic for size, (flag, intrinsic) in tables.items() if flag in flags}


def _aarch64_dots(flags: frozenset[str]) -> DotOperations | None:
    """`sdot` and `udot`, and `usdot` where there are matrix products of bytes."""
    if "asimddp" not in flags:
        return None
    names = {"ss": "sdot", "uu": "udot"} | ({"us": "usdot"} if "i8mm" in flags else {})
    types = "({sums}, {bytes}, {bytes}) -> {sums}"
    return DotOperations(
        lanes=(4,),
        forms={
            signs: f'llvm.call_intrinsic "llvm.aarch64.neon.{name}.v4i32.v16i8"({{acc}}, {{a}}, {{b}}) : {types}'
            for signs, name in names.items()
        },
    )


def _x86(name: str, flags: frozenset[str], identity: str = "") -> Target:
    has = {
        "fma": "fma",
        "f16c": "f16c",
        "f16": "avx512_fp16",
        "int8_dot": "avx512_vnni" if "avx512_vnni" in flags else "avx_vnni",
        "bf16_dot": "avx512_bf16",
        "bf16_mma": "amx_bf16",
        "int8_mma": "amx_int8",
    }
    capabilities = {feature for feature, flag in has.items() if flag in flags}
    if capabilities & {"bf16_mma", "int8_mma"}:
        capabilities.add("tensor_cores")
    return Target(
        name=name,
        kind="cpu",
        triple=X86_TRIPLE,
        data_layout=X86_DATA_LAYOUT,
        cpu="" if identity else name,
        features=_features(name, flags),
        format=SHARED_OBJECT,
        capabilities=frozenset(capabilities),
        intrinsics=INTRINSICS,
        bf16_dots={n: f"llvm.x86.avx512bf16.dpbf16ps.{32 * n}" for n in (4, 8, 16) if "avx512_bf16" in flags},
        byte_tables=_x86_tables(flags),
        dots=_x86_dots(flags),
        vector_bits=512 if "avx512f" in flags else 256 if "avx2" in flags else 128,
        half_loads_wait="f16c" in capabilities and "f16" not in capabilities,
        libcalls=LIBCALLS,
        needs=frozenset() if identity else flags,
        system=X86_LINUX,
        identity=identity,
    )


def _aarch64(name: str, flags: frozenset[str], identity: str = "") -> Target:
    capabilities = {"fma", "f16c"}
    capabilities |= {"f16"} if "fphp" in flags else set()
    capabilities |= {"int8_dot"} if "asimddp" in flags else set()
    return Target(
        name=name,
        kind="cpu",
        triple=AARCH64_TRIPLE,
        data_layout=AARCH64_DATA_LAYOUT,
        cpu="" if identity else "generic",
        features="",
        format=SHARED_OBJECT,
        capabilities=frozenset(capabilities),
        intrinsics=INTRINSICS,
        byte_tables={16: "llvm.aarch64.neon.tbl1.v16i8"},
        dots=_aarch64_dots(flags),
        vector_bits=128,
        libcalls=LIBCALLS,
        system=AARCH64_LINUX,
        identity=identity,
    )


def host() -> Target:
    """The machine at hand. Its `key` comes from /proc/cpuinfo alone, so that a warm start needs no LLVM.

    Code for it is optimised as `EINKORN_OPTIMIZE` says: it runs where it is made, as that of packages does not.

    Raises:
        TargetError: the machine is neither x86-64 nor aarch64.
    """
    return _host(knobs.optimize)


@functools.cache
def _host(level: int) -> Target:
    return replace(_of_this_machine(), level=level)


def _of_this_machine() -> Target:
    here = machine()
    record = "\n".join((here.architecture, here.processor, *sorted(here.flags)))
    identity = hashlib.sha256(record.encode()).hexdigest()[:16]
    if here.architecture == "x86_64":
        return _x86("host", here.flags, identity)
    if here.architecture == "aarch64":
        return _aarch64("host", here.flags, identity)
    raise TargetError(
        f"no code can be made for this machine ({here.architecture})",
        code="EK0605",
        expected=("x86_64", "aarch64"),
        got=here.architecture,
    )


def best_level() -> str | None:
    """The best level that this machine can run, if it can run one."""
    here = machine()
    return next((name for name in reversed(list(LEVELS)) if not lacking(TARGETS[name], here)), None)


def lacking(target: Target, here: HostMachine) -> frozenset[str]:
    """What a machine lacks to run a target's code: features, or the target itself where it never runs here."""
    if not target.format.in_process or target.architecture != here.architecture:
        return frozenset({target.name})
    return target.needs - here.flags


TARGETS: Final[Mapping[str, Target]] = {
    **{name: _x86(name, flags) for name, flags in LEVELS.items()},
    "aarch64": _aarch64("aarch64", frozenset()),
}
