"""Checks reads of storage under `checks="all"`: every element of it has to be written before it is read.

    p, ok = allocate n  [tracked]          p, ok = allocate n;  f, _ = allocate n  [zeroed, of Bool]
    store v, p, i                =>        store v, p, i;  store True, f, i
    a = load p, j                          assert load f, j;  a = load p, j

Storage whose address goes elsewhere, as in a pointer that a loop carries or that is cast, is left out.

See also `graph.checking.unwritten` (results of ops).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..ir.builder import Builder
from ..ir.native_opcodes import PREFETCH
from ..ir.opcodes import (
    ALIGNED,
    ALLOCA,
    ASSERT,
    ASSUME_ALIGNED,
    ATOMIC,
    ATOMIC_COMPARE_EXCHANGE,
    ATOMIC_LOAD,
    ATOMIC_STORE,
    GATHER,
    LOAD,
    MASKED_LOAD,
    MASKED_STORE,
    NOTE,
    OFFSET,
    SCATTER,
    STORE,
)
from ..ir.program import Op, PointerType, Program, ProgramFunction, Region, Site, Value, walk
from ..ir.storage_opcodes import ALLOCATE
from ..targets import Target

FLAGS = PointerType(DType.bool, "stack")
_ADDRESS_AT = {  # which operand is the address; the offset follows it
    **dict.fromkeys((LOAD, MASKED_LOAD, GATHER, ATOMIC_LOAD), 0),
    **dict.fromkeys((STORE, MASKED_STORE, SCATTER, ATOMIC, ATOMIC_STORE), 1),
    ATOMIC_COMPARE_EXCHANGE: 2,
}
_READS = (LOAD, MASKED_LOAD, GATHER, ATOMIC_LOAD, ATOMIC, ATOMIC_COMPARE_EXCHANGE)
_MASK_AT = {MASKED_LOAD: 2, GATHER: 2, MASKED_STORE: 3, SCATTER: 3}
_NO_ACCESS = (OFFSET, PREFETCH, ALIGNED, ASSUME_ALIGNED, NOTE)


def find_unwritten_storage(program: Program, target: Target) -> None:
    """Adds the checks to every function that has tracked storage."""
    for function in program.functions:
        tracked = [op for op in walk(function.body) if op.attrs.pop("tracked", False)]
        followed = _followed(tracked, walk(function.body))
        if followed:
            _Tracker(program, function, followed).region(function.body)


def _followed(tracked: Iterable[Op], ops: Iterable[Op]) -> set[Value]:
    """The addresses of storage of which every access is seen."""
    roots = {op.results[0]: op.results[0] for op in tracked}
    followed = set(roots)
    for op in ops if roots else ():
        used = [value for value in op.operands if value in roots]
        if op.opcode is OFFSET and used:
            roots[op.results[0]] = roots[used[0]]
        elif op.opcode in _ADDRESS_AT:
            used = [value for k, value in enumerate(op.operands) if value in roots and k != _ADDRESS_AT[op.opcode]]
            followed.difference_update(roots[value] for value in used)
        elif op.opcode not in _NO_ACCESS:
            followed.difference_update(roots[value] for value in used)
    return followed


class _Tracker:
    """The walk through a function that adds flags and checks. `flags` has, for an address, that of its flag."""

    def __init__(self, program: Program, function: ProgramFunction, followed: set[Value]) -> None:
        self.program = program
        self.function = function
        self.followed = followed
        self.builder = Builder(function.bounds)
        self.flags: dict[Value, Value] = {}
        self.names: dict[Value, str] = {}  # of the storage, for messages
        self.allocations: dict[Value, Op] = {}  # by the Bool that says whether there was enough memory

    def region(self, region: Region) -> None:
        ops, region.ops = region.ops, []
        with self.builder.inside(region):
            for op in ops:
                self.builder.location = op.location
                if op.opcode in _READS and self._flag(op) is not None:
                    self._check(op)
                region.ops.append(op)
                self._after(op)
                for inner in op.regions:
                    self.region(inner)

    def _flag(self, op: Op) -> Value | None:
        return self.flags.get(op.operands[_ADDRESS_AT[op.opcode]])

    def _after(self, op: Op) -> None:
        """Makes the flags of new storage, and sets those of elements that the operation writes."""
        builder = self.builder
        if op.opcode is ALLOCA and op.results[0] in self.followed:
            made = builder.one("alloca", [], FLAGS, count=op.attrs["count"], zeroed=True)
            self._know(op.results[0], made, "stack")
        elif op.opcode is ALLOCATE and op.results[0] in self.followed:
            self.allocations[op.results[1]] = op
        elif op.opcode is ASSERT and op.operands[0] in self.allocations:
            storage = self.allocations.pop(op.operands[0])
            made, enough = builder.add("allocate", storage.operands, [FLAGS, BOOL], zeroed=True)
            builder.add("assert", [enough, *op.operands[1:]], site=op.attrs["site"])
            self._know(storage.results[0], made, "scratch")
        elif op.opcode is OFFSET and op.operands[0] in self.flags:
            made = builder.advance(self.flags[op.operands[0]], op.operands[1], "read-write")
            self._know(op.results[0], made, self.names[op.operands[0]])
        elif op.opcode in _ADDRESS_AT and op.opcode.writes and self._flag(op) is not None:
            self._set(op)

    def _know(self, address: Value, flag: Value, name: str) -> None:
        self.flags[address], self.names[address] = flag, name

    def _set(self, op: Op) -> None:
        flag, at = self._flag(op), _ADDRESS_AT[op.opcode]
        assert flag is not None
        value = self.builder.const(True, SIMDType(DType.bool, op.operands[0].simd.width))
        rest = op.operands[at + 1 :]
        name = op.name if op.opcode in _MASK_AT else "store"
        self.builder.add(name, [value, flag, *rest])

    def _check(self, op: Op) -> None:
        """An assert that all elements which the operation reads are written."""
        builder, flag = self.builder, self._flag(op)
        assert flag is not None
        address = op.operands[_ADDRESS_AT[op.opcode]]
        offset = op.operands[_ADDRESS_AT[op.opcode] + 1]
        type = SIMDType(DType.bool, op.results[0].simd.width)
        if op.opcode in _MASK_AT:
            good = builder.one(op.name, [flag, offset, op.operands[2], builder.const(True, type)], type)
        else:
            good = builder.one("load", [flag, offset], type)
        if type.width > 1:
            good = builder.one("reduce", [good], BOOL, row="and_")
        whole = type.width == 1 and address in self.followed
        place, *calls = op.location.author()
        notes = tuple(("called from", at) for at in calls)
        text = tuple(self._text(self.names[address], whole))
        site = Site("unwritten", text, place, self.function.op, (), notes)
        self.program.sites.append(site)
        builder.add("assert", [good, *([offset] if whole else [])], site=len(self.program.sites) - 1)

    @staticmethod
    def _text(name: str, whole: bool) -> Iterator[str | tuple[str, str]]:
        if whole:
            yield from ("position ", ("", "int64"), f" of '{name}' storage is read before it is written")
        else:
            yield f"'{name}' storage is read before it is written"
