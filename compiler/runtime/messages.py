"""The code that writes messages in exported files: why a call has failed, and what kernels print.

    size_t ek_describe(why, text, room)    the message of a failure; how many bytes it has, without its end
    void ek_print(row, values)             a print, to the hook or to standard output

Each message is a short program of bytes, which `ek.message` runs: text as it is; `VALUE`, a letter, two digits of the
number of a value, a format of C's printf, a zero byte. Floats without a format have the fewest digits that give them
again, as Python writes them (see `runtime.digits`). The program ends in `END`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...dsl.contract.exports import FAILURE_VALUES, WRONG_MACHINE, ExportedFailure, Message, Shown
from ...dsl.types.dtype import DType
from ..ir.llvm_text import FunctionText
from .digits import FALSE, PRINTF, STATUS, TRUE, UNKNOWN, buffer, digits_text, put_text, put_word, word

VALUE: Final = b"\x01"
END: Final = b"\x03"
BASE: Final = 64  # of the two digits of a value's number, which begin at "0"
BUFFER: Final = 2048  # bytes of a print that needs no memory

# What C's printf says as Python's format does: flags, a width, digits, and a letter.
_INTEGER: Final = re.compile(r"(?P<align>[<>]?)(?P<sign>[-+ ]?)(?P<zero>0?)(?P<width>\d*)d?")
_FLOAT: Final = re.compile(
    r"(?P<align>[<>]?)(?P<sign>[-+ ]?)(?P<zero>0?)(?P<width>\d*)(?P<digits>\.\d+)?(?P<kind>[eEfFgG])"
)


def program_of(message: Message) -> bytes:
    """The bytes of a message."""
    return b"".join(_text(part) if isinstance(part, str) else _value(part, message) for part in message.parts)


def is_plain(shown: Shown) -> bool:
    """Whether a value is shown without its format, which C has no word for."""
    return bool(shown.spec) and _format_of(shown) is None


def _text(text: str) -> bytes:
    return re.sub(rb"[\x00-\x03]", b"?", text.encode("utf-8", "replace"))


def _value(shown: Shown, message: Message) -> bytes:
    if message.status > 0 and shown.value >= FAILURE_VALUES:
        return b"..."  # a record of a failure holds no more
    number = shown.value + 2
    known = _format_of(shown)
    letter, format = known if known is not None else _plain(shown.dtype)
    return VALUE + letter.encode() + bytes([48 + number // BASE, 48 + number % BASE]) + format.encode() + b"\0"


def _plain(dtype: DType) -> tuple[str, str]:
    if dtype is DType.bool:
        return "b", ""
    if dtype.is_float():
        return ("s" if dtype is DType.float32 else "f"), ""
    return "i", "%lu" if dtype is DType.uint64 else "%ld"


def _format_of(shown: Shown) -> tuple[str, str] | None:
    """The letter and the format of a value that has a format of Python's; None where C has no such."""
    if not shown.spec:
        return None
    whole = _INTEGER.fullmatch(shown.spec)
    if whole and not shown.dtype.is_float():
        return "i", f"%{_flags(whole)}{whole['width']}l{'u' if shown.dtype is DType.uint64 else 'd'}"
    real = _FLOAT.fullmatch(shown.spec)
    if real is None:
        return None
    return (
        "F" if shown.dtype.is_float() else "I"
    ), f"%{_flags(real)}{real['width']}{real['digits'] or ''}{real['kind']}"


def _flags(match: re.Match[str]) -> str:
    flags = "-" if match["align"] == "<" else match["zero"]
    return flags + match["sign"].replace("-", "")


def messages_text(messages: Sequence[Message], *, hook: bool) -> str:
    """The text of the functions and of their table; with `hook`, of `ek_set_print`, too."""
    data, offsets = b"", []
    for message in messages:
        offsets.append(len(data))
        data += program_of(message) + END
    quoted = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data or b"\0")
    table = ", ".join(f"i32 {offset}" for offset in offsets or [0])
    lines = [
        _DECLARATIONS,
        f'@ek.text = internal constant [{len(data) or 1} x i8] c"{quoted}"',
        f"@ek.places = internal constant [{len(offsets) or 1} x i32] [{table}]",
        put_text(),
        digits_text(),
        _value_text(),
        _message(),
        _describe(next((row for row, each in enumerate(messages) if each.status == WRONG_MACHINE), -1)),
        _print(hook),
    ]
    if hook:
        lines += ["@ek.hook = internal global [2 x ptr] zeroinitializer, align 16", _SET_PRINT]
    return "\n".join(lines)


_DECLARATIONS: Final = """
declare i32 @snprintf(ptr, i64, ptr, ...)
declare double @strtod(ptr, ptr)
declare i64 @write(i32, ptr, i64)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare double @llvm.fabs.f64(double)
"""

# set_print(function, data): function(text, bytes, data) is called with each print; null is standard output again.
_SET_PRINT: Final = """
define void @ek_set_print(ptr %function, ptr %data) {
begin.:
  %at = getelementptr inbounds i8, ptr @ek.hook, i64 8
  store ptr %data, ptr %at
  store atomic ptr %function, ptr @ek.hook release, align 8
  ret void
}
"""


def _message() -> str:
    """`message(sink, row, values)` runs the program of a row."""
    f = FunctionText("@ek.message", "void", ["ptr %sink", "i64 %row", "ptr %values"], attributes="internal|noinline")
    first = f.wide(f.load("i32", f.at("@ek.places", f.left("%row", 2))), "i32")
    place = f.variable("ptr", f.at("@ek.text", first))

    def byte(offset: int = 0) -> str:
        return f.load("i8", f.at(place.value(), offset))

    with f.while_(lambda: f.compare("ne", byte(), END[0], "i8")):
        is_text = f.compare("ne", byte(), VALUE[0], "i8")
        with f.when(is_text):
            f.call("@ek.put", ["ptr %sink", f"ptr {place.value()}", "i64 1"])
            place.set(f.at(place.value(), 1))
        with f.when(f.value(f"xor i1 {is_text}, true")):
            high, low = (f.sub(f.wide(byte(k), "i8"), 48) for k in (2, 3))
            number = f.sub(f.add(f.mul(high, BASE), low), 2)
            bits = f.load("i64", f.at("%values", f.left(number, 3)))
            format = f.at(place.value(), 4)
            f.call("@ek.value", ["ptr %sink", f"i8 {byte(1)}", f"ptr {format}", f"i64 {bits}"])
            place.set(format)
            with f.while_(lambda: f.compare("ne", byte(), 0, "i8")):
                place.set(f.at(place.value(), 1))
            place.set(f.at(place.value(), 1))
    f.leave()
    return f.text()


def _value_text() -> str:
    """`value(sink, letter, format, bits)` appends a value."""
    given = ["ptr %sink", "i8 %letter", "ptr %format", "i64 %bits"]
    f = FunctionText("@ek.value", "void", given, attributes="internal|noinline")

    def is_letter(wanted: str) -> str:
        return f.compare("eq", "%letter", ord(wanted), "i8")

    with f.when(is_letter("b")):
        with f.when(f.compare("ne", "%bits", 0)):
            put_word(f, TRUE)
            f.leave()
        put_word(f, FALSE)
        f.leave()
    real = f.value("bitcast i64 %bits to double")
    for letter, narrow in (("f", "false"), ("s", "true")):
        with f.when(is_letter(letter)):
            f.call("@ek.digits", ["ptr %sink", f"double {real}", f"i1 {narrow}"])
            f.leave()
    text = buffer(f, 512)
    put = f"call {PRINTF}(ptr {text}, i64 512, ptr %format"
    written = f.variable("i32", 0)
    with f.when(is_letter("i")):
        written.set(f.value(f"{put}, i64 %bits)"))
    with f.when(is_letter("I")):
        written.set(f.value(f"{put}, double {f.value('sitofp i64 %bits to double')})"))
    with f.when(is_letter("F")):
        strange = f.value(f"fcmp uno double {real}, {real}")
        shown = f.value(f"select i1 {strange}, double 0x7FF8000000000000, double {real}")
        written.set(f.value(f"{put}, double {shown})"))
    size = f.value(f"sext i32 {written.value()} to i64")
    size = f.value(f"call i64 @llvm.smin.i64(i64 {size}, i64 511)")
    _replace_commas(f, text, size)
    f.call("@ek.put", ["ptr %sink", f"ptr {text}", f"i64 {size}"])
    f.leave()
    return f.text()


def _replace_commas(f: FunctionText, text: str, size: str) -> None:
    """The decimal point of the host's locale may be a comma."""
    with f.each(0, size) as k:
        comma = f.compare("eq", f.load("i8", f.at(text, k)), ord(","), "i8")
        with f.when(comma):
            f.store("i8", ord("."), f.at(text, k))


def _sink(f: FunctionText, memory: str, room: str | int) -> str:
    name = f"%{f.fresh('sink')}"
    f.variables.append(f"  {name} = alloca [3 x i64], align 16")
    f.store("ptr", memory, name)
    f.store("i64", room, f.at(name, 8))
    f.store("i64", 0, f.at(name, 16))
    return name


def _describe(machine: int) -> str:
    """`machine` is the row about machines below the lowest level: what chooses the level does not know it."""
    f = FunctionText("@ek_describe", "i64", ["ptr %why", "ptr %text", "i64 %room"], attributes="|noinline")
    with f.when(f.both(f.compare("ne", "%text", "null", "ptr"), f.compare("ne", "%room", 0), "i1")):
        f.store("i8", 0, "%text")
    with f.when(f.compare("eq", "%why", "null", "ptr")):
        f.leave(0)
    room = f.select(f.compare("eq", "%text", "null", "ptr"), 0, "%room")
    sink = _sink(f, "%text", room)
    f.line(f"%sink = getelementptr i8, ptr {sink}, i64 0")
    status = f.load("i32", "%why")
    with f.when(f.compare("eq", status, 0, "i32")):
        f.leave(0)
    row = f.load("i32", f.at("%why", ExportedFailure.row.offset))
    row = f.select(f.compare("eq", status, WRONG_MACHINE, "i32"), machine, row, "i32")
    known = f.compare("sge", row, 0, "i32")
    with f.when(known):
        number = f.value(f"zext i32 {row} to i64")
        values = f.at("%why", ExportedFailure.values.offset)
        f.call("@ek.message", ["ptr %sink", f"i64 {number}", f"ptr {values}"])
        f.leave(f.load("i64", f.at("%sink", 16)))
    with f.when(f.compare("sgt", status, 0, "i32")):
        put_word(f, UNKNOWN)
        f.leave(f.load("i64", f.at("%sink", 16)))
    text = buffer(f, 48)
    length = f.value(f"call {PRINTF}(ptr {text}, i64 48, ptr {word(STATUS)}, i32 {status})")
    f.call("@ek.put", ["ptr %sink", f"ptr {text}", f"i64 {f.value(f'sext i32 {length} to i64')}"])
    f.leave(f.load("i64", f.at("%sink", 16)))
    return f.text()


def _print(hook: bool) -> str:
    f = FunctionText("@ek_print", "void", ["i64 %row", "ptr %values"], attributes="|noinline")
    here = buffer(f, BUFFER)
    memory, room = f.variable("ptr", here), f.variable("i64", BUFFER)
    sink = _sink(f, here, BUFFER)
    f.call("@ek.message", [f"ptr {sink}", "i64 %row", "ptr %values"])
    used = f.load("i64", f.at(sink, 16))
    with f.when(f.compare("sge", used, BUFFER)):
        needed = f.both(f.add(used, 64), -64)
        more = f.call("@aligned_alloc", ["i64 64", f"i64 {needed}"], "ptr")
        with f.when(f.compare("ne", more, "null", "ptr")):
            memory.set(more)
            room.set(needed)
            f.store("ptr", more, sink)
            f.store("i64", needed, f.at(sink, 8))
            f.store("i64", 0, f.at(sink, 16))
            f.call("@ek.message", [f"ptr {sink}", "i64 %row", "ptr %values"])
    size = f.value(f"call i64 @llvm.smin.i64(i64 {used}, i64 {f.sub(room.value(), 1)})")
    written = f.variable("i64", 0)
    if hook:
        function = f.value("load atomic ptr, ptr @ek.hook acquire, align 8")
        with f.when(f.compare("ne", function, "null", "ptr")):
            data = f.load("ptr", f.at("@ek.hook", 8))
            f.call(function, [f"ptr {memory.value()}", f"i64 {size}", f"ptr {data}"])
            written.set(size)
    with f.while_(lambda: f.compare("slt", written.value(), size)):
        rest = f.sub(size, written.value())
        some = f.call("@write", ["i32 1", f"ptr {f.at(memory.value(), written.value())}", f"i64 {rest}"], "i64")
        written.set(f.select(f.compare("sgt", some, 0), f.add(written.value(), some), size))
    with f.when(f.compare("ne", memory.value(), here, "ptr")):
        f.call("@free", [f"ptr {memory.value()}"])
    f.leave()
    return f.text()
