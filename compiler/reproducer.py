"""Writes reproducers: one JSON file with everything that is needed to see a fault of the compiler again.

It holds the compile unit (portable programs, dtypes, shapes, parameters), or the graph that was to become one, the
target, the versions and the trace. Its name is made of its content, so that the same fault writes the same file. A
fault of LLVM or MLIR may end the process: while they work a file lies there, and the next process that compiles finds
it and says so.

Input: a compile unit or a graph, a target and the exception. Output: the path of the file; and from a file, the unit or
the graph again. Non-goals: nothing is sent anywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import logging
import os
import platform
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..dsl.contract import unit
from ..dsl.contract.records import Records
from ..dsl.contract.unit import EntrySpec
from ..dsl.diagnostics.errors import InternalError, PackageError
from ..dsl.diagnostics.forks import fork_lock
from ..dsl.diagnostics.shield import shielded, window
from ..dsl.environment.cache import default_root
from ..dsl.environment.fingerprint import fingerprint
from ..dsl.environment.knobs import knobs
from ..dsl.frontend.program import PortableKernel
from ..dsl.frontend.read_program import read_program
from .targets import Target

FORMAT = 1
TEXTS_KEPT = 256
T = TypeVar("T")
_RECORDS = [value for value in vars(unit).values() if dataclasses.is_dataclass(value)]
UNITS = Records(_RECORDS)


_log = logging.getLogger("einkorn.compiler")
_numbers = itertools.count()


Held = EntrySpec | dict[str, Any] | None  # a unit, a graph as JSON, or nothing where not even that could be had


def write_reproducer(held: Held, target: Target, error: BaseException) -> Path | None:
    """The file for a fault; None where nothing can be written."""
    trace = "".join(traceback.format_exception(error))
    text = _text(held, target, f"{type(error).__name__}: {error}", trace)
    return _write(_name(text), text)


def beside(spec: EntrySpec, target: Target, work: Callable[[], T]) -> T:
    """Does the work beside a reproducer in the cache: one that stays there is that of a process that has ended."""
    _tell_of_others()
    text = _text(spec, target, "the process ended while LLVM or MLIR compiled this", "")
    with shielded():
        path = _write(f"{_ours(os.getpid())}{next(_numbers)}.json", text)
        try:
            with window():
                return work()
        finally:
            if path is not None:
                path.unlink(missing_ok=True)


@functools.cache
def _tell_of_others() -> None:
    """Says, once in a process, which compilations have ended theirs, and makes reproducers of what they left."""
    for folder in _folders():
        for path in folder.glob(f"{_ours()}*.json"):
            with suppress(OSError, ValueError, PackageError):
                if _is_alive(int(path.stem.split("-")[-2])):
                    continue
                spec, _ = read_reproducer(str(path))
                ops = ", ".join(node.kernel.schema.name for group in spec.groups for node in group.nodes)
                kept = path.replace(folder / _name(path.read_text(encoding="utf-8")))
                _log.warning(
                    "an earlier process ended while LLVM or MLIR compiled %s; if nobody ended it, this is a fault of "
                    "Einkorn. A reproducer is in %s; `einkorn reproduce %s` runs it again",
                    ops,
                    kept,
                    kept,
                )


def _ours(process: int | str = "") -> str:
    """How the names of files begin that a process (or any) of this machine has left."""
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    return f"einkorn-compiles-{machine}-{process}" + ("-" if process else "")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _name(text: str) -> str:
    return f"einkorn-fault-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def _text(held: Held, target: Target, problem: str, trace: str) -> str:
    data: dict[str, Any] = {
        "einkorn": FORMAT,
        "target": target.name,
        "fault": problem,
        "trace": trace,
    }
    if not isinstance(held, EntrySpec):
        data |= {"graph": held, "toolchain": fingerprint()}
        return json.dumps(data, sort_keys=True)  # indented, it would take ten times as long
    programs: dict[str, PortableKernel] = {}

    def number(kernel: PortableKernel) -> int:
        programs.setdefault(kernel.digest, kernel)
        return list(programs).index(kernel.digest)

    data["unit"] = Records(_RECORDS, {PortableKernel: (number, int)}).write(held)
    texts = ", ".join(_program_text(digest, kernel) for digest, kernel in programs.items())
    return f'{json.dumps(data, sort_keys=True)[:-1]}, "toolchain": {_toolchain()}, "kernels": [{texts}]}}'


@functools.cache
def _toolchain() -> str:
    """The fingerprint as JSON, which is long."""
    return json.dumps(fingerprint())


_texts: dict[str, str] = {}  # of programs, by digest: most of what is written, and the same for many units
_texts_lock = fork_lock()  # groups are compiled side by side


def _program_text(digest: str, kernel: PortableKernel) -> str:
    with _texts_lock:
        text = _texts.pop(digest, None) or json.dumps(kernel.to_json(), sort_keys=True)
        _texts[digest] = text  # the last used come last
        while len(_texts) > TEXTS_KEPT:
            del _texts[next(iter(_texts))]
        return text


def _folders() -> list[Path]:
    temporary = Path(tempfile.gettempdir())
    return [default_root(), temporary] if knobs.cache else [temporary]


def _write(name: str, text: str) -> Path | None:
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), open(folder / name, "x", encoding="utf-8") as file:  # follows no link
                file.write(text)
            return folder / name
    return None


def fault(held: Held, target: Target, error: Exception) -> InternalError:
    """An unexpected exception of a compilation, as the error that its user sees."""
    path = None if held is None else write_reproducer(held, target, error)
    first = next(iter(str(error).splitlines()), "")
    text = f"the compiler failed with {type(error).__name__}: {first}"
    made = error if isinstance(error, InternalError) else InternalError(text)
    if path is not None:
        made.reproducer = str(path)
        made.notes.append(f"a reproducer is in {path}; `einkorn reproduce {path}` runs it again")
    return made


def read_graph(path: str) -> dict[str, Any] | None:
    """The graph of a reproducer, as JSON; None where it holds a compile unit.

    Raises:
        PackageError: EK0907, the file is none.
    """
    graph = _read(path).get("graph")
    return graph if isinstance(graph, dict) else None


def read_reproducer(path: str) -> tuple[EntrySpec, str]:
    """The compile unit and the name of the target of a reproducer.

    Raises:
        PackageError: EK0907, the file is none.
    """
    data = _read(path)
    try:
        spec = _units(data).read(data["unit"])
        if not isinstance(spec, EntrySpec):
            raise ValueError("it has another format")
        return spec, str(data["target"])
    except (ValueError, KeyError, TypeError) as error:
        raise _no_reproducer(path, error) from None


def _units(data: dict[str, Any]) -> Records:
    """How a unit is read: its programs are numbers in a list, or stand in it, as they did before."""
    if "kernels" not in data:
        return UNITS
    kernels = [read_program(each) for each in data["kernels"]]
    return Records(_RECORDS, {PortableKernel: (kernels.index, kernels.__getitem__)})


def _read(path: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("einkorn") != FORMAT:
            raise ValueError("it has another format")
        return data
    except (OSError, ValueError) as error:
        raise _no_reproducer(path, error) from None


def _no_reproducer(path: str, error: Exception) -> PackageError:
    return PackageError(f"'{path}' is no reproducer: {error}", code="EK0907", got=path)
