"""Compiles the groups of an entry one by one, and links them with the entry that calls them.

Each group is an object under a key of its own. Equal groups are compiled once, whichever graphs they stand in, and the
cache keeps them one by one: a graph that differs from one before in one op compiles one group. What is missing is
compiled side by side. Python evaluates kernels in the caller's thread, while MLIR and LLVM work in others on the groups
that it is done with; LLVM needs the interpreter's lock for none of its work.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import field
from typing import Final

from ..dsl.contract.groups import Numbering
from ..dsl.contract.unit import EntrySpec, Piece
from ..dsl.diagnostics import forks
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import CompileError, EinkornError, joined
from ..dsl.diagnostics.shield import shielded
from ..dsl.environment.cache import content_key, shared_cache
from ..dsl.environment.compiling import compiling
from ..dsl.environment.fingerprint import fingerprint
from ..dsl.environment.knobs import knobs
from ..dsl.environment.process_settings import quick_switching
from ..dsl.environment.stacks import room_for_threads
from ..dsl.types.dtype import INT
from .codegen import llvm, mlir
from .ir.program import NotFusible, PointerType, Program, ProgramFunction, Region, Value
from .lowering.module import HELPERS, emit_entry, emit_helpers
from .lowering.scratch import size_name
from .pipeline import GroupCompilation
from .sharing import SharedGroup, alone, shared_groups
from .targets import Target

SUFFIX = ".group"
_FEW_GROUPS: Final = 16  # that an entry has which is optimised for a file

# Called with the number of compiled groups and their total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class GroupCode:
    """A group's code: the symbol of its function, whether that may leave early, what its sites show, whether it takes
    memory of the device for itself, the object, the bytes of its storage on the stack of one thread."""

    symbol: str
    fallible: bool
    records: Sequence[object]
    code: bytes = field(repr=False)
    scratch: bool = False
    stack: int = 0

    def to_bytes(self) -> bytes:
        """A line of JSON, then the object."""
        head = json.dumps([self.symbol, self.fallible, self.records, self.scratch, self.stack])
        return head.encode() + b"\n" + self.code

    @staticmethod
    def from_bytes(data: bytes) -> GroupCode:
        """What `to_bytes` gave."""
        head, _, code = data.partition(b"\n")
        symbol, fallible, records, scratch, stack = json.loads(head)
        return GroupCode(symbol, fallible, records, code, scratch, stack)


@dataclass(frozen=True)
class EntryObjects:
    """The objects of an entry, which know symbols of each other: its own, that of the helpers, those of the groups.

    `records` are what the sites of all groups show, in their order. `stack` is the most bytes of storage that one of
    them has on a stack.
    """

    objects: tuple[bytes, ...] = field(repr=False)
    records: tuple[object, ...] = field(repr=False)
    stack: int = 0


@compiling
def compile_groups(spec: EntrySpec, target: Target, progress: Progress | None = None) -> Piece:
    """The code of an entry, of groups that the cache has or that are compiled now.

    Raises:
        CompileError: mistakes in kernels, of all groups.
        NotFusible: groups cannot be built.
    """
    made = entry_objects(spec, target, progress)
    return Piece(target.format.suffix, target.key, llvm.link(made.objects, target))


def entry_objects(
    spec: EntrySpec, target: Target, progress: Progress | None = None, *, to_keep: bool = False
) -> EntryObjects:
    """The objects of an entry, as `compile_groups` links them. `to_keep` is for files: an entry of few groups is
    optimised, which takes 2 ms more and saves 5 ns a call."""
    shared = shared_groups(spec)
    keys, known = _codes(shared, target, progress)
    apart = [number for number, key in enumerate(keys) if key not in known]
    if again := [number for number in apart if shared[number].sizes]:
        for number in again:
            shared[number] = alone(spec, number)
        keys, known = _codes(shared, target, progress)
        apart = [number for number, key in enumerate(keys) if key not in known]
    if apart:
        raise NotFusible("these kernels do not fuse", apart)
    unique = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = [known[key] for key in unique]
    level = 2 if to_keep and len(keys) <= _FEW_GROUPS else 0
    entry = _entry(spec, [unique[key] for key in keys], shared, codes, target, level)
    records = tuple(record for code in codes for record in code.records)
    stack = max((code.stack for code in codes), default=0)
    return EntryObjects((entry, _helpers(target), *(code.code for code in codes)), records, stack)


def _codes(
    shared: Sequence[SharedGroup], target: Target, progress: Progress | None
) -> tuple[list[str], dict[str, GroupCode]]:
    """The key of each group, and the codes by these; without those of groups that cannot be built."""
    keys = [_key(each.group, target) for each in shared]
    unique = {key: each.group for key, each in zip(keys, shared, strict=True)}
    known = {key: code for key in unique if (code := _kept(key)) is not None}
    missing = [(key, group) for key, group in unique.items() if key not in known]
    return keys, known | _compiled(missing, target, progress)


def _key(group: Numbering, target: Target) -> str:
    return content_key("group", group.key, group.spec.checks, target.key, fingerprint())


def _kept(key: str) -> GroupCode | None:
    data = shared_cache().get(key, SUFFIX)
    return None if data is None else GroupCode.from_bytes(data)


# *** groups ***


def _compiled(
    missing: Sequence[tuple[str, Numbering]], target: Target, progress: Progress | None
) -> dict[str, GroupCode]:
    """Compiles groups and keeps them, in the order in which they are done; without those that cannot be built."""
    made: dict[str, GroupCode] = {}

    def done(key: str, begun: GroupCompilation, code: bytes) -> None:
        group = begun.group
        symbol = begun.compilation.symbol
        made[key] = GroupCode(symbol, group.fallible, group.records, code, group.scratch, begun.stack)
        shared_cache().put(key, made[key].to_bytes(), SUFFIX)
        if progress is not None:
            progress(len(made), len(missing))

    ends = not threading.main_thread().is_alive()  # then Python starts no pool of threads any more
    count = 0 if knobs.dump or knobs.stop or ends else min(len(missing) - 1, _processors())
    with quick_switching.changed(), _Workers(done, count) as workers:
        mistakes: list[EinkornError] = []
        for key, group in missing:
            try:
                begun = GroupCompilation(group.unit(), target, _symbol(key, group))
            except CompileError as error:  # the mistakes of all kernels are wanted
                mistakes.append(error)
            except NotFusible:  # the graph takes it apart, and finds the others in the cache
                continue
            else:
                if not mistakes:
                    workers.make(key, begun)
        if mistakes:
            raise joined(mistakes)
        workers.finish()
    return made


def _symbol(key: str, group: Numbering) -> str:
    """The name of a group's function: that of its root, for people, and of its key, for the linker."""
    root = group.group.nodes[group.group.root].kernel.schema.name
    return f"{re.sub('[^A-Za-z0-9_]', '_', root)}_{key[:16]}"


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _executors() -> type[futures.ThreadPoolExecutor]:
    """The class of pools. Its module cannot be imported when Python ends; its hook, which takes the lock that `submit`
    needs, has to run after those of forks."""
    result = futures.ThreadPoolExecutor
    forks.register()
    return result


class _Workers:
    """Threads that make objects; without any, they are made in the caller's.

    Whatever ends the work in the caller, such as Ctrl-C, ends theirs as soon as the group at hand is done.
    """

    def __init__(self, done: Callable[[str, GroupCompilation, bytes], None], count: int) -> None:
        self.done = done
        self.pool = _executors()(count, "einkorn-compile") if count > 0 else None
        self.running: dict[futures.Future[bytes], tuple[str, GroupCompilation]] = {}

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def make(self, key: str, begun: GroupCompilation) -> None:
        """Makes the object of a group, now or later."""
        if self.pool is None:
            self.done(key, begun, begun.make())
            return
        with shielded(), room_for_threads():  # a thread begins whole or not at all
            self.running[self.pool.submit(begun.make)] = key, begun
        self._take([each for each in self.running if each.done()])

    def finish(self) -> None:
        """Waits for all of them."""
        while self.running:
            self._take(futures.wait(self.running, return_when=futures.FIRST_COMPLETED).done)

    def _take(self, finished: Sequence[futures.Future[bytes]] | set[futures.Future[bytes]]) -> None:
        for each in finished:
            self.done(*self.running.pop(each), each.result())


# *** the entry ***


def _entry(
    spec: EntrySpec,
    numbers: Sequence[int],
    groups: Sequence[SharedGroup],
    codes: Sequence[GroupCode],
    target: Target,
    level: int,
) -> bytes:
    """The object of the entry; `numbers` say which of the `codes` each group is."""
    functions: dict[int, ProgramFunction] = {}
    program = Program(stages=spec.stages, traced=spec.traced, steps=spec.steps)
    for number, each in zip(numbers, groups, strict=True):
        group = each.group
        if number not in functions:
            numbers_passed = len(group.slots) + len(each.passed)
            types = [PointerType(spec.buffers[b].dtype) for b in group.buffers] + [INT] * numbers_passed
            functions[number] = ProgramFunction(codes[number].symbol, [Value(type) for type in types], Region())
        program.calls.append((number, group.buffers, each.dims()))
        program.passed.append(each.passed)
    program.functions = [functions[number] for number in range(len(codes))]
    sites: dict[str, int] = {}
    records: list[object] = []
    for code in codes:
        if code.records:
            sites[code.symbol] = len(records)
            records += code.records
    fallible = {code.symbol for code in codes if code.fallible}
    taking = {code.symbol for code in codes if code.scratch}
    text = mlir.lower_to_llvm(emit_entry(program, target, fallible, sites, records, taking), target)
    elsewhere = {*HELPERS, *(code.symbol for code in codes), *(size_name(symbol) for symbol in taking)}
    # At level 0 it is as it is written: to allocate registers well for a thousand calls takes as long as a large group.
    return llvm.compile_module(text, target, level=level, elsewhere=elsewhere).code


def _helpers(target: Target) -> bytes:
    """The object of what all groups and entries call."""
    key = content_key("helpers", target.key, fingerprint())
    code = shared_cache().get(key, SUFFIX)
    if code is None:
        code = llvm.emit_object(mlir.lower_to_llvm(emit_helpers(target), target), target)
        shared_cache().put(key, code, SUFFIX)
    return code
