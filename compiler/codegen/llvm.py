"""LLVM IR text -> objects, PTX and assembly: the only module that imports llvmlite.

See also `codegen.elf.linker`.

LLVM ends the process on some input instead of raising an error. So a module is verified before every hand-over, every
intrinsic must be on the target's list, and an object may leave only known symbols undefined.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final

from ...dsl.diagnostics import forks
from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError, TargetError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.shield import interruptible, shielded
from ...dsl.environment.memory_limit import hint_for_limit
from ...dsl.environment.stacks import with_room
from ..targets import Target
from ..targets.base import LIBRARY_INTRINSICS, split_intrinsic
from .elf import linker as elf
from .llvm_workarounds import broadcast_halves, one_lane_stores, traps_that_return

# Called after every pass with its name, its time in seconds, and a function that prints the module.
Observer = Callable[[str, float, Callable[[], str]], None]

_loading = fork_lock()


@functools.cache
def _load() -> Any:
    try:
        binding = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        limit = hint_for_limit() if not isinstance(error, ModuleNotFoundError) else None
        what = "cannot be loaded" if limit else "is not installed"
        raise TargetError(
            f"llvmlite {what}, and kernels cannot be compiled without it",
            code="EK0602",
            hint=limit or "pip install 'llvmlite>=0.48,<0.51'",
            notes=[str(error)],
        ) from None
    # Vectors as wide as the smallest type allows: else a loop from floats to bytes writes an eighth of one at a time.
    binding.set_option("einkorn", "-vectorizer-maximize-bandwidth")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()  # for inline assembly
    lock = getattr(getattr(binding.ffi.lib, "_lock", None), "_lock", None)
    if lock is not None:  # finalizers take it in any thread
        forks.taken_at_forks(lock)
    forks.register()
    return binding


def library() -> Any:
    """`llvmlite.binding`, imported and initialised at the first call; safe to call from several threads.

    Raises:
        TargetError: llvmlite is not installed.
    """
    with shielded(), _loading:
        return _load()


@functools.cache
def processor(target: Target) -> tuple[str, str]:
    """LLVM's processor name and feature list for a target; for the processor at hand, what LLVM itself finds."""
    if target.cpu:
        return target.cpu, target.features
    binding = library()
    features = [binding.get_host_cpu_features().flatten(), target.features]
    return binding.get_host_cpu_name(), ",".join(filter(None, features))


@dataclass(frozen=True)
class ModuleCode:
    """The code of one module for one target.

    `code` is an ELF object for a CPU or an AMD GPU, and PTX (as UTF-8) for an NVIDIA GPU. `undefined` are the symbols
    that the object leaves to shared libraries. `llvm` and `assembly` are recreated from `text` when they are requested
    for: the same input gives the same code.
    """

    target: Target
    level: int
    text: str = field(repr=False)
    code: bytes = field(repr=False)
    undefined: tuple[str, ...] = ()

    @property
    def ptx(self) -> str:
        """The PTX text of an NVIDIA target."""
        if not self.target.format.is_text:
            raise InternalError(f"{self.target.name} has no PTX")
        return self.code.decode()

    @cached
    def llvm(self) -> str:
        """The optimised LLVM IR."""
        with _optimised(self.text, self.target, self.level) as work:
            return str(work.module)

    @cached
    def assembly(self) -> str:
        """The assembly text; for an NVIDIA target, the PTX."""
        if self.target.format.is_text:
            return self.ptx
        return _emit_assembly(self.text, self.target, self.level)

    @property
    def needed(self) -> tuple[str, ...]:
        """The shared libraries that have the undefined symbols, in a fixed order."""
        return _libraries(self.undefined, self.target)

    def link(self, soname: str = "") -> bytes:
        """The loadable form: a shared object for a CPU, a code object for an AMD GPU, PTX as it is."""
        if self.target.format.is_text:
            return self.code
        return link([self.code], self.target, soname)


def link(objects: Sequence[bytes], target: Target, soname: str = "") -> bytes:
    """Links objects that know symbols of each other; what they leave undefined has a library of the target."""
    undefined = {symbol for each in objects for symbol in elf.undefined_symbols(each)}
    return elf.link_shared(objects, needed=_libraries(undefined & target.libcalls.keys(), target), soname=soname)


def _libraries(undefined: Iterable[str], target: Target) -> tuple[str, ...]:
    return tuple(sorted({target.libcalls[symbol] for symbol in undefined}, reverse=True))


@with_room
def compile_module(
    text: str,
    target: Target,
    *,
    level: int | None = None,
    observe: Observer | None = None,
    elsewhere: Container[str] = (),
    passes: Sequence[PassRow] = (),
) -> ModuleCode:
    """Optimises a module and makes code of it.

    Args:
        text: LLVM IR; its triple and data layout are replaced by the target's.
        level: 0 (none) to 3 (all: loop and SLP vectorisation, unrolling, interleaving); else the target's.
        observe: is notified of every pass after it ran.
        elsewhere: symbols that another object of the same link has.
        passes: what to do instead of `PASSES`.

    Raises:
        InternalError: LLVM cannot read the module, or it uses what the target does not have.
        TargetError: llvmlite is not installed.
    """
    level = target.level if level is None else level
    if target.format.is_text:
        return ModuleCode(target, level, text, _emit_assembly(text, target, level, observe, passes).encode())
    code = emit_object(text, target, level=level, observe=observe, passes=passes)
    undefined = tuple(sorted(name for name in elf.undefined_symbols(code) if name not in elsewhere))
    for symbol in undefined:
        if symbol not in target.libcalls:
            raise InternalError(
                f"the code for {target.name} calls {symbol}, which no library provides", code="EK0903", got=symbol
            )
    return ModuleCode(target, level, text, code, undefined)


@with_room
def emit_object(
    text: str,
    target: Target,
    *,
    level: int | None = None,
    observe: Observer | None = None,
    passes: Sequence[PassRow] = (),
) -> bytes:
    """The object of a module for a CPU or an AMD GPU, whatever it leaves undefined.

    Raises:
        InternalError: LLVM cannot read the module, or it uses an intrinsic that the target does not have.
    """
    level = target.level if level is None else level
    with _optimised(text, target, level, observe, passes) as work:
        return _object_of(work.module, work.machine)


def _object_of(module: object, machine: object) -> bytes:
    """As `machine.emit_object(module)`, next to other threads."""
    ffi = library().ffi
    with ffi.OutputString() as message:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise InternalError(f"LLVM made no object: {_summary(str(message))}", code="EK0903")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(name: str) -> Callable[..., Any]:
    """A function of llvmlite's library without llvmlite's lock, which lets one thread at a time into all of LLVM.

    LLVM itself only requires that threads share no context, and each module has one of its own.
    """
    function: Callable[..., Any] = getattr(library().ffi.lib, name)
    return getattr(function, "_cfn", function)


def _emit_assembly(
    text: str, target: Target, level: int, observe: Observer | None = None, passes: Sequence[PassRow] = ()
) -> str:
    with _optimised(text, target, level, observe, passes) as work:
        return str(work.machine.emit_assembly(work.module))


_idle: dict[tuple[Target, int], list[object]] = {}  # machines that no thread uses


@contextmanager
def _machine(target: Target, level: int) -> Iterator[Any]:
    """What turns modules into code, for one module at a time: to make one takes as long as to read a small module."""
    idle = _idle.setdefault((target, level), [])
    with shielded():  # llvmlite takes its lock in more than one step
        try:
            machine = idle.pop()
        except IndexError:
            machine = new_machine(target, level)
        yield machine
        idle.append(machine)  # not reached after an error


VETTED: set[tuple[str, str]] = set()  # targets and intrinsics that `native_check` found to be right


def new_machine(target: Target, level: int) -> Any:
    cpu, features = processor(target)
    return (
        library()
        .Target.from_triple(target.triple)
        .create_target_machine(
            # llvmlite's default code model makes relocations for code that never leaves the process.
            cpu=cpu,
            features=features,
            opt=level,
            reloc="pic",
            codemodel="default",
        )
    )


@dataclass
class _ModuleWork:
    """A module on its way through `PASSES`."""

    text: str
    target: Target
    level: int
    machine: Any
    module: Any = None
    context: Any = None

    def read(self, text: str) -> None:
        """Reads the module, which takes the place of the one before."""
        self.close()
        self.context = library().create_context()
        self.module = library().parse_assembly(text, self.context)

    def close(self) -> None:
        """Frees the module, then its context. The garbage collector, to which exceptions leave them, has no order."""
        for each in (self.module, self.context):
            if each is not None:
                each.close()
        self.module = self.context = None


PassRow = tuple[str, Callable[[_ModuleWork], None]]  # of `PASSES`


def _check(work: _ModuleWork) -> None:
    """Refuses what the target's code generator would die of."""
    check_intrinsics(_intrinsic_uses(work.text), work.target)
    for instruction in work.target.intrinsics.instructions:
        if re.search(rf"\b{instruction}\b", work.text):
            raise InternalError(f"{instruction} is not available on {work.target.name}", code="EK0903", got=instruction)


def _read(work: _ModuleWork) -> None:
    try:
        work.read(work.text)
        work.module.triple = work.target.triple
        work.module.data_layout = work.target.data_layout
        work.module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refused the module: {_summary(str(error))}", code="EK0903") from None


def _optimize(work: _ModuleWork) -> None:
    """LLVM's own pipeline of an optimisation level; at level 0 it still divides coroutines."""
    binding, module = library(), work.module
    tuning = binding.create_pipeline_tuning_options(speed_level=work.level)
    tuning.loop_vectorization = tuning.slp_vectorization = work.level >= 2
    tuning.loop_interleaving = tuning.loop_unrolling = work.level >= 2
    passes = binding.create_pass_builder(work.machine, tuning)
    manager = passes.getModulePassManager()
    _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, passes)
    # llvmlite forgets to: of its two base classes the first one has nothing to dispose of, and 80 KiB are left.
    super(binding.ffi.ObjectRef, manager)._dispose()
    manager.detach()
    module.verify()
    _check_made(work)


def _check_made(work: _ModuleWork) -> None:
    # Optimisation makes intrinsics of its own, which the target has, but it can also drop the flags of a call.
    names = {split_intrinsic(function.name)[0] for function in work.module.functions}
    if names & LIBRARY_INTRINSICS:
        uses = [use for use in _intrinsic_uses(str(work.module)) if split_intrinsic(use[0])[0] in LIBRARY_INTRINSICS]
        check_intrinsics(uses, work.target)


def _store_one_lane(work: _ModuleWork) -> None:
    """Writes otherwise what LLVM would make wrong code of; see `codegen.llvm_workarounds`."""
    if any(function.name.startswith("llvm.masked.store") for function in work.module.functions):
        _rewrite(work, one_lane_stores)


def _return_behind_traps(work: _ModuleWork) -> None:
    """Writes otherwise what LLVM would end at; see `codegen.llvm_workarounds`."""
    if work.target.returns_behind_traps and any(function.name == "llvm.trap" for function in work.module.functions):
        _rewrite(work, traps_that_return)


def _broadcast_halves(work: _ModuleWork) -> None:
    """Writes otherwise what LLVM would make slow code of; see `codegen.llvm_workarounds`."""
    if work.target.half_loads_wait and "fpext half " in work.text:
        _rewrite(work, broadcast_halves)


def _rewrite(work: _ModuleWork, change: Callable[[str], str]) -> None:
    before = str(work.module)
    after = change(before)
    if after != before:
        work.read(after)
        work.module.verify()


# From text to the module that the code generator takes.
PASSES: Final[tuple[PassRow, ...]] = (
    ("check_intrinsics", _check),
    ("read", _read),
    ("optimize", _optimize),
    ("store_one_lane", _store_one_lane),
    ("return_behind_traps", _return_behind_traps),
    ("broadcast_halves", _broadcast_halves),
)


@contextmanager
def _optimised(
    text: str,
    target: Target,
    level: int,
    observe: Observer | None = None,
    passes: Sequence[PassRow] = (),
) -> Iterator[_ModuleWork]:
    """The optimised module, and the machine that turns it into code.

    AMDGPU's code generator changes the module: nothing may be emitted twice from one.
    """
    with _machine(target, level) as machine:
        work = _ModuleWork(text, target, level, machine)
        try:
            for name, run in passes or PASSES:
                start = time.perf_counter()
                run(work)
                interruptible()
                if observe is not None:
                    observe(name, time.perf_counter() - start, lambda: str(work.module or work.text))
            yield work
        finally:
            work.close()


_INTRINSIC = re.compile(r".*@(llvm\.[\w.]+)\(")
_APPROXIMATE = re.compile(r"\bcall\b.*?\b(?:afn|fast)\b.*?@llvm\.")


def _intrinsic_uses(text: str) -> Iterable[tuple[str, bool]]:
    """Every intrinsic in the text, and whether that use allows an approximation (a declaration does)."""
    for line in text.split("\n"):
        if "@llvm." in line and (match := _INTRINSIC.match(line)):
            yield match[1], line.lstrip().startswith("declare ") or _APPROXIMATE.search(line) is not None


def check_intrinsics(uses: Iterable[tuple[str, bool]], target: Target) -> None:
    """Refuses intrinsics that the target's code generator would die of.

    Args:
        uses: names as in LLVM text, each with whether an approximation is allowed there.

    Raises:
        InternalError: an intrinsic is not on the target's list; it and the target are named.
    """
    for name, approximate in dict.fromkeys(uses):
        if (target.name, name) in VETTED:
            continue
        base, _ = split_intrinsic(name)
        reason = target.intrinsics.refusal(name)
        if reason is None and not approximate and base in target.intrinsics.approximate:
            reason = f"{base} is available only as an approximation"
        if reason is not None:
            raise InternalError(f"{reason} on {target.name}", code="EK0903", got=name)


def _summary(message: str) -> str:
    """LLVM's message without the lines of the module that it quotes."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith("LLVM IR parsing error")]
    return (lines[0] if lines else message)[:300].removeprefix("<string>:")
