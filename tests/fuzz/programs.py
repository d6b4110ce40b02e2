"""Random typed kernels: every element type, every row of the table of operations, vectors, loops, helpers, reads at
computed places.

A program is valid by construction, and its results are determined to the bit but for the sign and payload of NaN, which
the language leaves open: they are never looked at (no bit cast of a NaN, no sign taken from one).

Input: a source of choices (Hypothesis's `draw`, which knows how to make a failing program small). Output: `Program`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from einkorn.compiler.operations import ROWS
from einkorn.dsl.stubs import STUBS
from einkorn.dsl.types import DType, scalar_name

Item = TypeVar("Item")
Type = tuple[DType, int]  # an element type and a width

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "and_": "&", "or_": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
PREFIXES = {"neg": "-", "invert": "~", "not_": "not "}
DTYPES = (
    DType.int32, DType.float32, DType.int64, DType.float64, DType.uint8, DType.int8, DType.int16, DType.uint16,
    DType.uint32, DType.uint64, DType.float16, DType.bfloat16, DType.bool,
)  # fmt: skip
STORAGE = (
    DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz, DType.float6_e2m3fn,
    DType.float6_e3m2fn,
)  # fmt: skip
TWO = ("pow", "hypot", "atan2", "fmod", "remainder")  # mathematics of two numbers; `frexp` and `ldexp` are not tried
TABLE = 16  # elements of the inputs that are read at computed places
WIDTHS = (4, 2, 8, 16)
FLOAT_LITERALS = (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.0, 0.1, 1e-3, 7.25, 127.5, 1e4, -1e30, 3e38, 1e-40)
INT_LITERALS = (0, 1, 2, 3, 7, 8, 15, 31, 63, 100, 127, 128, 255, 1 << 15, 1 << 31, (1 << 31) - 1, (1 << 63) - 1)


@dataclass(frozen=True)
class Program:
    """A kernel file with one op `k`, the types of its inputs, and the seed of their elements."""

    text: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    seed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def name_of(dtype: DType) -> str:
    """How a kernel writes an element type."""
    return "bool8" if dtype is DType.bool else dtype.name


def arrays_of(inputs: Sequence[tuple[str, Sequence[int]]], seed: int) -> list[np.ndarray[Any, Any]]:
    """Elements for these types: special values, random bits, and numbers of ordinary size."""
    rng = np.random.default_rng(seed)
    return [_elements(rng, DType[dtype], tuple(shape)) for dtype, shape in inputs]


def _elements(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    kind, n = dtype.to_numpy(), int(np.prod(shape))
    if dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    bits = rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8).view(kind)
    if dtype.is_float():
        info = ml_dtypes.finfo(kind)
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, float(info.max), float(info.tiny)]
        special += [float(info.smallest_subnormal), -float(info.max), 1.0 + float(info.eps), 127.5, 3e9]
        with np.errstate(over="ignore"):
            ordinary = (rng.standard_normal(n) * 10).astype(kind)
            chosen = rng.choice(np.array(special), n).astype(kind)
    else:
        low, high = dtype.range
        ordinary = rng.integers(max(low, -20), min(high, 20), n, endpoint=True).astype(kind)
        chosen = rng.choice(np.array([0, 1, 2, high, high - 1, low, low + 1, dtype.bits, dtype.bits - 1], kind), n)
    which = rng.integers(0, 3, n)
    return np.where(which == 0, bits, np.where(which == 1, ordinary, chosen)).astype(kind).reshape(shape)


class Writer:
    """Writes one program. Choices that come first are the simplest: a failing program shrinks towards them."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.budget = 150  # expressions that may still be made
        self.count = 0
        self.vars: dict[str, Type] = {}
        self.fixed: set[str] = set()  # variables that may not be assigned
        self.tensors: dict[str, DType] = {}  # read at the index of the present element
        self.tables: dict[str, DType] = {}  # read anywhere
        self.index = "i"
        self.helpers: dict[str, tuple[list[Type], Type]] = {}
        self.structs: dict[str, list[Type]] = {}
        self.hoisted: list[tuple[str, str]] = []  # variables to assign before the present statement
        # Few types in one program, so that its values meet.
        self.dtypes = [self.pick(DTYPES) for _ in range(3)] + [DType.bool]

    # choices

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def pick(self, options: Sequence[Item]) -> Item:
        return options[self.number(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    # expressions

    def literal(self, type: Type, *, typed: bool = True) -> str:
        dtype, width = type
        if dtype.is_storage():
            return f"{self.literal((DType.float32, width))}.cast({name_of(dtype)})"
        if dtype is DType.bool:
            text = self.pick(("False", "True"))
        elif dtype.is_float():
            text = repr(self.pick(FLOAT_LITERALS))
        else:
            low, high = dtype.range
            text = str(self.pick([n for n in (*INT_LITERALS, -1, -2, -7, low, high) if low <= n <= high]))
        if width > 1:
            return f"SIMD[{name_of(dtype)}, {width}]({text})"
        return f"{scalar_name(dtype)}({text})" if typed else text

    def leaf(self, type: Type) -> str:
        dtype, width = type
        options = [name for name, found in self.vars.items() if found == type]
        if width == 1:
            options += [f"{name}[{self.index}]" for name, found in self.tensors.items() if found is dtype]
        else:
            loads = [name for name, found in self.tensors.items() if found is dtype]
            options += [f"{name}.load({self.index}, width={width})" for name in loads]
        if self.chance(15):
            return self.literal(type)
        return self.pick(options) if options else self.converted(type)

    def converted(self, type: Type) -> str:
        """A variable or an element of any type, as one of this type."""
        dtype, width = type
        options = [name for name, found in self.vars.items() if found[1] == width]
        if width == 1:
            options += [f"{name}[{self.index}]" for name in self.tensors]
        else:
            options += [f"{name}.load({self.index}, width={width})" for name in self.tensors]
        return f"{self.pick(options)}.cast({name_of(dtype)})" if options else self.literal(type)

    def expression(self, type: Type, depth: int) -> str:
        """Text of an expression of a type."""
        self.budget -= 1
        if depth <= 0 or self.budget <= 0:
            return self.leaf(type)
        dtype, width = type
        if dtype.is_storage():
            return self.pick((self._leaf, self._cast, self._select))(type, depth - 1)
        ways: list[Callable[[Type, int], str]] = [self._leaf, self._row, self._row, self._row, self._cast, self._select]
        if dtype is DType.bool:
            ways += [self._comparison, self._comparison]
        elif dtype.bits >= 8:
            ways.append(self._bitcast)
        if width == 1:
            ways += [self._table, self._lane, self._ternary, self._helper]
        else:
            ways += [self._moved, self._moved]
        if dtype.is_float() and self.budget > 60:
            ways.append(self._mathematics)
        return self.pick(ways)(type, depth - 1)

    def _leaf(self, type: Type, depth: int) -> str:
        return self.leaf(type)

    def _row(self, type: Type, depth: int) -> str:
        dtype, width = type
        rows = [row for row in ROWS.values() if row.takes(dtype) and row.result == "same" and _usable(row.name)]
        row = self.pick(rows)
        if row.name == "not_" and width > 1:
            return f"(~{self.expression(type, depth)})"
        if row.name in ("copysign",):
            sign = self.expression(type, depth)
            return f"copysign({self.expression(type, depth)}, {self._no_nan(sign, type)})"
        operands = [self.expression(type, depth) for _ in range(row.arity)]
        return self.apply(row.name, operands)

    def apply(self, name: str, operands: list[str]) -> str:
        if name in OPERATORS:
            return f"({operands[0]} {OPERATORS[name]} {operands[1]})"
        if name in PREFIXES:
            return f"({PREFIXES[name]}{operands[0]})"
        return f"{name}({', '.join(operands)})"

    def _no_nan(self, text: str, type: Type) -> str:
        """An expression that is no NaN."""
        if not text.replace(".", "").isidentifier():
            name = self.fresh("v")
            self.hoisted.append((name, text))
            text = name
        return f"select(isnan({text}), {self.literal((type[0], type[1]))}, {text})"

    def _cast(self, type: Type, depth: int) -> str:
        source = self.pick(self.dtypes if self.chance(70) else DTYPES)
        return f"{self.expression((source, type[1]), depth)}.cast({name_of(type[0])})"

    def _bitcast(self, type: Type, depth: int) -> str:
        dtype, width = type
        sources = [d for d in DTYPES if d.bits == dtype.bits and d is not dtype and d is not DType.bool]
        if not sources:
            return self.leaf(type)
        source = self.pick(sources)
        text = self.expression((source, width), depth)
        if source.is_float():
            text = self._no_nan(text, (source, width))
        return f"bitcast({text}, {name_of(dtype)})"

    def _select(self, type: Type, depth: int) -> str:
        test = self.expression((DType.bool, type[1]), depth)
        return f"select({test}, {self.expression(type, depth)}, {self.expression(type, depth)})"

    def _comparison(self, type: Type, depth: int) -> str:
        dtype = self.pick(self.dtypes)
        rows = [row for row in ROWS.values() if row.takes(dtype) and row.result == "bool" and _usable(row.name)]
        row = self.pick(rows)
        operands = [self.expression((dtype, type[1]), depth) for _ in range(row.arity)]
        if type[1] == 1 and row.name in ("lt", "le", "gt", "ge") and self.chance(20):
            return f"({operands[0]} {OPERATORS[row.name]} {operands[1]} <= {self.expression((dtype, 1), depth)})"
        return self.apply(row.name, operands)

    def _table(self, type: Type, depth: int) -> str:
        tables = [name for name, dtype in self.tables.items() if dtype is type[0]]
        if not tables:
            return self.leaf(type)
        at = self.expression((DType.int64, 1), depth)
        return f"{self.pick(tables)}[{at} & {TABLE - 1}]"

    def _lane(self, type: Type, depth: int) -> str:
        vectors = [(name, t[1]) for name, t in self.vars.items() if t[0] is type[0] and t[1] > 1]
        if not vectors:
            return self.leaf(type)
        name, width = self.pick(vectors)
        ways = [f"{name}[{self.number(0, width - 1)}]"]
        if type[0] is not DType.bool:
            ways += [f"{name}.reduce_max()", f"{name}.reduce_min()", f"{name}.reduce_add()"]
        if type[0] is DType.bool:
            ways += [f"{name}.any()", f"{name}.all()", f"{name}.none()"]
        else:
            ways.append(f"{name}.reduce_mul()")
        if not type[0].is_float():
            ways += [f"{name}.reduce_xor()", f"{name}.reduce_and()", f"{name}.reduce_or()"]
        return self.pick(ways)

    def _moved(self, type: Type, depth: int) -> str:
        """Lanes in other places."""
        width = type[1]
        a = self.expression(type, depth)
        way = self.number(0, 5)
        lanes = [self.number(0, width - 1) for _ in range(width)]
        if way == 0:
            return f"({a}).reverse()"
        if way == 1:
            return f"({a}).shuffle({', '.join(map(str, lanes))})"
        if way == 2:
            return f"({a}).shuffle({', '.join(str(n * 2) for n in lanes)}, other={self.expression(type, depth)})"
        if way == 3:
            index = self.expression((self.pick((DType.int32, DType.uint8, DType.int64)), width), depth)
            return f"({a}).take({index})"
        if way == 4:
            return f"({a}).interleave({self.expression(type, depth)}).deinterleave()[{self.number(0, 1)}]"
        return f"({a})[::-1]"

    def _ternary(self, type: Type, depth: int) -> str:
        test = self.condition(depth)
        return f"({self.expression(type, depth)} if {test} else {self.expression(type, depth)})"

    def condition(self, depth: int) -> str:
        """A scalar Bool, with the words that are computed only where they decide."""
        left = self.expression((DType.bool, 1), depth)
        if self.chance(25):
            return f"({left} {self.pick(('and', 'or'))} {self.expression((DType.bool, 1), depth)})"
        return left

    def _helper(self, type: Type, depth: int) -> str:
        fitting = [name for name, (_, result) in self.helpers.items() if result == type]
        if not fitting:
            return self.leaf(type)
        name = self.pick(fitting)
        return f"{name}({', '.join(self.expression(t, depth - 1) for t in self.helpers[name][0])})"

    def _mathematics(self, type: Type, depth: int) -> str:
        names = [s.name for s in STUBS.values() if s.kind == "library" and s.name not in (*TWO, "frexp", "ldexp")]
        name = self.pick([*names, *TWO])
        arity = 2 if name in TWO else 1
        self.budget -= 30
        return f"{name}({', '.join(self.expression(type, depth) for _ in range(arity))})"

    # statements

    def value(self, indent: int, type: Type, depth: int = 3) -> str:
        """An expression, with lines before it for what it uses more than once."""
        outer, self.hoisted = self.hoisted, []
        text = self.expression(type, depth)
        for name, part in self.hoisted:
            self.line(indent, f"{name} = {part}")
        self.hoisted = outer
        return text

    def test(self, indent: int, depth: int = 2) -> str:
        outer, self.hoisted = self.hoisted, []
        text = self.condition(depth)
        for name, part in self.hoisted:
            self.line(indent, f"{name} = {part}")
        self.hoisted = outer
        return text

    def any_type(self, width: int = 1) -> Type:
        return (self.pick(self.dtypes), width)

    def assignable(self) -> list[str]:
        return [name for name in self.vars if name not in self.fixed]

    def block(self, indent: int, depth: int, width: int, result: Type | None = None) -> None:
        """Statements; variables made in them are gone afterwards."""
        before = dict(self.vars)
        for _ in range(self.number(1, 3)):
            self.statement(indent, depth, width, result)
        self.vars = before

    def statement(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        """`result` is what the function around may return here."""
        ways = [self._new, self._assign, self._assign, self._tuple]
        if self.structs:
            ways.append(self._struct)
        if depth > 0 and self.budget > 20:
            ways += [self._if, self._for, self._while, self._unroll]
        self.pick(ways)(indent, depth, width, result)

    def _new(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        type = self.any_type(self.pick((width, 1)))
        text = self.value(indent, type)
        name = self.fresh("v")
        self.line(indent, f"{name} = {text}")
        self.vars[name] = type

    def _assign(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        names = self.assignable()
        if not names:
            return self._new(indent, depth, width, result)
        name = self.pick(names)
        type = self.vars[name]
        rows = [r for r in ("add", "sub", "mul", "xor", "and_", "floordiv") if ROWS[r].takes(type[0])]
        if rows and self.chance(40):
            self.line(indent, f"{name} {OPERATORS[self.pick(rows)]}= {self.value(indent, type, 2)}")
        else:
            self.line(indent, f"{name} = {self.value(indent, type)}")

    def _tuple(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        """A tuple; its items are variables that are not assigned by themselves."""
        types = [self.any_type() for _ in range(2)]
        texts = [self.value(indent, type, 2) for type in types]
        name = self.fresh("u")
        self.line(indent, f"{name} = ({', '.join(texts)})")
        if self.chance(40):
            self.line(indent, f"if {self.test(indent, 1)}:")
            again = [self.value(indent + 1, type, 2) for type in types]
            self.line(indent + 1, f"{name} = ({', '.join(again)})")
        for number, type in enumerate(types):
            self.vars[f"{name}[{number}]"] = type
            self.fixed.add(f"{name}[{number}]")

    def _struct(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        """A struct; its fields are variables, and so is what its method gives."""
        kind = self.pick(list(self.structs))
        texts = [self.value(indent, type, 2) for type in self.structs[kind]]
        name = self.fresh("o")
        self.line(indent, f"{name} = {kind}({', '.join(texts)})")
        for number, type in enumerate(self.structs[kind]):
            self.vars[f"{name}.f{number}"] = type
        self.vars[f"{name}.mixed()"] = self.structs[kind][0]
        self.fixed.add(f"{name}.mixed()")

    def struct_class(self) -> None:
        """A class of two fields with a method at the top of the file."""
        types = [self.any_type() for _ in range(2)]
        name = self.fresh("S")
        self.line(0, "@struct")
        self.line(0, f"class {name}:")
        for number, (dtype, _) in enumerate(types):
            self.line(1, f"f{number}: {scalar_name(dtype)}")
        self.line(0, "")
        self.line(1, "def mixed(self):")
        saved = (self.vars, self.tensors, self.tables)
        self.vars = {f"self.f{number}": type for number, type in enumerate(types)}
        self.tensors, self.tables = {}, {}
        self.line(2, f"return {self.value(2, types[0], 2)}")
        self.vars, self.tensors, self.tables = saved
        self.line(0, "")
        self.line(0, "")
        self.structs[name] = types

    def _if(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        self.line(indent, f"if {self.test(indent)}:")
        self.block(indent + 1, depth - 1, width, result)
        if result is not None and self.chance(30):
            self.line(indent + 1, f"return {self.value(indent + 1, result, 2)}")
        if self.chance(50):
            self.line(indent, "else:")
            self.block(indent + 1, depth - 1, width, result)

    def _for(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        high = f"({self.value(indent, (DType.int64, 1), 1)} & 7)" if self.chance(40) else str(self.number(0, 6))
        bounds = self.pick((high, f"1, {high}", f"-2, {high}, 3"))
        name = self.fresh("j")
        self.line(indent, f"for {name} in range({bounds}):")
        self._body(indent, depth, width, name, result)

    def _while(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        name = self.fresh("w")
        self.line(indent, f"{name} = Int(0)")
        # What the test uses twice would have to be computed in every round: it uses nothing that is hoisted.
        text = self.plain_test()
        self.line(indent, f"while {name} < {self.number(1, 5)} and {text}:")
        self.line(indent + 1, f"{name} += 1")
        self._body(indent, depth, width, name, result)

    def plain_test(self) -> str:
        left = self.leaf(type := (self.pick([d for d in self.dtypes if d is not DType.bool] or [DType.int32]), 1))
        return f"{left} {self.pick(('!=', '<', '>='))} {self.leaf(type)}"

    def _unroll(self, indent: int, depth: int, width: int, result: Type | None) -> None:
        name = self.fresh("j")
        self.line(indent, f"for {name} in {self.pick(('unroll(2)', '(1, 3)', 'unroll(3, 0, -1)'))}:")
        self.block(indent + 1, min(depth - 1, 1), width, result)

    def _body(self, indent: int, depth: int, width: int, counter: str, result: Type | None) -> None:
        self.vars[counter] = (DType.int64, 1)
        self.fixed.add(counter)
        self.block(indent + 1, depth - 1, width, result)
        if self.chance(30):
            self.line(indent + 1, f"if {self.test(indent + 1, 1)}:")
            self.line(indent + 2, self.pick(("break", "continue")))
            self._assign(indent + 1, 0, width, None) if self.assignable() else None
        del self.vars[counter]

    # functions

    def helper(self) -> None:
        """A function with typed arguments at the top of the file."""
        params = [self.any_type() for _ in range(self.number(1, 3))]
        result = self.any_type()
        saved = (self.vars, self.tensors, self.tables)
        names = [self.fresh("p") for _ in params]
        self.vars, self.tensors, self.tables = dict(zip(names, params, strict=True)), {}, {}
        name = self.fresh("h")
        self.line(0, f"def {name}({', '.join(names)}):")
        for _ in range(self.number(0, 2)):
            self.statement(1, 2, 1, result)
        self.line(1, f"return {self.value(1, result)}")
        self.line(0, "")
        self.line(0, "")
        self.vars, self.tensors, self.tables = saved
        self.helpers[name] = (params, result)

    def program(self) -> Program:
        for _ in range(self.number(0, 1)):
            self.struct_class()
        for _ in range(self.number(0, 2)):
            self.helper()
        outputs = [self.pick(STORAGE if self.chance(10) else self.dtypes) for _ in range(self.number(1, 2))]
        shape = self.pick(((5,), (33,), (1,), (3, 5), (2, 1, 7)))
        way = self.pick((self.elementwise, self.rows, self.vectors))
        if way is not self.elementwise:
            shape = (self.pick((33, 16, 5)),)
        inputs = {
            self.fresh("x"): self.pick(STORAGE if self.chance(15) else self.dtypes) for _ in range(self.number(1, 3))
        }
        tables = {self.fresh("t"): self.pick(self.dtypes) for _ in range(self.number(0, 2))}
        axes = " ".join("abc"[: len(shape)])
        outs = [f"out{k}: OutputTensor[{name_of(d)}, '{axes}']" for k, d in enumerate(outputs)]
        ins = [f"{name}: InputTensor[{name_of(d)}, '{axes}']" for name, d in inputs.items()]
        ins += [f"{name}: InputTensor[{name_of(d)}, '{TABLE}']" for name, d in tables.items()]
        self.line(0, "@register('k')")
        self.line(0, f"def k({', '.join(outs + ins)}):")
        self.vars, self.tensors, self.tables = {}, inputs, tables
        way(outputs, len(shape))
        text = "from einkorn.dsl import *\n\n\n" + "\n".join(self.lines) + "\n"
        types = [(d.name, shape) for d in inputs.values()] + [(d.name, (TABLE,)) for d in tables.values()]
        return Program(text, tuple(types), self.number(0, 1000))

    def statements(self, indent: int, width: int) -> None:
        for _ in range(self.number(0, 4)):
            self.statement(indent, 3, width, None)

    def elementwise(self, outputs: list[DType], rank: int) -> None:
        """One `foreach` over all outputs."""
        self.line(1, "def body(i):")
        self.statements(2, 1)
        values = [self.value(2, (dtype, 1)) for dtype in outputs]
        self.line(2, f"return {', '.join(values)}")
        self.line(0, "")
        outs = [f"out{k}" for k in range(len(outputs))]
        self.line(1, f"foreach({outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}, body)")

    def rows(self, outputs: list[DType], rank: int) -> None:
        """`parallel_for` over the elements, with storage of the thread's own."""
        self.line(1, "def body(i):")
        storage = self.pick(self.dtypes)
        self.line(2, f"s = stack[{name_of(storage)}]({TABLE})")
        self.tables["s"] = storage
        for _ in range(self.number(0, 2)):
            at = self.value(2, (DType.int64, 1), 1)
            self.line(2, f"s[{at} & {TABLE - 1}] = {self.value(2, (storage, 1), 2)}")
            self.statement(2, 2, 1, None)
        self.statements(2, 1)
        for k, dtype in enumerate(outputs):
            self.line(2, f"out{k}[i] = {self.value(2, (dtype, 1))}")
        del self.tables["s"]
        self.line(0, "")
        self.line(1, f"parallel_for(out0.dim(0), body{self.pick(('', ', grain=4'))})")

    def vectors(self, outputs: list[DType], rank: int) -> None:
        """Whole vectors in a loop, and the rest element by element."""
        width = self.pick(WIDTHS)
        self.line(1, "n = out0.dim(0)")
        self.line(1, f"for i in range(0, n - {width - 1}, {width}):")
        self.statements(2, width)
        for k, dtype in enumerate(outputs):
            self.line(2, f"out{k}.store({self.value(2, (dtype, width))}, i)")
        self.vars = {}
        self.line(1, f"for i in range(n // {width} * {width}, n):")
        for k, dtype in enumerate(outputs):
            self.line(2, f"out{k}[i] = {self.value(2, (dtype, 1))}")


def _usable(name: str) -> bool:
    return name in OPERATORS or name in PREFIXES or (name in STUBS and STUBS[name].kind == "row")


@st.composite
def programs(draw: Callable[[Any], Any]) -> Program:
    """A random program."""
    return Writer(draw).program()
