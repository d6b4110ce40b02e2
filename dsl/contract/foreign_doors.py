"""What doors for other libraries find in their tables: the names of the words, in their order.

A word is 8 bytes: an address, or a number. See also `compiler.doors`, `graph.interop`.
"""

from __future__ import annotations

from typing import Final

from .doors import ENTRY_WORDS, DoorSpec

TABLE: Final = "ek_table"  # the symbol of the address of a door's table, where it finds it by a symbol
PLAIN_DOOR: Final = "ek_plain"  # the symbol of the door that numba compiles into its code

# How a call is made, and functions of Python's by their names: one table for all doors of a process.
CALL_WORDS: Final = (
    *("report", "pool", "poll", "parallel", "threads"),
    *("PyGILState_Check", "PyEval_SaveThread", "PyEval_RestoreThread", "PyGILState_Ensure", "PyGILState_Release"),
    *("PyErr_Occurred", "PyErr_Clear", "PyErr_SetInterruptEx"),
    *("PyLong_FromVoidPtr", "PyObject_CallOneArg", "Py_DecRef"),
)

MOVE: Final = "ek_move"  # what copies elements of so many bytes, from one step to another
MOVED: Final = (1, 2, 4, 8, 16)

# The loop of a ufunc, for one dtype of one kernel: `calls` is the address of a table of the words above.
LOOP_WORDS: Final = ("calls", "entry", "owner", "raise", *(f"move{size}" for size in MOVED))

# The loops of a ufunc for all its dtypes, which call `find`, an object of Python's, for the loops above.
FIND_WORDS: Final = (
    *("find", "PyGILState_Ensure", "PyGILState_Release", "PyLong_FromVoidPtr", "PyLong_AsVoidPtr"),
    *("PyObject_CallOneArg", "Py_DecRef"),
)


def handler_words(spec: DoorSpec) -> tuple[str, ...]:
    """What the handler of an entry for XLA finds: `explain(context, status)` gives the text of a failure, or 1 where an
    exception is raised later by the signal that `interrupt(signal)` trips."""
    constants = (f"constant{k}" for kind, k in spec.pointers if kind == "constant")
    return (*ENTRY_WORDS, "explain", "interrupt", *constants)
