"""Writes the functions of a C door that compute sizes: from the sizes that a call is given to a filled plan.

    i32 @plan(sizes, plan, why)    checks sizes, and fills a plan for the first stage
    i32 @plan_K(plan, why)         adds what stage K is the first to know
    @fixed                         the plan of a graph whose sizes are all known, which `@plan` copies

A plan is an array of words: `PLAN_WORDS` first, then the sizes of dims, the dim slots of the entry, the offsets of
temporaries, and the bytes of each tensor.

See also `c_calls` (their callers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...dsl.contract.exports import ALIGNMENT, ExportSpec, SizeLimit
from ...dsl.signature.dims import Expression
from ...dsl.types.dtype import DType
from ..ir.llvm_text import FunctionText, Number
from .text import DoorText

PLAN_MAGIC, PLAN_BYTES, PLAN_LARGE, PLAN_WORDS = 0, 8, 16, 3
SIZE_ATTRIBUTES: Final = "minsize optsize"  # attributes of functions that need not be fast
_GIVEN: Final = ["ptr %sizes", "ptr %plan", "ptr %why"]


class PlanLayout:
    """Where everything lies in a plan, in bytes."""

    def __init__(self, spec: ExportSpec) -> None:
        self.dims = 8 * PLAN_WORDS
        self.slots = self.dims + 8 * (len(spec.dims) + len(spec.late_names))
        self.offsets = self.slots + 8 * len(spec.slots)
        self.bytes = self.offsets + 8 * len(spec.temps)
        self.size = self.bytes + 8 * len(spec.tensors)


def plan_words(spec: ExportSpec) -> int:
    """How many words of 8 bytes a plan has."""
    return PlanLayout(spec).size // 8


class _SizesText(DoorText):
    """A function that computes sizes. A condition that does not hold leads to `miss.`, with the row of its message and
    the two sizes that it compares in variables."""

    def __init__(self, name: str, parameters: Sequence[str], known: Mapping[str, Number] | None = None) -> None:
        super().__init__(name, "i32", parameters, (), attributes="internal|noinline optsize")
        self.row, self.expected, self.got = (self.variable("i64", 0) for _ in range(3))
        self.known: dict[str, Number] = dict(known or {})
        self._sizes: dict[Expression, Number] = {}

    def size(self, expression: Expression, known: Mapping[str, Number]) -> Number:
        """As of a `DoorText`; each expression is computed once."""
        if expression not in self._sizes:
            self._sizes[expression] = super().size(expression, known)
        return self._sizes[expression]

    def of(self, expression: Expression) -> Number:
        """The value of an expression of the known sizes."""
        return self.size(expression, self.known)

    def check(self, row: int, test: Callable[[], str], expected: Number = 0, got: Number = 0) -> None:
        """Goes on where a test holds."""
        self.about(row, expected, got)
        self.need(test())

    def about(self, row: int, expected: Number = 0, got: Number = 0) -> None:
        """What the miss says of the conditions that follow."""
        self.row.set(row)
        self.expected.set(expected)
        self.got.set(got)

    def finish(self) -> str:
        """The text, with its end and the miss."""
        self.leave(0)
        self.line("unreachable")
        self.label("miss.")
        words = ["ptr %why", *(f"i64 {each.value()}" for each in (self.row, self.expected, self.got))]
        self.leave(self.call("@fail", words, "i32"))
        return self.text()


def plan_magic(spec: ExportSpec) -> int:
    """What a prepared plan of a model begins with: a number that instructions hold."""
    return int(spec.digest[:7], 16) | 1


class PlanText:
    """Writes the functions for a spec."""

    def __init__(self, spec: ExportSpec) -> None:
        self.spec, self.at = spec, PlanLayout(spec)
        self.fixed = self._fixed()

    def _fixed(self) -> list[int]:
        """The words of the plan of a graph whose sizes are all known; nothing where calls compute some."""
        spec, f = self.spec, _SizesText("", ())
        if spec.dims or spec.late_names or spec.checks or any(temp.offset is None for temp in spec.temps):
            return []
        counts = [self._count(f, tensor.axes) for tensor in spec.tensors]
        largest: Number = 0
        for count in counts:
            largest = _most(f, largest, count)
        words = [plan_magic(spec), self._arena(f, 0), largest]
        words += [f.of(expression) for expression, _ in spec.slots]
        words += [temp.offset for temp in spec.temps if temp.offset is not None]
        words += [_bytes(f, tensor.dtype, count) for tensor, count in zip(spec.tensors, counts, strict=True)]
        known = [word for word in words if isinstance(word, int)]
        return known if len(known) == len(words) else []

    def _copied(self) -> str:
        """`@plan` where all sizes are known."""
        f = FunctionText("@plan", "i32", _GIVEN, attributes=f"internal|noinline {SIZE_ATTRIBUTES}")
        with f.when(f.compare("eq", "%plan", "null", "ptr")):
            f.leave(f.call("@fail", ["ptr %why", f"i64 {self.spec.row('plan')}", "i64 0", "i64 0"], "i32"))
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr %plan, ptr @fixed, i64 {self.at.size}, i1 false)")
        f.leave(0)
        return f.text()

    def text(self, stage: int) -> str:
        """`i32 @plan(sizes, plan, why)` fills a plan; `i32 @plan_K(plan, why)` adds what stage K is the first to
        know."""
        spec, at = self.spec, self.at
        if self.fixed:
            return self._copied()
        given = ["ptr %plan", "ptr %why"] if stage else _GIVEN
        f = _SizesText(f"@plan_{stage}" if stage else "@plan", given)
        if not stage:
            f.about(spec.row("plan"))
            f.need(f.compare("ne", "%plan", "null", "ptr"))
            f.store("i64", 0, f.at("%plan", PLAN_MAGIC))  # after a failure it is not a plan
        names = [*spec.dims, *spec.late_names]
        known = len(spec.dims) + sum(map(len, spec.late[:stage]))
        for k, name in enumerate(names[:known]):
            place = f.at("%plan", at.dims + 8 * k)
            f.known[name] = f.load("i64", place if stage else f.at("%sizes", 8 * k))
            if not stage:
                f.store("i64", f.known[name], place)
        row = spec.row("dims")
        for k in range(known - len(spec.late[stage - 1]) if stage else 0, known):
            size = f.known[names[k]]
            f.check(row + k, lambda size=size: f.compare("sge", size, 0), 0, size)  # type: ignore[misc]
        self._checks(f, stage)
        for number, (expression, known_from) in enumerate(spec.slots):
            if known_from == stage:
                f.store("i64", f.of(expression), f.at("%plan", at.slots + 8 * number))
        largest: Number = f.load("i64", f.at("%plan", PLAN_LARGE)) if stage else 0
        for number, tensor in enumerate(spec.tensors):
            if tensor.stage > stage == 0:
                f.store("i64", 0, f.at("%plan", at.bytes + 8 * number))
            if tensor.stage == stage:
                count = self._count(f, tensor.axes)
                f.store("i64", _bytes(f, tensor.dtype, count), f.at("%plan", at.bytes + 8 * number))
                largest = _most(f, largest, count)
        f.store("i64", largest, f.at("%plan", PLAN_LARGE))
        f.about(spec.row("workspace_size"))
        f.store("i64", self._arena(f, stage), f.at("%plan", PLAN_BYTES))
        if not stage:
            f.store("i64", plan_magic(spec), f.at("%plan", PLAN_MAGIC))
        return f.finish()

    def _checks(self, f: _SizesText, stage: int) -> None:
        for each in (each for each in self.spec.checks if each.stage == stage):
            f.about(each.row)
            if isinstance(each, SizeLimit):
                total: Number = each.fixed
                for axis in each.axes:
                    total = f.exact("*", total, _most(f, 1, f.of(axis)))
                continue
            left, right = f.of(each.left), f.of(each.right)
            f.about(each.row, right, left)
            if each.kind == "broadcast":
                ones = f.either(f.compare("eq", left, 1), f.compare("eq", right, 1), "i1")
                f.need(f.either(ones, f.compare("eq", left, right), "i1"))
            else:
                f.need(f.compare("sge" if each.kind == "at_least" else "eq", left, right))

    def _count(self, f: _SizesText, axes: Sequence[Expression]) -> Number:
        """The number of elements of a tensor whose size was checked."""
        count: Number = 1
        for axis in axes:
            size = f.of(axis)
            count = size if count == 1 else count if size == 1 else _times(f, count, size)
        return count

    def _arena(self, f: _SizesText, stage: int) -> Number:
        """Writes the offsets of a stage's temporaries; the bytes of its arena."""
        temps = [(number, temp) for number, temp in enumerate(self.spec.temps) if temp.stage == stage]
        sizes = []
        for _, temp in temps:
            size = f.exact("+", _bytes(f, temp.dtype, self._count(f, temp.axes)), ALIGNMENT - 1)
            sizes.append(size // ALIGNMENT * ALIGNMENT if isinstance(size, int) else f.both(size, -ALIGNMENT))
        if any(temp.offset is None for _, temp in temps):
            return self._placed(f, temps[0][0], sizes)
        total: Number = 0
        for (number, temp), size in zip(temps, sizes, strict=True):
            assert temp.offset is not None
            f.store("i64", temp.offset, f.at("%plan", self.at.offsets + 8 * number))
            total = _most(f, total, temp.offset + size if isinstance(size, int) else size)
        return total

    def _placed(self, f: _SizesText, first: int, sizes: Sequence[Number]) -> Number:
        """Has temporaries laid out that follow each other from `first` on; see `compiler.arena`."""
        count = len(sizes)
        memory = f"%{f.fresh('sizes')}"
        f.variables.append(f"  {memory} = alloca [{3 * count} x i64], align 16")
        for k, size in enumerate(sizes):
            f.store("i64", size, f.at(memory, 8 * k))
        lives = [f"ptr {f.at(f'@temps.{end}', 8 * first)}" for end in ("first", "last")]
        places = [f"ptr {f.at('%plan', self.at.offsets + 8 * first)}", f"ptr {f.at(memory, 8 * count)}"]
        total = f.call("@ek_arena", [f"ptr {memory}", *lives, *places, f"i64 {count}"], "i64")
        f.need(f.compare("sge", total, 0))
        return total


def _bytes(f: FunctionText, dtype: DType, count: Number) -> Number:
    if isinstance(count, int):
        return dtype.bytes_for(count)
    if dtype.is_packed():
        return f.right(f.add(count, 1), 1)
    return count if dtype.size_in_bytes == 1 else f.mul(count, dtype.size_in_bytes)


def _times(f: FunctionText, a: Number, b: Number) -> Number:
    return a * b if isinstance(a, int) and isinstance(b, int) else f.mul(a, b)


def _most(f: FunctionText, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return f.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")
