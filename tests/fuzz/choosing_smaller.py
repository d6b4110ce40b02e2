"""The search for a smaller subject that still fails, for subjects that say what is a step smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Written(Protocol):
    """A subject with a text that is its own."""

    def to_json(self) -> str: ...


S = TypeVar("S", bound=Written)


def smallest(subject: S, smaller: Callable[[S], Iterable[S]], fails: Callable[[S], bool], trials: int) -> S:
    """A subject of which nothing smaller fails, or the best of a number of trials."""
    tried = {subject.to_json()}
    progress = True
    while progress:
        progress = False
        for candidate in smaller(subject):
            if trials == 0:
                return subject
            if candidate.to_json() in tried:
                continue
            tried.add(candidate.to_json())
            trials -= 1
            if fails(candidate):
                subject, progress = candidate, True
                break
    return subject
