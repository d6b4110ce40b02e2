"""What editors and people see of kernels: signatures, help, and stubs that a type checker agrees with."""

from __future__ import annotations

import inspect
import pydoc
import shutil
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from einkorn.cli.application import einkorn
from einkorn.dsl.frontend.python.import_file import import_file
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.dsl.frontend.python.type_stubs import write_stubs

KERNELS = textwrap.dedent(
    '''
    from typing import TypeVar
    from einkorn.dsl import *

    T = TypeVar("T", bound=Floating)
    LIMIT = 3

    @register("scaled")
    def scaled(
        out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 2.0, kind: DType = DType.int8
    ) -> None:
        """Multiplies.

        A "quoted" text with a back\\\\slash.
        """
        foreach(out, lambda i: x[i] * by)

    @register("divided")
    def divided(
        q: OutputTensor[int32, "n"], r: OutputTensor[int32, "n"], x: InputTensor[int32, "n"], by: Int32
    ) -> None:
        foreach(q, lambda i: x[i] // by)
        foreach(r, lambda i: x[i] % by)

    @register("lib::bump")
    def bump(x: MutableInputTensor[T, "*s"]) -> None:
        foreach(x, lambda i: x[i] + 1)

    @register("joined")
    def joined(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"], *, count: int) -> None:
        foreach(out, lambda i: xs[0][i])
    '''
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stubs") / "four_kernels.py"
    path.write_text(KERNELS)
    return path


def test_signatures_and_help(file: Path) -> None:
    module = import_file(file, [])
    assert module is not None
    shown = {name: str(inspect.signature(getattr(module, name))) for name in ("scaled", "divided", "bump", "joined")}
    assert shown == {
        "scaled": '(x: T["*s"], /, *, by: float = 2.0, kind: DType = int8, out: T["*s"] | None = None) -> T["*s"]',
        "divided": '(x: int32["n"], by: Int32, /, *, out: (int32["n"], int32["n"]) | None = None)'
        ' -> (int32["n"], int32["n"])',
        "bump": '(x: T["*s"], /) -> None',
        "joined": '(xs: T["n"]..., /, *, count: int, out: T["n"] | None = None) -> T["n"]',
    }
    text = pydoc.plain(pydoc.render_doc(module.scaled))
    for part in (f"scaled{shown['scaled']}", "Multiplies.", "T is one of float32, float64, float16, bfloat16"):
        assert part in text
    assert "x is changed in place." in pydoc.plain(pydoc.render_doc(module.bump))
    assert inspect.getdoc(Kernel) and "kernel" in str(Kernel.__doc__)


USE = """
import numpy as np
import four_kernels as k
from einkorn.graph import Buffer

x = np.ones(3, np.float32)
reveal_type(k.scaled(x, by=1.5))
reveal_type(k.scaled(Buffer.from_numpy(x), out=None))
reveal_type(k.divided(x, 3))
reveal_type(k.divided(x, np.int32(3)))
reveal_type(k.bump(x))
reveal_type(k.joined([x, x], count=2))
reveal_type(k.LIMIT)
k.scaled(x, by="a")
k.scaled("text")
k.scaled(x, x)
k.joined([x])
k.scaled(x=x)
"""


def test_a_checker_agrees_with_a_stub(file: Path, tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    made = CliRunner().invoke(einkorn, ["build", str(file), "-o", str(tmp_path / "four.pkg"), "--stubs"])
    assert made.exit_code == 0, made.output
    stub = file.with_suffix(".pyi")
    assert f"{stub}: " in made.output
    assert write_stubs([file]) == {stub: stub.read_text()}
    for one in (file, stub):
        shutil.copy(one, tmp_path)
    (tmp_path / "use.py").write_text(USE)
    # A stub of the package is enough here: checking all of it takes half a minute.
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    options = ["--strict", "--no-error-summary", "--config-file=", "--no-site-packages"]
    lines, errors, _ = api.run([*options, f"--cache-dir={tmp_path / 'cache'}", str(tmp_path / "use.py")])
    assert not errors
    array, revealed = "ndarray", [line for line in lines.splitlines() if "Revealed type" in line]
    reported = [line.partition("Revealed type is ")[2] for line in revealed]
    assert [array in line for line in reported] == [True, False, True, True, False, True, False], lines
    assert (
        "Buffer" in reported[1]
        and reported[2].startswith('"tuple[')
        and reported[4] == '"None"'
        and reported[6] == '"Any"'
    )
    wrong = [line for line in lines.splitlines() if ": error:" in line]
    assert {line.partition("use.py:")[2].partition(":")[0] for line in wrong} == {*map(str, range(14, 19))}, lines


PACKAGE = {
    "einkorn/__init__.pyi": "",
    "einkorn/dsl/__init__.pyi": "from enum import Enum\nclass DType(Enum):\n    int8 = 1\n",
    "einkorn/dsl/frontend/__init__.pyi": "",
    "einkorn/dsl/frontend/python/__init__.pyi": "",
    "einkorn/dsl/frontend/python/register.pyi": "from typing import Any\nclass Kernel:\n    "
    "def __call__(self, *args: Any, **kwargs: Any) -> Any: ...\n",
    "einkorn/graph/__init__.pyi": "from typing import Any\nclass TensorValue: ...\n"
    "class Buffer:\n    @classmethod\n    def from_numpy(cls, array: Any) -> Buffer: ...\n"
    "    def __dlpack__(self, **keywords: Any) -> Any: ...\n",
    "numpy/__init__.pyi": "from typing import Any\nclass ndarray:\n"
    "    def __dlpack__(self, *, stream: None = None) -> Any: ...\n"
    "class float32: ...\nclass int32:\n    def __init__(self, value: int) -> None: ...\n"
    "    def __float__(self) -> float: ...\ndef ones(shape: int, dtype: type) -> ndarray: ...\n",
}
