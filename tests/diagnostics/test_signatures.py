"""Mistakes with scalars, variadic arguments, buffers, references and shape functions: each with its golden text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

KERNELS = """
@register("several")
def several(out: OutputTensor[T, "(sum(n_k))"], xs: VariadicTensors[T, "n_k"], ys: VariadicTensors[T, "m"], s: T):
    foreach(out, lambda i: xs[0][0] * s)


@register("twice")
def twice(outs: OutputVariadicTensors[T, "n", "count"], x: InputTensor[T, "n"], *, count: int = 2):
    for out in outs:
        foreach(out, lambda i: x[i])


@register("change")
def change(y: MutableInputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(y, lambda i: y[i] + x[i])


@register("kept")
def kept(out: OutputTensor[T, "k"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i])


@kept.shape
def kept_shape(x):
    return x.dim(0) - 3
"""

FILES = {
    "count": 'def op(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n", "cuont"], *, count: int): pass',
    "own_size": 'def op(out: OutputTensor[T, "n_k"], xs: VariadicTensors[T, "n_k"]): pass',
    "own_size_computed": 'def op(out: OutputTensor[T, "(2*n_k + 1)"], xs: VariadicTensors[T, "n_k"]): pass',
    "scalar_is_a_dim": 'def op(out: OutputTensor[T, "n"], n: Int, x: InputTensor[T, "n"]): pass',
    "scalar_of_python": 'def op(out: OutputTensor[T, "n"], s: float, x: InputTensor[T, "n"]): pass',
    "scalar_default": 'def op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], s: Float32 = 1.0): pass',
    "variadic_form": 'def op(out: OutputTensor[T, "n"], xs: VariadicTensors[T]): pass',
    "scalar_rank": 'def op(out: OutputTensor[T, "n"], s: T):\n    out[0] = s',
    "variadic_index": 'def op(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"]):\n'
    "    foreach(out, lambda i: xs[i[0]][i])",
}

AFTER = {
    "reference_inputs": "@op.reference\ndef op_reference(a, b):\n    return a",
    "reference_hides": "@op.reference\ndef op(x):\n    return x",
    "reference_parameter": "@op.reference\ndef op_reference(x, *, axis):\n    return x",
    "shape_nothing": "@op.shape\ndef op_shape(x):\n    return x.dim(0)",
}

CALLS = {
    "counts_list": "ops.custom('several', device=CPU, values=[[x], x, 1.0])",
    "counts_open": "ops.custom('several', device=CPU, values=[x, x, 1.0])",
    "counts_fixed": "ops.custom('twice', device=CPU, values=[x], out_types=[x.type])",
    "scalar_dtype": "ops.custom('several', device=CPU, values=[[x], [x], x[0].cast(DType.int32)])",
    "scalar_number": "ops.custom('several', device=CPU, values=[[x], [x], 1 << 200])",
    "pure": "ops.custom('change', device=CPU, values=[y, x])",
    "no_buffer": "ops.inplace_custom('change', device=CPU, values=[x, x])",
    "buffer_twice": "ops.inplace_custom('change', device=CPU, values=[y, y])",
    "buffer_as_tensor": "x + y",
    "store_shape": "ops.buffer_store(y, x[1:])",
}


@pytest.mark.parametrize("name", FILES)
def test_signature(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden(f"signature_{name}", workplace.load(f'\n\n@register("op")\n{FILES[name]}\n'))


@pytest.mark.parametrize("name", AFTER)
def test_companion(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    op = '@register("op")\ndef op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):\n    foreach(out, lambda i: x[i])'
    golden(f"signature_{name}", workplace.load(f"\n\n{op}\n\n\n{AFTER[name]}\n"))


MODEL = """
from einkorn.graph import *
from einkorn.graph import ops

CPU = DeviceRef.CPU()
types = [TensorType(DType.float32, [4], CPU), BufferType(DType.float32, [4], CPU)]
with Graph("model", input_types=types, custom_extensions=["kernels.py"]) as graph:
    x, y = graph.inputs
    {call}
"""


@pytest.mark.parametrize("name", CALLS)
def test_staging(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", PRELUDE + KERNELS)
    golden(f"staging_{name}", workplace.mistake(lambda: workplace.run(MODEL.format(call=CALLS[name]))))


PRELUDE = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
"""

RUNS = {
    "negative_size": ("lambda x, y: ops.custom('kept', device=CPU, values=[x])", "np.zeros(2), np.zeros(2)"),
    "promised_size": (
        "lambda x, y: ops.custom('kept', device=CPU, values=[x], out_types=[x.type])",
        "np.zeros(5), np.zeros(5)",
    ),
    "read_only": (
        "lambda x, y: ops.inplace_custom('change', device=CPU, values=[y, x]) and None",
        "np.zeros(2), np.broadcast_to(0.0, 2)",
    ),
    "shared": (
        "lambda x, y: ops.inplace_custom('change', device=CPU, values=[y, x]) and None",
        "(a := np.zeros(6))[:4], a[2:]",
    ),
    "unaligned": ("lambda x, y: x + 1", "np.zeros(33, np.uint8)[1:].view(np.float64), np.zeros(4)"),
}


@pytest.mark.parametrize("name", RUNS)
def test_call(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    forward, inputs = RUNS[name]
    workplace.write("kernels.py", PRELUDE + KERNELS)
    text = f"""
        import numpy as np
        from einkorn.graph import *
        from einkorn.graph import ops

        CPU = DeviceRef.CPU()
        graph = Graph(
            "model",
            forward={forward},
            input_types=[TensorType(DType.float64, ["n"], CPU), BufferType(DType.float64, ["n"], CPU)],
            custom_extensions=["kernels.py"],
        )
        model = InferenceSession().load(graph)
        inputs = [{inputs}]
    """
    made = workplace.run(dedent(text))
    error = workplace.mistake(lambda: workplace.run_with(made["model"], made["inputs"]))
    shown = str(error)
    if name == "unaligned":  # addresses differ
        assert "lies at 0x" in shown and "need a multiple of 8" in shown and "hint: copy it" in shown
    else:
        golden(f"call_{name}", shown)
