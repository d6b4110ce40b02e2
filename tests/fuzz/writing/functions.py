"""Functions and classes of a program: helpers at the top of the file, closures in kernels, structs, monoids."""

from __future__ import annotations

from einkorn.dsl.types.dtype import DType, scalar_name

from .base import INT, Scope, Type, name_of
from .statements import Statement
from .storage import Storage


class Functions(Storage):
    """What programs define, and the statements that use it."""

    def kinds(self, depth: int) -> list[Statement]:
        kinds = super().kinds(depth)
        if self.structs:
            kinds += [self._struct] * 3
        return kinds + ([self._closure] if depth > 1 else [])

    def alone_scope(self, **changes: object) -> Scope:
        """A scope in which nothing of a kernel is seen, but for the functions of the file."""
        functions = {name: f for name, f in self.scope.functions.items() if name.startswith("h")}
        return Scope(functions=functions, **changes)  # type: ignore[arg-type]

    def helper(self) -> None:
        """A function at the top of the file."""
        params = [self.any_type() for _ in range(self.number(1, 3))]
        result = self.any_type()
        names = [self.fresh("p") for _ in params]
        name = self.fresh("h")
        outer, self.scope = self.scope, self.alone_scope(vars=dict(zip(names, params, strict=True)))
        with self.section(name):
            self.use("helper")
            given = [self._declared(n, t[0]) for n, t in zip(names, params, strict=True)]
            self.line(0, f"def {name}({', '.join(given)}):")
            self.statements(1, 3, 2, result)
            self.line(1, f"return {self.expression(result)}")
        self.scope = outer
        self.scope.functions[name] = (params, result)

    def _declared(self, name: str, dtype: DType) -> str:
        """A parameter, at times with its type, which may be open: a call gives it its dtype."""
        if self.chance(10):
            self.use("generic helper")
            return f"{name}: {self.type_variable(dtype)}"
        return f"{name}: {scalar_name(dtype)}" if self.chance(20) else name

    def type_variable(self, dtype: DType) -> str:
        """A type variable that may stand for this dtype; another one each time."""
        bounds = ["bound=Storable"]
        if not dtype.is_storage():
            other = self.pick(self.dtypes)
            bounds += ["bound=Element"] + ([f"{name_of(dtype)}, {name_of(other)}"] if other is not dtype else [])
            if dtype is not DType.bool:
                bounds += ["bound=Numeric", "bound=Floating" if dtype.is_float() else "bound=Integral"]
        name = self.fresh("T")
        self.prologue[name] = f'from typing import TypeVar\n\n{name} = TypeVar("{name}", {self.pick(bounds)})\n'
        return name

    def _closure(self, indent: int, depth: int, result: Type | None) -> None:
        """A function in a function, with what the variables around it hold here."""
        type, given = self.any_type(), self.any_type()
        name, parameter = self.fresh("c"), self.fresh("p")
        with self.apart(name), self.inner() as scope:
            self.use("closure")
            self.line(indent, f"def {name}({parameter}):")
            # What lies around is read and not assigned: a function has variables of its own.
            scope.vars[parameter] = given
            self.scope = self.scope.copy(fixed=frozenset(scope.vars), stores={}, pointers={}, digest="")
            self.statements(indent + 1, 2, 1, type)
            self.line(indent + 1, f"return {self.expression(type, 2)}")
        self.line(indent, "")
        self.needed |= self.needs[name]  # its text stays where it is
        self.scope.functions[name] = ([given], type)

    # structs

    def struct_class(self) -> None:
        """A class of two fields with methods, at the top of the file."""
        types = [self.any_type() for _ in range(2)]
        name = self.fresh("S")
        outer = self.scope
        first = scalar_name(types[0][0])
        with self.section(name):
            self.line(0, "@struct")
            self.line(0, f"class {name}:")
            for number, (dtype, _) in enumerate(types):
                self.line(1, f"f{number}: {scalar_name(dtype)}")
            self.scope = self.alone_scope(vars={f"self.f{number}": type for number, type in enumerate(types)})
            self.line(0, "")
            self.line(1, "@property")
            self.line(1, "def mixed(self):")
            self.line(2, f"return {self.expression(types[0], 2)}")
            self.line(0, "")
            self.line(1, "def __add__(self, other):")
            self.scope.vars.update({f"other.f{number}": type for number, type in enumerate(types)})
            self.line(2, f"return {name}({', '.join(self.expression(type, 2) for type in types)})")
            self.line(0, "")
            self.line(1, "def __lt__(self, other):")
            self.line(2, f"return {self.condition()}")
            self.line(0, "")
            self.line(1, "def __call__(self, by):")
            self.scope = self.alone_scope(vars={**{f"self.f{k}": type for k, type in enumerate(types)}, "by": INT})
            self.line(2, f"return {self.expression(types[1], 2)}")
            self.line(0, "")
            self.line(1, "@staticmethod")
            self.line(1, "def of(value):")
            self.scope = self.alone_scope(vars={"value": types[0]})
            self.line(2, f"return {name}({first}(value), {self.expression(types[1], 2)})")
        self.scope = outer
        self.structs[name] = types

    def _struct(self, indent: int, depth: int, result: Type | None) -> None:
        """A struct, or two put together; the fields are variables, and so is what the property gives."""
        kind = self.called(self.pick(list(self.structs)))
        types = self.structs[kind]
        self.use("struct")
        name = self.fresh("o")
        known = [n for n, each in self.scope.objects.items() if each == kind]
        if known and self.chance(60):
            self.use("operator method")
            a, b = self.pick(known), self.pick(known)
            self.line(indent, f"{name} = {a} + {b} if {a} < {b} else {b}")
        elif self.chance(30):
            self.use("static method")
            self.line(indent, f"{name} = {kind}.of({self.expression(types[0], 2)})")
        else:
            self.line(indent, f"{name} = {kind}({', '.join(self.expression(type, 2) for type in types)})")
        for number, type in enumerate(types):
            self.scope.vars[f"{name}.f{number}"] = type
        self.scope.objects[name] = kind
        if self.chance(25):
            self._around(indent, name, kind)
        if self.chance(30):
            self.use("call method")
            self.fix(f"{name}({self.literal(INT)})", types[1])
        self.use("property")
        self.fix(f"{name}.mixed", types[0])

    def _around(self, indent: int, name: str, kind: str) -> None:
        """A struct with another one in it."""
        self.use("struct in a struct")
        outer = f"Around{kind}"
        text = ["@struct", f"class {outer}:", f"    inner: {kind}", "    by: Int = 2", ""]
        self.sections[outer] = [*text, "    def __getitem__(self, k):", "        return self.by + k"]
        self.needs[outer] = {kind}
        self.called(outer)
        made = self.fresh("o")
        by = f", {self.expression(INT, 1)}" if self.chance(60) else ""
        self.line(indent, f"{made} = {outer}({name}{by})")
        for number, type in enumerate(self.structs[kind]):
            self.fix(f"{made}.inner.f{number}", type)
        self.fix(f"{made}[{self.number(0, 9)}]", INT)

    # monoids

    def monoid(self, dtype: DType) -> tuple[str, DType]:
        """The name of a monoid of a program's own over elements of this type, and the type of its value."""
        name = self.fresh("M")
        self.use("own monoid")
        way = self.pick(("sum", "bits", "affine", "extremes"))
        if way == "bits" and (dtype.is_float() or dtype is DType.bool):
            way = "sum"
        if way == "affine" and not dtype.is_integral():
            way = "extremes"
        if dtype is DType.bool:
            way = "count"
        lines, result = getattr(self, f"_{way}_monoid")(dtype)
        lanes = self.pick(("", "lanes = 4", "lanes = 1")) if way != "affine" else "lanes = 1"
        text = "from math import inf\n\nfrom einkorn.stdlib import Monoid\n\n\n" + f"class {name}(Monoid):\n"
        text += "".join(f"    {line}\n" if line else "\n" for line in ([lanes, ""] if lanes else []) + lines)
        self.prologue[name] = text
        return name, result

    def _sum_monoid(self, dtype: DType) -> tuple[list[str], DType]:
        lifted = self.simple("value", dtype)
        return [
            *("@staticmethod", "def identity(dtype):", "    return dtype(0)", ""),
            *("@staticmethod", "def lift(value, place):", f"    return {lifted}", ""),
            *("@staticmethod", "def combine(a, b):", "    return a + b"),
        ], dtype

    def _bits_monoid(self, dtype: DType) -> tuple[list[str], DType]:
        return [
            *("@staticmethod", "def lift(value, place):", f"    return {self.simple('value', dtype)}", ""),
            *("@staticmethod", "def combine(a, b):", f"    return a {self.pick(('^', '|'))} b"),
        ], dtype

    def _count_monoid(self, dtype: DType) -> tuple[list[str], DType]:
        return [
            *("@staticmethod", "def identity(dtype):", "    return int32(0)", ""),
            *("@staticmethod", "def lift(value, place):", "    return value.cast(int32) + place", ""),
            *("@staticmethod", "def finish(state, dtype):", "    return state"),
        ], DType.int32

    def _affine_monoid(self, dtype: DType) -> tuple[list[str], DType]:
        """x -> a * x + b, one after the other: the order matters."""
        return [
            *("@staticmethod", "def identity(dtype):", "    return dtype(1), dtype(0)", ""),
            *("@staticmethod", "def lift(value, place):", f"    return {self.simple('value', dtype)}, value", ""),
            *("@staticmethod", "def combine(a, b):", "    return a[0] * b[0], a[1] * b[0] + b[1]", ""),
            *("@staticmethod", "def finish(state, dtype):", f"    return state[{self.number(0, 1)}]"),
        ], dtype

    def _extremes_monoid(self, dtype: DType) -> tuple[list[str], DType]:
        low, high = ("-inf", "inf") if dtype.is_float() else map(str, dtype.range)
        nothing = f"dtype({high}), dtype({low})"
        return [
            *("@staticmethod", "def identity(dtype):", f"    return {nothing}", ""),
            *("@staticmethod", "def lift(value, place):", "    return value, value", ""),
            *("@staticmethod", "def combine(a, b):", "    return min(a[0], b[0]), max(a[1], b[1])", ""),
            *("@staticmethod", "def finish(state, dtype):", "    return state[0] + state[1]"),
        ], dtype

    def size_vars(self, names: list[str], rank: int) -> tuple[str, ...]:
        """Expressions of the sizes of these tensors."""
        sizes = [f"{name}.size" for name in names]
        for name in names if rank else []:
            sizes += [f"{name}.dim({self.number(-rank, rank - 1)})", f"{name}.shape[{rank - 1}]", f"len({name})"]
        return tuple(sizes)

    def storage_type(self, dtype: DType) -> DType:
        """Notes types that take less than they are computed in."""
        if dtype.is_packed():
            self.use("packed type")
        if dtype.is_storage():
            self.use("storage type")
        return dtype
