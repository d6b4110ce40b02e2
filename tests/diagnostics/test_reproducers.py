"""A fault of the compiler leaves a file behind that shows it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from einkorn.__main__ import run
from einkorn.compiler import pipeline
from einkorn.compiler.inspect import inspect_stage
from einkorn.compiler.reproducer import read_reproducer
from einkorn.dsl.errors import InternalError
from einkorn.dsl.explain import LIBRARY


def test_a_fault_leaves_a_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernels.py").write_text(LIBRARY)
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "emit_module", lambda *_: 1 / 0)
        with pytest.raises(InternalError) as caught:
            inspect_stage("kernels.py", "x86-64-v3", "asm", op="double")
        (file,) = (tmp_path / "cache").glob("einkorn-fault-*.json")
        text = str(caught.value)
        assert "error[EK0901]: the compiler failed with ZeroDivisionError: division by zero" in text
        assert f"einkorn reproduce {file}" in text and "this is a fault of Einkorn" in text
        assert run(["reproduce", str(file)]) == 70
        assert "ZeroDivisionError" in capfd.readouterr().err
    spec, target = read_reproducer(str(file))
    assert target == "x86-64-v3" and spec.groups[0].nodes[0].kernel.schema.name == "double"
    assert run(["reproduce", str(file)]) == 0
    assert "compiles without a fault" in capfd.readouterr().out
    assert run(["reproduce", "kernels.py"]) == 1
    assert "error[EK0907]" in capfd.readouterr().err
