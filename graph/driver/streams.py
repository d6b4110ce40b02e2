"""Orders work on a device: streams, which run side by side, and which stream a thread's work goes to.

What is enqueued on a stream runs in its order. Work of two streams is ordered by events alone: `wait_for` makes one
wait for what the other has by now, and the host waits for neither. The runtime does it itself where memory goes from
one stream to another: each piece of memory records the stream that used it last.

See also `gpu_library` (how a library makes streams). On the host, where everything is done at once, streams exist and
do nothing.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, NoReturn, Protocol

from ...dsl.diagnostics.errors import UnpicklableError
from ...dsl.diagnostics.forks import fork_lock
from .device import Driver


class HasDriver(Protocol):
    """A device that is here."""

    @property
    def driver(self) -> Driver: ...


class DeviceStream:
    """An ordered queue of work on a device. Within `with stream:` the work of this thread goes there: models that are
    called, and copies of buffers on this device.

    Args:
        device: whose queue it is.
        handle: of a stream that another library made (`torch.cuda.Stream().cuda_stream`), which stays its owner; a new
            one when left out.
    """

    __slots__ = ("__weakref__", "_before", "_owned", "driver", "handle", "is_recording")

    def __init__(self, device: HasDriver, handle: int | None = None) -> None:
        self._start(device.driver, handle)

    def _start(self, driver: Driver, handle: int | None) -> None:
        self._owned = self.is_recording = False
        self.driver = driver
        self.handle = driver.create_stream() if handle is None else handle
        self._owned = handle is None
        self._before: list[DeviceStream | None] = []
        driver.streams += 1

    def __reduce__(self) -> NoReturn:
        hint = "pickle the device, and make a stream of it there: DeviceStream(device)"
        raise UnpicklableError.of("a DeviceStream", "its queue is one of this process", hint)

    @property
    def device(self) -> Any:
        """The `Device` whose queue it is."""
        device: Any = self.driver.device
        return device

    def synchronize(self) -> None:
        """Waits until all work on the stream is done."""
        self.driver.synchronize_stream(self.handle)

    def wait_for(self, other: DeviceStream | HasDriver) -> None:
        """What is enqueued here from now on runs behind what is on another stream by now: on that of the device, where
        a device is given."""
        stream = other if isinstance(other, DeviceStream) else default_stream(other.driver)
        if stream is not self:
            self.driver.order_streams(stream.handle, self.handle)

    def __enter__(self) -> DeviceStream:
        self._before.append(_chosen(self.driver))
        _streams(self.driver)[id(self.driver)] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        before = self._before.pop()
        if before is None:
            del _streams(self.driver)[id(self.driver)]
        else:
            _streams(self.driver)[id(self.driver)] = before

    def __repr__(self) -> str:
        return f"DeviceStream({self.handle:#x})"

    def __del__(self) -> None:
        if self._owned:
            self.driver.destroy_stream(self.handle)


def stream_of(driver: Driver, handle: int | None = None) -> DeviceStream:
    """A stream of a driver; see `DeviceStream`."""
    stream = DeviceStream.__new__(DeviceStream)
    stream._start(driver, handle)
    return stream


_local = threading.local()
_lock = fork_lock()


def _streams(driver: Driver) -> dict[int, DeviceStream]:
    """The streams that this thread has chosen, by the number of the driver."""
    result: dict[int, DeviceStream] | None = getattr(_local, "streams", None)
    if result is None:
        result = _local.streams = {}
    return result


def _chosen(driver: Driver) -> DeviceStream | None:
    return _streams(driver).get(id(driver))


def default_stream(driver: Driver) -> DeviceStream:
    """The stream of code that chooses none."""
    result: DeviceStream | None = driver.default_stream
    if result is None:
        with _lock:
            result = driver.default_stream or stream_of(driver)
            driver.default_stream = result
    return result


def current_stream(driver: Driver) -> DeviceStream:
    """The stream that this thread's work on a device goes to."""
    result: DeviceStream | None = driver.default_stream
    if driver.streams > 1 or result is None:  # the only stream may be one that was chosen
        return _chosen(driver) or default_stream(driver)
    return result
