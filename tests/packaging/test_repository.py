"""The files around the code: what they promise is so."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from llvmlite import binding

ROOT = Path(__file__).parents[2]


def test_every_dependency_has_its_reason() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    requested = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {re.match(r"[A-Za-z0-9_.-]+", requirement)[0] for requirement in requested}  # type: ignore[index]
    text = (ROOT / "docs" / "dependencies.md").read_text()
    cells = {word for row in re.findall(r"^\|.*\|$", text, re.M) for word in re.findall(r"[\w.-]+", row)}
    assert names <= cells | {"setuptools"}, f"docs/dependencies.md gives no reason for {sorted(names - cells)}"


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    assert "LLVM Exceptions to the Apache 2.0 License" in text
    assert all(re.search(rf"^ +{number}\. [A-Z]", text, re.M) for number in range(1, 10))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lists_its_targets() -> None:
    done = subprocess.run(["make", "--no-print-directory", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    targets = [
        "help",
        "demo",
        "docs",
        "test",
        "test-long",
        "test-all",
        "test-pythons",
        "callers",
        "test-callers",
        "lint",
        "types",
        "test-foreign",
        "gpu-mutants",
        "test-amd",
        "foreign-tables",
    ]
    targets += [
        "bench",
        "models",
        "models-speed",
        "test-gpu",
        "ops-speed",
        "collectives-speed",
        "gpu-code",
        "c-api-page",
        "export-speed",
    ]
    targets += ["fuzz", "clean"]
    assert [line.split()[1] for line in done.stdout.splitlines()] == targets


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("python", "message"),
    [("", "none was found on PATH"), ("/missing/python3", "/missing/python3 is older or does not run")],
)
def test_make_says_which_python_it_needs(python: str, message: str, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = ["make", "-C", str(tmp_path), f"PYTHON={python}", "test"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "einkorn needs Python 3.11 or newer" in done.stderr and message in done.stderr
    assert not (tmp_path / ".venv").exists()


PIP = """#!/bin/sh
case "$*" in
  *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"-m pip"*) echo "Collecting numpy<3,>=1.26"; echo "  Using it"; echo "Installing collected packages: numpy" ;;
  *demo.py*) echo "the demo" ;;
esac
"""


def test_make_says_what_it_does_while_it_installs(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(PIP)
    python.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-C", str(tmp_path), f"PYTHON={python}", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, env=own)
    shown = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert shown == [
        f"First of all: .venv is made with {python}, and what pyproject.toml names is installed in it.",
        "That takes about a minute (LLVM, MLIR and NumPy are the large ones), and happens once.",
        "  Collecting numpy<3,>=1.26",
        "  Installing them",
        "Installed.",
        "the demo",
    ], done.stdout + done.stderr


def test_the_script_of_the_continuous_integration_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK) and "make test" in script.read_text()


def test_the_photograph_is_the_one_that_is_declared() -> None:
    folder = ROOT / "examples" / "custom_ops" / "data"
    assert hashlib.sha256((folder / "coffee.png").read_bytes()).hexdigest() in (folder / "README.md").read_text()


def test_modules_of_libraries_that_are_not_there_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("torch", "jax", "numba"):
        file = ROOT / "graph" / "public" / name / "__init__.py"
        with pytest.raises(ModuleNotFoundError, match=re.escape(f"einkorn.{name} needs")) as caught:
            exec(compile(file.read_text(), str(file), "exec"), {"__name__": f"einkorn.{name}"})
        assert caught.value.name == name and re.search(f"pip install '?{name}", str(caught.value))


def test_nothing_advises_to_install_a_name_that_no_index_has() -> None:
    """Einkorn is on no index; extras of it are advised by the names of their packages."""
    advice = re.compile(r"pip install [^\n`]*(?<![\w./])einkorn(?! @ git)")
    texts = [
        file
        for suffix in ("py", "md", "ipynb", "toml")
        for file in ROOT.rglob(f"*.{suffix}")
        if not {"build", "dist", "tests"} & set(file.relative_to(ROOT).parts)
        and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
        and file.name != "CHANGELOG.md"
    ]
    assert len(texts) > 500
    wrong = [f"{file}: {each[0]}" for file in texts for each in advice.finditer(file.read_text(encoding="utf-8"))]
    assert not wrong, wrong


def test_the_range_of_llvmlite_is_that_of_one_llvm() -> None:
    """0.48 to 0.50 have LLVM 22.1, whose text the compiler writes."""
    with open(ROOT / "pyproject.toml", "rb") as stream:
        assert "llvmlite>=0.48,<0.51" in tomllib.load(stream)["project"]["dependencies"]
    assert binding.llvm_version_info[:2] == (22, 1)
