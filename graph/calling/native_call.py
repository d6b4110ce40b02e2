"""Connects native code with its thread pool, its launcher and the callbacks of reports.

See also `call_memory` (pointers and sizes), `call_reports` (what reports mean).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ...dsl.contract import abi
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.stacks import with_room
from ..findings.data_races import records_accesses
from ..findings.report_callbacks import REPORT, ReportReceiver, owner_number, silent_report
from ..loading.thread_pool import thread_pool
from .call_plan import CallPlan

if TYPE_CHECKING:
    from ..findings.device_reports import CallReports


class NativeCall:
    """The entry, and the context that each call of it gets.

    Attributes:
        entry: the native function: `entry(context, pointers, dims)`.
        context: what native code reads and writes; at the address `context_at`.
        status: the word of the context in which a call's end is noted, read faster.
        pool: the threads that run parallel regions; None where there is one thread.
        table: what the entry launches kernels through; None where it launches none.
        late_reports: of kernels that cannot call back.
    """

    def __init__(self, plan: CallPlan) -> None:
        self.entry = with_room(plan.code.entry)
        self.context = abi.Context()
        self.context_at = ctypes.addressof(self.context)
        self.status = (ctypes.c_int64 * 1).from_buffer(self.context, abi.STATUS_OFFSET)
        self.context.threads = 1
        self.pool = pool = thread_pool(plan.threads)
        if pool is not None:
            self.context.pool, self.context.poll = pool.address, pool.poll
        in_order = plan.driver.in_order or records_accesses(plan.code.reports)
        if pool is not None and pool.threads > 1 and not in_order:
            self.context.parallel, self.context.threads = pool.run, pool.threads
        launching = plan.code.launching
        self.table = None if launching is None else plan.driver.table(launching) or abi.DeviceTable()
        self.late_reports: CallReports | None = None
        self._silent_report: Any = None  # kept: native code holds its address
        if self.table is not None:
            self.context.device = ctypes.addressof(self.table)
            self.table.context = self.context_at
            if launching is not None and launching.kernels is not None and launching.kernels.report:
                with shielded():
                    from ..findings.device_reports import CallReports  # few devices have kernels that cannot call back
                self.late_reports = CallReports(plan.driver, self.table, self.entry)
                self.entry = self.late_reports.entry

    def report_to(self, owner: ReportReceiver, version: int) -> None:
        """Lets code of a version of the ABI report to `owner`, which it does not keep alive."""
        self.context.report, self.context.owner = REPORT, owner_number(owner)
        if version == abi.SILENT_ABI:
            self._silent_report = silent_report(owner, self.context_at)
            self.context.report = ctypes.cast(self._silent_report, ctypes.c_void_p)
