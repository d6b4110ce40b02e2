"""Names devices before they are opened: `load_devices(scan_available_devices())`, as programs for MAX begin.

See also `devices` (which devices there are).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError
from ..arguments import choice_of, int_of, list_of, wrong
from .devices import CPU, Accelerator, Device, DeviceRef

CODE = "EK0801"


@dataclass(frozen=True)
class DeviceSpec:
    """Which device: "cpu" or "gpu", and its number. The host has the numbers -1 and 0."""

    id: int
    device_type: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        choice_of("device_type", self.device_type, ("cpu", "gpu"), CODE)
        int_of("id", self.id, CODE)

    @staticmethod
    def cpu(id: int = -1) -> DeviceSpec:
        """The host."""
        return DeviceSpec(id, "cpu")

    @staticmethod
    def accelerator(id: int = 0) -> DeviceSpec:
        """A GPU, by its number."""
        return DeviceSpec(id, "gpu")


def load_devices(device_specs: Iterable[DeviceSpec | DeviceRef | Device]) -> list[Device]:
    """The devices of these specs; a device stands for itself.

    Raises:
        DeviceError: EK0801 there is no such device.
    """
    return [_opened(k, spec) for k, spec in enumerate(list_of("device_specs", device_specs, "device specs", CODE))]


def devices_exist(devices: Iterable[DeviceSpec | DeviceRef | Device]) -> bool:
    """Whether all of these devices are here."""
    try:
        load_devices(devices)
    except DeviceError:
        return False
    return True


def calculate_virtual_device_count(*device_spec_lists: Iterable[DeviceSpec]) -> int:
    """One more than the largest number of a GPU in these lists; 1 where there is none."""
    return max([1, *(spec.id + 1 for listed in device_spec_lists for spec in listed if spec.device_type == "gpu")])


def _opened(position: int, spec: DeviceSpec | DeviceRef | Device) -> Device:
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, DeviceRef):
        return spec.to_device()
    if not isinstance(spec, DeviceSpec):
        wrong(f"device_specs[{position}]", spec, "a DeviceSpec", code=CODE, hint="DeviceSpec.cpu() is the host")
    return CPU(max(spec.id, 0)) if spec.device_type == "cpu" else Accelerator(spec.id)
