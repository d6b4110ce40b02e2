"""Dispatches reports from native code. A single C callback serves all calls; the context identifies the call.

Contexts refer to their owner by id. The registry holds weak references: ids are never reused, and registering does not
extend an owner's lifetime. Code of ABI 1 does not pass its context; its caller uses a callback of its own.

See also `calling.call` (what becomes of a report), `findings.reports` (what one says).
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any, Protocol

from ...dsl.contract import abi
from .late_signals import keep


class ReportReceiver(Protocol):
    """The receiver of the reports of calls."""

    def on_report(self, context: int, site: int, arguments: object) -> None:
        """Takes a report of the call with this context, from any thread; it raises nothing."""

    def on_interrupt(self, context: int, error: BaseException) -> None:
        """Takes what a signal's handler has raised in the middle of a report, and ends the call."""


_owners: weakref.WeakValueDictionary[int, ReportReceiver] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def owner_number(owner: ReportReceiver) -> int:
    """The number for `abi.Context.owner`. It does not keep the owner alive."""
    number = next(_numbers)
    _owners[number] = owner
    return number


def _report(context: int, site: int, arguments: object) -> None:
    owner = _owners.get(abi.Context.from_address(context).owner)
    if owner is not None:
        owner.on_report(context, site, arguments)


def _take(error: BaseException) -> None:
    """An exception at the edge of the function above: its frame has the context."""
    step = error.__traceback__
    while step is not None:
        context = step.tb_frame.f_locals.get("context")
        if step.tb_frame.f_code is _report.__code__ and context is not None:
            owner = _owners.get(abi.Context.from_address(context).owner)
            if owner is not None:
                owner.on_interrupt(context, error)
            return
        step = step.tb_next


keep(_report, _take)
_native = abi.ReportFunction(_report)
REPORT: int = ctypes.cast(_native, ctypes.c_void_p).value or 0  # for the contexts of all code since ABI 2


def silent_report(owner: ReportReceiver, context: int) -> Any:
    """A function for code of ABI 1 that runs with this one context. It does not keep the owner alive: a cycle would
    hold memory for long."""
    known = weakref.ref(owner)

    def report(site: int, arguments: Any) -> None:
        owner = known()
        if owner is not None:
            owner.on_report(context, site, arguments)

    def take(error: BaseException) -> None:
        owner = known()
        if owner is not None:
            owner.on_interrupt(context, error)

    keep(report, take)
    return abi.SilentReportFunction(report)
