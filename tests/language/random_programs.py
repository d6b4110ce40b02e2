"""Random functions in the kernel language that are also plain Python: whole numbers, structs, branches, loops, helpers.

Every assignment keeps numbers small, so that Python's integers and 64-bit ones agree.
"""

from __future__ import annotations

import random

PAIR = """
class Pair:
    a: Any
    b: Any = 1

    def __add__(self, other):
        return Pair((self.a + other.a) % 211, self.b ^ other.b)

    def turned(self, by=2):
        for k in range(by):
            if self.a > k * 9:
                return Pair(self.b, self.a - k)
        return self
"""
NAMES = ["a", "b", "c", "d"]


class Writer:
    """Writes one function; `depth` bounds how far statements nest."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.fresh = 0

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def text(self) -> str:
        """The function and a helper of its own."""
        helper, couple = f"helper_{self.seed}", f"couple_{self.seed}"
        self.lines.append(f"def {helper}(p, q=3, *, r=1):")
        self.names = ["p", "q", "r"]
        self.block(1, 2, "function")
        self.line(1, f"return ({self.expression(2)}) % 97")
        self.lines += ["", "", f"def {couple}(p, q, r):"]
        self.result = "pair"
        self.loop(1, 3, "function")
        self.line(1, f"return ({self.expression(2)}) % 97, r")
        self.result = "number"
        self.lines += ["", "", f"def program_{self.seed}(v, w):"]
        self.names = ["v", "w", *NAMES]
        for name in NAMES:
            self.line(1, f"{name} = {self.pick('0', '1', '5', 'v', 'w', 'v + w')}")
        self.line(1, f"s = {self.pick('Pair(0)', 'Pair(v, 2)', 'Pair(w, v)')}")
        self.pair = "s"
        self.helper, self.couple = helper, couple
        for _ in range(self.random.randint(3, 6)):
            self.statement(1, 3, "function")
        self.line(1, "return a + b * 3 + c * 7 + d * 11 + v - w + s.a * 13 - s.b")
        return "\n".join(self.lines) + "\n"

    helper = couple = ""
    result = "number"
    pair = ""

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    # expressions

    def expression(self, depth: int) -> str:
        choice = self.random.random()
        if self.pair and choice < 0.08:
            return self.pick("s.a", "s.b", "s.turned().a")
        if depth == 0 or choice < 0.25:
            return self.pick(*self.names, str(self.random.randint(-9, 9)))
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        if choice < 0.6:
            return f"({left} {self.pick('+', '-', '*', '+', '-', '&', '|', '^')} {right})"
        if choice < 0.75:
            return f"({left} {self.pick('//', '%', '>>')} {self.random.choice([2, 3, 5, 7])})"
        if choice < 0.85:
            return f"({left} if {self.condition(depth - 1)} else {right})"
        if choice < 0.92 and self.helper:
            return f"{self.helper}({left}, {self.pick('', 'q=', '')}{right})"
        return f"{self.pick('min', 'max')}({left}, {right})"

    def condition(self, depth: int) -> str:
        choice = self.random.random()
        left, right = self.expression(max(0, depth - 1)), self.expression(max(0, depth - 1))
        compare = self.pick("<", "<=", ">", ">=", "==", "!=")
        if choice < 0.6 or depth == 0:
            return f"{left} {compare} {right}"
        if choice < 0.75:
            return f"{left} < {right} {compare} {self.expression(0)}"
        if choice < 0.85:
            return f"not ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)}) {self.pick('and', 'or')} ({self.condition(depth - 1)})"

    # statements

    def block(self, indent: int, depth: int, within: str) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent, depth, within)

    def assigned(self) -> str:
        return self.random.choice([n for n in self.names if n in NAMES or n in "pqr"])

    def statement(self, indent: int, depth: int, within: str) -> None:
        """`within` says what a break or a return would leave: "function", "loop" or "unrolled"."""
        choice = self.random.random()
        name = self.assigned()
        if depth == 0 or choice < 0.3:
            self.line(indent, f"{name} = ({self.expression(2)}) % {self.random.choice([101, 64, 1009])}")
        elif self.pair and choice < 0.38:
            self.struct_statement(indent)
        elif choice < 0.4:
            self.line(indent, f"{name} {self.pick('+=', '-=', '^=')} ({self.expression(1)}) % 31")
        elif choice < 0.45:
            other = self.random.choice([n for n in self.names if (n in NAMES or n in "pqr") and n != name])
            self.line(indent, f"{name}, {other} = {other} % 500, ({self.expression(1)}) % 77")
        elif choice < 0.52 and self.couple:
            other = self.random.choice([n for n in NAMES if n != name])
            self.line(indent, f"{name}, {other} = {self.couple}({self.expression(1)}, {name}, {other})")
        elif choice < 0.7:
            self.branch(indent, depth, within)
        else:
            self.loop(indent, depth, within)

    def struct_statement(self, indent: int) -> None:
        a, b = f"({self.expression(1)}) % 97", f"({self.expression(1)}) % 61"
        self.line(
            indent,
            self.pick(
                f"s = Pair({a}, {b})",
                f"s = s + Pair({a})",
                f"s = s.turned({self.pick('', '3', 'by=1')})",
                f"s.a = {a}",
                f"s.b {self.pick('+=', '^=')} {b}",
            ),
        )

    def branch(self, indent: int, depth: int, within: str) -> None:
        self.line(indent, f"if {self.condition(2)}:")
        self.arm(indent + 1, depth - 1, within)
        if self.random.random() < 0.4:
            self.line(indent, f"elif {self.condition(1)}:")
            self.arm(indent + 1, depth - 1, within)
        if self.random.random() < 0.5:
            self.line(indent, "else:")
            self.arm(indent + 1, depth - 1, within)

    def arm(self, indent: int, depth: int, within: str) -> None:
        self.block(indent, depth, within)
        if self.random.random() < 0.3:
            if within == "function" or self.random.random() < 0.3:
                value = f"({self.expression(2)}) % 1009"
                self.line(
                    indent,
                    f"return {value}" if self.result == "number" else f"return {value}, {self.pick(*self.names)}",
                )
            else:
                self.line(indent, self.pick("break", "continue"))

    def loop(self, indent: int, depth: int, within: str) -> None:
        self.fresh += 1
        counter = f"i{self.fresh}"
        kind = self.random.random()
        if kind < 0.4:
            bounds = self.pick("4", "1, 6", "0, 9, 4", f"{self.assigned()} % 5", f"({self.expression(1)}) % 4, 5")
            self.line(indent, f"for {counter} in range({bounds}):")
            within = "loop"
        elif kind < 0.6:
            bounds = self.pick("3", "1, 4", "5, 0, -2")
            self.line(indent, f"for {counter} in {self.pick(f'unroll({bounds})', '(2, 7, 1)')}:")
            within = "unrolled"
        else:
            self.line(indent, f"{counter} = {self.pick('0', '1')}")
            self.line(indent, f"while {counter} < {self.random.randint(2, 6)} and ({self.condition(1)}):")
            self.line(indent + 1, f"{counter} += {self.pick('1', '2')}")
            within = "loop"
        self.names.append(counter)
        self.block(indent + 1, depth - 1, within)
        if self.random.random() < 0.3:
            self.line(indent + 1, f"if {self.condition(1)}:")
            self.line(indent + 2, "break")
        self.names.remove(counter)  # the loop may not have run


def program(seed: int) -> str:
    """The text of `program_<seed>` and its helper."""
    return Writer(seed).text()
