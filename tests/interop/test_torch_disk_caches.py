"""Caches of `torch.compile` on disk miss programs whose ops have another backward or signature by now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROGRAM = """
import torch, einkorn.torch
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
torch.compiler.config.cache_key_tag = "mine"

@register("tripled")
def tripled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: 3 * x[i])

op = einkorn.torch.op(tripled)
print(torch.compiler.config.cache_key_tag)

@op.backward
def backward(context, gradient):
    return FACTOR * gradient

op(torch.ones(2, requires_grad=True)).sum().backward()
einkorn.torch.op(tripled)
print(torch.compiler.config.cache_key_tag)
"""


def tags(folder: Path, factor: int) -> list[str]:
    file = folder / "tripled.py"
    file.write_text(PROGRAM.replace("FACTOR", str(factor)))
    return subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stdout.split()


def test_an_edited_backward_has_another_tag(tmp_path: Path) -> None:
    first, edited, again = (tags(tmp_path, factor) for factor in (3, 4, 3))
    assert first == again and first[1] != edited[1]
    for tag in (*first, *edited):
        assert tag.startswith("mine;einkorn-") and tag.count("einkorn") == 1
