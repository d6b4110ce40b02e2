"""`einkorn inspect --why`: what was chosen and why, and rooflines for sizes, of kernels, graphs and built-in ops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.ladder import RUNGS

from einkorn.cli.application import einkorn
from einkorn.graph.profiling.roofline import Roofline

KERNELS = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("scaled")
def scaled(out: OutputTensor[T, "n *s"], x: InputTensor[T, "n *s"], y: InputTensor[T, "n *s"], *, factor: float = 2.0):
    foreach(out, lambda i: x[i] * factor + y[i])


@register("summed")
def summed(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]):
    for i in range(x.dim(0)):
        total = T(0)
        for k in range(x.dim(1)):
            total += x[i, k]
        out[i] = total
"""

GRAPH = """
from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops

types = [TensorType(DType.bfloat16, shape, DeviceRef.GPU()) for shape in (["m", 64], [64, 256])]
layer = Graph("layer", forward=lambda x, w: ops.relu(x @ w), input_types=types)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text(KERNELS)
    (tmp_path / "g.py").write_text(GRAPH)
    (tmp_path / "ahead.py").write_text(RUNGS["ahead"])
    return tmp_path


def why(*arguments: str, fails: str = "") -> str:
    result = CliRunner().invoke(einkorn, ["inspect", *arguments])
    assert (result.exit_code != 0) == bool(fails), result.output + str(result.exception)
    if fails:
        assert getattr(result.exception, "code", "") == fails, result.exception
        return str(result.exception)
    return result.output


def row(text: str, name: str) -> list[str]:
    """The numbers of a launch: moved, least, operations, occupancy, wall, share."""
    (line,) = [each for each in text.splitlines() if each.startswith(f"{name} ")]
    return re.split(r"  +", line)[1:]


def test_products_are_named_with_their_reasons(folder: Path) -> None:
    """The ladder's kernel multiplies on every kind of GPU; what a better row lacks is said at the line of `gpu.dot`."""
    source = str(folder / "ahead.py")
    line = next(k for k, text in enumerate(RUNGS["ahead"].splitlines(), start=1) if "dot(" in text)
    nvidia, amd = (why(source, "--why", "--target", target) for target in ("sm_90a", "gfx942"))
    assert re.search(rf"ahead\.py:{line}: product: mma\.sync\S+: not wgmma\S+, as ", nvidia)
    assert re.search(rf"ahead\.py:{line}: product: mfma\S+: not mfma\S+, as gfx942 has no mfma_16_bytes", amd)
    assert "estimated for H100" in nvidia and "estimated for MI300X" in amd
    assert "a simulated GPU multiplies them one by one" in why(source, "--why", "--target", "sim:sm_90a")


def test_the_roofline_is_that_of_the_sizes(folder: Path) -> None:
    source = str(folder / "k.py")
    wanted = ("--op", "scaled", "--why", "--target", "sm_90a", "--rank", "s=2")
    usual = why(source, *wanted)
    assert "for n = 1024, s_0 = 1024, s_1 = 1024:" in usual
    given = why(source, *wanted, "--size", "n=64", "--size", "s_0=32", "--size", "s_1=128")
    assert "for n = 64, s_0 = 32, s_1 = 128:" in given
    assert row(given, "scaled")[:3] == ["3.15 MB", "3.15 MB", "524 K"]  # three tensors of 262,144 float32
    half = why(source, *wanted, "--dtype", "T=float16", "--size", "n=64", "--size", "s_0=32", "--size", "s_1=128")
    assert row(half, "scaled")[:2] == ["1.57 MB", "1.57 MB"]
    empty = why(source, *wanted, "--size", "n=0")
    assert row(empty, "scaled")[:3] == ["0 B", "0 B", "0"]


def test_graphs_and_built_in_ops(folder: Path) -> None:
    of_graph = why(f"{folder / 'g.py'}:layer", "--why", "--target", "sm_90a", "--size", "m=2048")
    assert "product: wgmma.m64k16.bfloat16" in of_graph and "for m = 2048:" in of_graph
    found = why("ops.add", "--input", "float32[m, 8]", "--input", "float32[m, 8]", "--why", "--target", "gfx1100")
    assert "nothing to choose" in found and row(found, "add")[:2] == ["98.3 KB", "98.3 KB"]
    fixed = why("ops.add", "--input", "float32[64]", "--input", "float32[64]", "--why", "--target", "sm_80")
    assert "for the sizes of its inputs:" in fixed


def test_a_cpu_says_what_became_of_loops(folder: Path) -> None:
    text = why(str(folder / "k.py"), "--op", "summed", "--why", "--target", "x86-64-v3")
    assert re.search(r"k\.py:17: loop: no vectors: floats are added in the order", text) and "estimated" not in text
    with_vectors = why(str(folder / "k.py"), "--op", "scaled", "--why", "--target", "x86-64-v3")
    assert re.search(r"k\.py:10: loop: vectors of \d+ Float32", with_vectors)


def test_a_gpu_without_figures_has_no_roofline(folder: Path) -> None:
    text = why(str(folder / "k.py"), "--op", "scaled", "--why", "--target", "sm_75")
    assert "no roofline: no figures of the device of sm_75 are known" in text


def test_wrong_sizes_are_refused(folder: Path) -> None:
    source = str(folder / "k.py")
    assert "has no axis 'q'" in why(source, "--op", "summed", "--why", "--size", "q=2", fails="EK0607")
    assert "--size" in why(source, "--op", "summed", "--size", "m=2", fails="EK0649")
    graph = f"{folder / 'g.py'}:layer"
    assert "k" in why(graph, "--why", "--target", "sm_90a", "--size", "k=2", fails="EK0478")
    assert "--op" in why(graph, "--why", "--op", "x", fails="EK0649")


def test_a_column_is_as_wide_as_its_names() -> None:
    head, *_ = Roofline.of([], "sm_90a").table().splitlines()
    assert head.startswith("kernel") and "share" in head
