"""Kernels that index tensors by anything: loop variables, sizes, data, arithmetic that wraps; behind guards that are
right, nearly right, or about something else.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

INPUTS = (
    *(("float32", (2,)), ("float32", (3, 4)), ("float32", (5,)), ("float32", (6, 7)), ("int64", (8,))),
    ("int32", (8,)),
)
HEAD = '''"""Written by an adversary."""

from einkorn.dsl import *


def get(x, i):
    return x[i]


def get_or_zero(x, i):
    if i < 0 or i >= x.dim(0):
        return float32(0)
    return x[i]


def of(data, i):
    return data[i % data.dim(0)] if data.dim(0) > 0 else data.dtype(0)


def put(out, i, value):
    out[i] = value


@register("k")
def k(
    out: OutputTensor[float32, "n"],
    pic: OutputTensor[float32, "h w"],
    y: InputTensor[float32, "n"],
    z: InputTensor[float32, "h w"],
    x: InputTensor[float32, "m"],
    t: InputTensor[float32, "p q"],
    ids: InputTensor[int64, "c"],
    near: InputTensor[int32, "c"],
):
    foreach(out, lambda i: 0)
    foreach(pic, lambda i: 0)
'''
FEATURES = (
    *("foreach", "parallel_for", "vectorize", "while", "branch", "left early", "guard", "guarded expression"),
    *("product", "remainder", "data", "large constant", "vector", "masked", "stride", "gather", "view"),
    *("atomic", "vector store", "scatter", "storage"),
)
SIZES = ("out.dim(0)", "pic.dim(0)", "pic.dim(1)", "x.dim(0)", "t.dim(0)", "t.dim(1)", "ids.dim(0)", "x.size", "t.size")
CONSTANTS = (0, 1, 1, 2, 3, 4, 7, 8, 16, 31, 64, 2**31, 2**32, 3037000500, 2**62, 2**63 - 1)
READ = {"x": ("x.dim(0)",), "t": ("t.dim(0)", "t.dim(1)"), "y": ("out.dim(0)",), "z": ("pic.dim(0)", "pic.dim(1)")}
WRITTEN = {"out": ("out.dim(0)",), "pic": ("pic.dim(0)", "pic.dim(1)")}


class Indexing:
    """One kernel: lines, and the Ints that are known where the next one stands."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.depth = 1
        self.names: list[str] = []
        self.used: Counter[str] = Counter()
        self.count = 0
        self.loops = 0
        self.inside: list[str] = []  # what a statement may leave: "for" or "function"
        self.budget = 14

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def mark(self, feature: str) -> None:
        self.used[feature] += 1

    # numbers

    def small(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3, 4, 5, 8))

    def index(self, depth: int = 0) -> str:
        """Any Int."""
        rng = self.rng
        if depth > 2 or self.chance(25):
            if self.names and self.chance(75):
                return rng.choice(self.names)
            return rng.choice(SIZES) if self.chance(40) else str(self.small())
        a = self.index(depth + 1)
        form = rng.randrange(17)
        match form:
            case 0 | 1:
                return f"({a} + {self.small()})"
            case 2:
                return f"({a} - {self.small()})"
            case 3:
                return f"({a} + {self.index(depth + 1)})"
            case 4:
                return f"({a} - {self.index(depth + 1)})"
            case 5:
                return f"{a} * {rng.choice((2, 3, 4, 7))}"
            case 6:
                self.mark("product")
                return f"({a}) * ({self.index(depth + 1)})"
            case 7:
                return f"({a}) // {rng.choice((2, 3, 4, 7))}"
            case 8:
                self.mark("remainder")
                return f"({a}) % {rng.choice(('2', '3', '7', '8', *SIZES))}"
            case 9:
                return f"(({a}) >> {rng.choice((1, 2))})"
            case 10:
                return f"(({a}) & {rng.choice((1, 3, 7, 15))})"
            case 11:
                return f"{rng.choice(('min', 'max'))}({a}, {self.index(depth + 1)})"
            case 12:
                size = rng.choice(SIZES)
                return f"min(max({a}, 0), {size} - 1)"
            case 13:
                self.mark("data")
                return f"ids[({a}) % ids.dim(0)]" if self.chance(10) else f"of(ids, {a})"
            case 14:
                self.mark("data")
                return f"int64(of(near, {a}))"
            case 15:
                return f"({a} if {self.condition(depth + 1)} else {self.index(depth + 1)})"
            case _ if self.chance(70):
                return a
            case _:
                self.mark("large constant")
                return f"({a} {rng.choice('+-*')} {rng.choice(CONSTANTS)})"

    def condition(self, depth: int = 0) -> str:
        left, right = self.index(depth + 1), self.rng.choice((self.index(depth + 1), *SIZES))
        test = f"({left}) {self.rng.choice(('<', '<=', '>', '>=', '==', '!='))} ({right})"
        if depth < 2 and self.chance(25):
            return f"({test} {self.rng.choice(('and', 'or'))} {self.condition(depth + 1)})"
        return f"not ({test})" if self.chance(10) else test

    def guard(self, parts: list[tuple[str, str]], width: int = 1) -> str:
        """A condition on indices, each with the size of its axis; mostly a right one for so many elements."""
        tests = []
        for number, (part, size) in enumerate(parts):
            if width > 1 and number == len(parts) - 1:
                size = f"{size} - {width - 1}"
            match self.rng.randrange(16):
                case 0:
                    tests.append(f"({part}) < {size}")
                case 1:
                    tests.append(f"0 <= ({part}) and ({part}) <= {size}")
                case 2:
                    tests.append(f"({part}) >= 0 and ({part}) + 1 < {size}")
                case 3:
                    tests.append(f"not (({part}) < 0 or ({part}) >= {size})")
                case _:
                    tests.append(f"0 <= ({part}) and ({part}) < {size}")
        return " and ".join(tests)

    # what is read and written

    def read(self) -> str:
        """A float32."""
        rng = self.rng
        name = rng.choice(tuple(READ))
        parts = [(self.index(), size) for size in READ[name]]
        places = ", ".join(part for part, _ in parts)
        if self.chance(55):
            self.mark("guarded expression")
            width = rng.choice((1, 1, 1, 4))
            what = f"{name}[{places}]" if width == 1 else f"{name}.load({places}, width={width}).reduce_add()"
            return f"({what} if {self.guard(parts, width)} else float32(1))"
        form = rng.randrange(8)
        if form == 0 and len(parts) == 1:
            return f"{rng.choice(('get', 'get_or_zero'))}({name}, {places})"
        if form == 1:
            self.mark("vector")
            return f"{name}.load({places}, width={rng.choice((2, 4, 8))}).reduce_add()"
        if form == 2:
            self.mark("masked")
            last = parts[-1][0]
            mask = f"iota(int64, 4) < SIMD[int64, 4]({self.index(1)} - ({last}))"
            return f"{name}.load({places}, width=4, mask={mask}).reduce_add()"
        if form == 3:
            self.mark("stride")
            return f"{name}.load({places}, width=4, stride={rng.choice(('2', '3', '-1', self.index(2)))}).reduce_add()"
        if form == 4:
            self.mark("gather")
            first = "".join(f"{part}, " for part, _ in parts[:-1])
            step = rng.choice(("1", "2", "3", "-1"))
            return f"{name}.gather({first}iota(int64, 4) * {step} + SIMD[int64, 4]({parts[-1][0]})).reduce_add()"
        if form == 5:
            self.mark("view")
            step = rng.choice(("", "", ":2", ":-1"))
            lead = "".join(f"{part}, " for part, _ in parts[:-1])
            return f"{name}[{lead}{self.index(1)} : {self.index(1)}{step}][{self.index(1)}]"
        if form == 6 and len(parts) == 2:
            return f"{name}.at({parts[0][0]})"
        return f"{name}[{places}]"

    def access(self) -> None:
        """A store, behind a guard or not."""
        rng = self.rng
        name = rng.choice(tuple(WRITTEN))
        parts = [(self.index(), size) for size in WRITTEN[name]]
        bound = []
        for part, size in parts:
            if self.chance(60):
                variable = self.fresh("e")
                self.line(f"{variable} = Int({part})")
                part = variable
            bound.append((part, size))
        places = ", ".join(part for part, _ in bound)
        value = rng.choice((f"float32({self.small()})", self.read(), f"total + {self.read()}"))
        form, width = rng.randrange(10), 1
        text = f"{name}[{places}] = {value}"
        if form == 0:
            self.mark("atomic")
            text = f"atomic_add({name}, {places if len(bound) == 1 else f'({places})'}, {value})"
        elif form == 1:
            self.mark("vector store")
            text, width = f"{name}.store(SIMD[float32, 4]({value}), {places})", 4
        elif form == 2:
            self.mark("scatter")
            first = "".join(f", {part}" for part, _ in bound[:-1])
            text = f"{name}.scatter(SIMD[float32, 4]({value}){first}, iota(int64, 4) + SIMD[int64, 4]({bound[-1][0]}))"
            width = 4
        elif form == 3 and len(bound) == 1:
            text = f"put({name}, {places}, {value})"
        if self.chance(90):
            self.mark("guard")
            self.within(f"if {self.guard(bound, width)}:", lambda: self.line(text))
        else:
            self.line(text)

    def within(self, head: str, write: Callable[[], None]) -> None:
        self.line(head)
        names = list(self.names)
        self.depth += 1
        before = len(self.lines)
        write()
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.names = names

    # statements

    def block(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement()

    def statement(self) -> None:
        self.budget -= 1
        if self.budget < 0:
            return
        form = self.rng.randrange(12)
        if form == 0:
            name = self.fresh("v")
            self.line(f"{name} = Int({self.index()})")
            self.names.append(name)
        elif form == 1:
            self.line(f"total += {self.read()}")
        elif form == 3:
            self.mark("branch")
            self.within(f"if {self.condition()}:", self.block)
        elif form == 4 and self.inside[-1] == "for":
            self.mark("left early")
            self.within(f"if {self.condition()}:", lambda: self.line(self.rng.choice(("continue", "break"))))
        elif form in (5, 6) and self.loops < 2:
            self.loop()
        elif form == 7:
            self.mark("storage")
            name = self.fresh("s")
            self.line(f"{name} = stack[float32]({self.rng.choice((4, 8, 16))})")
            place = self.index() if self.chance(30) else f"({self.index()}) & 3"
            self.line(f"{name}[{place}] = {self.read()}")
            self.line(f"total += {name}[{place}]")
        else:
            self.access()

    def loop(self) -> None:
        rng, variable = self.rng, self.fresh("i")
        self.loops += 1
        self.inside.append("for")
        if self.chance(20):
            self.mark("while")
            self.line(f"{variable} = Int({self.small()})")
            self.line(f"{variable}_left = {rng.randint(2, 9)}")

            def rounds() -> None:
                self.line(f"{variable}_left -= 1")
                self.names.append(variable)
                self.line(f"{variable} = {self.index()}" if self.chance(50) else f"{variable} += {self.small()}")
                self.block()

            self.within(f"while {variable}_left > 0 and {self.condition()}:", rounds)
        else:
            start = self.index(1)
            low_high = rng.choice(
                (
                    *(rng.choice(SIZES[:7]),) * 3,
                    str(rng.randint(2, 9)),
                    f"{self.small()}, {rng.choice(SIZES[:7])}",
                    f"0, {rng.choice(SIZES[:7])}, {rng.choice((2, 3, 8))}",
                    f"{rng.choice(SIZES[:7])} - 1, -1, -1",
                    f"min({self.index(1)}, 12)",
                    f"{start}, {start} + {rng.randint(1, 4)}",
                )
            )

            def rounds() -> None:
                self.names.append(variable)
                self.block()

            self.within(f"for {variable} in range({low_high}):", rounds)
        self.inside.pop()
        self.loops -= 1

    def unit(self) -> None:
        """A loop over elements, with a function of its own."""
        rng, function, variable = self.rng, self.fresh("f"), self.fresh("i")
        form = rng.randrange(6)
        heads = {0: f"def {function}(at):", 4: f"def {function}({variable}, width):"}
        self.line("")

        def body() -> None:
            self.inside.append("function")
            self.line("total = float32(0)")
            if form == 0:
                self.line(f"{variable} = at[0]")
            self.names.append(variable)
            self.block()
            if form == 0:
                self.line(f"return total + {self.read()}")
            elif form == 4:
                self.line(f"out.store(x.load({self.index(2)}, width=width), {variable})")
            else:
                self.access()
            self.inside.pop()

        if form == 5:
            self.line("total = float32(0)")
            self.inside.append("function")
            self.loop()
            self.inside.pop()
            return
        self.loops += 1
        self.within(heads.get(form, f"def {function}({variable}):"), body)
        self.loops -= 1
        if form == 0:
            self.mark("foreach")
            self.line(f"foreach({rng.choice(('out', 'pic'))}, {function})")
        elif form == 4:
            self.mark("vectorize")
            self.line(f"vectorize({rng.choice(('out.dim(0)', 'x.dim(0)'))}, 4, {function})")
        else:
            self.mark("parallel_for")
            self.line(f"parallel_for({rng.choice(SIZES[:7])}, {function})")


def indexing_program(rng: random.Random) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]:
    """The text of a program, the types of its inputs, and what is in it."""
    writer = Indexing(rng)
    for _ in range(rng.randint(1, 3)):
        writer.budget = 9
        writer.unit()
    return HEAD + "\n".join(writer.lines) + "\n", INPUTS, tuple(sorted(writer.used))
