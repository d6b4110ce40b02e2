"""Formats reports of a simulated GPU, or of a CPU that runs a grid, that no thread of a launch can continue.

    error[EK0746]: deadlock: 4 threads wait, and none can continue, in op 'sums'
       12 |         while atomic.load(count, 0) < n:
          |         ^^^^^ thread (0, 0, 0) of block (0, 0, 0), and 3 more, wait for a change of memory

See also `compiler.simulation.spins` (when threads cannot continue).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.places import Label
from ...dsl.frontend.anchors import place_at
from ...dsl.frontend.program import PortableKernel
from .reports import Failure, Report

WAITING: Final = "waiting"  # the kind of such reports

# For what threads wait, by their state; see `compiler.ir.simulation.State`.
_AWAITED: Final = {
    1: "the other threads of {its} warp",
    2: "the other threads of {its} block",
    3: "the other threads of {its} cluster",
    6: "a change of memory",
}


def waiting_error(
    failure: Failure, reports: Sequence[Report], kernels: Sequence[PortableKernel], notes: Sequence[str]
) -> KernelError:
    """The error for threads that cannot continue: the first place is that of a loop, if one waits in a loop."""
    details, report = failure.details, failure.report
    rows = [row for row in details["places"] if row[2]]
    labels: list[Label] = []
    about: list[str] = []
    for row in sorted(rows, key=lambda row: row[1] != 6):
        said = _waits(row)
        place = place_at(reports[row[0]].anchor, kernels)
        if place is None or place.source_line() is None:
            about.append(f"{said}: {place}" if place is not None else said)
        else:
            labels.append(Label(place, said))
    total, left = details["threads"], details["left"]
    rest = total - sum(row[2] for row in rows)
    if rest:
        about.append(f"{_threads(rest)} at other places")
    if left:
        held = details["resident"]
        about.append(f"{left} blocks have not begun: the device runs {held} blocks or clusters of this launch at once")
    notes_of = next((reports[row[0]].notes for row in rows), ())
    calls = [f"{text} {at}" for text, anchor in notes_of if (at := place_at(anchor, kernels)) is not None]
    place = labels[0].place if labels else place_at(report.anchor, kernels)
    return KernelError(
        f"deadlock: {_threads(total)}, and none can continue, in op '{report.op}'",
        code="EK0746",
        place=place,
        labels=labels,
        op=report.op,
        notes=[*about, *calls, *notes],
        hint="check that another thread makes the awaited store, or arrives at the barrier, on every path",
    )


def _threads(count: int) -> str:
    return "1 thread waits" if count == 1 else f"{count} threads wait"


def _waits(row: Sequence[int]) -> str:
    """What the threads at a place do."""
    _, state, count, *where = row
    block, thread = tuple(where[:3]), tuple(where[3:])
    more = f", and {count - 1} more, wait" if count > 1 else " waits"
    awaited = _AWAITED.get(state, "others").format(its="its" if count == 1 else "their")
    return f"thread {thread} of block {block}{more} for {awaited}"
