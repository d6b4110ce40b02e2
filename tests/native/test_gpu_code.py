"""Every GPU target turns a small kernel into code that its own assembler or loader format accepts."""

from __future__ import annotations

import re

import pytest

from einkorn.compiler.codegen import llvm, mlir
from einkorn.compiler.targets import Target, known, lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl.package import elf as elf_records

CUDA = [name for name in known() if lookup(name).kind == "cuda"]
HIP = [name for name in known() if lookup(name).kind == "hip"]
BLOCK = 128


def vector_add(target: Target) -> str:
    """`if i < n: y[i] = x[i] * 0.1 + y[i]` with one thread an element, as MLIR text."""
    assert target.grid is not None
    thread, block = target.grid.spell("thread_id", "x"), target.grid.spell("block_id", "x")
    size = target.grid.spell("block_dim", "x") or f"arith.constant {BLOCK} : i32"
    barrier = "\n".join(target.grid.barrier)
    return f"""
    module {{
      llvm.func @vector_add(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>, %n: i32)
          attributes {{{target.kernel_attributes((BLOCK, 1, 1))}}} {{
        %thread = {thread} loc("kernel.py":3:5)
        %block = {block}
        %size = {size}
        %start = arith.muli %block, %size : i32
        %i = arith.addi %start, %thread : i32
        {barrier}
        %inside = arith.cmpi slt, %i, %n : i32
        scf.if %inside {{
          %tenth = arith.constant 0.1 : f32
          %from = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
          %to = llvm.getelementptr %y[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
          %a = llvm.load %from : !llvm.ptr<1> -> f32
          %b = llvm.load %to : !llvm.ptr<1> -> f32
          %scaled = arith.mulf %a, %tenth : f32
          %sum = arith.addf %scaled, %b : f32 loc("kernel.py":5:9)
          %narrow = arith.truncf %sum : f32 to bf16
          %wide = arith.extf %narrow : bf16 to f32
          llvm.store %wide, %to : f32, !llvm.ptr<1> loc("kernel.py":6:9)
        }}
        llvm.return
      }} loc("kernel.py":2:1)
    }} loc("kernel.py":1:1)
    """


@pytest.mark.parametrize("name", CUDA)
def test_cuda_kernel_becomes_ptx(name: str) -> None:
    target = lookup(name)
    ptx = llvm.compile_module(mlir.lower_to_llvm(vector_add(target), target), target).ptx
    version = int(target.features.removeprefix("+ptx"))
    assert f".version {version // 10}.{version % 10}" in ptx
    assert f".target {name}" in ptx
    assert f".reqntid {BLOCK}" in ptx
    assert "ld.global" in ptx and "st.global" in ptx
    # Floats are not contracted: ptxas fuses a plain mul and add, never one that states its rounding.
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx and "fma" not in ptx
    assert "kernel.py" in ptx and ".loc" in ptx
    assert ("cvt.rn.bf16.f32" in ptx) == target.supports("bf16_convert")


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("name", CUDA)
def test_ptxas_accepts_the_kernel(name: str) -> None:
    target = lookup(name)
    ptx = llvm.compile_module(mlir.lower_to_llvm(vector_add(target), target), target).ptx
    assert assemble(ptx, target).startswith(b"\x7fELF")


@pytest.mark.parametrize("name", HIP)
def test_hip_kernel_becomes_a_code_object(name: str) -> None:
    target = lookup(name)
    compiled = llvm.compile_module(mlir.lower_to_llvm(vector_add(target), target), target)
    code = compiled.link()
    assert code[:4] == b"\x7fELF" and code[7] == 64  # the ABI of HSA
    assert code[16:20] == bytes((3, 0, elf_records.AMDGPU.number, 0))  # a shared object
    assert b"vector_add.kd\0" in code and b"amdhsa.kernels" in code
    assert f"amdgcn-amd-amdhsa--{name}".encode() in code
    assembly = compiled.assembly
    assert f".max_flat_workgroup_size: {BLOCK}" in assembly
    assert re.search(rf"\.wavefront_size: +{target.lanes}\b", assembly)
    assert "v_mul_f32" in assembly and "fma" not in assembly
    # A second look does not disturb what was made: AMDGPU's code generator changes its module.
    assert compiled.assembly == assembly
    assert llvm.compile_module(compiled.text, target).code == compiled.code
