"""Device names and handles."""

from __future__ import annotations

import pytest

from einkorn.dsl.diagnostics.errors import DeviceError, EinkornError, GraphError
from einkorn.graph import (
    CPU,
    Accelerator,
    DeviceKind,
    DeviceRef,
    DeviceSpec,
    accelerator_api,
    accelerator_architecture_name,
    accelerator_count,
    calculate_virtual_device_count,
    devices_exist,
    load_devices,
    scan_available_devices,
)
from einkorn.graph.driver import gpu_kinds


def test_names() -> None:
    assert str(DeviceRef.CPU()) == "cpu:0" and str(DeviceRef.GPU(3)) == "gpu:3"
    assert DeviceRef.CPU().is_cpu() and not DeviceRef.CPU().is_gpu() and DeviceRef.GPU().is_gpu()
    assert DeviceRef.GPU(1) == DeviceRef(DeviceKind.GPU, 1) != DeviceRef.GPU(2)
    assert len({DeviceRef.CPU(), DeviceRef.CPU(0), DeviceRef.GPU()}) == 2
    assert repr(DeviceRef.GPU(1)) == "DeviceRef.GPU(1)"
    assert DeviceRef("gpu", 1) == DeviceRef.GPU(1)  # type: ignore[arg-type]  # documented with a string, too


def test_there_and_back() -> None:
    assert DeviceRef.from_device(CPU()) == DeviceRef.CPU()
    assert DeviceRef.CPU().to_device() == CPU()
    with pytest.raises(DeviceError):
        DeviceRef.GPU().to_device()


def test_host() -> None:
    host = CPU()
    assert (host.label, host.id, host.api, str(host)) == ("cpu", 0, "cpu", "cpu:0")
    assert host.is_host and host.is_compatible and host.can_access(CPU()) and hash(host) == hash(CPU())
    assert host.stats["logical_cores"]
    host.synchronize()
    with pytest.raises(DeviceError, match="no accelerator architecture"):
        _ = host.architecture_name
    with pytest.raises(DeviceError, match="one host"):
        CPU(1)


def test_no_accelerator_is_explained() -> None:
    assert accelerator_count() == 0
    assert scan_available_devices() == [CPU()]
    with pytest.raises(DeviceError) as caught:
        Accelerator(1)
    assert caught.value.code == "EK0801"
    assert caught.value.message == "there is no gpu:1 to run on: this machine has none"
    assert caught.value.hint == 'use CPU(), Accelerator("sim"), or choose by accelerator_count()'


def test_devices_by_their_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs, names and devices are opened alike; what is not here is reported, or found out before."""
    host = DeviceSpec.cpu()
    assert (host.id, host.device_type) == (-1, "cpu") and DeviceSpec(0) == DeviceSpec.cpu(0)
    assert load_devices([host, DeviceSpec(0), DeviceRef.CPU(), *scan_available_devices()]) == [CPU()] * 4
    assert devices_exist([host]) and not devices_exist([host, DeviceSpec.accelerator(3)])
    assert calculate_virtual_device_count([host], [DeviceSpec.accelerator(2), host]) == 3
    assert calculate_virtual_device_count() == calculate_virtual_device_count([host]) == 1
    for call in (accelerator_api, accelerator_architecture_name, lambda: load_devices([DeviceSpec.accelerator(0)])):
        with pytest.raises(DeviceError, match="no gpu:0 to run on"):
            call()
    for wrong in (lambda: DeviceSpec(0, "tpu"), lambda: DeviceSpec("0"), lambda: load_devices(["cpu"])):  # type: ignore[arg-type, list-item]
        with pytest.raises(EinkornError) as caught:
            wrong()
        assert caught.value.code == "EK0801"


def test_a_driver_without_its_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for trace, library in (("_NVIDIA_TRACE", "libcuda.so.1"), ("_AMD_TRACE", "libamdhip64.so")):
        with monkeypatch.context() as patch:
            patch.setattr(gpu_kinds, trace, __file__)
            patch.setattr(gpu_kinds, "has_library", lambda name: False)
            with pytest.raises(DeviceError, match=f"the library {library} that programs reach it by") as caught:
                Accelerator(0)
        assert caught.value.code == "EK0831" and caught.value.hint is not None


@pytest.mark.parametrize("bad", [-1, True, "0"])
def test_wrong_ids(bad: int) -> None:
    with pytest.raises(GraphError, match="counts from 0"):
        DeviceRef.GPU(bad)


def test_wrong_kind() -> None:
    with pytest.raises(GraphError, match="no device kind 'tpu'"):
        DeviceKind.from_string("tpu")
