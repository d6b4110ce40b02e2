"""Packages with code for GPUs: both halves go in, are read before they are used, and serve a session on the device."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.recording_device import RecordingDriver, recording_kind

from einkorn.compiler.build import HOSTS, build_package
from einkorn.dsl.contract.kernels import read_kernels
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.diagnostics.json_reading import Misread
from einkorn.dsl.package.container import CodeContents, OpContents, Package, PackageContents, write_package
from einkorn.dsl.package.shared_object import read_host_half, read_shared_object
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices

GPU = DeviceRef.GPU()
KERNELS = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("doubled")
def doubled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * 2)

@register("summed")
def summed(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], y: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] + y[i])
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("package")
    (folder / "kernels.py").write_text(KERNELS)
    return build_package(str(folder / "kernels.py"), str(folder / "both.pkg"), ["x86-64-v2", "sm_80", "gfx942"])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RecordingDriver]:
    """A machine with a recording device, an empty cache, and no compiler."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, recording_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, RecordingDriver)
    yield driver


def doubled(path: Path) -> Graph:
    x = TensorType(DType.float32, ["n"], GPU)
    return Graph("doubled", lambda x: ops.custom("doubled", GPU, [x], [x.type]), [x], custom_extensions=[path])


def test_both_halves_go_in(package: Package) -> None:
    assert package.manifest.format == (1, 1)
    names = zipfile.ZipFile(package.path).namelist()
    for target, kind in (("sm_80", "ptx"), ("gfx942", "hsaco")):
        variants = [variant for variant in package.variants if variant.target == target]
        assert [variant.op for variant in variants] == ["doubled", "summed"]
        for variant in variants:
            stem = f"code/{target}/{variant.op}-0"
            assert variant.kind == kind and variant.code.member == f"{stem}.{kind}"
            assert [record.member for record in variant.members[1:]] == [f"{stem}.{host}.so" for host in HOSTS]
            assert variant.kernels == (f"{variant.op}_0_kernel_0",)
            assert all(record.member in names for record in variant.members)
            for host, architecture in zip(HOSTS, ("aarch64", "x86_64"), strict=True):
                _, kernels = read_host_half(package.host_code(variant, host), architecture)
                table = read_kernels(kernels)
                assert table.fits(package.code(variant)) and table.kernels[0].symbol == variant.kernels[0]
    plain = next(variant for variant in package.variants if variant.target == "x86-64-v2")
    assert plain.host == () and read_shared_object(package.code(plain), "x86_64")
    with pytest.raises(Misread, match="has no symbol 'ek_kernels'"):
        read_host_half(package.code(plain), "x86_64")
    assert package.verify() == len(names)


def test_a_session_on_the_device_runs_them(package: Package, driver: RecordingDriver) -> None:
    model = InferenceSession(devices=[Accelerator(0)]).load(doubled(package.path))
    model.execute(Buffer.from_numpy(np.zeros(777, np.float32)).to(GPU))
    (launch,) = driver.launches
    assert launch.kernel.symbol == "doubled_0_kernel_0" and launch.threads >= 777 // 4 and 777 in launch.arguments
    driver.launches.clear()
    model.execute(Buffer.from_numpy(np.zeros(0, np.float32)).to(GPU))
    assert driver.launches == []


def test_halves_of_different_ops_are_refused(package: Package, driver: RecordingDriver, tmp_path: Path) -> None:
    mine, other = [variant for variant in package.variants if variant.target == "sm_80"]
    records = [OpContents(op.schema, package.program(op.schema.name)) for op in package.ops]
    hosts = tuple((host, package.host_code(other, host)) for host in HOSTS)
    code = CodeContents(mine.op, mine.instance, mine.target, mine.kind, package.code(mine), hosts=hosts)
    mixed = write_package(tmp_path / "mixed.pkg", PackageContents("mixed", "1", tuple(records), (code,)))
    with pytest.raises(PackageError) as caught:
        InferenceSession(devices=[Accelerator(0)]).load(doubled(mixed.path))
    assert caught.value.code == "EK0625" and "code/sm_80/doubled-0.ptx" in str(caught.value)


def test_code_without_a_half_for_the_host_is_not_used(
    package: Package, driver: RecordingDriver, tmp_path: Path
) -> None:
    """As in packages of format 1.0; those without code for devices are still of that format."""
    mine = next(variant for variant in package.variants if variant.target == "sm_80")
    records = [OpContents(op.schema, package.program(op.schema.name)) for op in package.ops]
    code = CodeContents(mine.op, mine.instance, mine.target, mine.kind, package.code(mine))
    old = write_package(tmp_path / "old.pkg", PackageContents("old", "1", tuple(records), (code,)))
    assert old.manifest.format == (1, 0)
    variants = json.loads(zipfile.ZipFile(old.path).read("manifest.json"))["variants"]
    assert all("host" not in variant and "kernels" not in variant for variant in variants)
    with pytest.raises(PackageError) as caught:
        InferenceSession(devices=[Accelerator(0)]).load(doubled(old.path))
    assert caught.value.code == "EK0512"
