"""Makes the exchanges of tensors that lie on a GPU: by its maker's library of collectives, or through the host.

Kernels of collectives run where the tensors lie, and hand over addresses of the device. Before the first exchange of a
group, its ranks agree on the way: by NCCL or RCCL where all of them have it and each has a GPU of its own, else memory
is copied to the host, exchanged there, and copied back. What one rank sends to one other goes through the host.

See also `nccl` (the libraries), `calls` (which group an exchange is for).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import DeviceError, EinkornError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ..driver.device import Driver
from .communicator import CollectiveCall, DeviceExchange, DeviceRanks
from .mesh import RankGroup

OnHost: TypeAlias = Callable[[int, int], None]
# Programs without GPUs do not load it.
RANKS_ON_DEVICES: ExtensionPoint[Callable[[Driver, int, RankGroup, CollectiveCall], DeviceRanks | None]] = (
    ExtensionPoint("graph.distributed.nccl", "ranks_on_devices")
)


def exchange_on_device(
    driver: Driver, table: abi.DeviceTable, group: RankGroup, one: DeviceExchange, between_two: bool, on_host: OnHost
) -> None:
    """Makes an exchange.

    Args:
        driver, table: of the device.
        group: the ranks.
        one: the exchange.
        between_two: whether two ranks alone take part.
        on_host: makes it at other addresses, `to` and `source`, which are of the host.

    Raises:
        EinkornError: the ranks do not come, or the device or the library refuses.
    """
    if driver.collectives is not None and not between_two and group.size > 1:
        stream = table.stream or 0
        ranks = RANKS_ON_DEVICES.get()(driver, stream, group, one.call)
        if ranks is not None:
            ranks.exchange(one, stream)
            return
    _through_host(driver, table, group, one, on_host)


def _through_host(
    driver: Driver, table: abi.DeviceTable, group: RankGroup, one: DeviceExchange, on_host: OnHost
) -> None:
    sent, got = (count(group.rank, group.size) for count in (one.reads, one.writes))
    mine = np.empty(max(sent, one.size), np.uint8)
    theirs = mine if one.to == one.source else np.empty(max(got, one.size), np.uint8)
    _copy(driver, table, mine.ctypes.data, one.source, sent, abi.TO_HOST)
    on_host(theirs.ctypes.data, mine.ctypes.data)
    _copy(driver, table, one.to, theirs.ctypes.data, got, abi.TO_DEVICE)


def _copy(driver: Driver, table: abi.DeviceTable, to: int, source: int, size: int, kind: int) -> None:
    if size == 0:
        return
    code = abi.CopyFunction(table.copy)(ctypes.addressof(table), to, source, size, kind)
    if code:
        raise driver.launch_error(code, ["a collective was to copy memory"]) or _refused(driver, code)


def _refused(driver: Driver, code: int) -> EinkornError:
    text = f"a collective cannot copy memory of the device: {driver.error(code)}"
    return DeviceError(text, code="EK0837", got=code)
