"""Resolves the names of a module: entries of a program's table of globals -> values.

See also `dsl.frontend.python.collect` (how the table is made).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import did_you_mean
from ...dsl.frontend.program import GlobalEntry
from .evaluator import Point
from .recovery import Cascade
from .values.compile_time import ClassValue, Closure, Frame, LibraryRef, Marker, StructType, StructValue, StubRef


@dataclass(frozen=True, eq=False)
class ClassMethod:
    """A function of a class that is given the class first."""

    closure: Closure


_stub = cache(StubRef)


def global_value(here: Point, entry: GlobalEntry) -> Any:
    """The value of an entry of the program's table of globals."""
    match entry.kind:
        case "function" | "library" | "classmethod":
            index = entry.value[1] if entry.kind == "library" else entry.value
            source = here.frame.program.functions[index]
            home = Frame({}, here.frame.program, source.file, here.frame.typevars, None, ())
            closure = Closure(source.syntax, home)
            if entry.kind == "classmethod":
                return ClassMethod(closure)
            return closure if entry.kind == "function" else LibraryRef(entry.value[0], closure)
        case "struct" | "instance":
            source = here.frame.program.functions[entry.value if entry.kind == "struct" else entry.value[0]]
            struct = StructType(
                source.syntax, Frame({}, here.frame.program, source.file, here.frame.typevars, None, ())
            )
            if entry.kind == "struct":
                return struct
            return StructValue(struct, tuple(global_value(here, part) for part in entry.value[1]))
        case "stub":
            return _stub(entry.value)
        case "typevar":
            if entry.value not in here.frame.typevars and here.frame.program.unknown:
                raise Cascade
            if entry.value not in here.frame.typevars:
                raise here.error(
                    "EK0101",
                    f"the type variable '{entry.value}' has no dtype here: the signature does not use it",
                    hint=did_you_mean(entry.value, here.frame.typevars)
                    or f'use it in a tensor\'s annotation, as in InputTensor[{entry.value}, "n"]',
                )
            return here.frame.typevars[entry.value]
        case "marker":
            return Marker(entry.value)
        case "class":
            members = {name: global_value(here, item) for name, item in entry.value[1]}
            return ClassValue(entry.value[0], members)
        case "constant" if isinstance(entry.value, tuple):
            return tuple(global_value(here, item) for item in entry.value)
    return entry.value
