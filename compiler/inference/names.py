"""What the names of a module mean in a kernel: the entries of a program's table of globals as values.

Input: an entry. Output: a value of the evaluator. Non-goals: how the table is made (see `dsl.frontend.python.collect`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...dsl.diagnostics.errors import did_you_mean
from ...dsl.frontend import syntax
from ...dsl.frontend.program import GlobalEntry
from .evaluator import Evaluator
from .recovery import Cascade
from .values.compile_time import ClassValue, Closure, Frame, LibraryRef, Marker, StructType, StructValue, StubRef


@dataclass(frozen=True, eq=False)
class ClassMethod:
    """A function of a class that is given the class first."""

    closure: Closure


def global_value(evaluator: Evaluator, entry: GlobalEntry, frame: Frame, node: syntax.Node) -> Any:
    """The value of an entry of the program's table of globals."""
    match entry.kind:
        case "function" | "library" | "classmethod":
            index = entry.value[1] if entry.kind == "library" else entry.value
            source = frame.program.functions[index]
            home = Frame({}, frame.program, source.file, frame.typevars, None, ())
            closure = Closure(source.syntax, home)
            if entry.kind == "classmethod":
                return ClassMethod(closure)
            return closure if entry.kind == "function" else LibraryRef(entry.value[0], closure)
        case "struct" | "instance":
            source = frame.program.functions[entry.value if entry.kind == "struct" else entry.value[0]]
            struct = StructType(source.syntax, Frame({}, frame.program, source.file, frame.typevars, None, ()))
            if entry.kind == "struct":
                return struct
            return StructValue(struct, tuple(global_value(evaluator, part, frame, node) for part in entry.value[1]))
        case "stub":
            return StubRef(entry.value)
        case "typevar":
            if entry.value not in frame.typevars and frame.program.unknown:
                raise Cascade
            if entry.value not in frame.typevars:
                raise evaluator.error(
                    "EK0101",
                    f"the type variable '{entry.value}' has no dtype here: the signature does not use it",
                    node,
                    frame,
                    hint=did_you_mean(entry.value, frame.typevars)
                    or f'use it in a tensor\'s annotation, as in InputTensor[{entry.value}, "n"]',
                )
            return frame.typevars[entry.value]
        case "marker":
            return Marker(entry.value)
        case "class":
            members = {name: global_value(evaluator, item, frame, node) for name, item in entry.value[1]}
            return ClassValue(entry.value[0], members)
        case "constant" if isinstance(entry.value, tuple):
            return tuple(global_value(evaluator, item, frame, node) for item in entry.value)
    return entry.value
