"""Vectors: lanes in other places, single lanes, lanes combined, and vectors of elements that are not neighbours."""

from __future__ import annotations

from einkorn.dsl.types.dtype import DType

from .base import INT, TABLE, WIDTHS, Type, name_of
from .expressions import Expressions, Way

INDICES = (DType.int32, DType.uint8, DType.int64)


class Lanes(Expressions):
    """Expressions of vectors, and of scalars made of vectors."""

    def ways(self, type: Type) -> list[Way]:
        ways = super().ways(type)
        if type[1] == 1:
            seen = 3 if any(t[1] > 1 for t in self.scope.vars.values()) else 1
            ways += [self._lane] * seen + [self._pointed] * (2 if self.scope.pointers else 1)
            return ways + [self._reduced] * (seen if not type[0].is_storage() else 0)
        ways += [self._moved, self._moved, self._read, self._read]
        if not type[0].is_storage() and type[0] is not DType.bool:
            ways += [self._made]
        return ways

    def converted(self, type: Type) -> str:
        """A vector of the width wanted, from whatever there is."""
        dtype, width = type
        if width not in (1, self.scope.loads) and all(each[1] != width for each in self.scope.vars.values()):
            scalars = [name for name, each in self.scope.vars.items() if each == (dtype, 1)]
            if width <= 8 and any(each is dtype for each in self.scope.tables.values()):
                return self._read(type, 0)
            return f"{self.pick(scalars)}.broadcast({width})" if scalars else self.literal(type)
        return super().converted(type)

    def mask(self, width: int, depth: int) -> str:
        self.use("mask")
        return self.expression((DType.bool, width), depth)

    # scalars of vectors

    def vector(self, dtype: DType, depth: int) -> tuple[str, int] | None:
        """A vector of these elements, and its width: a variable, or an expression where there are vectors."""
        result = [(name, t[1]) for name, t in self.scope.vars.items() if t[0] is dtype and t[1] > 1]
        if result and self.chance(80):
            return self.pick(result)
        width = self.width_here()
        return (f"({self.expression((dtype, width), depth)})", width) if width > 1 and depth > 0 else None

    def _lane(self, type: Type, depth: int) -> str:
        result = self.vector(type[0], depth)
        if result is None:
            return self.leaf(type)
        name, width = result
        if self.chance(30):
            self.use("lane at run time")
            return f"{name}[{self.expression(INT, depth)}]"
        self.use("lane")
        return f"{name}[{self.number(-width, width - 1)}]"

    def _reduced(self, type: Type, depth: int) -> str:
        dtype = type[0]
        if type == INT and self.chance(70):
            return self._counted(depth)
        result = self.vector(dtype, depth)
        if result is None:
            return self.leaf(type)
        name, _ = result
        self.use("lane reduction")
        if dtype is DType.bool:
            return f"{name}{self.pick(('.any()', '.all()', '.none()', '.reduce_max()', '.reduce_xor()'))}"
        to = f".cast({name_of(dtype)})"
        ways = [f".reduce_add(){to}", ".reduce_min()", ".reduce_max()", f".reduce_mul(){to}"]
        if not dtype.is_float():
            ways += [".reduce_xor()", ".reduce_and()", ".reduce_or()"]
        if self.chance(25):
            self.use("reduction by function")
            body = self.pick(("a + b", "max(a, b)", "a * b"))
            return f"{name}.reduce(lambda a, b: {body})"
        return f"{name}{self.pick(ways)}"

    def _counted(self, depth: int) -> str:
        """Ints that vectors of any kind give."""
        vectors = [(name, t[0]) for name, t in self.scope.vars.items() if t[1] > 1 and not t[0].is_storage()]
        if not vectors:
            return self.leaf(INT)
        name, dtype = self.pick(vectors)
        if dtype is DType.bool:
            self.use("lane reduction")
            return f"{name}.count()"
        self.use("place of extreme")
        return f"{name}.{self.pick(('argmax', 'argmin'))}()"

    # vectors of vectors

    def _moved(self, type: Type, depth: int) -> str:
        """Lanes in other places."""
        dtype, width = type
        a = f"({self.expression(type, depth)})"
        lanes = [self.number(0, width - 1) for _ in range(width)]
        half = (dtype, width // 2)
        kind = self.pick(("shuffle", "take", "slice", "rotate", "shift", "interleave", "join", "lane"))
        if kind == "lane":
            self.use("lane by lane")
            return f"{a}.with_lane({self.number(0, width - 1)}, {self.expression((dtype, 1), depth)})"
        self.use(kind)
        if kind == "shuffle":
            if self.chance(50):
                return f"{a}.shuffle({', '.join(map(str, lanes))})"
            return f"{a}.shuffle({', '.join(str(n * 2) for n in lanes)}, other={self.expression(type, depth)})"
        if kind == "take":
            return f"{a}.take({self.expression((self.pick(INDICES), width), depth)})"
        if kind == "slice":
            double = f"{a}.join({self.expression(type, depth)})"
            first = self.number(0, width)
            return self.pick((f"{a}[::-1]", f"{a}.reverse()", f"{double}[{first}:{first + width}]", f"{double}[1::2]"))
        if kind == "rotate":
            return f"{a}.rotate_{self.pick(('left', 'right'))}({self.number(0, width)})"
        if kind == "shift":
            fill = f", {self.expression((dtype, 1), depth)}" if self.chance(50) or dtype.is_storage() else ""
            return f"{a}.shift_{self.pick(('left', 'right'))}({self.number(0, width)}{fill})"
        if kind == "interleave":
            return f"{a}.interleave({self.expression(type, depth)}).deinterleave()[{self.number(0, 1)}]"
        if width == 2:
            return f"{a}.join({self.expression(type, depth)}).split()[{self.number(0, 1)}]"
        return f"{a}.split()[{self.number(0, 1)}].join({self.expression(half, depth - 1)})"

    def _made(self, type: Type, depth: int) -> str:
        """Vectors of scalars."""
        dtype, width = type
        scalar = (dtype, 1)
        self.use("iota")
        way = self.number(0, 2)
        if way == 0:
            return f"iota({name_of(dtype)}, {width}, {self.expression(scalar, depth - 1)})"
        if way == 1 or width > 4:
            return f"({self.expression(scalar, depth)}).broadcast({width})"
        self.use("lane by lane")
        return f"SIMD[{name_of(dtype)}, {width}]({', '.join(self.expression(scalar, 0) for _ in range(width))})"

    # elements that are not neighbours

    def masked(self, type: Type, depth: int) -> str:
        """Arguments of a load that leave out lanes; or none."""
        if depth <= 0 or self.chance(50):
            return ""
        self.use("masked load")
        other = f", other={self.expression(type, depth - 1)}" if self.chance(50) else ""
        return f", mask={self.mask(type[1], depth - 1)}{other}"

    def strided(self, width: int, room: int, feature: str = "strided load") -> str:
        """The argument for steps so small that `width` elements take no more than `room`; or none."""
        most = (room - 1) // max(1, width - 1)
        if most < 1 or self.chance(50):
            return ""
        self.use(feature)
        step = self.pick([n for n in (2, 1, 3) if n <= most])
        if step == 2 and self.chance(40):
            return f", stride=1 + {self.place(1, 1)}"
        return f", stride={step}"

    def gathered(self, name: str, type: Type, most: int, depth: int) -> str:
        self.use("gather")
        index = self.expression((self.pick(INDICES), type[1]), depth - 1)
        return f"{name}.gather({index} & {most}{self.masked(type, depth)})"

    def _read(self, type: Type, depth: int) -> str:
        """A vector from a table or a pointer."""
        dtype, width = type
        tables = [name for name, each in self.scope.tables.items() if each is dtype]
        pointers = [name for name, (each, _) in self.scope.pointers.items() if each is dtype]
        if pointers and width <= 8 and self.chance(50):
            self.use("pointer")
            name = self.pick(pointers)
            if depth > 0 and self.chance(40):
                return self.gathered(name, type, 7, depth)
            at = self.place(depth, 1)
            steps = self.strided(width, 8) or self.aligned("", dtype)
            return f"{name}.load({at}, width={width}{steps}{self.masked(type, depth)})"
        if not tables or width > TABLE // 2:
            return self.leaf(type)
        name = self.pick(tables)
        if depth > 0 and self.chance(40):
            return self.gathered(name, type, TABLE - 1, depth)
        self.use("table")
        at = self.place(depth, 7)
        if self.chance(15):
            self.use("strided load")
            return f"{name}.load({TABLE - 1} - {at}, width={width}, stride=-1{self.masked(type, depth)})"
        if width <= 4 and self.chance(15):
            more = self.aligned(name, dtype, 4)
            return f"{name}.load(4 * {self.place(depth, 1)}, width={width}{more}{self.masked(type, depth)})"
        steps = self.strided(width, 9) or self.aligned("", dtype)
        return f"{name}.load({at}, width={width}{steps}{self.masked(type, depth)})"

    def _pointed(self, type: Type, depth: int) -> str:
        """An element behind a pointer."""
        pointers = [name for name, (each, _) in self.scope.pointers.items() if each is type[0]]
        if not pointers:
            return self.leaf(type)
        self.use("pointer")
        name = self.pick(pointers)
        if self.chance(30):
            return f"({name} + {self.place(depth, 3)})[{self.place(depth - 1, 3)}]"
        return f"{name}[{self.place(depth, 7)}]"

    def width_here(self) -> int:
        """The width of a vector that makes sense in this scope; 1 where there are none."""
        if self.scope.loads:
            return self.scope.loads
        if self.scope.tables or any(t[1] > 1 for t in self.scope.vars.values()):
            return self.pick([w for w in WIDTHS if w <= TABLE // 2])
        return 1
