"""Writes threads of a simulated device whose use of memory is checked: each access is told before it is made.

    %v = load %x, %i        =>    %u = access(state, thread, address of x[i], 4, READ, site)      0 if it was written
    %w = add %v, %one             %v = load …;  %w = add …                                        as unknown as %v
    if %w < %n                    if %u != 0: use(state, thread, %u, site)

What is read where nobody wrote may be copied and computed with; it is reported where it decides a branch, is an
address, is given to other threads, or is stored outside of shared memory.

Input: a program of threads. Output: lines. Non-goals: what is found (see `codegen.shadow_memory`); a thread's own
storage; elements that share bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...dsl.contract.checking import CheckState, What
from ..ir.opcodes import (
    ATOMIC,
    ATOMIC_COMPARE_EXCHANGE,
    ATOMIC_LOAD,
    ATOMIC_STORE,
    COPY_ASYNC,
    COPY_COMMIT,
    COPY_WAIT,
    FENCE,
    FOR,
    GATHER,
    IF,
    LOAD,
    MASKED_LOAD,
    MASKED_STORE,
    SCATTER,
    SELECT,
    STORE,
)
from ..ir.program import Op, PointerType, Value
from ..ir.simulation import offset
from .types import mlir_type
from .writer import FunctionWriter, ModuleWriter

# The numbers of the operands that are the pointer, the offset or offsets, the mask, and what is stored.
_ACCESSES = {
    LOAD: (0, 1, None, None, What.READ),
    STORE: (1, 2, None, 0, What.WRITE),
    MASKED_LOAD: (0, 1, 2, None, What.READ),
    MASKED_STORE: (1, 2, 3, 0, What.WRITE),
    GATHER: (0, 1, 2, None, What.READ),
    SCATTER: (1, 2, 3, 0, What.WRITE),
    ATOMIC: (1, 2, None, 0, What.READ | What.WRITE | What.ATOMIC),
    ATOMIC_COMPARE_EXCHANGE: (2, 3, None, None, What.READ | What.WRITE | What.ATOMIC),
    ATOMIC_LOAD: (0, 1, None, None, What.READ | What.ATOMIC),
    ATOMIC_STORE: (1, 2, None, 0, What.WRITE | What.ATOMIC),
}
_ORDERS = {
    "relaxed": What(0),
    "acquire": What.ACQUIRE,
    "release": What.RELEASE,
    "acq_rel": What.ACQUIRE | What.RELEASE,
    "seq_cst": What.ACQUIRE | What.RELEASE,
}


def _order_of(op: Op) -> What:
    """What an atomic operation, or a fence, says of order, and for whom."""
    return _ORDERS[op.attrs["ordering"]] | (What.NARROW if op.attrs.get("scope") == "block" else What(0))


class Watched(FunctionWriter):
    """Writes the function of a thread."""

    def __init__(self, module: ModuleWriter) -> None:
        super().__init__(module)
        self.unknown: dict[int, str] = {}  # by serial: the i64 that says who wrote nothing of what a value is made of

    def operation(self, op: Op) -> None:
        self.at = self.module.location(op.location)
        access = _ACCESSES.get(op.opcode)
        if access is not None:
            self._watch(op, *access)
        elif op.opcode is COPY_ASYNC:
            self._watch_copy(op)
        elif op.opcode is FENCE:
            self._watch_fence(op)
        elif op.opcode is COPY_COMMIT:
            self._tell_thread("commit", [])
        elif op.opcode is COPY_WAIT:
            everything = op.attrs["what"] == "copy"
            pending = self.op(f"arith.constant {-1 if everything else op.attrs['pending']} : i64")
            self._tell_thread("wait", [pending])
        elif (
            op.opcode is IF
            or op.opcode is FOR
            or op.opcode.ends
            or op.opcode.waits
            or op.opcode.reports
            or not op.opcode.is_pure
            or any(isinstance(value.type, PointerType) for value in op.results)
        ):
            self._use(op, op.operands)
        else:
            self._pass_on(op)
        super().operation(op)

    # accesses

    def _watch(
        self, op: Op, pointer: int, index: int, mask: int | None, stored: int | None, what: What
    ) -> None:  # fmt: skip
        address, places = op.operands[pointer], op.operands[index]
        assert isinstance(address.type, PointerType)
        self._use(op, [places, *([] if mask is None else [op.operands[mask]])])
        value = op.operands[stored] if stored is not None else None
        if address.type.space == "stack" or address.dtype.is_packed():
            self._use(op, [value] if value is not None else [])
            return
        if what & What.ATOMIC:
            what |= _order_of(op)
        site = self.module.access(op, address.type.space)
        bits = self.op(f"arith.constant {int(what)} : i64")
        if value is not None and value.serial in self.unknown:
            if address.type.space == "shared" and not what & What.ATOMIC:
                bits = self._or_unknown(bits, self.unknown[value.serial])
            else:
                self._use(op, [value])
        moved = value if value is not None else op.results[0]
        found = self._tell(address, places, None if mask is None else op.operands[mask], moved, bits, site)
        if what & What.READ and not what & What.ATOMIC and found:
            self.unknown[op.results[0].serial] = found

    def _watch_fence(self, op: Op) -> None:
        """A fence is an access to nothing."""
        nowhere = self.op("arith.constant 0 : i64")
        bits = self.op(f"arith.constant {int(_order_of(op))} : i64")
        self._call(nowhere, nowhere, 1, 0, bits, self.module.access(op, "fence"))

    def _watch_copy(self, op: Op) -> None:
        """A copy reads what it is allowed to, and writes as many elements."""
        to, at, source, first, allowed = op.operands
        self._use(op, [at, first, allowed])
        size = max(1, to.dtype.bits // 8)
        count = size * op.attrs["count"]

        def told(pointer: Value, index: Value, bits: str, mask: Value | None) -> str:
            assert isinstance(pointer.type, PointerType)
            base = self.op(f"llvm.ptrtoint {self.name(pointer)} : {self.type(pointer.type)} to i64")
            site = self.module.access(op, pointer.type.space)
            return self._masked(base, self.name(index), size, bits, site, mask, 0, count)

        reads, writes = (self.op(f"arith.constant {int(what)} : i64") for what in (What.READ, What.WRITE))
        found = told(source, first, reads, None if allowed.const is True else allowed)
        base = self.op(f"llvm.ptrtoint {self.name(to)} : {self.type(to.type)} to i64")
        site, bits = self.module.access(op, "shared"), self._or_unknown(writes, found)
        self._call(base, self.name(at), size, count, bits, site, "copy")

    def _tell_thread(self, function: str, numbers: list[str]) -> None:
        """Calls a function of the checks that takes the thread and numbers."""
        found = self.op(f"llvm.load {self.field('%checks', offset(CheckState, function))} : !llvm.ptr -> !llvm.ptr")
        types = ", ".join(["!llvm.ptr", "!llvm.ptr", *("i64" for _ in numbers)])
        self.line(f"llvm.call {found}({', '.join(['%checks', '%thread', *numbers])}) : !llvm.ptr, ({types}) -> ()")

    def _or_unknown(self, bits: str, unknown: str) -> str:
        zero = self.op("arith.constant 0 : i64")
        flag = self.op(f"arith.constant {int(What.UNKNOWN)} : i64")
        some = self.op(f"arith.cmpi ne, {unknown}, {zero} : i64")
        return self.op(f"arith.ori {bits}, {self.op(f'arith.select {some}, {flag}, {zero} : i64')} : i64")

    def _tell(self, pointer: Value, index: Value, mask: Value | None, moved: Value, bits: str, site: int) -> str:
        """Tells of an access, lane by lane where lanes go to places of their own; who wrote nothing of what is read."""
        base = self.op(f"llvm.ptrtoint {self.name(pointer)} : {self.type(pointer.type)} to i64")
        size = max(1, pointer.dtype.bits // 8)
        width = moved.simd.width
        if mask is None and index.simd.width == 1:
            return self._call(base, self.name(index), size, size * width, bits, site)
        found = ""
        for lane in range(width):
            at = self._lane(index, lane, width)
            here = self._masked(base, at, size, bits, site, mask, lane)
            found = self.op(f"arith.maxui {found}, {here} : i64") if found else here
        return found

    def _lane(self, index: Value, lane: int, width: int) -> str:
        """Where a lane goes to, as an i64."""
        type = mlir_type(index.simd)
        if index.simd.width == 1:
            return self.op(f"arith.addi {self.name(index)}, {self.op(f'arith.constant {lane} : i64')} : i64")
        one = self.op(f"vector.extract {self.name(index)}[{lane}] : {type.split('x')[-1][:-1]} from {type}")
        return one if index.dtype.bits == 64 else self.op(f"arith.extsi {one} : i32 to i64")

    def _masked(
        self, base: str, at: str, size: int, bits: str, site: int, mask: Value | None, lane: int, count: int = 0
    ) -> str:
        """Tells of an access to `count` bytes, or to an element, if its lane of the mask says so."""
        count = count or size
        if mask is None:
            return self._call(base, at, size, count, bits, site)
        flag = self.name(mask)
        if mask.simd.width > 1:
            flag = self.op(f"vector.extract {flag}[{lane}] : i1 from {mlir_type(mask.simd)}")
        here = self.names.fresh()
        zero = self.op("arith.constant 0 : i64")
        where, self.at = self.at, ""
        self.open(f"{here} = scf.if {flag} -> (i64) {{")
        with self.nested():
            self.line(f"scf.yield {self._call(base, at, size, count, bits, site)} : i64")
        self.open("} else {")
        with self.nested():
            self.line(f"scf.yield {zero} : i64")
        self.close()
        self.at = where
        return here

    def _call(self, base: str, at: str, size: int, count: int, bits: str, site: int, name: str = "access") -> str:
        """The call of `access`, or of `copy`; its result."""
        scale = self.op(f"arith.constant {size} : i64")
        address = self.op(f"arith.addi {base}, {self.op(f'arith.muli {at}, {scale} : i64')} : i64")
        numbers = [self.op(f"arith.constant {number} : i64") for number in (count, site)]
        function = self.op(f"llvm.load {self.field('%checks', offset(CheckState, name))} : !llvm.ptr -> !llvm.ptr")
        arguments = f"%checks, %thread, {address}, {numbers[0]}, {bits}, {numbers[1]}"
        types = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64, i64, i64) -> i64"
        return self.op(f"llvm.call {function}({arguments}) : {types}")

    # what is read where nobody wrote

    def _pass_on(self, op: Op) -> None:
        """What is computed is as unknown as what it is computed of; of a choice, what is chosen."""
        names = [self.unknown[value.serial] for value in op.operands if value.serial in self.unknown]
        if not names or not op.results:
            return
        if op.opcode is SELECT and op.operands[0].simd.width == 1:
            condition, *sides = op.operands
            zero = self.op("arith.constant 0 : i64")
            a, b = (self.unknown.get(value.serial, zero) for value in sides)
            chosen = self.op(f"arith.select {self.name(condition)}, {a}, {b} : i64")
            names = [chosen, *([self.unknown[condition.serial]] if condition.serial in self.unknown else [])]
        worst = self._worst(names)
        for result in op.results:
            self.unknown[result.serial] = worst

    def _worst(self, names: Sequence[str]) -> str:
        worst, *others = names
        for name in others:
            worst = self.op(f"arith.maxui {worst}, {name} : i64")
        return worst

    def _use(self, op: Op, values: Iterable[Value]) -> None:
        """Reports where what an operation depends on is unknown."""
        names = list(dict.fromkeys(self.unknown[value.serial] for value in values if value.serial in self.unknown))
        if not names:
            return
        worst = self._worst(names)
        zero = self.op("arith.constant 0 : i64")
        some = self.op(f"arith.cmpi ne, {worst}, {zero} : i64")
        site = self.module.access(op, "used")
        where, self.at = self.at, ""
        self.open(f"scf.if {some} {{")
        with self.nested():
            at = self.field("%checks", offset(CheckState, "use"))
            function = self.op(f"llvm.load {at} : !llvm.ptr -> !llvm.ptr")
            number = self.op(f"arith.constant {site} : i64")
            types = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64) -> ()"
            self.line(f"llvm.call {function}(%checks, %thread, {worst}, {number}) : {types}")
        self.close()
        self.at = where
