"""The kernels that PyTorch's dispatcher calls: they find the door for the tensors and parameters of a call.

    void ek_kernel7(uint64_t *stack, uint64_t inputs, uint64_t outputs)
    void ek_gate7(uint64_t *stack, uint64_t inputs, uint64_t outputs)

The stack holds handles of tensors and lists, which the kernel owns, and numbers; the kernel leaves its results there.
PyTorch passes a kernel nothing that would say which op it is for, so there is code for each of a number of kernels,
and each has a table of its own (`DISPATCH_WORDS`). All of them share `@dispatch`.

A kernel makes a key of the call, looks it up, and calls the door that it finds (see `torch`). A door returns null; 1
when it does not serve the call, and has changed nothing; or the address of a failure. Calls without a door go to
Python (`slow`). A gate is a kernel for autograd: it serves plain tensors that no derivative is computed of, and passes
all other calls on.

A failure becomes an exception of C++. It is thrown by a call that takes the place of the kernel's own, so that nothing
has to unwind the kernel. To PyTorch it is its own `python_error`, which holds an exception of Python and raises it
again; to all others it is a `std::exception` with the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...dsl.contract.doors import (
    AXES_SHIFT,
    AXIS_NEIGHBOURS,
    AXIS_REPEATED,
    AXIS_STEPS,
    DENSE_SHIFT,
    DISPATCH_WORDS,
    HASH_FACTOR,
    KERNELS,
    MOST_RANK,
    MOST_TENSORS,
    PLACE_BITS,
    RANK_SHIFT,
    STACK_INTEGERS,
    STACK_LIST,
    STACK_NUMBER,
    STACK_PARAMETER,
    STACK_TENSOR,
    STACK_TEXT,
)
from .text import DECLARATIONS, DoorText

# Of an exception, as PyTorch's header has it (torch/csrc/Exceptions.h): a table of functions, the type, the exception,
# its traceback, a string; behind it, of our own, the text.
ERROR_BYTES: Final = 72
ERROR_TYPE: Final = 8
ERROR_VALUE: Final = 16
ERROR_TRACE: Final = 24
ERROR_STRING: Final = 32  # where its characters are, how many, and room for a few
ERROR_TEXT: Final = 64

MISS: Final = "inttoptr (i64 1 to ptr)"  # what a door returns that does not serve a call
IMPOSSIBLE: Final = -1  # the word of a tensor that no door takes

SYMBOLS: Final = f"""
@ek_table = global ptr null
@ek_tables = global [{KERNELS} x ptr] zeroinitializer

define ptr @ek_thread() {{
  %thread = call ptr @llvm.thread.pointer()
  ret ptr %thread
}}

define ptr @ek_what(ptr %error) {{
  %at = getelementptr i8, ptr %error, i64 {ERROR_TEXT}
  %text = load ptr, ptr %at
  ret ptr %text
}}
"""

_KERNEL: Final = """
define void @ek_NAME(ptr %stack, i64 %count, i64 %results) {
begin:
  %at = getelementptr inbounds ptr, ptr @ek_tables, i64 NUMBER
  %table = load ptr, ptr %at
  %failure = call ptr @dispatch(ptr %table, ptr %stack, i64 %count, i64 %results, i1 GATE)
  %none = icmp eq ptr %failure, null
  br i1 %none, label %done, label %failed
failed:
  %error = call ptr @exception(ptr %table, ptr %failure)
  %throw.at = getelementptr inbounds i8, ptr %table, i64 THROW
  %throw = load ptr, ptr %throw.at
  %kind.at = getelementptr inbounds i8, ptr %table, i64 KIND
  %kind = load i64, ptr %kind.at
  %destroy.at = getelementptr inbounds i8, ptr %table, i64 DESTROY
  %destroy = load i64, ptr %destroy.at
  musttail call void %throw(ptr %error, i64 %kind, i64 %destroy)
  ret void
done:
  ret void
}
"""


def dispatch_text() -> str:
    """The text of the kernels."""
    functions = [_destroy(), _exception(), _kind(), _is_plain(), _release(), _serve(), _dispatch()]
    kernels = [_kernel(f"kernel{k}", k, "false") + _kernel(f"gate{k}", k, "true") for k in range(KERNELS)]
    return "\n".join([DECLARATIONS, SYMBOLS, *functions, *kernels])


def _kernel(name: str, number: int, gate: str) -> str:
    text = _KERNEL.replace("NAME", name).replace("NUMBER", str(number)).replace("GATE", gate)
    for mark, word in (("THROW", "throw"), ("KIND", "error_kind"), ("DESTROY", "destroy_error")):
        text = text.replace(mark, str(8 * DISPATCH_WORDS.index(word)))
    return text


def _function(name: str, result: str, *parameters: str, attributes: str = "internal") -> DoorText:
    f = DoorText(name, result, parameters, DISPATCH_WORDS, attributes=attributes)
    f.table = "%table"
    return f


# *** exceptions ***


def _destroy() -> str:
    """`ek_destroy(error)`: what is done when an exception has been caught."""
    f = _function("@ek_destroy", "void", "ptr %error", attributes="")
    f.table = f.load("ptr", "@ek_table")
    state = f.call(f.word("lock"), [], "i32")
    for offset in (ERROR_TYPE, ERROR_VALUE, ERROR_TRACE):
        f.call(f.word("decref"), [f"ptr {f.load('ptr', f.at('%error', offset))}"])
    f.call(f.word("unlock"), [f"i32 {state}"])
    return f.text()


def _exception() -> str:
    """`exception(table, failure)`: what is thrown; a failure is its text, its type and itself."""
    f = _function("@exception", "ptr", "ptr %table", "ptr %failure", attributes="internal|noinline cold")
    error = f.call(f.word("allocate_error"), [f"i64 {ERROR_BYTES}"], "ptr")
    text, kind, value = (f.load("ptr", f.at("%failure", 8 * k)) for k in range(3))
    state = f.call(f.word("lock"), [], "i32")
    for each in (kind, value):
        f.call(f.word("incref"), [f"ptr {each}"])
    f.call(f.word("unlock"), [f"i32 {state}"])
    characters = f.at(error, ERROR_STRING + 16)
    words = [(0, f.word("error_table")), (ERROR_TYPE, kind), (ERROR_VALUE, value), (ERROR_TRACE, "null")]
    words += [(ERROR_STRING, characters), (ERROR_STRING + 8, "null"), (ERROR_STRING + 16, "null")]
    for offset, word in [*words, (ERROR_STRING + 24, "null"), (ERROR_TEXT, text)]:
        f.store("ptr", word, f.at(error, offset))
    f.leave(error)
    return f.text()


# *** tensors ***


def _kind() -> str:
    """`kind(table, handle, more)`: the word of a tensor in a key, or `IMPOSSIBLE`; a second word at `more`, if any."""
    f = _function("@kind", "i64", "ptr %table", "ptr %handle", "ptr %more")
    answer = f.block(1)

    def query(word: str, type: str) -> str:
        f.need_same(f.call(f.word(word), ["ptr %handle", f"ptr {answer}"], "i32"), 0, "i32")
        return f.load(type, answer)

    dtype, rank = f.wide(query("dtype", "i32"), "i32"), query("rank", "i64")
    key = f.variable("i64", f.either(dtype, f.left(rank, RANK_SHIFT)))
    whole = f.compare("ne", f.both(query("contiguous", "i8"), 1, "i8"), 0, "i8")
    with f.when(whole):
        f.leave(key.value())
    f.need(f.compare("ule", rank, MOST_RANK))
    strides, sizes = query("strides", "ptr"), query("sizes", "ptr")
    places, dense = f.variable("i64", 0), f.variable("i64", 1)
    with f.each(0, rank) as axis:
        stride = f.load("i64", f.at(strides, f.left(axis, 3)))
        bits = f.select(f.compare("eq", stride, 1), AXIS_NEIGHBOURS, AXIS_STEPS)
        bits = f.select(f.compare("eq", stride, 0), AXIS_REPEATED, bits)
        key.set(f.either(key.value(), f.left(bits, f.add(f.left(axis, 1), AXES_SHIFT))))
        place, fits = _place(f, axis, stride, rank, strides, sizes)
        dense.set(f.both(dense.value(), f.wide(fits, "i1")))
        places.set(f.either(places.value(), f.left(place, f.mul(axis, PLACE_BITS))))
    f.store("i64", f.either(places.value(), f.left(dense.value(), DENSE_SHIFT)), "%more")
    f.leave(key.value())
    f.line("unreachable")
    f.label("miss.")
    f.leave(IMPOSSIBLE)
    return f.text()


def _place(f: DoorText, axis: str, stride: str, rank: str, strides: str, sizes: str) -> tuple[str, str]:
    """How many axes lie outside an axis in memory, and whether its stride is what those inside it fill."""
    place, reach = f.variable("i64", 0), f.variable("i64", 1)
    place.set(0)
    reach.set(1)
    with f.each(0, rank) as other:
        theirs = f.load("i64", f.at(strides, f.left(other, 3)))
        before = f.both(f.compare("eq", theirs, stride), f.compare("slt", other, axis), "i1")
        outer = f.either(f.compare("sgt", theirs, stride), before, "i1")
        place.set(f.add(place.value(), f.wide(outer, "i1")))
        inner = f.both(f.value(f"xor i1 {outer}, true"), f.compare("ne", other, axis), "i1")
        reach.set(f.mul(reach.value(), f.select(inner, f.load("i64", f.at(sizes, f.left(other, 3))), 1)))
    single = f.compare("eq", f.load("i64", f.at(sizes, f.left(axis, 3))), 1)
    return place.value(), f.either(f.compare("eq", stride, reach.value()), single, "i1")


def _is_plain() -> str:
    """`is_plain(table, handle)`: whether a tensor lies on the host, is of no subclass, and needs no derivative."""
    f = _function("@is_plain", "i1", "ptr %table", "ptr %handle")
    tensor = f.load("ptr", "%handle")
    keys = f.load("i64", f.at(tensor, f.word("keys_offset", "i64")))
    f.need_same(keys, f.word("plain_keys", "i64"), "i64")
    wanted = f.both(f.call(f.word("requires_grad"), [f"ptr {tensor}"], "i8"), 1, "i8")
    with f.when(f.compare("ne", wanted, 0, "i8")):
        mode = f.both(f.call(f.word("grad_mode"), [], "i8"), 1, "i8")
        f.need_same(mode, 0, "i8")
    tangent = f.call(f.word("tangent"), [f"ptr {tensor}", "i64 0", "ptr %handle"], "ptr")
    f.need_same(f.load("ptr", tangent), f.word("undefined"))
    f.leave("true")
    f.line("unreachable")
    f.label("miss.")
    f.leave("false")
    return f.text()


def _release() -> str:
    """`release(table, stack, count)`: gives back the tensors, lists and texts of a call."""
    f = _function("@release", "void", "ptr %table", "ptr %stack", "i64 %count")
    kinds = f.word("kinds")
    with f.each(0, "%count") as k:
        kind = f.load("i8", f.at(kinds, k))
        with f.when(f.compare("ule", kind, STACK_LIST, "i8")):
            word = f.load("ptr", f.at("%stack", f.left(k, 3)))
            with f.when(f.compare("eq", kind, STACK_TENSOR, "i8")):
                f.call(f.word("delete"), [f"ptr {word}"], "i32")
            with f.when(f.compare("eq", kind, STACK_LIST, "i8")):
                answer = f.block(1)
                f.call(f.word("list_size"), [f"ptr {word}", f"ptr {answer}"], "i32")
                with f.each(0, f.load("i64", answer)) as item:
                    f.call(f.word("list_item"), [f"ptr {word}", f"i64 {item}", f"ptr {answer}"], "i32")
                    f.call(f.word("delete"), [f"ptr {f.load('ptr', answer)}"], "i32")
                f.call(f.word("delete_list"), [f"ptr {word}"], "i32")
        for each, name in ((STACK_TEXT, "delete_text"), (STACK_INTEGERS, "delete_list")):
            with f.when(f.compare("eq", kind, each, "i8")):
                f.call(f.word(name), [f"ptr {f.load('ptr', f.at('%stack', f.left(k, 3)))}"], "i32")
    return f.text()


# *** a call ***


def _serve() -> str:
    """`serve(table, key, length, handles, made)`: what the first door of a key that serves the call returns; 1 if there
    is none."""
    f = _function("@serve", "ptr", "ptr %table", "ptr %key", "i64 %length", "ptr %handles", "ptr %made")
    code = f.variable("i64", 0)
    with f.each(0, "%length") as k:
        word = f.load("i64", f.at("%key", f.left(k, 3)))
        mixed = f.mul(f.value(f"xor i64 {code.value()}, {word}"), HASH_FACTOR - (1 << 64))  # as a signed number
        code.set(f.value(f"xor i64 {mixed}, {f.right(mixed, 29)}"))
    index = f.value(f"load atomic ptr, ptr {f.at('%table', f.offsets['index'])} acquire, align 8")
    mask = f.load("i64", index)
    place = f.variable("i64", f.both(code.value(), mask))
    with f.while_(lambda: "true"):
        at = f.at(index, f.left(f.add(place.value(), 1), 3))
        record = f.value(f"load atomic ptr, ptr {at} acquire, align 8")
        with f.when(f.compare("eq", record, "null", "ptr")):
            f.leave(MISS)
        same = f.compare("eq", f.load("i64", record), code.value())
        same = f.both(same, f.compare("eq", f.load("i64", f.at(record, 8)), "%length"), "i1")
        with f.when(same):
            differ = f.variable("i64", 0)
            differ.set(0)
            with f.each(0, "%length") as k:
                theirs = f.load("i64", f.at(record, f.add(f.left(k, 3), 32)))
                ours = f.load("i64", f.at("%key", f.left(k, 3)))
                differ.set(f.either(differ.value(), f.value(f"xor i64 {theirs}, {ours}")))
            with f.when(f.compare("eq", differ.value(), 0)):
                door, table = f.load("ptr", f.at(record, 16)), f.load("ptr", f.at(record, 24))
                result = f.call(door, [f"ptr {table}", "ptr %handles", "ptr %made"], "ptr")
                with f.when(f.compare("ne", result, MISS, "ptr")):
                    f.leave(result)
        place.set(f.both(f.add(place.value(), 1), mask))
    return f.text()


class _Dispatch(DoorText):
    """`dispatch(table, stack, count, results, gate)`: null, or the address of a failure."""

    def __init__(self) -> None:
        parameters = ["ptr %table", "ptr %stack", "i64 %count", "i64 %results", "i1 %gate"]
        super().__init__("@dispatch", "ptr", parameters, DISPATCH_WORDS, attributes="internal")
        self.table = "%table"
        self.key, self.handles = self.block(2 * MOST_TENSORS), self.block(MOST_TENSORS)
        self.length, self.tensors = self.variable("i64", 0), self.variable("i64", 0)
        self.answer, self.more = self.block(1), self.block(1)

    def write(self) -> str:
        self.need_room()
        self.need_no_mode()
        self.need(self.compare("ule", "%count", MOST_TENSORS))
        self.need(self.compare("ule", "%results", MOST_TENSORS))
        kinds, masks = self.word("kinds"), self.word("masks")
        with self.each(0, "%count") as k:
            self.one(self.load("i8", self.at(kinds, k)), self.load("i64", self.at("%stack", self.left(k, 3))), k, masks)
        made = self.block(MOST_TENSORS)
        passed = [f"ptr {self.key}", f"i64 {self.length.value()}", f"ptr {self.handles}", f"ptr {made}"]
        failure = self.call("@serve", ["ptr %table", *passed], "ptr")
        self.need(self.compare("ne", failure, MISS, "ptr"))
        self.call("@release", ["ptr %table", "ptr %stack", "i64 %count"])
        with self.when(self.compare("eq", failure, "null", "ptr")), self.each(0, "%results") as k:
            result = self.load("i64", self.at(made, self.left(k, 3)))
            self.store("i64", result, self.at("%stack", self.left(k, 3)))
        self.leave(failure)
        self.line("unreachable")
        self.label("miss.")
        slow = self.select("%gate", self.word("slow_gate"), self.word("slow"), "ptr")
        self.leave(self.call(slow, ["ptr %stack", "i64 %count", "i64 %results"], "ptr"))
        return self.text()

    def need_no_mode(self) -> None:
        """A gate goes on where no mode stands between autograd and the kernel for the host."""
        with self.when("%gate"):
            for k in range(3):
                number = self.narrow(self.word(f"mode{k}", "i64"), "i16")
                included = self.call(self.word("included"), [f"i16 zeroext {number}"], "i8")
                self.need_same(self.both(included, 1, "i8"), 0, "i8")

    def one(self, kind: str, word: str, k: str, masks: str) -> None:
        """Takes a word of the stack: a tensor, a list of them, a parameter, or a number that is passed on."""
        pointer = self.value(f"inttoptr i64 {word} to ptr")
        with self.when(self.compare("eq", kind, STACK_TENSOR, "i8")):
            self.tensor(pointer)
        with self.when(self.compare("eq", kind, STACK_LIST, "i8")), self.items(pointer):
            self.tensor(self.load("ptr", self.answer))
        with self.when(self.compare("eq", kind, STACK_INTEGERS, "i8")), self.items(pointer):
            self.add_key(self.load("i64", self.answer))
        with self.when(self.compare("eq", kind, STACK_TEXT, "i8")):
            self.characters(pointer)
        with self.when(self.compare("eq", kind, STACK_PARAMETER, "i8")):
            self.add_key(self.both(word, self.load("i64", self.at(masks, self.left(k, 3)))))
        with self.when(self.compare("eq", kind, STACK_NUMBER, "i8")):
            self.add_word(word)

    @contextmanager
    def items(self, pointer: str) -> Iterator[None]:
        """What is done with every item of a list, which is the answer; the length of the list is part of the key."""
        count = self.property_of("list_size", pointer)
        self.add_key(count)
        with self.each(0, count) as item:
            passed = [f"ptr {pointer}", f"i64 {item}", f"ptr {self.answer}"]
            self.need_same(self.call(self.word("list_item"), passed, "i32"), 0, "i32")
            yield

    def property_of(self, word: str, pointer: str, type: str = "i64") -> str:
        """A property of a list or text."""
        self.need_same(self.call(self.word(word), [f"ptr {pointer}", f"ptr {self.answer}"], "i32"), 0, "i32")
        return self.load(type, self.answer)

    def characters(self, pointer: str) -> None:
        """Adds a text to the key: its length, and its bytes, eight to a word."""
        size = self.property_of("text_size", pointer)
        self.add_key(size)
        data = self.property_of("text_data", pointer, "ptr")
        with self.each(0, self.right(self.add(size, 7), 3)) as k:
            begin, word = self.left(k, 3), self.variable("i64", 0)
            rest = self.sub(size, begin)
            with self.each(0, self.select(self.compare("ult", rest, 8), rest, 8)) as byte:
                one = self.wide(self.load("i8", self.at(data, self.add(begin, byte))), "i8")
                word.set(self.either(word.value(), self.left(one, self.left(byte, 3))))
            self.add_key(word.value())

    def tensor(self, handle: str) -> None:
        with self.when("%gate"):
            self.need(self.call("@is_plain", ["ptr %table", f"ptr {handle}"], "i1"))
        kind = self.call("@kind", ["ptr %table", f"ptr {handle}", f"ptr {self.more}"], "i64")
        self.need(self.compare("ne", kind, IMPOSSIBLE))
        self.add_key(kind)
        with self.when(self.compare("ne", self.right(kind, AXES_SHIFT), 0)):
            self.add_key(self.load("i64", self.more))
        self.add_word(self.value(f"ptrtoint ptr {handle} to i64"))

    def add_key(self, word: str) -> None:
        at = self.length.value()
        self.need(self.compare("ult", at, 2 * MOST_TENSORS))
        self.store("i64", word, self.at(self.key, self.left(at, 3)))
        self.length.set(self.add(at, 1))

    def add_word(self, word: str) -> None:
        at = self.tensors.value()
        self.need(self.compare("ult", at, MOST_TENSORS))
        self.store("i64", word, self.at(self.handles, self.left(at, 3)))
        self.tensors.set(self.add(at, 1))


def _dispatch() -> str:
    return _Dispatch().write()
