"""Says what control flow means for memory: which values share a place, how long each is needed, and what runs when.

A value that a body gives back is stored where the result of its branch lies, so nothing is copied behind the body. What
a loop carries has two places: one that a round reads, one for the next values. They change places after each round; the
results stay where the last round left them. Staging sees to it that each of these values has a place to give: where a
body gives back what something else holds, it copies.

See also `memory_plan`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ...dsl.diagnostics.cached import cached
from ..ir import Branch, Control, GraphIR, Loop
from .fusion import Group, Partition


def final(group: Group) -> int:
    """The node of a group that stores its results."""
    return group.root if group.epilogue is None else group.epilogue


class ControlFlow:
    """The control flow of a partitioned graph. A time is the number of the group that runs then."""

    def __init__(self, ir: GraphIR, parts: Partition) -> None:
        self.ir = ir
        self.regions = ir.regions
        self.finals = [final(group) for group in parts.groups]  # ascending
        self.controls = [(number, node) for number in parts.controls if isinstance(node := ir.nodes[number], Control)]
        self._homes: dict[int, int] = {}
        for _, node in self.controls:
            given = [body.outputs for body in node.bodies] if isinstance(node, Branch) else [node.initial, node.carried]
            for values in given:
                self._homes.update(zip(values, node.results, strict=True))

    @cached
    def _makers(self) -> dict[int, int]:
        return {value: number for number, node in enumerate(self.ir.nodes) for value in node.results}

    def home(self, value: int) -> int:
        """The value whose place in memory this one has: of nested branches the outermost result."""
        while value in self._homes:
            value = self._homes[value]
        return value

    def swaps(self, loop: Loop) -> Iterator[tuple[int, int]]:
        """What a loop carries and changes: the homes of the present and of the next value."""
        for result, carried, following in zip(loop.results, loop.carried, loop.bodies[1].outputs, strict=True):
            if following != carried:
                yield self.home(result), self.home(following)

    def conditions(self) -> Iterator[tuple[int, int, int]]:
        """What branches and loops look at: the value, when, and in which region."""
        for number, node in self.controls:
            if isinstance(node, Loop):
                predicate = node.bodies[0]
                yield predicate.outputs[0], self.time(predicate.end), self.regions.first[number]
            else:
                yield node.condition, self.time(node.bodies[0].first), self.regions.of[number]

    def time(self, number: int) -> int:
        """The last time before a node."""
        return bisect_left(self.finals, number) - 1

    def needed(self, home: int, time: int, region: int) -> int:
        """Until when memory is needed that is read at a time in a region: what comes from outside a loop is read again
        in its next round."""
        maker = self._makers.get(home)
        made_in = 0 if maker is None else self.regions.of[maker]
        return max([time, *(self.time(loop) for loop in self.regions.loops(region, made_in))])

    def lifetimes(self, written: dict[int, int], last: dict[int, int]) -> None:
        """Lets memory live as long as control flow needs it. Both are times by home, of the first write and of the
        last read by a kernel."""
        for value, time, region in self.conditions():
            home = self.home(value)
            if home in written:
                last[home] = max(last[home], self.needed(home, time, region))
        for number, node in self.controls:
            for pair in self.swaps(node) if isinstance(node, Loop) else ():
                written[pair[1]] = written[pair[0]]
                last.update(dict.fromkeys(pair, max(self.time(number), *(last[home] for home in pair))))

    def text(self) -> str:
        """The groups in the order in which they run, those of bodies indented."""
        lines: list[str] = []

        def add(region: int, indent: str) -> None:
            for number, group in self.steps.get(region, ()):
                if group is not None:
                    lines.append(f"{indent}group {group}")
                    continue
                node = self.ir.nodes[number]
                assert isinstance(node, Control)
                for k, word in enumerate(("if", "else") if isinstance(node, Branch) else ("while", "do")):
                    lines.append(f"{indent}{word}:")
                    add(self.regions.first[number] + k, indent + "  ")

        add(0, "")
        return "\n".join(lines)

    @cached
    def steps(self) -> dict[int, list[tuple[int, int | None]]]:
        """What each region does, in order: pairs of a branch's or loop's number and None, or of a node's and its
        group's."""
        results: dict[int, list[tuple[int, int | None]]] = {}
        items = [*((number, None) for number, _ in self.controls), *((n, k) for k, n in enumerate(self.finals))]
        for number, group in sorted(items):
            results.setdefault(self.regions.of[number], []).append((number, group))
        return results
