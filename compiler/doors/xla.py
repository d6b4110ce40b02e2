"""The door of XLA: a handler of its foreign function interface, for JAX.

    XLA_FFI_Error *ek_door(XLA_FFI_CallFrame *)

XLA calls it from its own threads, several at once, and without Python's lock. It answers the question for its version,
reads sizes from the buffers, and calls the entry, which writes into the buffers of the results. An argument that is
changed in place is a result that has its memory. When a kernel stops itself, the error has the text that Python gives.
When a signal's handler has raised, the call ends as if it was done, and SIGINT is tripped: Python raises the exception
when XLA returns to it, and what has been computed is dropped.

Results may have further axes in front, those of a batch: the entry is called for one member after the other, and
operands without these axes are the same for all. Where the kernel is elementwise (the form says so), one call does it.

XLA's structures begin with their size, and grow at their ends; where one is smaller than what is read here, the handler
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.contract.doors import DoorSpec
from ...dsl.contract.foreign_doors import TABLE, handler_words
from ...dsl.signature.dims import DimName
from ...dsl.signature.dims import DimNumber as Literal
from ...dsl.types.dtype import DType
from ..ir.llvm_text import Number
from .text import DECLARATIONS, DoorText, run_text

MAJOR, MINOR = 0, 3  # of the interface

# Fields of XLA_FFI_CallFrame, of the structures in it, and of those that they point to: their offsets in bytes.
_EXTENSION, _API, _STAGE, _ARGUMENTS, _RESULTS, _FRAME_SIZE = 8, 16, 32, 40, 80, 120
_COUNT, _BUFFERS = 16, 32
_DTYPE, _DATA, _RANK, _DIMS, _BUFFER_SIZE = 16, 24, 32, 40, 48
_EXTENSION_TYPE, _METADATA, _VERSION_MAJOR, _VERSION_MINOR = 8, 24, 24, 28
_ERROR_CREATE, _ERROR_SIZE, _ERROR_MESSAGE, _ERROR_CODE = 48, 28, 16, 24
_EXECUTE, _METADATA_QUERY = 3, 1
_INVALID_ARGUMENT, _FAILED_PRECONDITION = 3, 9

_DTYPES: Final = {
    DType.bool: 1,
    DType.int8: 2,
    DType.int16: 3,
    DType.int32: 4,
    DType.int64: 5,
    DType.uint8: 6,
    DType.uint16: 7,
    DType.uint32: 8,
    DType.uint64: 9,
    DType.float16: 10,
    DType.float32: 11,
    DType.float64: 12,
    DType.complex64: 15,
    DType.complex128: 18,
    DType.bfloat16: 16,
    DType.float8_e5m2: 19,
    DType.float8_e4m3fn: 20,
    DType.float8_e5m2fnuz: 24,
    DType.float8_e4m3fnuz: 25,
    DType.float8_e8m0fnu: 33,
}

_TEXTS: Final = {
    "misfit": b"the buffers of a call do not fit the kernel that the handler was made for\0",
    "unread": b"a kernel stopped itself, and there was no room to say why\0",
}


def xla_text(spec: DoorSpec, form: object = None) -> str:
    """The text of the handler; `form` says whether the kernel is elementwise."""
    words = handler_words(spec)
    heads = [
        f"@{TABLE} = global ptr null",
        *(f'@{name} = internal constant [{len(text)} x i8] c"{_escaped(text)}"' for name, text in _TEXTS.items()),
        DECLARATIONS,
        _error_text(),
        run_text(words, lock=False),
    ]
    return "\n".join([*heads, _Handler(spec, words, bool(form)).written()])


class _Handler(DoorText):
    """The handler, as it is written."""

    def __init__(self, spec: DoorSpec, words: Sequence[str], merges: bool) -> None:
        super().__init__("@ek_door", "ptr", ["ptr %frame"], words)
        self.spec = spec
        self.merges = merges
        self.known: dict[str, Number] = {}
        self.many = "false"

    def written(self) -> str:
        self.answer()
        self.need(self.compare("sge", self.load("i64", "%frame"), _FRAME_SIZE))
        stage = self.load("i32", self.at("%frame", _STAGE))
        with self.when(self.compare("ne", stage, _EXECUTE, "i32")):
            self.leave("null")
        self.table = self.load("ptr", f"@{TABLE}")
        spec = self.spec
        changed = [number for number, argument in enumerate(spec.arguments) if argument.mutable]
        arguments = self.buffers(_ARGUMENTS, len(spec.arguments))
        results = self.buffers(_RESULTS, len(spec.outputs) + len(changed))
        ranks = [len(output.axes) for output in spec.outputs] + [len(spec.arguments[k].axes) for k in changed]
        self.lead(results[0], ranks[0], arguments)
        inputs = []
        for buffer, argument in zip(arguments, spec.arguments, strict=True):
            sizes, step = self.sizes(buffer, argument.dtype, len(argument.axes), argument.mutable)
            for axis, size in zip(argument.axes, sizes, strict=True):
                self.match(axis, size)
            self.weigh(sizes)
            inputs.append((self.load("ptr", self.at(buffer, _DATA)), step))
        self.need_relations(spec, self.known)
        outputs = []
        for buffer, output in zip(results, spec.outputs, strict=False):
            sizes, step = self.sizes(buffer, output.dtype, len(output.axes), True)
            for expression, size in zip(output.axes, sizes, strict=True):
                self.need_same(self.size(expression, self.known), size, "i64")
            self.weigh(sizes)
            outputs.append((self.load("ptr", self.at(buffer, _DATA)), step))
        for buffer, number in zip(results[len(outputs) :], changed, strict=True):
            self.need_same(self.load("ptr", self.at(buffer, _DATA)), inputs[number][0])
        slots = self.slots(spec, self.known)
        with self.each(0, self.members) as member:
            moved = [[self.at(base, self.mul(member, step)) for base, step in each] for each in (inputs, outputs)]
            context, status, failed = self.run(self.pointers(spec, *moved), slots, self.many)
            with self.when(failed):
                text = self.call(self.word("explain"), [f"ptr {context}", f"i64 {status}"], "ptr")
                with self.when(self.compare("eq", text, "inttoptr (i64 1 to ptr)", "ptr")):
                    self.call(self.word("interrupt"), ["i32 2"], "i32")
                    self.leave("null")
                unread = self.compare("eq", text, "null", "ptr")
                self.leave(self.error(self.select(unread, "@unread", text, "ptr"), _FAILED_PRECONDITION))
        self.leave("null")
        self.line("br label %miss.")
        self.label("miss.")
        self.leave(self.error("@misfit", _INVALID_ARGUMENT))
        return self.text()

    def answer(self) -> None:
        """Says which version of the interface this is, when XLA requests it."""
        extension = self.load("ptr", self.at("%frame", _EXTENSION))
        with self.when(self.compare("ne", extension, "null", "ptr")):
            kind = self.load("i32", self.at(extension, _EXTENSION_TYPE))
            with self.when(self.compare("eq", kind, _METADATA_QUERY, "i32")):
                metadata = self.load("ptr", self.at(extension, _METADATA))
                self.store("i32", MAJOR, self.at(metadata, _VERSION_MAJOR))
                self.store("i32", MINOR, self.at(metadata, _VERSION_MINOR))
                self.leave("null")

    def buffers(self, offset: int, count: int) -> list[str]:
        """The buffers of the arguments, or of the results."""
        self.need_same(self.load("i64", self.at("%frame", offset + _COUNT)), count, "i64")
        if not count:
            return []
        result = self.load("ptr", self.at("%frame", offset + _BUFFERS))
        return [self.load("ptr", self.at(result, 8 * number)) for number in range(count)]

    def lead(self, buffer: str, rank: int, arguments: Sequence[str]) -> None:
        """Reads of the first result how many further axes results begin with, and what these mean: members of a batch,
        or, where tensors have them all and the kernel is elementwise, a part of the first axis."""
        self.need(self.compare("sge", self.load("i64", buffer), _BUFFER_SIZE))
        self.further = self.sub(self.load("i64", self.at(buffer, _RANK)), rank)
        self.need(self.compare("sge", self.further, 0))
        self.batch = self.product(self.load("ptr", self.at(buffer, _DIMS)), self.further)
        self.merged = "true" if self.merges and rank else "false"
        if self.merged == "true":
            for each, argument in zip(arguments, self.spec.arguments, strict=True):
                own, wanted = len(argument.axes), self.load("i64", self.at(each, _RANK))
                fits = self.compare("eq", wanted, self.add(self.further, own) if own else 0)
                self.merged = self.both(self.merged, fits, "i1")
        self.members: Number = self.select(self.merged, 1, self.batch)

    def sizes(self, buffer: str, dtype: DType, rank: int, batched: bool) -> tuple[list[Number], Number]:
        """The size of each axis of a buffer for one member, and how many bytes are from one member to the next.

        It has this dtype, and this rank behind the further axes, which it may be without where it is not `batched`.
        """
        self.need(self.compare("sge", self.load("i64", buffer), _BUFFER_SIZE))
        self.need_same(self.load("i32", self.at(buffer, _DTYPE)), _DTYPES[dtype], "i32")
        own, dims = self.load("i64", self.at(buffer, _RANK)), self.load("ptr", self.at(buffer, _DIMS))
        whole = self.compare("eq", own, self.add(self.further, rank))
        self.need(whole if batched else self.either(whole, self.compare("eq", own, rank), "i1"))
        before = self.sub(own, rank)
        lead = self.product(dims, before)
        self.need_same(lead, self.select(whole, self.batch, 1), "i64")
        sizes: list[Number] = [
            self.load("i64", self.at(dims, self.mul(self.add(before, axis), 8))) for axis in range(rank)
        ]
        if rank and self.merged != "false":
            sizes[0] = self.mul(sizes[0], self.select(self.merged, lead, 1))
        apart = self.both(whole, self.value(f"xor i1 {self.merged}, true"), "i1")
        return sizes, self.select(apart, self.mul(self.elements(sizes), dtype.size_in_bytes), 0)

    def product(self, dims: str, count: Number) -> str:
        """The product of the first sizes of a buffer."""
        result = self.variable("i64", 1)
        with self.each(0, count) as axis:
            result.set(self.mul(result.value(), self.load("i64", self.at(dims, self.mul(axis, 8)))))
        return result.value()

    def match(self, axis: Literal | DimName, size: Number) -> None:
        """Takes the size of an axis, or compares it with what is known."""
        known = axis.value if isinstance(axis, Literal) else self.known.get(axis.name)
        if known is not None:
            self.need_same(known, size, "i64")
        elif isinstance(axis, DimName):
            self.known[axis.name] = size

    def weigh(self, sizes: Sequence[Number]) -> None:
        """Notes whether a tensor is large enough for more than one thread."""
        if sizes:
            count = self.elements(sizes)
            self.many = self.either(self.many, self.compare("sgt", count, self.spec.small), "i1")

    def error(self, text: str, code: int) -> str:
        """An error of XLA's with this text."""
        return self.call("@error", ["ptr %frame", f"ptr {text}", f"i32 {code}"], "ptr")


def _escaped(text: bytes) -> str:
    return "".join(f"\\{byte:02X}" for byte in text)


def _error_text() -> str:
    f = DoorText("@error", "ptr", ["ptr %frame", "ptr %text", "i32 %code"], ())
    f.head = f.head.replace("define ", "define internal ", 1)
    arguments = f.block(4)
    f.store("i64", _ERROR_SIZE, arguments)
    f.store("ptr", "null", f.at(arguments, 8))
    f.store("ptr", "%text", f.at(arguments, _ERROR_MESSAGE))
    f.store("i32", "%code", f.at(arguments, _ERROR_CODE))
    api = f.load("ptr", f.at("%frame", _API))
    f.leave(f.call(f.load("ptr", f.at(api, _ERROR_CREATE)), [f"ptr {arguments}"], "ptr"))
    return f.text()
