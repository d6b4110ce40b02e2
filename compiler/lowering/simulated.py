"""Writes the code of a simulated device: its kernels as functions of the host, and how they are launched.

    int32_t kernel(Context *, const Launch *, void **arguments)      each kernel, under its own name
    ek_sim_launch, ek_sim_copy, ek_sim_fill                          what `dsl.contract.abi.Device` requests

See also `lowering.coroutines` (how threads are run).
"""

from __future__ import annotations

from dataclasses import replace

from ...dsl.contract import abi
from ...dsl.contract.checking import ALLOCATED, INITIALISED, CheckState
from ..ir.program import PointerType, ProgramFunction, Value
from . import launches
from .entry import SPREAD
from .polls import POLL
from .types import mlir_type, register_bytes
from .writer import FunctionWriter, KernelInfo, ModuleWriter

_OWN = 4  # parameters behind those of the kernel: the grid, and bytes of shared memory
_GRID, _SHARED = (getattr(abi.Launch, name).offset for name in ("grid", "shared"))


def kernels(module: ModuleWriter, functions: list[ProgramFunction]) -> None:
    """Every kernel, and the functions of the device."""
    for function in functions:
        _kernel(module, function)
    module.functions.append(DEVICE.replace("MARK", _MARK if module.target.checks_memory else ""))
    for name, text in (("@ek.spread", SPREAD), ("@ek.poll", POLL)):
        if module.calls(name):
            module.functions.append(text)


def _kernel(module: ModuleWriter, function: ProgramFunction) -> None:
    launched = function.launched
    assert launched is not None
    module.op = function.op
    w = FunctionWriter(module)
    taken, own = function.params[:-_OWN], function.params[-_OWN:]
    for number, value in enumerate(taken):
        w.bind(value, _argument(w, number, value))
    for value, place in zip(own, (_GRID, _GRID + 4, _GRID + 8, _SHARED), strict=True):
        number32 = w.op(f"llvm.load {w.field('%launch', place)} : !llvm.ptr -> i32")
        w.bind(value, w.op(f"arith.extsi {number32} : i32 to i64"))
    w.region(function.body)
    w.at = ""
    w.line(f"llvm.return {w.op('arith.constant 0 : i32')} : i32")
    types = tuple(str(value.type) for value in taken)
    accesses = launches.accesses_of(replace(function, params=taken))
    module.kernels.append(KernelInfo(function.name, launched.block, types, accesses))
    head = f"llvm.func @{function.name}(%ctx: !llvm.ptr, %launch: !llvm.ptr, %arguments: !llvm.ptr) -> i32"
    module.functions.append(w.finish(head, module.location(launched.location)))


def _argument(w: FunctionWriter, number: int, value: Value) -> str:
    """What lies in the low bytes of a slot."""
    slot = w.op(f"llvm.load {w.field('%arguments', 8 * number)} : !llvm.ptr -> !llvm.ptr")
    if isinstance(value.type, PointerType):
        return w.op(f"llvm.load {slot} : !llvm.ptr -> !llvm.ptr")
    type = mlir_type(value.type)
    if type == "i1":
        byte = w.op(f"llvm.load {slot} : !llvm.ptr -> i{8 * register_bytes(value.type)}")
        return w.op(f"arith.trunci {byte} : i8 to i1")
    return w.op(f"llvm.load {slot} : !llvm.ptr -> {type}")


def _field(name: str) -> int:
    offset: int = getattr(abi.DeviceTable, name).offset
    return offset


# What was copied to on the device has values, which are reported to the checks.
_MARK = f"""\
    %checks_p = llvm.getelementptr inbounds %device[{_field("reports")}] : (!llvm.ptr) -> !llvm.ptr, i8
    %checks = llvm.load %checks_p : !llvm.ptr -> !llvm.ptr
    %mark_p = llvm.getelementptr inbounds %checks[{CheckState.mark.offset}] : (!llvm.ptr) -> !llvm.ptr, i8
    %mark = llvm.load %mark_p : !llvm.ptr -> !llvm.ptr
    %to_host = arith.constant {abi.TO_HOST} : i32
    %stays = arith.cmpi ne, %kind, %to_host : i32
    scf.if %stays {{
      %address = llvm.ptrtoint %to : !llvm.ptr to i64
      %known = arith.constant {ALLOCATED | INITIALISED} : i64
      llvm.call %mark(%checks, %address, %bytes, %known) : !llvm.ptr, (!llvm.ptr, i64, i64, i64) -> ()
    }}
"""
DEVICE = f"""\
  llvm.func @{abi.SIM_LAUNCH}(%device: !llvm.ptr, %launch: !llvm.ptr, %arguments: !llvm.ptr) -> i32 {{
    %number32 = llvm.load %launch : !llvm.ptr -> i32
    %number = arith.extsi %number32 : i32 to i64
    %functions_p = llvm.getelementptr inbounds %device[{_field("functions")}] : (!llvm.ptr) -> !llvm.ptr, i8
    %functions = llvm.load %functions_p : !llvm.ptr -> !llvm.ptr
    %function_p = llvm.getelementptr inbounds %functions[%number] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
    %function = llvm.load %function_p : !llvm.ptr -> !llvm.ptr
    %context_p = llvm.getelementptr inbounds %device[{_field("context")}] : (!llvm.ptr) -> !llvm.ptr, i8
    %context = llvm.load %context_p : !llvm.ptr -> !llvm.ptr
    %code = llvm.call %function(%context, %launch, %arguments) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
    llvm.return %code : i32
  }}
  llvm.func @{abi.SIM_COPY}(
      %device: !llvm.ptr, %to: !llvm.ptr, %from: !llvm.ptr, %bytes: i64, %kind: i32
  ) -> i32 {{
    "llvm.intr.memmove"(%to, %from, %bytes) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
MARK
    %zero = arith.constant 0 : i32
    llvm.return %zero : i32
  }}
  llvm.func @{abi.SIM_FILL}(
      %device: !llvm.ptr, %to: !llvm.ptr, %pattern: i64, %count: i64, %width: i32
  ) -> i32 {{
    %none = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %stored = arith.constant 8 : i64
    %at = llvm.alloca %stored x i8 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr
    llvm.store %pattern, %at : i64, !llvm.ptr
    %size = arith.extsi %width : i32 to i64
    scf.for %k = %none to %count step %one : i64 {{
      %offset = arith.muli %k, %size : i64
      %place = llvm.getelementptr %to[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      "llvm.intr.memcpy"(%place, %at, %size) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
    }}
    %zero = arith.constant 0 : i32
    llvm.return %zero : i32
  }}
"""
