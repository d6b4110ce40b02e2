"""Writes how generated functions call Python's own, and which memory they keep for intermediate results.

Functions that Python calls hold its lock, so that a list which only they change needs no other one.

See also `graph.calling.door_memory` (which allocates the memory).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.contract.doors import ARENA_BYTES, ARENA_COUNTS, LARGE_BYTES, MOST_ARENAS
from ..ir.llvm_text import Number as Value
from .text import TensorDoorText


class PythonText(TensorDoorText):
    """A function that Python calls with its lock held."""

    def called(self, word: str, numbers: Sequence[Value]) -> str:
        """What a function of Python's gives that is called with integers; null with an error set."""
        passed, made = self.block(len(numbers)), list[str]()
        for k, value in enumerate(numbers):
            number = self.call(self.word("integer"), [f"i64 {value}"], "ptr")
            self.or_leave(number, made)
            self.store("ptr", number, self.at(passed, 8 * k))
            made.append(number)
        arguments = [f"ptr {self.word(word)}", f"ptr {passed}", f"i64 {len(numbers)}", "ptr null"]
        result = self.call(self.word("call"), arguments, "ptr")
        self.drop(made)
        return result

    # the memory of intermediate results

    def arena(self, counts: Sequence[Value], objects: Sequence[str]) -> str:
        """Memory for intermediate results of so many elements that no other call has: a record of the list, or what
        `fit_arena` gives, which changes the last record where there are many, or large ones."""
        place, fits, taken = self.record_for(counts)
        record = self.variable("ptr", "null")
        with self.when(taken):
            record.set(self.load("ptr", place))
            self.store("ptr", self.load("ptr", record.value()), place)
        with self.when(self.value(f"xor i1 {fits}, true")):
            address = self.value(f"ptrtoint ptr {record.value()} to i64")
            made = self.called("fit_arena", [address, *counts])
            self.or_leave(made, objects)
            number = self.call(self.word("to_int"), [f"ptr {made}", f"ptr {self.block(1)}"], "i64")
            self.drop([made])
            record.set(self.value(f"inttoptr i64 {number} to ptr"))
            absent = self.compare("eq", number, 0)
            with self.when(absent):
                self.drop(objects)
            self.need(self.value(f"xor i1 {absent}, true"))
        return record.value()

    def record_for(self, counts: Sequence[Value]) -> tuple[str, str, str]:
        """Where the list has the address of a record: one for these sizes, else its last one. Whether it is for these
        sizes, and whether it is taken."""
        first = self.at(self.table, self.offsets["arenas"])
        place, last = self.variable("ptr", first), self.variable("ptr", first)
        seen, bytes_seen = self.variable("i64", 0), self.variable("i64", 0)
        fits, taken = self.variable("i1", "false"), self.variable("i1", "false")

        def goes_on() -> str:
            more = self.compare("ne", self.load("ptr", place.value()), "null", "ptr")
            return self.both(more, self.value(f"xor i1 {fits.value()}, true"), "i1")

        with self.while_(goes_on):
            record, same = self.load("ptr", place.value()), "true"
            for k, count in enumerate(counts):
                known = self.load("i64", self.at(record, ARENA_COUNTS + 8 * k))
                same = self.both(same, self.compare("eq", known, count), "i1")
            fits.set(same)
            with self.when(self.value(f"xor i1 {same}, true")):
                last.set(place.value())
                place.set(record)
                seen.set(self.add(seen.value(), 1))
                bytes_seen.set(self.add(bytes_seen.value(), self.load("i64", self.at(record, ARENA_BYTES))))
        result = self.select(fits.value(), place.value(), last.value(), "ptr")
        record = self.load("ptr", result)
        with self.when(self.compare("ne", record, "null", "ptr")):
            large = self.compare("sge", bytes_seen.value(), LARGE_BYTES)
            many = self.compare("sge", seen.value(), MOST_ARENAS)
            taken.set(self.either(fits.value(), self.either(large, many, "i1"), "i1"))
        return result, fits.value(), taken.value()

    def temps(self, arena: str, count: int) -> list[str]:
        """Where intermediate results lie."""
        return [self.load("ptr", self.at(arena, ARENA_COUNTS + 8 * (count + k))) for k in range(count)]

    def put_back(self, arena: str) -> None:
        """Gives a record back to the list."""
        first = self.at(self.table, self.offsets["arenas"])
        self.store("ptr", self.load("ptr", first), arena)
        self.store("ptr", arena, first)

    def or_leave(self, value: str, drop: Sequence[str]) -> None:
        """Passes an error of Python's on, where there is no value."""
        with self.when(self.compare("eq", value, "null", "ptr")):
            self.drop(drop)
            self.leave("null")

    def drop(self, objects: Sequence[str]) -> None:
        for each in objects:
            self.call(self.word("decref"), [f"ptr {each}"])
