"""Writes the host's half of copies by tensor maps: it has the device's driver make a map before the launch.

See also `lowering.bulk_copies` (the copies), `dsl.contract.abi` (what the driver gets).
"""

from __future__ import annotations

import ctypes

from ...dsl.contract import abi
from ..ir.program import Op
from . import launches
from .writer import FunctionWriter, emits


@emits("tensor_map")
def _tensor_map(w: FunctionWriter, op: Op) -> None:
    """Where there is to be none, the map has zeros; where sizes of scratch are wanted, no map is made."""
    if w.sizing:
        w.result(op, w.op("llvm.mlir.zero : !llvm.ptr"))
        return
    pointer, there, *numbers = op.operands
    rank, size, at = op.attrs["rank"], pointer.dtype.bits // 8, w.at
    map, bytes_ = w.storage(abi.TENSOR_MAP_SIZE)
    zero = w.op("arith.constant 0 : i8")
    w.line(f'"llvm.intr.memset"({map}, {zero}, {bytes_}) <{{isVolatile = false}}> : (!llvm.ptr, i8, i64) -> ()')
    w.result(op, map)
    w.open(f"scf.if {w.name(there)} {{")
    with w.nested():
        request, _ = w.storage(ctypes.sizeof(abi.TensorMapRequest), alignment=8)

        def put(field: str, value: str, type: str, number: int = 0) -> None:
            offset = getattr(abi.TensorMapRequest, field).offset + number * (8 if type == "i64" else 4)
            w.line(f"llvm.store {value}, {w.field(request, offset)} : {type}, !llvm.ptr")

        put("address", w.op(f"llvm.ptrtoint {w.name(pointer)} : !llvm.ptr to i64"), "i64")
        for k, value in enumerate(numbers[:rank]):
            put("sizes", w.name(value), "i64", k)
        scale = w.op(f"arith.constant {size} : i64")
        for k, value in enumerate(numbers[rank:]):
            put("strides", w.op(f"arith.muli {w.name(value)}, {scale} : i64"), "i64", k)
        rows, columns = op.attrs["box"]
        for field, number in (("rank", rank), ("element", size), ("swizzle", op.attrs["swizzle"])):
            put(field, w.op(f"arith.constant {number} : i32"), "i32")
        for k, number in enumerate((columns, rows, 1, 1, 1)):
            put("box", w.op(f"arith.constant {number} : i32"), "i32", k)
        device = w.op(f"llvm.load {w.field('%ctx', abi.DEVICE_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        function = w.op(f"llvm.load {w.field(device, abi.ENCODE_FUNCTION_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        types = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32"
        code = w.op(f"llvm.call {function}({device}, {request}, {map}) : {types}")
        launches.leave_on_failure(w, device, code, -1)
    w.close(at)
