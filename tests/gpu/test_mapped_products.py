"""Products of built-in ops by tensor maps: results as PTX and on a simulated GPU, what multiplies, the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import simulated
from support.gpu_case import Array, GpuCase, numbers
from support.gpu_cases_groups import BF16, F16
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.graph import Accelerator

FILE = "built_in_tiles.py"
TARGETS = ("sm_90a", "sm_100a")
BOUNDS = {"bfloat16": 1e-2, "float16": 2e-3}


def product(dtype: Any, m: int, n: int, k: int, batches: int = 1, **params: Any) -> GpuCase:
    turned = params.get("transposed", False)

    def inputs() -> tuple[Array, ...]:
        return numbers(dtype, batches, m, k, seed=m), numbers(dtype, batches, *((n, k) if turned else (k, n)), seed=n)

    def reference(a: Array, b: Array) -> Array:
        wide = b.astype(np.float64)
        result: Array = (a.astype(np.float64) @ (wide.swapaxes(1, 2) if turned else wide)).astype(dtype)
        return result

    name = f"{batches}x{m}x{n}x{k}-{'-'.join(f'{key}{value}' for key, value in params.items())}"
    bound = BOUNDS[np.dtype(dtype).name]
    return GpuCase(name, FILE, "built_in_tiles::product", inputs, reference, params, bound=bound)


def pieces(m: int, n: int, k: int, count: int) -> GpuCase:
    """A piece of the inner axis is of whole steps of 64; the last ones may be short or empty."""
    steps = -(-k // 64)
    length = -(-steps // count) * 64

    def reference(a: Array, b: Array) -> Array:
        wide = a.astype(np.float64), b.astype(np.float64)
        parts = [
            wide[0][:, p * length : (p + 1) * length] @ wide[1][p * length : (p + 1) * length] for p in range(count)
        ]
        return np.stack(parts).astype(BF16)

    def inputs() -> tuple[Array, ...]:
        return numbers(BF16, m, k, seed=m), numbers(BF16, k, n, seed=n)

    return GpuCase(f"pieces-{m}x{n}x{k}-{count}", FILE, "built_in_tiles::pieces", inputs, reference, bound=1e-2)


CASES = (
    product(BF16, 130, 136, 264),
    product(BF16, 70, 200, 264, N=256, warps=8),
    product(BF16, 65, 72, 64, N=64),
    product(F16, 7, 8, 320, batches=2, N=64),  # more steps than stages
    product(BF16, 128, 64, 128, M=64, N=64),
    product(F16, 63, 130, 72, batches=2, transposed=True),
    product(BF16, 5, 40, 200, M=16, N=128),
    product(BF16, 33, 65, 130),  # rows that do not begin at 16 bytes: no map
    product(F16, 30, 64, 131, transposed=True, N=64),
    product(BF16, 40, 70, 64, N=64),  # a map of one operand alone
    product(BF16, 1, 1, 1, N=64),
    product(BF16, 9, 16, 0, N=64),
    pieces(40, 64, 300, 3),
    pieces(20, 40, 64, 2),  # nothing is left for the second one
)


def changed(case: GpuCase, target: str, pattern: str = "", to: str = "") -> list[Array]:
    """What a case gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode())
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), target, run, [*(array.copy() for array in case.inputs()), *outputs])
    return outputs


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_as_ptx(case: GpuCase, target: str) -> None:
    case.check(changed(case, target))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES[2::3], ids=str)
def test_results_on_a_simulated_gpu(case: GpuCase, seed: int) -> None:
    """With all checks, in four orders of the threads."""
    device = Accelerator("sim", like=TARGETS[seed % 2], seed=seed, checks="all")
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
    simulated.run_unit(case.spec(), device, [*(array.copy() for array in case.inputs()), *outputs], outputs=1)
    case.check(outputs)


def attributes(case: GpuCase, target: str, name: str) -> list[str]:
    program = typed_program(case.spec(), lookup(target))
    ops = [op for function in program.functions for op in walk(function.body)]
    return [op.attrs[name] for op in ops if op.opcode.name == "together" and name in op.attrs]


@pytest.mark.parametrize(
    ("target", "row"), [("sm_90a", "wgmma.m64k16.bfloat16"), ("sm_100a", "tcgen05.m128k16.bfloat16")]
)
def test_what_multiplies_and_copies(target: str, row: str) -> None:
    assert set(attributes(CASES[0], target, "product")) == {row}
    copies = attributes(CASES[0], target, "copies")
    assert copies and all(each.startswith("by a tensor map: boxes of") for each in copies), copies
    asm = str(CASES[0].compile(target).asm)
    assert "cp.async.bulk.tensor.3d" in asm and "cp.async.cg" not in asm and "ldmatrix" not in asm


@pytest.mark.parametrize("target", ("sm_80", "sm_120a"))
def test_targets_whose_threads_copy_pieces(target: str) -> None:
    asm = str(CASES[0].compile(target).asm)
    assert "cp.async.cg" in asm and ".tensor" not in asm


def test_no_copy_waits_for_stores_into_global_memory() -> None:
    """The kernel stores into no tensor that it copies."""
    for target in TARGETS:
        assert "fence.proxy.async;" not in str(CASES[0].compile(target).asm)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_spilled(target: str, tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in (CASES[0], CASES[1], CASES[5], CASES[-2]):
        source.write_text(str(case.compile(target).asm))
        command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (case, report)
        assert "serialized" not in report, report


WAIT = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 p, \[[^]]*\], %r\d+;"


def test_results_depend_on_the_waits() -> None:
    """Copies are as late as they may be: without the wait something else is multiplied."""
    with pytest.raises(AssertionError):
        CASES[2].check(changed(CASES[2], "sm_90a", WAIT, "setp.eq.b32 p, 1, 1;"))
