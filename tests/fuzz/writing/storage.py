"""Statements that reach memory: stores into storage of the thread's own, pointers, prefetches, atomics."""

from __future__ import annotations

from einkorn.dsl.types.dtype import DType

from .base import INT, TABLE, Type, name_of
from .lanes import INDICES
from .statements import Statement, Statements


class Storage(Statements):
    """Stores, pointers and atomics, and the expressions that atomics are."""

    def kinds(self, depth: int) -> list[Statement]:
        kinds = super().kinds(depth)
        if self.scope.stores:
            kinds += [self._store, self._store, self._vector_store, self._vector_store, self._atomic, self._atomic]
        if self.scope.tables:
            kinds += [self._pointer, self._pointer, self._prefetch]
        if any(writable for _, writable in self.scope.pointers.values()):
            kinds += [self._pointer_store] * 3
        return kinds

    def storage(self, indent: int) -> None:
        """Storage of the thread's own, with something in it."""
        self.use("storage of one's own")
        name, dtype = self.fresh("s"), self.pick(self.dtypes)
        self.line(indent, f"{name} = stack[{name_of(dtype)}]({TABLE})")
        self.scope.tables[name] = self.scope.stores[name] = dtype
        if self.chance(30):
            self._new_pointer(indent, name)

    def _store(self, indent: int, depth: int, result: Type | None) -> None:
        name = self.pick(list(self.scope.stores))
        sign = self.pick(("=", "=", "+=")) if self.scope.stores[name] is not DType.bool else "="
        value = self.expression((self.scope.stores[name], 1), 2)
        if self.failing and self.chance(20):
            self.use("may fail")
            self.line(indent, f"{name}[{self.expression(INT, 1)}] {sign} {value}")
        else:
            self.line(indent, f"{name}[{self.place(2)}] {sign} {value}")

    def _vector_store(self, indent: int, depth: int, result: Type | None) -> None:
        """Several elements at once."""
        name = self.pick(list(self.scope.stores))
        type = (self.scope.stores[name], self.pick((4, 2, 8)))
        self.line(indent, f"{name}.{self.stored(type, TABLE)}")

    def stored(self, type: Type, room: int) -> str:
        """A call that stores a vector into `room` elements, or fewer."""
        width = type[1]
        mask = ""
        if self.chance(40):
            self.use("masked store")
            mask = f", mask={self.mask(width, 1)}"
        if self.chance(40):
            self.use("scatter")
            index = self.expression((self.pick(INDICES), width), 1)
            return f"scatter({self.expression(type, 2)}, {index} & {room - 1}{mask})"
        value, at = self.expression(type, 2), self.place(1, room - 9 if room > 9 else 1)
        steps = self.strided(width, 9 if room > 9 else 8, "strided store") or self.aligned("", type[0])
        return f"store({value}, {at}{steps}{mask})"

    # pointers

    def _pointer(self, indent: int, depth: int, result: Type | None) -> None:
        """A pointer to one of the first elements of a table; or another one in a variable that is there."""
        known = [name for name in self.scope.pointers if self.chance(50)]
        if known:
            name = known[0]
            tables = [
                t
                for t in self.scope.tables
                if (self.scope.tables[t], t in self.scope.stores) == self.scope.pointers[name]
            ]
            if tables:
                self.use("moved pointer")
                self.line(indent, f"if {self.condition(1)}:")
                self.line(indent + 1, f"{name} = {self.address(self.pick(tables))}")
                return
        fitting = [table for table, dtype in self.scope.tables.items() if not dtype.is_packed()]
        if not fitting:
            return self._new(indent, depth, result)
        self._new_pointer(indent, self.pick(fitting))

    def _new_pointer(self, indent: int, table: str) -> None:
        self.use("pointer")
        name = self.fresh("q")
        self.line(indent, f"{name} = {self.address(table)}")
        self.scope.pointers[name] = (self.scope.tables[table], table in self.scope.stores)

    def address(self, table: str) -> str:
        at = self.place(1, 7)
        self.pointed.add(table)
        return self.pick((f"{table}.pointer({at})", f"{table}.pointer() + {at}", f"{at} + {table}.pointer(8) - 8"))

    def _pointer_store(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("pointer store")
        name = self.pick([name for name, (_, writable) in self.scope.pointers.items() if writable])
        dtype = self.scope.pointers[name][0]
        if self.chance(50):
            self.line(indent, f"{name}[{self.place(1, 7)}] = {self.expression((dtype, 1), 2)}")
        else:
            self.line(indent, f"{name}.{self.stored((dtype, self.pick((4, 2))), 8)}")

    def _prefetch(self, indent: int, depth: int, result: Type | None) -> None:
        self.use("prefetch")
        name = self.pick(list(self.scope.tables))
        more = self.pick(("", f", locality={self.number(0, 3)}"))
        self.line(indent, f"{name}.prefetch({self.place(1)}{more})")

    # atomics

    def _atomic(self, indent: int, depth: int, result: Type | None) -> None:
        """An atomic operation on storage that no other thread sees: what it gives is determined, too."""
        fitting = [name for name, d in self.scope.stores.items() if d is not DType.bool and not d.is_storage()]
        if not fitting:
            return self._store(indent, depth, result)
        name = self.pick(fitting)
        dtype = self.scope.stores[name]
        type = (dtype, 1)
        kinds = ["add", "sub", "min", "max", "exchange"] + (["and_", "or_", "xor"] * (not dtype.is_float()))
        if not dtype.is_float():  # which bits a NaN has is open
            kinds += ["compare_exchange"] * 3
        kind = self.pick(kinds)
        self.use("compare_exchange" if kind == "compare_exchange" else "atomic")
        target, at = name, self.place(1)
        if self.chance(30):
            target, at = f"{name}.pointer({self.place(0, 7)})", self.place(0, 7)
        value = self.expression(type, 2)
        more = f", {self.expression(type, 2)}" if kind == "compare_exchange" else ""
        ordering = self.pick(("", ', ordering="seq_cst"', ', ordering="acq_rel"'))
        made = self.fresh("v")
        self.line(indent, f"{made} = atomic.{kind}({target}, {at}, {value}{more}{ordering})")
        self.scope.vars[made] = type
        if self.chance(30):
            again = self.fresh("v")
            self.line(indent, f"atomic.store({name}, {self.place(1)}, {made})")
            self.line(indent, f"{again} = atomic.load({name}, {self.place(1)})")
            self.scope.vars[again] = type
