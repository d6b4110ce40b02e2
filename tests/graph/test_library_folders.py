"""What is run when a folder of kernels is loaded: the files that register kernels, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError, PackageError
from einkorn.dsl.package.library import kernel_files, load_library
from einkorn.graph import DeviceRef, ops

KERNEL = """
def {name}(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    foreach(out, lambda i: x[i] * 2.0)
"""
DSL = "from einkorn.dsl import InputTensor, OutputTensor, float32, foreach\n"
RUNS = "raise RuntimeError('this file was run')\n"

# Ways to register a kernel, each a file that does it.
REGISTERING = {
    "plain": DSL + "from einkorn.dsl import register\n@register('plain')" + KERNEL,
    "star": "from einkorn.dsl import *\n@register('star')" + KERNEL,
    "renamed": DSL + "from einkorn.dsl import register as op\n@op('renamed', fuse=False)" + KERNEL,
    "module": DSL + "import einkorn.dsl as ek\n@ek.register('module')" + KERNEL,
    "whole": DSL + "import einkorn.dsl\n@einkorn.dsl.register('whole')" + KERNEL,
    "member": DSL + "from einkorn import dsl\n@dsl.register('member')" + KERNEL,
    "branch": DSL + "import os\nif os.sep:\n    from einkorn.dsl import register\n    @register('branch')"
    + KERNEL.replace("\n", "\n    "),
    "attempt": DSL + "try:\n    from einkorn.dsl import register\n"
    "except ImportError:\n    raise\nelse:\n    @register('attempt')"
    + KERNEL.replace("\n", "\n    "),
    "called": DSL + "from einkorn.dsl import register" + KERNEL + "called = register('called')({name})\n",
    "alias": DSL + "from einkorn.dsl import register\nmine = register\n@mine('alias')" + KERNEL,
    "partial": DSL + "from functools import partial\nfrom einkorn.dsl import register\n"
    "mine = partial(register, fuse=False)\n@mine('partial')" + KERNEL,
    "own": DSL + "from einkorn.dsl import register\n"
    "def op(name):\n    return register('mine::' + name)\n@op('own')" + KERNEL,
    "neighbour": DSL + "from shared import op\n@op('neighbour')" + KERNEL,
    "neighbours": DSL + "from shared import *\n@op('neighbours')" + KERNEL,
    "through": DSL + "import shared\n@shared.op('through')" + KERNEL,
    "loop": DSL + "from einkorn.dsl import register" + KERNEL
    + "for name in ('loop',):\n    loop = register(name)({name})\n",
}  # fmt: skip
SHARED = "from einkorn.dsl import register\n\n\ndef op(name):\n    return register(name)\n"

# Files that lie next to kernels and are not run.
NEXT_TO = {
    "script.py": "import sys\n" + RUNS,
    "uses.py": "from einkorn.graph import Graph\n" + RUNS,
    "other_register.py": "import atexit\natexit.register(print)\n" + RUNS,
    "guarded.py": "if __name__ == '__main__':\n    from einkorn.dsl import register\n    register('x')\n" + RUNS,
    "within.py": "def later():\n    from einkorn.dsl import register\n    register('x')\n" + RUNS,
    "broken.py": "def broken(:\n",
    "bytes.py": b"name = '\xff\xfe'\n",
    "test_kernels.py": "from einkorn.dsl import register\n" + RUNS + "@register('x')\ndef x(): pass\n",
    "kernels_test.py": "from einkorn.dsl import register\n" + RUNS + "@register('x')\ndef x(): pass\n",
    "conftest.py": "from einkorn.dsl import register\n" + RUNS + "@register('x')\ndef x(): pass\n",
    ".hidden.py": "from einkorn.dsl import register\n" + RUNS + "@register('x')\ndef x(): pass\n",
    "flask_like.py": "class App:\n    def register(self, f):\n        return f\n"
    "app = App()\n@app.register\ndef f(): pass\n" + RUNS,
}  # fmt: skip


def folder_with(folder: Path, files: dict[str, Any]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def ops_of(folder: Path) -> list[str]:
    return sorted(name.removeprefix("mine::") for name in load_library(folder).kernels)


def test_every_way_to_register_is_seen(tmp_path: Path) -> None:
    files = {f"{way}.py": text.replace("{name}", f"k_{way}") for way, text in REGISTERING.items()}
    folder = folder_with(tmp_path, {**files, "shared.py": SHARED})
    assert ops_of(folder) == sorted(REGISTERING)
    assert [file.name for file in kernel_files(folder)] == sorted(files)


@pytest.mark.parametrize("way", REGISTERING)
def test_each_way_alone(tmp_path: Path, way: str) -> None:
    text = REGISTERING[way].replace("{name}", f"k_{way}")
    folder = folder_with(tmp_path, {"kernels.py": text, "shared.py": SHARED, **NEXT_TO})
    assert ops_of(folder) == [way]


def test_only_links_and_folders_of_kernels_count(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "kernels", {"a.py": REGISTERING["plain"].replace("{name}", "a")})
    outside = folder_with(tmp_path / "outside", {"b.py": REGISTERING["star"].replace("{name}", "b"), "c.py": RUNS})
    (folder / "b.py").symlink_to(outside / "b.py")
    (folder / "c.py").symlink_to(outside / "c.py")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "__pycache__").mkdir()
    folder_with(folder / "__pycache__", {"d.py": RUNS + "from einkorn.dsl import register\n"})
    folder_with(folder / "below", {"e.py": RUNS + "from einkorn.dsl import register\n"})
    (folder / "loop.py").unlink()
    assert ops_of(folder) == ["plain", "star"]


def test_a_package_with_relative_imports(tmp_path: Path) -> None:
    files = {
        "__init__.py": "TWO = 2.0\n",
        "common.py": "from einkorn.dsl import register as op\n",
        "a.py": DSL + "from .common import op\nfrom . import TWO\n@op('a')" + KERNEL.replace("{name}", "a"),
        "b.py": DSL + "from . import common\n@common.op('b')" + KERNEL.replace("{name}", "b"),
        "c.py": DSL + "from kernels.common import op\n@op('c')" + KERNEL.replace("{name}", "c"),
        "deep/__init__.py": "",
        "script.py": "from .common import op\n" + RUNS,
    }
    assert ops_of(folder_with(tmp_path / "kernels", files)) == ["a", "b", "c"]


def test_a_broken_kernel_file_is_reported(tmp_path: Path) -> None:
    good = {"good.py": REGISTERING["plain"].replace("{name}", "good"), "script.py": "def broken(:\n"}
    folder = folder_with(tmp_path, {**good, "bad.py": DSL + "from einkorn.dsl import register\n@register('bad'\n"})
    with pytest.raises(EinkornError) as caught:
        load_library(folder)
    assert caught.value.code == "EK0100" and "bad.py" in str(caught.value) and "script.py" not in str(caught.value)


def test_a_folder_that_registers_nothing_says_what_it_left_out(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {k: v for k, v in NEXT_TO.items() if k not in ("broken.py", "bytes.py")})
    with pytest.raises(PackageError) as caught:
        load_library(folder)
    assert caught.value.code == "EK0502" and "conftest.py, kernels_test.py, test_kernels.py" in str(caught.value)
    with pytest.raises(EinkornError) as broken:  # what cannot be read may have been meant
        load_library(folder_with(tmp_path, {"broken.py": NEXT_TO["broken.py"]}))
    assert broken.value.code == "EK0100"
    with pytest.raises(EinkornError, match="this file was run"):  # code that names a file means it
        load_library(folder / "test_kernels.py")


# *** programs that name themselves ***

PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

print("run as", __name__)


@register("doubled")
def doubled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    foreach(out, lambda i: x[i] * 2.0)


def main():
    kind = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    graph = Graph("g", forward=lambda x: ops.custom("doubled", device=DeviceRef.CPU(), values=[x])[0],
                  input_types=[kind], custom_extensions=[WHERE])
    print(InferenceSession().load(graph)(np.ones(2, np.float32))[0].to_numpy().tolist())


main()
"""


@pytest.mark.parametrize("where", ["__file__", "Path(__file__).parent", "str(Path(__file__))", "sys.argv[0]"])
def test_a_program_that_names_itself_is_not_run_again(tmp_path: Path, where: str) -> None:
    import subprocess

    folder_with(tmp_path, {"program.py": PROGRAM.replace("WHERE", where), "other.py": RUNS})
    for command in (["program.py"], ["-m", "program"]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("run as __main__\n[2.0, 2.0]\n", 0), done.stderr


def test_a_module_that_names_itself_while_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_with(tmp_path, {"itself_named.py": PROGRAM.replace("WHERE", "__file__")})
    monkeypatch.syspath_prepend(str(tmp_path))
    with graphs.cache_in(tmp_path / "cache"):
        import itself_named  # type: ignore[import-not-found]

        assert capsys.readouterr().out == "run as itself_named\n[2.0, 2.0]\n"
        # Loaded as a library, it is a module of its own, which names itself as well.
        library = tmp_path / "itself_named.py"
        model = graphs.load(
            lambda x: ops.custom("doubled", device=DeviceRef.CPU(), values=[x]), (np.float32, ["n"]), extensions=library
        )
        assert model(np.ones(2, np.float32))[0].to_numpy().tolist() == [2.0, 2.0]
        assert capsys.readouterr().out == "run as itself_named\n[2.0, 2.0]\n"
    assert sys.modules["itself_named"] is itself_named
