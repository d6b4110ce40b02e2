"""Writes what is known of the values of a watched thread: which are uninitialised, and what decides.

    %v = load %x, %i       %u = 0, or the place of the read, if x[i] is uninitialised
    %r = if %c {..%v..}    what a region gives is kept in a slot, from which it is read behind: as unknown as %v
    if %w < %n             if %u != 0: use(…), and branch(thread, %c), from which divergence is counted

An uninitialised value may be copied and computed with; it is reported where it decides a branch, is an
address, is given to other threads, or is stored outside of shared memory and of a thread's own storage.

See also `lowering.watched` (accesses to memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...dsl.contract.checking import CheckState
from ...dsl.types.dtype import SIMDType
from ..ir.opcodes import CONDITION, FOR, IF, SELECT, UNIFORM, WHILE
from ..ir.program import Op, Region, Scope, Value, walk
from ..ir.simulation import Thread, offset
from .arithmetic_counts import written
from .types import mlir_type, register_bytes
from .writer import FunctionWriter, ModuleWriter

_ROUND = 1099511628211  # an odd factor: numbers of rounds become one number


class WatchedValues(FunctionWriter):
    """Writes the function of a thread; `Watched` adds its accesses."""

    def __init__(self, module: ModuleWriter) -> None:
        super().__init__(module)
        self.unknown: dict[int, str] = {}  # by serial: the i64 with the place of the uninitialised read
        self.given: dict[int, list[str]] = {}  # by the operation that ends a region: the slots of what it gives
        self.taken: dict[
            int, list[tuple[Value, str]]
        ] = {}  # by that which begins one: what its arguments are read from
        self.counted: dict[int, str] = {}  # the same: where rounds are counted
        self.loops: list[tuple[Op, str]] = []  # those around, and where the rounds of a `while` are counted

    # branches and loops

    def structured(self, op: Op) -> None:
        """Writes a branch or a loop."""
        if op.opcode is IF:
            slots = self._slots(op.results, ())
            for region in op.regions:
                self.given[id(region.ops[-1])] = slots
            self._note(op, op.operands[0])
        elif op.opcode is FOR:
            region = op.regions[0]
            slots = self._slots(op.results, op.operands[3:])
            self._enter(region, region.args[1:], slots)
            self.given[id(region.ops[-1])] = slots
            self._note_rounds(op)
        else:
            before, after = op.regions
            around = self._slots(op.operands, op.operands)
            slots = self._slots(op.results, ())
            self._enter(before, before.args, around)
            self._enter(after, after.args, slots)
            self.given |= {id(before.ops[-1]): slots, id(after.ops[-1]): around}
        self.loops.append((op, self._counter(op)))
        super().operation(op)
        self.loops.pop()
        for result, slot in zip(op.results, slots, strict=True):
            self.unknown[result.serial] = self._held(slot)

    def begin(self, op: Op) -> None:
        """At the first operation of a region: what its arguments are."""
        for value, slot in self.taken.get(id(op), ()):
            self.unknown[value.serial] = self._held(slot)
        rounds = self.counted.get(id(op))
        if rounds is not None:
            self._keep(rounds, self.op(f"arith.addi {self._held(rounds)}, {self._number(1)} : i64"))

    def leave(self, op: Op) -> None:
        self.begin(op)
        values = op.operands
        if op.opcode is CONDITION:
            condition, *values = op.operands
            self.use(op, [condition])
            self._note(self.loops[-1][0], condition)
        for value, slot in zip(values, self.given.get(id(op), ()), strict=False):
            self._keep(slot, self.unknown.get(value.serial) or self._number(0))

    def _slots(self, values: Sequence[Value], begin: Sequence[Value]) -> list[str]:
        """Where it is kept what is known of values, with that of those which they begin as."""
        slots = [self.storage(8, alignment=8)[0] for _ in values]
        for number, slot in enumerate(slots):
            known = self.unknown.get(begin[number].serial) if begin else None
            self._keep(slot, known or self._number(0))
        return slots

    def _enter(self, region: Region, arguments: Sequence[Value], slots: Sequence[str]) -> None:
        self.taken[id(region.ops[0])] = list(zip(arguments, slots, strict=True))

    def _counter(self, op: Op) -> str:
        """Where the rounds of a `while` are counted in which the author promises something."""
        if op.opcode is not WHILE or not any(inner.opcode is UNIFORM for r in op.regions for inner in walk(r)):
            return ""
        slot, _ = self.storage(8, alignment=8)
        self._keep(slot, self._number(0))
        self.counted[id(op.regions[0].ops[0])] = slot
        return slot

    def _held(self, slot: str) -> str:
        return self.op(f"llvm.load {slot} : !llvm.ptr -> i64")

    def _keep(self, slot: str, value: str) -> None:
        self.line(f"llvm.store {value}, {slot} : i64, !llvm.ptr")

    def _number(self, value: int) -> str:
        return self.op(f"arith.constant {value} : i64")

    # what threads answer, and what is promised

    def _note(self, op: Op, condition: Value) -> None:
        """Reports how a thread answers a condition."""
        if condition.const is None:
            self._report_branch(op, self.op(f"arith.extui {self.name(condition)} : i1 to i64"))

    def _note_rounds(self, op: Op) -> None:
        """Reports how many rounds of a loop a thread makes."""
        low, high, step = op.operands[:3]
        if all(value.const is not None for value in (low, high, step)):
            return
        between = self.op(f"arith.subi {self.name(high)}, {self.name(low)} : i64")
        between = self.op(f"arith.maxsi {between}, {self._number(0)} : i64")
        self._report_branch(op, self.op(f"arith.ceildivsi {between}, {self.name(step)} : i64"))

    def _report_branch(self, op: Op, answer: str) -> None:
        """Reports an answer, or rounds; the site has the operations behind each answer, or of a round."""
        before, after = op.regions[0], op.regions[-1]
        if op.opcode is IF:
            counted = written([before]), written([after])
        elif op.opcode is WHILE:
            counted = written([before, after]), written([before])
        else:
            counted = written([before]), ""
        self.report_thread("branch", [answer, self._number(self.module.access(op, "branch", *counted))])

    def report_work(self, launch: Op) -> None:
        """Reports at the begin of the first thread of a block what each of its threads does."""
        number = self.op(f"llvm.load {self.field('%thread', offset(Thread, 'number'))} : !llvm.ptr -> i64")
        self.open(f"scf.if {self.op(f'arith.cmpi eq, {number}, {self._number(0)} : i64')} {{")
        with self.nested():
            site = self.module.access(launch, "work", written(launch.regions))
            self.report_thread("branch", [self._number(1), self._number(site)])
        self.close()

    def promise(self, op: Op) -> None:
        """Reports a value that the author says to be equal in a scope, each time that a thread comes there."""
        value = op.operands[0]
        scope = Scope[op.attrs["scope"]]
        key = self._number(0)
        for loop, slot in self.loops:
            if loop.opcode is IF:
                continue
            key = self.op(f"arith.muli {key}, {self._number(_ROUND)} : i64")
            key = self.op(f"arith.addi {key}, {self._round(loop, slot)} : i64")
        site = self.module.access(op, "promise", value.dtype.name, scope.name)
        for lane, bits in enumerate(self._bits(value)):
            of_lane = self.op(f"arith.addi {key}, {self._number(lane << 48)} : i64") if lane else key
            self.report_thread("promise", [bits, of_lane, self._number(int(scope)), self._number(site)])

    def _round(self, loop: Op, slot: str) -> str:
        """Which round of a loop a thread is in."""
        if loop.opcode is WHILE:
            return self._held(slot)
        index = self.name(loop.regions[0].args[0])
        since = self.op(f"arith.subi {index}, {self.name(loop.operands[0])} : i64")
        return self.op(f"arith.divsi {since}, {self.name(loop.operands[2])} : i64")

    def _bits(self, value: Value) -> list[str]:
        """The lanes of a value as i64s."""
        type, name = value.simd, self.name(value)
        one = SIMDType(type.dtype)
        text, bits = mlir_type(one), 8 * register_bytes(one)
        lanes = [name]
        if type.width > 1:
            lanes = [self.op(f"vector.extract {name}[{k}] : {text} from {mlir_type(type)}") for k in range(type.width)]
        if text != "i1" and not text.startswith("i"):
            lanes = [self.op(f"arith.bitcast {lane} : {text} to i{bits}") for lane in lanes]
            text = f"i{bits}"
        return lanes if text == "i64" else [self.op(f"arith.extui {lane} : {text} to i64") for lane in lanes]

    def report_thread(self, function: str, numbers: list[str]) -> None:
        """Calls a function of the checks that takes the thread and numbers."""
        result = self.op(f"llvm.load {self.field('%checks', offset(CheckState, function))} : !llvm.ptr -> !llvm.ptr")
        types = ", ".join(["!llvm.ptr", "!llvm.ptr", *("i64" for _ in numbers)])
        self.line(f"llvm.call {result}({', '.join(['%checks', '%thread', *numbers])}) : !llvm.ptr, ({types}) -> ()")

    # of an uninitialised read

    def pass_on(self, op: Op) -> None:
        """What is computed is as unknown as what it is computed of; of a choice, what is chosen."""
        names = [self.unknown[value.serial] for value in op.operands if value.serial in self.unknown]
        if not names or not op.results:
            return
        if op.opcode is SELECT and op.operands[0].simd.width == 1:
            condition, *sides = op.operands
            zero = self._number(0)
            a, b = (self.unknown.get(value.serial, zero) for value in sides)
            chosen = self.op(f"arith.select {self.name(condition)}, {a}, {b} : i64")
            names = [chosen, *([self.unknown[condition.serial]] if condition.serial in self.unknown else [])]
        worst = self.worst(names)
        for result in op.results:
            self.unknown[result.serial] = worst

    def worst(self, names: Sequence[str]) -> str:
        worst, *others = names
        for name in others:
            worst = self.op(f"arith.maxui {worst}, {name} : i64")
        return worst

    def use(self, op: Op, values: Iterable[Value]) -> None:
        """Reports where what an operation depends on is unknown."""
        names = list(dict.fromkeys(self.unknown[value.serial] for value in values if value.serial in self.unknown))
        if not names:
            return
        worst = self.worst(names)
        some = self.op(f"arith.cmpi ne, {worst}, {self._number(0)} : i64")
        site = self.module.access(op, "used")
        where, self.at = self.at, ""
        self.open(f"scf.if {some} {{")
        with self.nested():
            self.report_thread("use", [worst, self._number(site)])
        self.close()
        self.at = where
