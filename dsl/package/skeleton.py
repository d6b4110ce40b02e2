"""Writes what `einkorn new` gives: a folder with a kernel, its reference and test, an example and a README."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from string import Template

from ..diagnostics.errors import PackageError
from ..diagnostics.shield import raise_if_of_handler

KERNEL = '''"""Kernels of the library `$name`."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("$name::scaled_add")
def scaled_add(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"], *, scale: float = 1.0):
    """Computes `scale * x + y`, element by element."""
    foreach(out, lambda i: x[i] * scale + y[i])


@scaled_add.reference
def scaled_add_reference(x, y, *, scale):
    """What the op computes, in NumPy; `check_op` compares with it."""
    return x * x.dtype.type(scale) + y
'''

TEST = '''"""Each op against its reference: dtypes, odd and empty sizes, several ranks, strides, special values."""

from pathlib import Path

import pytest
from einkorn.testing import check_op

KERNELS = Path(__file__).parents[1] / "kernels"


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_scaled_add(scale, tmp_path):
    check_op("$name::scaled_add", KERNELS, parameters={"scale": scale}, folder=tmp_path)
'''

EXAMPLE = '''"""The op in a graph, next to built-in ones."""

from pathlib import Path

import numpy as np
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNELS = Path(__file__).parent / "kernels"


def forward(x, y):
    added = ops.custom("$name::scaled_add", device=DeviceRef.CPU(), values=[x, y], parameters={"scale": 2.0})[0]
    return ops.relu(added)


kind = TensorType(DType.float32, ["rows", 4], DeviceRef.CPU())
graph = Graph("example", forward=forward, input_types=[kind, kind], custom_extensions=[KERNELS])
model = InferenceSession(devices=[CPU()]).load(graph)

x = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
print(model(x, np.ones_like(x))[0].to_numpy())
'''

README = """# $name

Kernels for Einkorn: written once, compiled for CPUs and GPUs. With the Python of an environment that has Einkorn and
pytest:

    python example.py                     # the op in a graph
    python -m pytest                      # the op against its reference
    python -m einkorn check kernels/      # mistakes, without building
    python -m einkorn build kernels/ -o $name.pkg --target host
    python -m einkorn doc kernels/        # the reference of the ops
    python -m mypy .                      # calls of kernels with arguments that they do not take

mypy reads the setting of `pyproject.toml`; Pyright needs none.

| file | what it is |
|---|---|
| `kernels/$name.py` | the op, and what it computes in NumPy |
| `tests/test_$name.py` | its test: the cases come from its signature |
| `example.py` | how a graph uses it |
"""

PYPROJECT = """[tool.pytest.ini_options]
testpaths = ["tests"]

[tool.mypy]
plugins = ["einkorn.mypy"]

[tool.ruff]
line-length = 120

# In kernels the text of `InputTensor[T, "m n"]` is not a forward reference.
[tool.ruff.lint.per-file-ignores]
"kernels/*" = ["F722", "F821", "UP037"]
"""

FILES = {
    "kernels/$name.py": KERNEL,
    "tests/test_$name.py": TEST,
    "example.py": EXAMPLE,
    "README.md": README,
    "pyproject.toml": PYPROJECT,
    ".gitignore": "*.pkg\n__pycache__/\n",
}

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def make_skeleton(name: str, parent: Path) -> list[Path]:
    """Makes the folder `parent/name` and gives its files in order.

    Raises:
        PackageError: EK0516 the name is not valid for a library, the folder is there already, or it cannot be made.
    """
    if not _NAME.fullmatch(name) or name == "einkorn":
        raise PackageError(
            f"'{name}' is not a name for a kernel library",
            code="EK0516",
            got=name,
            hint="small letters, digits and underscores, a letter first: it becomes the namespace of the ops",
        )
    folder = parent / name
    if folder.exists():
        raise PackageError(f"'{folder}' is there already, and nothing was changed", code="EK0516", got=str(folder))
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            written = [_write(work, path, text, name) for path, text in FILES.items()]
            work.chmod(0o777 & ~_umask())
            os.rename(work, folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    except OSError as error:
        raise_if_of_handler(error)
        raise PackageError(f"'{folder}' cannot be made: {error.strerror or error}", code="EK0516") from None
    return [folder / path.relative_to(work) for path in written]


def _write(work: Path, path: str, text: str, name: str) -> Path:
    file = work / Template(path).substitute(name=name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(Template(text).substitute(name=name), encoding="utf-8")
    return file


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
