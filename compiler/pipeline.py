"""Compiles an entry: runs the passes of `PASSES`, from the compile unit to code that can be loaded.

    unit --> typed program --> MLIR --> LLVM IR --> assembly, code
             "typed"           "mlir"   "llvm"      "asm"

Each pass is logged and timed. `EINKORN_DUMP=hoist_checks,mlir` prints what a pass or a stage gives to standard error,
`EINKORN_STOP=place_polls` ends after one; a stage gives what the last of its passes gives. An artifact may have several
halves, each of which goes through the passes for its half.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Any, Final

from ..dsl.contract.unit import EntrySpec, Piece
from ..dsl.diagnostics.cached import cached
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import CompileError, EinkornError, InternalError
from ..dsl.environment.compiling import compiling
from ..dsl.environment.knobs import STAGES, Knob, Knobs, knobs
from .codegen import llvm, mlir
from .codegen.native_check import called_functions, check_native
from .crashes import noting
from .inference.kernels import build_program
from .ir.printer import print_program
from .ir.program import NotFusible, Program, Site
from .ir.verifier import verify_program
from .lowering.launches import kernel_table
from .lowering.module import (
    HELPERS,
    Emitted,
    EmittedGroup,
    add_kernels,
    digest_of,
    emit_group,
    emit_module,
    first_site,
    stamped,
)
from .lowering.writer import KernelInfo
from .passes.choose_grains import choose_grains
from .passes.data_races import data_races
from .passes.expand_launches import expand_launches
from .passes.expand_mbarriers import expand_mbarriers
from .passes.find_unwritten_storage import find_unwritten_storage
from .passes.hoist_checks import hoist_checks
from .passes.host_and_device import host_and_device
from .passes.limit_launches import limit_launches
from .passes.limit_stacks import limit_stacks, stack_bytes
from .passes.mark_lone_stores import mark_lone_stores
from .passes.mark_spins import mark_spins
from .passes.merge_small_entry import merge_small_entry
from .passes.place_polls import place_polls
from .passes.request_shared_memory import request_shared_memory
from .passes.simulate import simulate
from .passes.split_loops import split_loops
from .passes.stream_loops import stream_loops
from .passes.tokens import tokens
from .passes.turn_tiles import turn_tiles
from .passes.uniformity import uniformity
from .passes.vectorize_loops import vectorize_loops
from .passes.version_loops import version_loops
from .passes.widen_threads import widen_threads
from .reproducer import fault
from .targets import Target

_log = logging.getLogger("einkorn.compiler")

LIGHT_LEVEL: Final = 1  # of optimisation, for groups that do a small part of a graph's work


@dataclass
class Compilation:
    """What the passes of one compilation work on: each reads what those before it left."""

    spec: EntrySpec
    target: Target
    notes: bool = False  # whether the program has debug information of variables
    symbol: str = ""  # of the one group, where an entry of another module calls it
    hosts: Sequence[Target] = ()  # for which a program for a device has halves that launch its kernels
    launched: Compilation | None = None  # of a half for a host, that of the kernels
    program: Program = field(init=False)
    launching: Sequence[Program] = ()  # the halves for these hosts
    digest: str = ""  # of the kernels, where there are halves for hosts
    emitted: Emitted = field(init=False)
    group: EmittedGroup = field(init=False)  # where there is a symbol
    text: str = field(init=False)  # LLVM IR, before it is optimised
    compiled: llvm.ModuleCode = field(init=False)
    code: bytes = field(init=False)
    observe: llvm.Observer | None = None  # is notified of every pass of MLIR and LLVM


@dataclass(frozen=True)
class Pass:
    """A row of `PASSES`.

    Attributes:
        name: names it in `EINKORN_DUMP`, `EINKORN_STOP`, the log and `Artifact.timings`.
        stage: which stage it belongs to.
        run: changes what is compiled.
        show: gives what is compiled as text, after the pass.
        half: whether it is for the code of the `host` (a CPU), for that of a `device` (a GPU), for `both`, or for that
            of a device that is `simulated`, for which what follows is as for a host.
        parts: the passes that it runs within a library, by name; see `_Watch.part`.
    """

    name: str
    stage: str
    run: Callable[[Compilation], None]
    show: Callable[[Compilation], str]
    half: str = "both"
    parts: tuple[str, ...] = ()


def _on_program(change: Callable[[Program, Target], None], stage: str = "typed", half: str = "both") -> Pass:
    """The row of a pass over the typed program: the function that gives a file of `compiler/passes` its name."""
    return Pass(change.__name__, stage, lambda c: change(c.program, c.target), _program_text, half)


def _program_text(c: Compilation) -> str:
    return print_program(c.program, schedule=True)


def _infer(c: Compilation) -> None:
    c.program = build_program(c.spec, c.target, notes=c.notes)


def _verify(c: Compilation) -> None:
    verify_program(c.program)


def _split(c: Compilation) -> None:
    c.launching, c.program = host_and_device(c.program, c.target, max(1, len(c.hosts)))


def _simulate(c: Compilation) -> None:
    simulate(c.program, c.target)
    expand_launches(c.program, c.target)


def _lower(c: Compilation) -> None:
    check_native(c.program, c.target)
    if c.symbol:
        c.group = emit_group(c.program, c.target, c.symbol)
        c.emitted = Emitted(c.group.text, ())
        return
    c.emitted = emit_module(c.program, c.target)
    if c.hosts:
        c.digest = digest_of(c.emitted, c.target)
        c.emitted = stamped(c.emitted, c.target, c.digest)
    if c.launched is not None:
        c.emitted = add_kernels(c.emitted, kernel_table(c.program, c.launched.emitted.kernels, c.launched.digest))


def _lower_to_llvm(c: Compilation) -> None:
    c.text = mlir.lower_to_llvm(c.emitted.text, c.target, observe=c.observe)


def _compile(c: Compilation) -> None:
    elsewhere = ({first_site(c.symbol), *HELPERS} if c.symbol else set()) | called_functions(c.program)
    level = min(c.target.level, LIGHT_LEVEL) if c.symbol and c.spec.groups[0].light else None
    c.compiled = llvm.compile_module(c.text, c.target, level=level, observe=c.observe, elsewhere=elsewhere)


def _link(c: Compilation) -> None:
    c.code = c.compiled.link()


MLIR_PASSES = tuple(each.name for each in mlir.PASSES)  # cse, convert-scf-to-cf, …
LLVM_PASSES = tuple(name for name, _ in llvm.PASSES)  # check_intrinsics, read, optimize, …

# All that is done to an entry, in this order. The passes over the program are a file each in `compiler/passes`.
PASSES: tuple[Pass, ...] = (
    Pass("infer", "typed", _infer, _program_text),
    _on_program(data_races),
    _on_program(uniformity),
    _on_program(tokens),
    _on_program(find_unwritten_storage, half="host"),
    _on_program(mark_spins),
    _on_program(expand_launches, half="host"),
    _on_program(split_loops),
    _on_program(choose_grains),
    _on_program(hoist_checks),
    _on_program(version_loops),
    _on_program(turn_tiles, half="device"),
    _on_program(widen_threads, half="device"),
    _on_program(limit_stacks),
    _on_program(request_shared_memory, half="device"),
    _on_program(limit_launches, half="device"),
    Pass("verify", "typed", _verify, _program_text),
    Pass(host_and_device.__name__, "mlir", _split, _program_text, "device"),
    Pass(simulate.__name__, "mlir", _simulate, _program_text, "simulated"),
    _on_program(expand_mbarriers, "mlir"),
    _on_program(stream_loops, "mlir", "host"),
    _on_program(vectorize_loops, "mlir"),
    _on_program(place_polls, "mlir", "host"),
    _on_program(mark_lone_stores, "mlir"),
    _on_program(merge_small_entry, "mlir", "host"),
    Pass("lower", "mlir", _lower, lambda c: mlir.format_module(c.emitted.text)),
    Pass("lower_to_llvm", "llvm", _lower_to_llvm, lambda c: c.text, parts=MLIR_PASSES),
    Pass("compile", "asm", _compile, lambda c: c.compiled.assembly, parts=LLVM_PASSES),
    Pass("link", "link", _link, lambda c: f"{len(c.code)} bytes"),
)
TYPED = tuple(each for each in PASSES if each.stage == "typed")
NATIVE = PASSES[len(TYPED) :]
# A group by itself is linked with others, and called by an entry of another module. What is Python's comes first.
_OF_GROUPS = tuple(each for each in NATIVE if each.name not in ("merge_small_entry", "link"))
_EMITTING = tuple(each for each in _OF_GROUPS if each.stage == "mlir")
_MAKING = _OF_GROUPS[len(_EMITTING) :]


@dataclass(frozen=True)
class Artifact:
    """What compilation made. `timings` are seconds by pass and by stage.

    `pieces` are the code, one for each target: of two halves, the host's comes first. All else is that of `target`.
    """

    target: Target
    program: Program = field(repr=False)
    emitted: Emitted = field(repr=False)
    compiled: llvm.ModuleCode = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)
    timings: dict[str, float]

    @property
    def code(self) -> bytes:
        """The code for `target`: a shared object, PTX text or a code object."""
        return self.pieces[-1].code

    @property
    def sites(self) -> list[Site]:
        return self.program.sites

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The GPU kernels of the code."""
        return self.emitted.kernels

    @cached
    def typed(self) -> str:
        return print_program(self.program)

    @cached
    def mlir(self) -> str:
        return mlir.format_module(self.emitted.text)

    @property
    def llvm(self) -> str:
        return self.compiled.llvm

    @property
    def asm(self) -> str:
        return self.compiled.assembly


class Stopped(CompileError):
    """`EINKORN_STOP` ended the compilation after a stage or a pass; `text` is what that gave."""

    def __init__(self, name: str, text: str) -> None:
        kind = "stage" if name in STAGES else "pass"
        super().__init__(f"stopped after the {kind} '{name}', as requested by EINKORN_STOP", code="EK0606")
        self.text = text


@compiling
def compile_entry(spec: EntrySpec, target: Target, *, hosts: Sequence[Target] = ()) -> Artifact:
    """Compiles an entry for a target: for a device its kernels, and for each of the `hosts` what launches them.

    Raises:
        CompileError: a mistake in a kernel, or something that the target lacks.
        InternalError: a fault of the compiler.
    """
    with _faults(spec, target):
        c, watch = Compilation(spec, target, hosts=hosts), _Watch()
        watch.run(TYPED, c)
        program = c.program
        noting(spec, target, lambda: watch.run(NATIVE, c))
        halves = [_host_half(c, host, half) for host, half in zip(hosts, c.launching, strict=False)]
        pieces = tuple(Piece(half.target.format.suffix, half.target.key, half.code) for half in (*halves, c))
        return Artifact(target, program, c.emitted, c.compiled, pieces, watch.timings)


def _host_half(device: Compilation, host: Target, program: Program) -> Compilation:
    """The code that launches the kernels of a device."""
    c, watch = Compilation(device.spec, host, launched=device), _Watch("host")
    c.program = program
    noting(c.spec, host, lambda: watch.run(NATIVE, c))
    return c


class GroupCompilation:
    """Compiles a unit of one group to an object, in two steps: what Python does, and what MLIR and LLVM do.

    The second may run in another thread.
    """

    def __init__(self, spec: EntrySpec, target: Target, symbol: str) -> None:
        """Up to the text of a module.

        Raises:
            CompileError: a mistake in the kernels.
            NotFusible: they do not fuse.
        """
        self.spec = spec
        self.target = target
        self.compilation = Compilation(spec, target, symbol=symbol)
        self.watch = _Watch()
        with _faults(spec, target):
            self.watch.run(TYPED, self.compilation)
            self.stack = stack_bytes(self.compilation.program)
            self.watch.run(_EMITTING, self.compilation)
        self.group = self.compilation.group

    def make(self) -> bytes:
        """The object; what it leaves undefined are functions of libraries, and the number of its first site."""
        with _faults(self.spec, self.target):
            noting(self.spec, self.target, lambda: self.watch.run(_MAKING, self.compilation))
        return self.compilation.compiled.code


@contextmanager
def _faults(spec: EntrySpec, target: Target) -> Iterator[None]:
    """Turns errors that are not mistakes of a kernel's author into faults, with a reproducer."""
    try:
        yield
    except NotFusible:
        raise  # no fault: the graph takes them apart
    except InternalError as error:
        raise fault(spec, target, error) from error.__cause__
    except (EinkornError, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise fault(spec, target, error) from error


@compiling
def typed_program(spec: EntrySpec, target: Target, *, notes: bool = False) -> Program:
    """The verified typed program of an entry; with `notes` for a debugger, if wanted.

    Raises:
        CompileError: a mistake in a kernel.
    """
    compilation = Compilation(spec, target, notes=notes)
    _Watch(quiet=True).run(TYPED, compilation)
    return compilation.program


class _Watch:
    """Runs passes: times and logs each, shows it and stops after it when the knobs say so.

    Where passes are dumped, the program is verified after each of them; else once, by the pass `verify`.
    """

    def __init__(self, half: str = "", *, quiet: bool = False) -> None:
        self.half = half  # shown with what is dumped
        self.timings: dict[str, float] = {}
        self.stopped: Stopped | None = None  # after a pass within a library
        self.dump = frozenset[str]() if quiet else knobs.dump
        self.stop = None if quiet else knobs.stop
        self.verifies = bool(self.dump or self.stop or knobs.verify)
        _check_names(self.dump, Knobs.dump)
        _check_names([self.stop] if self.stop else [], Knobs.stop)

    def run(self, passes: Sequence[Pass], compilation: Compilation) -> None:
        wanted = self.dump | {self.stop}
        for number, each in enumerate(passes):
            if each.half in _halves(compilation.target, each.stage):
                compilation.observe = None if wanted.isdisjoint(each.parts) else self.part
                start = time.perf_counter()
                each.run(compilation)
                self.took(each.name, each.stage, time.perf_counter() - start)
                if self.stopped is not None:
                    raise self.stopped
                if self.verifies and each.show is _program_text:
                    verify_program(compilation.program)
            self.done(each.name, partial(each.show, compilation))
            if number + 1 == len(passes) or passes[number + 1].stage != each.stage:
                self.done(each.stage, partial(each.show, compilation))

    def part(self, name: str, seconds: float, show: Callable[[], str]) -> None:
        """A pass of MLIR or LLVM ran. To stop waits until the library is done, whose objects go in their order."""
        if self.stopped is None:
            self.timings[name] = seconds
            try:
                self.done(name, show)
            except Stopped as stopped:
                self.stopped = stopped.with_traceback(None)

    def took(self, name: str, stage: str, seconds: float) -> None:
        self.timings[name] = seconds
        if stage != name:
            self.timings[stage] = self.timings.get(stage, 0.0) + seconds
        _log.debug("%s: %.1f ms", name, seconds * 1e3)

    def done(self, name: str, show: Callable[[], str]) -> None:
        """Does what the knobs request after a pass or a stage."""
        if name in self.dump:
            print(f"=== {name}{f' of the {self.half}' if self.half else ''} ===\n{show()}", file=sys.stderr)
        if name == self.stop:
            raise Stopped(name, show())


def _halves(target: Target, stage: str) -> tuple[str, ...]:
    """The passes of a stage that code for a target goes through, by their halves."""
    if not target.has_grid:
        return "both", "host"
    as_host = target.simulates and stage != "typed"
    return ("both", "device", "simulated", "host") if as_host else ("both", "device")


def names() -> list[str]:
    """What can be dumped and stopped after: the stages, then the passes in their order."""
    return [*STAGES, *(name for each in PASSES for name in (*each.parts, each.name))]


def _check_names(given: Iterable[str], knob: Knob[Any]) -> None:
    for name in sorted(given):
        if name not in names() and not name.startswith("graph."):  # these are checked where graphs are optimised
            raise knob.refusal(name, names())
