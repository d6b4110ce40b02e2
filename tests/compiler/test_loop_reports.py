"""What is said of loops agrees with the code: vectors of the width that the assembly has, or the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.inner_loops import innermost_loops

from einkorn.compiler.explorer.loop_reports import loop_reports
from einkorn.compiler.explorer.stage import choose_instance
from einkorn.compiler.instances import instance_entry
from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import lookup

KERNELS = """from typing import TypeVar

from einkorn.dsl import *

T = TypeVar("T", bound=Floating)


@register("mine::scaled")
def scaled(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * 2)  # here


@register("mine::total")
def total(out: OutputTensor[T, "1"], x: InputTensor[T, "n"]):
    s = T(0)
    for k in range(x.dim(0)):  # here
        s += x[k]
    out[0] = s


@register("mine::freed", fastmath={"reassoc"})
def freed(out: OutputTensor[T, "1"], x: InputTensor[T, "n"]):
    s = T(0)
    for k in range(x.dim(0)):  # here
        s += x[k]
    out[0] = s
"""
LANES = {("x86-64-v3", "float32"): 8, ("x86-64-v3", "float64"): 4, ("x86-64-v2", "float32"): 4}


def reports(op: str, target: str, dtype: str, folder: Path) -> tuple[dict[int, str], str]:
    (folder / "kernels.py").write_text(KERNELS)
    kernel, instance = choose_instance("kernels.py", op=op, dtypes={"T": dtype})
    artifact = compile_entry(instance_entry(kernel.portable, instance), lookup(target))
    return {line: text for (_, line), text in loop_reports(artifact).items()}, artifact.asm


def line_of(op: str) -> int:
    lines = KERNELS.splitlines()
    start = next(k for k, text in enumerate(lines) if f'"mine::{op}"' in text)
    return next(k for k in range(start, len(lines)) if lines[k].endswith("# here")) + 1


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("target", "dtype"), list(LANES))
@pytest.mark.parametrize("op", ["scaled", "freed"])
def test_a_loop_in_vectors_is_reported_with_its_width(op: str, target: str, dtype: str, folder: Path) -> None:
    actual, assembly = reports(op, target, dtype, folder)
    name = dtype.capitalize()
    assert actual[line_of(op)].startswith(f"vectors of {LANES[target, dtype]} {name}")
    assert any(loop.packed for loop in innermost_loops(assembly))


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 8), ("float64", 4)])
def test_masks_and_places_are_not_reported_as_numbers(dtype: str, lanes: int, folder: Path) -> None:
    actual, _ = reports("scaled", "x86-64-v4", dtype, folder)  # of the rest under a mask, whose places are Int64
    assert actual[line_of("scaled")].startswith(f"vectors of {lanes} {dtype.capitalize()}")


def test_a_sum_in_order_is_reported_with_its_reason(folder: Path) -> None:
    actual, assembly = reports("total", "x86-64-v3", "float32", folder)
    assert actual == {line_of("total"): actual[line_of("total")]}
    assert actual[line_of("total")].startswith("no vectors: floats are added in the order that is written")
    assert not any(loop.packed for loop in innermost_loops(assembly))


def test_threads_of_a_gpu_are_no_loops(folder: Path) -> None:
    assert reports("scaled", "sm_90a", "float32", folder)[0] == {}
