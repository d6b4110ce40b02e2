"""Writes reproducers: one JSON file with everything that is needed to see a fault of the compiler again.

It holds the compile unit (portable programs, dtypes, shapes, parameters), or the graph that was to become one, the
target, the versions and the trace. Its name is made of its content, so that the same fault writes the same file. It
lies in a folder of the user's own: in the cache, or else in a new one for temporary files.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..dsl.contract import unit
from ..dsl.contract.records import Records
from ..dsl.contract.unit import EntrySpec
from ..dsl.diagnostics.errors import InternalError, PackageError
from ..dsl.diagnostics.forks import fork_lock
from ..dsl.diagnostics.json_reading import depth_of
from ..dsl.environment.cache import default_root
from ..dsl.environment.files import OwnFolder
from ..dsl.environment.fingerprint import fingerprint
from ..dsl.environment.knobs import knobs
from ..dsl.frontend.program import PortableKernel
from ..dsl.frontend.read_program import read_program
from .targets import Target

FORMAT = 1
FOLDER = "faults"  # in the cache: of the user's own
LARGEST = 64 << 20  # bytes of a reproducer
MAX_NESTING = 200  # lists and objects in each other
TEXTS_KEPT = 256
_RECORDS = [value for value in vars(unit).values() if dataclasses.is_dataclass(value)]
UNITS = Records(_RECORDS)


Held = EntrySpec | dict[str, Any] | None  # a unit, a graph as JSON, or nothing where not even that could be had


def write_reproducer(held: Held, target: Target, error: BaseException) -> Path | None:
    """The file for a fault; None where nothing can be written."""
    trace = "".join(traceback.format_exception(error))
    return _write(_text(held, target, f"{type(error).__name__}: {error}", trace))


def unit_text(spec: EntrySpec, target: Target, problem: str) -> str:
    """The reproducer of a unit, without a trace."""
    return _text(spec, target, problem, "")


def name_of(data: bytes) -> str:
    """The name of a reproducer: equal ones are one file."""
    return f"einkorn-fault-{hashlib.sha256(data).hexdigest()[:12]}.json"


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


def _write(text: str) -> Path | None:
    data = text.encode()
    with suppress(OSError):
        if knobs.cache:
            return _write_into(default_root() / FOLDER, data)
    with suppress(OSError):
        return _write_into(Path(tempfile.mkdtemp(prefix="einkorn-")), data)
    return None


def _write_into(path: Path, data: bytes) -> Path:
    name = name_of(data)
    with OwnFolder(path) as folder, suppress(FileExistsError), folder.create(name) as file:
        file.write(data)
    return path / name


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
        PackageError: EK0907, the file is not a reproducer.
    """
    graph = _read(_bytes_of(path), path).get("graph")
    return graph if isinstance(graph, dict) else None


def read_reproducer(path: str) -> tuple[EntrySpec, str]:
    """The compile unit and the name of the target of a reproducer.

    Raises:
        PackageError: EK0907, the file is not a reproducer.
    """
    return read_unit(_bytes_of(path), path)


def read_unit(text: bytes, path: str) -> tuple[EntrySpec, str]:
    """The same, of the contents of a file."""
    data = _read(text, path)
    try:
        spec = _units(data).read(data["unit"])
        if not isinstance(spec, EntrySpec):
            raise ValueError("it has another format")
        return spec, str(data["target"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise _no_reproducer(path, error) from None


def _units(data: dict[str, Any]) -> Records:
    """How a unit is read: its programs are numbers in a list, or stand in it, as they did before."""
    if "kernels" not in data:
        return UNITS
    kernels = [read_program(each) for each in data["kernels"]]
    return Records(_RECORDS, {PortableKernel: (kernels.index, kernels.__getitem__)})


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            data = file.read(LARGEST + 1)  # a pipe without a writer gives no bytes
    except OSError as error:
        raise _no_reproducer(path, error) from None
    if len(data) > LARGEST:
        raise _no_reproducer(path, ValueError(f"it has more than {LARGEST:,} bytes"))
    return data


def _read(text: bytes, path: str) -> dict[str, Any]:
    try:
        if depth_of(text) > MAX_NESTING:
            raise ValueError("it is nested too deeply")
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("einkorn") != FORMAT:
            raise ValueError("it has another format")
        return data
    except ValueError as error:
        raise _no_reproducer(path, error) from None


def _no_reproducer(path: str, error: Exception) -> PackageError:
    return PackageError(f"'{path}' is not a reproducer: {error}", code="EK0907", got=path)
