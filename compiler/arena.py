"""The code that lays out temporaries: the kernel of `stdlib.kernels.arena` as a C function.

    int64_t ek_arena(const int64_t *sizes, const int64_t *first, const int64_t *last,
                     int64_t *offsets, int64_t *work, int64_t count)

`sizes` are in bytes, and each is a multiple of the alignment. `work` has room for 2 * count numbers. The result is the
size of the arena in bytes, or -1 where the sum of the sizes does not fit an int64. No other function is called.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Final

from ..dsl.contract import abi
from ..dsl.contract.checks import OFF
from ..dsl.contract.unit import op_entry
from ..dsl.frontend.program import PortableKernel
from .codegen.elf.linker import link_shared, write_relocatable
from .codegen.elf.symbols import renamed
from .codegen.llvm import compile_module
from .pipeline import compile_entry
from .targets import Target

SYMBOL: Final = "ek_arena"
_ENTRY: Final = "ek_arena_entry"


def arena_object(kernel: PortableKernel, target: Target) -> bytes:
    """The function as a relocatable object, with no other symbol."""
    entry = compile_entry(replace(op_entry(kernel, {}, {}, {}), checks=str(OFF)), target).compiled.code
    door = compile_module(_text(), target, level=2, elsewhere={_ENTRY}).code
    output = io.BytesIO()
    write_relocatable(output, [door, renamed(entry, {abi.ENTRY: _ENTRY})], public=[SYMBOL])
    return output.getvalue()


def arena_library(kernel: PortableKernel, target: Target) -> bytes:
    """The function as a shared object."""
    return link_shared(arena_object(kernel, target), soname="einkorn_arena.so")


def _text() -> str:
    """The function in LLVM IR. The order of the pointers is that of the kernel's inputs, then outputs."""
    pointers = ("%sizes", "%first", "%last", "%offsets", "%work", "%placed", "%total")
    stores = "".join(
        f"  %at{number} = getelementptr inbounds ptr, ptr %pointers, i64 {number}\n"
        f"  store ptr {pointer}, ptr %at{number}\n"
        for number, pointer in enumerate(pointers)
    )
    return f"""
declare i32 @{_ENTRY}(ptr, ptr, ptr)
declare i64 @llvm.sadd.sat.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i64 @{SYMBOL}(ptr %sizes, ptr %first, ptr %last, ptr %offsets, ptr %work, i64 %count) {{
entry:
  %context = alloca [{abi.CONTEXT_SIZE} x i8], align 8
  %pointers = alloca [{len(pointers)} x ptr], align 8
  %dims = alloca i64, align 8
  %total = alloca i64, align 8
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i.next, %add ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %add ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %add, label %checked
add:
  %size.at = getelementptr inbounds i64, ptr %sizes, i64 %i
  %size = load i64, ptr %size.at
  %sum.next = call i64 @llvm.sadd.sat.i64(i64 %sum, i64 %size)
  %i.next = add i64 %i, 1
  br label %check
checked:
  %large = icmp eq i64 %sum, {2**63 - 1}
  br i1 %large, label %overflow, label %run
run:
  call void @llvm.memset.p0.i64(ptr %context, i8 0, i64 {abi.CONTEXT_SIZE}, i1 false)
  store i64 %count, ptr %dims
  %placed = getelementptr inbounds i64, ptr %work, i64 %count
{stores}  %status = call i32 @{_ENTRY}(ptr %context, ptr %pointers, ptr %dims)
  %result = load i64, ptr %total
  ret i64 %result
overflow:
  ret i64 -1
}}
"""
