"""`vectorize`, `tile` and `parallel_chunks`: every element once, in the sizes that are promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile, dtype_name

from einkorn.dsl import DType


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "vectorize_kernels.py")


@pytest.mark.parametrize("n", [0, 1, 7, 8, 29])
@pytest.mark.parametrize("width", [1, 8])
def test_vectorize(kernels: KernelFile, n: int, width: int) -> None:
    x = np.arange(n, dtype=np.int32)
    a, b, widths = kernels("vectorized", x, w=width)
    whole = n - n % width
    assert a.tolist() == (x + 1).tolist() and b.tolist() == (x * 3).tolist()
    assert widths.tolist() == [width] * whole + [1] * (n - whole)


SIZES = [(8, 1), (16, 4, 1), (4, 1), (16, 8), (1,)]  # of the kernel


@pytest.mark.parametrize(("n", "sizes"), list(zip([0, 37, 3, 24, 5], SIZES, strict=True)))
def test_tile(kernels: KernelFile, n: int, sizes: tuple[int, ...]) -> None:
    (got,) = kernels("tiled", np.zeros(n, np.int64), which=SIZES.index(sizes))
    wanted: list[int] = []
    for size in sizes:
        while n - len(wanted) >= size:
            wanted += [size * 1000 + len(wanted)] * size
    assert got.tolist() == wanted


@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=dtype_name)
def test_chunks(kernels: KernelFile, dtype: Any) -> None:
    x = np.arange(1, 101).astype(dtype)
    (got,) = kernels("chunked", x, grain=1000)
    assert got.tolist() == np.cumsum(x).tolist()


def test_within_tasks(kernels: KernelFile) -> None:
    x = np.arange(33, dtype=np.float32).reshape(3, 11)
    assert (kernels("in_tasks", x)[0] == x + 1).all()


def test_the_loop_of_vectors(kernels: KernelFile) -> None:
    text = kernels.compile("scaled", [(DType.float32, (100000,))], target="x86-64-v4").asm
    blocks = re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE)
    body = next(block for block in blocks if re.search(r"vmulps|vaddps", block) and "zmm" in block)
    assert "ss" not in re.findall(r"^\tv(?:mul|add|max)(ss|ps)", body, re.MULTILINE)
    assert "(%rsp)" not in body


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_on_gpus(kernels: KernelFile, target: str) -> None:
    for op, types in (("in_tasks", (64, 100)), ("chunked", (1000,))):
        assert kernels.compile(op, [(DType.float32, types)], target=target).kernels
