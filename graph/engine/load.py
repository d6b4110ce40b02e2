"""Finds a graph's code: in the cache, in a package, or through the compiler.

The cache is keyed by everything that the code depends on. `EINKORN_NO_JIT=1` closes the way to the compiler, and says
what was missing.

Input: a `GraphIR`. Output: `LoadedCode`, ready to be called. Non-goals: no memory, no calls; how code is made (see
`engine.compile`).
"""

from __future__ import annotations

import json
import logging

from ...dsl.contract.checks import SAFE, Checks
from ...dsl.diagnostics.errors import PackageError
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.knobs import knobs
from ...dsl.environment.log import start_log
from ..ir import GraphIR, Node
from ..passes.memory_plan import Plan, bound_dtypes, make_plan
from .cache_keys import graph_key, partition_from_json, partition_to_json
from .code import LoadedCode, open_code
from .compile import (
    architecture,
    chosen_checks,
    compile_graph,
    host_target,
    interpret_graph,
    lacking,
    reproducing_faults,
)
from .packaged_code import hint_without_code, matching, op_plan, ready_code, single_op

_log = logging.getLogger("einkorn.load")


def load_graph(ir: GraphIR, *, fuse: bool = True, checks: Checks | None = None) -> LoadedCode:
    """The code of a graph on the host, from the cache, a package or the compiler.

    `checks` says what the code checks as it runs. When nobody says it, compiled code checks what is `safe`, and
    ready-made code is taken as it is. To find a NaN where it arises, every op stores its results: nothing is fused.

    Raises:
        CompileError: a mistake in a kernel.
        PackageError: `EINKORN_NO_JIT` is set and no code is at hand.
    """
    start_log()
    with reproducing_faults(ir, fuse, checks):
        wanted = chosen_checks(checks)
        checks = wanted or SAFE
        fuse = fuse and not checks.finds
        key = graph_key(ir, host_target().key, fuse, checks)
        found = _from_cache(key, ir)
        if found is not None:
            _log.info("graph '%s': from the cache", ir.name)
            return found
        ready = _from_package(ir, wanted)
        if ready is not None:
            _log.info("graph '%s': ready-made code from %s", ir.name, ready.tier)
            return ready
        if knobs.no_jit:
            raise _nothing_ready(ir)
        _log.info("graph '%s': compiling", ir.name)
        return _compiled(key, ir, fuse, checks)


def load_anew(ir: GraphIR, fuse: bool, checks: Checks, interpret: bool) -> LoadedCode:
    """The code of a graph, compiled whatever the cache holds: what a reproducer asks for."""
    if interpret:
        return interpret_graph(ir, checks=checks)
    with reproducing_faults(ir, fuse, checks):
        return _compiled(graph_key(ir, host_target().key, fuse, checks), ir, fuse, checks)


def _from_cache(key: str, ir: GraphIR) -> LoadedCode | None:
    cache = shared_cache()
    parts = cache.get(key, ".json")
    path = cache.path(key, ".so")
    if parts is None or path is None:
        return None
    try:
        return open_code(path, make_plan(ir, partition_from_json(json.loads(parts)), entry=False), "cache")
    except OSError:  # another process has removed it meanwhile
        return None


def _compiled(key: str, ir: GraphIR, fuse: bool, checks: Checks) -> LoadedCode:
    made = compile_graph(ir, host_target(), fuse, checks)
    shared_cache().put(key, json.dumps(partition_to_json(made.parts)).encode(), ".json")
    return _keep(key, made.code, made.plan, "compiled")


def _keep(key: str, code: bytes, plan: Plan, tier: str) -> LoadedCode:
    """Keeps code and loads it: from the cache, or from this process's own folder where the cache's file goes away."""
    cache = shared_cache()
    try:
        return open_code(cache.path(key, ".so") or cache.put(key, code, ".so"), plan, tier)
    except OSError:
        path = cache.put(key, code, ".so", private=True)
    try:
        return open_code(path, plan, tier)
    except OSError as error:
        raise PackageError(
            f"compiled code cannot be loaded into the process: {error}",
            code="EK0518",
            hint="let EINKORN_CACHE_DIR name a folder from which code may be run",
        ) from None


def _from_package(ir: GraphIR, checks: Checks | None) -> LoadedCode | None:
    """Ready-made code, for a graph that is one op of a package; with these checks, if it matters."""
    node = None if ir.patterns else single_op(ir)
    package = node.kernel.package if node is not None else None
    if node is None or package is None:
        return None
    kernel = node.kernel
    wanted = bound_dtypes(node, [ir.types[value].dtype for value in node.operands])
    for variant in matching(kernel, wanted, ir, node, lacking):
        if checks is not None and variant.checks != str(checks):
            continue
        data = ready_code(package, variant, architecture(variant.target))
        key = content_key("package", variant.code.sha256)
        return _keep(key, data, op_plan(ir, node), f"{kernel.origin} ({variant.target})")
    return None


def _nothing_ready(ir: GraphIR) -> PackageError:
    names = sorted({node.name for node in ir.nodes if isinstance(node, Node)})
    return PackageError(
        f"graph '{ir.name}' has no ready-made code for this machine, and EINKORN_NO_JIT forbids to compile it",
        code="EK0512",
        got=names,
        notes=[f"it uses {', '.join(names)}", "ready-made code serves graphs of a single custom op from a package"],
        hint=hint_without_code(ir),
    )
