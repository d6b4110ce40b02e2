"""Makes the buffers that collectives of several devices of one process take, as documented."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ...dsl.types.dtype import DType
from ..arguments import list_of
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef
from ..types.tensor_type import BufferType


class Signals:
    """One buffer for each device: the last inputs of a graph whose collectives go on between devices of one process.

    The buffers say which devices take part. The runtime orders the copies between devices by itself, and leaves the
    elements as they are.

    Args:
        devices: those that take part, in their order. `buffers` wants devices of this machine.
    """

    NUM_BYTES: Final = 1

    def __init__(self, devices: Iterable[DeviceRef | Device]) -> None:
        self._given = list_of("devices", devices, "devices")
        self.devices = [DeviceRef.from_device(each) for each in self._given]

    def buffers(self) -> list[Buffer]:
        """The buffers, for calls of a model."""
        devices = [each.to_device() if isinstance(each, DeviceRef) else each for each in self._given]
        return [Buffer.from_numpy(np.zeros(self.NUM_BYTES, np.uint8)).to(device) for device in devices]

    def input_types(self) -> list[BufferType]:
        """Their types, for the inputs of a graph."""
        return [BufferType(DType.uint8, [self.NUM_BYTES], device) for device in self.devices]
