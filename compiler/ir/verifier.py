"""Checks a typed program: every value made once and before it is used, every operation as its record says.

A violation is a fault of the compiler, never of the author. Runs after inference and between passes.

See also `opcodes` (what the rules are).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import DType
from .opcodes import LAUNCH, OPCODES
from .program import Op, PointerType, Program, ProgramFunction, Region, RegionForm, Site, TypeKind, Value

_BODY = RegionForm()


def verify_program(program: Program) -> None:
    """Raises InternalError at the first violation, with the author's place."""
    for function in program.functions:
        _Verifier(function, program.sites).run()


class _Verifier:
    def __init__(self, function: ProgramFunction, sites: Sequence[Site]) -> None:
        self.function = function
        self.sites = sites
        self.known = {id(p) for p in function.params}  # the values that are made so far, here and around
        self.around: list[Op] = []  # the operations whose regions these are

    def run(self) -> None:
        self.region(self.function.body, _BODY)

    def fail(self, op: Op, problem: str) -> InternalError:
        return InternalError(f"typed program: {op.name}: {problem}", place=op.location.place, code="EK0904")

    def region(self, region: Region, form: RegionForm) -> None:
        """What stands in a region; its values are unknown behind it."""
        inner = self.define(region.args)
        last = len(region.ops) - 1
        for number, op in enumerate(region.ops):
            if op.opcode.ends is not (number == last):
                raise self.fail(op, f"a region has one {form.ends}, at its end")
            self.op(op)
            inner += self.define(op.results, op)
        if last < 0 or region.ops[last].name != form.ends:
            around = self.around[-1].location.place if self.around else None
            raise InternalError(f"typed program: a region without its {form.ends}", place=around, code="EK0904")
        self.known.difference_update(inner)

    def define(self, values: Sequence[Value], op: Op | None = None) -> list[int]:
        """Makes values known, as arguments of a region or as what an operation gives."""
        made: list[int] = []
        known = self.known
        for value in values:
            key = id(value)
            if key in known or value.maker is not op:
                place = op.location.place if op is not None else None
                raise InternalError(f"typed program: {value!r} is made twice", place=place, code="EK0904")
            known.add(key)
            made.append(key)
        return made

    def op(self, op: Op) -> None:
        opcode = op.opcode
        known = self.known
        for value in op.operands:
            if id(value) not in known and not (self.function.launched and value.const is not None):
                raise self.fail(op, f"uses {value!r} before it is made")
        if OPCODES.get(opcode.name) is not opcode:
            raise self.fail(op, "is not an operation")
        problem = _values(op.operands, opcode.operands, opcode.more, "takes")
        problem = problem or (None if opcode.gives_more else _values(op.results, opcode.results, None, "gives"))
        problem = problem or self.attributes(op) or self.surroundings(op)
        problem = problem or self.regions(op) or (opcode.rule(op) if opcode.rule else None)
        if problem:
            raise self.fail(op, problem)

    def attributes(self, op: Op) -> str | None:
        known = op.opcode.attrs
        for name, value in op.attrs.items():
            if name not in known:
                return f"has no attribute {name}"
            if not known[name].takes(value):
                return f"its attribute {name} cannot be {value!r}"
        if len(op.attrs) < len(known):
            missing = [name for name, attribute in known.items() if attribute.required and name not in op.attrs]
            if missing:
                return f"lacks the attribute {missing[0]}"
        return self.site(op) if "site" in known else None

    def site(self, op: Op) -> str | None:
        """What is shown has to be what the site has places for."""
        number = op.attrs["site"]
        if number >= len(self.sites):
            return f"there is no site {number}"
        wanted = self.sites[number].dtypes
        shown = op.operands[len(op.opcode.operands) :]
        dtypes = [DType.uint64 if isinstance(value.type, PointerType) else value.dtype for value in shown]
        values = {number: dtype.name for number, dtype in enumerate(dtypes)}
        return None if values == wanted else f"its site shows {wanted}, not {values}"

    def surroundings(self, op: Op) -> str | None:
        within = op.opcode.within
        launched = self.function.launched is not None and within == LAUNCH.name
        if within and not launched and all(other.name != within for other in self.around):
            return f"stands outside of any {within}"
        if op.opcode.spreads and any(other.opcode.spreads for other in self.around):
            return "stands within what runs on threads of its own already"
        return None

    def regions(self, op: Op) -> str | None:
        forms = op.opcode.regions
        if len(op.regions) != len(forms):
            return f"has {len(forms)} regions, not {len(op.regions)}"
        if not forms:
            return None
        self.around.append(op)
        for region, form in zip(op.regions, forms, strict=True):
            args = region.args[: len(form.args)] if form.carries else region.args
            problem = _values(args, form.args, None, "its region takes")
            if problem:
                return problem
            self.region(region, form)
        self.around.pop()
        return None


def _values(values: Sequence[Value], kinds: Sequence[TypeKind], more: TypeKind | None, verb: str) -> str | None:
    """What is wrong with operands, results or arguments; None when they are of these kinds."""
    count = len(kinds)
    if len(values) != count and (more is None or len(values) < count):
        return f"{verb} {count}{' or more' if more else ''} values, not {len(values)}"
    for number, (value, kind) in enumerate(zip(values, kinds, strict=False)):
        if not kind.takes(value.type):
            return f"{verb} {kind.words} as number {number}, not {value.type}"
    if more is not None:
        for number in range(count, len(values)):
            if not more.takes(values[number].type):
                return f"{verb} {more.words} as number {number}, not {values[number].type}"
    return None
