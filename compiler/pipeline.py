"""The way from a compile unit to code, as a visible list of stages.

    unit --build--> typed --emit--> mlir --lower--> llvm --compile--> asm, code

Each stage runs as log + time + verify. `EINKORN_DUMP=typed,mlir,llvm,asm` writes stages to standard error,
`EINKORN_STOP=mlir` ends after one.

Input: an `EntrySpec` and a target. Output: an `Artifact` with the loadable code and every stage in text form.
Non-goals: no cache, no loading.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from ..dsl.contract.unit import EntrySpec
from ..dsl.diagnostics.errors import CompileError, EinkornError, InternalError
from ..dsl.environment.knobs import knobs
from .codegen.llvm import Compiled, compile_module
from .codegen.mlir import format_module, lower_to_llvm
from .inference.kernels import build_program
from .inference.values.tensors import NotFusible
from .ir.printer import print_program
from .ir.program import Program, Site
from .ir.verifier import verify_program
from .lowering.module import Emitted, emit_module
from .lowering.writer import KernelInfo
from .passes.polls import place_polls
from .passes.stream_loops import stream_loops
from .passes.vectorize_loops import vectorize_loops
from .reproducer import beside, fault
from .targets import Target

RECURSION = 8000  # Python frames that the evaluation of nested kernels and functions may take

STAGES = ("typed", "mlir", "llvm", "asm")

T = TypeVar("T")

_log = logging.getLogger("einkorn.compiler")


@dataclass(frozen=True)
class Artifact:
    """What compilation made. `code` is a shared object, PTX text or a code object; `timings` are seconds by stage."""

    target: Target
    program: Program = field(repr=False)
    emitted: Emitted = field(repr=False)
    compiled: Compiled = field(repr=False)
    code: bytes = field(repr=False)
    timings: dict[str, float]

    @property
    def sites(self) -> list[Site]:
        return self.program.sites

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The GPU kernels of the code."""
        return self.emitted.kernels

    @cached_property
    def typed(self) -> str:
        return print_program(self.program)

    @cached_property
    def mlir(self) -> str:
        return format_module(self.emitted.text)

    @property
    def llvm(self) -> str:
        return self.compiled.llvm

    @property
    def asm(self) -> str:
        return self.compiled.assembly


class Stopped(CompileError):
    """`EINKORN_STOP` ended the compilation after a stage; `text` is that stage."""

    def __init__(self, stage: str, text: str) -> None:
        super().__init__(f"stopped after the stage '{stage}', as EINKORN_STOP says", code="EK0606")
        self.text = text


def compile_entry(spec: EntrySpec, target: Target, *, level: int = 3) -> Artifact:
    """Compiles an entry for a target.

    Raises:
        CompileError: a mistake in a kernel, or something that the target lacks.
        InternalError: a fault of the compiler.
    """
    try:
        return _compiled(spec, target, level)
    except NotFusible:
        raise  # no fault: the graph asks again without fusion
    except InternalError as error:
        raise fault(spec, target, error) from error.__cause__
    except (EinkornError, MemoryError):
        raise
    except Exception as error:
        raise fault(spec, target, error) from error


def _compiled(spec: EntrySpec, target: Target, level: int) -> Artifact:
    timings: dict[str, float] = {}
    watch = _Watch(timings)
    program = watch.run("typed", lambda: typed_program(spec, target), print_program)

    def native() -> tuple[Emitted, Compiled]:
        emitted = watch.run("mlir", lambda: _emitted(program, target), lambda e: format_module(e.text))
        text = watch.run("llvm", lambda: lower_to_llvm(emitted.text, target), str)
        return emitted, watch.run("asm", lambda: compile_module(text, target, level=level), lambda c: c.assembly)

    emitted, compiled = beside(spec, target, native)
    start = time.perf_counter()
    code = compiled.link()
    timings["link"] = time.perf_counter() - start
    return Artifact(target, program, emitted, compiled, code, timings)


SCHEDULING = (stream_loops, vectorize_loops, place_polls)


def _emitted(program: Program, target: Target) -> Emitted:
    for schedule in SCHEDULING:
        schedule(program, target)
    return emit_module(program, target)


def typed_program(spec: EntrySpec, target: Target, *, notes: bool = False) -> Program:
    """The verified typed program of an entry; with `notes` for a debugger, if wanted.

    Raises:
        CompileError: a mistake in a kernel.
    """
    # Kernels are evaluated inside each other when they fuse, and functions where they are called.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    try:
        program = build_program(spec, target, notes=notes)
    finally:
        sys.setrecursionlimit(limit)
    verify_program(program)
    return program


class _Watch:
    """Times a stage, logs it, dumps it and stops after it when the knobs say so."""

    def __init__(self, timings: dict[str, float]) -> None:
        self.timings = timings
        self.dump = knobs.dump
        self.stop = knobs.stop

    def run(self, stage: str, work: Callable[[], T], show: Callable[[T], str]) -> T:
        start = time.perf_counter()
        result = work()
        self.timings[stage] = time.perf_counter() - start
        _log.debug("%s: %.1f ms", stage, self.timings[stage] * 1e3)
        if stage in self.dump:
            print(f"=== {stage} ===\n{show(result)}", file=sys.stderr)
        if stage == self.stop:
            raise Stopped(stage, show(result))
        return result
