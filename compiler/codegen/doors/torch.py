"""The door for PyTorch: a kernel of its dispatcher, through the stable C interface of libtorch.

    void ek_door(uint64_t *stack, uint64_t inputs, uint64_t outputs)

The stack holds handles of tensors, which the kernel owns, and numbers; the kernel leaves handles of its outputs there.
The table is found by a symbol, since the dispatcher has no word for it: each door has its code for itself. What a door
does not serve goes to the next one, and the last one asks Python.

A failure becomes an exception of C++. It is thrown by a call that takes the place of the door's own, so that nothing
has to unwind the door. To PyTorch it is its own `python_error`, which holds an exception of Python and raises it again;
to whoever does not know it as that, a `std::exception` with the text.

Input: a `DoorSpec`, a `TorchForm`. Output: LLVM IR. Non-goals: numbers as tensors, lists, texts (Python serves them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....dsl.contract.doors import DoorArgument, DoorSpec, TorchForm
from ....dsl.signature.dims import Name, Number
from ..ir_text import Number as Value
from .text import DECLARATIONS, DoorText, run_text

# Of an exception, as PyTorch's header has it (torch/csrc/Exceptions.h): a table of functions, the type, the exception,
# its traceback, a string; behind it, of our own, the text.
ERROR_BYTES: Final = 72
ERROR_TYPE: Final = 8
ERROR_VALUE: Final = 16
ERROR_TRACE: Final = 24
ERROR_STRING: Final = 32  # where its characters are, how many, and room for a few
ERROR_TEXT: Final = 64
MASKS: Final = {"bool": 0xFF, "dtype": 0xFFFFFFFF}  # what counts of a word of the stack

SYMBOLS: Final = """
@ek_table = global ptr null

define ptr @ek_thread() {
  %thread = call ptr @llvm.thread.pointer()
  ret ptr %thread
}

define ptr @ek_what(ptr %error) {
  %at = getelementptr i8, ptr %error, i64 64
  %text = load ptr, ptr %at
  ret ptr %text
}
"""


def torch_text(spec: DoorSpec, form: TorchForm) -> str:
    """The text of a door."""
    words = form.words(spec)
    return "\n".join(
        [DECLARATIONS, SYMBOLS, run_text(words, lock=False), _destroy(words), _Door(spec, form, words).text()]
    )


def _destroy(words: Sequence[str]) -> str:
    """`ek_destroy(error)`: what is done when an exception has been caught."""
    f = DoorText("@ek_destroy", "void", ["ptr %error"], words)
    f.table = f.load("ptr", "@ek_table")
    state = f.call(f.word("lock"), [], "i32")
    for offset in (ERROR_TYPE, ERROR_VALUE, ERROR_TRACE):
        f.call(f.word("decref"), [f"ptr {f.load('ptr', f.at('%error', offset))}"])
    f.call(f.word("unlock"), [f"i32 {state}"])
    return f.text()


class _Door(DoorText):
    def __init__(self, spec: DoorSpec, form: TorchForm, words: Sequence[str]) -> None:
        super().__init__("@ek_door", "void", ["ptr %stack", "i64 %count", "i64 %results"], words)
        self.spec, self.form = spec, form
        self.table = self.load("ptr", "@ek_table")
        self.known: dict[str, Value] = {}
        self.answer = self.block(1)
        self.write()

    def write(self) -> None:
        spec = self.spec
        self.need_room()
        handles = [self.load("ptr", self.at("%stack", 8 * k)) for k in range(len(spec.arguments))]
        inputs = [self.argument(k, handles[k], argument) for k, argument in enumerate(spec.arguments)]
        self.parameters()
        if not self.form.gradients:
            self.need_no_gradient(handles)
        self.need_relations(spec, self.known)
        shapes = [[self.size_of_output(axis) for axis in output.axes] for output in spec.outputs]
        large = self.large(shapes)
        slots = self.slots(spec, self.known)
        made = self.outputs(shapes)
        outputs = [self.asked("data", handle, "ptr") for handle in made]
        context, status, failed = self.run(self.pointers(spec, inputs, outputs), slots, large)
        with self.when(failed):
            self.release([*handles, *made])
            self.throw(self.call(self.word("fail"), [f"ptr {context}", f"i64 {status}"], "ptr"))
        self.release(handles)
        for k, handle in enumerate(made):
            self.store("ptr", handle, self.at("%stack", 8 * k))
        self.leave()
        self.line("unreachable")
        self.label("miss.")
        self.hand_on()

    def hand_on(self) -> None:
        """The next door, which finds the stack as it was; behind the last one Python."""
        passed = "ptr %stack, i64 %count, i64 %results"
        behind = self.word("next")
        with self.when(self.compare("ne", behind, "null", "ptr")):
            self.line(f"musttail call void {behind}({passed})")
            self.line("ret void")
            self.label(self.fresh("after"))
        failure = self.call(self.word("slow"), [passed], "ptr")
        with self.when(self.compare("ne", failure, "null", "ptr")):
            self.throw(failure)

    def throw(self, failure: str) -> None:
        """Ends with an exception; a failure is its text, its type and itself."""
        error = self.call(self.word("allocate_error"), [f"i64 {ERROR_BYTES}"], "ptr")
        text, kind, value = (self.load("ptr", self.at(failure, 8 * k)) for k in range(3))
        state = self.call(self.word("lock"), [], "i32")
        for each in (kind, value):
            self.call(self.word("incref"), [f"ptr {each}"])
        self.call(self.word("unlock"), [f"i32 {state}"])
        characters = self.at(error, ERROR_STRING + 16)
        words = [(0, self.word("error_table")), (ERROR_TYPE, kind), (ERROR_VALUE, value), (ERROR_TRACE, "null")]
        words += [(ERROR_STRING, characters), (ERROR_STRING + 8, "null"), (ERROR_STRING + 16, "null")]
        for offset, word in [*words, (ERROR_STRING + 24, "null"), (ERROR_TEXT, text)]:
            self.store("ptr", word, self.at(error, offset))
        about, destroy = self.word("error_kind", "i64"), self.word("destroy_error", "i64")
        self.line(f"musttail call void {self.word('throw')}(ptr {error}, i64 {about}, i64 {destroy})")
        self.line("ret void")
        self.label(self.fresh("after"))

    # what is passed

    def asked(self, word: str, handle: str, type: str) -> str:
        """What a tensor answers; it has an answer to all that is asked here."""
        code = self.call(self.word(word), [f"ptr {handle}", f"ptr {self.answer}"], "i32")
        self.need_same(code, 0, "i32")
        return self.load(type, self.answer)

    def argument(self, k: int, handle: str, argument: DoorArgument) -> str:
        """Where the elements of an argument lie, with its sizes known."""
        self.need_same(self.asked("dtype", handle, "i32"), self.narrow(self.word(f"argument{k}", "i64"), "i32"), "i32")
        self.need_same(self.asked("rank", handle, "i64"), len(argument.axes), "i64")
        self.need_same(self.both(self.asked("contiguous", handle, "i8"), 1, "i8"), 1, "i8")
        if argument.axes:
            sizes = self.asked("sizes", handle, "ptr")
            for axis, size in enumerate(argument.axes):
                self.meet(size, self.load("i64", self.at(sizes, 8 * axis)))
        data = self.asked("data", handle, "ptr")
        address = self.value(f"ptrtoint ptr {data} to i64")
        self.need_same(self.both(address, argument.dtype.align - 1), 0, "i64")
        return data

    def meet(self, size: Number | Name, value: str) -> None:
        """A size that has a number, or a name that it gets or has to fit."""
        if isinstance(size, Name) and size.name not in self.known:
            self.known[size.name] = value
            return
        self.need_same(value, self.size(size, self.known), "i64")

    def parameters(self) -> None:
        """Compile-time parameters are as they were when the door was made."""
        for k, kind in enumerate(self.form.parameters):
            value = self.load("i64", self.at("%stack", 8 * (len(self.spec.arguments) + k)))
            value = self.both(value, MASKS[kind]) if kind in MASKS else value
            self.need_same(value, self.word(f"value{k}", "i64"), "i64")

    def need_no_gradient(self, handles: Sequence[str]) -> None:
        """No gradient would be lost. A handle points to a tensor, which points to what knows."""
        wanted = self.variable("i1", "false")
        mode = self.call(self.word("grad_mode"), [], "i8")
        with self.when(self.compare("ne", self.both(mode, 1, "i8"), 0, "i8")):
            for handle in handles:
                answer = self.call(self.word("requires_grad"), [f"ptr {self.load('ptr', handle)}"], "i8")
                some = self.compare("ne", self.both(answer, 1, "i8"), 0, "i8")
                wanted.set(self.either(wanted.value(), some, "i1"))
        self.need(self.value(f"xor i1 {wanted.value()}, true"))

    # what is given back

    def size_of_output(self, axis: object) -> Value:
        size = self.size(axis, self.known)  # type: ignore[arg-type]
        if not isinstance(axis, Name | Number):  # what tensors have is no less than 0
            self.need(self.compare("sge", size, 0))
        return size

    def large(self, shapes: Sequence[Sequence[Value]]) -> str:
        """Whether a tensor has more elements than one thread shall do, and nobody here has Python's lock: a thread of
        the pool that reports would wait for it."""
        large = "false"
        seen = set()
        tensors = [(a.axes, [self.size(axis, self.known) for axis in a.axes]) for a in self.spec.arguments]
        for axes, sizes in [*tensors, *zip((o.axes for o in self.spec.outputs), shapes, strict=True)]:
            if axes not in seen:
                seen.add(axes)
                large = self.either(large, self.compare("sgt", self.elements(sizes), self.spec.small), "i1")
        free = self.variable("i1", "false")
        with self.when(large):
            free.set(self.compare("eq", self.call(self.word("holds_lock"), [], "i32"), 0, "i32"))
        return free.value()

    def outputs(self, shapes: Sequence[Sequence[Value]]) -> list[str]:
        """New tensors; what cannot be had is a miss, and Python says why."""
        made: list[str] = []
        for k, shape in enumerate(shapes):
            sizes, strides = self.block(len(shape)), self.block(len(shape))
            stride: Value = 1
            for axis in reversed(range(len(shape))):
                self.store("i64", shape[axis], self.at(sizes, 8 * axis))
                self.store("i64", stride, self.at(strides, 8 * axis))
                if axis:
                    stride = self.mul(stride, self.value(f"call i64 @llvm.smax.i64(i64 {shape[axis]}, i64 1)"))
            dtype = self.narrow(self.word(f"output{k}", "i64"), "i32")
            words = [f"i64 {len(shape)}", f"ptr {sizes}", f"ptr {strides}", f"i32 {dtype}", "i32 0", "i32 0"]
            code = self.call(self.word("empty"), [*words, f"ptr {self.answer}"], "i32")
            failed = self.compare("ne", code, 0, "i32")
            with self.when(failed):
                self.release(made)
            self.need(self.value(f"xor i1 {failed}, true"))
            made.append(self.load("ptr", self.answer))
        return made

    def release(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self.call(self.word("delete"), [f"ptr {handle}"], "i32")
