"""What docs/language/index.md says of type checkers: what they accept in kernels, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from einkorn import dsl

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


NAMES = """from einkorn.dsl import *
from einkorn.dsl import {names}

reveal_type(frexp)
reveal_type(compiled_for())
reveal_type(min(1, 2, 3))
reveal_type(gpu.thread_idx)
atomic.add(1, 2)
exp(1, 2)
clampp(1)
"""


LINES = (
    "out[j] = x[j] + Int(j).cast(x.dtype)",
    "out[j] = x[j] + j.cast(x.dtype)",
    "out[j] = x[j] + Int(j).cast(T)",
)


def checked(texts: Sequence[str], folder: Path) -> list[list[str]]:
    """What mypy says of each of some files, all at once, without a configuration."""
    files = [f"kernels_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        (folder / file).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", os.devnull, *files],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / ".links"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    return [[line for line in done.stdout.splitlines() if line.startswith(f"{file}:")] for file in files]


def errors(said: Sequence[str]) -> list[str]:
    return [text for text in said if ": error: " in text]


def test_kernels_as_a_type_checker_sees_them(tmp_path: Path) -> None:
    texts = [*(KERNEL.format(line=line) for line in LINES), NAMES.format(names=", ".join(dsl.__all__))]
    *kernels, names = checked(texts, tmp_path)
    right, (counter,), (variable,) = map(errors, kernels)
    assert right == []
    assert 'has no attribute "cast"' in counter
    assert "type variable" in variable and "[misc]" in variable
    said = [text.partition(": ")[2] for text in names if ": note: Revealed type is " in text]
    assert [text.partition("Revealed type is ")[2] for text in said] == [
        '"def (x: Any) -> tuple[Any, Any]"',
        '"einkorn.dsl.language.annotations.Target"',
        '"Any"',
        '"einkorn.dsl.language.gpu.Axes"',
    ]
    few, many, unknown = errors(names)
    assert 'Missing positional argument "value" in call to "add"' in few
    assert 'Too many arguments for "exp"' in many and '"clampp" is not defined' in unknown
