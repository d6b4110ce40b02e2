"""Copies regions of a typed program, with values of their own.

See also `Copier.copy` (its caller decides what is omitted or replaced).
"""

from __future__ import annotations

from .program import Bounds, Op, Region, Value


class Copier:
    """Copies regions; `values` are the new values by the serials of the old ones."""

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}

    def fresh(self, old: Value) -> Value:
        """A new value for one that the copy makes."""
        made = Value(old.type, const=old.const, weak=old.weak, name=old.name)
        self.values[old.serial] = made
        return made

    def value(self, old: Value) -> Value:
        """What stands for a value in the copy; what is made outside of it stays."""
        return self.values.get(old.serial, old)

    def region(self, old: Region) -> Region:
        made = Region([self.fresh(value) for value in old.args])
        for op in old.ops:
            self.copy(op, made)
        return made

    def copy(self, old: Op, region: Region) -> None:
        """Appends the copy of an operation to a region."""
        region.ops.append(self.op(old))

    def op(self, old: Op) -> Op:
        operands = [self.value(value) for value in old.operands]
        regions = [self.region(region) for region in old.regions]
        results = [self.fresh(value) for value in old.results]
        made = Op(old.opcode, operands, results, old.location, dict(old.attrs), regions)
        for result in results:
            result.maker = made
        return made

    def bounds(self, old: dict[int, list[Bounds]]) -> dict[int, list[Bounds]]:
        """What is known of the values that were copied; see `Builder.counter`."""
        known: dict[int, list[Bounds]] = {}
        for serial, bounds in old.items():
            if serial in self.values:
                ends = [(low and self.value(low), high and self.value(high), closed) for low, high, closed in bounds]
                known[self.values[serial].serial] = ends
        return known
