"""Keeps callbacks for what kernels have reported, until the host waits for their stream.

Kernels write reports into memory of the host that their device reaches, so a look at it costs nothing, and no call
waits for one. A wait for a stream delivers the reports of what was enqueued there, and raises a failure. The next call
raises a failure that has come meanwhile.

See also `findings.device_reports` (what a report says), `gpu` (waiting).
"""

from __future__ import annotations

from .device import Deliver, KernelReports
from .streams import DeviceStream


class LateReports:
    """The reports that are not delivered yet, each with the stream on which kernels may write them."""

    def __init__(self) -> None:
        self._waiting: dict[KernelReports, tuple[DeviceStream, Deliver]] = {}

    def add(self, reports: KernelReports, stream: DeviceStream, deliver: Deliver) -> DeviceStream | None:
        """Notes that kernels may report; gives another stream where earlier ones may do so still."""
        before = self._waiting.get(reports)
        self._waiting[reports] = stream, deliver
        return None if before is None or before[0] is stream else before[0]

    def stream_of(self, reports: KernelReports) -> DeviceStream | None:
        """The stream on which kernels may report there; None where all are delivered."""
        entry = self._waiting.get(reports)
        return None if entry is None else entry[0]

    def are_urgent(self, stream: DeviceStream) -> bool:
        """Whether a kernel on a stream has failed, or prints have little room left there."""
        waiting = list(self._waiting.items()) if self._waiting else ()
        return any(where is stream and reports.are_urgent() for reports, (where, _) in waiting)

    def deliver(self, handle: int | None = None) -> None:
        """Delivers what was reported on a stream, or on all, where no kernel is under way any more.

        Raises:
            KernelError: what a kernel has reported.
        """
        for reports, (stream, deliver) in list(self._waiting.items()) if self._waiting else ():
            if handle is not None and stream.handle != handle:
                continue
            if not reports.lock.acquire(blocking=False):  # a call is under way: the next wait delivers it
                continue
            try:
                if self._waiting.pop(reports, None) is not None:
                    deliver(True)
            finally:
                reports.lock.release()
