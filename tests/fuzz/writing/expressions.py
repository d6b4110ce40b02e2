"""Expressions of operations: every row of the table, casts, choices, comparisons, conversions, sizes."""

from __future__ import annotations

from collections.abc import Callable

from einkorn.compiler.ir.operations import ROWS
from einkorn.dsl.language.stubs import STUBS
from einkorn.dsl.types.dtype import DType, scalar_name

from .base import BOOL, DTYPES, INT, STORAGE, TABLE, Base, Type, name_of

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "and_": "&", "or_": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
PREFIXES = {"neg": "-", "invert": "~", "not_": "not "}
Way = Callable[[Type, int], str]


def usable(name: str) -> bool:
    return name in OPERATORS or name in PREFIXES or (name in STUBS and STUBS[name].kind == "row")


class Expressions(Base):
    """Text of expressions of a wanted type."""

    def expression(self, type: Type, depth: int = 3) -> str:
        """Text of an expression of a type."""
        self.budget -= 1
        if depth <= 0 or self.budget <= 0:
            return self.leaf(type)
        return self.pick(self.ways(type))(type, depth - 1)

    def ways(self, type: Type) -> list[Way]:
        """What an expression of a type may be made by; others add to it."""
        dtype, width = type
        if dtype.is_storage():
            return [self._leaf, self._cast, self._select]
        ways: list[Way] = [self._leaf, self._row, self._row, self._row, self._cast, self._select]
        if dtype is DType.bool:
            ways += [self._comparison, self._comparison]
        else:
            ways += [self._bitcast, self._minimum]
        if width == 1:
            ways += [self._ternary, self._table]
            ways += [self._elsewhere] if self.scope.position else []
        if type == INT:
            ways += [self._size, self._position]
        return ways

    # leaves

    def leaf(self, type: Type) -> str:
        dtype, width = type
        options = [name for name, each in self.scope.vars.items() if each == type]
        if width in (1, self.scope.loads):
            options += [name for name, each in self.scope.tensors.items() if each is dtype]
        if self.chance(15):
            return self.literal(type)
        return self.element(self.pick(options), width) if options else self.converted(type)

    def element(self, name: str, width: int) -> str:
        """A variable, or what a tensor holds here."""
        at = self.scope.index
        if name not in self.scope.tensors:
            return name
        if width == 1:
            return f"{name}[{at}]"
        return f"{name}.load({at}, width={width}{self.aligned(name, self.scope.tensors[name], width)})"

    def converted(self, type: Type) -> str:
        """A variable or an element of any type, as one of this type."""
        dtype, width = type
        options = [name for name, each in self.scope.vars.items() if each[1] == width]
        if width in (1, self.scope.loads):
            options += list(self.scope.tensors)
        return f"{self.element(self.pick(options), width)}.cast({name_of(dtype)})" if options else self.literal(type)

    def _leaf(self, type: Type, depth: int) -> str:
        return self.leaf(type)

    def place(self, depth: int, most: int = TABLE - 1) -> str:
        """An Int from 0 to `most`, which is one less than a power of two."""
        return f"({self.expression(INT, depth)} & {most})"

    def _table(self, type: Type, depth: int) -> str:
        tables = [name for name, dtype in self.scope.tables.items() if dtype is type[0]]
        if not tables:
            return self.leaf(type)
        self.use("table")
        name = self.pick(tables)
        if self.failing and self.chance(40):
            self.use("may fail")
            return f"{name}[{self.expression(INT, min(depth, 1))}]"
        if self.chance(20):
            self.use("view")
            view, most = self.pick((("[::-1]", 15), ("[8:]", 7), ("[1::2]", 7), ("[:4]", 3)))
            return f"{name}{view}[{self.place(depth, most)}]"
        return f"{name}[{self.place(depth)}]"

    def _elsewhere(self, type: Type, depth: int) -> str:
        """Another element of a tensor that nothing changes."""
        result = [n for n, dtype in self.scope.tensors.items() if dtype is type[0] and not n.startswith("y")]
        if not result:
            return self.leaf(type)
        self.use("another element")
        name = self.pick(result)
        if self.chance(50):
            return f"{name}.at({name}.size - 1 - {self.scope.position.format(name)})"
        return f"{name}.at({self.expression(INT, depth)} % {name}.size)"

    # operations

    def _row(self, type: Type, depth: int) -> str:
        dtype, width = type
        self.use("operation")
        row = self.pick([r for r in ROWS.values() if r.takes(dtype) and r.result == "same" and usable(r.name)])
        if row.name == "not_" and width > 1:
            return f"(~{self.expression(type, depth)})"
        if row.name == "copysign":
            sign = self.known(self.expression(type, depth), type)
            return f"copysign({self.expression(type, depth)}, {sign})"
        return self.apply(row.name, [self.expression(type, depth) for _ in range(row.arity)])

    def apply(self, name: str, operands: list[str]) -> str:
        if name in OPERATORS:
            return f"({operands[0]} {OPERATORS[name]} {operands[1]})"
        if name in PREFIXES:
            return f"({PREFIXES[name]}{operands[0]})"
        return f"{name}({', '.join(operands)})"

    def known(self, text: str, type: Type) -> str:
        """The expression, and a number instead where it is a NaN, whose sign and payload are open."""
        function = self.with_function("known", "def known(x, other):\n    return select(isnan(x), other, x)\n")
        return f"{function}({text}, {self.literal(type)})" if type[0].is_float() else text

    def _cast(self, type: Type, depth: int) -> str:
        source = self.pick(self.dtypes if self.chance(70) else DTYPES + (STORAGE if self.chance(50) else ()))
        text = self.expression((source, type[1]), depth)
        self.use("cast")
        if type[1] == 1 and type[0] is not DType.bool and self.chance(15):
            return f"{scalar_name(type[0])}({text})"
        if type[0].is_integral() and source.is_integral() and self.chance(30):
            self.use("saturating cast")
            return f"{text}.cast({name_of(type[0])}, saturate=True)"
        return f"{text}.cast({name_of(type[0])})"

    def _bitcast(self, type: Type, depth: int) -> str:
        dtype, width = type
        kinds = DTYPES + STORAGE
        sources = [d for d in kinds if d.bits == dtype.bits and d is not dtype and d is not DType.bool]
        if not sources:
            return self.leaf(type)
        source = self.pick(sources)
        text = self.expression((source, width), depth)
        self.use("bit cast")
        if not source.is_storage():
            text = self.known(text, (source, width))
        return f"bitcast({text}, {name_of(dtype)})"

    def _select(self, type: Type, depth: int) -> str:
        self.use("select")
        test = self.expression((DType.bool, type[1]), depth)
        return f"select({test}, {self.expression(type, depth)}, {self.expression(type, depth)})"

    def _minimum(self, type: Type, depth: int) -> str:
        self.use("minimum of three")
        values = ", ".join(self.expression(type, depth - 1) for _ in range(3))
        return f"{self.pick(('min', 'max'))}({values})"

    def _comparison(self, type: Type, depth: int) -> str:
        dtype = self.pick(self.dtypes)
        row = self.pick([r for r in ROWS.values() if r.takes(dtype) and r.result == "bool" and usable(r.name)])
        operands = [self.expression((dtype, type[1]), depth) for _ in range(row.arity)]
        self.use("comparison")
        if type[1] == 1 and row.name in ("lt", "le", "gt", "ge") and self.chance(20):
            self.use("chain")
            return f"({operands[0]} {OPERATORS[row.name]} {operands[1]} <= {self.expression((dtype, 1), depth)})"
        return self.apply(row.name, operands)

    def _ternary(self, type: Type, depth: int) -> str:
        self.use("if/else")
        test = self.condition(depth)
        return f"({self.expression(type, depth)} if {test} else {self.expression(type, depth)})"

    def condition(self, depth: int = 2) -> str:
        """A scalar Bool, with the words that are computed only where they decide."""
        left = self.expression(BOOL, depth)
        if self.chance(25):
            self.use("and/or")
            return f"({left} {self.pick(('and', 'or'))} {self.expression(BOOL, depth)})"
        return left

    # sizes and positions

    def _size(self, type: Type, depth: int) -> str:
        if not self.scope.sizes:
            return self.leaf(type)
        self.use("size arithmetic")
        size = self.pick(self.scope.sizes)
        by = self.pick(("{}", "({} + 1)", "({} - {other})", "({} * 2)", "ceildiv({}, 3)", "({} // 2)", "({} % 3)"))
        return by.format(size, other=self.pick(self.scope.sizes))

    def _position(self, type: Type, depth: int) -> str:
        """Where an element of a tensor lies, and the element that lies there."""
        if not self.scope.tensors or self.scope.loads or not self.scope.position:
            return self.leaf(type)
        self.use("position")
        name = self.pick(list(self.scope.tensors))
        return self.scope.position.format(name)
