"""What docs/language/index.md says of type checkers: what they accept in kernels, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, Int, OutputTensor, float32, foreach, register
from einkorn.stdlib import *

T = TypeVar("T", bound=Floating)


@register("op")
def op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]) -> None:
    for j in range(x.dim(0)):
        {line}
    if x.dtype.is_integral():
        foreach(out, lambda i: x[i] + 1)
    out[0] = reduce(x, Sum)
"""


def errors(line: str, folder: Path) -> list[str]:
    (folder / "kernels.py").write_text(KERNEL.format(line=line))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", str(folder / "cache"), "kernels.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / ".links"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    return [text for text in done.stdout.splitlines() if ": error: " in text]


def test_kernels_as_a_type_checker_sees_them(tmp_path: Path) -> None:
    assert errors("out[j] = x[j] + Int(j).cast(x.dtype)", tmp_path) == []
    (counter,) = errors("out[j] = x[j] + j.cast(x.dtype)", tmp_path)
    assert 'has no attribute "cast"' in counter
    (variable,) = errors("out[j] = x[j] + Int(j).cast(T)", tmp_path)
    assert "type variable" in variable and "[misc]" in variable
