"""Which kernels compute each element of the elements at its place, by their text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from einkorn.dsl.package.library import loaded_kernel

KERNELS = '''
from typing import TypeVar

from einkorn.dsl import *

F = TypeVar("F", bound=Floating)
FACTOR = 2.0
Out = OutputTensor[F, "*s"]
In = InputTensor[F, "*s"]


def twice(value):
    return value * FACTOR


@register("maps_by_lambda")
def maps_by_lambda(out: Out, x: In, y: In):
    """The sum of twice x and y."""
    foreach(out, lambda i: twice(x[i]) + y[i])


@register("maps_by_function")
def maps_by_function(out: Out, x: In, scale: F, *, steps: int = 2):
    static_assert(steps > 0, "steps")
    start = F(1)

    def element(i):
        total = start
        for k in range(steps):
            total += x[i] * scale
        if x.dtype == float32:
            total += 1
        return total

    foreach(out, element)


@register("computes_with_the_index")
def computes_with_the_index(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i] + F(i))


@register("reads_the_next_one")
def reads_the_next_one(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i] + x[n - 1 - i])


@register("computes_with_sizes")
def computes_with_sizes(out: Out, x: In):
    foreach(out, lambda i: x[i] / F(x.size))


@register("depends_on_the_rank")
def depends_on_the_rank(out: Out, x: In):
    if x.rank > 1:
        foreach(out, lambda i: x[i])
    else:
        foreach(out, lambda i: -x[i])


@register("reads_its_output")
def reads_its_output(out: Out, x: In):
    out.fill(1)
    foreach(out, lambda i: x[i] + out[i])


@register("loops_twice")
def loops_twice(out: Out, x: In):
    foreach(out, lambda i: x[i])
    foreach(out, lambda i: x[i] + 1)


@register("passes_a_tensor")
def passes_a_tensor(out: Out, x: In):
    def at(t, i):
        return t[i]

    foreach(out, lambda i: at(x, i))


@register("hides_a_tensor")
def hides_a_tensor(out: Out, x: In, y: In):
    def element(i):
        def inner(x):
            return x
        return inner(y[i]) + x[i]

    foreach(out, element)


@register("of_two_shapes")
def of_two_shapes(out: Out, x: In, y: InputTensor[F, "1"]):
    foreach(out, lambda i: x[i] + y[0])
'''
MAPS = ("maps_by_lambda", "maps_by_function")
OTHERS = (
    "computes_with_the_index",
    "reads_the_next_one",
    "computes_with_sizes",
    "depends_on_the_rank",
    "reads_its_output",
    "loops_twice",
    "passes_a_tensor",
    "hides_a_tensor",
    "of_two_shapes",
)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "element_map_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("element_map_kernels")


@pytest.mark.parametrize("name", MAPS)
def test_maps(kernels: ModuleType, name: str) -> None:
    assert loaded_kernel(getattr(kernels, name)).portable.maps_elements


@pytest.mark.parametrize("name", OTHERS)
def test_others(kernels: ModuleType, name: str) -> None:
    assert not loaded_kernel(getattr(kernels, name)).portable.maps_elements
