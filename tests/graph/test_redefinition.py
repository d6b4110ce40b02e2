"""Kernels that are defined again, as in cells: what was made with the older one keeps it, and places are new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

HEAD = "from einkorn.dsl import *\n"
KERNEL = """def positive(v):
    assert v > 0.0, "not positive"
    return v

@register("again")
def again(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: positive(x[i]) * {factor})
"""
ONES = np.ones(2, np.float32)


def graph_of(kernel: Any) -> Graph:
    return Graph("again", forward=lambda x: kernel(x), input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())])


def result(graph: Graph) -> list[float]:
    actual: list[float] = InferenceSession().load(graph)(ONES)[0].to_numpy().tolist()
    return actual


def test_graphs_and_models_keep_the_kernel_they_were_made_with() -> None:
    names: dict[str, Any] = {"__name__": "a notebook"}
    kernels_of(HEAD + KERNEL.format(factor=2.0), names=names)
    older, model = graph_of(names["again"]), InferenceSession().load(graph_of(names["again"]))
    taken = names["again"]
    kernels_of(KERNEL.format(factor=3.0), names=names)
    assert result(graph_of(names["again"])) == [3.0, 3.0]
    assert result(older) == [2.0, 2.0] == model(ONES)[0].to_numpy().tolist()
    assert taken(ONES).tolist() == [2.0, 2.0] and names["again"](ONES).tolist() == [3.0, 3.0]


def test_a_failure_names_the_cell_that_has_the_kernel_now(tmp_path: Path) -> None:
    """The code of the first is taken from the cache for the second, whose text stands elsewhere, and moved."""
    with graphs.cache_in(tmp_path / "cache"):
        reported = []
        for cell, before in (("<cell 1>", ""), ("<cell 2>", "\n\n# moved\n")):
            text = HEAD + before + KERNEL.format(factor=2.0)
            kernel = kernels_of(text, name=cell)["again"]
            with pytest.raises(KernelError) as caught:
                kernel(-ONES)
            assert caught.value.place is not None and caught.value.place.file == cell
            line = text.splitlines()[caught.value.place.line - 1]
            reported.append((line.strip(), str(caught.value).count("<cell 1>"), str(caught.value).count("<cell 2>")))
    assert [line for line, *_ in reported] == ['assert v > 0.0, "not positive"'] * 2
    assert reported[0][2] == 0 and reported[1][1] == 0  # nothing of the other cell, in notes either


def test_structs_and_classes_and_closures_of_texts() -> None:
    text = """
from typing import TypeVar
from einkorn.dsl import *
T = TypeVar("T", bound=Floating)


@struct
class Line:
    slope: Float32
    offset: Float32 = 1.0

    def at(self, v):
        return self.slope * v + self.offset


@register("lines")
class Lines:
    @staticmethod
    def execute(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
        foreach(out, lambda i: Line(2.0).at(x[i]))


def make(power):
    @register(f"power_{power}")
    def made(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        def one(i):
            v = x[i]
            for _ in range(power - 1):
                v *= x[i]
            out[i] = v

        parallel_for(out.dim(0), one)

    return made


square, cube = make(2), make(3)
"""
    kernels = kernels_of(text)
    assert list(kernels) == ["lines", "power_2", "power_3"]
    x = np.array([1, 2, 3], np.float32)
    assert kernels["lines"](x).tolist() == [3, 5, 7]
    assert kernels["power_2"](x).tolist() == [1, 4, 9] and kernels["power_3"](x).tolist() == [1, 8, 27]
