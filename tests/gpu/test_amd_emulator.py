"""AMD code objects, run in tinygrad's emulator where a checkout of it is named: `make test-amd`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.amd_checkout import VARIABLE, missing
from support.amd_faults import FAULTS
from support.gpu_cases import CASES, GpuCase
from support.launching_device import LaunchingDriver, launching_kind, run_unit

from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl.contract.checks import parse_checks
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops
from einkorn.graph.driver import devices

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
GPU = DeviceRef.GPU()
CDNA, RDNA = ("gfx90a", "gfx942", "gfx950"), ("gfx1100", "gfx1201")
FAMILIES = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
# Cases that run into a fault of the emulator (see support.amd_faults) which depends on lanes that are off or
# barriers: by the beginning of a case's name, with the targets. Cases that run into the other faults are known by
# their instructions.
LEFT_OUT = {
    "warps shuffle int32 100": ("local reads", ("gfx90a",)),
    "collectives of a warp": ("local reads", CDNA),
    "collectives of a block float16 100": ("local reads", TARGETS),
    "collectives moments": ("local reads", CDNA),
    "affine_columns": ("local reads", ("gfx1100",)),
    "column_sum": ("local reads", CDNA),
    "large": ("local reads", TARGETS),  # an index below 0, whose address the machine may not have
    "order": ("local reads", (*CDNA, "gfx1100")),
    "atomic-combine[bfloat16]": ("half a register", ("gfx1100",)),
    "tiles-product_in_float32[float8": ("the other half", ("gfx1100",)),
    "warps parted": ("permutation", TARGETS),
    "matmul": ("private memory", RDNA),
    "example[matrix_multiplication-vectorized]": ("private memory", ("gfx942", "gfx950")),
}

# Instructions that the emulator does not know, or for which it writes C that is none: MFMA as gfx90a encodes it, and
# that of float64 and of bytes, and WMMA of 8-bit floats, which it takes for halves. A DPP whose result is where its
# operand was reads what it has written for other lanes; RDNA's DPP of three operands is not known, and v_permlanex16
# reads other lanes than its text in AMD's manual says.
IN_PLACE = r"_dpp (v\d+), (v\d+, )?\1 (row|quad)"
RDNA_LANES = r"_e64_dpp|v_permlanex16"
UNKNOWN = {
    "gfx90a": rf"v_mfma_|{IN_PLACE}",
    "gfx942": rf"v_mfma_(f64|i32)|{IN_PLACE}",
    "gfx950": rf"v_mfma_(f64|i32)|{IN_PLACE}",
    "gfx1100": rf"{RDNA_LANES}|{IN_PLACE}",
    "gfx1201": rf"v_wmma_\w+_(fp|bf)8|{RDNA_LANES}|{IN_PLACE}",
}

needs_emulator = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@needs_emulator
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cases(case: GpuCase) -> None:
    """Each case runs for every target, but for those where the emulator is known to be wrong about its instructions."""
    targets = [target for target in TARGETS if case.refusal(target) is None]
    left_out = {target: reason for target in targets if (reason := reason_against(case, target)) is not None}
    for target in targets:
        if target not in left_out:
            alone(lambda target=target: run(case, target))  # type: ignore[misc]
    if targets and len(left_out) == len(targets):
        pytest.skip("; ".join(f"the emulator: {reason}" for reason in sorted(set(left_out.values()))))


def reason_against(case: GpuCase, target: str) -> str | None:
    """Why the emulator cannot run a case for a target: a fault, or an instruction that it does not know."""
    family = FAMILIES[target]
    for name, (fault, targets) in LEFT_OUT.items():
        if case.name.startswith(name) and target in targets:
            return FAULTS[fault].what
    unchecked = replace(case.spec(), checks=str(parse_checks("off")))  # no check fails in these cases
    asm = compile_entry(unchecked, lookup(target)).asm
    unknown = UNKNOWN.get(target)
    if unknown is not None and re.search(unknown, asm):
        return f"{unknown} is not known"
    return next((fault.what for fault in FAULTS.values() if fault.needed(family, asm)), None)


@needs_emulator
@pytest.mark.parametrize(
    ("name", "family"), [(name, each) for name, fault in FAULTS.items() for each in fault.programs]
)
def test_faults(name: str, family: str) -> None:
    """The emulator still has each fault: once it is right, the fault and the cases left out for it have to go."""
    fault = FAULTS[name]

    def right() -> None:
        assert fault.run(family).tolist() == list(fault.after)

    with pytest.raises(AssertionError):
        alone(right)


def run(case: GpuCase, target: str) -> None:
    from support.amd_emulator import run_amd

    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
    run_unit(case.spec(), target, run_amd, [*(array.copy() for array in case.inputs()), *outputs])
    case.check(outputs, lookup(target).lanes)


def alone(function: Callable[[], None]) -> None:
    """Calls a function in a process of its own, which the emulator may end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(1)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said:
        message = said.read().decode(errors="replace")
    assert status == 0, message or f"the process ended with {status}"


@needs_emulator
@pytest.mark.parametrize("target", TARGETS)
def test_a_graph(target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Elementwise work, a product, rows and a reduction, through a session."""
    from support.amd_emulator import run_amd

    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_amd, target)])

    def forward(x: TensorValue, y: TensorValue) -> list[TensorValue]:
        return [ops.matmul(x, y) * 2 + 1, ops.softmax(x), ops.max(x, axis=-1), ops.cast(x, DType.float16)]

    x = np.random.default_rng(0).standard_normal((6, 33)).astype(np.float32)
    y = np.random.default_rng(1).integers(-3, 4, (33, 5)).astype(np.float32)
    types = [TensorType(DType.float32, ["m", "k"], GPU), TensorType(DType.float32, ["k", "n"], GPU)]
    model = InferenceSession(devices=[Accelerator(0)]).load(Graph("graph", forward, types))
    actual = [each.to_numpy() for each in model(*(Buffer.from_numpy(a).to(GPU) for a in (x, y)))]
    wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    assert np.allclose(actual[0], x.astype(np.float64) @ y * 2 + 1, atol=1e-4)
    assert np.allclose(actual[1], wide / wide.sum(-1, keepdims=True), rtol=1e-6)
    assert np.array_equal(actual[2], x.max(-1, keepdims=True)) and np.array_equal(actual[3], x.astype(np.float16))
    driver = Accelerator(0).driver
    assert isinstance(driver, LaunchingDriver) and driver.launches >= 3


def test_what_is_missing_is_said() -> None:
    """Without a checkout, the script that `make test-amd` begins with ends with one line and 1."""
    script = Path(__file__).parents[1] / "support" / "amd_checkout.py"
    bare = {name: value for name, value in os.environ.items() if "AMD_EMULATOR" not in name}
    for given, said in (({}, "does not name a checkout"), ({VARIABLE: "/missing"}, "is not a checkout of tinygrad")):
        done = subprocess.run([sys.executable, script], env=bare | given, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
