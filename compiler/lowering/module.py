"""Writes a typed program as an MLIR module: nearly one to one, with the author's places as locations.

On a CPU, each parallel region becomes a function of its own with a task around it that the thread pool calls; the entry
calls the groups in order. On a GPU, each function is a kernel. Memory is LLVM pointers.

Of a CPU a group may be a module by itself, and the entry another one; both know each other's symbols by name.

See also `ir.schedule`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ...dsl.contract import abi
from ...dsl.contract.kernels import KernelTable
from ...dsl.contract.unit import Slot
from ...dsl.diagnostics.dataclass import dataclass
from ..ir.copy_opcodes import COPY_WAIT
from ..ir.matrix_opcodes import MULTIPLY_GROUPS, MULTIPLY_TENSOR
from ..ir.opcodes import OPCODES
from ..ir.operations import ROWS
from ..ir.program import PointerType, Program, ProgramFunction, has_reports, walk
from ..ir.shared_memory import static_shared
from ..targets import Target
from . import (  # noqa: F401  # each family registers what it writes
    arithmetic,
    async_copies,
    atomics,
    bits,
    bulk_copies,
    complex,
    control_flow,
    dot_products,
    grids,
    group_matrices,
    launches,
    matrices,
    memory,
    native,
    packed_memory,
    parallel,
    report_rings,
    reports,
    run_time_storage,
    scalars,
    scratch,
    simulated,
    tensor_maps,
    tensor_matrices,
    vectors,
    warps,
)
from .entry import ENTRY, SPREAD, entry
from .polls import POLL
from .writer import EMITTERS, EXPANSIONS, LEAVE, FunctionWriter, KernelInfo, ModuleWriter

DIGEST = 16  # hexadecimal digits that identify the code of a device

_unmatched = set(EMITTERS) ^ set(OPCODES)
assert not _unmatched, f"opcodes without an emitter in {__package__}, or emitters without an opcode: {_unmatched}"

_unexpanded = set(EXPANSIONS) ^ {m[1:] for row in ROWS.values() for m in row.mlir.values() if m.startswith("=")}
assert not _unexpanded, f"expansions without a function in {__package__}, or without a row: {_unexpanded}"


@dataclass(frozen=True)
class Emitted:
    """The text of a module, and its GPU kernels."""

    text: str
    kernels: tuple[KernelInfo, ...]


def emit_module(program: Program, target: Target) -> Emitted:
    """The MLIR text of a program for a target."""
    module = ModuleWriter(target, sites=program.sites)
    if target.simulates:
        simulated.kernels(module, program.functions)
    elif target.has_grid:
        _kernels(module, program)
    else:
        _host(module, program)
    return Emitted(module.text(), tuple(module.kernels))


def digest_of(device: Emitted, target: Target) -> str:
    """Identifies the code for a device; places make no difference."""
    code, _, _ = device.text.partition("} loc(unknown)\n")
    machine = f"{target.triple} {target.cpu} {target.features}"
    return hashlib.sha256(f"{machine}\n{code}".encode()).hexdigest()[:DIGEST]


def stamped(device: Emitted, target: Target, digest: str) -> Emitted:
    """The module with a byte whose name holds the digest."""
    space = f" {{addr_space = {target.spaces.global_memory} : i32}}" if target.spaces.global_memory else ""
    byte = f"  llvm.mlir.global external @{abi.STAMP}{digest}(0 : i8){space} : i8\n"
    return replace(device, text=device.text.replace("module {\n", f"module {{\n{byte}", 1))


def add_kernels(host: Emitted, table: KernelTable) -> Emitted:
    """The module of a host with the table of the kernels that it launches."""
    text = reports.text_constant(abi.KERNELS, table.to_bytes())
    return replace(host, text=host.text.replace("module {\n", f"module {{\n{text}", 1))


# *** CPUs ***


def _host(module: ModuleWriter, program: Program) -> None:
    """Every group, and the entry that calls them."""
    if program.one_function:
        module.functions.append(_small_entry(module, program))
    else:
        fallible = set()
        for function in program.functions:
            module.functions.append(_host_function(module, function))
            if LEAVE in module.functions[-1]:
                fallible.add(function.name)
        module.functions.append(entry(program, fallible))
    taking = [function for function in program.functions if scratch.has_scratch(function)]
    if taking:
        module.functions += [scratch.size_function(module, function) for function in taking]
        module.functions.append(scratch.entry_size(program, [function.name for function in taking]))
    _helpers(module)
    module.functions.append(reports.report_table(reports.site_records(program)))


def _helpers(module: ModuleWriter) -> None:
    """The functions that what is written so far calls."""
    if module.calls("@ek.spread"):
        module.functions.append(SPREAD)
    if module.calls("@ek.poll"):
        module.functions.append(POLL)
    run_time_storage.add_functions(module)


def _host_function(module: ModuleWriter, function: ProgramFunction, linkage: str = "internal") -> str:
    """`llvm.func internal @group(%ctx, pointers, sizes) -> i32`."""
    module.op = function.op
    w = FunctionWriter(module)
    params = ["%ctx: !llvm.ptr", *w.parameters(function.params)]
    _body(w, function)
    return w.finish(f"llvm.func {linkage} @{function.name}({', '.join(params)}) -> i32")


@dataclass(frozen=True)
class EmittedGroup:
    """The text of a group's module, whether the group may leave early, and the records of its sites.

    `scratch` says whether it takes memory of the device for itself: then there is a function that says how much.
    """

    text: str
    fallible: bool
    records: Sequence[object]
    scratch: bool = False


def first_site(symbol: str) -> str:
    """The symbol of the number that the first site of a group has among all of the entry."""
    return f"{symbol}.sites"


def emit_group(program: Program, target: Target, symbol: str) -> EmittedGroup:
    """The one function of a program for a CPU, under a symbol that an entry of another module calls."""
    module = ModuleWriter(target, first_site(symbol), program.sites)
    function = replace(program.functions[0], name=symbol)
    module.functions.append(_host_function(module, function, "hidden"))
    fallible = LEAVE in module.functions[-1]
    taking = scratch.has_scratch(function)
    if taking:
        module.functions.append(scratch.size_function(module, function, "hidden"))
    run_time_storage.add_functions(module)
    _declare_helpers(module)
    records = reports.site_records(program)
    if records:
        module.functions.append(f"  llvm.mlir.global external hidden constant @{module.first_site}() : i64\n")
    return EmittedGroup(module.text(), fallible, records, taking)


def emit_entry(
    program: Program,
    target: Target,
    fallible: Set[str],
    sites: Mapping[str, int],
    records: Sequence[object],
    taking: Set[str] = frozenset(),
) -> str:
    """The entry for a CPU by itself: the functions of the program are those of other modules.

    Args:
        fallible: which of them may leave early.
        sites: the number of the first site of each that has sites.
        records: of all sites, in their order.
        taking: which of the functions take memory of the device for themselves.
    """
    module = ModuleWriter(target)
    for function in program.functions:
        types = ["!llvm.ptr", *(module.type(value.type) for value in function.params)]
        module.functions.append(f"  llvm.func hidden @{function.name}({', '.join(types)}) -> i32\n")
    for name, number in sites.items():
        symbol = f"@{first_site(name)}({number} : i64)"
        module.functions.append(f"  llvm.mlir.global external hidden constant {symbol} : i64\n")
    module.functions.append(entry(program, fallible))
    for function in program.functions:
        if function.name in taking:
            sizes = ", ".join("i64" for value in function.params if not isinstance(value.type, PointerType))
            module.functions.append(f"  llvm.func hidden @{scratch.size_name(function.name)}({sizes}) -> i64\n")
    if taking:
        module.functions.append(scratch.entry_size(program, taking))
    _declare_helpers(module)
    module.functions.append(reports.report_table(records))
    return module.text()


def emit_helpers(target: Target) -> str:
    """What groups and entries of other modules call."""
    module = ModuleWriter(target)
    module.functions += [text.replace("internal", "hidden", 1) for text in (SPREAD, POLL)]
    return module.text()


HELPERS = {"ek.spread": "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr)", "ek.poll": "(!llvm.ptr, i32) -> i1"}


def _declare_helpers(module: ModuleWriter) -> None:
    for name, type in HELPERS.items():
        if module.calls(f"@{name}"):
            module.functions.append(f"  llvm.func hidden @{name}{type}\n")


def _small_entry(module: ModuleWriter, program: Program) -> str:
    """The entry with the one group in it; see `passes.merge_small_entry`."""
    function = program.functions[0]
    module.op = function.op
    _, buffers, sizes = program.calls[0]
    w = FunctionWriter(module)
    places = [("%pointers", "!llvm.ptr", b) for b in buffers]
    places += [("%dims", "i64", n.index) for n in sizes if isinstance(n, Slot)]
    for number, (value, (array, type, index)) in enumerate(zip(function.params, places, strict=True)):
        w.bind(value, f"%a{number}")
        at = f"llvm.getelementptr inbounds {array}[{index}] : (!llvm.ptr) -> !llvm.ptr, {type}"
        w.prologue.append(f"    %at{number} = {at}\n")
        w.prologue.append(f"    %a{number} = llvm.load %at{number} : !llvm.ptr -> {type}\n")
    _body(w, function)
    return w.finish(ENTRY)


def _body(w: FunctionWriter, function: ProgramFunction) -> None:
    """What a function does; it returns 0."""
    w.region(function.body)
    w.at = ""
    zero = w.op("arith.constant 0 : i32")
    w.line(f"llvm.return {zero} : i32")


# *** GPUs ***


def _kernels(module: ModuleWriter, program: Program) -> None:
    """Every kernel; its number is its place among them."""
    for function in program.functions:
        module.functions.append(_kernel(module, function))


def _kernel(module: ModuleWriter, function: ProgramFunction) -> str:
    w = FunctionWriter(module)
    launched = function.launched
    assert launched is not None
    accesses = launches.accesses_of(function)
    read_only = [v for v, access in zip(function.params, accesses, strict=True) if access == "read"]
    w.written = [v for v, access in zip(function.params, accesses, strict=True) if "write" in access]
    params = w.parameters(function.params, read_only)
    if has_reports(function.body):
        w.ring, w.missed = "%ring", report_rings.missed_at_barriers(function.body)
        params.append(f"{w.ring}: {w.pointer('global')} {{llvm.align = 8 : i64}}")
    w.most_pending = max((op.attrs["pending"] for op in walk(function.body) if op.opcode is COPY_WAIT), default=0)
    w.orders_matrices = any(op.opcode in (MULTIPLY_GROUPS, MULTIPLY_TENSOR) for op in walk(function.body))
    w.region(function.body)
    w.at = ""
    tensor_matrices.leave(w)
    w.line("llvm.return")
    types = tuple(str(v.type) for v in function.params)
    shared = static_shared(function.body)
    module.kernels.append(KernelInfo(function.name, launched.block, types, accesses, shared))
    attributes = module.target.kernel_attributes(launched.block, launched.wishes)
    head = f"llvm.func @{function.name}({', '.join(params)}) attributes {{{attributes}}}"
    return w.finish(head, module.location(launched.location))
