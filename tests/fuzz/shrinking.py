"""Programs from lists of choices, and shorter lists for programs that still fail.

Every list of numbers is a program: a choice takes the next number, as far as its range goes, and 0, the simplest, when
none is left. So a list can be cut anywhere. What is left of a find is a list from which no run of choices can be taken,
and no choice made smaller, or the best that a number of trials gave.

See also `programs` (what programs look like).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from programs import Program, program_by

Choices = tuple[int, ...]


def random_choices(rng: random.Random) -> tuple[Program, Choices]:
    """A random program, and the choices that make it."""
    made: list[int] = []

    def number(low: int, high: int) -> int:
        made.append(rng.randint(0, high - low))
        return low + made[-1]

    return program_by(number), tuple(made)


def program_of_choices(choices: Sequence[int]) -> tuple[Program, Choices]:
    """The program that these choices make, and those that it takes."""
    left = iter(choices)
    taken: list[int] = []

    def number(low: int, high: int) -> int:
        taken.append(min(next(left, 0), high - low))
        return low + taken[-1]

    program = program_by(number)
    while taken and taken[-1] == 0:
        taken.pop()
    return program, tuple(taken)


class _Search:
    """The best list so far, and how many programs may still be tried."""

    def __init__(self, choices: Choices, fails: Callable[[Program], bool], trials: int) -> None:
        self.best = program_of_choices(choices)[1]
        self.fails = fails
        self.trials = trials
        self.tried = {self.best}

    def better(self, candidate: Choices) -> bool:
        """Takes a list that is shorter, or has smaller numbers, if its program still fails."""
        program, taken = program_of_choices(candidate)
        if taken in self.tried or (len(taken), taken) >= (len(self.best), self.best) or self.trials == 0:
            return False
        self.trials -= 1
        self.tried.add(taken)
        if not self.fails(program):
            return False
        self.best = taken
        return True

    def cut(self) -> None:
        """Leaves out runs of choices, or makes them 0, long ones first, from the end to the start."""
        size = len(self.best) // 2
        while size > 0:
            first = len(self.best) - size
            while first >= 0:
                before, behind = self.best[:first], self.best[first + size :]
                if not (self.better(before + behind) or self.better(before + (0,) * size + behind)):
                    first -= max(1, size // 2)
                first = min(first, len(self.best) - size)
            size //= 2

    def lower(self) -> None:
        """Makes single choices smaller."""
        for at in range(len(self.best)):
            for by in (lambda value: 0, lambda value: value // 2, lambda value: value - 1):
                while at < len(self.best) and self.best[at] > 0:
                    if not self.better((*self.best[:at], by(self.best[at]), *self.best[at + 1 :])):
                        break


def shrunk(choices: Choices, fails: Callable[[Program], bool], trials: int = 600) -> Choices:
    """A shorter list of choices, or of smaller ones, whose program still fails; `trials` of programs at most."""
    search = _Search(choices, fails, trials)
    before = None
    while before != search.best:
        before = search.best
        search.cut()
        search.lower()
    return search.best
