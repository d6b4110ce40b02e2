"""A library of kernels becomes a package, which is used elsewhere from NumPy."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import einkorn

KERNELS = """
from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)


@register("silu")
def silu(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


@register("scale")
def scale(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 2.0):
    foreach(out, lambda i: x[i] * by)
"""


def main():
    Path("activations.py").write_text(KERNELS)
    build = ["build", "activations.py", "-o", "activations.pkg", "--target", "x86-64-v3"]
    subprocess.run([sys.executable, "-m", "einkorn", *build], check=True, capture_output=True)
    activations = einkorn.load("activations.pkg")
    x = np.linspace(-3, 3, 24).reshape(4, 6)
    yield activations.silu(x), x / (1 + np.exp(-x))
    yield activations.scale(x, by=0.5), x * 0.5
    yield activations.scale(x.T.astype(np.float32)), x.T.astype(np.float32) * 2
