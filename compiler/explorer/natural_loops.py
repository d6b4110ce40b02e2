"""Finds the loops of machine code: instructions from which a jump leads back to one that stands before them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .kernel_code import Coded


def loops_of(code: Sequence[Coded], labels: Mapping[str, int]) -> list[frozenset[int]]:
    """The numbers of the instructions of each loop, those of loops with one head together."""
    after = [_after(code, labels, number) for number in range(len(code))]
    before: list[list[int]] = [[] for _ in code]
    for number, targets in enumerate(after):
        for target in targets:
            before[target].append(number)
    heads: dict[int, set[int]] = {}
    for head, last in _back(after):
        loop = heads.setdefault(head, {head})
        todo = [last]
        while todo:
            number = todo.pop()
            if number not in loop:
                loop.add(number)
                todo += before[number]
    return [frozenset(loop) for head, loop in heads.items() if head == 0 or 0 not in loop]


def _after(code: Sequence[Coded], labels: Mapping[str, int], number: int) -> list[int]:
    one = code[number]
    target = labels.get(one.to)
    targets = [] if target is None or target >= len(code) else [target]
    if number + 1 < len(code) and not one.always:
        targets.append(number + 1)
    return targets


def _back(after: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Jumps that lead to an instruction on the way to themselves: its number, and that of the jump."""
    found: list[tuple[int, int]] = []
    state = [0] * len(after)  # 1 on the way, 2 done
    path = [(0, 0)] if after else []
    state[:1] = [1]
    while path:
        number, taken = path[-1]
        if taken == len(after[number]):
            state[number] = 2
            path.pop()
            continue
        path[-1] = number, taken + 1
        target = after[number][taken]
        if state[target] == 1:
            found.append((target, number))
        elif state[target] == 0:
            state[target] = 1
            path.append((target, 0))
    return found
