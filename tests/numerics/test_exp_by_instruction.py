"""`exp` of float32 where GPUs have an instruction for powers of two: within its bound, and in how many steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).parent / "kernels_exp.py"
ULPS = 1.5  # with the float32 nearest to each power; the instruction adds 2 ulp at most
LIMITS = [87.0, -87.0, 88.7, 88.75, 89.0, 1e30, -87.4, -103.9, -104.1, -1e30, 1e-40]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *LIMITS], np.float32)


def arguments(count: int) -> Array:
    """Numbers of all sizes; most have a result that is neither 0 nor infinite."""
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, count // 4, dtype=np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, bits, generator.uniform(-104, 89, count).astype(np.float32)])


def check(x: Array, found: Array, ulps: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.exp(x.astype(np.float64))
        nearest = exact.astype(np.float32)
    odd = ~np.isfinite(nearest)
    np.testing.assert_array_equal(found[odd], nearest[odd])
    error = np.abs(found[~odd] - exact[~odd]) / np.spacing(nearest[~odd]).astype(np.float64)
    assert np.max(error) <= ulps, (x[~odd][np.argmax(error)], np.max(error))
    assert (found[x == 0] == 1).all()


@pytest.mark.parametrize("aligned", [True, False])
def test_ptx_is_within_the_bound(aligned: bool) -> None:
    """Threads of whole blocks take several elements, with and without a rare one among them; the others take one."""
    x = arguments(20480)
    x[2048:8192] = np.random.default_rng(1).uniform(-80, 80, 6144)
    if not aligned:
        x = np.concatenate([x[:1], x])[1:]
    spec, _ = harness.entry_of(KERNELS, "exp_each", [(DType.float32, x.shape)])
    out = np.zeros_like(x)
    run_unit(spec, "sm_80", run_ptx, [x, out])
    check(x, out, ULPS)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_the_interpreter_is_within_the_bound(target: str) -> None:
    x = arguments(300)
    spec, _ = harness.entry_of(KERNELS, "exp_each", [(DType.float32, x.shape)])
    out = np.zeros_like(x)
    Interpreted(typed_program(spec, lookup(target)), spec).run([x, out], [], lambda site, values: None)
    check(x, out, ULPS)


@pytest.mark.parametrize("bias", [-2, 2])
@pytest.mark.parametrize("low, high", [(-87, 87), (-1, 1), (-1e-3, 1e-3)])
def test_steps_add_little_to_the_error_of_the_instruction(bias: int, low: float, high: float) -> None:
    """The ordinary way in NumPy, with powers that are 2 ulp off unless the exponent is whole."""
    x = np.random.default_rng(2).uniform(low, high, 1 << 18).astype(np.float32)

    def fma(a: Array, b: float, c: Array) -> Array:
        return np.asarray(a.astype(np.float64) * np.float64(np.float32(b)) + c, np.float32)

    t = x * np.float32(1.442695)
    left = fma(t, 1.9046542e-09, fma(t, -6.931472e-01, x))
    nearest = np.exp2(t.astype(np.float64)).astype(np.float32)
    power = np.where(t == np.floor(t), nearest, (nearest.view(np.int32) + bias).view(np.float32))
    found = np.asarray(power.astype(np.float64) * left + power, np.float32)
    check(x, found, 3.5)


def test_a_thread_branches_once_for_its_elements() -> None:
    """The accesses stay 16 bytes wide, and what no element needs stands behind one branch."""
    artifact, _ = harness.compile_kernel(KERNELS, "exp_each", [(DType.float32, (1 << 20,))], target="sm_90a")
    wide = artifact.asm[artifact.asm.index("ld.global.nc.v4") :]
    assert "st.global.v4" in wide
    until = re.split(r"\n\s*@%p\d+ bra", wide)[0]
    assert until.count("ex2.approx") == 4 and until.count("setp.") == 4, until
    counts = {name: len(re.findall(rf"\b{name}\.", until)) for name in ("mul", "fma", "min", "max", "selp")}
    assert counts["fma"] == 12 and not counts["min"] + counts["max"] + counts["selp"], counts


@pytest.mark.parametrize("name", ["exp_and_log", "in_place", "two_outputs"])
def test_bodies_with_several_rare_branches(name: str) -> None:
    """Also where an output is an input, and where there are two outputs."""
    x = np.random.default_rng(3).uniform(0.1, 80, 17000).astype(np.float32)
    x[::997] = 88.5
    spec, _ = harness.entry_of(KERNELS, name, [(DType.float32, x.shape)])
    outs = [np.zeros_like(x) for _ in range(2 if name == "two_outputs" else 1)]
    run_unit(spec, "sm_80", run_ptx, [x, *outs])
    wide = np.exp(x.astype(np.float64))
    wanted = {
        "exp_and_log": [wide + np.log(wide + 1)],
        "in_place": [wide * x],
        "two_outputs": [wide, 1 / (1 + wide)],
    }[name]
    for out, exact in zip(outs, wanted, strict=True):
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(out, exact.astype(np.float32), 2e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types(dtype: Any) -> None:
    x = np.random.default_rng(4).uniform(-20, 11, 20000).astype(dtype)
    x[5], x[6], x[4000], x[9000] = np.inf, -np.inf, np.nan, 100
    spec, _ = harness.entry_of(KERNELS, "exp_each", [(DType.from_numpy(x.dtype), x.shape)])
    out = np.zeros_like(x)
    run_unit(spec, "sm_80", run_ptx, [x, out])
    with np.errstate(over="ignore"):
        wanted = np.exp(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(
        out.astype(np.float32), wanted.astype(np.float32), 2.0**-6 if dtype is ml_dtypes.bfloat16 else 2.0**-9
    )
