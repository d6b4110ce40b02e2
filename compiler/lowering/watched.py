"""Writes threads of a simulated device whose memory accesses are checked: each access is reported before it is made.

    %v = load %x, %i        =>    %u = access(state, thread, address of x[i], 4, READ, site)      0 if it was written
    %w = add %v, %one             %v = load …;  %w = add …                                        as unknown as %v
    if %w < %n                    if %u != 0: use(state, thread, %u, site)

A thread's own storage is private: a mask next to it holds which elements are initialised, and only errors are
reported. Of elements that share bytes, the byte and its half are reported.

See also `simulation.shadow_memory` (the findings), `lowering.watched_values` (uninitialised values in computations).
"""

from __future__ import annotations

from ...dsl.contract.checking import CheckState, What
from ...dsl.diagnostics.dataclass import dataclass
from ..ir.copy_opcodes import COPY_ASYNC, COPY_COMMIT, COPY_WAIT
from ..ir.native_opcodes import CONSTANT_TABLE
from ..ir.opcodes import (
    ALLOCA,
    ATOMIC,
    ATOMIC_COMPARE_EXCHANGE,
    ATOMIC_LOAD,
    ATOMIC_STORE,
    FENCE,
    FOR,
    GATHER,
    IF,
    LOAD,
    MASKED_LOAD,
    MASKED_STORE,
    OFFSET,
    PEER,
    SCATTER,
    STORE,
    STORE_PAIR,
    UNIFORM,
    WHILE,
)
from ..ir.program import Op, PointerType, Value
from ..ir.simulation import offset
from .types import mlir_type
from .watched_values import WatchedValues
from .writer import ModuleWriter

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

_SCOPES = {"block": What.NARROW | What.IN_BLOCK, "cluster": What.NARROW}


def _order_of(op: Op) -> What:
    """What an atomic operation, or a fence, means for ordering, and its scope."""
    return _ORDERS[op.attrs["ordering"]] | _SCOPES.get(op.attrs.get("scope", ""), What(0))


def _is_exchange(address: Value) -> bool:
    """Whether an address lies in storage by which the compiler exchanges values."""
    while address.maker is not None and address.maker.opcode is OFFSET:
        address = address.maker.operands[0]
    return address.maker is not None and bool(address.maker.attrs.get("exchange"))


MOST_OWN = 1 << 14  # elements of a thread's own storage that is watched


@dataclass(frozen=True)
class _Own:
    """A thread's own storage: what is known of each element (an i64, -1 if uninitialised), how many there are, and
    from which on a pointer points; empty for the first."""

    known: str
    count: int
    start: str = ""


class Watched(WatchedValues):
    """Writes the function of a thread."""

    def __init__(self, module: ModuleWriter) -> None:
        super().__init__(module)
        self.own: dict[int, _Own] = {}  # by serial of a pointer

    def operation(self, op: Op) -> None:
        self.at = self.module.location(op.location)
        self.begin(op)
        access = _ACCESSES.get(op.opcode)
        if access is not None:
            self._watch(op, *access)
            return
        if op.opcode is COPY_ASYNC:
            self._watch_copy(op)
        elif op.opcode is STORE_PAIR:
            self._watch_pair(op)
        elif op.opcode is FENCE:
            self._watch_fence(op)
        elif op.opcode is COPY_COMMIT:
            self.report_thread("commit", [])
        elif op.opcode is COPY_WAIT:
            everything = op.attrs["what"] == "copy"
            pending = self.op(f"arith.constant {-1 if everything else op.attrs['pending']} : i64")
            self.report_thread("wait", [pending])
        elif op.opcode is PEER:
            self.use(op, op.operands)
            self._watch_peer(op)
        elif op.opcode is UNIFORM:
            self.promise(op)
            self.pass_on(op)
        elif (
            op.opcode is IF
            or op.opcode is FOR
            or op.opcode.ends
            or op.opcode.waits
            or op.opcode.reports
            or not op.opcode.is_pure
            or any(isinstance(value.type, PointerType) for value in op.results)
        ):
            self.use(op, op.operands if op.opcode is not FOR else op.operands[:3])
        else:
            self.pass_on(op)
        if op.opcode in (IF, FOR, WHILE):
            self.structured(op)
            return
        super().operation(op)
        if op.opcode is ALLOCA or op.opcode is OFFSET:
            self._own_storage(op)

    # accesses

    def _watch(
        self, op: Op, pointer: int, index: int, mask: int | None, stored: int | None, what: What
    ) -> None:  # fmt: skip
        address, places = op.operands[pointer], op.operands[index]
        assert isinstance(address.type, PointerType)
        if address.maker is not None and address.maker.opcode is CONSTANT_TABLE:
            super().operation(op)
            return
        self.use(op, [places, *([] if mask is None else [op.operands[mask]])])
        value = op.operands[stored] if stored is not None else None
        moved = value if value is not None else op.results[0]
        allowed = None if mask is None else op.operands[mask]
        if address.type.space == "stack":
            self._watch_own(op, address, places, allowed, value, what)
            return
        if what & What.ATOMIC:
            what |= _order_of(op)
        what |= What.EXCHANGE if _is_exchange(address) else What(0)
        space = "shared" if address.type.space == "cluster" else address.type.space
        site = self.module.access(op, space)
        bits = self.op(f"arith.constant {int(what)} : i64")
        if value is not None and value.serial in self.unknown:
            if space == "shared" and not what & What.ATOMIC:
                bits = self._or_unknown(bits, self.unknown[value.serial])
            else:
                self.use(op, [value])
        self._report_alignment(op, address, places, allowed, what, site)
        result = self._report(address, places, allowed, moved, bits, site)
        if what & What.READ and not what & What.ATOMIC and result:
            self.unknown[op.results[0].serial] = result
        super().operation(op)

    def _watch_peer(self, op: Op) -> None:
        """Another block of the cluster, which has to be there."""
        rank, count = self.name(op.operands[1]), self.op(f"arith.constant {op.attrs['blocks']} : i64")
        beyond = self.op(f"arith.cmpi uge, {rank}, {count} : i64")
        self._report_outside(beyond, rank, count, What.READ, self.module.access(op, "peer"))

    def _watch_pair(self, op: Op) -> None:
        """Two elements that fill a byte."""
        _, _, address, place = op.operands
        assert isinstance(address.type, PointerType)
        self.use(op, op.operands)
        if address.type.space != "stack":
            base = self.op(f"llvm.ptrtoint {self.name(address)} : {self.type(address.type)} to i64")
            bits = self.op(f"arith.constant {int(What.WRITE)} : i64")
            self._call(base, self.name(place), 1, 1, bits, self.module.access(op, address.type.space))

    # a thread's own storage

    def _own_storage(self, op: Op) -> None:
        """Storage that is made, or a pointer into it."""
        made = op.results[0]
        if op.opcode is OFFSET:
            own = self.own.get(op.operands[0].serial)
            if own is not None:
                by = self.name(op.operands[1])
                start = self.op(f"arith.addi {own.start}, {by} : i64") if own.start else by
                self.own[made.serial] = _Own(own.known, own.count, start)
            return
        count = op.attrs["count"]
        assert isinstance(made.type, PointerType)
        if made.type.space != "stack" or not 1 <= count <= MOST_OWN:
            return
        known, size = self.storage(8 * count, alignment=8)
        byte = self.op(f"arith.constant {0 if op.attrs['zeroed'] else -1} : i8")
        self.line(f'"llvm.intr.memset"({known}, {byte}, {size}) <{{isVolatile = false}}> : (!llvm.ptr, i8, i64) -> ()')
        self.own[made.serial] = _Own(known, count)

    def _watch_own(
        self, op: Op, address: Value, places: Value, allowed: Value | None, value: Value | None, what: What
    ) -> None:
        """An access to a thread's own storage: within it, and to what was written. It is made within it in any case."""
        own = self.own.get(address.serial)
        if own is None:
            self.use(op, [value] if value is not None else [])
            super().operation(op)
            return
        moved = value if value is not None else op.results[0]
        site = self.module.access(op, "stack")
        stored = None
        if what & What.WRITE:
            stored = (self.unknown.get(value.serial) if value is not None else None) or self.op(
                "arith.constant 0 : i64"
            )
        result, everywhere = "", self.op("arith.constant true")
        for lane in range(moved.simd.width):
            flag = "" if allowed is None else self._flag(allowed, lane)
            at = self._lane(places, lane, moved.simd.width) if moved.simd.width > 1 else self.name(places)
            known, inside = self._element(own, at, flag, what, site)
            everywhere = self.op(f"arith.andi {everywhere}, {inside} : i1")
            if what & What.READ:
                result = self.worst([*([result] if result else []), self._read_own(known, flag, site)])
            if stored is not None:
                before = self.op(f"llvm.load {known} : !llvm.ptr -> i64")
                after = self.op(f"arith.select {flag}, {stored}, {before} : i64") if flag else stored
                self.line(f"llvm.store {after}, {known} : i64, !llvm.ptr")
        if result and not what & What.ATOMIC:
            self.unknown[op.results[0].serial] = result
        self._within(op, own, places, everywhere)

    def _element(self, own: _Own, at: str, flag: str, what: What, site: int) -> tuple[str, str]:
        """Where it is known of an element whether it was written, and whether there is one; else that is reported."""
        place = self.op(f"arith.addi {at}, {own.start} : i64") if own.start else at
        count, zero = (self.op(f"arith.constant {number} : i64") for number in (own.count, 0))
        inside = self.op(f"arith.cmpi ult, {place}, {count} : i64")
        if flag:
            inside = self.op(f"arith.ori {inside}, {self._not(flag)} : i1")
        self._report_outside(self._not(inside), place, count, what, site)
        there = self.op(f"arith.cmpi ult, {place}, {count} : i64")
        safe = self.op(f"arith.select {there}, {place}, {zero} : i64")
        known = self.op(f"llvm.getelementptr {own.known}[{safe}] : (!llvm.ptr, i64) -> !llvm.ptr, i64")
        return known, inside

    def _report_outside(self, beyond: str, place: str, count: str, what: What, site: int) -> None:
        """Reports an access out of bounds, where `beyond` holds."""
        where, self.at = self.at, ""
        self.open(f"scf.if {beyond} {{")
        with self.nested():
            numbers = [self.op(f"arith.constant {number} : i64") for number in (int(what), site)]
            self.report_thread("outside", [place, count, *numbers])
        self.close()
        self.at = where

    def _read_own(self, known: str, flag: str, site: int) -> str:
        """What is known of an element that is read."""
        zero, never, here = (self.op(f"arith.constant {number} : i64") for number in (0, -1, site + 1))
        before = self.op(f"llvm.load {known} : !llvm.ptr -> i64")
        unwritten = self.op(f"arith.cmpi eq, {before}, {never} : i64")
        read = self.op(f"arith.select {unwritten}, {here}, {before} : i64")
        return self.op(f"arith.select {flag}, {read}, {zero} : i64") if flag else read

    def _within(self, op: Op, own: _Own, places: Value, everywhere: str) -> None:
        """The operation itself, at the first element if its own is out of bounds."""
        if places.simd.width > 1:
            super().operation(op)
            return
        zero = self.op("arith.constant 0 : i64")
        first = self.op(f"arith.subi {zero}, {own.start} : i64") if own.start else zero
        names = self.names.names
        before = names.get(id(places))
        names[id(places)] = self.op(f"arith.select {everywhere}, {self.name(places)}, {first} : i64")
        super().operation(op)
        del names[id(places)]
        if before is not None:
            names[id(places)] = before

    def _not(self, flag: str) -> str:
        return self.op(f"arith.xori {flag}, {self.op('arith.constant true')} : i1")

    def _flag(self, mask: Value, lane: int) -> str:
        """The i1 of a lane of a mask."""
        flag = self.name(mask)
        return (
            flag if mask.simd.width == 1 else self.op(f"vector.extract {flag}[{lane}] : i1 from {mlir_type(mask.simd)}")
        )

    # alignment

    def _report_alignment(
        self, op: Op, pointer: Value, index: Value, mask: Value | None, what: What, site: int
    ) -> None:  # fmt: skip
        """Reports an access whose address is not aligned to `align=`, if the mask names any lane."""
        align = op.attrs.get("align", 1)
        size = max(1, pointer.dtype.bits // 8)
        if align <= size or index.simd.width > 1:
            return
        flag = ""
        if mask is not None:
            type = mlir_type(mask.simd)
            flag = self.name(mask)
            if mask.simd.width > 1:
                flag = self.op(f"vector.reduction <or>, {flag} : {type} into i1")
        base = self.op(f"llvm.ptrtoint {self.name(pointer)} : {self.type(pointer.type)} to i64")
        bits = self.op(f"arith.constant {int(what)} : i64")
        self._report_misaligned(base, self.name(index), size, align, flag, bits, site)

    def _report_misaligned(self, base: str, at: str, size: int, align: int, flag: str, bits: str, site: int) -> None:
        """Reports an access, if `flag` is set, whose address is not a multiple of `align` bytes."""
        numbers = [self.op(f"arith.constant {number} : i64") for number in (size, align - 1, 0, align, site)]
        scale, low, zero, wanted, place = numbers
        address = self.op(f"arith.addi {base}, {self.op(f'arith.muli {at}, {scale} : i64')} : i64")
        rest = self.op(f"arith.andi {address}, {low} : i64")
        wrong = self.op(f"arith.cmpi ne, {rest}, {zero} : i64")
        if flag:
            wrong = self.op(f"arith.andi {wrong}, {flag} : i1")
        where, self.at = self.at, ""
        self.open(f"scf.if {wrong} {{")
        with self.nested():
            self.report_thread("misaligned", [address, wanted, bits, place])
        self.close()
        self.at = where

    # memory that others reach

    def _watch_fence(self, op: Op) -> None:
        """A fence is an access to nothing."""
        no_place = self.op("arith.constant 0 : i64")
        bits = self.op(f"arith.constant {int(_order_of(op))} : i64")
        self._call(no_place, no_place, 1, 0, bits, self.module.access(op, "fence"))

    def _watch_copy(self, op: Op) -> None:
        """A copy reads what it is allowed to, and writes as many elements."""
        to, at, source, first, allowed = op.operands
        self.use(op, [at, first, allowed])
        size = max(1, to.dtype.bits // 8)
        count = size * op.attrs["count"]

        def flag(mask: Value | None) -> str:
            return "" if mask is None else self._flag(mask, 0)

        def reported(pointer: Value, index: Value, bits: str, mask: Value | None) -> str:
            assert isinstance(pointer.type, PointerType)
            base = self.op(f"llvm.ptrtoint {self.name(pointer)} : {self.type(pointer.type)} to i64")
            site = self.module.access(op, pointer.type.space)
            self._report_misaligned(base, self.name(index), size, count, flag(mask), bits, site)
            return self._masked(base, self.name(index), size, bits, site, mask, 0, count)

        reads, writes = (self.op(f"arith.constant {int(what)} : i64") for what in (What.READ, What.WRITE))
        result = reported(source, first, reads, None if allowed.const is True else allowed)
        base = self.op(f"llvm.ptrtoint {self.name(to)} : {self.type(to.type)} to i64")
        site, bits = self.module.access(op, "shared"), self._or_unknown(writes, result)
        self._report_misaligned(base, self.name(at), size, count, "", writes, site)
        self._call(base, self.name(at), size, count, bits, site, "copy")

    def _or_unknown(self, bits: str, unknown: str) -> str:
        zero = self.op("arith.constant 0 : i64")
        flag = self.op(f"arith.constant {int(What.UNKNOWN)} : i64")
        some = self.op(f"arith.cmpi ne, {unknown}, {zero} : i64")
        return self.op(f"arith.ori {bits}, {self.op(f'arith.select {some}, {flag}, {zero} : i64')} : i64")

    def _report(self, pointer: Value, index: Value, mask: Value | None, moved: Value, bits: str, site: int) -> str:
        """Reports an access, lane by lane where lanes have addresses of their own; returns the uninitialised part."""
        base = self.op(f"llvm.ptrtoint {self.name(pointer)} : {self.type(pointer.type)} to i64")
        size = max(1, pointer.dtype.bits // 8)
        width = moved.simd.width
        if pointer.dtype.is_packed():
            return self._report_halves(base, index, mask, width, bits, site)
        if mask is None and index.simd.width == 1:
            return self._call(base, self.name(index), size, size * width, bits, site)
        result = ""
        for lane in range(width):
            at = self._lane(index, lane, width)
            here = self._masked(base, at, size, bits, site, mask, lane)
            result = self.op(f"arith.maxui {result}, {here} : i64") if result else here
        return result

    def _report_halves(self, base: str, index: Value, mask: Value | None, width: int, bits: str, site: int) -> str:
        """The same of elements that share bytes: each is a half of one."""
        result = ""
        one, low = (self.op(f"arith.constant {number} : i64") for number in (1, int(What.LOW)))
        for lane in range(width):
            at = self._lane(index, lane, width)
            half = self.op(f"arith.shli {low}, {self.op(f'arith.andi {at}, {one} : i64')} : i64")
            byte, reported = self.op(f"arith.shrsi {at}, {one} : i64"), self.op(f"arith.ori {bits}, {half} : i64")
            here = self._masked(base, byte, 1, reported, site, mask, lane)
            result = self.worst([*([result] if result else []), here])
        return result

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
        """Reports an access to `count` bytes, or to an element, if its lane of the mask says so."""
        count = count or size
        if mask is None:
            return self._call(base, at, size, count, bits, site)
        flag = self._flag(mask, lane)
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
