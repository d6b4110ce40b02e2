"""Writes functions of LLVM IR with conditions and loops that nest as in Python.

    f = FunctionText("@largest", "i64", ["ptr %numbers", "i64 %count"])
    best = f.variable("i64", "0")
    with f.each("0", "%count") as k:
        number = f.load("i64", f.at("%numbers", f.mul(k, 8)))
        with f.when(f.compare("sgt", number, best.value())):
            best.set(number)
    f.leave(best.value())
    text = f.text()

Variables lie on the stack, from where LLVM takes them. Numbers are i64 and are written as they are; addresses are
`ptr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass

Number = str | int
NO_ADDRESS: Final = "zeroinitializer"  # as a `ptr`


class FunctionText:
    """One function; methods give names of values."""

    def __init__(self, name: str, result: str, parameters: Sequence[str], *, attributes: str = "") -> None:
        self.head = f"define {attributes.split('|')[0]} {result} {name}({', '.join(parameters)})"
        self.head += f" {attributes.partition('|')[2]} {{"
        self.result = result
        self.variables: list[str] = []
        self.lines: list[str] = []
        self.count = 0

    def text(self) -> str:
        """The function; a path without another end returns nothing."""
        end = "ret void" if self.result == "void" else "unreachable"
        return "\n".join([self.head, "begin.:", *self.variables, *self.lines, f"  {end}", "}", ""])

    # lines

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """The result of an operation."""
        name = f"%{self.fresh()}"
        self.line(f"{name} = {text}")
        return name

    # numbers

    def add(self, a: Number, b: Number) -> str:
        return self.value(f"add i64 {a}, {b}")

    def sub(self, a: Number, b: Number) -> str:
        return self.value(f"sub i64 {a}, {b}")

    def mul(self, a: Number, b: Number) -> str:
        return self.value(f"mul i64 {a}, {b}")

    def divide(self, a: Number, b: Number) -> str:
        return self.value(f"udiv i64 {a}, {b}")

    def rest(self, a: Number, b: Number) -> str:
        return self.value(f"urem i64 {a}, {b}")

    def both(self, a: Number, b: Number, type: str = "i64") -> str:
        return self.value(f"and {type} {a}, {b}")

    def either(self, a: Number, b: Number, type: str = "i64") -> str:
        return self.value(f"or {type} {a}, {b}")

    def left(self, a: Number, by: Number) -> str:
        return self.value(f"shl i64 {a}, {by}")

    def right(self, a: Number, by: Number) -> str:
        return self.value(f"lshr i64 {a}, {by}")

    def compare(self, how: str, a: Number, b: Number, type: str = "i64") -> str:
        """An i1; `how` is one of LLVM's words, such as `eq` and `ult`."""
        return self.value(f"icmp {how} {type} {a}, {b}")

    def select(self, test: str, a: Number, b: Number, type: str = "i64") -> str:
        return self.value(f"select i1 {test}, {type} {a}, {type} {b}")

    def wide(self, value: str, type: str) -> str:
        """A narrower unsigned number as an i64."""
        return self.value(f"zext {type} {value} to i64")

    def narrow(self, value: str, type: str) -> str:
        return self.value(f"trunc i64 {value} to {type}")

    # memory

    def at(self, pointer: str, offset: Number) -> str:
        """The address so many bytes further on."""
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, type: str, pointer: str) -> str:
        return self.value(f"load {type}, ptr {pointer}, align 1")

    def store(self, type: str, value: Number, pointer: str) -> None:
        self.line(f"store {type} {value}, ptr {pointer}, align 1")

    def variable(self, type: str, first: Number) -> Variable:
        name = f"%{self.fresh('at')}"
        self.variables.append(f"  {name} = alloca {type}, align 8")
        made = Variable(self, type, name)
        made.set(first)
        return made

    # control

    def call(self, function: str, arguments: Sequence[str], result: str = "void") -> str:
        text = f"call {result} {function}({', '.join(arguments)})"
        if result != "void":
            return self.value(text)
        self.line(text)
        return ""

    def leave(self, value: Number = "") -> None:
        """Returns from the function; what follows is reached from elsewhere, or never."""
        self.line(f"ret {self.result}{f' {value}' if value != '' else ''}")
        self.label(self.fresh("after"))

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    @contextmanager
    def when(self, test: str) -> Iterator[None]:
        """What is done where an i1 holds."""
        inside, after = self.fresh("then"), self.fresh("done")
        self.line(f"br i1 {test}, label %{inside}, label %{after}")
        self.label(inside)
        yield
        self.line(f"br label %{after}")
        self.label(after)

    @contextmanager
    def each(self, low: Number, high: Number) -> Iterator[str]:
        """What is done for every number from low up to high."""
        number = self.variable("i64", low)
        with self.while_(lambda: self.compare("slt", number.value(), high)):
            now = number.value()
            yield now
            number.set(self.add(now, 1))

    @contextmanager
    def while_(self, test: Callable[[], str]) -> Iterator[None]:
        """What is done as long as the i1 that `test()` gives holds."""
        again, inside, after = self.fresh("again"), self.fresh("round"), self.fresh("done")
        self.line(f"br label %{again}")
        self.label(again)
        holds = test()
        self.line(f"br i1 {holds}, label %{inside}, label %{after}")
        self.label(inside)
        yield
        self.line(f"br label %{again}")
        self.label(after)


@dataclass
class Variable:
    """Something that is set again."""

    function: FunctionText
    type: str
    name: str

    def value(self) -> str:
        return self.function.value(f"load {self.type}, ptr {self.name}, align 8")

    def set(self, value: Number) -> None:
        self.function.line(f"store {self.type} {value}, ptr {self.name}, align 8")
