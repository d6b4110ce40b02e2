"""Names devices and opens them: the names that a graph uses, the handles that hold memory, and the kinds there are.

`DeviceRef` is a name ("cpu:0"), part of every tensor type, and may name a device that this machine does not have; so a
graph for a GPU can be written anywhere. `Device` is a handle on hardware that is here. `KINDS` is the table of the
kinds of devices: a kind is one file and one row in it.

See also `device` (what a kind of device does).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, GraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.types.dtype import DType
from .device import Backend, Driver
from .gpu_kinds import CUDA, HIP
from .host import HOST
from .streams import DeviceStream, default_stream

KINDS: Final[list[Backend]] = [HOST, CUDA, HIP]


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
            f"no device kind {shown_value(text)}",
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
                f"{shown_value(device)} is not a device",
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
            DeviceError: it is not available.
        """
        return _placed.get().get(self) or _HANDLES[self.device_type](self.id)

    def is_cpu(self) -> bool:
        """Whether this names the host."""
        return self.device_type is DeviceKind.CPU

    def is_gpu(self) -> bool:
        """Whether this names an accelerator."""
        return self.device_type is DeviceKind.GPU

    @property
    def default_dtype(self) -> DType:
        """What numbers are that are made there without a dtype: float32 on the host, bfloat16 on accelerators."""
        return DType.float32 if self.is_cpu() else DType.bfloat16

    def __str__(self) -> str:
        return f"{self.device_type}:{self.id}"

    def __repr__(self) -> str:
        return f"DeviceRef.{self.device_type.name}({self.id})"


class Device:
    """A device that is here. Two handles on the same hardware are equal."""

    label: str

    def __init__(self, id: int = 0) -> None:
        self.id = id
        self.driver = driver_of(self.label, id)
        self.driver.device = self

    @property
    def api(self) -> str:
        """What runs the device: "cpu" for the host."""
        return self.driver.api

    @property
    def is_host(self) -> bool:
        """Whether its memory is the process's own."""
        return self.driver.is_host

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
        if not self.driver.architecture:
            raise DeviceError(f"{self} has no accelerator architecture", code="EK0812", got=str(self))
        return self.driver.architecture

    @property
    def stats(self) -> dict[str, str | int]:
        """What is known about the device."""
        return self.driver.properties()

    def can_access(self, other: Device) -> bool:
        """Whether kernels on this device may read the memory of `other` directly."""
        if self == other or not isinstance(other, Device):
            return self == other
        return not other.is_host and self.driver.can_access(other.driver)

    @property
    def default_stream(self) -> DeviceStream:
        """The stream that work goes to outside of `with stream:`."""
        return default_stream(self.driver)

    def synchronize(self) -> None:
        """Waits until all work queued on the device is done."""
        self.driver.synchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.driver is other.driver

    def __hash__(self) -> int:
        return hash((self.label, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.id,)) if self.driver.made_with is None else (_simulated, self.driver.made_with)

    def __str__(self) -> str:
        return f"{self.label}:{self.id}" + (f" ({self.driver.name})" if self.driver.name else "")

    def __repr__(self) -> str:
        return f"Device({self})"


class CPU(Device):
    """The host. Everything on it is synchronous, so `synchronize` returns at once."""

    label = "cpu"

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


class Accelerator(Device):
    """A GPU, by its number among those that are here. Where there is none of that number, making one says why.

    `Accelerator("sim")` is one that this machine's processor simulates, thread by thread: `like` the GPU of a compile
    target. In a session that has it, it is what graphs call gpu:0. A `seed` above 0 draws the order of threads between
    the places where they wait. A `schedule`, as errors say it, orders them instead. Where neither is given,
    EINKORN_SIM_SCHEDULE or EINKORN_SIM_SEED says it. `checks` says what is looked for in what kernels do
    with memory: "all", or some of "races", "bounds", "uninitialised", "copies" and "promises". In a session with
    several of them, graphs call them gpu:0, gpu:1 and so on by their `number`.
    """

    label = "gpu"

    def __init__(
        self,
        id: int | str = 0,
        *,
        like: str | None = None,
        seed: int | None = None,
        checks: str | None = None,
        schedule: str | None = None,
        number: int | None = None,
    ) -> None:
        if isinstance(id, str) or any(given is not None for given in (like, seed, checks, schedule, number)):
            with shielded():
                from .simulated import open_simulated  # few programs have one

            self.id, self.driver = number or 0, open_simulated(id, like, seed, checks, schedule, number)
            self.driver.device = self
            return
        if type(id) is not int or not 0 <= id < accelerator_count():
            raise _no_accelerator(id)
        super().__init__(id)


def _simulated(like: str, seed: int, checks: str, schedule: str | None = None, number: int = 0) -> Accelerator:
    return Accelerator("sim", like=like, seed=seed, checks=checks, schedule=schedule, number=number)


# What names mean for now: a session has devices of its own for them.
_placed: ContextVar[Mapping[DeviceRef, Device]] = ContextVar("placed", default={})  # noqa: B039  # never modified


@contextmanager
def placed_on(devices: Sequence[Device]) -> Iterator[None]:
    """Within it, the names of accelerators mean the simulated ones among these devices."""
    simulated = {DeviceRef.from_device(device): device for device in devices if device.driver.api == "sim"}
    token = _placed.set(simulated)
    try:
        yield
    finally:
        _placed.reset(token)


_HANDLES: Final[dict[DeviceKind, type[Device]]] = {DeviceKind.CPU: CPU, DeviceKind.GPU: Accelerator}


def _no_accelerator(id: int) -> DeviceError:
    missing = next(filter(None, (kind.missing() for kind in KINDS if kind.label == Accelerator.label)), None)
    if missing is not None:
        return missing
    count = accelerator_count()
    return DeviceError(
        f"there is no gpu:{id} to run on: this machine has {count or 'none'}",
        code="EK0801",
        expected="a device from scan_available_devices()",
        got=f"gpu:{id}",
        notes=["kernels can be compiled for GPU targets without one"],
        hint='use CPU(), Accelerator("sim"), or choose by accelerator_count()',
    )


def accelerator_count() -> int:
    """How many accelerators `Accelerator` can open."""
    return sum(kind.count() for kind in KINDS if kind.label == Accelerator.label)


def scan_available_devices() -> list[Device]:
    """The accelerators that are here, else the host."""
    return [Accelerator(id) for id in range(accelerator_count())] or [CPU()]


def accelerator_api() -> str:
    """How the first accelerator is programmed: "cuda" or "hip".

    Raises:
        DeviceError: EK0801 there is no accelerator.
    """
    return Accelerator().api


def accelerator_architecture_name() -> str:
    """The architecture of the first accelerator: "sm_90a", "gfx942".

    Raises:
        DeviceError: EK0801 there is no accelerator.
    """
    return Accelerator().architecture_name


def driver_of(label: str, id: int) -> Driver:
    """The driver of a device that is here; devices of one label are numbered in the order of `KINDS`."""
    first = 0
    for kind in KINDS:
        if kind.label == label:
            count = kind.count()
            if id < first + count:
                return _opened(kind, id - first)
            first += count
    raise DeviceError(f"there is no {label}:{id}", code="EK0801", got=f"{label}:{id}")


@functools.cache
def _opened(kind: Backend, number: int) -> Driver:
    return kind.open(number)


def device_of(device: Device | DeviceRef | None) -> Device:
    """The device of this name, or the host.

    Raises:
        DeviceError: EK0802 something else, EK0801 a device that is not here.
    """
    if isinstance(device, Device):
        return device
    return CPU() if device is None else DeviceRef.from_device(device).to_device()


def place_of_stream(device: Device | DeviceRef | None, stream: DeviceStream) -> Device:
    """The device of a stream.

    Raises:
        DeviceError: EK0802 it is not a stream, EK0816 another device is given with it.
    """
    if not isinstance(stream, DeviceStream):
        got, at = shown_value(stream), user_place()
        text = f"argument 'stream' has to be a DeviceStream, and is {got}"
        raise DeviceError(text, code="EK0802", place=at, argument="stream", expected="a DeviceStream", got=got)
    place: Device = stream.device
    if device is not None and device_of(device) != place:
        text = f"the stream is one of {place}, and the device is {device_of(device)}"
        raise DeviceError(text, code="EK0816", argument="stream", expected=str(device_of(device)), got=str(place))
    return place
