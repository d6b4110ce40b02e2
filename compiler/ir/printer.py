"""The typed program as text, for people and for tests.

func group_0(%b0: Pointer[float32, global], %d0: Int64) {
  parallel %d0 grain 2048 (%1, %2) {            # addition.py:11
    ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...dsl.contract.unit import Slot, Step, WhileStep
from ...dsl.diagnostics.places import shown_path
from .opcodes import CONST
from .program import Location, Op, Program, ProgramFunction, Region, Value

Line = tuple[str, Location | None]  # a line of the text, and where it comes from


def print_program(program: Program, *, schedule: bool = False) -> str:
    """Every function, then the order in which the entry calls them, then the sites; each line with its place.

    With the `schedule`, each operation is shown with what passes have decided about it.
    """
    parts = []
    for text, location in program_lines(program, schedule=schedule):
        where = f"  # {shown_path(location.place.file)}:{location.place.line}" if location is not None else ""
        parts.append(text.ljust(72 if where else 0) + where + "\n")
    return "".join(parts)


def program_lines(program: Program, *, schedule: bool = False) -> list[Line]:
    """The same line by line, with what the lines come from apart."""
    lines: list[Line] = []
    for function in program.functions:
        lines += _Printer(schedule).function(function)
    for stage in range(len(program.stages) + 1):
        lines += [(f"stage {stage}", None)] if stage else []
        lines += [(text, None) for text in _steps(program, program.stage(stage), "")]
    for index, site in enumerate(program.sites):
        shown = "".join(p if isinstance(p, str) else f"{{{p[1]}{':' + p[0] if p[0] else ''}}}" for p in site.parts)
        lines.append((f"site {index}: {site.kind} {shown!r} at {site.place}", None))
    return lines


def _steps(program: Program, steps: Iterable[Step], indent: str) -> Iterator[str]:
    """When the entry calls what, a line a call."""
    for step in steps:
        if isinstance(step, int):
            number, buffers, sizes = program.calls[step]
            args = [f"buffer {b}" for b in buffers]
            args += [f"dim {n.index}" if isinstance(n, Slot) else str(n) for n in sizes]
            yield f"{indent}call {program.functions[number].name}({', '.join(args)})"
            continue
        is_loop = isinstance(step, WhileStep)
        first, second = (step.predicate, step.body) if isinstance(step, WhileStep) else (step.then, step.otherwise)
        yield f"{indent}{'while {' if is_loop else f'if buffer {step.condition} {{'}"
        yield from _steps(program, first, f"{indent}  ")
        yield f"{indent}}} {f'buffer {step.condition} do' if is_loop else 'else'} {{"
        yield from _steps(program, second, f"{indent}  ")
        for one, other in step.swaps if isinstance(step, WhileStep) else ():
            yield f"{indent}  swap buffer {one}, buffer {other}"
        yield f"{indent}}}"


class _Printer:
    def __init__(self, schedule: bool) -> None:
        self.schedule = schedule
        self.names: dict[int, str] = {}
        self.lines: list[Line] = []

    def name(self, value: Value) -> str:
        if id(value) not in self.names:
            if value.const is not None:
                return str(value.const)
            self.names[id(value)] = f"%{value.name or len(self.names)}"
        return self.names[id(value)]

    def function(self, function: ProgramFunction) -> list[Line]:
        params = ", ".join(f"{self.name(p)}: {p.type}" for p in function.params)
        known = function.launched
        block = f" block {', '.join(map(str, known.block))}" if known else ""
        kind = "kernel" if known else "func"
        self.lines.append((f"{kind} {function.name}({params}){block} {{", known.location if known else None))
        self.region(function.body, "  ")
        self.lines.append(("}", None))
        return self.lines

    def region(self, region: Region, indent: str) -> None:
        for op in region.ops:
            if op.opcode is CONST and op.results[0].const is not None:
                continue  # shown where it is used
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        results = ", ".join(self.name(r) for r in op.results)
        types = ", ".join(str(r.type) for r in op.results)
        operands = ", ".join(self.name(v) for v in op.operands)
        known = op.opcode.attrs
        attrs = {k: v for k, v in op.attrs.items() if known[k].shown and (self.schedule or not known[k].decided)}
        shown = ", ".join(
            f"{k}={','.join(sorted(v)) if isinstance(v, frozenset) else v}" for k, v in sorted(attrs.items())
        )
        text = f"{results} = " if results else ""
        text += op.name + (f" {operands}" if operands else "") + (f" {{{shown}}}" if shown else "")
        text += f" : {types}" if types else ""
        if not op.regions:
            self.lines.append((f"{indent}{text}", op.location))
            return
        for number, region in enumerate(op.regions):
            arguments = ", ".join(f"{self.name(a)}: {a.type}" for a in region.args)
            head = text if number == 0 else "} else"
            head += (f" ({arguments})" if arguments else "") + " {"
            self.lines.append((f"{indent}{head}", op.location if number == 0 else None))
            self.region(region, indent + "  ")
        self.lines.append((f"{indent}}}", None))
