"""Expressions that call: mathematics, functions of the file, lambdas, generator expressions, random numbers."""

from __future__ import annotations

from einkorn.dsl.language.stubs import STUBS
from einkorn.dsl.types.dtype import DType

from .base import DTYPES, INT, Type, name_of
from .expressions import Way
from .lanes import Lanes

TWO = ("pow", "hypot", "atan2", "fmod", "remainder")  # mathematics of two numbers
INTEGRAL = tuple(dtype for dtype in DTYPES if dtype.is_integral())
FLOATS = tuple(dtype for dtype in DTYPES if dtype.is_float())
HALF_AS_WIDE = {
    DType.int16: DType.int8, DType.int32: DType.int16, DType.int64: DType.int32,
    DType.uint16: DType.uint8, DType.uint32: DType.uint16, DType.uint64: DType.uint32,
}  # fmt: skip


class Calls(Lanes):
    """Expressions with calls in them."""

    inside = 0  # how many lambdas are around

    def ways(self, type: Type) -> list[Way]:
        dtype, width = type
        ways = super().ways(type)
        if dtype.is_storage():
            return ways
        if dtype.is_float() and self.budget > 60:
            ways += [self._mathematics, self._parts]
        if dtype in HALF_AS_WIDE:
            ways.append(self._product)
        if dtype.is_integral():
            ways.append(self._power)
        if dtype is DType.int32:
            ways.append(self._exponent)
        if width == 1:
            ways += [self._called, self._called, self._lambda]
            ways += [self._generator, self._random] if dtype in (DType.uint32, DType.float32) else [self._generator]
        return ways

    def _mathematics(self, type: Type, depth: int) -> str:
        self.use("mathematics")
        names = [s.name for s in STUBS.values() if s.kind == "library" and s.name not in (*TWO, "frexp", "ldexp")]
        name = self.pick([*names, *TWO])
        arity = 2 if name in TWO else 1
        self.budget -= 30
        return f"{name}({', '.join(self.expression(type, depth) for _ in range(arity))})"

    def _parts(self, type: Type, depth: int) -> str:
        """What takes floats apart and puts them together."""
        name = self.pick(("frexp", "ldexp", "nextafter"))
        self.use(name)
        x = self.expression(type, depth)
        if name == "frexp":
            return f"frexp({x})[0]"
        if name == "ldexp":
            return f"ldexp({x}, {self.expression((self.one_of(INTEGRAL, [DType.int32]), type[1]), depth)})"
        return f"nextafter({self.known(x, type)}, {self.expression(type, depth)})"

    def _exponent(self, type: Type, depth: int) -> str:
        self.use("frexp")
        return f"frexp({self.expression((self.one_of(FLOATS, [DType.float32]), type[1]), depth)})[1]"

    def _product(self, type: Type, depth: int) -> str:
        self.use("wide product")
        half = (HALF_AS_WIDE[type[0]], type[1])
        return f"mul_wide({self.expression(half, depth)}, {self.expression(half, depth)})"

    def _power(self, type: Type, depth: int) -> str:
        self.use("power of integers")
        if self.chance(50):
            return f"({self.expression(type, depth)} ** {self.number(0, 5)})"
        return f"pow({self.expression(type, depth)}, {self.expression(type, depth)})"

    def _called(self, type: Type, depth: int) -> str:
        fitting = [name for name, (_, result) in self.scope.functions.items() if result == type]
        if not fitting:
            return self.leaf(type)
        name = self.called(self.pick(fitting))
        return f"{name}({', '.join(self.expression(t, depth - 1) for t in self.scope.functions[name][0])})"

    def _lambda(self, type: Type, depth: int) -> str:
        """A function given to a function; it sees the variables around it."""
        self.use("lambda")
        # One inside of another would make the function that takes it call itself.
        function = f"applied{self.inside or ''}{self.owner}"
        self.with_function(function, f"def {function}(f, x):\n    return f(x)\n")
        given = self.any_type()
        name = self.fresh("a")
        self.inside += 1
        value = self.expression(given, depth - 1)
        with self.inner() as scope:
            scope.vars[name] = given
            text = self.expression(type, depth)
        self.inside -= 1
        return f"{function}(lambda {name}: {text}, {value})"

    def _generator(self, type: Type, depth: int) -> str:
        """Python's functions over items that are written out."""
        self.use("generator expression")
        name = self.fresh("g")
        source = self.any_type()
        items = [self.expression(source, depth - 1) for _ in range(self.number(2, 3))]
        with self.inner() as scope:
            scope.vars[name] = source
            each = self.expression(type, depth)
        over = f"({', '.join(items)})"
        if self.chance(30):
            over = f"reversed({over})"
        if type[0] is DType.bool:
            return f"{self.pick(('any', 'all'))}({each} for {name} in {over})"
        way = self.pick(("sum", "min", "max", "tuple", "enumerate", "zip"))
        if way == "tuple":
            return f"tuple({each} for {name} in {over})[{self.number(-len(items), len(items) - 1)}]"
        if way == "zip":
            other = self.fresh("g")
            second = ", ".join(self.expression(type, depth - 1) for _ in items)
            start = f", {self.expression(type, 0)}" if not type[0].is_storage() else ""
            return f"sum((({each}) * {other} for {name}, {other} in zip({over}, ({second}))){start})"
        if way == "enumerate":
            k = self.fresh("k")
            return f"max(({each}) for {k}, {name} in enumerate({over}) if {k} != 1)"
        return f"{way}({each} for {name} in {over})"

    def _random(self, type: Type, depth: int) -> str:
        self.use("random numbers")
        for name in ("philox", "uniform"):
            self.prologue[name] = f"from einkorn.stdlib import {name}"
        word = f"philox({self.expression(INT, depth - 1)}, {self.expression(INT, depth - 1)})[{self.number(0, 3)}]"
        self.budget -= 20
        if type[0] is DType.uint32:
            return word
        if self.chance(40):
            self.prologue["normal"] = "from einkorn.stdlib import normal"
            return f"normal({word}, {self.expression((DType.uint32, 1), depth - 1)})[{self.number(0, 1)}]"
        return f"uniform({word})"

    def simple(self, name: str, dtype: DType, depth: int = 2) -> str:
        """An expression of `name`, a scalar or a vector of these elements, of the same type."""
        if depth == 0 or self.chance(20):
            return name
        literal = self.literal((dtype, 1))
        inner = self.simple(name, dtype, depth - 1)
        if dtype is DType.bool:
            return self.pick((f"(~{inner})", f"({inner} ^ {name})", f"({inner} & {name})"))
        texts = [f"({inner} + {name})", f"({inner} * {literal})", f"max({inner}, {literal})", f"({name} - {inner})"]
        texts += [f"select({name} < {literal}, {inner}, {name})", f"abs({inner})", f"min({name}, {inner})"]
        texts += [f"floor({inner} / {literal})", f"sqrt({inner})"] if dtype.is_float() else [f"({inner} ^ {name})"]
        return self.pick(texts)

    def cast_to(self, text: str, dtype: DType, wanted: DType) -> str:
        return text if dtype is wanted else f"({text}).cast({name_of(wanted)})"
