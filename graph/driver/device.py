"""Devices: the names that a graph uses for them, and the handles that hold memory.

`DeviceRef` is a name ("cpu:0"), part of every tensor type, and may name a device that this machine does not have; so a
graph for a GPU can be written anywhere. `Device` is a handle on hardware that is here.

Input: nothing. Output: immutable values and handles. Non-goals: no allocation (see `buffer`), no launching.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from enum import Enum

from ...dsl.diagnostics.errors import DeviceError, GraphError, shown_value
from ...dsl.diagnostics.places import user_place


class DeviceKind(Enum):
    """What a device is, apart from which one."""

    CPU = "cpu"
    GPU = "gpu"

    @staticmethod
    def from_string(text: str) -> DeviceKind:
        """The kind named "cpu" or "gpu", in any case.

        Raises:
            GraphError: another name.
        """
        if isinstance(text, str) and text.lower() in ("cpu", "gpu"):
            return DeviceKind(text.lower())
        raise GraphError(
            f"there is no device kind {shown_value(text)}",
            code="EK0801",
            place=user_place(),
            argument="device_type",
            expected="cpu, gpu",
            got=shown_value(text),
        )

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class DeviceRef:
    """The name of a device in a graph: `DeviceRef.CPU()`, `DeviceRef.GPU(1)`, `DeviceRef("gpu", 1)`."""

    device_type: DeviceKind
    id: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.device_type, DeviceKind):
            object.__setattr__(self, "device_type", DeviceKind.from_string(self.device_type))
        if isinstance(self.id, bool) or not isinstance(self.id, int) or self.id < 0:
            raise GraphError(
                f"a device id counts from 0, not {shown_value(self.id)}",
                code="EK0801",
                place=user_place(),
                argument="id",
                expected="an int >= 0",
                got=shown_value(self.id),
            )

    @staticmethod
    def CPU(id: int = 0) -> DeviceRef:
        """The host."""
        return DeviceRef(DeviceKind.CPU, id)

    @staticmethod
    def GPU(id: int = 0) -> DeviceRef:
        """The accelerator with this number; it need not be present to write a graph for it."""
        return DeviceRef(DeviceKind.GPU, id)

    @staticmethod
    def from_device(device: Device | DeviceRef) -> DeviceRef:
        """The name of a device that is here; a name stays what it is.

        Raises:
            DeviceError: EK0802, something else.
        """
        if isinstance(device, DeviceRef):
            return device
        if not isinstance(device, Device):
            raise DeviceError(
                f"{shown_value(device)} is no device",
                code="EK0802",
                place=user_place(),
                argument="device",
                expected="a DeviceRef or a Device",
                got=shown_value(device),
                hint="DeviceRef.CPU() names the host",
            )
        return DeviceRef(DeviceKind(device.label), device.id)

    def to_device(self) -> Device:
        """The device of this name.

        Raises:
            DeviceError: it is not there.
        """
        return CPU(self.id) if self.is_cpu() else Accelerator(self.id)

    def is_cpu(self) -> bool:
        """Whether this names the host."""
        return self.device_type is DeviceKind.CPU

    def is_gpu(self) -> bool:
        """Whether this names an accelerator."""
        return self.device_type is DeviceKind.GPU

    def __str__(self) -> str:
        return f"{self.device_type}:{self.id}"

    def __repr__(self) -> str:
        return f"DeviceRef.{self.device_type.name}({self.id})"


class Device:
    """A device that is here. Two handles on the same hardware are equal."""

    label: str
    api: str

    def __init__(self, id: int = 0) -> None:
        self.id = id

    @property
    def is_host(self) -> bool:
        """Whether its memory is the process's own."""
        return self.label == "cpu"

    @property
    def is_compatible(self) -> bool:
        """Whether this version can run kernels on it."""
        return True

    @property
    def architecture_name(self) -> str:
        """The accelerator's architecture, such as "sm_90" or "gfx942".

        Raises:
            DeviceError: the host has none; its machine type is among `stats`.
        """
        raise DeviceError(f"{self} has no accelerator architecture", code="EK0812", got=str(self))

    @property
    def stats(self) -> dict[str, str | int]:
        """What is known about the device."""
        return {}

    def can_access(self, other: Device) -> bool:
        """Whether kernels on this device may read the memory of `other` directly."""
        return self == other

    def synchronize(self) -> None:
        """Waits until all work queued on the device is done."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.label, self.id) == (other.label, other.id)

    def __hash__(self) -> int:
        return hash((self.label, self.id))

    def __str__(self) -> str:
        return f"{self.label}:{self.id}"

    def __repr__(self) -> str:
        return f"Device({self})"


class CPU(Device):
    """The host. Everything on it is synchronous, so `synchronize` returns at once."""

    label = "cpu"
    api = "cpu"

    def __init__(self, id: int = 0) -> None:
        if type(id) is not int or id != 0:
            raise DeviceError(
                f"there is one host, cpu:0, and no cpu:{shown_value(id)}",
                code="EK0801",
                place=user_place(),
                argument="id",
                expected="cpu:0",
                got=shown_value(id),
            )
        super().__init__(id)

    @property
    def stats(self) -> dict[str, str | int]:
        return {"machine": platform.machine(), "logical_cores": os.cpu_count() or 1}


# Files that a kernel driver leaves when it is loaded; they tell "no hardware" from "no runtime for it here".
_DRIVER_TRACES = (("NVIDIA", "/proc/driver/nvidia/version"), ("AMD", "/sys/module/amdgpu/version"))


class Accelerator(Device):
    """A GPU. This version has no runtime for any, so making one explains that and raises."""

    label = "gpu"

    def __init__(self, id: int = 0) -> None:
        drivers = [vendor for vendor, trace in _DRIVER_TRACES if os.path.exists(trace)]
        found = f"an {' and an '.join(drivers)} driver is loaded" if drivers else "no GPU driver is loaded"
        raise DeviceError(
            f"there is no gpu:{id} to run on: this version of Einkorn runs graphs on the CPU only",
            code="EK0801",
            expected="a device from scan_available_devices()",
            got=f"gpu:{id}",
            notes=[f"{found} on this machine; kernels can still be compiled for GPU targets"],
            hint="use CPU(), or choose by accelerator_count()",
        )


def accelerator_count() -> int:
    """How many accelerators `Accelerator` can open: none in this version."""
    return 0


def scan_available_devices() -> list[Device]:
    """The accelerators that are here, else the host."""
    return [Accelerator(id) for id in range(accelerator_count())] or [CPU()]


def host_of(device: Device | DeviceRef | None) -> Device:
    """The device of this name, or the host; one that memory can be had on.

    Raises:
        DeviceError: EK0802 something else, EK0801 a device that is not here or not the host.
    """
    found = CPU() if device is None else device.to_device() if isinstance(device, DeviceRef) else device
    DeviceRef.from_device(found)
    if not found.is_host:
        raise DeviceError(f"there is no memory to allocate on {found}", code="EK0801", expected="cpu:0", got=found)
    return found
