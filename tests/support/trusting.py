"""Small packages for the tests of trust and of versions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from einkorn.compiler.build import build_package

SCALE = """
from einkorn.dsl import *


@register("mine::scale")
def scale(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, by: float = 2.0):
    foreach(out, lambda i: x[i] * by)
"""


def built(name: str, text: str, version: str = "1.0.0", targets: Sequence[str] = ()) -> None:
    """Builds NAME.pkg in the current folder."""
    Path(f"{name}.py").write_text(text)
    build_package(f"{name}.py", f"{name}.pkg", targets, name=name, version=version, include_source=True)
