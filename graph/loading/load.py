"""Finds a graph's code: in the cache, in a package, or through the compiler.

The cache is keyed by everything that the code depends on. `EINKORN_NO_JIT=1` closes the way to the compiler, and says
what was missing.

See also `loading.compile`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from ...dsl.contract.abi import ABI_VERSION
from ...dsl.contract.checks import SAFE, Checks
from ...dsl.contract.unit import Piece
from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.compiling import compiling
from ...dsl.environment.knobs import knobs
from ...dsl.environment.log import start_log
from ...dsl.environment.memory_limit import hint_for_limit
from ..driver.device import CodeFile
from ..driver.devices import Device
from ..ir import GraphIR, Node
from ..passes.fusion import Partition
from ..passes.memory_plan import Plan, bound_dtypes
from ..passes.pipeline import Planning, fuses, plan_graph
from .cache_keys import graph_key, partition_from_json, partition_to_json
from .code import LoadedCode, open_code
from .compile import (
    architecture,
    chosen_checks,
    compile_graph,
    facts_on_device,
    interpret_graph,
    lacking,
    reproducing_faults,
    targets_of,
)
from .progress import shown_progress

_log = logging.getLogger("einkorn.load")


@compiling
def load_graph(ir: GraphIR, *, fuse: bool = True, checks: Checks | None = None) -> LoadedCode:
    """The code of a graph for its device, from the cache, a package or the compiler.

    `checks` says what the code checks as it runs. By default, compiled code checks what is `safe`, and
    ready-made code is taken as it is. To find a NaN where it arises, every op stores its results: nothing is fused.

    Raises:
        CompileError: a mistake in a kernel.
        PackageError: `EINKORN_NO_JIT` is set and no code is at hand.
    """
    start_log()
    with reproducing_faults(ir, fuse, checks):
        wanted = chosen_checks(checks)
        checks = wanted or SAFE
        fuse = fuse and fuses() and not checks.finds
        device = ir.device.to_device()
        key = graph_key(ir, _target_keys(device), fuse, checks)
        result = _from_cache(key, ir, device)
        if result is not None:
            _log.info("graph '%s': from the cache", ir.name)
            return result
        ready = _from_package(ir, device, wanted)
        if ready is not None:
            _log.info("graph '%s': ready-made code from %s", ir.name, ready.tier)
            return ready
        if knobs.no_jit:
            raise _nothing_ready(ir)
        _log.info("graph '%s': compiling", ir.name)
        return _compiled(key, ir, device, fuse, checks)


@compiling
def load_anew(ir: GraphIR, fuse: bool, checks: Checks, interpret: bool) -> LoadedCode:
    """The code of a graph, compiled whatever the cache holds: what a reproducer requests."""
    if interpret:
        return interpret_graph(ir, checks=checks)
    with reproducing_faults(ir, fuse, checks):
        device = ir.device.to_device()
        return _compiled(graph_key(ir, _target_keys(device), fuse, checks), ir, device, fuse, checks)


@compiling
def load_parts(ir: GraphIR, parts: Partition | None, *, checks: Checks | None = None) -> LoadedCode:
    """The code of a graph in these groups, or with every op by itself."""
    if parts is None:
        return load_graph(ir, fuse=False, checks=checks)
    wanted, device = chosen_checks(checks) or SAFE, ir.device.to_device()
    with reproducing_faults(ir, True, wanted):
        key = content_key(graph_key(ir, _target_keys(device), True, wanted), partition_to_json(parts))
        return _from_cache(key, ir, device) or _compiled(key, ir, device, True, wanted, parts)


def _target_keys(device: Device) -> list[str]:
    return [target.key for target in targets_of(device)]


# *** the cache ***


def _from_cache(key: str, ir: GraphIR, device: Device) -> LoadedCode | None:
    """The code that the cache has: all of it, for half an artifact is a miss."""
    known = shared_cache().get(key, ".json")
    if known is None:
        return None
    record = json.loads(known)
    files = _files(key, [(kind, target, size) for kind, target, size in record["pieces"]])
    if files is None:
        return None
    try:
        parts = partition_from_json(record["groups"], ir)
        plan = plan_graph(Planning(ir, facts_on_device(ir), parts=parts, entry=False))
        return open_code(files, device, plan, "cache")
    except OSError:  # another process has removed it meanwhile
        return None


def _files(key: str, pieces: Sequence[tuple[str, str, int]]) -> list[CodeFile] | None:
    """The files of the cache with these pieces, given as (kind, target, size), or None if one is missing."""
    files = []
    for number, (kind, target, size) in enumerate(pieces):
        path = shared_cache().path(key, _suffix(kind, number))
        if path is None:
            return None
        files.append(CodeFile(kind, target, path, size))
    return files


def _suffix(kind: str, number: int) -> str:
    """How the name of a piece ends in the cache; a second one may be of the same kind."""
    return f".{kind}{number or ''}"


def _compiled(
    key: str, ir: GraphIR, device: Device, fuse: bool, checks: Checks, parts: Partition | None = None
) -> LoadedCode:
    alone = len(ir.nodes) == 1 and isinstance(ir.nodes[0], Node) and ir.nodes[0].kernel.schema.name == ir.name
    with shown_progress(
        ir.name, "compiling op" if alone else "compiling graph"
    ) as on_progress:  # a kernel that is called
        made = compile_graph(ir, targets_of(device), fuse, checks, parts, on_progress)
    record = {
        "groups": partition_to_json(made.parts),
        "pieces": [[piece.kind, piece.target, len(piece.code)] for piece in made.pieces],
    }
    shared_cache().put(key, json.dumps(record).encode(), ".json")
    return keep_pieces(key, made.pieces, device, made.plan, "compiled")


def keep_pieces(
    key: str, pieces: Sequence[Piece], device: Device, plan: Plan, tier: str, version: int = ABI_VERSION
) -> LoadedCode:
    """Keeps code and loads it: from the cache, or from this process's own folder where the cache's files go away."""
    known = _files(key, [(piece.kind, piece.target, len(piece.code)) for piece in pieces])
    try:
        return open_code(known or _kept(key, pieces, private=False), device, plan, tier, version)
    except OSError:
        files = _kept(key, pieces, private=True)
    try:
        return open_code(files, device, plan, tier, version)
    except OSError as error:
        raise PackageError(
            f"compiled code cannot be loaded into the process: {error}",
            code="EK0518",
            hint=hint_for_limit() or "let EINKORN_CACHE_DIR name a folder from which code may be run",
        ) from None


def _kept(key: str, pieces: Sequence[Piece], private: bool) -> list[CodeFile]:
    files = []
    for number, piece in enumerate(pieces):
        path = shared_cache().put(key, piece.code, _suffix(piece.kind, number), private=private)
        files.append(CodeFile(piece.kind, piece.target, path, len(piece.code)))
    return files


# *** packages ***


def _from_package(ir: GraphIR, device: Device, checks: Checks | None) -> LoadedCode | None:
    """Ready-made code, for a graph that is one op of a package; with these checks, if it matters."""
    if all(node.kernel.package is None for node in ir.nodes if isinstance(node, Node)):
        return None
    # most graphs have no use for it
    with shielded():
        from .packaged_code import host_of, matching, op_plan, ready_halves, ready_pieces, single_op

    node = None if ir.patterns or ir.traced else single_op(ir)
    package = node.kernel.package if node is not None else None
    if node is None or package is None:
        return None
    kernel, driver = node.kernel, device.driver
    in_process = len(driver.targets) == 1
    if not in_process and ir.steps:
        return None  # sizes are computed on the device, by code of the graph
    wanted = bound_dtypes(node, [ir.types[value].dtype for value in node.operands])
    runs = None if in_process else lambda variant: driver.runs(variant.kind, variant.target)
    for variant in matching(kernel, wanted, ir, node, lacking, runs):
        if checks is not None and variant.checks != str(checks):
            continue
        host = host_of(variant, lacking)
        if host is not None:
            pieces = ready_halves(package, variant, host, architecture(host))
        else:
            pieces = ready_pieces(package, variant, architecture(variant.target))
        key = content_key("package", *(member.sha256 for member in variant.members), host or "")
        tier, version = f"{kernel.origin} ({variant.target})", package.manifest.abi
        return keep_pieces(key, pieces, device, op_plan(ir, node), tier, version)
    return None


def _nothing_ready(ir: GraphIR) -> PackageError:
    with shielded():
        from .packaged_code import hint_without_code

    names = sorted({node.name for node in ir.nodes if isinstance(node, Node)})
    return PackageError(
        f"graph '{ir.name}' has no ready-made code for this machine, and EINKORN_NO_JIT forbids to compile it",
        code="EK0512",
        got=names,
        notes=[f"it uses {', '.join(names)}", "ready-made code serves graphs of a single custom op from a package"],
        hint=hint_without_code(ir),
    )
