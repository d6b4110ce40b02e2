"""AMD code objects, run in tinygrad's emulator where a checkout of it is named: `make test-amd`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.amd_checkout import VARIABLE, missing
from support.gpu_cases import CASES, GpuCase
from support.launching_device import LaunchingDriver, launching_kind, run_unit

from einkorn.compiler.targets import lookup
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops
from einkorn.graph.driver import devices

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
GPU = DeviceRef.GPU()
CDNA, RDNA = ("gfx90a", "gfx942", "gfx950"), ("gfx1100", "gfx1201")
# What does not run in the emulator: by the beginning of a case's name, and target. With lanes of a warp that are absent
# or take another branch, it reads for these lanes too, at addresses that nobody made, and ends the process.
ABSENT_LANES = "reads for lanes that take no part"
ONE_PRIVATE_MEMORY = "gives all warps of a block the same private memory, which this case holds across barriers"
OPEN = "differs for a cause that is not found: simulated and as PTX the case is right"
FAULTS = {
    "warps shuffle int32 100": (ABSENT_LANES, ("gfx90a",)),
    "collectives of a warp": (ABSENT_LANES, CDNA),
    "collectives of a block float16 100": (ABSENT_LANES, TARGETS),
    "collectives moments": (ABSENT_LANES, CDNA),
    "affine_columns": (ABSENT_LANES, ("gfx1100",)),
    "order": (ABSENT_LANES, (*CDNA, "gfx1100")),
    "warps parted": (OPEN, CDNA),
    "matmul": (ONE_PRIVATE_MEMORY, RDNA),
}

needs_emulator = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@needs_emulator
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cases(case: GpuCase) -> None:
    faults = {target for name, (_, targets) in FAULTS.items() if case.name.startswith(name) for target in targets}
    for target in TARGETS:
        if case.refusal(target) is None and target not in faults:
            alone(lambda target=target: run(case, target))  # type: ignore[misc]


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
    found = [each.to_numpy() for each in model(*(Buffer.from_numpy(a).to(GPU) for a in (x, y)))]
    wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    assert np.allclose(found[0], x.astype(np.float64) @ y * 2 + 1, atol=1e-4)
    assert np.allclose(found[1], wide / wide.sum(-1, keepdims=True), rtol=1e-6)
    assert np.array_equal(found[2], x.max(-1, keepdims=True)) and np.array_equal(found[3], x.astype(np.float16))
    driver = Accelerator(0).driver
    assert isinstance(driver, LaunchingDriver) and driver.launches >= 3


def test_what_is_missing_is_said() -> None:
    """Without a checkout, the script that `make test-amd` begins with ends with one line and 1."""
    script = Path(__file__).parents[1] / "support" / "amd_checkout.py"
    bare = {name: value for name, value in os.environ.items() if "AMD_EMULATOR" not in name}
    for given, said in (({}, "does not name a checkout"), ({VARIABLE: "/nowhere"}, "is not a checkout of tinygrad")):
        done = subprocess.run([sys.executable, script], env=bare | given, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
