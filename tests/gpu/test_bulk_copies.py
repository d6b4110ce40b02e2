"""Bulk copies of tiles: which tiles are copied so, the code for it, and what a wait that is missing does.

That results are right is what the cases of `support.gpu_cases_bulk` say, where all GPU test kernels are run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness, ptx, simulated
from support.gpu_cases_bulk import CASES, staged
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator

HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def copied(out, x):
{}

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(copied, out, x, grid=1, block=64, shared=2048)
"""
COPY = "gpu.copy_async(s, {}).wait()\ngpu.barrier()\ngpu.load({}).store(out.tile(0, 0, (16, 64)))"
PLAIN = "s = gpu.shared[float32](16, 64)\n" + COPY.format("x.tile(0, 0, (16, 64))", "s")
DYNAMIC = PLAIN.replace("64", "32").replace("gpu.shared", "gpu.dynamic_shared")
LONG = PLAIN.replace("64", "512")  # rows of more elements than a box may have


def written(folder: Path, text: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(HEAD.format("\n".join(f"    {line}" for line in text.split("\n"))))
    return path


def how(file: Path, shape: tuple[int, int], target: str) -> list[str]:
    """In words, how the tiles of a kernel are copied."""
    types = [(DType.float32, shape)]
    program = typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup(target))
    ops = [op for function in program.functions for op in walk(function.body)]
    return [op.attrs["copies"] for op in ops if "copies" in op.attrs]


CHOICES = {
    "rows": (
        LONG,
        (40, 700),
        "sm_90a",
        "in bulk: 16 rows of 2048 bytes; not by a tensor map, as rows have more than 256",
    ),
    "rows of a newer GPU": (LONG, (40, 700), "sm_100a", "in bulk: 16 rows of 2048 bytes;"),
    "rows that follow each other": (PLAIN, (40, 64), "sm_90a", "in bulk: 4096 bytes at once"),
    "a promise": (
        LONG.replace("(16, 512))).wait", "(16, 512), align=16)).wait"),
        (40, 700),
        "sm_90a",
        "in bulk: 16 rows of 2048 bytes; not by a tensor map",
    ),
    "an older GPU": (PLAIN, (40, 128), "sm_80", "pieces of 16 bytes: not in bulk, as sm_80: it has none"),
    "older PTX": (PLAIN, (40, 128), "sm_90", "pieces of 16 bytes: not in bulk, as sm_90: code for it is of a version"),
    "short rows of memory whose alignment is not known": (
        DYNAMIC,
        (40, 128),
        "sm_90a",
        "pieces of 16 bytes: not in bulk, as rows have 128 bytes, and bulk copies are of 256 or more; not by a tensor"
        " map, as it is not known how shared memory is aligned",
    ),
    "rows of an odd number": (PLAIN, (40, 129), "sm_90a", "elements: not asynchronously, as rows of the tensor"),
    "a filling": (
        PLAIN.replace("(16, 64))).wait", "(16, 64), fill=1.0)).wait"),
        (40, 128),
        "sm_90a",
        "elements: not asynchronously, as fill= is not 0",
    ),
    "a CPU": (PLAIN, (40, 128), "host", ""),
}


@pytest.mark.parametrize("name", CHOICES)
def test_how_a_tile_is_copied(tmp_path: Path, name: str) -> None:
    text, shape, target, wanted = CHOICES[name]
    found = how(written(tmp_path, text), shape, target)
    assert [words.startswith(wanted) for words in found] == [True] * bool(wanted), found


def code(case: Any, target: str) -> str:
    return str(case.compile(target).asm)


def test_the_code_of_a_bulk_copy() -> None:
    ptx = code(staged(np.float32, 40, 700, N=512), "sm_90a")
    assert ptx.count("mbarrier.init") == 16
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in ptx
    assert not re.search(r"cp\.async\.c[ag]\.shared", ptx)
    assert "mbarrier" not in code(staged(np.float32, 40, 256), "sm_80")


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ("sm_90a", "sm_100a", "sm_120a"))
def test_nothing_is_spilled(target: str, tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in CASES:
        source.write_text(code(case, target))
        command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (case, report)


def changed(case: Any, pattern: str, to: str, count: int = 0) -> list[Any]:
    """What a case gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode(), count=count)
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), "sm_90a", run, [*(array.copy() for array in case.inputs()), *outputs])
    return outputs


LOOK = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 p, \[[^]]*\], %r\d+;"


def test_results_depend_on_the_waits() -> None:
    """Copies are as late as they may be: without the wait something else is read."""
    case = staged(np.float32, 40, 256)
    case.check(changed(case, LOOK, lambda found: found[0]))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        case.check(changed(case, LOOK, "setp.eq.b32 p, 1, 1;"))


@pytest.mark.parametrize(
    ("pattern", "to", "message"),
    [
        (r"mbarrier\.init[^;]*;", "", "there is no barrier"),
        (r"(mbarrier\.expect_tx[^;]*, )(%r\d+)(;)", r"\g<1>32784\3", "announced bytes have not been copied"),
        (r"(mbarrier\.arrive[^;]*;)", r"\1 \1", "more threads arrive"),
        (r"(complete_tx::bytes \[%rd\d+)\]", r"\1+8]", "are not multiples of 16"),
    ],
)
def test_the_interpreter_of_ptx_finds_mistakes(pattern: str, to: str, message: str) -> None:
    with pytest.raises(ptx.PtxError, match=message):
        changed(staged(np.float32, 40, 700, N=512), pattern, to)


MISSING = {
    "no wait": ("gpu.copy_async(s, x.tile(0, 0, (16, 64)))\ngpu.barrier()", "EK0622"),
    "a part of the block": (
        "if gpu.thread_idx.x < 32:\n    gpu.copy_async(s, x.tile(0, 0, (16, 64))).wait()",
        "EK0620",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, error = MISSING[name]
    file = written(tmp_path, f"s = gpu.shared[float32](16, 64)\n{text}\ngpu.load(s).store(out.tile(0, 0, (16, 64)))")
    with pytest.raises(EinkornError) as refused:
        how(file, (40, 128), "sm_90a")
    assert refused.value.code == error


@pytest.mark.parametrize("seed", range(4))
def test_a_wait_that_comes_too_late_is_found(tmp_path: Path, seed: int) -> None:
    """As a pending copy or as a race, by the order of the threads."""
    text = (
        "s = gpu.shared[float32](16, 64)\ntoken = gpu.copy_async(s, x.tile(0, 0, (16, 64)))\n"
        "gpu.load(s).store(out.tile(0, 0, (16, 64)))\ntoken.wait()"
    )
    types = [(DType.float32, (40, 128))]
    spec = harness.entry_of(written(tmp_path, text), "op", types, {}, types)[0]
    arrays: list[Any] = [np.ones((40, 128), np.float32), np.zeros((40, 128), np.float32)]
    with pytest.raises(AssertionError, match="'found'"):
        simulated.run_unit(spec, Accelerator("sim", like="sm_90a", seed=seed, checks="all"), arrays, outputs=1)
