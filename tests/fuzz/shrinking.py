"""Programs from lists of choices, and shorter lists for programs that still fail.

Every list of numbers is a program: a choice takes the next number, as far as its range goes, and 0, the simplest, when
none is left. So a list can be cut anywhere. What is left of a find is a list from which no run of choices can be taken,
and no choice made smaller, or the best that a number of trials gave.

Input: a list, and a test of programs. Output: a list. Non-goals: what programs look like (see `programs`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

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


def shrunk(choices: Choices, fails: Callable[[Program], bool], trials: int = 300) -> Choices:
    """A shorter list of choices, or of smaller ones, whose program still fails; `trials` of programs at most."""
    best = program_of_choices(choices)[1]
    tried = {best}
    better = True
    while better:
        better = False
        for candidate in _smaller(best):
            program, taken = program_of_choices(candidate)
            if taken in tried or (len(taken), taken) >= (len(best), best):
                continue
            if trials == 0:
                return best
            trials -= 1
            tried.add(taken)
            if fails(program):
                best, better = taken, True
                break
    return best


def _smaller(choices: Choices) -> Iterator[Choices]:
    """Lists that may do as well, those that take away most first."""
    size = len(choices)
    while size > 0:
        for first in range(len(choices) - size, -1, -max(1, size // 2)):
            yield choices[:first] + choices[first + size :]
        size //= 2
    for first, value in enumerate(choices):
        for less in {0, value // 2, value - 1} - {value, -1}:
            yield (*choices[:first], less, *choices[first + 1 :])
