"""A fault of the compiler leaves a file behind that shows it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from einkorn.__main__ import run
from einkorn.compiler import pipeline
from einkorn.compiler.explorer.stage import inspect_stage
from einkorn.compiler.reproducer import read_reproducer
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.diagnostics.explain import LIBRARY


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


DYING = """
import os
from einkorn.compiler import pipeline
from einkorn.compiler.explorer.stage import inspect_stage
if "die" in os.environ:
    pipeline.llvm.compile_module = lambda *_, **__: os.abort()
inspect_stage("kernels.py", "x86-64-v3", "asm", op="double")
"""


def test_a_process_that_dies_of_llvm_leaves_a_reproducer(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(LIBRARY)
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path / "cache")}

    def child(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", DYING]
        return subprocess.run(command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True)

    assert child(die="1").returncode == -signal.SIGABRT
    told = child()
    assert told.returncode == 0
    (file,) = (tmp_path / "cache").glob("einkorn-fault-*.json")
    assert "ended while LLVM or MLIR compiled double; if nobody ended it, this is a fault of Einkorn" in told.stderr
    assert f"`einkorn reproduce {file}` runs it again" in told.stderr
    spec, target = read_reproducer(str(file))
    assert target == "x86-64-v3" and spec.groups[0].nodes[0].kernel.schema.name == "double"
    assert child().stderr == "" and not list((tmp_path / "cache").glob("einkorn-compiles-*"))
