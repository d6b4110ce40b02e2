"""The three ways to install the package, each tried in an environment of its own.

An environment sees the dependencies that are installed here (so that nothing but the build tool is downloaded) and
nothing else of Einkorn. The tree is copied first: an installation leaves its build folders behind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USED = """import einkorn.functional as F
import einkorn.random
from einkorn import jax, numba, torch
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.stdlib import Layout, composition
from einkorn.tensor import Tensor


@register("add_one")
def add_one(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] + 1)


x = Tensor.ones((2, 3))
reveal_type(x + 1)
reveal_type(F.relu(x))
reveal_type(einkorn.random.normal((2,)))
reveal_type(torch.op(add_one))
reveal_type(jax.op(add_one))
reveal_type(numba.function)
reveal_type(add_one)
reveal_type(Layout.row_major((2, 3)))
add_one(x), composition(Layout(8, 1), Layout(2, 4)), Layout(8, 1)(3)
F.no_such_op(x)
"""
REVEALED = [
    "einkorn.graph.eager.tensor.Tensor",
    "einkorn.graph.eager.tensor.Tensor",
    "einkorn.graph.eager.tensor.Tensor",
    "einkorn.graph.interop.torch.op.TorchOp",
    "einkorn.graph.interop.jax.JaxOp",
    "def (kernel: einkorn.dsl.frontend.python.register.Kernel[..., ..., Any] | einkorn.dsl.package.library",
    "einkorn.dsl.frontend.python.register.Kernel",
    "einkorn.stdlib.layout.Layout",
]
LOOK = """
import importlib.metadata, json, pathlib, shutil, sys
import einkorn, einkorn.dsl, einkorn.graph
root = pathlib.Path(einkorn.__file__).parent
print(json.dumps({
    "root": str(root),
    "files": sorted(str(f.relative_to(root)) for f in root.rglob("*") if f.is_file() and "__pycache__" not in f.parts),
    "version": importlib.metadata.version("einkorn"),
    "heavy": [name for name in ("llvmlite", "torch_mlir", "mlir") if name in sys.modules],
}))
"""


def tracked() -> list[str]:
    """The files of the checkout, or of the source distribution that the tests run from."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        return [name for name in listing.stdout.split("\0") if name and not (ROOT / name).is_symlink()]
    skip = {".venv", ".links", "build", "dist", "__pycache__"}
    return [str(file.relative_to(ROOT)) for file in ROOT.rglob("*") if file.is_file() and not skip & set(file.parts)]


def package_files() -> set[str]:
    """What the source distribution must hold: all of the floors, and the root's own modules."""
    floors = ("dsl/", "compiler/", "stdlib/", "graph/", "testing/", "cli/")
    at_root = {"py.typed"} | {name for name in tracked() if "/" not in name and name.endswith(".py")}
    return at_root | {name for name in tracked() if name.startswith(floors) and (ROOT / name).is_file()}


def installed_files() -> set[str]:
    """What the installed package must hold: the same, with the public modules where type checkers look for them."""
    public = "graph/public/"
    return {
        name.removeprefix(public) if name.count("/") > 2 else name for name in package_files() if public in name
    } | {name for name in package_files() if public not in name}


def build_tool_is_here() -> bool:
    """Whether the setuptools that pyproject.toml requests is installed; else pip fetches it for each build."""
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree") / "checkout"
    for name in tracked():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


class Environment:
    """A virtual environment without pip: the pip of this one installs into it."""

    def __init__(self, folder: Path) -> None:
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(folder)
        paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
        self.python = Path(paths["scripts"]) / "python"
        self.scripts = Path(paths["scripts"])
        # A plain path: the `.pth` files in there, this project's editable installation among them, are not followed.
        Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])

    def install(self, *what: str) -> None:
        isolation = ["--no-build-isolation"] if build_tool_is_here() else []
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        command = [*pip, "install", "--no-deps", "--ignore-installed", "--no-compile", *isolation, *what]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command that sees this environment alone."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

    def look(self, cwd: Path) -> dict[str, object]:
        done = self.run(cwd, str(self.python), "-c", LOOK)
        assert done.returncode == 0, done.stderr
        actual: dict[str, object] = json.loads(done.stdout)
        return actual

    def check_command(self, cwd: Path) -> None:
        for command in ([str(self.scripts / "einkorn")], [str(self.python), "-m", "einkorn"]):
            done = self.run(cwd, *command, "--version")
            assert done.returncode == 0 and done.stdout.startswith("einkorn "), done.stderr


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def check_installed(environment: Environment, tmp_path: Path) -> None:
    collected = environment.look(tmp_path)
    assert Path(str(collected["root"])).is_relative_to(tmp_path / "environment")
    assert collected["heavy"] == []
    files = collected["files"]
    assert isinstance(files, list)
    assert set(files) == installed_files()
    environment.check_command(tmp_path)


def test_install_from_the_tree(tree: Path, environment: Environment, tmp_path: Path) -> None:
    environment.install(str(tree))
    check_installed(environment, tmp_path)


def test_install_editable(tree: Path, environment: Environment, tmp_path: Path) -> None:
    environment.install("--editable", str(tree))
    collected = environment.look(tmp_path)
    assert Path(str(collected["root"])) == tree and collected["heavy"] == []
    (tree / "dsl" / "added_now.py").write_text("VALUE = 1\n")
    try:
        assert environment.run(tmp_path, str(environment.python), "-c", "import einkorn.dsl.added_now").returncode == 0
    finally:
        (tree / "dsl" / "added_now.py").unlink()
    environment.check_command(tmp_path)


def test_source_distribution_to_wheel_to_installation(tree: Path, environment: Environment, tmp_path: Path) -> None:
    isolation = ["--no-isolation"] if build_tool_is_here() else []
    command = [sys.executable, "-m", "build", *isolation, "--outdir", str(tmp_path / "dist"), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True)  # makes the sdist, and the wheel from the sdist
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert package_files() | {"LICENSE", "README.md", "pyproject.toml", "Makefile"} <= names
    with zipfile.ZipFile(wheel) as file:
        members = file.namelist()
        (text,) = [file.read(name).decode() for name in members if name.endswith("dist-info/METADATA")]
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in members)
    assert "License-Expression: Apache-2.0 WITH LLVM-exception" in text
    assert {name.partition("/")[0] for name in members if ".dist-info" not in name} == {"einkorn"}
    environment.install(str(wheel))
    check_installed(environment, tmp_path)
    check_types(environment, tmp_path)


def check_types(environment: Environment, tmp_path: Path) -> None:
    """Type checkers find the public modules of what is installed, and know what is in them."""
    (tmp_path / "used.py").write_text(USED)
    options = ["--strict", "--config-file", "", "--cache-dir", os.devnull]
    command = [sys.executable, "-m", "mypy", *options, "--python-executable", str(environment.python), "used.py"]
    said = environment.run(tmp_path, *command).stdout
    revealed = re.findall(r'Revealed type is "(.*)"$', said, re.MULTILINE)
    assert len(revealed) == len(REVEALED), said
    assert all(each.startswith(wanted) for each, wanted in zip(revealed, REVEALED, strict=True)), said
    assert re.findall(r"error: (.*)", said) == ['Module has no attribute "no_such_op"  [attr-defined]'], said
