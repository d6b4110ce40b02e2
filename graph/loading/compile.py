"""Requests a graph's code from the compiler: the only module of `graph` that imports it.

Imports of the compiler stand inside functions of this module alone: a warm start requests this machine's target and
loads neither MLIR nor LLVM.

See also `loading.load`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from ...dsl.contract.checks import SAFE, Checks, parse_checks
from ...dsl.contract.doors import DoorSpec
from ...dsl.contract.unit import EntrySpec, NodeSpec, Piece, Size, Slot
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import CompileError, DeviceError, EinkornError, InternalError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.compiling import compiling
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.environment.knobs import knobs
from ...dsl.environment.log import start_log
from ...dsl.frontend.program import PortableKernel
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.parameters import identity
from ..driver.device import Driver
from ..driver.devices import Device, DeviceRef
from ..findings.reports import reports_of
from ..ir import GraphIR, Node
from ..passes.fusion import Facts, Partition
from ..passes.light_work import light_groups, light_products
from ..passes.memory_plan import Plan, bound_dtypes
from ..passes.pipeline import Planning, fuses, plan_graph
from ..staging.kernels import shipped_kernel
from ..types.dims import Dim, StaticDim
from .code import CompiledGraph, LoadedCode
from .progress import OnProgress
from .requests import add_requests

if TYPE_CHECKING:
    from ...compiler.explorer.page import Drawing
    from ...compiler.explorer.reasons import Reasons
    from ...compiler.groups import EntryObjects
    from ...compiler.targets import Target
    from ...dsl.contract.exports import ExportSpec, Shown

_log = logging.getLogger("einkorn.load")
Built = TypeVar("Built")


def host_target() -> Target:
    """This machine as a target."""
    with shielded():
        from ...compiler.targets import host

    return host()


def targets_of(device: Device) -> tuple[Target, ...]:
    """The targets that code for a device is made for: the host's half first, if there are two."""
    with shielded():
        from ...compiler.targets import newest_for

    return tuple(newest_for(name) for name in device.driver.targets)


def compiled_for(driver: Driver) -> str:
    """The name of the target that code for a device is made for, which means the same on other machines."""
    with shielded():
        from ...compiler.targets import named, newest_for

    target = newest_for(driver.targets[-1])
    return target.name if target.simulates else named(target).name


def lacking(target: str, requirements: Sequence[str]) -> Sequence[str]:
    """What this machine lacks for code of a target with these requirements."""
    with shielded():
        from ...compiler.targets import lacking as found

    return found(target, requirements)


def architecture(target: str) -> str:
    """The architecture that code of a target runs on."""
    with shielded():
        from ...compiler.targets import architecture as found

    return found(target)


def pool_code(target: Target) -> bytes:
    """The code of the thread pool.

    Raises:
        TargetError: there is none for this machine.
    """
    with shielded():
        from ...compiler.runtime.thread_pool import pool_object

    return pool_object(target)


def arena_code(kernel: PortableKernel, target: Target) -> bytes:
    """The code that lays out temporaries, as a shared object.

    Raises:
        TargetError: there is no LLVM.
    """
    with shielded():
        from ...compiler.arena import arena_library

    return arena_library(kernel, target)


def door_code(name: str, spec: DoorSpec, form: object, target: Target) -> bytes:
    """The code of a door.

    Raises:
        TargetError: there is none for this machine, or no LLVM.
    """
    with shielded():
        from ...compiler.doors.rows import door_object, door_text

    return door_object(name, door_text(name, spec, form), target)


def launcher_code(library: str, target: Target) -> bytes:
    """The code that calls a library of GPUs; of "sim", that which checks what simulated kernels do with memory; of
    "mpi", that through which collectives reach it.

    Raises:
        TargetError: there is none for this machine.
    """
    with shielded():
        from ...compiler.runtime.rows import library_object

    return library_object(library, target)


def plain_door() -> str:
    """The text of the door that numba compiles into its code."""
    with shielded():
        from ...compiler.doors.plain import plain_text

    return plain_text()


def chosen_checks(said: Checks | None) -> Checks | None:
    """What the session says, or else the environment."""
    return said or (parse_checks(knobs.checks) if knobs.checks else None)


def stage_text(kernel: LoadedKernel, wanted: Mapping[str, Any], target: str, stage: str) -> str:
    """One stage of a kernel's compilation; `wanted` says which instance: see `compiler.instances.make_instance`.

    Raises:
        TargetError: an unknown target.
        CompileError: a mistake in the kernel, or an unknown stage.
    """
    with shielded():
        from ...compiler.explorer.stage import stage_text as found
        from ...compiler.instances import make_instance

    return found(kernel, make_instance(kernel.schema, **wanted), target, stage)


def explorer_page(
    kernel: LoadedKernel, wanted: Mapping[str, Any], targets: Sequence[str], sizes: Mapping[str, int], draw: Drawing
) -> str:
    """The page of a kernel's compilation for some targets; `wanted` as for `stage_text`, the rest as for `page_of`."""
    with shielded():
        from ...compiler.explorer.page import page_of
        from ...compiler.instances import make_instance

    return page_of(kernel, make_instance(kernel.schema, **wanted), targets, sizes, draw)


# *** code ***


def compile_graph(
    ir: GraphIR,
    targets: Sequence[Target],
    fuse: bool,
    checks: Checks,
    parts: Partition | None = None,
    on_progress: OnProgress | None = None,
) -> CompiledGraph:
    """Compiles a graph for the targets of its device, in these groups or in those that fusion finds; a group that
    cannot be built loses its root, the others stay. `on_progress` is called with the progress.

    Raises:
        CompileError: a mistake in a kernel.
    """
    with shielded():
        from ...compiler.groups import compile_groups
        from ...compiler.pipeline import compile_entry

    target = targets[-1]

    def build(unit: EntrySpec) -> tuple[Piece, ...]:
        if len(unit.groups) > 1 and not target.has_grid:
            return (compile_groups(unit, target, on_progress),)
        return compile_entry(unit, target, hosts=targets[:-1]).pieces

    return CompiledGraph(*_built(ir, target, fuse, checks, parts, build, not target.has_grid))


def _built(
    ir: GraphIR,
    target: Target,
    fuse: bool,
    checks: Checks,
    parts: Partition | None,
    build: Callable[[EntrySpec], Built],
    quick: bool = False,
) -> tuple[Partition, Plan, Built]:
    """What `build` makes of a graph in groups that it can build, with these and their plan; `quick` marks the light."""
    with shielded():
        from ...compiler.ir.program import NotFusible

    facts = functools.cache(functools.partial(node_facts, ir, target))
    quick = quick and fuse
    apart = light_products(ir, facts) if quick and parts is None else frozenset[int]()
    plan = plan_graph(Planning(ir, facts, fuse, apart, parts=parts))
    parts = plan.parts
    assert parts is not None
    try:
        unit = _unit(plan, checks)
        return parts, plan, build(replace(unit, groups=light_groups(ir, plan, facts)) if quick else unit)
    except NotFusible as error:
        apart = parts.roots(error.groups)
        if not apart:
            raise
        _log.info("graph '%s': %s: fusion disabled for %d groups", ir.name, error.message, len(apart))
        again = plan_graph(Planning(ir, facts, fuse, apart | parts.apart)).parts
        return _built(ir, target, fuse, checks, again, build, quick)
    except CompileError as error:
        add_requests(error, ir)
        raise


FRAMES: Final = 32 << 10  # bytes of a stack for all but the storage of kernels


@dataclass(frozen=True, eq=False)
class ExportedCode:
    """The code of a graph for export: the plan of its buffers, the objects for each target, what its sites report.

    Attributes:
        plan, records: the same for all targets.
        target_names: of the targets, the lowest level first.
        objects: those of each target.
        digest: of the code.
        stack: bytes that a thread needs for a call.
    """

    plan: Plan
    target_names: tuple[str, ...]
    objects: tuple[EntryObjects, ...]
    records: tuple[object, ...]
    digest: str
    stack: int = 0


@compiling
def export_code(ir: GraphIR, targets: Sequence[str], checks: Checks | None) -> ExportedCode:
    """The code of a graph for some CPUs; for that at hand where none is named.

    Raises:
        TargetError: an unknown target, or one that is not a CPU, or targets of several architectures.
        CompileError: a mistake in a kernel.
    """
    from ...compiler.codegen.elf.symbols import code_digest

    start_log()
    machines = export_machines(targets)
    parts: Partition | None = None
    plan: Plan | None = None
    made = []
    with reproducing_faults(ir, True, checks):
        wanted = chosen_checks(checks) or SAFE
        for machine in machines:
            partition, planned, objects = _built(
                ir, machine, fuses() and not wanted.finds, wanted, parts, functools.partial(_objects, machine)
            )
            plan, parts = planned, partition
            made.append(objects)
    assert plan is not None
    digest = code_digest([part for each in made for part in each.objects])
    stack = max(each.stack for each in made) + FRAMES
    return ExportedCode(plan, tuple(m.name for m in machines), tuple(made), made[0].records, digest, stack)


def export_machines(targets: Sequence[str]) -> tuple[Target, ...]:
    """The targets that a file is exported for; see `compiler.export.export_targets`."""
    with shielded():
        from ...compiler.export import export_targets

    return export_targets(targets)


def _objects(machine: Target, unit: EntrySpec) -> EntryObjects:
    with shielded():
        from ...compiler.groups import entry_objects

    return entry_objects(unit, machine, to_keep=True)


def write_export(
    file: BinaryIO,
    graphs: Sequence[tuple[ExportSpec, ExportedCode, tuple[int, ...]]],
    arrays: Sequence[Any],
    **how: Any,
) -> None:
    """Writes the file of exported graphs: see `compiler.export`."""
    with shielded():
        from ...compiler import export
        from ...compiler.targets import lookup

    held = [
        export.ExportGraph(spec, tuple(map(lookup, code.target_names)), code.objects, numbers)
        for spec, code, numbers in graphs
    ]
    arena = shipped_kernel("arena", "arena").portable
    export.write_export(file, held, arrays, arena=arena, **how)


def header_code(specs: Sequence[ExportSpec], name: str) -> str:
    """The header of exported graphs; of none: the types that all of them share."""
    with shielded():
        from ...compiler.doors.c_header import header_text

    return header_text(specs, name)


def unformatted(shown: Shown) -> bool:
    """Whether exported code shows a value without its format."""
    with shielded():
        from ...compiler.runtime.messages import is_plain

    return is_plain(shown)


def graph_stage(ir: GraphIR, target: str, stage: str, checks: Checks | None = None) -> str:
    """One stage of a graph's compilation for a target, whose devices need not be here.

    Raises:
        TargetError: an unknown target, or one without machine code that can be shown here.
        CompileError: a mistake in a kernel, or an unknown stage.
    """
    with shielded():
        from ...compiler.explorer.stage import check_stage, shown
        from ...compiler.pipeline import compile_entry
        from ...compiler.targets import lookup

    machine = lookup(target)
    check_stage(stage, machine)
    with reproducing_faults(ir, True, checks):
        known = chosen_checks(checks) or SAFE
        _, _, artifact = _built(ir, machine, True, known, None, lambda unit: compile_entry(unit, machine))
    return shown(artifact, stage)


def graph_reasons(ir: GraphIR, target: str) -> tuple[Reasons, Plan]:
    """What was chosen for the kernels of a graph, whose device need not be here, and the plan with its slots.

    Raises:
        TargetError: an unknown target.
        CompileError: a mistake in a kernel, or something that the target lacks.
    """
    with shielded():
        from ...compiler.explorer.reasons import reasons_of
        from ...compiler.targets import lookup

    machine = lookup(target)
    with reproducing_faults(ir, True, None):
        _, plan, reasons = _built(ir, machine, True, SAFE, None, lambda unit: reasons_of(unit, machine))
    return reasons, plan


def named_targets(names: Sequence[str]) -> list[Target]:
    """The targets of these names, each once; for the machine at hand, its best level."""
    with shielded():
        from ...compiler.targets import lookup, named

    return list(dict.fromkeys(named(lookup(name)) for name in names))


def has_grids(target: str) -> bool:
    """Whether a target is a GPU.

    Raises:
        TargetError: an unknown target.
    """
    with shielded():
        from ...compiler.targets import lookup

    return bool(lookup(target).has_grid)


@compiling
def interpret_graph(ir: GraphIR, *, checks: Checks | None = None) -> LoadedCode:
    """A graph for the interpreter: nothing is compiled, fused or kept in the cache.

    Raises:
        CompileError: a mistake in a kernel.
        DeviceError: EK0806 the graph runs elsewhere than on the host.
    """
    if not ir.device.to_device().is_host:
        raise DeviceError(
            f"graph '{ir.name}' runs on {ir.device}, and kernels are interpreted in the host's memory only",
            code="EK0806",
            place=user_place(),
            expected=str(DeviceRef.CPU()),
            got=str(ir.device),
        )
    with shielded():
        from ...compiler.interpreter.entry import Interpreted
        from ...compiler.pipeline import typed_program

    start_log()
    with reproducing_faults(ir, False, checks, interpret=True):
        target = host_target()
        plan = plan_graph(Planning(ir, functools.partial(node_facts, ir, target), fuse=False))
        try:
            unit = _unit(plan, chosen_checks(checks) or SAFE)
            code = Interpreted(typed_program(unit, target, notes=True), unit)
        except CompileError as error:
            add_requests(error, ir)
            raise
    return LoadedCode(code.entry, plan, reports_of(code.sites), "interpreter")


def _unit(plan: Plan, checks: Checks) -> EntrySpec:
    assert plan.entry is not None
    return replace(plan.entry, checks=str(checks))


# *** mistakes and faults ***


@contextmanager
def reproducing_faults(ir: GraphIR, fuse: bool, checks: Checks | None, interpret: bool = False) -> Iterator[None]:
    """Makes what the work on a graph trips over a fault of Einkorn's, with a reproducer; a mistake stays one."""
    try:
        yield
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        known = error.reproducer if isinstance(error, InternalError) else isinstance(error, EinkornError)
        if known:
            raise
        with shielded():
            from ...compiler.reproducer import fault
            from .reproducer import graph_to_json

        held = None
        with suppress(Exception):  # the graph itself may be what is wrong
            held = graph_to_json(ir, fuse, chosen_checks(checks) or SAFE, interpret)
        raise fault(held, host_target(), error) from error


# *** facts for fusion ***


def facts_on_device(ir: GraphIR) -> Callable[[Node], Facts]:
    """What the nodes of a graph allow on the device that it runs on; on a usual GPU, where that is not here."""
    with shielded():
        from ...compiler.targets import lookup
        from ...compiler.targets.simulated import LIKE

    try:
        target = targets_of(ir.device.to_device())[-1]
    except DeviceError:
        target = lookup(LIKE)
    return functools.cache(functools.partial(node_facts, ir, target))


FACTS_KEPT = 4096
_facts: dict[object, KnownFacts] = {}


@dataclass(frozen=True)
class KnownFacts:
    """What a kernel instance allows; see `compiler.inference.facts.Facts`, which this is a copy of."""

    elementwise: bool
    cost: int
    identity: tuple[bool, ...]
    loads: tuple[int, ...]
    loops: bool
    indexed: bool


def node_facts(ir: GraphIR, target: Target, node: Node) -> Facts:
    """What a node allows; found once for each kernel, dtypes, parameters and pattern of shapes, and kept in the cache.

    To find it takes as long as a quarter of the compilation, and it is the same in every graph.
    """
    inputs, outputs, dtypes = _probed(ir, node)
    parameters = tuple((name, identity(value)) for name, value in node.parameters)
    key = (node.kernel.digest, dtypes, parameters, inputs, outputs, target.key)
    facts = _facts.pop(key, None)
    if facts is None:
        name = content_key("facts", repr(key), fingerprint())
        facts = _kept_facts(name)
        if facts is None:
            facts = _found_facts(NodeSpec(node.kernel.portable, dtypes, node.parameters, (), outputs), inputs, target)
            shared_cache().put(name, json.dumps(dataclasses.astuple(facts)).encode(), ".facts")
    _facts[key] = facts  # the last used come last
    while len(_facts) > FACTS_KEPT:
        _facts.pop(next(iter(_facts), None), None)
    return facts


def _probed(ir: GraphIR, node: Node) -> tuple[Any, Any, Any]:
    """Dtypes and shapes of a node's operands and results, and the dtype of each type variable."""
    slots: dict[Dim, int] = {}

    def shape(dims: Any) -> tuple[Size, ...]:
        return tuple(int(d) if isinstance(d, StaticDim) else Slot(slots.setdefault(d, len(slots))) for d in dims)

    types = [ir.types[value] for value in node.operands]
    inputs = tuple((t.dtype, shape(t.shape)) for t in types)
    outputs = tuple((t.dtype, shape(t.shape)) for t in node.out_types)
    return inputs, outputs, bound_dtypes(node, [t.dtype for t in types])


@compiling
def element_facts(ir: GraphIR, node: Node) -> tuple[str, str]:
    """Why an element of the node's results is not made of the elements of its operands at its place alone, "" when it
    is; and the name of the opcode that makes it of an element of each of two operands, if that is all. Kept in the
    cache.
    """
    target = targets_of(ir.device.to_device())[-1]
    inputs, outputs, dtypes = _probed(ir, node)
    parameters = tuple((name, identity(value)) for name, value in node.parameters)
    name = content_key(
        "element", repr((node.kernel.digest, dtypes, parameters, inputs, outputs, target.key)), fingerprint()
    )
    known = shared_cache().get(name, ".facts")
    if known is None:
        with shielded():
            from ...compiler.inference import facts

        spec = NodeSpec(node.kernel.portable, dtypes, node.parameters, (), outputs)
        known = json.dumps(dataclasses.astuple(facts.element_facts(spec, inputs, target))).encode()
        shared_cache().put(name, known, ".facts")
    trouble, operation = json.loads(known)
    return trouble, operation


@compiling
def batch_facts(ir: GraphIR, node: Node, counts: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[str, str]:
    """Why the members of a batch of the node may depend on each other, "" when they do not; and a digest of what is
    computed for one. Inputs and outputs begin with so many axes of the batch. Kept in the cache.
    """
    target = targets_of(ir.device.to_device())[-1]
    inputs, outputs, dtypes = _probed(ir, node)
    parameters = tuple((name, identity(value)) for name, value in node.parameters)
    key = (node.kernel.digest, dtypes, parameters, inputs, outputs, counts, target.key)
    name = content_key("batch", repr(key), fingerprint())
    known = shared_cache().get(name, ".facts")
    if known is None:
        with shielded():
            from ...compiler.inference import batches

        spec = NodeSpec(node.kernel.portable, dtypes, node.parameters, (), outputs)
        known = json.dumps(dataclasses.astuple(batches.batch_facts(spec, inputs, target, counts))).encode()
        shared_cache().put(name, known, ".facts")
    trouble, member = json.loads(known)
    return trouble, member


def _kept_facts(name: str) -> KnownFacts | None:
    data = shared_cache().get(name, ".facts")
    if data is None:
        return None
    elementwise, cost, same, loads, loops, indexed = json.loads(data)
    return KnownFacts(elementwise, cost, tuple(same), tuple(loads), loops, indexed)


def _found_facts(spec: NodeSpec, inputs: Any, target: Target) -> KnownFacts:
    with shielded():
        from ...compiler.inference.facts import find_facts

    result = find_facts(spec, inputs, target)
    return KnownFacts(result.elementwise, result.cost, result.identity, result.loads, result.loops, result.indexed)
