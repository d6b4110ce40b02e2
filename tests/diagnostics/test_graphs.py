"""Mistakes in graphs, at calls, and what kernels say when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError

KERNELS = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)


@register("scale")
def scale(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, by: float, deep: bool = False):
    foreach(out, lambda i: x[i] * by)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("halves")
def halves(out: OutputTensor[float32, "n"], x: InputTensor[float32, "(n * 2)"], y: InputTensor[float32, "n"]):
    foreach(out, lambda i: y[i])


@register("checked")
def checked(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def one(i):
        if x[i] > 100:
            raise ValueError("too large")
        assert x[i] > 0, f"x is {x[i]:.2f} at {i[0]}"
        return sqrt(x[i])

    foreach(out, one)


@register("spoken")
def spoken(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    print("n is", x.dim(0), sep=": ")
    print(f"first {x[0]:.3f}", end="!\\n")
    foreach(out, lambda i: x[i])
"""

GRAPH = """from einkorn.graph import *
from einkorn.graph import ops

cpu = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, cpu)


def graph(forward, *types):
    return Graph("model", forward=forward, input_types=types, custom_extensions=["kernels.py"])


"""

STAGING = {
    "op_unknown": "graph(lambda x: ops.custom('scael', cpu, [x]), f32('n'))",
    "op_without_extensions": "Graph('model', forward=lambda x: ops.custom('add', cpu, [x]), input_types=[f32('n')])",
    "parameter_missing": "graph(lambda x: ops.custom('scale', cpu, [x]), f32('n'))",
    "parameter_unknown": "graph(lambda x: ops.custom('scale', cpu, [x], parameters={'bye': 2.0}), f32('n'))",
    "parameter_type": "graph(lambda x: ops.custom('scale', cpu, [x], parameters={'by': 'two'}), f32('n'))",
    "values_too_few": "graph(lambda x: ops.custom('add', cpu, [x]), f32('n'))",
    "dims_contradict": "graph(lambda x, y: ops.custom('add', cpu, [x, y]), f32(3), f32(4))",
    "dims_of_other_names": "graph(lambda x, y: ops.custom('add', cpu, [x, y]), f32('n'), f32('m'))",
    "dims_computed": "graph(lambda x, y: ops.custom('halves', cpu, [x, y]), f32(5), f32(2))",
    "rank": "graph(lambda x, y: ops.custom('add', cpu, [x, y]), f32(3, 4), f32(3, 4))",
    "dtypes_contradict": (
        "graph(lambda x, y: ops.custom('add', cpu, [x, y]), f32('n'), TensorType(DType.float64, ['n'], cpu))"
    ),
    "dtype_refused": "graph(lambda x: ops.custom('add', cpu, [x, x]), TensorType(DType.int32, ['n'], cpu))",
    "extension_missing": "Graph('model', custom_extensions=['kernel'])",
}


@pytest.mark.parametrize("name", STAGING)
def test_staging(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS)
    golden(f"graph_{name}", workplace.mistake(lambda: workplace.run(GRAPH + STAGING[name] + "\n")))
    workplace.still_works()


def test_op_twice_in_a_file(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    start, end = KERNELS.index('@register("add")'), KERNELS.index('@register("halves")')
    again = KERNELS[start:end].replace("def add", "def sum")
    workplace.write("kernels.py", f"{KERNELS}\n\n{again}")
    golden("op_twice_in_a_file", workplace.mistake(lambda: workplace.run(GRAPH + "graph(lambda x: x, f32('n'))\n")))


def test_op_in_two_libraries(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("one/kernels.py", KERNELS)
    workplace.write("two/kernels.py", KERNELS)
    text = GRAPH + "Graph('model', custom_extensions=['one', 'two'])\n"
    golden("op_in_two_libraries", workplace.mistake(lambda: workplace.run(text)))


def test_folder_without_kernels(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("empty/helpers.py", "SIZE = 3\n")
    text = GRAPH + "Graph('model', custom_extensions=['empty'])\n"
    golden("folder_without_kernels", workplace.mistake(lambda: workplace.run(text)))


CALLS: dict[str, Callable[[], list[Any]]] = {
    "number": lambda: [np.float32([1, 2])],
    "dtype": lambda: [np.float64([1, 2]), np.float32([1, 2])],
    "no_tensor": lambda: [[1, 2], np.float32([1, 2])],
    "rank": lambda: [np.zeros((2, 2), np.float32), np.float32([1, 2])],
    "dims": lambda: [np.float32([1, 2]), np.float32([1, 2, 3])],
    "strides": lambda: [np.zeros(4, "f4,i1")["f0"], np.zeros(4, np.float32)],
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS)
    text = "made = InferenceSession().load(graph(lambda x, y: ops.custom('add', cpu, [x, y]), f32('n'), f32('n')))\n"
    model = workplace.run(GRAPH + text)["made"]
    error = workplace.mistake(lambda: workplace.run_with(model, CALLS[name]()))
    golden(f"call_{name}", error)
    assert model(np.float32([1, 2]), np.float32([3, 4]))[0].to_numpy().tolist() == [4, 6], "the model still works"


def test_call_with_a_wrong_static_size(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS)
    text = "made = InferenceSession().load(graph(lambda x: ops.custom('checked', cpu, [x]), f32(4)))\n"
    model = workplace.run(GRAPH + text)["made"]
    golden("call_size", workplace.mistake(lambda: workplace.run_with(model, [np.float32([1, 2])])))


def test_failures_of_running_kernels(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    """An assert or a raise in a kernel that runs on several threads: text and place, and the next call is fine."""
    workplace.write("kernels.py", KERNELS)
    text = "made = InferenceSession().load(graph(lambda x: ops.custom('checked', cpu, [x]), f32('n')))\n"
    model = workplace.run(GRAPH + text)["made"]
    x = np.full(300_000, 4, np.float32)
    for index, value, name in ((123_456, -2.5, "kernel_assert"), (299_999, 101, "kernel_raise")):
        bad = x.copy()
        bad[index] = value
        error = workplace.mistake(lambda bad=bad: workplace.run_with(model, [bad]))
        assert isinstance(error, KernelError) and error.place is not None
        golden(name, error)
        assert (model(x)[0].to_numpy() == 2).all(), "the model still works"


def test_print(workplace, capfd: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS)
    text = "made = InferenceSession().load(graph(lambda x: ops.custom('spoken', cpu, [x]), f32('n')))\n"
    model = workplace.run(GRAPH + text)["made"]
    capfd.readouterr()
    model(np.float32([0.5, 2]))
    assert capfd.readouterr().out == "n is: 2\nfirst 0.500!\n"


def test_names_of_the_language_outside(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS)
    golden("stub_called", workplace.mistake(lambda: workplace.run("from einkorn.dsl import sqrt\n\nsqrt(2.0)\n")))
    text = "import sys\nsys.path.insert(0, '.')\nfrom kernels import scale\n\nscale(1, 2)\n"
    golden("kernel_called", workplace.mistake(lambda: workplace.run(text)))
