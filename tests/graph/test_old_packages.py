"""Packages that were built once are read for good: their code runs, their programs are compiled, inspected and rebuilt.

`packages/format-1.0.pkg` was built of two kernels, for x86-64-v2, aarch64 and sm_90; it is never built again.

    @register("frozen::lines")
    def lines(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, slope: float = 2.0):
        foreach(out, lambda i: Line(slope, 1.0).at(x[i]))  # a struct's method: slope * x + 1.0

    @register("frozen::shares")
    def shares(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):  # each row by its sum, which an assert wants > 0
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.cli.application import run as einkorn
from einkorn.compiler.targets import fits
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.dsl.package.container import read_package
from einkorn.graph import ops
from einkorn.graph.engine.model import Model

OLD = Path(__file__).parent / "packages" / "format-1.0.pkg"
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    with graphs.cache_in(tmp_path / "cache"):
        yield


def model(op: str, x: np.ndarray[Any, Any], package: Path = OLD, **parameters: Any) -> Model:
    def forward(value: Any) -> Any:
        types = [graphs.tensor_type(x.dtype, x.shape)]
        return ops.custom(op, device=graphs.HOST, values=[value], out_types=types, parameters=parameters)

    return graphs.load(forward, (x.dtype, x.shape), extensions=package)


def check(package: Path) -> None:
    (lines,) = graphs.results(model("frozen::lines", ROWS[1], package), ROWS[1])
    assert lines.tolist() == (ROWS[1] * 2 + 1).tolist()
    shares = model("frozen::shares", ROWS, package)
    np.testing.assert_allclose(graphs.results(shares, ROWS)[0], ROWS / ROWS.sum(1, keepdims=True), rtol=1e-6)
    with pytest.raises(KernelError, match="a row without a share"):
        shares(np.zeros_like(ROWS))


def test_ready_made_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits("x86-64-v2") or fits("aarch64")
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    check(OLD)


def test_programs_are_compiled() -> None:
    x = ROWS.astype(np.float64)  # the package has no code for it
    np.testing.assert_allclose(graphs.results(model("frozen::shares", x), x)[0], x / x.sum(1, keepdims=True))
    (lines,) = graphs.results(model("frozen::lines", ROWS[0], slope=3.0), ROWS[0])
    assert lines.tolist() == (ROWS[0] * 3 + 1).tolist()


def test_packages_are_shown_checked_and_rebuilt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert einkorn(["pkg", "verify", str(OLD)]) == 0 and "all 9 members match the manifest" in capfd.readouterr().out
    assert einkorn(["pkg", "info", str(OLD)]) == 0 and "format 1.0, ABI 1" in capfd.readouterr().out
    assert einkorn(["inspect", str(OLD), "--op", "frozen::shares", "--target", "gfx942", "--stage", "asm"]) == 0
    assert "amdgcn-amd-amdhsa--gfx942" in capfd.readouterr().out
    rebuilt = tmp_path / "rebuilt.pkg"
    targets = ["--target", "x86-64-v2", "--target", "aarch64", "--target", "sm_90"]
    assert einkorn(["build", str(OLD), "-o", str(rebuilt), *targets]) == 0
    old, new = read_package(OLD), read_package(rebuilt)
    assert [op.schema for op in new.ops] == [op.schema for op in old.ops]
    assert [(v.op, v.instance, v.target, v.kind) for v in new.variants] == [
        (v.op, v.instance, v.target, v.kind) for v in old.variants
    ]
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    check(rebuilt)
