"""`exp(x, fast=True)` and its kin: within their bounds where GPUs have instructions, else the ordinary functions.

Both interpreters give the nearest float32 for an instruction, so what is measured is how far a function is from the
exact result aside from that; the page says in addition what makers of GPUs allow their instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.launching_device import run_unit
from support.ptx_device import run_ptx
from support.ptx_numbers import BOUNDS

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError, DTypeError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).parent / "kernels_fast.py"
ERF = np.vectorize(math.erf, otypes=[np.float64])

# The exact function; the arguments, as their range or (below 0 and above it) as powers of two; and what is allowed
# in addition to the error of the instruction, for an argument x and a result y.
Allowed = Callable[[Array, Array], Array]
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Any, Allowed]] = {
    "exp": (np.exp, (-87, 88), lambda x, y: np.abs(y) * (2.0**-24 + np.abs(x) * 2.0**-23.7)),
    "exp2": (np.exp2, (-126, 127), lambda x, y: np.abs(y) * 2.0**-24),
    "log": (np.log, "powers", lambda x, y: np.abs(y) * 2.0**-23),
    "log2": (np.log2, "powers", lambda x, y: np.abs(y) * 2.0**-24),
    "log10": (np.log10, "powers", lambda x, y: np.abs(y) * 2.0**-22.5),
    "sin": (np.sin, (-314, 314), lambda x, y: 2.0**-22 + np.abs(x) * 2.0**-23),
    "cos": (np.cos, (-314, 314), lambda x, y: 2.0**-22 + np.abs(x) * 2.0**-23),
    "tanh": (np.tanh, (-12, 12), lambda x, y: np.abs(y) * 2.0**-19),
    "sqrt": (np.sqrt, "powers", lambda x, y: np.abs(y) * 2.0**-24),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "powers", lambda x, y: np.abs(y) * 2.0**-24),
    "reciprocal": (lambda x: 1 / x, "powers", lambda x, y: np.abs(y) * 2.0**-24),
    "erf": (ERF, (-5, 5), lambda x, y: np.full_like(x, 2.0**-20.8)),
}


def arguments(name: str, count: int) -> Array:
    rng = np.random.default_rng(len(name))
    domain = FUNCTIONS[name][1]
    if domain == "powers":
        return np.exp2(rng.uniform(-125, 125, count)).astype(np.float32)
    low, high = domain
    numbers = [rng.uniform(low, high, count // 2), rng.uniform(-0.25, 0.25, count - count // 2)]
    return np.concatenate(numbers).astype(np.float32)


def within(name: str, x: Array, actual: Array) -> None:
    exact, _, allowed = FUNCTIONS[name]
    wide = x.astype(np.float64)
    wanted = exact(wide)
    excess = np.abs(actual - wanted) / allowed(wide, wanted)
    assert np.max(excess) <= 1, (name, x[np.argmax(excess)], np.max(excess))


@pytest.mark.parametrize("op", ["one", "vectors"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ptx_is_within_the_bounds(name: str, op: str) -> None:
    x = arguments(name, 4096)
    spec, _ = harness.entry_of(KERNELS, op, [(DType.float32, x.shape)], {"name": name})
    out = np.zeros_like(x)
    run_unit(spec, "sm_80", run_ptx, [x, out])
    within(name, x, out)


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_interpreter_is_within_the_bounds(name: str, target: str) -> None:
    x = arguments(name, 200)
    spec, _ = harness.entry_of(KERNELS, "one", [(DType.float32, x.shape)], {"name": name})
    out = np.zeros_like(x)
    Interpreted(typed_program(spec, lookup(target)), spec).run([x, out], [], lambda site, values: None)
    within(name, x, out)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_processor_computes_the_ordinary_functions(dtype: Any, run_kernel: Callable[..., list[Any]]) -> None:
    for name in FUNCTIONS:
        x = np.clip(arguments(name, 500), -1e4, 1e4).astype(dtype)
        fast, ordinary = (run_kernel(KERNELS, "one", [x], {"name": name, "fast": fast})[0] for fast in (True, False))
        assert fast.tobytes() == ordinary.tobytes(), name


INSTRUCTIONS = {
    **{"exp": ("ex2", "exp"), "exp2": ("ex2", "exp"), "log": ("lg2", "log"), "log2": ("lg2", "log")},
    **{"log10": ("lg2", "log"), "sin": ("sin", "sin"), "cos": ("cos", "cos"), "tanh": ("tanh", "exp")},
    **{"sqrt": ("sqrt", "sqrt"), "rsqrt": ("rsqrt", "rsq"), "reciprocal": ("rcp", "rcp"), "erf": ("ex2", "exp")},
}


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16])
def test_gpus_take_their_instructions(dtype: DType) -> None:
    assert set(INSTRUCTIONS) == set(FUNCTIONS)
    for name, (nvidia, amd) in INSTRUCTIONS.items():
        for target, wanted in (
            ("sm_90a", rf"{nvidia}\.approx(\.ftz)?\.f32"),
            ("gfx942", f"v_{amd}_f32"),
            ("gfx1100", f"v_{amd}_f32"),
        ):
            artifact, _ = harness.compile_kernel(KERNELS, "one", [(dtype, (64,))], {"name": name}, target=target)
            assert re.search(wanted, artifact.asm), (name, target)
            assert not re.search(r"\bcall\b|div\.rn|sqrt\.rn|v_div_", artifact.asm), (name, target)


@pytest.mark.parametrize("dtype", [DType.float64])
@pytest.mark.parametrize("name", ["exp", "sqrt"])
def test_other_dtypes_are_refused(name: str, dtype: DType) -> None:
    with pytest.raises(CompileError, match=rf"'{name}' with fast=True works on float32, float16, bfloat16") as raised:
        harness.compile_kernel(KERNELS, "one", [(dtype, (64,))], {"name": name})
    assert raised.value.code == "EK0204" and raised.value.hint is not None and "float32" in raised.value.hint


# *** ops of graphs ***

OPS: dict[str, tuple[Callable[..., Any], tuple[Callable[[Array], Array], float]]] = {
    "exp": (ops.exp, (np.exp, 2.0**-19)),
    "log": (lambda x, fast: ops.log(ops.abs(x) + 1.5, fast=fast), (lambda x: np.log(np.abs(x) + 1.5), 2.0**-21)),
    "sin": (ops.sin, (np.sin, 2.0**-20)),
    "cos": (ops.cos, (np.cos, 2.0**-20)),
    "tanh": (ops.tanh, (np.tanh, 2.0**-22)),
    "erf": (ops.erf, (ERF, 2.0**-20)),
    "sqrt": (lambda x, fast: ops.sqrt(ops.abs(x), fast=fast), (lambda x: np.sqrt(np.abs(x)), 2.0**-22)),
    "rsqrt": (lambda x, fast: ops.rsqrt(ops.abs(x) + 1.5, fast=fast), (lambda x: (np.abs(x) + 1.5) ** -0.5, 2.0**-22)),
    "sigmoid": (ops.sigmoid, (lambda x: 1 / (1 + np.exp(-x)), 2.0**-21)),
    "silu": (ops.silu, (lambda x: x / (1 + np.exp(-x)), 2.0**-19)),
    "div": (lambda x, fast: ops.div(3.0, x, fast=fast), (lambda x: 3 / x, 2.0**-22)),
    **{
        f"gelu {kind}": (lambda x, fast, kind=kind: ops.gelu(x, kind, fast=fast), (function, 2.0**-18))
        for kind, function in {
            "none": lambda x: 0.5 * x * (1 + ERF(x * 0.5**0.5)),
            "tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
            "quick": lambda x: x / (1 + np.exp(-1.702 * x)),
        }.items()
    },
}


def outputs(x: Array, device: Any, fast: bool) -> list[Array]:
    ref = DeviceRef.CPU() if isinstance(device, CPU) else DeviceRef.GPU()
    with Graph("fast", input_types=[TensorType(DType.from_numpy(x.dtype), ["n"], ref)]) as graph:
        graph.output(*(build(graph.inputs[0], fast=fast) for build, _ in OPS.values()))
    model = InferenceSession(devices=[device]).load(graph)
    given = x if isinstance(device, CPU) else Buffer.from_numpy(x).to(device)
    return [np.asarray(result.to_numpy()) for result in model.execute(given)]


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_ops_of_graphs(device: str) -> None:
    x = np.random.default_rng(0).uniform(-6, 6, 1001).astype(np.float32)
    where = CPU() if device == "cpu" else Accelerator("sim")
    for name, result in zip(OPS, outputs(x, where, True), strict=True):
        exact, bound = OPS[name][1]
        wanted = exact(x.astype(np.float64))
        assert (np.abs(result - wanted) <= bound * np.maximum(np.abs(wanted), 1)).all(), name


def test_ops_refuse_other_dtypes() -> None:
    for dtype in (DType.float64, DType.complex64):
        with Graph("fast", input_types=[TensorType(dtype, ["n"])]) as graph:
            with pytest.raises(DTypeError, match=f"exp: fast=True has no meaning for {dtype}") as raised:
                ops.exp(graph.inputs[0], fast=True)
            assert (raised.value.code, raised.value.argument) == ("EK0413", "x")
            assert ops.exp(graph.inputs[0], fast=False).dtype == dtype
            graph.output(graph.inputs[0])


def test_the_page_says_what_instructions_are_allowed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8")
    table = page.partition("<!-- table: fast -->")[2].partition("<!-- end")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(FUNCTIONS)
    for instruction in ("sin", "cos", "rsqrt"):
        power = math.log2(BOUNDS[f"{instruction}.approx.f32"])
        assert f"2**{power:g}" in next(row for row in table.splitlines() if f"`{instruction}`" in row)
