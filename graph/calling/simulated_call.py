"""Looks at calls on simulated devices: at the order of threads that was drawn, at what kernels did with memory.

See also `driver.checked_memory`, `findings` (what is found), `schedules` (schedules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.shield import shielded
from ..driver.buffer import Buffer
from ..findings.reports import Failure
from ..findings.stored import check_stored, expect_stores
from .call_memory import CallMemory
from .call_plan import CallPlan
from .native_call import NativeCall

if TYPE_CHECKING:
    from ...dsl.contract.checking import CheckState, FindingRecord
    from .schedules import Rehearsal

Found = tuple["FindingRecord", "CheckState"]
Ending = tuple[object, ...] | None  # how a call has ended, in what can be compared


def ending_of(finding: Found | None, failure: Failure | None) -> Ending:
    """The identity of a failure, independent of its thread; None for none."""
    if finding is not None:
        return finding[0].found, frozenset((finding[0].site, finding[0].other_site))
    return None if failure is None else (id(failure.report),)


class SimulatedCall:
    """What is known of the calls of one caller.

    Attributes:
        watched: the memory whose elements are known to be written or not; None where that is not known.
        rehearsal: of the call under way, where the device draws an order of threads.
    """

    def __init__(self, plan: CallPlan, memory: CallMemory, native: NativeCall) -> None:
        self._plan, self._memory, self._native = plan, memory, native
        checked = plan.driver.checked
        self.watched = checked if checked is not None and checked.tracks_values else None
        self.rehearsal: Rehearsal | None = None

    def begin(self, arrays: Sequence[object], fresh: Iterable[Buffer]) -> None:
        """Before the entry. `fresh` are the results that this stage of the call makes."""
        if self.watched is not None:
            expect_stores(self.watched, fresh)
        if self._plan.driver.draws:
            with shielded():
                from .schedules import Rehearsal  # few devices draw anything

            self.rehearsal = Rehearsal(self._plan, self._memory, self._native, self.watched, arrays, fresh)

    def check_stored(self, results: Sequence[Buffer]) -> None:
        """Behind the call.

        Raises:
            KernelError: EK0706, an element of a result was not written, or was made of such an element.
        """
        if self.watched is not None:
            check_stored(self._plan.ir, self.watched, results)

    def found(self) -> Found | None:
        """The findings of the memory checks since the last query."""
        return self._plan.driver.finding()

    def notes(self, finding: Found | None, failure: Failure | None, again: Callable[[], Ending]) -> list[str]:
        """What to know of the order of threads in which a call has failed. `again` says how one has ended that was
        made once more."""
        rehearsal, self.rehearsal = self.rehearsal, None
        failed = ending_of(finding, failure)
        return [*self._plan.driver.notes(), *(rehearsal.notes(failed, again) if rehearsal and failed else [])]

    def error(self, finding: Found, notes: Sequence[str]) -> EinkornError:
        """What a call raises in which this was found."""
        with shielded():
            from ..findings.findings import finding_error  # few devices find anything

        return finding_error(*finding, self._plan.code.reports, self._plan.programs(), notes)
