"""MLIR text -> LLVM IR text: finds the MLIR bindings and drives them.

The way between is `PASSES`. Code that watches sees each by itself, verified and timed; else passes in a row are run as
one.

This is the only module that imports the bindings: a package named `mlir` when one is installed, else `torch_mlir`.
"""

from __future__ import annotations

import functools
import importlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError, TargetError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.shield import interruptible, shielded
from ...dsl.environment.memory_limit import hint_for_limit
from ...dsl.environment.stacks import with_room
from ..ir.schedule import EXIT
from ..targets import Target
from .coroutines import with_coroutines
from .early_exits import exit_early
from .llvm_versions import downgrade
from .locations import place_of, places_of
from .loop_hints import hinted
from .walking import walk


@dataclass(frozen=True)
class MLIRPass:
    """A pass over a module: one of MLIR's by its name, or a Python function of Einkorn.

    Attributes:
        spell: its name and options for a target, or several passes; empty where the target needs none.
        change: our function, called with the bindings and the module.
    """

    name: str
    spell: Callable[[Target], str] | None = None
    change: Callable[[Any, Any], None] | None = None

    def text(self, target: Target) -> str:
        """The pass as MLIR's pass managers read it."""
        return self.name if self.spell is None else self.spell(target)


# From what is emitted to the LLVM dialect. Code that watches sees each by itself; else passes in a row are run as one.
PASSES: Final[tuple[MLIRPass, ...]] = (
    MLIRPass("cse"),
    MLIRPass("convert-scf-to-cf"),
    MLIRPass("exit_early", change=exit_early),
    # No patterns: this only removes blocks that cannot be reached, which later conversions would not see.
    MLIRPass("canonicalize", lambda _: "canonicalize{region-simplify=normal max-iterations=1 enable-patterns=none}"),
    # Below AVX512_BF16 LLVM turns f32 -> bf16 into a library call for each lane, and AVX512_BF16 itself flushes
    # subnormals: the expansion into integer operations is vectorised, and exact on every target.
    MLIRPass("arith-expand", lambda t: f"arith-expand{'' if t.supports('bf16_convert') else '{include-bf16=1}'}"),
    MLIRPass("convert-vector-to-llvm"),
    MLIRPass("convert-arith-to-llvm"),
    MLIRPass("convert-cf-to-llvm"),
    MLIRPass("convert-target-to-llvm", lambda target: ",".join(target.mlir_passes)),
    MLIRPass("reconcile-unrealized-casts"),
    MLIRPass(
        "ensure-debug-info-scope-on-llvm-func",
        lambda target: f"ensure-debug-info-scope-on-llvm-func{{emission-kind={target.debug_info}}}",
    ),
)

# Called after every pass with its name, its time in seconds, and a function that prints the module.
Observer = Callable[[str, float, Callable[[], str]], None]


_TRANSLATABLE: Final = ("llvm.", "builtin.module")  # and the dialect of the target


@dataclass(frozen=True)
class Bindings:
    """The modules of the MLIR bindings that are in use. They have no types of their own, hence Any."""

    package: str
    ir: Any
    passmanager: Any
    llvm: Any


_loading = fork_lock()


@functools.cache
def _find_bindings() -> Bindings:
    limit, notes = None, []
    for package in ("mlir", "torch_mlir"):
        try:
            result = Bindings(
                package,
                importlib.import_module(f"{package}.ir"),
                importlib.import_module(f"{package}.passmanager"),
                # What is around it, a Python class for each operation, takes three times as long to load as all else.
                importlib.import_module(f"{package}._mlir_libs._mlirDialectsLLVM"),
            )
        except ImportError as error:  # not installed, or something else by that name
            if not isinstance(error, ModuleNotFoundError):
                limit, notes = hint_for_limit(), [str(error)]
            continue
        if (
            hasattr(result.ir, "MLIRError")
            and hasattr(result.passmanager.PassManager, "add")
            and hasattr(result.llvm, "translate_module_to_llvmir")
        ):
            return result
    what = "cannot be loaded" if limit else "are not installed"
    raise TargetError(
        f"the MLIR bindings {what}, and kernels cannot be compiled without them",
        code="EK0602",
        hint=limit or "pip install torch-mlir==20261001",
        notes=notes,
    )


def bindings() -> Bindings:
    """The MLIR bindings, imported at the first call; safe to call from several threads.

    Raises:
        TargetError: neither `mlir` nor `torch_mlir` is installed in a usable version.
    """
    with shielded(), _loading:
        return _find_bindings()


@with_room
def lower_to_llvm(
    text: str, target: Target, *, passes: Sequence[MLIRPass] = PASSES, observe: Observer | None = None
) -> str:
    """Lowers MLIR text to the text of an LLVM module that `llvm.compile_module` takes.

    Args:
        text: a module of `llvm.func`s whose bodies use scf, cf, arith, vector, llvm, nvvm and rocdl.
        target: gives the triple, the data layout and the kind of debug information.
        passes: what to run.
        observe: is notified of every pass after it ran.

    Raises:
        InternalError: MLIR refused the module; its place is in the author's own text where the location says so.
        TargetError: the bindings are not installed.
    """
    if observe is None:
        with suppress(InternalError):  # the passes one by one will say where
            return _lower(text, target, _joined(passes, target, text), None)
    return _lower(text, target, passes, observe)


def _joined(passes: Sequence[MLIRPass], target: Target, text: str) -> list[MLIRPass]:
    """The passes without the one for exits where there are none, and those that follow each other as one."""
    joined: list[MLIRPass] = []
    for row in passes:
        if row.change is not None:
            joined += [row] * (f"@{EXIT}" in text)
        elif joined and joined[-1].change is None:
            both = ",".join(filter(None, (joined[-1].text(target), row.text(target))))
            joined[-1] = MLIRPass(both)
        else:
            joined.append(row)
    return joined


def _lower(text: str, target: Target, passes: Sequence[MLIRPass], observe: Observer | None) -> str:
    mlir = bindings()
    # Python functions are called from C++ here, and contexts are entered and left in order.
    with shielded(), _context(mlir):
        module = _parse(mlir, text)
        attributes = module.operation.attributes
        # Without a layout MLIR takes LLVM's defaults, and i64 would be aligned to 4 bytes.
        attributes["llvm.data_layout"] = mlir.ir.StringAttr.get(target.data_layout)
        attributes["llvm.target_triple"] = mlir.ir.StringAttr.get(target.triple)
        for number, row in enumerate(passes, 1):
            interruptible()
            start = time.perf_counter()
            with _reporting(mlir, f"in {row.name.partition('{')[0]}", text):
                _run(mlir, row, target, module)
                # Ours take what passes give, as passes that are joined do; what ours give is looked through.
                if observe is not None or number == len(passes) or passes[number].change is None:
                    module.operation.verify()
            if observe is not None:
                observe(row.name, time.perf_counter() - start, functools.partial(_print, module, False))
        interruptible()
        _check_translatable(mlir, module, target)
        with _reporting(mlir, "when it was translated to LLVM IR", text):
            translated = mlir.llvm.translate_module_to_llvmir(module.operation)
    if not translated:
        raise InternalError("MLIR gave no LLVM IR for the module", code="EK0902")
    return with_coroutines(hinted(downgrade(str(translated))), target)


def _check_translatable(mlir: Bindings, module: Any, target: Target) -> None:
    """Refuses operations that no pass has lowered: the translation would end the process over them."""
    left: list[Any] = []
    known = (*_TRANSLATABLE, *((f"{target.dialect}.",) if target.dialect else ()))

    def visit(operation: Any) -> bool:
        if not operation.name.startswith(known):
            left.append(operation)
        return not left

    walk(mlir, module.operation, visit)
    if left:
        raise InternalError(
            f"no pass lowers {left[0].name} to LLVM", place=place_of(str(left[0].location)), code="EK0902"
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
    # Not reached after an error: a pass manager that refused a module is not used again.
    if uses + 1 < CONTEXT_USES:
        _idle.append((context, uses + 1))


def _parse(mlir: Bindings, text: str) -> Any:
    with _reporting(mlir, "when it was read", text):
        return mlir.ir.Module.parse(text)  # which verifies it


def _run(mlir: Bindings, row: MLIRPass, target: Target, module: Any) -> None:
    if row.change is not None:
        row.change(mlir, module)
    elif text := row.text(target):
        passes = mlir.passmanager.PassManager.parse(f"builtin.module({text})")
        passes.enable_verifier(False)  # between joined passes: that takes as long as the passes
        passes.run(module.operation)


def _print(module: Any, locations: bool) -> str:
    return str(module.operation.get_asm(enable_debug_info=locations))


@contextmanager
def _reporting(mlir: Bindings, when: str, text: str) -> Iterator[None]:
    """Turns what MLIR raises into an InternalError with the author's place and without a dump."""
    try:
        yield
    except mlir.ir.MLIRError as error:
        raise _internal_error(error.error_diagnostics, when, text) from None
    except RecursionError:
        raise
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
