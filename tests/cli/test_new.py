"""`einkorn new`: what it makes runs, is checked, builds, and is neat; nothing is overwritten or left half made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from einkorn.cli import application as cli
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.skeleton import make_skeleton


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("new")
    command = [sys.executable, "-m", "einkorn", "new", "my_ops", "--into", str(parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files = sorted(str(p.relative_to(parent)) for p in parent.rglob("*") if p.is_file())
    assert sorted(done.stdout.split("\n\n")[0].split("\n")) == [str(parent / file) for file in files]
    assert "my_ops/kernels/my_ops.py" in files and "my_ops/tests/test_my_ops.py" in files
    return parent / "my_ops"


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(folder.parent / "cache")}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_commands_do_what_its_readme_says(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "[ 5.  7.  9. 11.]]" in run(library, "example.py")
    assert "2 passed" in run(library, "-m", "pytest", "-p", "no:cacheprovider")
    monkeypatch.chdir(library)
    commands = {
        "check kernels/": "",
        "build kernels/ -o my_ops.pkg": "my_ops::scaled_add",
        "doc kernels/": "Computes `scale * x + y`",
    }
    for command, shown in commands.items():
        assert cli.run(command.split()) == 0
        assert shown in capsys.readouterr().out


def test_its_folder_is_a_library(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(library.parent)
    assert cli.run(["check", "my_ops"]) == 0
    assert capsys.readouterr().out == "1 file, 1 kernel, 7 instances: no errors\n"
    assert cli.run(["check", "."]) == 1  # the folder above is none
    assert "no kernels are registered in '.'" in capsys.readouterr().out


def test_it_is_neat(library: Path) -> None:
    run(library, "-m", "ruff", "check", "--no-cache", ".")
    run(library, "-m", "ruff", "format", "--no-cache", "--check", ".")


def test_nothing_is_overwritten_or_left_half_made(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name, text in (("mine", "is there already"), ("My-ops", "is not a name"), ("", "is not a name")):
        with pytest.raises(PackageError, match=text) as caught:
            make_skeleton(name, tmp_path)
        assert caught.value.code == "EK0516"
    with pytest.raises(PackageError, match="cannot be made: No such file or directory"):
        make_skeleton("fresh", tmp_path / "missing")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
