"""Stands for an entry that generated code of other libraries calls, on whatever thread, many at once.

See also `compiler.doors` (how calls are made).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...dsl.contract import abi
from ...dsl.contract.doors import DoorSpec
from ...dsl.contract.foreign_doors import CALL_WORDS, TABLE
from ...dsl.diagnostics.errors import EinkornError, GraphError, KernelError
from ...dsl.diagnostics.places import user_place
from ..calling.doors import DoorOwner, door_spec, entry_words, load_door
from ..driver.python_api import address_of
from ..driver.shared_library import SharedLibrary
from ..findings.report_callbacks import REPORT
from ..loading.thread_pool import thread_pool
from .explained import named
from .late_interrupts import forget, raise_later
from .specialise import Specialisation


class ForeignCalls(DoorOwner):
    """Receives the reports of a specialisation's entry in foreign calls.

    Attributes:
        spec: what a door has to know of the entry; None where it cannot have one.
        words: what the context of a call is made of, and the entry.
        fail_at, keep_at, refuse_at: the addresses of objects of Python's: `fail`, `keep` and `refuse`.
    """

    def __init__(self, made: Specialisation) -> None:
        super().__init__(made.model.first_caller)
        self.made = made
        self.spec = door_spec(self.caller)
        self.words = entry_words(self.caller, self) if self.spec is not None else {}
        self._methods = self.fail, self.keep, self.refuse  # one object each, for code that holds its address
        self.fail_at, self.keep_at, self.refuse_at = map(id, self._methods)

    def why(self, context: int) -> BaseException:
        """Why the call with this context failed; found once."""
        error = self.error(context, abi.Context.from_address(context).status)
        return named(error, self.made.schema) if isinstance(error, EinkornError) else error

    def fail(self, context: int) -> None:
        """Raises why the call with this context failed."""
        raise self.why(context)

    def keep(self, context: int) -> None:
        """Keeps why the call with this context failed, for code that raises a `KeptError`."""
        error = self.why(context)
        keep_error(error)
        if not isinstance(error, EinkornError):
            raise_later(error)
        if not any(thread.ident == threading.get_ident() for thread in threading.enumerate()):
            sys.stderr.write(f"einkorn: on a thread that is not Python's, where exceptions are lost:\n{error}\n")

    def refuse(self, changed: int, other: int, *sizes: int) -> None:
        """Keeps what is wrong with sizes that native code has refused, or with two arguments that share memory."""
        keep_error(self._refusal(changed, other, sizes))

    def _refusal(self, changed: int, other: int, sizes: Sequence[int]) -> BaseException:
        inputs = self.made.schema.inputs
        if changed >= 0:
            name, op = inputs[changed].name, self.made.schema.name
            return GraphError(
                f"op '{op}': '{name}' is changed in place, and shares memory with '{inputs[other].name}'",
                code="EK0897",
                place=user_place(),
                op=op,
                argument=name,
                expected="memory of its own",
                got=f"memory of '{inputs[other].name}'",
                hint=f"pass a copy: {name}.copy()",
            )
        rest = iter(sizes)
        return self.misfit([tuple(itertools.islice(rest, type.rank)) for type in self.made.inputs])

    def misfit(self, shapes: Sequence[tuple[int, ...]]) -> EinkornError:
        """What is wrong with sizes."""
        try:
            self.made.output_shapes(shapes)
            sizes = {name: shapes[number][axis] for name, (number, axis) in self.made.symbols.items()}
            self.caller.plan.stages[0].checks.check(sizes)
        except EinkornError as error:
            return named(error, self.made.schema)
        op = self.made.schema.name
        return KernelError(f"op '{op}' does not take these sizes", code="EK0702", place=user_place(), op=op, got=shapes)


_errors: dict[int, BaseException] = {}  # by thread: of its last call that failed and did not raise
_given: dict[int, BaseException] = {}  # by thread: what has been made an instance once, of two times


def keep_error(error: BaseException) -> None:
    """Keeps what a `KeptError` that this thread raises next is."""
    _given.pop(threading.get_ident(), None)
    _errors[threading.get_ident()] = error


class KeptError(Exception):
    """What compiled code raises for an exception that has been kept in its thread: an instance of it is that exception.

    So code of others that catches exceptions has one of its own kind to catch.
    """

    def __new__(cls) -> BaseException:  # type: ignore[misc]
        thread = threading.get_ident()
        error = _given.pop(thread, None)  # numba makes an instance, and Python another, as the first has another class
        if error is None and thread in _errors:
            error = _given[thread] = _errors.pop(thread)
            forget(error)
        return RecursionError("there was no memory to report why a kernel failed") if error is None else error


def foreign_calls(made: Specialisation) -> ForeignCalls:
    """The receiver of reports of a specialisation's foreign calls: one per process."""
    with made.lock:
        entry: ForeignCalls | None = made.__dict__.get("_foreign")
        if entry is None:
            entry = made.__dict__["_foreign"] = ForeignCalls(made)
            _kept.append(entry)  # the addresses of the entry are in the code of others
        return entry


_kept: list[Any] = []


@functools.cache
def call_table() -> int:
    """The address of the table that native code makes calls with; see `compiler.doors.calls`."""
    pool = thread_pool()
    words = {"report": REPORT, "pool": 0, "poll": 0, "parallel": 0, "threads": 1}
    if pool is not None:
        words |= {"pool": pool.address, "poll": pool.poll}
    if pool is not None and pool.threads > 1:
        words |= {"parallel": pool.run, "threads": pool.threads}
    return _kept_table([words[name] if name in words else address_of(name) for name in CALL_WORDS])


def own_door(
    name: str, spec: DoorSpec, form: object, names: Sequence[str], words: Mapping[str, int]
) -> SharedLibrary | None:
    """The code of a door with a table of its own, which has these words; None where there are no doors.

    It stays for the life of the process: the addresses of its functions are with others.
    """
    library = load_door(name, spec, form, own=True)
    if library is not None:
        _kept.append(library)
        ctypes.c_void_p.from_address(library.address(TABLE)).value = _kept_table([words[word] for word in names])
    return library


def _kept_table(words: Sequence[int]) -> int:
    table = (ctypes.c_void_p * len(words))(*words)
    _kept.append(table)
    return ctypes.addressof(table)
