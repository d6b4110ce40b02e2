"""Writes launches of kernels in the host's code: the description on the stack, the arguments, a call of the device.

See also `lowering.module` (kernels), `dsl.contract.abi` (what the device does with a launch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...dsl.contract import abi
from ...dsl.contract.kernels import DeviceKernel, KernelParameter, KernelTable
from ...dsl.frontend.anchors import anchors_of
from ..ir.copy_opcodes import COPY_ASYNC, COPY_ROWS
from ..ir.opcodes import ENQUEUE
from ..ir.program import (
    LAUNCH_SIZES,
    Op,
    PointerType,
    Program,
    ProgramFunction,
    Region,
    Site,
    Value,
    of_clusters,
    walk,
)
from . import reports
from .types import mlir_type, register_bytes
from .writer import LEAVE, FunctionWriter, KernelInfo, emits

SLOT = 8  # bytes of an argument


@emits("enqueue")
def _enqueue(w: FunctionWriter, op: Op) -> None:
    """Launches a kernel on a grid that has blocks; leaves with what failed noted in the device."""
    at = w.at
    counts, shared, arguments = op.operands[:3], op.operands[3], op.operands[4:]
    zero = w.op("arith.constant 0 : i64")
    some = w.op("arith.constant true")
    for count in counts:
        if count.const is None or count.const <= 0:
            any_ = w.op(f"arith.cmpi sgt, {w.name(count)}, {zero} : i64")
            some = w.op(f"arith.andi {some}, {any_} : i1")
    w.open(f"scf.if {some} {{")
    with w.nested():
        _stay_within(w, op)
        device = w.op(f"llvm.load {w.field('%ctx', abi.DEVICE_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        launch, _ = w.storage(abi.LAUNCH_SIZE, alignment=8)
        fixed = [*op.attrs["block"], *op.attrs["cluster"]]
        numbers = [w.op(f"arith.constant {op.attrs['kernel']} : i32"), *(_narrow(w, count) for count in counts)]
        numbers += [w.op(f"arith.constant {size} : i32") for size in fixed]
        numbers += [_narrow(w, shared), w.op("arith.constant 0 : i32")]
        for place, number in enumerate(numbers):
            w.line(f"llvm.store {number}, {w.field(launch, 4 * place)} : i32, !llvm.ptr")
        more = []
        if op.attrs.get("reports"):
            more.append(w.op(f"llvm.load {w.field(device, abi.REPORTS_OFFSET)} : !llvm.ptr -> i64"))
        table = _arguments(w, arguments, more)
        function = w.op(f"llvm.load {w.field(device, abi.LAUNCH_FUNCTION_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        types = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32"
        code = w.op(f"llvm.call {function}({device}, {launch}, {table}) : {types}")
        leave_on_failure(w, device, code, op.attrs["kernel"])
    w.close(at)


def _stay_within(w: FunctionWriter, op: Op) -> None:
    """Leaves with a report when a size is not what the device takes; those known are looked at before."""
    for value, limit, words in zip(op.operands, op.attrs["limits"], LAUNCH_SIZES, strict=False):
        if value.const is not None:
            continue
        most = w.op(f"arith.constant {limit} : i64")
        beyond = w.op(f"arith.cmpi sgt, {w.name(value)}, {most} : i64")
        _refuse(w, op, value, beyond, limit, ("", f" {_too_much(op, limit, words)}"))
    refuse_parts_of_clusters(w, op, op.attrs["cluster"])


def refuse_parts_of_clusters(w: FunctionWriter, op: Op, cluster: Sequence[int]) -> None:
    """Leaves with a report when a grid is not a whole number of clusters; those known are looked at before."""
    for value, size, words in zip(op.operands, cluster, LAUNCH_SIZES, strict=False):
        if (value.const is None or value.const % size) and size > 1:
            blocks = w.op(f"arith.constant {size} : i64")
            rest = w.op(f"arith.remui {w.name(value)}, {blocks} : i64")
            zero = w.op("arith.constant 0 : i64")
            some = w.op(f"arith.cmpi ne, {rest}, {zero} : i64")
            _refuse(w, op, value, some, size, (of_clusters(words, size), ""))


def _too_much(op: Op, limit: int, words: str) -> str:
    static = op.attrs.get("static", 0) if words == LAUNCH_SIZES[-1] else 0
    in_addition = f" in addition to the {static:,} of the kernel's gpu.shared[...]" if static else ""
    return f"{words}, and the device has at most {limit:,}{in_addition}"


def _refuse(w: FunctionWriter, op: Op, value: Value, wrong: str, limit: int, words: tuple[str, str]) -> None:
    """Leaves with a report when `wrong` holds; the value stands between the words."""
    at = w.at
    w.open(f"scf.if {wrong} {{")
    with w.nested():
        reports.note_failure(w, _site(w, op, limit, words), [value])
        w.line(LEAVE)
    w.close(at)


def _site(w: FunctionWriter, op: Op, limit: int, words: tuple[str, str]) -> int:
    """The site of a report that a launch requests a number of something that the device does not take."""
    before, behind = words
    behind_it = (behind,) if behind else ()
    parts = (f"a launch requests {before}", (",", "int64"), *behind_it)
    own, *calls = op.location.author()
    details = (("limit", limit), ("size", {"value": 0, "dtype": "int64"}))
    notes = tuple(("called from", place) for place in calls)
    w.module.sites.append(Site("grid", parts, own, w.module.op, details, notes))
    return len(w.module.sites) - 1


def leave_on_failure(w: FunctionWriter, device: str, code: str, kernel: int) -> None:
    """Leaves when a function of the device gave another code than 0, which it then holds."""
    at = w.at
    none = w.op("arith.constant 0 : i32")
    failed = w.op(f"arith.cmpi ne, {code}, {none} : i32")
    w.open(f"scf.if {failed} {{")
    with w.nested():
        number, wide = w.op(f"arith.constant {kernel} : i64"), w.op(f"arith.extsi {code} : i32 to i64")
        for value, offset in ((number, abi.FAILED_KERNEL_OFFSET), (wide, abi.FAILED_CODE_OFFSET)):
            w.line(f"llvm.store {value}, {w.field(device, offset)} : i64, !llvm.ptr")
        w.line(LEAVE)
    w.close(at)


def _narrow(w: FunctionWriter, value: Value) -> str:
    return w.op(f"arith.trunci {w.name(value)} : i64 to i32")


def _arguments(w: FunctionWriter, values: Sequence[Value], more: Sequence[str]) -> str:
    """The array of the addresses of the arguments: values, and words that follow them."""
    words = [*(None if is_map(value) else _bits(w, value) for value in values), *more]
    slots, _ = w.storage(SLOT * max(1, len(words)), alignment=8)
    table, _ = w.storage(SLOT * max(1, len(words)), alignment=8)
    for number, word in enumerate(words):
        slot = w.name(values[number]) if word is None else w.field(slots, SLOT * number)
        if word is not None:
            w.line(f"llvm.store {word}, {slot} : i64, !llvm.ptr")
        w.line(f"llvm.store {slot}, {w.field(table, SLOT * number)} : !llvm.ptr, !llvm.ptr")
    return table


def is_map(value: Value) -> bool:
    """Whether a value is a tensor map, whose bytes are an argument of a kernel."""
    return isinstance(value.type, PointerType) and value.type.space == "map"


def _bits(w: FunctionWriter, value: Value) -> str:
    """An argument as 64 bits, with zeros above it."""
    name = w.name(value)
    if isinstance(value.type, PointerType):
        return w.op(f"llvm.ptrtoint {name} : !llvm.ptr to i64")
    type = mlir_type(value.type)
    if type.startswith("f"):
        whole = f"i{type[1:]}"
        name, type = w.op(f"arith.bitcast {name} : {type} to {whole}"), whole
    return name if type == "i64" else w.op(f"arith.extui {name} : {type} to i64")


# *** the table ***


def kernel_table(program: Program, kernels: Sequence[KernelInfo], digest: str) -> KernelTable:
    """The table of the kernels that the host's program launches, as they are in the device's code."""
    launches = {op.attrs["kernel"]: (function, op) for function, op in _enqueued(program)}
    anchors = anchors_of(program.kernels, {op.location.place for _, op in launches.values()})
    rows = []
    for number, known in enumerate(kernels):
        function, op = launches[number]
        parameters = tuple(
            _parameter(value, _buffer(function, value), access)
            for value, access in zip(op.operands[4:], known.accesses, strict=True)
        )
        if op.attrs.get("reports"):
            parameters += (KernelParameter("pointer", "int64", SLOT, -1, "reports"),)
        place: Any = anchors[op.location.place]
        rows.append(
            DeviceKernel(known.symbol, known.block, op.attrs["cluster"], known.shared, parameters, function.op, place)
        )
    return KernelTable(digest, tuple(rows))


def _enqueued(program: Program) -> Iterator[tuple[ProgramFunction, Op]]:
    for function in program.functions:
        for op in walk(function.body):
            if op.opcode is ENQUEUE:
                yield function, op


def _buffer(function: ProgramFunction, value: Value) -> int:
    """The number of a buffer among those of the group."""
    return next((k for k, param in enumerate(function.params) if param is value), -1)


def _parameter(value: Value, buffer: int, access: str) -> KernelParameter:
    type = value.type
    if is_map(value):
        return KernelParameter("map", type.dtype.name, abi.TENSOR_MAP_SIZE)
    if isinstance(type, PointerType):
        return KernelParameter("pointer", type.dtype.name, SLOT, buffer, access)
    kind = "float" if type.dtype.is_float() else "int"
    return KernelParameter(kind, type.dtype.name, register_bytes(type))


def accesses_of(kernel: ProgramFunction) -> tuple[str, ...]:
    """What a kernel does with the memory that each of its parameters points to; empty for numbers."""
    roots = {value.serial: number for number, value in enumerate(kernel.params)}
    results: list[set[str]] = [set() for _ in kernel.params]
    _look(kernel.body, roots, results)
    words = ("read", "write")
    return tuple(
        "-".join(word for word in words if word in done) or "read"
        if isinstance(value.type, PointerType) and not is_map(value)
        else ""
        for value, done in zip(kernel.params, results, strict=True)
    )


def _look(region: Region, roots: dict[int, int], classes: list[set[str]]) -> None:
    for op in region.ops:
        for at, value in enumerate(op.operands):
            number = roots.get(value.serial)
            if number is None or not isinstance(value.type, PointerType):
                continue
            pure = op.opcode.is_pure and len(op.results) == 1
            if pure and isinstance(op.results[0].type, PointerType):
                roots[op.results[0].serial] = number
            elif op.opcode in (COPY_ASYNC, COPY_ROWS):
                classes[number] |= {"write" if at == 0 else "read"}
            elif not pure and not op.opcode.hints:  # another operation may hand the pointer on
                classes[number] |= {"read"} if op.opcode.reads or not op.opcode.accesses else set()
                classes[number] |= {"write"} if op.opcode.writes or not op.opcode.accesses else set()
        for inner in op.regions:
            _look(inner, roots, classes)
