"""Finds data races of parallel loops on a CPU: two calls of one body that access an element, of which one writes it.

Compiled code reports where a loop begins, and the accesses to elements that a call does not own (see
`compiler.inference.ownership`). Which thread runs a call does not matter: a race is found in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from .reports import Failure, Report, detail_of

BEGIN = "parallel"
ACCESS = "access"
_VERBS = {"read": "reads", "write": "writes", "atomic": "updates"}


@dataclass(frozen=True)
class _Access:
    """An access to an element; what it writes is None where that is not known."""

    kind: str
    call: int
    value: Any
    report: Report

    def races(self, other: _Access) -> bool:
        """Whether the order of the two decides the result."""
        if self.call == other.call:
            return False
        if self.kind == other.kind:
            return self.kind == "write" and (self.value is None or self.value != other.value)
        return True


def records_accesses(reports: Sequence[Report]) -> bool:
    """Whether code reports accesses, and so has to run in one thread."""
    return any(report.kind == BEGIN for report in reports)


class Accesses:
    """The accesses of one run of a model since its last parallel loop began. The code runs in one thread."""

    def __init__(self) -> None:
        self._elements: dict[tuple[str, int], list[_Access]] = {}

    def take(self, report: Report, arguments: object) -> Failure | None:
        """Records a report of an access, or of the begin of a loop; returns the race that it shows."""
        if report.kind == BEGIN:
            self._elements.clear()
            return None
        details = report.details
        value = details["value"]
        access = _Access(
            details["access"],
            detail_of(details["call"], arguments),
            None if value is None else detail_of(value, arguments),
            report,
        )
        tensor, first = details["tensor"], detail_of(details["position"], arguments)
        for position in range(first, first + details["width"]):
            before = self._elements.setdefault((tensor, position), [])
            for other in before:
                if access.races(other):
                    return _failure(access, other, detail_of(details["shape"], arguments), tensor, position)
            same = [each.call for each in before if each.kind == access.kind]
            if len(same) < 2 and access.call not in same:  # a later call differs from at least one of two
                before.append(access)
        return None


def _failure(access: _Access, other: _Access, shape: tuple[int, ...], tensor: str, position: int) -> Failure:
    index = [int(number) for number in np.unravel_index(position, shape)] if shape else []
    writer, second = (other, access) if access.kind == "read" else (access, other)
    calls = sorted((access.call, other.call))
    text = (
        f"data race: calls {calls[0]} and {calls[1]} of a parallel body access element {index} of"
        f" '{tensor}', and call {writer.call} {_VERBS[writer.kind]} it"
    )
    there = (f"call {second.call} {_VERBS[second.kind]} it at", second.report.anchor)
    report = replace(writer.report, notes=(there, *writer.report.notes))
    return Failure(report, text, {"tensor": tensor})
