"""Measures where the time of calls goes: each call, each group of fused kernels, each task of a thread.

A profiled call runs code whose entry reports when it begins and ends a group; the groups are the
same code as always. A report costs about 1 us per group, and 1 us per task.

See also `profile_page` (pages).
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...dsl.contract import abi
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.rich import Rich
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.files import replace_file
from ..calling.call import Caller
from ..calling.call_plan import CallPlan
from ..calling.call_reports import ReportCollector
from ..calling.native_call import NativeCall
from ..calling.outputs import Filling
from ..calling.simulated_call import SimulatedCall
from ..driver.buffer import Buffer
from ..ir import GraphIR, Item, Node
from ..passes.fusion import Group
from ..types.strides import Pattern

if TYPE_CHECKING:
    from ..driver.checked_memory import CheckedMemory
    from .memory_counters import MemoryCounters


@dataclass(frozen=True)
class Event:
    """Something that took time: when it began and how long it took, in nanoseconds, and in which thread.

    `kind` is "span" (of the program, by its author), "call" (of a model), "load" (of code for a new kind of views),
    "group" (of fused kernels), "copy" (between devices) or "task" (a part of a group, on one thread).
    """

    kind: str
    name: str
    model: str
    start: int
    duration: int
    thread: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileRow:
    """All runs of one group: how often, nanoseconds in all, of the median one, and its part of all groups' time."""

    model: str
    number: int
    name: str
    runs: int
    total: int
    median: int
    share: float
    details: Mapping[str, Any] = field(default_factory=dict)


class Profile(Rich):
    """What calls did, and when; filled while it is open."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.threads: dict[int, str] = {}
        self.counted: list[MemoryCounters] = []  # by simulated devices that check memory, a call each

    def add(self, kind: str, name: str, model: str, start: int, details: Mapping[str, Any] | None = None) -> None:
        """Something that began at `start` ends now, in this thread."""
        end, thread = time.perf_counter_ns(), threading.get_native_id()
        if thread not in self.threads:
            self.threads[thread] = threading.current_thread().name
        self.events.append(Event(kind, name, model, start, end - start, thread, details or {}))

    def rows(self) -> list[ProfileRow]:
        """The groups and the copies between devices, the dearest first."""
        results: dict[tuple[str, int], list[Event]] = {}
        for event in self.events:
            if event.kind in ("group", "copy"):
                results.setdefault((event.model, event.details["group"]), []).append(event)
        whole = sum(event.duration for events in results.values() for event in events) or 1
        rows = []
        for (model, number), events in results.items():
            times = sorted(event.duration for event in events)
            total = sum(times)
            first = events[0]
            median = times[len(times) // 2]
            rows.append(ProfileRow(model, number, first.name, len(times), total, median, total / whole, first.details))
        return sorted(rows, key=lambda row: -row.total)

    def spans(self) -> dict[str, list[int]]:
        """The nanoseconds of all runs of each span of the program, by its name; those that took longest come first."""
        results: dict[str, list[int]] = {}
        for event in self.events:
            if event.kind == "span":
                results.setdefault(event.name, []).append(event.duration)
        return dict(sorted(results.items(), key=lambda item: -sum(item[1])))

    def trace(self) -> dict[str, Any]:
        """The events in Chrome's trace event format, for chrome://tracing and Perfetto; times in microseconds."""
        zero = min((event.start for event in self.events), default=0)
        process = os.getpid()
        listed: list[dict[str, object]] = [
            {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}
            for thread, name in self.threads.items()
        ]
        for event in sorted(self.events, key=lambda event: (event.start, -event.duration)):
            listed.append(
                {
                    "ph": "X",
                    "pid": process,
                    "tid": event.thread,
                    "name": event.name,
                    "cat": event.kind,
                    "ts": (event.start - zero) / 1000,
                    "dur": event.duration / 1000,
                    "args": ({"model": event.model} if event.model else {}) | dict(event.details),
                }
            )
        return {"traceEvents": listed, "displayTimeUnit": "ns"}

    def to_dict(self) -> dict[str, Any]:
        """The groups and what simulated kernels did with memory, as JSON values."""
        with shielded():
            from .memory_counters import added

        spans = [{"name": name, "runs": len(times), "total": sum(times)} for name, times in self.spans().items()]
        return {"groups": [asdict(row) for row in self.rows()], "spans": spans, "memory": added(self.counted).to_list()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace as JSON, all at once."""
        replace_file(Path(path), [json.dumps(self.trace()).encode()])


OPEN: list[Profile] = []  # those of sessions
AMBIENT: list[Profile] = []  # the last one measures the models of every session that is made


class TracedReports(ReportCollector):
    """Receives the reports of groups that begin and end."""

    def __init__(
        self, plan: CallPlan, native: NativeCall, simulated: SimulatedCall | None, filling: Filling | None
    ) -> None:
        super().__init__(plan, native, simulated, filling)
        self.name = plan.ir.name
        self.labels = [_label(plan.ir, group) for group in plan.code.plan.groups]
        self.profile: Profile | None = None
        self.first_group = 0
        self.begun: list[int] = []
        self.current = ""
        context = native.context
        if native.pool is not None and context.parallel:
            self._inner = abi.ParallelFunction(context.parallel)
            self._outer = abi.ParallelFunction(_spreader(weakref.ref(self)))  # kept: native code holds its address
            context.parallel = ctypes.cast(self._outer, ctypes.c_void_p)

    def watch(self, profile: Profile | None, first_group: int) -> None:
        """Adds what calls do to a profile. `first_group` is the number of the first group of this part of a graph."""
        self.profile, self.first_group, self.begun = profile, first_group, []

    def on_report(self, context: int, site: int, arguments: object) -> None:
        if site >= 0:
            super().on_report(context, site, arguments)
            return
        number, ends = divmod(-1 - site, 2)
        name, details = self.labels[number]
        if not ends:
            self.current = name
            self.begun.append(time.perf_counter_ns())
        elif self.profile is not None and self.begun:
            numbered = {"group": self.first_group + number, **details}
            self.profile.add("group", name, self.name, self.begun.pop(), numbered)

    def spread(self, pool: int, chunks: int, task: int, argument: int) -> None:
        """Runs a parallel region, and times each task in its thread."""
        inner, name, profile, model = abi.TaskFunction(task), self.current, self.profile, self.name

        def timed(given: int, chunk: int) -> None:
            start = time.perf_counter_ns()
            inner(given, chunk)
            if profile is not None:
                profile.add("task", name, model, start, {"chunk": chunk, "of": chunks})

        kept = abi.TaskFunction(timed)
        self._inner(pool, chunks, ctypes.cast(kept, ctypes.c_void_p), argument)


class TracedCaller(Caller):
    """A caller of code that reports when groups begin and end; it serves one thread at a time."""

    collector = TracedReports
    reports: TracedReports

    def variant(self, patterns: tuple[Pattern, ...]) -> Caller:
        if patterns in self.variants:
            return super().variant(patterns)
        start = time.perf_counter_ns()
        made = super().variant(patterns)
        assert isinstance(made, TracedCaller)
        made.reports.watch(self.reports.profile, self.reports.first_group)
        if self.reports.profile is not None:
            self.reports.profile.add("load", "code for these views", self.ir.name, start)
        return made

    def watch(self, profile: Profile | None, first_group: int = 0) -> None:
        """As of the reports, for calls with all patterns."""
        for each in self.all():
            assert isinstance(each, TracedCaller)
            each.reports.watch(profile, first_group)


def _spreader(reports: weakref.ref[TracedReports]) -> Callable[[int, int, int, int], None]:
    """The function that code calls to spread work. It does not keep its owner alive."""

    def spread(pool: int, chunks: int, task: int, argument: int) -> None:
        owner = reports()
        assert owner is not None  # it waits for this call
        owner.spread(pool, chunks, task, argument)

    return spread


def _label(ir: GraphIR, group: Group) -> tuple[str, dict[str, Any]]:
    """What a group is called, and where its ops were staged."""
    nodes = [ir.nodes[number] for number in group.nodes]
    root = ir.nodes[group.root]
    names = [node.name for node in nodes if isinstance(node, Node)]
    places = places_of(nodes)
    own = root.name if isinstance(root, Node) else ""
    others = [name for name in names if name != own]
    title = f"{own} (+ {', '.join(others)})" if others else own
    return title, {"ops": names, "places": places}


def places_of(nodes: Iterable[Item]) -> list[str]:
    """Where nodes were staged, each place once."""
    return list(dict.fromkeys(str(node.place) for node in nodes if isinstance(node, Node) and node.place is not None))


MAX_ACCESSES: Final = 1 << 21  # accesses of a call that are looked at


@contextmanager
def counting(
    memory: CheckedMemory, call: Caller, counted: list[MemoryCounters], room: int = MAX_ACCESSES
) -> Iterator[None]:
    """Adds what the kernels of a call did with memory."""
    with shielded():
        from .memory_counters import count_memory

    memory.record(room)
    try:
        yield
    finally:
        trace = memory.recorded()
        plan = call.plan
        target = plan.driver.targets[-1]
        counted.append(count_memory(trace, call.code.reports, plan.programs(), target, whole=len(trace) < room))


class Tracing:
    """What a model runs instead of its calls while a profile is open; they wait for each other."""

    def __init__(self, caller: TracedCaller, profile: Profile) -> None:
        self.caller = caller
        self.profile = profile
        self.lock = fork_lock()

    def run(self, call: Caller, inputs: Sequence[object]) -> list[Buffer]:
        """A call of the traced code, in the place of `call`."""
        with self.lock:
            traced = self.caller
            traced.given = call.given
            traced.watch(self.profile)
            memory = traced.plan.driver.checked
            if memory is None or memory.recording:  # by `count_memory`, which fills the profile
                return self._timed(traced, inputs)
            with counting(memory, traced, self.profile.counted):
                return self._timed(traced, inputs)

    def _timed(self, traced: TracedCaller, inputs: Sequence[object]) -> list[Buffer]:
        start = time.perf_counter_ns()
        try:
            return traced.run(inputs)
        finally:
            traced.given = None
            shapes = [str(tuple(getattr(value, "shape", ()))) for value in inputs]
            self.profile.add("call", traced.ir.name, traced.ir.name, start, {"shapes": ", ".join(shapes)})
