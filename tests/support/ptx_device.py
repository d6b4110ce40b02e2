"""Runs kernels of PTX on devices of `support.launching_device`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from support import ptx
from support.launching_device import Launched


def run_ptx(code: bytes, launch: Launched, memory: Mapping[int, int]) -> None:
    """Runs one launch in the interpreter, over the whole memory of the device."""
    lent = ptx.Memory()
    for address, size in memory.items():
        lent.lend(np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8))
    ptx.run(
        code.decode().rstrip("\0"),
        launch.kernel.symbol,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        shared=launch.shared,
        arguments=launch.arguments,
        memory=lent,
    )
