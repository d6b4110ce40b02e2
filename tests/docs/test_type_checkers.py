"""What docs/language/index.md says of type checkers: what they accept in kernels, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from einkorn import dsl

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / ".links"), str(ROOT / ".links" / "public")]
PYRIGHT = next(
    (
        found
        for name in ("pyright", "basedpyright")
        if (found := shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"]))))
    ),
    None,
)
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
floor(1, 2)
clampp(1)
"""


USES = Path(__file__).with_name("checked_uses.py")
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
        env={"MYPYPATH": os.pathsep.join(PATHS), "PATH": ""},
        capture_output=True,
        text=True,
    )
    return [[line for line in done.stdout.splitlines() if line.startswith(f"{file}:")] for file in files]


def errors(said: Sequence[str]) -> list[str]:
    return [text for text in said if ": error: " in text]


def test_kernels_and_uses_without_the_plugin(tmp_path: Path) -> None:
    """mypy alone accepts every right use, and finds some mistakes."""
    uses = USES.read_text().partition("# Wrong.")[0]
    texts = [*(KERNEL.format(line=line) for line in LINES), uses, NAMES.format(names=", ".join(dsl.__all__))]
    *kernels, names = checked(texts, tmp_path)
    right, (counter,), (variable,), right_uses = map(errors, kernels)
    assert right == right_uses == []
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
    assert 'Too many arguments for "floor"' in many and '"clampp" is not defined' in unknown


def marked_lines() -> list[int]:
    return [number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# wrong")]


def test_there_are_twenty_right_uses_and_twenty_wrong_ones() -> None:
    right = USES.read_text().partition("# Right.")[2].partition("# Wrong.")[0].strip().splitlines()
    assert len(right) >= 20 and len(marked_lines()) >= 20


# What `make lint` has found of the package counts for a file that is checked with the same options.
SETTINGS = re.compile(r"^\[tool\.mypy\]\n.*?(?=^# .*\n\[tool\.pyright\])", re.DOTALL | re.MULTILINE)
LOOSER = """
[[tool.mypy.overrides]]
module = ["uses"]
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
"""


def test_mypy_finds_each_misuse_and_nothing_else(tmp_path: Path) -> None:
    found = SETTINGS.search((ROOT / "pyproject.toml").read_text())
    assert found is not None
    settings = found[0].replace("$MYPY_CONFIG_FILE_DIR", str(ROOT)).replace('packages = ["einkorn"]\n', "")
    (tmp_path / "pyproject.toml").write_text(settings + LOOSER)
    shutil.copy(USES, tmp_path / "uses.py")
    command = ["-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(ROOT / ".mypy_cache"), "uses.py"]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    actual = {
        int(line.split(":")[1])
        for line in done.stdout.splitlines()
        if line.startswith("uses.py:") and " error: " in line
    }
    assert sorted(actual) == marked_lines(), done.stdout + done.stderr


@pytest.mark.skipif(PYRIGHT is None, reason="Pyright is not installed")
def test_pyright_finds_each_misuse_and_nothing_else(tmp_path: Path) -> None:
    settings = {"typeCheckingMode": "standard", "extraPaths": PATHS, "include": ["uses.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    shutil.copy(USES, tmp_path / "uses.py")
    command = [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    actual = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert sorted({each["range"]["start"]["line"] + 1 for each in actual}) == marked_lines(), done.stdout
