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
from ...dsl.contract.exchange import ExchangeFunction
from .late_signals import keep


class ReportReceiver(Protocol):
    """The receiver of the reports of calls."""

    def on_report(self, context: int, site: int, arguments: object) -> None:
        """Takes a report of the call with this context, from any thread; it raises nothing."""

    def on_exchange(self, context: int, slot: int, kind: int, *given: int) -> int:
        """Makes an exchange between ranks (see `dsl.contract.exchange`): 0, or another number where native code has
        already reported a failure.

        Raises:
            EinkornError: it was not made.
        """

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


def _exchange(context: int, slot: int, kind: int, *given: int | None) -> int:
    owner = _owners.get(abi.Context.from_address(context).owner)
    if owner is None:
        return 1
    try:
        return owner.on_exchange(context, slot, kind, *(each or 0 for each in given))
    except BaseException as error:  # it cannot cross native code
        owner.on_interrupt(context, error)
        return 1


def _take(error: BaseException) -> None:
    """An exception at the edge of the function above: its frame has the context."""
    step = error.__traceback__
    while step is not None:
        context = step.tb_frame.f_locals.get("context")
        if step.tb_frame.f_code in (_report.__code__, _exchange.__code__) and context is not None:
            owner = _owners.get(abi.Context.from_address(context).owner)
            if owner is not None:
                owner.on_interrupt(context, error)
            return
        step = step.tb_next


for _function in (_report, _exchange):
    keep(_function, _take)
_native = abi.ReportFunction(_report), ExchangeFunction(_exchange)
# For the contexts of all code since ABI 2, and for the slots of collectives.
REPORT, EXCHANGE = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _native)


def silent_report(owner: ReportReceiver, context: int) -> Any:
    """A function for code of ABI 1 that runs with this one context. It does not keep the owner alive: a cycle would
    hold memory for long."""
    known = weakref.ref(owner)

    def report(site: int, arguments: object) -> None:
        owner = known()
        if owner is not None:
            owner.on_report(context, site, arguments)

    def take(error: BaseException) -> None:
        owner = known()
        if owner is not None:
            owner.on_interrupt(context, error)

    keep(report, take)
    return abi.SilentReportFunction(report)
