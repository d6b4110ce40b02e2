"""A language for kernels is one frontend and one row: its files are checked, built, packed, loaded and run as any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.toy_frontend import TOY

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError
from einkorn.dsl.frontend.readers import FRONTENDS, frontend_of, sources_in
from einkorn.dsl.package.library import kernel_files, load_library
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

PYTHON = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("toy::halved")
def halved(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] / 2)
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FRONTENDS, ".toy", TOY)


def folder_of(path: Path) -> Path:
    (path / "doubled.toy").write_text("toy::doubled\nx\nx * 2\n")
    (path / "joined.toy").write_text("toy::joined\nx y\nx + y\n")
    (path / "test_doubled.toy").write_text("toy::untested\nx\nx * 2\n")
    (path / "halved.py").write_text(PYTHON)
    return path


def run(op: str, library: Path, *inputs: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    kind = TensorType(DType.float32, (len(inputs[0]),), DeviceRef.CPU())
    graph = Graph(
        "toy",
        forward=lambda *values: ops.custom(op, device=DeviceRef.CPU(), values=values, out_types=[kind])[0],
        input_types=[kind] * len(inputs),
        custom_extensions=[library],
    )
    return InferenceSession().load(graph)(*inputs)[0].to_numpy()


def test_a_folder_may_hold_files_of_several_languages(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert [file.name for file in sources_in(folder)] == ["doubled.toy", "halved.py", "joined.toy", "test_doubled.toy"]
    assert [file.name for file in kernel_files(folder)] == ["doubled.toy", "halved.py", "joined.toy"]
    assert sorted(load_library(folder).kernels) == ["toy::doubled", "toy::halved", "toy::joined"]
    assert frontend_of(folder / "doubled.toy") is TOY
    x = np.arange(5, dtype=np.float32)
    assert run("toy::doubled", folder, x).tolist() == [0, 2, 4, 6, 8]
    assert run("toy::joined", folder / "joined.toy", x, x).tolist() == [0, 2, 4, 6, 8]
    assert run("toy::halved", folder, x).tolist() == [0, 0.5, 1, 1.5, 2]


def test_a_package_is_built_of_them(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    package = tmp_path / "toy.pkg"
    build_package(str(folder_of(tmp_path / "kernels")), str(package), ["host"])
    assert run("toy::doubled", package, np.ones(3, np.float32)).tolist() == [2, 2, 2]
    library = load_library(package)
    assert sorted(library.kernels) == ["toy::doubled", "toy::halved", "toy::joined"]
    written = load_library(tmp_path / "kernels").kernels["toy::joined"]
    assert library.kernels["toy::joined"].digest == written.digest


def test_mistakes_show_the_text(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toy"
    wrong.write_text("toy::wrong\nx\nx * y\n")
    with pytest.raises(CompileError) as caught:
        load_library(wrong)
    assert "wrong.toy:3:5: error[EK0101]: unknown name 'y'" in str(caught.value) and "3 | x * y" in str(caught.value)


def test_other_files_are_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("toy::notes\nx\nx * 2\n")
    with pytest.raises(EinkornError) as caught:
        load_library(tmp_path / "missing.toy")
    assert "(.py, .toy)" in str(caught.value)
    assert kernel_files(tmp_path) == []
