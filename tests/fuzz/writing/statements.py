"""Statements: assignments, branches, loops and ways out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einkorn.compiler.ir.operations import ROWS
from einkorn.dsl.types.dtype import DType

from .base import BOOL, INT, STORAGE, Type, name_of
from .calls import Calls
from .expressions import OPERATORS

BITS_OF = """
def bits_of(x):
    if x.dtype.is_float():
        some = select(isnan(x), 1.5, x)
        bits = bitcast(some, uint16 if x.dtype.bits == 16 else uint32 if x.dtype.bits == 32 else uint64).cast(uint64)
    else:
        bits = x.cast(uint64)
    return (bits * iota(uint64, x.width, 3, 2)).reduce_add() if x.width > 1 else bits
"""
Statement = Callable[[int, int, "Type | None"], None]


class Statements(Calls):
    """Lines of a function's body. `depth` is how deep blocks may still stand in it, `result` what it may return."""

    def kinds(self, depth: int) -> list[Statement]:
        """The statements that there may be; others add to it."""
        kinds: list[Statement] = [self._new, self._assign, self._assign, self._tuple, self._star, self._lane_store]
        if depth > 0 and self.budget > 20:
            kinds += [self._if, self._for, self._while, self._unroll]
        if self.scope.tensors or self.scope.tables:
            kinds.append(self._known)
        return [*kinds, *[self._assert] * (4 if self.failing else not self.quiet), *[self._print] * self.alone]

    def statement(self, indent: int, depth: int, result: Type | None = None) -> None:
        self.pick(self.kinds(depth))(indent, depth, result)

    def statements(self, indent: int, most: int = 4, depth: int = 3, result: Type | None = None) -> None:
        for _ in range(self.number(0, most)):
            self.statement(indent, depth, result)

    def block(self, indent: int, depth: int, result: Type | None) -> None:
        """Statements; variables made in them are gone afterwards."""
        outer = set(self.scope.vars)
        with self.inner():
            for _ in range(self.number(1, 3)):
                self.statement(indent, depth, result)
            self.digest(indent, [name for name in self.scope.vars if name not in outer])

    # the bits of variables, so that none is computed for nothing

    def begin(self, indent: int, dtypes: Sequence[DType]) -> None:
        """Where a result is a UInt64, it is made of all variables."""
        if DType.uint64 in dtypes and not self.scope.digest:
            self.use("digest")
            self.line(indent, "d = UInt64(0)")
            self.scope = self.scope.copy(digest="d")

    def digest(self, indent: int, names: Sequence[str]) -> None:
        for name in names[-6:] if self.scope.digest else ():
            dtype, width = self.scope.vars[name]
            if not dtype.is_storage():
                # A Bool that is known now may be one of Python's, which has no dtype.
                text = f"Bool({name})" if (dtype, width) == BOOL else name
                self.line(indent, f"d = rotl(d, 7) ^ {self.with_function('bits_of', BITS_OF)}({text})")

    def final(self, indent: int, type: Type) -> str:
        """What is stored into a result of this type."""
        if type[0] is not DType.uint64 or not self.scope.digest:
            return self.expression(type)
        self.digest(indent, list(self.scope.vars))
        value = self.expression(type, 2)
        return f"({value} ^ d)"

    # assignments

    def _new(self, indent: int, depth: int, result: Type | None) -> None:
        type = self.any_type(self.width_here() if self.chance(40) else 1)
        name = self.fresh("v")
        self.line(indent, f"{name} = {self.expression(type)}")
        self.scope.vars[name] = type

    def assignable(self) -> list[str]:
        return [name for name in self.scope.vars if name not in self.scope.fixed]

    def _assign(self, indent: int, depth: int, result: Type | None) -> None:
        names = self.assignable()
        if not names:
            return self._new(indent, depth, result)
        name = self.pick(names)
        type = self.scope.vars[name]
        if "." in name:
            self.use("field assignment")
        rows = [r for r in ("add", "sub", "mul", "xor", "and_", "floordiv") if ROWS[r].takes(type[0])]
        if rows and self.chance(40):
            self.line(indent, f"{name} {OPERATORS[self.pick(rows)]}= {self.expression(type, 2)}")
        else:
            self.line(indent, f"{name} = {self.expression(type)}")

    def fix(self, name: str, type: Type) -> None:
        """Something that has this type, and is not assigned."""
        self.scope.vars[name] = type
        self.scope = self.scope.copy(fixed=self.scope.fixed | {name})

    def _tuple(self, indent: int, depth: int, result: Type | None) -> None:
        """A tuple; its items are variables that are not assigned by themselves."""
        self.use("tuple")
        types = [self.any_type() for _ in range(2)]
        texts = [self.expression(type, 2) for type in types]
        name = self.fresh("u")
        self.line(indent, f"{name} = ({', '.join(texts)})")
        if self.chance(40):
            self.line(indent, f"if {self.condition(1)}:")
            self.line(indent + 1, f"{name} = ({', '.join(self.expression(type, 2) for type in types)})")
        if self.chance(40):
            names = [self.fresh("v") for _ in types]
            self.line(indent, f"{', '.join(names)} = {name}")
            self.scope.vars.update(zip(names, types, strict=True))
        for number, type in enumerate(types):
            self.fix(f"{name}[{number}]", type)

    def _star(self, indent: int, depth: int, result: Type | None) -> None:
        """Tuples put together of others, and parts of them."""
        self.use("star")
        type, other = self.any_type(), self.any_type()
        name = self.fresh("u")
        items = ", ".join(self.expression(type, 1) for _ in range(2))
        self.line(indent, f"{name} = ({items})")
        more = self.pick((f"(*{name}, {{}})", f"{name} + ({{}},)", f"({{}}, *{name}[::-1])[::-1]"))
        self.line(indent, f"{name}{name} = {more.format(self.expression(other, 1))}")
        self.fix(f"{name}{name}[0]", type)
        self.fix(f"{name}{name}[-2]", type)
        self.fix(f"{name}{name}[len({name})]", other)
        self.fix(f"{name}{name}[1:][1]", other)

    def _lane_store(self, indent: int, depth: int, result: Type | None) -> None:
        """Another number in one lane of a vector."""
        vectors = [name for name in self.assignable() if self.scope.vars[name][1] > 1 and "." not in name]
        if not vectors:
            return self._new(indent, depth, result)
        self.use("lane assignment")
        name = self.pick(vectors)
        dtype, width = self.scope.vars[name]
        lane = self.expression(INT, 1) if self.chance(40) else str(self.number(0, width - 1))
        self.line(indent, f"{name}[{lane}] = {self.expression((dtype, 1), 2)}")

    # branches

    def _if(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("if")
        test = self.condition()
        if self.scope.parallel and self.chance(30):
            self.use("rare")
            test = f"rare({test})"
        self.line(indent, f"if {test}:")
        self.block(indent + 1, depth - 1, result)
        if result is not None and self.chance(50):
            self.use("early return")
            self.line(indent + 1, f"return {self.expression(result, 2)}")
        if self.chance(20):
            self.use("elif")
            self.line(indent, f"elif {self.condition()}:")
            self.block(indent + 1, depth - 1, result)
        if self.chance(50):
            self.line(indent, "else:")
            self.block(indent + 1, depth - 1, result)

    def _assert(self, indent: int, depth: int, result: Type | None) -> None:
        """An assertion or a refusal; where nothing may fail, one that holds."""
        if self.failing and self.chance(50):
            self.use("may fail")
            test, value = self.condition(1), self.expression(INT, 1)
            if self.chance(50):
                self.use("raise")
                self.line(indent, f"if {test}:")
                self.line(indent + 1, f'raise ValueError(f"it was {{{value}}}")')
                return
        else:
            test, value = f"{self.place(1, 7)} < 8", self.expression(INT, 0)
        self.use("assert")
        self.line(indent, f'assert {test}, f"it is {{{value}}}"')

    def _known(self, indent: int, depth: int, result: Type | None) -> None:
        """What is known when the kernel is compiled: an assertion that holds, or a branch that is left out."""
        name, dtype = self.pick([*self.scope.tensors.items(), *self.scope.tables.items()])
        test = f"{name}.dtype == {name_of(dtype)}"
        vectors = [(v, t) for v, t in self.scope.vars.items() if t[1] > 1]
        if vectors and self.chance(40):
            vector, (kind, width) = self.pick(vectors)
            test = f"{vector}.width == {width} and {vector}.dtype == {name_of(kind)}"
        unlike = f"{name}.dtype != {name_of(STORAGE[0] if dtype is not STORAGE[0] else STORAGE[1])}"
        test = self.pick((test, f"({test}) and {name}.rank < 9", f"not ({test}) or {unlike}"))
        if self.chance(50):
            self.use("static assertion")
            message = self.pick(("", ', "as it was declared"', ', f"of {1 + 1}"'))
            self.line(indent, f"static_assert({test}{message})")
            return
        self.use("branch left out")
        self.line(indent, f"if {name}.dtype == {name_of(dtype)}:" if self.chance(50) else f"if {name}.rank < 9:")
        self.block(indent + 1, 0, None)
        self.line(indent, "else:")
        self.line(indent + 1, 'static_assert(False, "this cannot be")')

    def _print(self, indent: int, depth: int, result: Type | None) -> None:
        """Whole numbers and bools: a NaN may be shown with a sign."""
        self.use("print")
        first, second = self.expression(INT, 1), self.expression(BOOL, 1)
        shown = self.pick((f"{first}, {second}", f'"at", {first}', f'f"{{{first}:5}} and {{{second}}}"'))
        self.line(indent, f"print({shown})")

    # loops

    def _for(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("for")
        high = self.place(1, 7) if self.chance(40) else str(self.number(0, 6))
        bounds = self.pick((f"range({high})", f"range(1, {high})", f"range(-2, {high}, 3)", f"reversed(range({high}))"))
        name = self.fresh("j")
        self.line(indent, f"for {name} in {bounds}:")
        self._body(indent, depth, name, result)

    def _while(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("while")
        name = self.fresh("w")
        self.line(indent, f"{name} = Int(0)")
        self.line(indent, f"while {name} < {self.number(1, 5)} and {self.condition(1)}:")
        self.line(indent + 1, f"{name} += 1")
        self._body(indent, depth, name, result)

    def _unroll(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("unroll")
        name = self.fresh("j")
        if self.chance(30):
            types = [self.any_type()] * 2
            over = f"({', '.join(self.expression(type, 1) for type in types)})"
            self.line(indent, f"for {name}, {name}v in enumerate({over}):")
            more = {f"{name}v": types[0]}
        else:
            self.line(indent, f"for {name} in {self.pick(('unroll(2)', '(1, 3)', 'unroll(3, 0, -1)'))}:")
            more = {}
        with self.inner() as scope:
            scope.vars.update(more)
            self.block(indent + 1, min(depth - 1, 1), result)
            self._way_out(indent + 1, result)

    def _body(self, indent: int, depth: int, counter: str, result: Type | None) -> None:
        with self.inner():
            self.fix(counter, INT)
            self.block(indent + 1, depth - 1, result)
            self._way_out(indent + 1, result)

    def _way_out(self, indent: int, result: Type | None) -> None:
        """Sometimes the rest of a round, or of the loop, or of the function is left out."""
        if not self.chance(35):
            return
        self.line(indent, f"if {self.condition(1)}:")
        way = self.pick(("break", "continue", "return")) if result is not None else self.pick(("break", "continue"))
        self.use("early return" if way == "return" else way)
        self.line(indent + 1, way if way != "return" else f"return {self.expression(result or INT, 1)}")
        if self.assignable():
            self._assign(indent, 0, result)

    def returned(self, indent: int, dtypes: list[DType]) -> str:
        """What a function gives back for outputs of these types."""
        return ", ".join(self.final(indent, (dtype, 1)) for dtype in dtypes)
