"""Checks a typed program: every value made before it is used, every operation with the operands that it takes.

A violation is a fault of the compiler, never of the author. Run after inference, before emission.
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from .operations import ROWS
from .program import IRREGULAR, Function, Op, PointerType, Program, Region

# How each structured region has to end.
_TERMINATORS = {"while": ("condition", "yield")}


def verify_program(program: Program) -> None:
    """Raises InternalError at the first violation, with the author's place."""
    for function in program.functions:
        _Verifier(function).run()


class _Verifier:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.known = {id(p) for p in function.params}  # the values that are made so far, here and around

    def run(self) -> None:
        self.region(self.function.body, "yield")

    def fail(self, op: Op, problem: str) -> InternalError:
        return InternalError(f"typed program: {op.name}: {problem}", place=op.location.place, code="EK0904")

    def region(self, region: Region, terminator: str) -> None:
        inner = {id(a) for a in region.args}
        self.known |= inner
        for number, op in enumerate(region.ops):
            last = number == len(region.ops) - 1
            if (op.name in ("yield", "condition")) != last or (last and op.name != terminator):
                raise self.fail(op, f"a region ends in {terminator}")
            self.op(op)
            results = [id(r) for r in op.results]
            inner.update(results)
            self.known.update(results)
        if not region.ops:
            raise InternalError("typed program: a region without an end", code="EK0904")
        self.known -= inner

    def op(self, op: Op) -> None:
        for value in op.operands:
            if id(value) not in self.known:
                raise self.fail(op, f"uses {value!r} before it is made")
        if op.name in ROWS:
            self.row(op)
        elif op.name not in IRREGULAR:
            raise self.fail(op, "is no operation")
        elif op.name in _CHECKS:
            problem = _CHECKS[op.name](op)
            if problem:
                raise self.fail(op, problem)
        for number, region in enumerate(op.regions):
            self.region(region, _TERMINATORS.get(op.name, ("yield", "yield"))[number])

    def row(self, op: Op) -> None:
        row = ROWS[op.name]
        types = {v.type for v in op.operands}
        type = op.operands[0].type
        if len(op.operands) != row.arity or len(types) != 1 or not isinstance(type, SIMDType):
            raise self.fail(op, f"takes {row.arity} operands of one type, not {[str(v.type) for v in op.operands]}")
        if not row.takes(type.dtype) or row.in_library(type.dtype):
            raise self.fail(op, f"does not work on {type}")
        wanted = type if row.result == "same" else type.with_dtype(DType.bool)
        if op.results[0].type != wanted:
            raise self.fail(op, f"gives {wanted}, not {op.results[0].type}")


def _load(op: Op) -> str | None:
    pointer, offset = op.operands
    if not isinstance(pointer.type, PointerType) or offset.type != INT:
        return "takes a pointer and an Int"
    return None if op.results[0].dtype is pointer.dtype else "gives another dtype than its pointer has"


def _store(op: Op) -> str | None:
    value, pointer, offset = op.operands
    if not isinstance(pointer.type, PointerType) or offset.type != INT:
        return "takes a value, a pointer and an Int"
    return None if value.dtype is pointer.dtype else "stores another dtype than its pointer has"


def _store_pair(op: Op) -> str | None:
    first, second, pointer, offset = op.operands
    if not isinstance(pointer.type, PointerType) or offset.type != INT:
        return "takes two values, a pointer and an Int"
    fits = first.type == second.type == SIMDType(pointer.dtype) and pointer.dtype.is_packed()
    return None if fits else "stores other types than its pointer has"


def _if(op: Op) -> str | None:
    if op.operands[0].type != BOOL:
        return "takes a Bool"
    for region in op.regions:
        if [v.type for v in region.ops[-1].operands] != [r.type for r in op.results]:
            return "its arms yield other types than it gives"
    return None


def _for(op: Op) -> str | None:
    if any(v.type != INT for v in op.operands[:3]):
        return "takes Ints as bounds"
    carried = [v.type for v in op.operands[3:]]
    region = op.regions[0]
    ends = [v.type for v in region.ops[-1].operands] if region.ops else []
    if not (carried == [a.type for a in region.args[1:]] == [r.type for r in op.results] == ends):
        return "what goes round changes its type"
    return None


def _same_type(op: Op) -> str | None:
    condition, a, b = op.operands
    return None if a.type == b.type == op.results[0].type and condition.dtype is DType.bool else "types differ"


_CHECKS = {
    "load": _load,
    "store": _store,
    "store_pair": _store_pair,
    "atomic": _store,
    "atomic_load": _load,
    "atomic_store": _store,
    "if": _if,
    "for": _for,
    "select": _same_type,
}
