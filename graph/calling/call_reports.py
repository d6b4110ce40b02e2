"""Takes what the kernels of calls report: shows prints, keeps the first failure, and makes errors of it.

See also `reports` (how reports are read and worded).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import DeviceError, EinkornError, KernelError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import is_shipped, shown_path, user_place
from ...dsl.frontend.anchors import place_at
from ...dsl.frontend.program import PortableKernel
from ..findings.data_races import ACCESS, BEGIN, Accesses
from ..findings.prints import OP as TENSORS
from ..findings.prints import PrintOptions, TensorPrints
from ..findings.reports import EXCHANGE_SITE, Failure, failure_error, nan_notes, read_failure, render
from ..findings.waiting import WAITING, waiting_error
from ..ir import Node
from .call_plan import CallPlan
from .native_call import NativeCall
from .outputs import Filling
from .simulated_call import Ending, SimulatedCall, ending_of

if TYPE_CHECKING:
    from ..distributed.calls import CollectiveCalls

# Programs without ranks do not load these.
COLLECTIVE_CALLS: ExtensionPoint[type[CollectiveCalls]] = ExtensionPoint("graph.distributed.calls", "CollectiveCalls")
RANKED: ExtensionPoint[Callable[[str], str]] = ExtensionPoint("graph.distributed.world", "ranked")


class ReportCollector:
    """What the kernels of one caller report.

    Attributes:
        failure: the first one of the call under way.
        interrupt: the exception that ends the call under way: one that came in the middle of a report, or `cancel`'s.
        memory: of the calls, which exchanges that a call has begun may still write to after it has failed.
        prints: what shows tensors; None where no options were chosen.
    """

    def __init__(
        self, plan: CallPlan, native: NativeCall, simulated: SimulatedCall | None, filling: Filling | None
    ) -> None:
        self._plan, self._native, self._simulated, self._filling = plan, native, simulated, filling
        self.context_at = native.context_at
        self.failure: Failure | None = None
        self.interrupt: BaseException | None = None
        self.prints = TensorPrints(plan.code.prints) if plan.code.prints != PrintOptions() else None
        self.memory: object = None
        self._accesses = Accesses()
        self._collectives: CollectiveCalls | None = None
        if any(report.kind == EXCHANGE_SITE for report in plan.code.reports):
            self._collectives = COLLECTIVE_CALLS.get()(plan.ir, plan.code.reports, plan.driver)
            native.context.collectives = self._collectives.address
        self._quiet = False  # whether prints are left out
        self._reported_by, self._late = "", False  # which thread has reported, and whether the call was over by then
        native.report_to(self, plan.code.abi)

    def forget(self) -> None:
        """Whatever call was under way is over: it was interrupted, or this is the child of a fork."""
        self.failure = self.interrupt = None
        self._native.context.status = 0

    def cancel(self) -> None:
        """Called from another thread: ends the call that is under way."""
        self.on_interrupt(self.context_at, KernelError("the call was cancelled", code="EK0707", place=user_place()))

    # *** from native code ***

    def on_interrupt(self, context: int, error: BaseException) -> None:
        """Ends the call, which raises this exception."""
        self.interrupt, self._native.context.status = error, abi.INTERRUPTED

    def on_report(self, context: int, site: int, arguments: object) -> None:
        """Called by native code, from any thread: prints, or notes the first failure."""
        try:
            failure = self.read(site, arguments)
            if self.failure is None:
                self.failure = failure
        except BaseException as error:  # of a handler of a signal, or of the stream; it cannot cross native code
            self.on_interrupt(context, error)

    def on_exchange(self, context: int, slot: int, kind: int, *given: int) -> int:
        """Called by native code: moves bytes between ranks; see `dsl.contract.exchange`."""
        assert self._collectives is not None
        return self._collectives.exchange(context, slot, kind, *given)

    def read(self, site: int, arguments: Any) -> Failure | None:
        """Prints a report, or gives the failure that it is."""
        report = self._plan.code.reports[site]
        if report.kind in (BEGIN, ACCESS):
            race = self._accesses.take(report, arguments)
            if race is not None:
                self._native.context.status = site + 1  # the code that reports accesses does not fail by itself
            return race
        if report.kind != "print":
            return read_failure(report, arguments)
        if self._quiet or (self._filling is not None and self._filling.quiet):
            return None
        if self.prints is not None and report.op == TENSORS:
            self.prints.take(report, arguments)
        else:
            ranked, text = RANKED.get_if_loaded(), render(report, arguments)
            sys.stdout.write(text if ranked is None else ranked(text))
            sys.stdout.flush()
        return None

    def raise_reported(self, by: str, late: bool) -> None:
        """Raises the failure that was noted, of a thread of the device."""
        self._reported_by, self._late = by, late and not self._plan.code.waits
        try:
            self.fail((), 0)
        finally:
            self._late = False

    # *** failures ***

    def fail(self, arrays: Sequence[Any], code: int) -> None:
        """Raises what a kernel reported, or else what the device says of the code that the entry gave back."""
        self.abandon(arrays)
        status, failure = self._ended()
        table = self._native.table
        if table is not None:
            if failure is None and status == 0 and table.failed_code:
                raise self._not_launched(table)
            table.failed_kernel = table.failed_code = 0
        if status == abi.INTERRUPTED:
            interrupt, self.interrupt = self.interrupt, None
            if interrupt is not None:
                raise interrupt
        drawn: list[str] = []
        if self._simulated is not None:
            # Of a race, an index out of bounds may be the consequence: findings of the memory checks come first.
            result = self._simulated.found() if status == abi.STOPPED or failure is not None else None
            drawn = self._drawn(self._simulated, result, failure)
            if result is not None:
                raise self._simulated.error(result, [*drawn, self._called()])
        by, self._reported_by = [self._reported_by] if self._reported_by else [], ""
        known = self._plan.driver.error(code) if failure is None else ""
        raise self.error_of(status, failure, arrays, [f"{self._plan.device}: {known}"] if known else [*by, *drawn])

    def abandon(self, arrays: Sequence[Any]) -> None:
        """A call has failed: ends the exchanges that it has begun."""
        if self._collectives is not None:
            self._collectives.abandon(arrays, self.memory)

    def _drawn(self, simulated: SimulatedCall, finding: Any, failure: Failure | None) -> list[str]:
        self._quiet = True
        try:
            return simulated.notes(finding, failure, self._ended_again)
        finally:
            self._quiet = False

    def _ended(self) -> tuple[int, Failure | None]:
        """The status of the call, and the failure that was noted; the next call begins without them."""
        status, self._native.context.status = self._native.context.status, 0
        failure, self.failure = self.failure, None
        return status, failure

    def _ended_again(self) -> Ending:
        """How the entry has ended, when it was called once more."""
        status, failure = self._ended()
        if self._native.table is not None:
            self._native.table.failed_kernel = self._native.table.failed_code = 0
        if status == abi.INTERRUPTED:
            raise self.error_of(status, None, ()) if self.interrupt is None else self.interrupt
        return ending_of(self._plan.driver.finding(), failure)

    def error_of(
        self, status: int, failure: Failure | None, arrays: Sequence[Any], notes: Sequence[str] = ()
    ) -> BaseException:
        """What a call raises that ended with this status, and has reported this."""
        if status == abi.INTERRUPTED:
            return self._native.pool.raised() if self._native.pool is not None else KeyboardInterrupt()
        if status == abi.NO_MEMORY:
            text, hint = (
                "the system has no memory for the threads of a block",
                "launch smaller blocks, on fewer threads",
            )
            return KernelError(text, code="EK0733", place=user_place(), hint=hint)
        if failure is None:
            reason = "a kernel failed without saying why"
            return KernelError(reason, code="EK0702", place=user_place(), notes=list(notes))
        programs = self._plan.programs()
        if failure.report.kind == WAITING:
            return waiting_error(failure, self._plan.code.reports, programs, [*notes, self._called()])
        result = nan_notes(failure, self._plan.ir.argument_names, arrays) if self._plan.device.is_host else []
        staged = self._plan.staged(failure.report.op)
        return failure_error(failure, programs, staged, [*notes, *result, self._called()])

    def _called(self) -> str:
        name = self._plan.ir.name
        if self._late:
            return f"graph '{name}' was called before; with checks=\"all\" the call itself raises this"
        place = user_place()
        return f"graph '{name}' was called " + (f"at {place}" if place else "on a thread that is not Python's")

    def _not_launched(self, table: abi.DeviceTable) -> EinkornError:
        """What a device refused to do."""
        plan = self._plan
        number, code, launching = table.failed_kernel, table.failed_code, plan.code.launching
        table.failed_kernel = table.failed_code = 0
        known = plan.driver.error(code)
        kernels = () if launching is None or launching.kernels is None else launching.kernels.kernels
        kernel = kernels[number] if 0 <= number < len(kernels) else None
        programs: list[PortableKernel] = [node.kernel.portable for node in plan.ir.nodes if isinstance(node, Node)]
        place = None if kernel is None else place_at(kernel.anchor, programs)
        what = "copy memory" if kernel is None else f"launch kernel '{kernel.symbol}' of op '{kernel.op}'"
        staged = [] if kernel is None else plan.staged(kernel.op)
        about = [f"the device was to {what}", self._called()]
        about += [f"the op is staged at {shown_path(at.file)}:{at.line}" for at in staged]
        explained = plan.driver.launch_error(code, about)
        if explained is not None:
            return explained
        return DeviceError(
            f"{plan.device} could not {what}: {known or f'code {code}'}",
            code="EK0624",
            place=place if place is not None and not is_shipped(place.file) else next(iter(staged), user_place()),
            op=None if kernel is None else kernel.op,
            got=code,
            notes=[self._called()],
        )
