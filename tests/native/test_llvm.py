"""Driving LLVM: what is refused before LLVM would end the process, and what comes out."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from einkorn.compiler.codegen import llvm
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.contract import abi
from einkorn.dsl.diagnostics.errors import InternalError

TYPES = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def unary(intrinsic: str, dtype: str, flags: str = "") -> str:
    kind = TYPES[dtype]
    return f"""
    declare {kind} @{intrinsic}.{dtype}({kind})
    define {kind} @f({kind} %x) {{
      %y = call {flags} {kind} @{intrinsic}.{dtype}({kind} %x)
      ret {kind} %y
    }}
    """


@pytest.mark.parametrize(
    ("target", "intrinsic", "dtype", "flags"),
    [
        *((name, f"llvm.{op}", "f32", "afn") for name in ("sm_80", "sm_90a") for op in ("exp", "log", "log2", "pow")),
        ("sm_90", "llvm.sin", "f32", ""),
        ("sm_90", "llvm.tanh", "f32", "nnan"),
        ("sm_75", "llvm.tanh", "f32", "afn"),
        ("sm_90", "llvm.exp2", "f64", "afn"),
        ("gfx942", "llvm.tanh", "f32", "afn"),
        ("gfx1100", "llvm.exp", "f64", ""),
        ("x86-64-v3", "llvm.exp", "f32", ""),
        ("host", "llvm.sin", "f64", "afn"),
        ("aarch64", "llvm.log", "f32", ""),
    ],
)
def test_intrinsics_that_would_kill_are_refused(target: str, intrinsic: str, dtype: str, flags: str) -> None:
    with pytest.raises(InternalError, match=rf"{intrinsic} is (not )?available .*on {target}"):
        llvm.compile_module(unary(intrinsic, dtype, flags), lookup(target))


@pytest.mark.parametrize(
    ("target", "intrinsic", "dtype", "flags"),
    [
        ("sm_75", "llvm.exp2", "f32", "afn"),
        ("sm_80", "llvm.tanh", "f32", "afn"),
        ("sm_90", "llvm.sin", "f16", "fast"),
        ("sm_90", "llvm.sqrt", "f64", ""),
        ("gfx942", "llvm.exp", "f32", ""),
        ("gfx1100", "llvm.round", "f64", ""),
        ("x86-64-v3", "llvm.sqrt", "f32", ""),
        ("aarch64", "llvm.roundeven", "f32", ""),
    ],
)
def test_intrinsics_that_are_allowed_compile(target: str, intrinsic: str, dtype: str, flags: str) -> None:
    text = unary(intrinsic, dtype, flags)
    assert llvm.compile_module(text, lookup(target)).code


def test_each_call_needs_the_flag_and_not_just_one() -> None:
    text = (
        unary("llvm.sin", "f32", "afn")
        + """
    define float @g(float %x) {
      %y = call float @llvm.sin.f32(float %x)
      ret float %y
    }
    """
    )
    with pytest.raises(InternalError, match=r"llvm.sin is available only as an approximation on sm_90"):
        llvm.compile_module(text, lookup("sm_90"))


@pytest.mark.parametrize("target", ["gfx942", "sm_75", "sm_90"])
def test_the_inexact_remainder_of_gpus_is_refused(target: str) -> None:
    text = "define float @f(float %x, float %y) { %r = frem float %x, %y\n ret float %r }"
    with pytest.raises(InternalError, match=f"frem is not available on {target}"):
        llvm.compile_module(text, lookup(target))


def test_calls_outside_must_be_known() -> None:
    text = "declare void @launch_missiles()\ndefine void @f() { call void @launch_missiles()\n ret void }"
    with pytest.raises(InternalError, match="calls launch_missiles, which no library provides"):
        llvm.compile_module(text, host())
    text = "define half @f(float %x) { %y = fptrunc float %x to half\n ret half %y }"
    with pytest.raises(InternalError, match="the code for x86-64-v2 calls __truncsfhf2"):
        llvm.compile_module(text, lookup("x86-64-v2"))


def test_libraries_are_requested_only_when_needed(tmp_path: Path) -> None:
    plain = llvm.compile_module("define float @f(float %x) { ret float %x }", host())
    assert (plain.undefined, plain.needed) == ((), ())
    text = """
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    declare double @llvm.fma.f64(double, double, double)
    define double @f(ptr %p, i64 %n, double %x, double %y) {
      call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
      %r = call double @llvm.fma.f64(double %x, double %y, double 1.0)
      ret double %r
    }
    """
    compiled = llvm.compile_module(text, lookup("x86-64-v2"))  # which has no such instruction
    assert compiled.undefined == ("fma", "memset")
    assert compiled.needed == ("libm.so.6", "libc.so.6")
    path = tmp_path / "f.so"
    path.write_bytes(compiled.link("f.so"))
    function = ctypes.CDLL(str(path)).f
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_double] * 2], ctypes.c_double
    memory = (ctypes.c_uint8 * 40)()
    assert function(memory, 39, 7.5, 2.0) == 16.0
    assert list(memory) == [7] * 39 + [0]


@pytest.mark.parametrize("text", ["define i32 @f( {", "define i32 @f() { ret i64 1 }", "define i32 @f() { %x = nope }"])
def test_bad_modules_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InternalError, match="LLVM refused the module") as caught:
        llvm.compile_module(text, host())
    assert "\n" not in caught.value.message and caught.value.code == "EK0903"


LOOP = """
define void @f(ptr noalias %x, ptr noalias %y, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %q = getelementptr float, ptr %y, i64 %i
  %v = load float, ptr %p
  %m = fmul float %v, 3.0
  %w = fadd float %m, %v
  store float %w, ptr %q
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


MASKED = """
define void @f(ptr %x, ptr %y) {{
  %v = load <{n} x i{wide}>, ptr %x, align 1
  %t = trunc <{n} x i{wide}> %v to <{n} x i{narrow}>
  call void @llvm.masked.store.v{n}i{narrow}.p0(<{n} x i{narrow}> %t, ptr align 1 %y, <{n} x i1> <{mask}>)
  ret void
}}
declare void @llvm.masked.store.v{n}i{narrow}.p0(<{n} x i{narrow}>, ptr, <{n} x i1>)
"""


@pytest.mark.parametrize(("n", "wide", "narrow"), [(4, 64, 8), (4, 64, 32), (8, 32, 16), (16, 32, 8)])
def test_a_masked_store_of_known_lanes_stores_these_alone(n: int, wide: int, narrow: int, tmp_path: Path) -> None:
    """LLVM's own code for one lane of narrowed numbers stores the wide number."""
    for lanes in ({0}, {1}, {n - 1}, {0, 2}, set(range(n))):
        mask = ", ".join(f"i1 {'true' if k in lanes else 'false'}" for k in range(n))
        text = MASKED.format(n=n, wide=wide, narrow=narrow, mask=mask)
        for level in (0, 3):
            path = tmp_path / f"{level}_{mask.count('true')}_{min(lanes)}.so"
            path.write_bytes(llvm.compile_module(text, host(), level=level).link())
            x = np.arange(1, n + 1, dtype=f"u{wide // 8}") * 257
            y = np.full(2 * n, 99, f"u{narrow // 8}")
            ctypes.CDLL(str(path)).f(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
            expected = [int(x.astype(y.dtype)[k]) if k in lanes else 99 for k in range(n)] + [99] * n
            assert y.tolist() == expected, (lanes, level)


def test_loops_are_vectorised_and_floats_not_contracted() -> None:
    compiled = llvm.compile_module(LOOP, lookup("x86-64-v3"))
    assert "<8 x float>" in compiled.llvm
    assert "ymm" in compiled.assembly and "vfmadd" not in compiled.assembly
    assert "<8 x float>" not in llvm.compile_module(LOOP, lookup("x86-64-v3"), level=0).llvm
    assert "v0.4s" in llvm.compile_module(LOOP, lookup("aarch64")).assembly


@pytest.mark.parametrize("target", ["host", "x86-64-v2", "aarch64", "sm_90", "gfx942"])
def test_code_is_deterministic(target: str) -> None:
    first = llvm.compile_module(LOOP, lookup(target))
    assert llvm.compile_module(LOOP, lookup(target)).code == first.code
    assert first.link() == first.link()


def test_only_nvidia_has_ptx() -> None:
    assert ".visible" in llvm.compile_module(LOOP, lookup("sm_90")).ptx
    with pytest.raises(InternalError, match="host has no PTX"):
        _ = llvm.compile_module(LOOP, host()).ptx


def test_threads_compile_at_the_same_time() -> None:
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(llvm.compile_module(LOOP, host()).code)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(set(results)) == 1


def test_the_context_is_laid_out_as_the_offsets_say() -> None:
    assert ctypes.sizeof(abi.Context) == abi.CONTEXT_SIZE
    for name in ("pool", "parallel", "report", "status", "threads", "device", "stage", "poll", "owner"):
        assert getattr(abi.Context, name).offset == getattr(abi, f"{name.upper()}_OFFSET")


TRAPS = """
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.trap()
define amdgpu_kernel void @k(ptr addrspace(1) %out, i64 %n) {
  %b = call i32 @llvm.amdgcn.workgroup.id.x()
  %i = zext i32 %b to i64
  %c = icmp ugt i32 %b, 29
  br i1 %c, label %first, label %next
first:
  call void @llvm.trap()
  unreachable
next:
  %x = add i64 %i, %n
  %d = icmp ugt i64 %x, 290
  br i1 %d, label %second, label %more
second:
  call void @llvm.trap()
  unreachable
more:
  %p = getelementptr i64, ptr addrspace(1) %out, i64 %i
  store i64 %x, ptr addrspace(1) %p
  ret void
}
"""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1101", "gfx942"])
def test_uniform_additions_behind_traps_become_code(target: str) -> None:
    """In a process of its own: LLVM ended it."""
    script = (
        "import sys; from einkorn.compiler.codegen import llvm; from einkorn.compiler.targets import lookup\n"
        "code = llvm.compile_module(sys.argv[2], lookup(sys.argv[1]))\n"
        "print('s_addc_u32' in code.assembly and 's_trap 2' in code.assembly)"
    )
    done = subprocess.run([sys.executable, "-c", script, target, TRAPS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


HALVES = """
define float @f(ptr %p, ptr %q, i64 %n) {
start:
  br label %round
round:
  %i = phi i64 [0, %start], [%next, %round]
  %sum = phi float [0.0, %start], [%more, %round]
  %at = getelementptr half, ptr %p, i64 %i
  %bits = load i16, ptr %at
  %half = bitcast i16 %bits to half
  %one = fpext half %half to float
  %place = getelementptr float, ptr %q, i64 %i
  %two = load float, ptr %place
  %product = fmul float %one, %two
  %more = fadd float %sum, %product
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %round
end:
  ret float %more
}
"""


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_a_loaded_half_waits_for_no_register(target: str) -> None:
    code = llvm.compile_module(HALVES, lookup(target)).assembly
    assert "vpbroadcastw" in code and "vcvtph2ps" in code and "vpinsrw" not in code
