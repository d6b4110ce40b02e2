"""Writes code that appends to texts, and that shows a float with the fewest digits that give it again.

A sink is where text goes: its memory, the room in it, and how many bytes it was given, 8 bytes each. More than it has
room for is counted and left out.

    void ek.put(sink, bytes, count)
    void ek.digits(sink, value, narrow)    as Python's repr writes a float; `narrow` is 1 for a float32

The digits are found by trial: with 1, 2, … of them until C's strtod gives the number again.
"""

from __future__ import annotations

from typing import Final

from ..ir.llvm_text import FunctionText

PRINTF: Final = "i32 (ptr, i64, ptr, ...) @snprintf"
WORDS: Final = (
    "nan",
    "inf",
    "-inf",
    "True",
    "False",
    "%.*e",
    "a kernel failed without a message",
    "status %d",
    "%02d",
)
NAN, INF, MINUS_INF, TRUE, FALSE, SCIENTIFIC, UNKNOWN, STATUS, EXPONENT = range(9)


def word(number: int) -> str:
    return f"@ek.word.{number}"


def put_text() -> str:
    """The constant words, and `ek.put`."""
    f = FunctionText("@ek.put", "void", ["ptr %sink", "ptr %bytes", "i64 %count"], attributes="internal|noinline")
    memory, room, used = f.load("ptr", "%sink"), f.load("i64", f.at("%sink", 8)), f.load("i64", f.at("%sink", 16))
    with f.each(0, "%count") as k:
        place = f.add(used, k)
        with f.when(f.compare("slt", f.add(place, 1), room)):
            f.store("i8", f.load("i8", f.at("%bytes", k)), f.at(memory, place))
            f.store("i8", 0, f.at(memory, f.add(place, 1)))
    f.store("i64", f.add(used, "%count"), f.at("%sink", 16))
    f.leave()
    words = [f'@ek.word.{k} = internal constant [{len(each) + 1} x i8] c"{each}\\00"' for k, each in enumerate(WORDS)]
    return "\n".join([*words, f.text()])


def put_word(f: FunctionText, number: int) -> None:
    f.call("@ek.put", ["ptr %sink", f"ptr {word(number)}", f"i64 {len(WORDS[number])}"])


def put_byte(f: FunctionText, value: str, room: str) -> None:
    f.store("i8", value, room)
    f.call("@ek.put", ["ptr %sink", f"ptr {room}", "i64 1"])


def buffer(f: FunctionText, size: int) -> str:
    name = f"%{f.fresh('buffer')}"
    f.variables.append(f"  {name} = alloca [{size} x i8], align 16")
    return name


def digits_text() -> str:
    """The text of `ek.digits`, and of what it calls."""
    return f"declare i64 @llvm.smin.i64(i64, i64)\n{_shortest()}{_scan()}{_digits()}"


def _shortest() -> str:
    """`shortest(text, value, narrow)` writes a number with its fewest digits, as d.ddde+dd."""
    f = FunctionText(
        "@ek.shortest", "void", ["ptr %text", "double %value", "i1 %narrow"], attributes="internal|noinline"
    )
    exact = f.value("fptrunc double %value to float")
    with f.each(0, 17) as digits:
        count = f.narrow(digits, "i32")
        f.line(f"call {PRINTF}(ptr %text, i64 48, ptr {word(SCIENTIFIC)}, i32 {count}, double %value)")
        again = f.call("@strtod", ["ptr %text", "ptr null"], "double")
        same = f.value(f"fcmp oeq double {again}, %value")
        same_narrow = f.value(f"fcmp oeq float {f.value(f'fptrunc double {again} to float')}, {exact}")
        with f.when(f.select("%narrow", same_narrow, same, "i1")):
            f.leave()
    f.leave()
    return f.text()


def _scan() -> str:
    """`scan(text, digits, count)` takes such a text apart: its digits, how many there are, and the power of ten."""
    f = FunctionText("@ek.scan", "i64", ["ptr %text", "ptr %digits", "ptr %count"], attributes="internal|noinline")
    place, count, power, sign = (f.variable("i64", first) for first in (0, 0, 0, 1))
    behind = f.variable("i1", "false")  # the letter e
    char = f.variable("i8", f.load("i8", "%text"))
    with f.while_(lambda: f.compare("ne", char.value(), 0, "i8")):
        now = char.value()
        digit = f.sub(f.wide(now, "i8"), 48)
        with f.when(f.compare("ult", digit, 10)):
            with f.when(behind.value()):
                power.set(f.add(f.mul(power.value(), 10), digit))
            with f.when(f.value(f"xor i1 {behind.value()}, true")):
                f.store("i8", now, f.at("%digits", count.value()))
                count.set(f.add(count.value(), 1))
        with f.when(f.compare("eq", now, ord("e"), "i8")):
            behind.set("true")
        with f.when(f.both(f.compare("eq", now, ord("-"), "i8"), behind.value(), "i1")):
            sign.set(-1)
        place.set(f.add(place.value(), 1))
        char.set(f.load("i8", f.at("%text", place.value())))
    f.store("i64", count.value(), "%count")
    f.leave(f.mul(power.value(), sign.value()))
    return f.text()


def _digits() -> str:
    f = FunctionText("@ek.digits", "void", ["ptr %sink", "double %value", "i1 %narrow"], attributes="internal|noinline")
    for test, number in (
        ("fcmp uno double %value, %value", NAN),
        ("fcmp oeq double %value, 0x7FF0000000000000", INF),
        ("fcmp oeq double %value, 0xFFF0000000000000", MINUS_INF),
    ):
        with f.when(f.value(test)):
            put_word(f, number)
            f.leave()
    text, digits, byte, count = (buffer(f, size) for size in (48, 32, 8, 8))
    f.call("@ek.shortest", [f"ptr {text}", "double %value", "i1 %narrow"])
    power = f.call("@ek.scan", [f"ptr {text}", f"ptr {digits}", f"ptr {count}"], "i64")
    total = f.load("i64", count)

    def put(first: str | int, last: str | int) -> None:
        f.call("@ek.put", ["ptr %sink", f"ptr {f.at(digits, first)}", f"i64 {f.sub(last, first)}"])

    def put_zeros(number: str | int) -> None:
        with f.each(0, number):
            put_byte(f, "48", byte)

    with f.when(f.compare("eq", f.load("i8", text), ord("-"), "i8")):
        put_byte(f, "45", byte)
    with f.when(f.both(f.compare("sge", power, -4), f.compare("slt", power, 16), "i1")):
        with f.when(f.compare("slt", power, 0)):
            put_byte(f, "48", byte)
            put_byte(f, "46", byte)
            put_zeros(f.sub(f.sub(0, power), 1))
            put(0, total)
            f.leave()
        whole = f.add(power, 1)
        inside = f.value(f"call i64 @llvm.smin.i64(i64 {whole}, i64 {total})")
        put(0, inside)
        put_zeros(f.sub(whole, inside))
        put_byte(f, "46", byte)
        with f.when(f.compare("eq", inside, total)):
            put_byte(f, "48", byte)
        put(inside, total)
        f.leave()
    put(0, 1)
    with f.when(f.compare("sgt", total, 1)):
        put_byte(f, "46", byte)
        put(1, total)
    put_byte(f, "101", byte)
    low = f.compare("slt", power, 0)
    put_byte(f, f.value(f"select i1 {low}, i8 45, i8 43"), byte)
    most = f.narrow(f.select(low, f.sub(0, power), power), "i32")
    length = f.value(f"call {PRINTF}(ptr {text}, i64 48, ptr {word(EXPONENT)}, i32 {most})")
    f.call("@ek.put", ["ptr %sink", f"ptr {text}", f"i64 {f.value(f'sext i32 {length} to i64')}"])
    f.leave()
    return f.text()
