"""Writes storage of run-time size: `allocate` takes memory from the heap, and every exit of the function frees it.

Each operation has a slot in the frame of its function: an address and a number of bytes. When the operation runs again,
as in a loop, it gives the same memory, and allocates only if that is too small. So a loop over rows allocates once.

See also `inference.language.storage` (which sizes are refused).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType
from ..ir.program import Op
from .writer import ALLOCATE, RELEASE, FunctionWriter, ModuleWriter, emits

MOST_BYTES = 1 << 62  # which no system has: the allocation fails
ALIGNMENT = 64  # bytes: a line of the cache, and the longest vector

_FUNCTIONS = f"""\
  llvm.func @aligned_alloc(i64, i64) -> !llvm.ptr
  llvm.func @free(!llvm.ptr)
  llvm.func internal @{ALLOCATE}(%slot: !llvm.ptr, %bytes: i64) -> (!llvm.ptr {{llvm.noalias}})
      attributes {{passthrough = ["noinline"]}} {{
    %one = llvm.mlir.constant(1 : i64) : i64
    %size_p = llvm.getelementptr inbounds %slot[%one] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %old = llvm.load %slot : !llvm.ptr -> !llvm.ptr
    %size = llvm.load %size_p : !llvm.ptr -> i64
    %fits = arith.cmpi sge, %size, %bytes : i64
    %memory = scf.if %fits -> (!llvm.ptr) {{
      scf.yield %old : !llvm.ptr
    }} else {{
      llvm.call @free(%old) : (!llvm.ptr) -> ()
      %line = arith.constant {ALIGNMENT} : i64
      %new = llvm.call @aligned_alloc(%line, %bytes) : (i64, i64) -> !llvm.ptr
      %none = llvm.mlir.zero : !llvm.ptr
      %failed = llvm.icmp "eq" %new, %none : !llvm.ptr
      %zero = arith.constant 0 : i64
      %got = arith.select %failed, %zero, %bytes : i64
      llvm.store %new, %slot : !llvm.ptr, !llvm.ptr
      llvm.store %got, %size_p : i64, !llvm.ptr
      scf.yield %new : !llvm.ptr
    }}
    llvm.return %memory : !llvm.ptr
  }}
  llvm.func internal @{RELEASE}(%slots: !llvm.ptr, %count: i64) attributes {{passthrough = ["noinline"]}} {{
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    scf.for %k = %zero to %count step %one : i64 {{
      %slot = llvm.getelementptr inbounds %slots[%k] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.array<2 x i64>
      %memory = llvm.load %slot : !llvm.ptr -> !llvm.ptr
      llvm.call @free(%memory) : (!llvm.ptr) -> ()
    }}
    llvm.return
  }}
"""


def add_functions(module: ModuleWriter) -> None:
    """The functions that allocate and free, if any function of the module calls them."""
    if module.calls(f"@{ALLOCATE}"):
        module.functions.append(_FUNCTIONS)


@emits("allocate")
def _allocate(w: FunctionWriter, op: Op) -> None:
    pointer, enough = op.results
    size = _bytes(w, [w.name(dim) for dim in op.operands], pointer.dtype)
    slot = w.slot()
    memory = w.op(f"llvm.call @{ALLOCATE}({slot}, {size}) : (!llvm.ptr, i64) -> !llvm.ptr")
    # LLVM takes the memory for new. The store makes it one that others know: what is written into it before the next
    # call stays before that call.
    w.line(f"llvm.store {memory}, {slot} : !llvm.ptr, !llvm.ptr")
    none = w.op("llvm.mlir.zero : !llvm.ptr")
    some = w.op(f'llvm.icmp "ne" {memory}, {none} : !llvm.ptr')
    if op.attrs["zeroed"]:
        zero, nothing = w.op("arith.constant 0 : i8"), w.op("arith.constant 0 : i64")
        count = w.op(f"arith.select {some}, {size}, {nothing} : i64")
        types = "(!llvm.ptr, i8, i64) -> ()"
        w.line(f'"llvm.intr.memset"({memory}, {zero}, {count}) <{{isVolatile = false}}> : {types}')
    w.bind(pointer, memory)
    w.bind(enough, some)


def _bytes(w: FunctionWriter, dims: list[str], dtype: DType) -> str:
    """How many bytes the elements take, in whole lines; `MOST_BYTES` where that is more than 64 bits count."""
    bits, over = w.op(f"arith.constant {dtype.bits} : i64"), w.op("arith.constant false")
    zero = w.op("arith.constant 0 : i64")
    for dim in dims:
        both = w.op(f"arith.mulsi_extended {bits}, {dim} : i64", 2)
        bits, high = f"{both}#0", f"{both}#1"
        for part in (bits, high):
            wrong = w.op(f"arith.cmpi {'slt' if part is bits else 'ne'}, {part}, {zero} : i64")
            over = w.op(f"arith.ori {over}, {wrong} : i1")
    line, most = w.op(f"arith.constant {8 * ALIGNMENT} : i64"), w.op(f"arith.constant {MOST_BYTES} : i64")
    lines = w.op(f"arith.divui {bits}, {line} : i64")
    one, length = w.op("arith.constant 1 : i64"), w.op(f"arith.constant {ALIGNMENT} : i64")
    size = w.op(f"arith.muli {w.op(f'arith.addi {lines}, {one} : i64')}, {length} : i64")
    return w.op(f"arith.select {over}, {most}, {size} : i64")
