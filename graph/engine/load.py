"""The only door from the graph to the compiler: code for a graph on this machine.

Code comes from the first of these that has it: the cache (keyed by everything that the code depends on), a package that
carries it ready-made, the compiler. `EINKORN_NO_JIT=1` closes the last way, and says what was missing.

Input: a `GraphIR` and the target. Output: `LoadedCode`, ready to be called. Non-goals: no memory, no calls. Imports of
the compiler stand inside functions here and nowhere else: a warm start loads neither MLIR nor LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.contract import abi
from ...dsl.contract.checks import SAFE, Checks, parse_checks
from ...dsl.contract.unit import NodeSpec, Size, Slot
from ...dsl.diagnostics.errors import CompileError, EinkornError, InternalError, PackageError, TargetError
from ...dsl.diagnostics.places import shown_path
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.environment.knobs import knobs
from ...dsl.signature.parameters import identity
from ..driver.code import Library
from ..driver.threads import Pool, default_threads
from ..ir import GraphIR, Node
from ..passes.fusion import Facts, partition
from ..passes.memory_plan import Plan, bound_dtypes, make_plan
from ..types.dims import Dim, StaticDim
from .cache_keys import graph_key, partition_from_json, partition_to_json
from .packaged_code import hint_without_code, matching, op_plan, ready_code, single_op
from .reports import Report, read_reports, reports_of
from .reproducer import graph_to_json

if TYPE_CHECKING:
    from ...compiler.targets import Target

_log = logging.getLogger("einkorn.load")
_lock = threading.Lock()


@dataclass(frozen=True)
class LoadedCode:
    """A graph's code: the native entry, the plan of its buffers, and what its reports mean.

    `library` is what has to live as long as the entry may be called; None when the entry is a Python function.
    """

    entry: Any
    plan: Plan
    reports: tuple[Report, ...]
    tier: str
    library: Library | None


def host_target() -> Target:
    """This machine as a target."""
    with shielded():
        from ...compiler.targets import host

    return host()


@functools.cache
def _start_log() -> None:
    """Shows our log on standard error when `EINKORN_LOG` asks for it and the program has no log of its own."""
    if "EINKORN_LOG" in os.environ and not logging.getLogger().handlers:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("einkorn").setLevel(knobs.log.upper())


# *** loading ***


def load_graph(ir: GraphIR, *, fuse: bool = True, checks: Checks | None = None) -> LoadedCode:
    """The code of a graph on the host, from the cache, a package or the compiler.

    `checks` says what the code checks as it runs. When nobody says it, compiled code checks what is `safe`, and
    ready-made code is taken as it is. To find a NaN where it arises, every op stores its results: nothing is fused.

    Raises:
        CompileError: a mistake in a kernel.
        PackageError: `EINKORN_NO_JIT` is set and no code is at hand.
    """
    _start_log()
    with _faults_told(ir, fuse, checks):
        target = host_target()
        wanted = chosen_checks(checks)
        checks = wanted or SAFE
        fuse = fuse and not checks.finds
        key = graph_key(ir, target.key, fuse, checks)
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
        return _compile(ir, target, key, fuse, checks)


def load_anew(ir: GraphIR, fuse: bool, checks: Checks, interpret: bool) -> LoadedCode:
    """The code of a graph, compiled whatever the cache holds: what a reproducer asks for."""
    if interpret:
        return interpret_graph(ir, checks=checks)
    with _faults_told(ir, fuse, checks):
        target = host_target()
        return _compile(ir, target, graph_key(ir, target.key, fuse, checks), fuse, checks)


@contextmanager
def _faults_told(ir: GraphIR, fuse: bool, checks: Checks | None, interpret: bool = False) -> Iterator[None]:
    """What the work on a graph trips over is a fault of Einkorn's, with a reproducer; a mistake stays one."""
    try:
        yield
    except Exception as error:
        told = error.reproducer if isinstance(error, InternalError) else isinstance(error, EinkornError | MemoryError)
        if told:
            raise
        from ...compiler.reproducer import fault

        held = None
        with suppress(Exception):  # the graph itself may be what is wrong
            held = graph_to_json(ir, fuse, chosen_checks(checks) or SAFE, interpret)
        raise fault(held, host_target(), error) from error


def chosen_checks(said: Checks | None) -> Checks | None:
    """What the session says, or else the environment."""
    return said or (parse_checks(knobs.checks) if knobs.checks else None)


def _compile(ir: GraphIR, target: Target, key: str, fuse: bool, checks: Checks) -> LoadedCode:
    with shielded():
        from ...compiler.inference.values.tensors import NotFusible
        from ...compiler.pipeline import compile_entry

    parts = partition(ir, functools.partial(_facts, ir, target), fuse=fuse)
    plan = make_plan(ir, parts)
    assert plan.entry is not None
    try:
        artifact = compile_entry(replace(plan.entry, checks=str(checks)), target)
    except NotFusible:
        if not fuse:
            raise
        _log.info("graph '%s': a kernel reads vectors, compiling it without fusion", ir.name)
        return _compile(ir, target, key, False, checks)
    except CompileError as error:
        _explain(error, ir)
        raise
    shared_cache().put(key, json.dumps(partition_to_json(parts)).encode(), ".json")
    return _load(key, artifact.code, plan, "compiled")


def interpret_graph(ir: GraphIR, *, checks: Checks | None = None) -> LoadedCode:
    """A graph for the interpreter: nothing is compiled, fused or kept in the cache.

    Raises:
        CompileError: a mistake in a kernel.
    """
    with shielded():
        from ...compiler.interpreter.entry import Interpreted

    _start_log()
    with _faults_told(ir, False, checks, interpret=True):
        target = host_target()
        plan = make_plan(ir, partition(ir, functools.partial(_facts, ir, target), fuse=False))
        assert plan.entry is not None
        try:
            code = Interpreted(replace(plan.entry, checks=str(chosen_checks(checks) or SAFE)), target, notes=True)
        except CompileError as error:
            _explain(error, ir)
            raise
    return LoadedCode(code.entry, plan, reports_of(code.sites), "interpreter", None)


def _explain(error: CompileError, ir: GraphIR) -> None:
    """Adds the user's own line that asked for the op."""
    for each in getattr(error, "errors", [error]):
        for node in ir.nodes:
            if isinstance(node, Node) and node.name == each.op and node.place is not None:
                requested = f"requested at {shown_path(node.place.file)}:{node.place.line}"
                about = [n for n, note in enumerate(each.notes) if note.startswith(f"compiled for op '{each.op}'")]
                for number in about:
                    each.notes[number] += f", {requested}"
                if not about:
                    each.notes.append(f"op '{each.op}' is {requested}")
                break


def _from_cache(key: str, ir: GraphIR) -> LoadedCode | None:
    cache = shared_cache()
    parts = cache.get(key, ".json")
    path = cache.path(key, ".so")
    if parts is None or path is None:
        return None
    try:
        return _open(path, make_plan(ir, partition_from_json(json.loads(parts)), entry=False), "cache")
    except OSError:  # another process has removed it meanwhile
        return None


def _load(key: str, code: bytes, plan: Plan, tier: str) -> LoadedCode:
    """Keeps code and loads it: from the cache, or from this process's own folder where the cache's file goes away."""
    try:
        return _open(shared_cache().path(key, ".so") or shared_cache().put(key, code, ".so"), plan, tier)
    except OSError:
        path = shared_cache().put(key, code, ".so", private=True)
    try:
        return _open(path, plan, tier)
    except OSError as error:
        raise PackageError(
            f"compiled code cannot be loaded into the process: {error}",
            code="EK0518",
            hint="let EINKORN_CACHE_DIR name a folder from which code may be run",
        ) from None


def _open(path: Path, plan: Plan, tier: str) -> LoadedCode:
    library = Library(path)
    entry = abi.EntryFunction(library.address(abi.ENTRY))
    table = ctypes.string_at(library.address(abi.REPORTS))
    return LoadedCode(entry, plan, read_reports(table), tier, library)


# *** packages ***


def _from_package(ir: GraphIR, checks: Checks | None) -> LoadedCode | None:
    """Ready-made code, for a graph that is one op of a package; with these checks, if it matters."""
    node = None if ir.patterns else single_op(ir)
    package = node.kernel.package if node is not None else None
    if node is None or package is None:
        return None
    with shielded():
        from ...compiler.targets.cpu import lacking

    kernel = node.kernel
    wanted = bound_dtypes(node, [ir.types[value].dtype for value in node.operands])
    for variant in matching(kernel, wanted, ir, node, lacking):
        if checks is not None and variant.checks != str(checks):
            continue
        data = ready_code(package, variant)
        key = content_key("package", variant.code.sha256)
        return _load(key, data, op_plan(ir, node), f"{kernel.origin} ({variant.target})")
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


# *** facts for fusion ***


def _facts(ir: GraphIR, target: Target, node: Node) -> Facts:
    """What a node allows; found once for each kernel, dtypes, parameters and pattern of shapes."""
    with shielded():
        from ...compiler.inference.facts import find_facts

    slots: dict[Dim, int] = {}

    def shape(dims: Any) -> tuple[Size, ...]:
        return tuple(int(d) if isinstance(d, StaticDim) else Slot(slots.setdefault(d, len(slots))) for d in dims)

    types = [ir.types[value] for value in node.operands]
    inputs = tuple((t.dtype, shape(t.shape)) for t in types)
    outputs = tuple((t.dtype, shape(t.shape)) for t in node.out_types)
    spec = NodeSpec(node.kernel.portable, bound_dtypes(node, [t.dtype for t in types]), node.parameters, (), outputs)
    parameters = tuple((name, identity(value)) for name, value in spec.parameters)
    key = (node.kernel.digest, spec.dtypes, parameters, inputs, outputs, target.key)
    facts = _FACTS.pop(key, None) or find_facts(spec, inputs, target)
    _FACTS[key] = facts  # the last used come last
    while len(_FACTS) > FACTS_KEPT:
        _FACTS.pop(next(iter(_FACTS), None), None)
    return facts


FACTS_KEPT = 4096
_FACTS: dict[Any, Facts] = {}


# *** the thread pool ***

_POOL: list[Pool | None] = []


def _fresh_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def thread_pool() -> Pool | None:
    """The process's pool, or None where none can be made."""
    with shielded(), _lock:
        if not _POOL:
            _POOL.append(_make_pool())
        return _POOL[0]


def _make_pool() -> Pool | None:
    threads = knobs.num_threads or default_threads()
    target = host_target()
    key = content_key("pool", target.key, fingerprint())
    path = shared_cache().path(key, ".so")
    if path is None:
        from ...compiler.codegen.thread_pool import pool_object

        try:
            path = shared_cache().put(key, pool_object(target), ".so")
        except TargetError as error:
            _log.warning("regions run on one thread: %s", error.message)
            return None
    try:
        return Pool(Library(path), threads, listens=True)
    except OSError as error:  # another process has removed it meanwhile
        _log.warning("regions run on one thread: %s", error)
        return None
