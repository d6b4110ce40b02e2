"""Whole programs: structs and helpers, an op, at times ops before and behind it in one graph, and the inputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from einkorn.dsl.types.dtype import DType

from .algorithms import Algorithms
from .base import name_of
from .kernels import Op

Operand = int | tuple[int, ...]  # the number of a value; several for a variadic argument
Step = tuple[str, tuple[Operand, ...]]  # an op of the file, or a built-in one, and what it takes
BUILT_IN = (
    "ops.negate",
    "ops.abs",
    "ops.relu",
    "ops.exp",
    "ops.sum",
    "ops.softmax",
    "ops.max",
    "value[::-1]",
    "value[::-1]",
)
FLOATS_ALONE = ("ops.exp", "ops.softmax", "ops.relu")
LAYOUTS = ("", "transposed", "steps", "backwards", "broadcast")


@dataclass(frozen=True)
class Parts:
    """The text of a program, what it takes, and the calls of its ops."""

    text: str
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    graph: tuple[Step, ...]
    checks: str
    symbolic: bool


class Writer(Algorithms):
    """Writes one program."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        super().__init__(number)
        self.inputs: list[tuple[str, tuple[int, ...], str]] = []
        self.graph: list[Step] = []
        self.values = 0  # values of the graph so far

    def program(self) -> Parts:
        checks = self.pick(("safe",) * 5 + ("all", "all", "off"))
        self.failing = checks == "all" and self.chance(70)
        if checks != "safe":
            self.use("checks all" if checks == "all" else "checks off")
        way = self.pick(self.ways_to_loop())
        self.alone = alone = not self.chance(70 if way == self.in_place else 40)
        for _ in range(self.number(0, 1)):
            self.struct_class()
        for _ in range(self.number(0, 2)):
            self.helper()
        outer = self.scope
        op = way("k")
        self.opened(op, 0)
        before = [] if alone else self.producers(op, outer)
        operands = self.operands(op, before)
        self.with_buffers(op, operands, outer)
        if not alone:
            self.consumers(op, outer)
            if self.used["may fail"]:
                self.use("failing graph")
        symbolic = self.chance(50)
        if symbolic:
            self.use("symbolic sizes")
        if len(self.graph) > 1:
            self.use("graph")
        self.use(f"rank {len(op.shape)}")
        if 0 in op.shape:
            self.use("no elements")
        return Parts(self.text(), tuple(self.inputs), tuple(self.graph), checks, symbolic)

    def text(self) -> str:
        """The file: what is imported, what is called, the ops."""
        parts = [lines for name, lines in self.sections.items() if name in self.needed] + [self.lines]
        written = ["\n".join(lines).strip("\n") for lines in parts]
        for name, text in reversed(self.prologue.items()):
            if any(re.search(rf"\b{name}\b", other) for other in written):
                written.insert(0, text.strip("\n"))
        imports = sorted({line for text in written for line in text.split("\n") if line.startswith("from ")})
        bodies = ["\n".join(line for line in text.split("\n") if line not in imports).strip("\n") for text in written]
        return (
            "\n".join(["from einkorn.dsl import *", *imports]) + "\n\n\n" + "\n\n\n".join(filter(None, bodies)) + "\n"
        )

    # the graph

    def step(self, name: str, operands: tuple[Operand, ...], results: int) -> list[int]:
        """Stages an op. Its results are numbered once all inputs are known: as negative numbers until then."""
        self.graph.append((name, operands))
        made = list(range(self.values, self.values + results))
        self.values += results
        return [-1 - k for k in made]

    def input(self, dtype: DType, shape: tuple[int, ...], name: str) -> int:
        """Another input of the graph; gives its number."""
        layout = "buffer" if name.startswith("y") else ""
        if not layout and shape and not dtype.is_packed() and name not in self.pointed and self.chance(15):
            layout = self.pick(LAYOUTS[1:])
            self.use("strided input")
        self.inputs.append((dtype.name, shape, layout))
        return len(self.inputs) - 1

    def operands(self, op: Op, before: list[tuple[int, DType, tuple[int, ...]]]) -> tuple[Operand, ...]:
        """Inputs for an op; values that there are where they fit."""
        collected: list[Operand] = []
        part: list[int] = []
        for dtype, shape, name in op.given:
            fitting = [number for number, *type in before if type == [dtype, shape] and not name.startswith("y")]
            number = self.pick(fitting) if fitting else self.input(dtype, shape, name)
            if name.startswith("xs"):
                part.append(number)
                if len(part) == 2:
                    collected.append(tuple(part))
            else:
                collected.append(number)
        return tuple(collected)

    def small(self, name: str, shape: tuple[int, ...], given: DType, wanted: DType, more: bool) -> Op:
        """An elementwise op of one tensor, to stand before or behind another one."""
        op = Op(name, shape, "*s")
        op.outputs.append(("out0", wanted))
        op.signature.append(f"out0: OutputTensor[{name_of(wanted)}, '*s']")
        scope = self.scope = self.scope.copy(
            vars={}, tensors={}, tables={}, stores={}, pointers={}, objects={}, sizes=()
        )
        scope.tensors[self.argument(op, "x", given, "*s", shape)] = given
        if more and self.chance(50):
            other = self.pick(self.dtypes)
            scope.tensors[self.argument(op, "x", other, "*s", shape)] = other
        self.budget = max(self.budget, 40)
        first = len(self.lines)
        self.line(0, "")
        self.line(0, "")
        self.head(op)
        self.line(1, "def body(i):")
        tiny = self.chance(60)  # so cheap that it may be computed again for every reader
        self.quiet = True
        with self.inner(parallel=True, position="{}.position(*i)" if shape else ""):
            self.statements(2, 0 if tiny else 2, 2)
            self.line(2, f"return {self.expression((wanted, 1), 1 if tiny else 3)}")
        self.quiet = False
        self.line(0, "")
        self.line(1, "foreach(out0, body)")
        self.opened(op, first)
        return op

    def producers(self, op: Op, outer: Any) -> list[tuple[int, DType, tuple[int, ...]]]:
        """Ops whose results the main one takes."""
        made = []
        for dtype, shape, given in op.given:
            if given.startswith(("xs", "y")) or dtype.is_storage() or not self.chance(60):
                continue
            self.scope = outer
            name = self.fresh("before")
            small = self.small(name, shape, self.pick(self.dtypes), dtype, True)
            made += [(number, dtype, shape) for number in self.step(name, self.operands(small, []), 1)]
        return made

    def consumers(self, op: Op, outer: Any) -> None:
        """Ops that take what the main one gives."""
        results = [-1 - k for k in range(self.values - len(op.outputs), self.values)]
        alike = f"'{op.dims}'" in op.signature[0]  # the results are of the shape of the inputs
        for number, (_, dtype) in zip(results, op.outputs, strict=True):
            for _ in range(self.pick((0, 1, 1, 1, 2))):
                shape = op.shape
                if self.chance(40) and not dtype.is_storage() and dtype is not DType.bool:
                    names = [n for n in BUILT_IN if n not in FLOATS_ALONE or dtype.is_float()]
                    # A reduction wants an axis, with elements, and what is turned round has an axis, too.
                    names = [n for n in names if n in BUILT_IN[:4] or (alike and shape and all(shape))]
                    self.use("built-in op")
                    self.step(self.pick(names), (number,), 1)
                    continue
                self.scope = outer
                name = self.fresh("after")
                small = self.small(name, shape, dtype, self.pick(self.dtypes), alike)
                self.step(name, self.operands(small, [(number, dtype, shape)]), 1)

    def with_buffers(self, op: Op, operands: tuple[Operand, ...], outer: Any) -> None:
        """The main op; where it changes a buffer, at times also what that held, and more that changes it."""
        dtype, shape, name = op.given[0]
        if self.alone or not name.startswith("y"):
            self.step("k", operands, len(op.outputs))
            return
        buffer = operands[0]
        held: list[tuple[int, DType, tuple[int, ...]]] = []
        staged = False
        for _ in range(self.number(1, 5)):
            way = self.pick(("k", "read", "small", "overwrite"))
            if way == "k":
                if staged:
                    self.use("changed twice")
                staged = True
                self.step("k", operands, 0)
            elif way == "small" and held and not dtype.is_storage():
                self.scope = outer
                small = self.small(self.fresh("after"), shape, dtype, dtype, True)
                held += [(n, dtype, shape) for n in self.step(small.name, self.operands(small, held), 1)]
            elif way == "overwrite" and held:
                self.use("buffer overwritten")
                self.step("ops.buffer_store", (buffer, self.pick(held)[0]), 0)
            else:
                self.use("buffer read")
                held += [(n, dtype, shape) for n in self.step("ops.buffer_load", (buffer,), 1)]
        if not staged:
            self.step("k", operands, 0)
