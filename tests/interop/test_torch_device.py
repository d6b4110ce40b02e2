"""Tensors of a GPU reach kernels on PyTorch's stream: shown on the device that does nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from support.null_device import NullDriver, null_kind

from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import Accelerator, DeviceRef
from einkorn.graph.driver import devices
from einkorn.graph.driver.device import DeviceMemory
from einkorn.graph.driver.dlpack import place_of
from einkorn.graph.driver.streams import current_stream
from einkorn.graph.interop.torch import python_fallback
from einkorn.graph.interop.torch.python_fallback import PythonFallback
from einkorn.graph.interop.torch.tensors import device_of

from . import direct_kernels as k


class OnGPU(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    @property
    def device(self):
        return torch.device("cuda", 0)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **keywords):
        plain = self.as_subclass(torch.Tensor)
        capsule = plain.__dlpack__()
        place_of(capsule)[:] = 2, 0
        return capsule


def foreign(driver, address, size, stream, keep):
    return DeviceMemory(address, size, lambda _: keep)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, null_kind()])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda number: SimpleNamespace(cuda_stream=0x1234 + number))
    monkeypatch.setattr(NullDriver, "dlpack_place", (2, 0))
    monkeypatch.setattr(NullDriver, "foreign", foreign, raising=False)
    actual = Accelerator(0).driver
    assert isinstance(actual, NullDriver)
    return actual


def test_calls_go_to_the_stream_that_pytorch_works_on(driver):
    with python_fallback.on_current_stream(DeviceRef.GPU(0)):
        assert current_stream(driver).handle == 0x1234
    assert current_stream(driver).handle != 0x1234
    with python_fallback.on_current_stream(DeviceRef.CPU()):
        assert current_stream(driver).handle != 0x1234


def test_tensors_of_a_gpu_are_passed_where_they_lie(driver, monkeypatch):
    x, out = torch.ones(4).as_subclass(OnGPU), torch.zeros(4).as_subclass(OnGPU)
    handles, launch = [], NullDriver.launch

    def launched(self, *call):
        handles.append(current_stream(self).handle)
        return launch(self, *call)

    monkeypatch.setattr(NullDriver, "launch", launched)
    fallback = PythonFallback(k.add_one)
    assert fallback.run(fallback.into_arguments([out, x], {})) is None
    assert handles == [0x1234] and not driver.copies


def test_pytorch_devices_without_kernels_are_refused():
    with pytest.raises(DeviceError, match="kernels do not run on mps:0") as caught:
        device_of([("x", SimpleNamespace(device=torch.device("mps", 0)))], "scale")  # type: ignore[list-item]
    assert caught.value.code == "EK0815"
