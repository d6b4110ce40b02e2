"""Makes files of exported graphs: objects of groups and entries, doors, messages and weights, linked.

See also `compiler.doors.c` (the door), `codegen.elf` (linking), `graph.engine.export` (what a file is made from).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, BinaryIO, Final

from ..dsl.contract.abi import ENTRY, LIBCALLS
from ..dsl.contract.exports import DOOR_CALLS, ExportSpec
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import TargetError
from ..dsl.frontend.program import PortableKernel
from .arena import arena_object
from .codegen.elf.blobs import Blob
from .codegen.elf.linker import write_relocatable, write_shared
from .codegen.elf.object_file import ObjectFile, read_object
from .codegen.elf.symbols import aliased, as_object, only, renamed
from .codegen.kept import kept_object
from .doors.c import c_text
from .groups import EntryObjects
from .runtime.float_modes import float_modes_object
from .runtime.levels import baseline, levels_object
from .runtime.messages import messages_text
from .runtime.native_threads import stack_object, threads_object
from .targets import Target, host, lookup
from .targets.cpu import LEVELS

# Begins the public symbols of a door as it is compiled; no other symbol and no name in C does.
_DOOR: Final = "door."

# The functions of a file's thread pool, by the suffix under which each graph exports them.
_OF_THREADS: Final = {
    "_set_threads": "ek_threads_set",
    "_set_parallel": "ek_threads_host",
    "_close": "ek_threads_close",
}


def export_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets of these names, the lowest level first; by default the one that most machines have.

    Raises:
        TargetError: one is unknown (EK0601), or is not a CPU, or they are of several architectures (EK0483).
    """
    default = "x86-64-v3" if host().architecture == "x86_64" else "aarch64"
    targets = [lookup(name) for name in names or [default]]
    for target in targets:
        if target.system is None or target.has_grid or target.architecture != targets[0].architecture:
            raise TargetError(
                f"a file cannot be exported for {', '.join(each.name for each in targets)}",
                code="EK0483",
                got=target.name,
                expected="CPUs of one architecture",
            )
    order = ["host", *LEVELS]
    return tuple(sorted(targets, key=lambda target: order.index(target.name) if target.name in order else -1))


@dataclass(frozen=True)
class ExportGraph:
    """A graph of a file.

    Attributes:
        spec: what its door is written from.
        targets: what its code was made for, the lowest level first.
        objects: the objects of its entry for each target.
        weights: for each of the spec's weights, its number among the arrays of the file.
    """

    spec: ExportSpec
    targets: tuple[Target, ...]
    objects: tuple[EntryObjects, ...] = field(repr=False)
    weights: tuple[int, ...] = ()


def write_export(
    file: BinaryIO,
    graphs: Sequence[ExportGraph],
    arrays: Sequence[Any],
    *,
    arena: PortableKernel,
    relocatable: bool = False,
    soname: str = "",
    debug: bool = False,
) -> None:
    """Writes the file of some graphs.

    Args:
        file: where to; it is written in order.
        graphs: what it holds.
        arrays: the weights, which the graphs share; each has the buffer protocol.
        arena: the kernel that lays out temporaries.
        relocatable: an object for other linkers instead of a shared object.
        soname: what a shared object calls itself.
        debug: whether the file has the lines of kernels for debuggers.
    """
    blobs = [Blob(_array_symbol(number), array) for number, array in enumerate(arrays)]
    objects = [*(_graph_object(graph) for graph in graphs), *_shared_objects(graphs, arena)]
    public = [symbol for graph in graphs for symbol in public_symbols(graph.spec)]
    if relocatable:
        write_relocatable(file, objects, public=public, blobs=blobs, debug=debug)
        return
    undefined = {symbol.name for each in objects for symbol in each.symbols if symbol.undefined}
    libraries = {**LIBCALLS, **DOOR_CALLS}
    needed = sorted({libraries[symbol] for symbol in undefined if symbol in libraries}, reverse=True)
    write_shared(file, objects, needed=needed, soname=soname, public=public, blobs=blobs, debug=debug)


def public_symbols(spec: ExportSpec) -> tuple[str, ...]:
    """The symbols of a graph's door that programs see."""
    names = ["", "_describe", "_model"]
    names += [] if spec.stages > 1 else ["_in", "_workspace", "_prepare", "_run"]
    names += ["_free"] if any(each.stage for each in spec.outputs) else []
    names += _OF_THREADS if spec.threads else []
    names += ["_set_print"] if spec.prints else []
    names += ["_set_weight" if spec.file is None else "_open_weights"] if spec.given else []
    return tuple(f"{spec.name}{name}" for name in names)


def _array_symbol(number: int) -> str:
    return f"ek_array_{number}"


def _graph_object(graph: ExportGraph) -> ObjectFile:
    """All objects of a graph as one, which others know by the symbols of its door. What runs before a level is chosen
    is compiled for the lowest one of the architecture."""
    spec, base = graph.spec, baseline(graph.targets[0])
    parts: list[ObjectFile] = []
    levels = [target.name for target in graph.targets]
    several = len(levels) > 1 or levels[0] in LEVELS
    for target, made in zip(graph.targets, graph.objects, strict=True):
        name = f"{ENTRY}__{target.name}" if several else ENTRY
        parts.append(renamed(only(made.objects, [ENTRY]), {ENTRY: name}))
    if several:  # else there is nothing to choose, and no machine to refuse
        parts.append(levels_object(levels, base))
    private = replace(spec, name=_DOOR)
    names = {f"ek_weight_{k}": _array_symbol(number) for k, number in enumerate(graph.weights)}
    names |= dict(zip(public_symbols(private), public_symbols(spec), strict=True))
    parts.append(renamed(kept_object(c_text(private, base), base), names))
    messages = read_object(kept_object(messages_text(spec.messages, hook=spec.prints), base))
    parts.append(renamed(messages, {"ek_describe": f"{spec.name}_describe"}))
    return only(parts, public_symbols(replace(spec, threads=False)))


def _shared_objects(graphs: Sequence[ExportGraph], arena: PortableKernel) -> list[ObjectFile]:
    """The objects that all graphs of a file use: float modes; the layout of arenas, threads, checks of stacks where it
    needs them."""
    base = baseline(graphs[0].targets[0])
    specs = [graph.spec for graph in graphs]
    objects: list[bytes | ObjectFile] = [float_modes_object(base)]
    if any(temp.offset is None for spec in specs for temp in spec.temps):
        objects.append(arena_object(arena, base))
    threaded = [spec.name for spec in specs if spec.threads]
    if threaded:
        names = {f"{name}{end}": function for name in threaded for end, function in _OF_THREADS.items()}
        objects.append(aliased(threads_object(base), names))
    if any(spec.looks_at_stacks for spec in specs):
        objects.append(stack_object(base))
    return [as_object(each) for each in objects]
