"""Writes what all doors have in common: guards, sizes, the context on the stack, the call of the entry.

A door is one function. Whatever is not as its description says leads to the label `miss.`, before anything is changed;
what is done there is the door's own. Addresses and numbers that differ from process to process, or from kernel to
kernel, are words of a table, whose address the door finds first.

See also the file of each door (how a caller keeps tensors), `graph.calling.doors` (what the words hold).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.doors import ROOM_BITS, ROOM_FACTOR, RUN_WORDS, RUNNING_BACK, RUNNING_NEXT, DoorSpec
from ...dsl.signature.dims import DimName, DimOperation, Expression, FunctionCall, Negate, names_in
from ...dsl.signature.dims import DimNumber as Literal
from ...dsl.types.dtype import DType
from ..ir.llvm_text import FunctionText, Number
from ..targets import host

DECLARATIONS: Final = """
declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.ssub.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare double @llvm.fabs.f64(double)
declare ptr @llvm.thread.pointer()
"""


LARGEST_FLOAT32: Final = "0x47EFFFFFE0000000"


class DoorText(FunctionText):
    """A door, as it is written.

    Args:
        words: the names of the words of its table.
    """

    def __init__(
        self, name: str, result: str, parameters: Sequence[str], words: Sequence[str], *, attributes: str = ""
    ) -> None:
        super().__init__(name, result, parameters, attributes=attributes)
        self.offsets = {word: 8 * number for number, word in enumerate(words)}
        self.table = ""  # the value that is its address
        self.computed = ""  # where the first of two stages writes the sizes that it computes

    def word(self, name: str, type: str = "ptr") -> str:
        """A word of the table."""
        return self.load(type, self.at(self.table, self.offsets[name]))

    def need(self, test: str) -> None:
        """Goes on where an i1 holds, else to the miss."""
        after = self.fresh("holds")
        self.line(f"br i1 {test}, label %{after}, label %miss.")
        self.label(after)

    def need_same(self, a: Number, b: Number, type: str = "ptr") -> None:
        """Goes on where two values are equal."""
        self.need(self.compare("eq", a, b, type))

    # numbers that are passed at run time

    def store_real(self, wide: str, dtype: DType, block: str) -> None:
        """Stores a double as a float64 or float32; a miss where it does not fit."""
        if dtype is DType.float64:
            self.store("double", wide, block)
            return
        size = self.value(f"call double @llvm.fabs.f64(double {wide})")
        self.need(self.value(f"fcmp ole double {size}, {LARGEST_FLOAT32}"))
        self.store("float", self.value(f"fptrunc double {wide} to float"), block)

    def real_of_int(self, whole: str, dtype: DType) -> str:
        """An i64 as a double; a miss where a dtype does not hold it exactly."""
        most = 1 << (53 if dtype is DType.float64 else 24)
        self.need(self.compare("sle", whole, most))
        self.need(self.compare("sge", whole, -most))
        return self.value(f"sitofp i64 {whole} to double")

    def store_whole(self, wide: str, dtype: DType, block: str) -> None:
        """Stores an i64 as an integer of a dtype; a miss where it does not fit."""
        narrow = self.narrow(wide, f"i{dtype.bits}") if dtype.bits < 64 else wide
        if dtype.bits < 64:
            extend = "sext" if dtype.is_signed() else "zext"
            self.need_same(self.value(f"{extend} i{dtype.bits} {narrow} to i64"), wide, "i64")
        elif not dtype.is_signed():
            self.need(self.compare("sge", wide, 0))
        self.store(f"i{dtype.bits}", narrow, block)

    def block(self, words: int) -> str:
        """Memory of the stack, in words of 8 bytes."""
        name = f"%{self.fresh('block')}"
        self.variables.append(f"  {name} = alloca [{max(1, words)} x i64], align 16")
        return name

    def need_room(self) -> None:
        """Goes on where this thread is known to have enough of a stack."""
        thread = self.value("ptrtoint ptr " + self.call("@llvm.thread.pointer", [], "ptr") + " to i64")
        spread = self.mul(thread, ROOM_FACTOR - (1 << 64))  # as a signed number
        place = self.left(self.right(spread, 64 - ROOM_BITS), 3)
        rooms = self.word("room")
        words = [self.load("i64", self.at(rooms, each)) for each in (place, self.value(f"xor i64 {place}, 8"))]
        first, second = (self.compare("eq", word, thread) for word in words)
        self.need(self.either(first, second, "i1"))

    # sizes

    def size(self, expression: Expression, known: Mapping[str, Number]) -> Number:
        """What an expression gives; a miss where it has no value, or needs more than 64 bits."""
        match expression:
            case Literal(value):
                return value
            case DimName(name):
                return known[name]
            case Negate(operand):
                return self.exact("-", 0, self.size(operand, known))
            case DimOperation(operator, left, right):
                return self.exact(operator, self.size(left, known), self.size(right, known))
            case FunctionCall("ceildiv", (left, right)):
                return self.exact("-", 0, self.exact("//", self.exact("-", 0, self.size(left, known)),
                                                     self.size(right, known)))  # fmt: skip
            case FunctionCall(function, arguments):
                result, *others = (self.size(argument, known) for argument in arguments)
                for other in others:
                    result = self.value(f"call i64 @llvm.s{function}.i64(i64 {result}, i64 {other})")
                return result

    def exact(self, operator: str, a: Number, b: Number) -> Number:
        """An operation of the dims language; it is folded where both are known."""
        if isinstance(a, int) and isinstance(b, int) and (b != 0 or operator in "+-*"):
            return {"+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1), "%": a % (b or 1)}[operator]
        if operator in ("//", "%"):
            if not isinstance(b, int) or b < 1:
                self.need(self.compare("sgt", b, 0))
            rest = self.value(f"srem i64 {a}, {b}")
            below = self.compare("slt", rest, 0)
            if operator == "%":
                return self.select(below, self.add(rest, b), rest)
            quotient = self.value(f"sdiv i64 {a}, {b}")
            return self.select(below, self.sub(quotient, 1), quotient)
        if operator == "*" and 1 in (a, b):
            return b if a == 1 else a
        kind = {"+": "sadd", "-": "ssub", "*": "smul"}[operator]
        both = self.value(f"call {{i64, i1}} @llvm.{kind}.with.overflow.i64(i64 {a}, i64 {b})")
        wrong = self.value(f"extractvalue {{i64, i1}} {both}, 1")
        self.need(self.value(f"xor i1 {wrong}, true"))
        return self.value(f"extractvalue {{i64, i1}} {both}, 0")

    def elements(self, sizes: Sequence[Number]) -> Number:
        """The product of sizes."""
        count: Number = 1
        for size in sizes:
            count = self.exact("*", count, size)
        return count

    def need_relations(self, spec: DoorSpec, known: Mapping[str, Number], *, late: bool = False) -> None:
        """Goes on where sizes are related as they have to be: those that the arguments give, or the late ones."""
        for left, right, equal in (each for each in spec.relations if spec.is_late(*each[:2]) is late):
            self.need(self.compare("eq" if equal else "sge", self.size(left, known), self.size(right, known)))

    # the call

    def slots(self, spec: DoorSpec, known: Mapping[str, Number]) -> str:
        """The dims of the entry, as far as they are known."""
        block = self.block(len(spec.slots))
        for number, expression in enumerate(spec.slots):
            if all(name.name in known for name in names_in(expression)):
                self.store("i64", self.size(expression, known), self.at(block, 8 * number))
        return block

    def late_sizes(
        self, spec: DoorSpec, known: Mapping[str, Number], inputs: Sequence[str], large: str
    ) -> tuple[str, str, str]:
        """Calls the first of two stages, which computes sizes: its context, its status, and whether it failed."""
        self.computed = self.block(len(spec.late))
        return self.run(self.pointers(spec, inputs, ()), self.slots(spec, known), large)

    def need_late_sizes(self, spec: DoorSpec, known: dict[str, Number]) -> None:
        """Goes on where the sizes that the first stage has computed are possible."""
        for k, name in enumerate(spec.late):
            known[name] = self.load("i64", self.at(self.computed, 8 * k))
            self.need(self.compare("sge", known[name], 0))
        self.need_relations(spec, known, late=True)

    def pointers(self, spec: DoorSpec, inputs: Sequence[str], outputs: Sequence[str], temps: Sequence[str] = ()) -> str:
        """The pointers of the entry."""
        block = self.block(len(spec.pointers))
        places = {"input": inputs, "output": outputs, "temp": temps, "sizes": [self.computed]}
        for number, (kind, k) in enumerate(spec.pointers):
            if kind == "constant":
                self.store("ptr", self.word(f"constant{k}"), self.at(block, 8 * number))
            elif places[kind]:  # the first of two stages has no outputs
                self.store("ptr", places[kind][k], self.at(block, 8 * number))
        return block

    def run(self, pointers: str, dims: str, large: str, stage: int = 0) -> tuple[str, str, str]:
        """Calls a stage of the entry by `@ek.run` (see `run_text`): its context, its status, and whether it failed."""
        context = self.block(RUN_WORDS)
        words = [f"ptr {self.table}", f"ptr {context}", f"ptr {pointers}", f"ptr {dims}", f"i1 {large}", f"i64 {stage}"]
        code = self.call("@ek.run", words, "i32")
        status = self.load("i64", self.at(context, abi.STATUS_OFFSET))
        failed = self.either(self.compare("ne", code, 0, "i32"), self.compare("ne", status, 0), "i1")
        return context, status, failed


class TensorDoorText(DoorText):
    """A door that reads the sizes of tensors.

    Attributes:
        known: the sizes that have been read, by name.
    """

    known: dict[str, Number]

    def match(self, size: Literal | DimName, value: Number) -> None:
        """A size or stride that has a number, or a name that it gets or has to fit."""
        if isinstance(size, DimName) and size.name not in self.known:
            self.known[size.name] = value
            return
        self.need_same(value, self.size(size, self.known), "i64")

    def size_of_output(self, axis: Expression) -> Number:
        """A size that the signature says, which is no less than 0; those that tensors have are not."""
        size = self.size(axis, self.known)
        if not isinstance(axis, DimName | Literal):
            self.need(self.compare("sge", size, 0))
        return size


def run_text(words: Sequence[str], *, lock: bool, bounded: bool = False) -> str:
    """`i32 @ek.run(table, context, pointers, dims, large, stage)`: fills a context, and calls the entry with it.

    A large call has the pool's threads, a small one has one. With `lock`, Python's lock is given back for as long as
    the call lasts, unless it is small and what it does is bounded. No thread holds the lock and uses threads: one that
    reports would wait for it for ever. So both are decided here, by the same bit.

    Without `lock`, it is a foreign thread, which may flush denormal numbers to zero, as XLA does. During the
    call they are not, so that a kernel gives the same bits code that calls it.
    """
    given = ["ptr %table", "ptr %context", "ptr %pointers", "ptr %dims", "i1 %large", "i64 %stage"]
    f = DoorText("@ek.run", "i32", given, words)
    f.head = f.head.replace("define ", "define internal ", 1)
    f.table = "%table"
    known = {word: f"ptr {f.word(word)}" for word in ("pool", "report", "poll", "owner", "collectives")}
    fill_context(f, {**known, "stage": "i64 %stage"})
    with f.when("%large"):
        f.store("ptr", f.word("parallel"), f.at("%context", abi.PARALLEL_OFFSET))
        f.store("i64", f.word("threads", "i64"), f.at("%context", abi.THREADS_OFFSET))
        f.leave(_unlocked(f) if lock else _exact(f))
    f.leave(_exact(f) if not lock else _call(f) if bounded else _unlocked(f))
    system = host().system  # doors are made where they run
    return f.text() if lock or system is None else f"{system.float_modes}\n{f.text()}"


def fill_context(f: FunctionText, known: Mapping[str, str], context: str = "%context") -> None:
    """Fills a context for a call by one thread; `known` has the fields that are not 0, with their types."""
    for field, *_ in abi.Context._fields_:
        type, _, value = known.get(field, "i64 1" if field == "threads" else "i64 0").partition(" ")
        f.store(type, value, f.at(context, getattr(abi.Context, field).offset))


def _call(f: DoorText) -> str:
    return f.call(f.word("entry"), ["ptr %context", "ptr %pointers", "ptr %dims"], "i32")


def _exact(f: DoorText) -> str:
    """The call with floats as kernels take them."""
    return with_plain_floats(f, lambda: _call(f))


def with_plain_floats(f: FunctionText, call: Callable[[], str]) -> str:
    """What `call` writes, between changes of the thread's float mode where that is not the mode of kernels."""
    mode = f.call("@float_mode", [], "i64")
    plain = f.call("@plain_floats", [f"i64 {mode}"], "i64")
    differs = f.compare("ne", mode, plain)
    with f.when(differs):
        f.call("@set_float_mode", [f"i64 {plain}"])
    code = call()
    with f.when(differs):
        f.call("@set_float_mode", [f"i64 {mode}"])
    return code


def _unlocked(f: DoorText) -> str:
    """The call without Python's lock. Meanwhile it stands in the list of those that can be cancelled, which changes
    with the lock held alone."""
    first, own = f.at(f.table, f.offsets["running"]), f.at("%context", RUNNING_NEXT)
    behind = f.load("ptr", first)
    f.store("ptr", behind, own)
    f.store("ptr", first, f.at("%context", RUNNING_BACK))
    _say_back(f, behind, own)
    f.store("ptr", own, first)
    state = f.call(f.word("release"), [], "ptr")
    code = _call(f)
    f.call(f.word("acquire"), [f"ptr {state}"])
    place, behind = f.load("ptr", f.at("%context", RUNNING_BACK)), f.load("ptr", own)
    f.store("ptr", behind, place)
    _say_back(f, behind, place)
    return code


def _say_back(f: DoorText, call: str, place: str) -> None:
    """Updates the address of a call in the list, if there is one."""
    with f.when(f.compare("ne", call, "null", "ptr")):
        f.store("ptr", place, f.at(call, RUNNING_BACK - RUNNING_NEXT))
