"""Which ready-made code serves a graph: only what this machine can run, for exactly these parameters."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.compiler.targets import lacking
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.container import CodeContents, OpContents, PackageContents, read_package, write_package
from einkorn.graph import DeviceRef, ops

HOST = DeviceRef.CPU()
KERNELS = """
from einkorn.dsl import *


@register("divided")
def divided(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"], *, k: float = 0.0, b: bool = True,
            m: int = 1) -> None:
    foreach(out, lambda i: x[i] / k + (1.0 if b else 2.0) * m)
"""
pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    with graphs.cache_in(tmp_path / "cache"):
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "kernels.py").write_text(KERNELS)
    listed = folder / "instances.json"
    listed.write_text(json.dumps({"divided": [{"parameters": {"k": 0.0}}, {"parameters": {"k": 2.0}}]}))
    build_package(str(folder / "kernels.py"), str(folder / "k.pkg"), ["x86-64-v2"], instances=str(listed))
    return folder / "k.pkg"


def tier(package: Path, **parameters: Any) -> str:
    model = graphs.load(
        lambda x: ops.custom("divided", device=HOST, values=[x], parameters=parameters),
        (np.float64, ["n"]),
        extensions=package,
    )
    k, b, m = parameters.get("k", 0.0), parameters.get("b", True), parameters.get("m", 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.ones(3) / k + (1.0 if b else 2.0) * m
    assert np.array_equal(model(np.ones(3))[0].to_numpy(), expected, equal_nan=True)
    return str(model.code.tier)


def test_parameters_are_those_of_the_code_to_the_bit(built: Path) -> None:
    for parameters in ({}, {"k": 0.0}, {"k": 2.0}, {"k": 2}, {"k": np.float32(2)}, {"m": 1}):
        assert "k.pkg" in tier(built, **parameters), parameters
    for parameters in ({"k": -0.0}, {"k": float("nan")}, {"b": False}, {"m": 0}, {"k": 2.0000000000000004}):
        assert tier(built, **parameters) in ("compiled", "cache"), parameters


def remade(package: Path, to: Path, change: Any) -> Path:
    """The package with its variants changed."""
    old = read_package(package)
    ops_ = tuple(OpContents(op.schema, old.program(op.schema.name)) for op in old.ops)
    code = tuple(
        change(CodeContents(v.op, v.instance, v.target, v.kind, old.code(v), v.requirements, v.checks))
        for v in old.variants
    )
    write_package(to, PackageContents("k", "1", ops_, code))
    return to


@pytest.mark.parametrize("requirement", ["avx1024", "sm_80", "aarch64", "x86-64-v9", "host", ""])
def test_what_the_machine_lacks_is_not_loaded(
    built: Path, tmp_path: Path, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = remade(built, tmp_path / "other.pkg", lambda c: replace(c, requirements=("sse2", requirement)))
    assert tier(other, k=2.0) == "compiled"
    assert lacking("x86-64-v2", ("sse2", requirement)) == (requirement,)
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(PackageError) as caught:
        tier(other, k=2.0)
    assert caught.value.code == "EK0512"


def test_what_the_machine_has_is_loaded(built: Path, tmp_path: Path) -> None:
    other = remade(built, tmp_path / "other.pkg", lambda c: replace(c, requirements=("sse2", "x86-64-v2")))
    assert "other.pkg" in tier(other, k=2.0)


@pytest.mark.parametrize("target", ["host", "aarch64", "x86-64-v9", "sm_80", "x86-64"])
def test_code_of_another_target_is_not_loaded(built: Path, tmp_path: Path, target: str) -> None:
    other = remade(built, tmp_path / "other.pkg", lambda c: replace(c, target=target))
    assert tier(other, k=2.0) == "compiled"


def test_damaged_code_with_its_checksums_mended_is_refused(built: Path, tmp_path: Path) -> None:
    other = remade(built, tmp_path / "other.pkg", lambda c: replace(c, data=c.data[:200]))
    with pytest.raises(PackageError) as caught:
        tier(other, k=2.0)
    assert caught.value.code == "EK0562" and "divided-" in str(caught.value) and "other.pkg" in str(caught.value)
