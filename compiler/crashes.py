"""Notes what is being compiled, so that a crash of LLVM or MLIR leaves a reproducer.

While they work a file with the compile unit lies in a folder of the user's own, in the cache. If the process crashes,
Python's `faulthandler` writes a trace next to it, which names the thread and the place. The next process that compiles
with this cache makes a reproducer of the note of a thread that crashed in the compiler, and removes the others: a
process may end for reasons of its own. Where the program has enabled `faulthandler` itself, that reports the crash, and
nothing is kept.

See also `reproducer` (what a reproducer holds).
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import hashlib
import itertools
import logging
import os
import platform
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ..dsl.contract.unit import EntrySpec
from ..dsl.diagnostics.errors import PackageError
from ..dsl.diagnostics.forks import fork_lock, in_child
from ..dsl.diagnostics.shield import shielded, window
from ..dsl.environment.cache import default_root
from ..dsl.environment.files import OwnFolder
from ..dsl.environment.knobs import knobs
from .reproducer import FOLDER, LARGEST, name_of, read_unit, unit_text
from .targets import Target

T = TypeVar("T")

PROBLEM: Final = "the process crashed while LLVM or MLIR compiled this"
TRACE: Final = 1 << 20  # bytes of a trace that are read
MAX_FILES: Final = 256  # files that one process looks at
KEPT: Final = 32  # reproducers that stay
_CRASHED: Final = re.compile(r"Current thread 0x([0-9a-f]+)[^\n]*\(most recent call first\):\n((?:  .*\n)*)")
_COMPILING: Final = re.compile(r'File ".*[/\\]compiler[/\\](?:pipeline|codegen[/\\]\w+)\.py"')
_NAME: Final = re.compile(r"(?P<process>\d+)(?:-(?P<thread>[0-9a-f]+)-\d+\.json|\.trace)")

_log = logging.getLogger("einkorn.compiler")
_numbers = itertools.count()


def noting(spec: EntrySpec, target: Target, work: Callable[[], T]) -> T:
    """Does the work of LLVM or MLIR on a unit next to a note of it."""
    root = default_root() if knobs.cache else None
    if root is None:
        return work()
    _report_crashes(root)
    with shielded():
        note = _Note.begin(root, spec, target)
        try:
            with window():
                return work()
        finally:
            if note is not None:
                note.end()


class _Note:
    """The file of a compilation that is under way."""

    def __init__(self, folder: OwnFolder, name: str) -> None:
        self.folder, self.name = folder, name

    @staticmethod
    def begin(root: Path, spec: EntrySpec, target: Target) -> _Note | None:
        """A note in the user's own folder; None where there can be none."""
        try:
            folder = OwnFolder(root / FOLDER)
        except OSError:
            return None
        try:
            note = _Note(folder, f"{_ours()}{os.getpid()}-{threading.get_ident():x}-{next(_numbers)}.json")
            text = unit_text(spec, target, PROBLEM).encode()
        except BaseException:
            folder.close()
            raise
        try:
            with folder.create(note.name) as stream:
                stream.write(text)
            _TRACES.begin(folder)
            return note
        except OSError:
            folder.remove(note.name)
            folder.close()
            return None

    def end(self) -> None:
        _TRACES.end()
        self.folder.remove(self.name)
        self.folder.close()


class _Traces:
    """Lets a crash write a trace, while anything is compiled and the program itself wants none."""

    def __init__(self) -> None:
        self.lock = fork_lock()
        self.count = 0  # compilations that are under way
        self.enabled = False
        self.streams: dict[Path, BinaryIO] = {}  # one a folder, for as long as the process lives

    def begin(self, folder: OwnFolder) -> None:
        with self.lock:
            self.count += 1
            if self.count == 1 and not faulthandler.is_enabled():
                stream = self.streams.get(folder.path)
                if stream is None:
                    name = f"{_ours()}{os.getpid()}.trace"
                    folder.remove(name)  # of a process that had this number before
                    stream = self.streams[folder.path] = folder.create(name)
                    atexit.register(_remove, folder.path / name, os.getpid())
                faulthandler.enable(stream, all_threads=True)
                self.enabled = True

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.enabled:
                faulthandler.disable()
                self.enabled = False


_TRACES = _Traces()


@in_child
def _forget_traces() -> None:
    """In the child of a fork, whose crashes are not the parent's."""
    if _TRACES.enabled:
        faulthandler.disable()
    _TRACES.count, _TRACES.enabled, _TRACES.streams = 0, False, {}


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            path.unlink()


# *** what earlier processes left ***


@functools.cache
def _report_crashes(root: Path) -> None:
    """Says, once in a process, which compilations have crashed earlier ones; makes reproducers of their notes."""
    with suppress(OSError), shielded(), OwnFolder(root / FOLDER) as folder:
        left: dict[int, list[re.Match[str]]] = {}
        for name in folder.names()[:MAX_FILES]:
            result = _NAME.fullmatch(name.removeprefix(_ours())) if name.startswith(_ours()) else None
            if result is not None and not _is_alive(int(result["process"])):
                left.setdefault(int(result["process"]), []).append(result)
        for names in left.values():
            _report(folder, names)
        for name in [name for name in folder.names() if name.startswith("einkorn-fault-")][:-KEPT]:
            folder.remove(name)


def _report(folder: OwnFolder, names: list[re.Match[str]]) -> None:
    """Reads what one process left, and removes it."""
    thread = ""
    for result in names:
        if result["thread"] is None:
            with suppress(OSError):
                trace = folder.read(_ours() + result.string, TRACE).decode(errors="replace")
                crashed = _CRASHED.search(trace)
                thread = crashed[1].lstrip("0") if crashed and _COMPILING.search(crashed[2]) else ""
    for result in names:
        name = _ours() + result.string
        if thread and result["thread"] == thread:
            with suppress(OSError, ValueError, PackageError):
                _keep(folder, name)
        folder.remove(name)


def _keep(folder: OwnFolder, name: str) -> None:
    """Makes a reproducer of a note, and says so."""
    data = folder.read(name, LARGEST)
    spec, _ = read_unit(data, name)
    kept = name_of(data)
    folder.rename(name, kept)
    _log.warning(
        "an earlier process crashed while LLVM or MLIR compiled %s: this is a fault of Einkorn. A reproducer is in %s; "
        "`einkorn reproduce %s` runs it again",
        ", ".join(node.kernel.schema.name for group in spec.groups for node in group.nodes),
        *(folder.path / kept,) * 2,
    )


@functools.cache
def _ours() -> str:
    """How the names of files begin that processes of this machine leave: numbers of others mean nothing here."""
    return f"einkorn-compiles-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
