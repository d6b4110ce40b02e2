"""MLIR text -> LLVM IR text: finds the MLIR bindings and drives them.

Input: a module in MLIR's text form, with the places of the author's own text as locations. Output: LLVM IR in the
version that llvmlite reads. The way between is a visible tuple of steps, each a pass by name or a Python function over
the module. Who watches sees each by itself, verified and timed; else passes in a row are run as one. Non-goals: nothing
is emitted here, and no machine code is made.

This is the only module that imports the bindings: a package named `mlir` when one is installed, else `torch_mlir`.
"""

from __future__ import annotations

import functools
import importlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ...dsl.diagnostics.errors import InternalError, TargetError
from ...dsl.diagnostics.places import Place
from ...dsl.diagnostics.shield import interruptible, shielded
from ..ir.schedule import EXIT
from ..targets import Target
from .llvm_versions import downgrade
from .loop_hints import hinted

Hook = Callable[["Bindings", Any], None]
Step = str | Hook

# Called after every step with its name, its time in seconds, and a function that prints the module.
Observer = Callable[[str, float, Callable[[], str]], None]


_TRANSLATABLE: Final = ("llvm.", "builtin.module")  # and the dialect of the target


@dataclass(frozen=True)
class Bindings:
    """The modules of the MLIR bindings that are in use. They have no types of their own, hence Any."""

    package: str
    ir: Any
    passmanager: Any
    llvm: Any


_loading = threading.Lock()


@functools.cache
def _find_bindings() -> Bindings:
    for package in ("mlir", "torch_mlir"):
        try:
            found = Bindings(
                package,
                importlib.import_module(f"{package}.ir"),
                importlib.import_module(f"{package}.passmanager"),
                # What is around it, a Python class for each operation, takes three times as long to load as all else.
                importlib.import_module(f"{package}._mlir_libs._mlirDialectsLLVM"),
            )
        except ImportError:  # not installed, or something else by that name
            continue
        if (
            hasattr(found.ir, "MLIRError")
            and hasattr(found.passmanager.PassManager, "add")
            and hasattr(found.llvm, "translate_module_to_llvmir")
        ):
            return found
    raise TargetError(
        "the MLIR bindings are not installed, and kernels cannot be compiled without them",
        code="EK0602",
        hint="pip install torch-mlir==20261001",
    )


def bindings() -> Bindings:
    """The MLIR bindings, imported at the first call; safe to call from several threads.

    Raises:
        TargetError: neither `mlir` nor `torch_mlir` is installed in a usable version.
    """
    with shielded(), _loading:
        return _find_bindings()


def exit_early(mlir: Bindings, module: Any) -> None:
    """Turns every call of `@ek.exit` into a return: the hook in `pipeline`.

    Generated code calls it as the last operation of a structured block. After the structure is gone it stands near the
    end of its block, before a branch and perhaps the step of a loop, and all of that becomes a return: of 1 where the
    function returns i32, of nothing where it returns void.

        llvm.call @ek.exit() : () -> ()          %1 = llvm.mlir.constant(1 : i32) : i32
        %i1 = arith.addi %i, %c1 : i64     =>    llvm.return %1 : i32
        cf.br ^bb1(%i1 : i64)

    Blocks that only the branch reached are left without a way in, and the next step removes them.
    """
    for call in _calls(mlir, module, EXIT):
        _return_instead(mlir, call)


def _calls(mlir: Bindings, module: Any, function: str) -> list[Any]:
    """Every call of a function that only marks a place; its declaration goes. Without one, nothing is looked at."""
    calls: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "llvm.call" and _named(operation, "callee") == function:
            calls.append(operation)
        return mlir.ir.WalkResult.ADVANCE

    for operation in list(module.body.operations):
        if _named(operation.operation, "sym_name") == function:
            module.operation.walk(visit)
            operation.operation.erase()
    return calls


def _named(operation: Any, attribute: str) -> str | None:
    found: str | None = operation.attributes[attribute].value if attribute in operation.attributes else None
    return found


def _return_instead(mlir: Bindings, call: Any) -> None:
    place = place_of(str(call.location))
    function = call.parent
    while function.name != "llvm.func":
        function = function.parent.operation
    result = str(function.attributes["function_type"])
    following = [operation.operation for operation in call.block.operations]
    following = following[following.index(call) + 1 :]
    with mlir.ir.InsertionPoint(call), call.location:
        if result.startswith("!llvm.func<void "):
            mlir.ir.Operation.create("llvm.return")
        elif result.startswith("!llvm.func<i32 "):
            i32 = mlir.ir.IntegerType.get_signless(32)
            one = mlir.ir.Operation.create(
                "llvm.mlir.constant", results=[i32], attributes={"value": mlir.ir.IntegerAttr.get(i32, 1)}
            )
            mlir.ir.Operation.create("llvm.return", operands=[one.result])
        else:
            raise InternalError(f"an early exit from a function of type {result}", place=place, code="EK0902")
    for operation in (*reversed(following), call):
        if any(True for value in operation.results for _ in value.uses):
            raise InternalError("values from after an early exit are used elsewhere", place=place, code="EK0902")
        operation.erase()


def pipeline(target: Target) -> tuple[Step, ...]:
    """The steps from emitted MLIR to the LLVM dialect for a target."""
    # Below AVX512_BF16 LLVM turns f32 -> bf16 into a library call for each lane, and AVX512_BF16 itself flushes
    # subnormals: the expansion into integer operations is vectorised, and exact on every target.
    bf16 = "" if target.supports("bf16_convert") else "{include-bf16=1}"
    return (
        "cse",
        "convert-scf-to-cf",
        exit_early,
        # No patterns: this only removes blocks that cannot be reached, which later conversions would not see.
        "canonicalize{region-simplify=normal max-iterations=1 enable-patterns=none}",
        f"arith-expand{bf16}",
        "convert-vector-to-llvm",
        "convert-arith-to-llvm",
        "convert-cf-to-llvm",
        *target.mlir_passes,
        "reconcile-unrealized-casts",
        f"ensure-debug-info-scope-on-llvm-func{{emission-kind={target.debug_info}}}",
    )


def lower_to_llvm(
    text: str, target: Target, *, steps: Sequence[Step] | None = None, observe: Observer | None = None
) -> str:
    """Lowers MLIR text to the text of an LLVM module that `llvm.compile_module` takes.

    Args:
        text: a module of `llvm.func`s whose bodies use scf, cf, arith, vector, llvm, nvvm and rocdl.
        target: gives the triple, the data layout and the kind of debug information.
        steps: what to run instead of `pipeline(target)`.
        observe: is told of every step after it ran.

    Raises:
        InternalError: MLIR refused the module; its place is in the author's own text where the location says so.
        TargetError: the bindings are not installed.
    """
    steps = pipeline(target) if steps is None else steps
    if observe is None:
        with suppress(InternalError):  # the steps one by one will say where
            return _lower(text, target, _joined(steps, text), None)
    return _lower(text, target, steps, observe)


def _joined(steps: Sequence[Step], text: str) -> list[Step]:
    """The steps without the one for exits where there are none, and passes that follow each other as one."""
    joined: list[Step] = []
    for step in steps:
        if isinstance(step, str) and joined and isinstance(joined[-1], str):
            joined[-1] += f",{step}"
        elif step is not exit_early or f"@{EXIT}" in text:
            joined.append(step)
    return joined


def _lower(text: str, target: Target, steps: Sequence[Step], observe: Observer | None) -> str:
    mlir = bindings()
    # Python functions are called from C++ here, and contexts are entered and left in order.
    with shielded(), _context(mlir):
        module = _parse(mlir, text)
        attributes = module.operation.attributes
        # Without a layout MLIR takes LLVM's defaults, and i64 would be aligned to 4 bytes.
        attributes["llvm.data_layout"] = mlir.ir.StringAttr.get(target.data_layout)
        attributes["llvm.target_triple"] = mlir.ir.StringAttr.get(target.triple)
        for step in steps:
            interruptible()
            name = step if isinstance(step, str) else step.__name__
            start = time.perf_counter()
            with _reporting(mlir, f"in {name.partition('{')[0]}", text):
                _run_step(mlir, step, module)
            if observe is not None:
                observe(name, time.perf_counter() - start, functools.partial(_print, module, False))
        interruptible()
        _check_translatable(mlir, module, target)
        with _reporting(mlir, "when it was translated to LLVM IR", text):
            translated = mlir.llvm.translate_module_to_llvmir(module.operation)
    if not translated:
        raise InternalError("MLIR gave no LLVM IR for the module", code="EK0902")
    return hinted(downgrade(str(translated)))


def _check_translatable(mlir: Bindings, module: Any, target: Target) -> None:
    """Refuses operations that no step has lowered: the translation would end the process over them."""
    left: list[Any] = []
    known = (*_TRANSLATABLE, *((f"{target.dialect}.",) if target.dialect else ()))

    def visit(operation: Any) -> Any:
        if not operation.name.startswith(known):
            left.append(operation)
            return mlir.ir.WalkResult.INTERRUPT
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if left:
        raise InternalError(
            f"no step lowers {left[0].name} to LLVM", place=place_of(str(left[0].location)), code="EK0902"
        )


def format_module(text: str, *, locations: bool = False) -> str:
    """Parses and verifies MLIR text and prints it in MLIR's own layout, with or without the locations.

    Raises:
        InternalError: MLIR refused the module.
    """
    mlir = bindings()
    with shielded(), _context(mlir):
        return _print(_parse(mlir, text), locations)


CONTEXT_USES = 64  # modules that one context serves before what it interned is freed (some 16 KiB each)

_idle: list[tuple[Any, int]] = []  # contexts that no thread is in, with how many modules they served


@contextmanager
def _context(mlir: Bindings) -> Iterator[None]:
    """A context for one module, which no other thread is in. To make one costs as much as to lower a small kernel."""
    try:
        context, uses = _idle.pop()
    except IndexError:
        # Dialects are loaded as the text names them: to load all takes longer than the rest.
        context, uses = mlir.ir.Context(load_on_create_dialects=[]), 0
        context.enable_multithreading(False)
    with context, mlir.ir.Location.unknown(context):
        yield
    # Not reached after an error: what refused a module is not asked again.
    if uses + 1 < CONTEXT_USES:
        _idle.append((context, uses + 1))


def _parse(mlir: Bindings, text: str) -> Any:
    with _reporting(mlir, "when it was read", text):
        return mlir.ir.Module.parse(text)  # which verifies it


def _run_step(mlir: Bindings, step: Step, module: Any) -> None:
    if isinstance(step, str):
        passes = mlir.passmanager.PassManager.parse(f"builtin.module({step})")
        passes.enable_verifier(False)  # between joined passes: that takes as long as the passes
        passes.run(module.operation)
    else:
        step(mlir, module)
    module.operation.verify()


def _print(module: Any, locations: bool) -> str:
    return str(module.operation.get_asm(enable_debug_info=locations))


@contextmanager
def _reporting(mlir: Bindings, when: str, text: str) -> Iterator[None]:
    """Turns what MLIR raises into an InternalError with the author's place and without a dump."""
    try:
        yield
    except mlir.ir.MLIRError as error:
        raise _internal_error(error.error_diagnostics, when, text) from None
    except (ValueError, RuntimeError) as error:  # a pass that is not registered, a failed translation
        raise InternalError(f"MLIR refused the module {when}: {_first_line(str(error))}", code="EK0902") from None


def _internal_error(diagnostics: Sequence[Any], when: str, text: str) -> InternalError:
    if not diagnostics:
        return InternalError(f"MLIR refused the module {when}", code="EK0902")
    location = str(diagnostics[0].location)
    places = places_of(location)
    notes = [f"called from {caller}" for caller in places[1:]]
    if in_text := re.search(r'"-":(\d+):(\d+)', location):
        line, column = int(in_text[1]), int(in_text[2])
        source = text.split("\n")[line - 1].strip() if line <= text.count("\n") + 1 else ""
        notes.append(f"at line {line}, column {column} of the MLIR text: {source[:160]}")
    message = _first_line(diagnostics[0].message)
    return InternalError(
        f"MLIR refused the module {when}: {message}", place=next(iter(places), None), notes=notes, code="EK0902"
    )


def _first_line(message: str) -> str:
    return message.strip().split("\n", 1)[0][:300].rstrip(".: ")


_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?: to (?:(\d+))?:(\d+))?')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


def places_of(location: str) -> list[Place]:
    """The places in a location as MLIR prints it, innermost first; those in the MLIR text itself are left out.

    Call sites give callee then callers, fused locations their parts in order. (Diagnostics hand out locations that
    cannot be asked for their parts, so the printed form is read.)
    """
    places = []
    for file, line, column, end_line, end_column in _FILE_LOCATION.findall(location):
        if file == "-":
            continue
        name = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else match[1], file)
        # Locations count columns from 1 and end after the last one, as places do.
        end = (int(end_line or line), int(end_column)) if end_column else (0, 0)
        places.append(Place(name, int(line), int(column), *end))
    return places


def place_of(location: str) -> Place | None:
    """The innermost place of a location, or None when it names none."""
    return next(iter(places_of(location)), None)
